"""Figures 10 to 12, 14, 15, 19 and 20: how noisy examples move through layers, and when."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from memloc.report.figures.data import CannotDraw, FigureData, Picture
from memloc.report.figures.looks import GREY, Look
from memloc.report.figures.panels import (
    DOUBLE,
    SINGLE,
    TALLEST,
    deviation,
    diagonal,
    dot,
    fitting,
    handles,
    layer_axis,
    legend_below,
    legend_height,
    letters,
    name_panel,
    new_figure,
    outer_labels,
)
from memloc.report.figures.registry import figure
from memloc.report.figures.results import (
    ABOUT_POSITIONS,
    centroids_table,
    draw_centroids,
    draw_class_probes,
    draw_way,
    events_by_run,
    way_legend,
    way_limits,
)
from memloc.results.agreement import IN_PRINT

EXPLAINED = "memloc run (centroid analysis)"
STATES = {
    "memorised": "unmodified",
    "bottom_swapped": "bottom half swapped",
    "top_swapped": "top half swapped",
}

figure("fig10", "noisy examples on their way, by task", EXPLAINED, (10,))(draw_centroids)
figure("fig14", "class probes on noisy examples", "memloc run (class probes)", (14,))(
    draw_class_probes
)


@figure("fig11", "the same with a half swapped", EXPLAINED, (11,))
def draw_swapped(data: FigureData) -> list[Picture]:
    """One figure per model, tasks in rows, columns with a half swapped."""
    table = centroids_table(data)
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
        drawn = new_figure(DOUBLE, lines * height + 0.6)
        grid = drawn.subplots(lines, 3 * beside, squeeze=False, sharex=True, sharey=True)
        panels = []
        for place in range(lines * beside):
            line, side = divmod(place, beside)
            for column, (state, words) in enumerate(STATES.items()):
                panel = grid[line, 3 * side + column]
                if place >= len(tasks):
                    panel.remove()
                    continue
                task = tasks[place]
                draw_way(panel, rows[(rows["task"] == task) & (rows["state"] == state)], {})
                layer_axis(panel, data.depths[model], label=False)
                if line == 0:
                    panel.set_title(words.replace(" half", "\nhalf") if beside == 2 else words)
                if column == 0:
                    _name_row(panel, data.task_names[task], height)
                panels.append(panel)
        way_limits(panels)
        outer_labels(panels, 3 * beside, "layer", None)
        legend_below(drawn, way_legend(events=False))
        caption = (
            f"{ABOUT_POSITIONS} {data.model_names[model]} as it is, and with the bottom or the top "
            "half of its layers from θ_O."
        )
        pictures.append(Picture(data.file_names[model], drawn, caption))
    if not pictures:
        raise CannotDraw("no run has followed examples with half of the layers swapped")
    return pictures


@figure(
    *("fig15", "noisy examples on their way, tasks × models", "as fig10, two models or more"), (15,)
)
def draw_ways_of_models(data: FigureData) -> list[Picture]:
    """Tasks in rows, models in columns."""
    table, events = centroids_table(data), events_by_run(data)
    table = table[table["state"] == "memorised"]
    models = [model for model in data.run_models if model in set(table["model"])]
    tasks = [task for task in data.tasks if task in set(table["task"])]
    if len(models) < 2:
        raise CannotDraw("there is only one model, and the figure compares models")
    height = min(1.0, (TALLEST - 0.6) / len(tasks))
    drawn = new_figure(DOUBLE, len(tasks) * height + 0.6)
    grid = drawn.subplots(len(tasks), len(models), squeeze=False, sharex="col", sharey=True)
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
    way_limits(list(grid.flat))
    legend_below(drawn, way_legend(events=True))
    return [Picture("", drawn, f"{ABOUT_POSITIONS} Crossing and initiation as lines.")]


def _name_row(panel: Axes, name: str, height: float) -> None:
    panel.set_ylabel(name, fontsize=fitting(name, height - 0.1))


PAIRS = {
    "centroid analysis": ("initiation", "crossing"),
    "class probes": ("f1_90", "mem_gen"),
}
"""What shows the events: the one of classification (from left to right), and of memorisation."""
AXES = {
    "initiation": "classification initiation (layer)",
    "crossing": "crossing (layer)",
    "f1_90": "90% F₁ of class probes (layer)",
    "mem_gen": "memorisation ≫ generalisation (layer)",
}


@figure("fig12", "events: crossing, initiation, …", EXPLAINED, (12, 17))
def draw_events(data: FigureData) -> list[Picture]:
    """When memorisation and classification set in: one figure for models of the same depth."""
    events = data.need_runs().events
    depths = sorted({data.depths[model] for model in data.run_models})
    pictures = []
    for depth in depths:
        rows = events[events["layers"] == depth]
        known = set(rows.dropna(subset="layer")["event"])
        sides = [name for name, pair in PAIRS.items() if set(pair) <= known]
        if not sides:
            continue
        models = [model for model in data.run_models if model in set(rows["model"])]
        width, height = (DOUBLE, 2.95) if len(sides) == 2 else (SINGLE, 2.75)
        drawn, names = _dots_of_tasks(data, rows, width, height)
        panels = list(drawn.subplots(1, len(sides), squeeze=False)[0])
        missing = []
        for panel, side in zip(panels, sides, strict=True):
            missing += scatter(panel, rows, PAIRS[side], data.task_looks, depth)
        square(panels, depth)
        if len(sides) == 2:
            letters(panels, sides)
        over = "models" if len(models) > 1 else "seeds"
        caption = (
            f"When memorisation (up) and classification (right) set in, mean over {over} "
            f"({', '.join(data.model_names[model] for model in models)})."
        )
        if len(models) > 1:
            caption += " Error bars: standard deviation over models."
        if missing:
            words = [f"{names[task]} ({IN_PRINT[event]})" for task, event in dict.fromkeys(missing)]
            caption += f" Not shown, as an event never happens: {', '.join(words)}."
        pictures.append(Picture(f"{depth}-layers" if len(depths) > 1 else "", drawn, caption))
    if not pictures:
        raise CannotDraw("no run has the two events of a panel (crossing and initiation)")
    return pictures


def _dots_of_tasks(
    data: FigureData, rows: pd.DataFrame, width: float, height: float
) -> tuple[Figure, dict[str, str]]:
    """A figure with a legend of tasks below its panels, and the names of these tasks."""
    names = {task: data.task_names[task] for task in data.tasks if task in set(rows["task"])}
    drawn = new_figure(width, height + legend_height(list(names.values()), width))
    legend_below(drawn, handles(data.task_looks, names, line=False))
    return drawn, names


def scatter(
    panel: Axes, rows: pd.DataFrame, pair: tuple[str, str], looks: dict[str, Look], depth: int
) -> list[tuple[str, str]]:
    """One dot per task, the mean over models; returns tasks without one and the missing event."""
    missing = []
    found: dict[str, list[np.ndarray]] = {}
    for task, of_task in rows.groupby("task", sort=True):
        layers = of_task.pivot_table(index="model", columns="event", values="layer")
        absent = [event for event in pair if event not in layers or layers[event].isna().all()]
        if absent:
            missing.append((str(task), absent[0]))
        else:
            found[str(task)] = [layers[event].dropna().to_numpy() for event in pair]
    places = {task: (float(x.mean()), float(y.mean())) for task, (x, y) in found.items()}
    for task, (x, y) in side_by_side(places, 0.03 * depth).items():
        across, up = found[task]
        dot(panel, x, y, looks[task], 5, (deviation(across), deviation(up)))
    panel.set_xlabel(AXES[pair[0]])
    panel.set_ylabel(AXES[pair[1]])
    return missing


def square(panels: Sequence[Axes], depth: int) -> None:
    """The same layers on all axes, no more than are needed, and the diagonal."""
    first = math.floor(min(min(panel.dataLim.x0, panel.dataLim.y0) for panel in panels)) - 1
    last = math.ceil(max(max(panel.dataLim.x1, panel.dataLim.y1) for panel in panels)) + 1
    first, last = max(1, first), min(depth, last)
    if last - first < depth // 2:
        first, last = max(1, last - depth // 2), min(depth, first + depth // 2)
    margin = 0.06 * (last - first + 1)
    ticks = range(first, last + 1, math.ceil((last - first + 1) / 10))
    for panel in panels:
        diagonal(panel, first - margin, last + margin)
        panel.set(xticks=ticks, yticks=ticks)


def side_by_side(
    places: dict[str, tuple[float, float]], step: float
) -> dict[str, tuple[float, float]]:
    """Where to put dots, so that those at the very same place are all seen."""
    same: dict[tuple[float, float], list[str]] = {}
    for name, (x, y) in places.items():
        same.setdefault((round(x, 6), round(y, 6)), []).append(name)
    return {
        name: (x + (number - (len(names) - 1) / 2) * step, y)
        for (x, y), names in same.items()
        for number, name in enumerate(names)
    }


TWINS = "memloc run with and without --binarise"
NO_TWINS = "no task was run both with all its classes and with two"


@figure("fig19", "M-CoG with all classes and with two", TWINS, (19,))
def draw_binarised_centres(data: FigureData) -> list[Picture]:
    """M-CoG of swapping with all classes against that with two (appendix C)."""
    points = _twins(data)
    points = points[points["quantity"] == "m_cog"].dropna(subset=["multi", "binary"])
    if points.empty:
        raise CannotDraw(f"{NO_TWINS}, with swapping")
    unit = "layer"
    if points["layers"].nunique() > 1:
        unit = "share of depth"
        for side in ("multi", "binary"):
            points = points.assign(**{side: (points[side] - 0.5) / points["layers"]})
    drawn, names = _dots_of_tasks(data, points, SINGLE, 2.75)
    panel = drawn.subplots()
    for task in names:
        rows = points[points["task"] == task]
        x, y = rows["multi"].to_numpy(), rows["binary"].to_numpy()
        dot(panel, x.mean(), y.mean(), data.task_looks[task], 5, (deviation(x), deviation(y)))
    limits = panel.dataLim
    low, high = min(limits.x0, limits.y0), max(limits.x1, limits.y1)
    margin = max(0.08 * (high - low), 0.05)
    diagonal(panel, low - margin, high + margin)
    panel.set_xlabel(f"M-CoG, all classes ({unit})")
    panel.set_ylabel(f"M-CoG, two classes ({unit})")
    caption = "M-CoG of swapping with all classes and with the two most frequent ones."
    if points["model"].nunique() > 1:
        caption += " Error bars: standard deviation over models."
    return [Picture("", drawn, caption)]


@figure("fig20", "events of binarised tasks", TWINS, (20,))
def draw_binarised_events(data: FigureData) -> list[Picture]:
    """Events of tasks with two classes, and where they were with all classes."""
    pair = PAIRS["centroid analysis"]
    points = _twins(data).rename(columns={"quantity": "event", "binary": "layer"})
    points = points[points["event"].isin(pair)]
    depths = sorted(points["layers"].unique())
    pictures = []
    for depth in depths:
        of_depth = points[points["layers"] == depth]
        if not set(pair) <= set(of_depth.dropna(subset="layer")["event"]):
            continue
        drawn, names = _dots_of_tasks(data, of_depth, SINGLE, 2.75)
        panel = drawn.subplots()
        _arrows(data, panel, of_depth, pair)
        missing = scatter(panel, of_depth, pair, data.task_looks, int(depth))
        square([panel], int(depth))
        caption = (
            "When memorisation (up) and classification (right) set in, for tasks with their two "
            "most frequent classes, mean over models. Arrows begin where the task with all classes "
            "is."
        )
        if missing:
            caption += f" Not shown: {', '.join(names[task] for task, _ in missing)}."
        pictures.append(Picture(f"{depth}-layers" if len(depths) > 1 else "", drawn, caption))
    if not pictures:
        raise CannotDraw(f"{NO_TWINS}, with crossing and initiation")
    return pictures


def _arrows(data: FigureData, panel: Axes, points: pd.DataFrame, pair: tuple[str, str]) -> None:
    """From where a task with all classes is to where it is with two."""
    means = points.groupby(["task", "event"])[["multi", "layer"]].mean().unstack("event")
    means = means.dropna()
    for task in [task for task in data.tasks if task in means.index]:
        before, after = (
            [float(means[side][event][task]) for event in pair] for side in ("multi", "layer")
        )
        style = {"color": data.task_looks[task].colour, "linewidth": 0.6, "alpha": 0.6}
        style |= {"arrowstyle": "-|>,head_length=0.25,head_width=0.12", "shrinkA": 0, "shrinkB": 3}
        panel.annotate("", xy=(after[0], after[1]), xytext=(before[0], before[1]), arrowprops=style)


def _twins(data: FigureData) -> pd.DataFrame:
    if data.twins is None or data.twins.empty:
        raise CannotDraw(NO_TWINS)
    return data.twins
