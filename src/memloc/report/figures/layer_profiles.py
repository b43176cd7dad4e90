"""Figures 5, 13 and 18: layer weights by technique and task; and all techniques on one axis."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from memloc.report.figures.data import CannotDraw, FigureData, Picture
from memloc.report.figures.palette import CATEGORIES, Look, category
from memloc.report.figures.panels import (
    handles,
    in_rows,
    layer_axis,
    legend_below,
    legend_height,
    marks,
    mean_and_spread,
    name_panel,
    outer_labels,
    panel_rows,
)
from memloc.report.figures.style import DOUBLE, SINGLE, new_figure

PROBES = {
    **{"technique": "object", "seed": "int64", "probe": "object", "model": "object"},
    **{"layer": "int64", "f1": "float64"},
}
WORDS = {
    "swapping": "swapping\nmean error",
    "retraining": "retraining\nmean error",
    "gradients": "gradients\nrelative norm",
    "probing": "probing\nF₁ of noisy class",
}
"""Labels of the rows."""
BAND = 0.15
"""Opacity of what is between two curves."""


def draw(data: FigureData) -> list[Picture]:
    """One figure per model: techniques below each other, categories of tasks side by side."""
    grid = data.need_runs()
    curves = grid.seed_weights[["task", "model", "technique", "seed", "layer", "weight"]]
    curves = curves[(curves["technique"] != "probing") & curves["technique"].isin(list(WORDS))]
    curves = pd.concat([curves, _probing(data)], ignore_index=True)
    if curves.empty:
        raise CannotDraw("no run has swapping, retraining, gradients or probing")
    return [
        _draw_model(data, model, curves[curves["model"] == model])
        for model in data.run_models
        if model in set(curves["model"])
    ]


def _probing(data: FigureData) -> pd.DataFrame:
    """F1 by layer, which is what the figure shows of probing."""
    try:
        probes = data.table("probes", PROBES, "")
    except CannotDraw:
        return pd.DataFrame()
    rows = probes[(probes["probe"] == "mlp") & (probes["state"] == "memorised")]
    rows = rows[rows["layer"] >= 1]
    by = ["task", "model", "technique", "seed", "layer"]
    return rows.groupby(by)["f1"].mean().rename("weight").reset_index()


def _draw_model(data: FigureData, model: str, curves: pd.DataFrame) -> Picture:
    techniques = [name for name in WORDS if name in set(curves["technique"])]
    tasks = [task for task in data.tasks_of(model) if task in set(curves["task"])]
    groups = {name: [t for t in tasks if category(t) == name] for name in CATEGORIES}
    groups = {name: members for name, members in groups.items() if members}
    width = SINGLE if len(groups) == 1 else DOUBLE
    legend = max(
        legend_height([data.task_names[task] for task in members], width / len(groups) - 0.2)
        for members in groups.values()
    )
    figure = new_figure(width, len(techniques) * 1.02 + 0.35 + legend)
    panels = figure.subplots(len(techniques), len(groups), squeeze=False, sharex=True, sharey="row")
    n_layers = data.depths[model]
    for line, technique in enumerate(techniques):
        for column, (name, members) in enumerate(groups.items()):
            panel = panels[line, column]
            rows = curves[curves["technique"] == technique]
            for task in members:
                draw_curve(panel, rows[rows["task"] == task], data.task_looks[task], n_layers)
            layer_axis(panel, n_layers, label=line == len(techniques) - 1)
            if line == 0:
                panel.set_title(CATEGORIES[name])
            if column == 0:
                panel.set_ylabel(WORDS[technique])
            if line == len(techniques) - 1:
                entries = handles(
                    data.task_looks, {task: data.task_names[task] for task in members}, line=True
                )
                rows_of = in_rows(entries, width / len(groups) - 0.2)
                panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.34), **rows_of)
    figure.align_ylabels()
    caption = (
        f"Layer weights of {', '.join(techniques)} for {data.model_names[model]}; for probing, F₁ "
        "by layer, whose increase is the weight." + data.seeds_words("Bands")
    )
    return Picture(data.file_names[model], figure, caption)


def draw_curve(
    panel: Axes, rows: pd.DataFrame, look: Look, n_layers: int, band: bool = True
) -> None:
    """Mean over seeds by layer, with a band of one standard deviation."""
    wide = rows.pivot_table(index="seed", columns="layer", values="weight")
    wide = wide.dropna()
    if wide.empty:
        return
    layers = wide.columns.to_numpy(dtype=float)
    mean, spread = mean_and_spread(wide.to_numpy())
    every = max(1, round(n_layers / 8))
    panel.plot(layers, mean, markevery=every, **marks(look))
    if band and np.isfinite(spread).all():
        panel.fill_between(
            layers, mean - spread, mean + spread, color=look.colour, alpha=BAND, linewidth=0
        )


def draw_together(data: FigureData) -> list[Picture]:
    """One figure per model: tasks side by side, all techniques on one axis, weights sum to 1."""
    grid = data.need_runs()
    weights = grid.seed_weights
    total = weights.groupby(["run", "technique", "seed"])["weight"].transform("sum")
    weights = weights.assign(weight=weights["weight"] / total.where(total > 0)).dropna()
    if weights.empty:
        raise CannotDraw("no layer has any weight")
    pictures = []
    for model in data.run_models:
        of_model = weights[weights["model"] == model]
        tasks = [task for task in data.tasks_of(model) if task in set(of_model["task"])]
        names = {name: name for name in grid.techniques if name in set(of_model["technique"])}
        if not tasks:
            continue
        figure, panels, columns = panel_rows(len(tasks), 4, 1.25, list(names))
        for panel, task in zip(panels, tasks, strict=True):
            for technique in names:
                rows = of_model[(of_model["task"] == task) & (of_model["technique"] == technique)]
                draw_curve(panel, rows, data.technique_looks[technique], data.depths[model])
            name_panel(panel, data.task_names[task], columns)
            layer_axis(panel, data.depths[model], label=False)
        panels[0].set_ylim(bottom=0)
        outer_labels(panels, columns, "layer", "share of weight")
        legend_below(figure, handles(data.technique_looks, names, line=True))
        caption = (
            f"Layer weights of all techniques for {data.model_names[model]}, each divided by their "
            "sum." + data.seeds_words("Bands")
        )
        pictures.append(Picture(data.file_names[model], figure, caption))
    return pictures
