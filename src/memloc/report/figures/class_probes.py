"""Figure 14: which label do class probes find for noisy examples, the old or the new one?"""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from memloc.report.figures.data import FigureData, Picture
from memloc.report.figures.palette import CLASS_A, CLASS_B, GREY
from memloc.report.figures.panels import (
    layer_axis,
    legend_below,
    mean_and_spread,
    name_panel,
    outer_labels,
    panel_rows,
)

COLUMNS = {
    **{"seed": "int64", "labels": "object", "layer": "int64"},
    **{"noisy_f1": "float64", "clean_f1": "float64"},
}
CURVES: tuple[tuple[str, str, str, Any, str], ...] = (
    ("perturbed", "noisy_f1", CLASS_A, "-", "noisy examples, perturbed label"),
    ("original", "noisy_f1", CLASS_B, (0, (4, 1.5)), "noisy examples, original label"),
    ("original", "clean_f1", GREY, (0, (1, 1.2)), "clean examples"),
)
"""Labels that probes were trained on, what they are tested on, and how it is drawn."""
EVENT = "#CC3311"


def draw(data: FigureData) -> list[Picture]:
    """One figure per model, a panel per task."""
    table = data.table("class_probes", COLUMNS, "no run has class probes")
    events = data.need_runs().events
    layers = events[events["event"] == "mem_gen"].set_index(["task", "model"])["layer"]
    pictures = []
    for model in data.run_models:
        rows = table[table["model"] == model]
        tasks = [task for task in data.tasks_of(model) if task in set(rows["task"])]
        if not tasks:
            continue
        figure, panels, columns = panel_rows(len(tasks), 4, 1.2, [words for *_, words in CURVES])
        for panel, task in zip(panels, tasks, strict=True):
            _draw_task(panel, rows[rows["task"] == task])
            layer = layers.get((task, model))
            if layer is not None and not pd.isna(layer):
                panel.axvline(float(layer), color=EVENT, linewidth=0.8)
            name_panel(panel, data.task_names[task], columns)
            panel.set_ylim(0, 1.02)
            layer_axis(panel, data.depths[model], label=False)
        outer_labels(panels, columns, "layer", "macro F₁")
        entries = [
            Line2D([], [], color=colour, linestyle=style, label=words)
            for _, _, colour, style, words in CURVES
        ]
        entries.append(Line2D([], [], color=EVENT, linewidth=0.8, label="mem≫gen"))
        legend_below(figure, entries)
        caption = (
            f"Class probes on the states of {data.model_names[model]}: trained on perturbed labels "
            "(solid, noisy examples), or on original labels (dashed: noisy, dotted: clean "
            "examples)." + data.seeds_words("Bands")
        )
        pictures.append(Picture(data.file_names[model], figure, caption))
    return pictures


def _draw_task(panel: Axes, rows: pd.DataFrame) -> None:
    for labels, column, colour, style, _ in CURVES:
        means = rows[rows["labels"] == labels].groupby(["seed", "layer"])[column].mean()
        wide = means.unstack("layer").dropna()
        if wide.empty:
            continue
        mean, spread = mean_and_spread(wide.to_numpy())
        layers = wide.columns.to_numpy(dtype=float)
        panel.plot(layers, mean, color=colour, linestyle=style)
        if len(wide) > 1:
            panel.fill_between(
                layers, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0
            )
