"""Figures 12 and 17: when memorisation and classification set in."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from memloc.report.figures.data import CannotDraw, FigureData, Picture
from memloc.report.figures.palette import Look
from memloc.report.figures.panels import (
    handles,
    legend_below,
    legend_height,
    letters,
    marks,
)
from memloc.report.figures.style import DOUBLE, SINGLE, new_figure
from memloc.results.grid_agreement import IN_PRINT

PAIRS = {
    "centroids": ("initiation", "crossing"),
    "probes": ("f1_90", "mem_gen"),
}
"""What shows the events: the one of classification (from left to right), and of memorisation."""
AXES = {
    "initiation": "classification initiation (layer)",
    "crossing": "crossing (layer)",
    "f1_90": "90% F₁ of class probes (layer)",
    "mem_gen": "memorisation ≫ generalisation (layer)",
}


def draw(data: FigureData) -> list[Picture]:
    """One figure for all models of the same depth."""
    events = data.need_runs().events
    depths = sorted({data.depths[model] for model in data.run_models})
    pictures = []
    for depth in depths:
        rows = events[events["layers"] == depth]
        known = rows.dropna(subset="layer")
        sides = [name for name, pair in PAIRS.items() if set(pair) <= set(known["event"])]
        if sides:
            pictures.append(_draw_depth(data, rows, sides, depth, len(depths) > 1))
    if not pictures:
        raise CannotDraw("no run has the two events of a panel (crossing and initiation)")
    return pictures


def _draw_depth(
    data: FigureData, rows: pd.DataFrame, sides: Sequence[str], depth: int, several: bool
) -> Picture:
    models = [model for model in data.run_models if model in set(rows["model"])]
    tasks = [task for task in data.tasks if task in set(rows["task"])]
    names = {task: data.task_names[task] for task in tasks}
    width = DOUBLE if len(sides) == 2 else SINGLE
    figure = new_figure(
        width, (2.95 if len(sides) == 2 else 2.75) + legend_height(list(names.values()), width)
    )
    panels = list(figure.subplots(1, len(sides), squeeze=False)[0])
    missing = []
    for panel, side in zip(panels, sides, strict=True):
        missing += scatter(panel, rows, PAIRS[side], data.task_looks, depth)
    square(panels, depth)
    if len(sides) == 2:
        letters(panels, ["centroid analysis", "class probes"])
    legend_below(figure, handles(data.task_looks, names, line=False))
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
    return Picture(f"{depth}-layers" if several else "", figure, caption)


def scatter(
    panel: Axes, rows: pd.DataFrame, pair: tuple[str, str], looks: dict[str, Look], depth: int
) -> list[tuple[str, str]]:
    """One dot per task, the mean over models; returns tasks without one and the missing event."""
    missing = []
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for task, of_task in rows.groupby("task", sort=True):
        layers = of_task.pivot_table(index="model", columns="event", values="layer")
        absent = [event for event in pair if event not in layers or layers[event].isna().all()]
        if absent:
            missing.append((str(task), absent[0]))
        else:
            found[str(task)] = tuple(layers[event].dropna().to_numpy() for event in pair)  # type: ignore[assignment]
    places = {task: (float(x.mean()), float(y.mean())) for task, (x, y) in found.items()}
    for task, (x, y) in side_by_side(places, 0.03 * depth).items():
        across, up = found[task]
        panel.errorbar(
            x,
            y,
            xerr=across.std(ddof=1) if len(across) > 1 else None,
            yerr=up.std(ddof=1) if len(up) > 1 else None,
            linestyle="",
            elinewidth=0.5,
            **marks(looks[task], 5),
        )
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
    low, high = first - margin, last + margin
    ticks = range(first, last + 1, math.ceil((last - first + 1) / 10))
    for panel in panels:
        panel.plot([low, high], [low, high], color="#BBBBBB", linewidth=0.6, zorder=1)
        panel.set(xlim=(low, high), ylim=(low, high), aspect="equal", xticks=ticks, yticks=ticks)


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
