"""Figures 19 and 20: tasks with all their classes, and the same tasks with two (appendix C)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from memloc.report.figures.data import CannotDraw, FigureData, Picture
from memloc.report.figures.events import PAIRS, scatter, square
from memloc.report.figures.panels import handles, legend_below, legend_height, marks
from memloc.report.figures.style import SINGLE, new_figure

MISSING = "no task was run both with and without --binarise"


def draw_centres(data: FigureData) -> list[Picture]:
    """Figure 19: M-CoG of swapping with all classes against that with two."""
    points = _points(data)
    points = points[points["quantity"] == "m_cog"].dropna(subset=["multi", "binary"])
    if points.empty:
        raise CannotDraw(f"{MISSING}, with swapping")
    one_depth = points["layers"].nunique() == 1
    if not one_depth:
        for side in ("multi", "binary"):
            points = points.assign(**{side: (points[side] - 0.5) / points["layers"]})
    tasks = [task for task in data.tasks if task in set(points["task"])]
    names = {task: data.task_names[task] for task in tasks}
    figure = new_figure(SINGLE, 2.75 + legend_height(list(names.values()), SINGLE))
    panel = figure.subplots()
    for task in tasks:
        _dot(data, panel, task, points[points["task"] == task])
    _square(panel)
    unit = "layer" if one_depth else "share of depth"
    panel.set_xlabel(f"M-CoG, all classes ({unit})")
    panel.set_ylabel(f"M-CoG, two classes ({unit})")
    legend_below(figure, handles(data.task_looks, names, line=False))
    several = points["model"].nunique() > 1
    caption = "M-CoG of swapping with all classes and with the two most frequent ones." + (
        " Error bars: standard deviation over models." if several else ""
    )
    return [Picture("", figure, caption)]


def draw_events(data: FigureData) -> list[Picture]:
    """Figure 20: events of tasks with two classes, and where they were with all classes."""
    points = _points(data)
    pair = PAIRS["centroids"]
    points = points[points["quantity"].isin(pair)]
    depths = sorted(points["layers"].unique())
    pictures = []
    for depth in depths:
        of_depth = points[points["layers"] == depth].rename(columns={"quantity": "event"})
        binary = of_depth.rename(columns={"binary": "layer"}).dropna(subset="layer")
        if set(pair) <= set(binary["event"]):
            pictures.append(_draw_depth(data, of_depth, int(depth), len(depths) > 1))
    if not pictures:
        raise CannotDraw(f"{MISSING}, with crossing and initiation")
    return pictures


def _draw_depth(data: FigureData, points: pd.DataFrame, depth: int, several: bool) -> Picture:
    pair = PAIRS["centroids"]
    tasks = [task for task in data.tasks if task in set(points["task"])]
    names = {task: data.task_names[task] for task in tasks}
    figure = new_figure(SINGLE, 2.75 + legend_height(list(names.values()), SINGLE))
    panel = figure.subplots()
    means = points.groupby(["task", "event"])[["multi", "binary"]].mean()
    for task in tasks:
        known = [event for event in pair if (task, event) in means.index]
        if len(known) == 2:
            before = [float(means.loc[(task, event), "multi"]) for event in pair]  # type: ignore[arg-type]
            after = [float(means.loc[(task, event), "binary"]) for event in pair]  # type: ignore[arg-type]
            if np.isfinite([*before, *after]).all():
                panel.annotate(
                    "",
                    xy=(after[0], after[1]),
                    xytext=(before[0], before[1]),
                    arrowprops={
                        **{"arrowstyle": "-|>,head_length=0.25,head_width=0.12"},
                        **{"color": data.task_looks[task].colour, "linewidth": 0.6, "alpha": 0.6},
                        **{"shrinkA": 0, "shrinkB": 3},
                    },
                )
    missing = scatter(
        panel, points.rename(columns={"binary": "layer"}), pair, data.task_looks, depth
    )
    square([panel], depth)
    legend_below(figure, handles(data.task_looks, names, line=False))
    caption = (
        "When memorisation (up) and classification (right) set in, for tasks with their two most "
        "frequent classes, mean over models. Arrows begin where the task with all classes is."
    )
    if missing:
        caption += f" Not shown: {', '.join(names[task] for task, _ in missing)}."
    return Picture(f"{depth}-layers" if several else "", figure, caption)


def _points(data: FigureData) -> pd.DataFrame:
    if data.twins is None or data.twins.empty:
        raise CannotDraw(MISSING)
    return data.twins


def _dot(data: FigureData, panel: Axes, task: str, rows: pd.DataFrame) -> None:
    look = data.task_looks[task]
    x, y = rows["multi"].to_numpy(), rows["binary"].to_numpy()
    panel.errorbar(
        x.mean(),
        y.mean(),
        xerr=x.std(ddof=1) if len(x) > 1 else None,
        yerr=y.std(ddof=1) if len(y) > 1 else None,
        linestyle="",
        elinewidth=0.5,
        **marks(look, 5),
    )


def _square(panel: Axes) -> None:
    """The same range on both axes, with the diagonal."""
    limits = panel.dataLim
    low, high = min(limits.x0, limits.y0), max(limits.x1, limits.y1)
    margin = max(0.08 * (high - low), 0.05)
    low, high = low - margin, high + margin
    panel.plot([low, high], [low, high], color="#BBBBBB", linewidth=0.6, zorder=1)
    panel.set(xlim=(low, high), ylim=(low, high), aspect="equal")
