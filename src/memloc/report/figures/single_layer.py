"""Figure 4: the largest error when a single layer is modified."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from memloc.report.figures.data import CannotDraw, FigureData, Picture
from memloc.report.figures.heat_maps import MODIFYING
from memloc.report.figures.panels import handles, legend_below, legend_height, marks, slant
from memloc.report.figures.style import DOUBLE, SINGLE, new_figure

COLUMNS = {
    **{"technique": "object", "seed": "int64", "first_layer": "int64", "last_layer": "int64"},
    **{"size": "int64", "noisy_error": "float64"},
}
ROOM = 0.7
"""Share of the width of a model that its tasks are spread over."""


def draw(data: FigureData) -> list[Picture]:
    """Models side by side, tasks as dots; one panel per technique."""
    windows = data.table("windows", COLUMNS, "no run has windows of swapping or retraining")
    errors = largest_errors(windows[windows["technique"].isin(MODIFYING)])
    if errors.empty:
        raise CannotDraw("no run has modified single layers (see --window-sizes)")
    techniques = [name for name in MODIFYING if name in set(errors["technique"])]
    models = [model for model in data.run_models if model in set(errors["model"])]
    tasks = [task for task in data.tasks if task in set(errors["task"])]
    width = DOUBLE if len(techniques) * len(models) > 3 else SINGLE
    names = {task: data.task_names[task] for task in tasks}
    figure = new_figure(width, 1.75 + legend_height(list(names.values()), width))
    panels = figure.subplots(1, len(techniques), squeeze=False, sharey=True)[0]
    inches = (width - 0.5) / len(techniques)
    for panel, technique in zip(panels, techniques, strict=True):
        _draw_panel(data, panel, errors[errors["technique"] == technique], models, tasks, inches)
        panel.set_title(technique)
    panels[0].set_ylabel("largest error, one layer")
    panels[0].set_ylim(0, 1.1 * (errors["error"] + errors["spread"].fillna(0)).max())
    panels[0].yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    legend_below(figure, handles(data.task_looks, names, line=False))
    caption = (
        "Largest memorisation error over the layers when one layer is modified, relative to "
        f"modifying all layers, by {' and '.join(techniques)}. Dots are tasks." + data.seeds_words()
    )
    return [Picture("", figure, caption)]


def largest_errors(windows: pd.DataFrame) -> pd.DataFrame:
    """Per technique, model and task: error (of the layer with the largest mean) and its spread."""
    by = ["technique", "model", "task"]
    full = windows[windows["size"] == windows["layers"]]
    scale = full.groupby([*by, "seed"])["noisy_error"].mean().rename("full")
    single = windows[windows["size"] == 1].merge(scale.reset_index(), on=[*by, "seed"])
    single = single[single["full"] > 0]
    single = single.assign(error=single["noisy_error"] / single["full"])
    layers = single.groupby([*by, "first_layer"])["error"].agg(["mean", "std"]).reset_index()
    largest = layers.loc[layers.groupby(by)["mean"].idxmax().to_numpy()]
    return largest.rename(columns={"mean": "error", "std": "spread"}).reset_index(drop=True)


def _draw_panel(
    data: FigureData,
    panel: Axes,
    errors: pd.DataFrame,
    models: list[str],
    tasks: list[str],
    inches: float,
) -> None:
    offsets = np.linspace(-ROOM / 2, ROOM / 2, len(tasks)) if len(tasks) > 1 else np.zeros(1)
    for row in errors.to_dict("records"):
        look = data.task_looks[row["task"]]
        place = models.index(row["model"]) + offsets[tasks.index(row["task"])]
        spread = None if np.isnan(row["spread"]) else row["spread"]
        panel.errorbar(
            place,
            row["error"],
            yerr=spread,
            linestyle="",
            elinewidth=0.6,
            **marks(look, 4),
        )
    slant(panel, [data.model_names[model] for model in models], inches)
    panel.set_xlim(-0.5, len(models) - 0.5)
    panel.grid(False, axis="x")
    for border in range(1, len(models)):
        panel.axvline(border - 0.5, color="#DDDDDD", linewidth=0.5)
