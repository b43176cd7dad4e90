"""Figures 10, 11 and 15: noisy examples on their way from the old class to the new one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from memloc.report.figures.data import CannotDraw, FigureData, Picture
from memloc.report.figures.palette import CLASS_A, CLASS_B, GREY, NOISY
from memloc.report.figures.panels import (
    fitting,
    layer_axis,
    legend_below,
    name_panel,
    outer_labels,
    panel_rows,
)
from memloc.report.figures.style import DOUBLE, TALLEST, new_figure

COLUMNS = {
    **{"seed": "int64", "model": "object", "layer": "int64", "group": "object"},
    **{"mean": "float64", "low": "float64", "high": "float64"},
}
GROUPS = {"class_a": CLASS_A, "class_b": CLASS_B, "noisy": NOISY}
WORDS = {
    "class_a": "clean, new class",
    "class_b": "clean, old class",
    "noisy": "noisy",
}
STATES = {
    "memorised": "unmodified",
    "bottom_swapped": "bottom half swapped",
    "top_swapped": "top half swapped",
}
EVENTS: dict[str, dict[str, Any]] = {
    "crossing": {"color": "#CC3311", "linewidth": 0.9},
    # Its dashes lie on the line of the crossing, if both are in the same layer.
    "initiation": {"color": "#009E73", "linewidth": 0.9, "linestyle": (0, (3, 2)), "zorder": 3},
}
MISSING = "no run has a centroid analysis"
ABOUT = (
    "Positions between the centroids of the new class (0) and the old class (1) by layer: means, "
    "and the middle 75% as bands; means over seeds."
)
LIMITS = (-0.75, 1.75)
"""Where two centroids nearly coincide, positions are far out and say nothing."""


def draw_tasks(data: FigureData) -> list[Picture]:
    """Figure 10: one figure per model, a panel per task."""
    table, events = _table(data), _events(data)
    pictures = []
    for model in data.run_models:
        rows = table[(table["model"] == model) & (table["state"] == "memorised")]
        tasks = [task for task in data.tasks_of(model) if task in set(rows["task"])]
        if not tasks:
            continue
        figure, panels, columns = panel_rows(len(tasks), 4, 1.25, way_words(events=True))
        for panel, task in zip(panels, tasks, strict=True):
            draw_way(panel, rows[rows["task"] == task], events.get((task, model), {}))
            name_panel(panel, data.task_names[task], columns)
        finish(panels, columns, data.depths[model])
        legend_below(figure, way_legend(events=True))
        caption = f"{ABOUT} {data.model_names[model]}; crossing and initiation as lines."
        pictures.append(Picture(data.file_names[model], figure, caption))
    return pictures


def draw_swapped(data: FigureData) -> list[Picture]:
    """Figure 11: one figure per model, tasks in rows, columns with a half swapped."""
    table = _table(data)
    pictures = []
    for model in data.run_models:
        rows = table[table["model"] == model]
        swapped = rows[rows["state"] != "memorised"]
        tasks = [task for task in data.tasks_of(model) if task in set(swapped["task"])]
        if not tasks:
            continue
        # Two tasks side by side, three states each, if they are many.
        beside = 2 if len(tasks) > 3 else 1
        lines = math.ceil(len(tasks) / beside)
        height = min(1.15, (TALLEST - 0.6) / lines)
        figure = new_figure(DOUBLE, lines * height + 0.6)
        grid = figure.subplots(lines, 3 * beside, squeeze=False, sharex=True, sharey=True)
        for place, task in enumerate(tasks):
            line, side = divmod(place, beside)
            for column, (state, words) in enumerate(STATES.items()):
                panel = grid[line, 3 * side + column]
                of_state = rows[(rows["task"] == task) & (rows["state"] == state)]
                draw_way(panel, of_state, {})
                if line == 0:
                    panel.set_title(words.replace(" half", "\nhalf") if beside == 2 else words)
                if column == 0:
                    _name_row(panel, data.task_names[task], height)
        for empty in range(len(tasks), lines * beside):
            for column in range(3):
                grid[empty // beside, 3 * (empty % beside) + column].remove()
        panels = [panel for panel in grid.flat if panel.figure is not None]
        finish(panels, 3 * beside, data.depths[model], y=None)
        legend_below(figure, way_legend(events=False))
        caption = (
            f"{ABOUT} {data.model_names[model]} as it is, and with the bottom or the top half of "
            "its layers from θ_O."
        )
        pictures.append(Picture(data.file_names[model], figure, caption))
    if not pictures:
        raise CannotDraw("no run has followed examples with half of the layers swapped")
    return pictures


def draw_models(data: FigureData) -> list[Picture]:
    """Figure 15: tasks in rows, models in columns."""
    table, events = _table(data), _events(data)
    table = table[table["state"] == "memorised"]
    models = [model for model in data.run_models if model in set(table["model"])]
    tasks = [task for task in data.tasks if task in set(table["task"])]
    if len(models) < 2:
        raise CannotDraw("there is only one model, and the figure compares models")
    height = min(1.0, (TALLEST - 0.6) / len(tasks))
    figure = new_figure(DOUBLE, len(tasks) * height + 0.6)
    grid = figure.subplots(len(tasks), len(models), squeeze=False, sharex="col", sharey=True)
    for line, task in enumerate(tasks):
        for column, model in enumerate(models):
            panel = grid[line, column]
            rows = table[(table["task"] == task) & (table["model"] == model)]
            if rows.empty:
                panel.text(0.5, 0.5, "no run", transform=panel.transAxes, ha="center", color=GREY)
            draw_way(panel, rows, events.get((task, model), {}))
            layer_axis(panel, data.depths[model], 4, label=line == len(tasks) - 1)
            if line == 0:
                name_panel(panel, data.model_names[model], len(models))
            if column == 0:
                _name_row(panel, data.task_names[task], height)
    _limits(list(grid.flat))
    legend_below(figure, way_legend(events=True))
    return [Picture("", figure, f"{ABOUT} Crossing and initiation as lines.")]


def draw_way(panel: Axes, rows: pd.DataFrame, events: dict[str, float]) -> None:
    """Means and middle 75% of the three groups by layer, and lines at events."""
    means = rows.groupby(["group", "layer"])[["mean", "low", "high"]].mean()
    for group, colour in GROUPS.items():
        if group not in means.index.get_level_values("group"):
            continue
        of_group = means.loc[group].sort_index()
        layers = of_group.index.to_numpy(dtype=float)
        opacity = 0.22 if group == "noisy" else 0.3
        panel.fill_between(
            layers, of_group["low"], of_group["high"], color=colour, alpha=opacity, linewidth=0
        )
        panel.plot(layers, of_group["mean"], color=colour, linewidth=1.3 if group == "noisy" else 1)
    panel.axhline(0.5, color=GREY, linewidth=0.5, linestyle=(0, (1, 1.5)), zorder=1)
    for event, style in EVENTS.items():
        if event in events:
            panel.axvline(events[event], **style)


def _name_row(panel: Axes, name: str, height: float) -> None:
    panel.set_ylabel(name, fontsize=fitting(name, height - 0.1))


def finish(panels: list[Axes], columns: int, n_layers: int, y: str | None = "position") -> None:
    """Axes of panels that `draw_way` drew."""
    for panel in panels:
        layer_axis(panel, n_layers, label=False)
    _limits(panels)
    outer_labels(panels, columns, "layer", y)


def _limits(panels: list[Axes]) -> None:
    low = min(panel.dataLim.y0 for panel in panels if np.isfinite(panel.dataLim.y0))
    high = max(panel.dataLim.y1 for panel in panels if np.isfinite(panel.dataLim.y1))
    for panel in panels:
        panel.set_ylim(max(low - 0.05, LIMITS[0]), min(high + 0.05, LIMITS[1]))
        panel.set_yticks([0, 0.5, 1], ["0", "½", "1"])


def way_legend(events: bool) -> list[Line2D]:
    """Entries of the legend for `draw_way`."""
    entries: list[Line2D] = [
        Line2D([], [], color=colour, linewidth=1.3, label=WORDS[group])
        for group, colour in GROUPS.items()
    ]
    if events:
        entries += [Line2D([], [], label=event, **style) for event, style in EVENTS.items()]
    return entries


def way_words(events: bool) -> list[str]:
    """Their texts."""
    return [str(entry.get_label()) for entry in way_legend(events)]


def _table(data: FigureData) -> pd.DataFrame:
    return data.table("centroids", COLUMNS, MISSING)


def _events(data: FigureData) -> dict[tuple[str, str], dict[str, float]]:
    """Layers of the events that happen, by task and model."""
    events = data.need_runs().events.dropna(subset="layer")
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in events.to_dict("records"):
        found.setdefault((row["task"], row["model"]), {})[row["event"]] = row["layer"]
    return found
