"""Figures 6 and 7: centres of gravity, model by model and task by task."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from memloc.config import DEFAULT_TECHNIQUES
from memloc.report.figures.data import CannotDraw, FigureData, Picture
from memloc.report.figures.palette import GREY, Look, category
from memloc.report.figures.panels import (
    handles,
    in_rows,
    legend_below,
    legend_height,
    marks,
    slant,
)
from memloc.report.figures.style import DOUBLE, SINGLE, new_figure

ROW = 0.2
"""Height of a task, in inches."""


def draw_models(data: FigureData) -> list[Picture]:
    """M-CoG of retraining (of swapping, if there is none), a line per task through the models."""
    centres = _with_height(data)
    if len(data.run_models) < 2:
        raise CannotDraw("there is only one model, and the figure compares models")
    technique = next(
        (name for name in ("retraining", "swapping") if name in set(centres["technique"])), None
    )
    if technique is None:
        raise CannotDraw("no run has retraining or swapping")
    rows = centres[centres["technique"] == technique]
    models = [model for model in data.run_models if model in set(rows["model"])]
    tasks = [task for task in data.tasks if task in set(rows["task"])]
    names = {task: data.task_names[task] for task in tasks}
    width = SINGLE if len(models) <= 4 else DOUBLE
    figure = new_figure(width, 2.3 + legend_height(list(names.values()), width))
    panel = figure.subplots()
    offsets = np.linspace(-0.12, 0.12, len(tasks)) if len(tasks) > 1 else np.zeros(1)
    for offset, task in zip(offsets, tasks, strict=True):
        look = data.task_looks[task]
        of_task = rows[rows["task"] == task].groupby("model")["height"].agg(["mean", "std"])
        of_task = of_task.reindex(models)
        places = np.arange(len(models)) + offset
        mean, spread = of_task["mean"].to_numpy(), of_task["std"].to_numpy()
        panel.plot(places, mean, color=look.colour, alpha=0.55, linewidth=0.7)
        panel.errorbar(
            places,
            mean,
            yerr=None if np.isnan(spread).all() else np.nan_to_num(spread),
            linestyle="",
            elinewidth=0.5,
            **marks(look, 4),
        )
    slant(panel, [data.model_names[model] for model in models], width - 0.5)
    panel.set_xlim(-0.35, len(models) - 0.65)
    panel.set_ylabel(data.height_words)
    legend_below(figure, handles(data.task_looks, names, line=True))
    caption = (
        f"M-CoG of {technique}: whether lower or higher layers matter more for memorisation."
        + data.seeds_words()
    )
    return [Picture("", figure, caption)]


def draw_tasks(data: FigureData) -> list[Picture]:
    """M-CoG by task: left by technique, over models; right by model, over techniques."""
    centres = _with_height(data)
    tasks = [task for task in data.tasks if task in set(centres["task"])][::-1]
    if not tasks:
        raise CannotDraw("no layer has any weight, so there is no centre of gravity")
    grid = data.need_runs()
    techniques = [name for name in grid.techniques if name in set(centres["technique"])]
    models = [model for model in data.run_models if model in set(centres["model"])]
    in_a_row = max(len(techniques), len(models))
    figure = new_figure(DOUBLE, len(tasks) * max(ROW, 0.045 * in_a_row) + 0.85)
    panels = figure.subplots(1, 2, sharey=True, sharex=True)
    over_models = "models" if len(models) > 1 else "seeds"
    by = ["task", "model", "technique"]
    means = centres.groupby(by)["height"].mean().reset_index()
    observed = means if len(models) > 1 else centres
    averaged = [name for name in DEFAULT_TECHNIQUES if name in techniques] or techniques
    _dots(panels[0], tasks, observed, "technique", data.technique_looks, techniques)
    of_models = means[means["technique"].isin(averaged)]
    _dots(panels[1], tasks, of_models, "model", data.model_looks, models)
    overall = of_models.groupby("task")["height"].mean().reindex(tasks)
    for place, task in enumerate(tasks):
        panels[1].plot(
            [overall[task]] * 2, [place - 0.38, place + 0.38], color=GREY, linewidth=1.2, zorder=1
        )
    panels[0].set_title("by technique")
    panels[1].set_title("by model, mean over techniques")
    _task_rows(data, panels, tasks)
    for panel in panels:
        panel.set_xlabel(data.height_words)
    left = handles(data.technique_looks, {name: name for name in techniques}, line=False)
    right = handles(data.model_looks, {m: data.model_names[m] for m in models}, line=False)
    mean_line = Line2D([], [], color=GREY, linewidth=1.2, label="mean")
    half = DOUBLE / 2 - 0.1
    figure.legend(loc="outside lower left", **in_rows(left, half))
    figure.legend(loc="outside lower right", **in_rows([*right, mean_line], half))
    caption = (
        f"M-CoG by task: left by technique, mean over {over_models}, right by model, mean over "
        f"{', '.join(averaged)}. Error bars: standard deviation over {over_models} (left) and "
        "over techniques (right). Grey: mean of all."
    )
    return [Picture("", figure, caption)]


def _with_height(data: FigureData) -> pd.DataFrame:
    """Centres of all seeds, on an axis for all models."""
    centres = data.need_runs().seed_centres
    column = "m_cog" if data.same_depth else "depth"
    return centres.assign(height=centres[column])


def _dots(
    panel: Axes,
    tasks: list[str],
    rows: pd.DataFrame,
    column: str,
    looks: dict[str, Look],
    names: list[str],
) -> None:
    offsets = np.linspace(0.28, -0.28, len(names)) if len(names) > 1 else np.zeros(1)
    for offset, name in zip(offsets, names, strict=True):
        of_name = rows[rows[column] == name].groupby("task")["height"].agg(["mean", "std"])
        of_name = of_name.reindex(tasks)
        spread = of_name["std"].to_numpy()
        panel.errorbar(
            of_name["mean"].to_numpy(),
            np.arange(len(tasks)) + offset,
            xerr=None if np.isnan(spread).all() else np.nan_to_num(spread),
            linestyle="",
            elinewidth=0.6,
            **marks(looks[name], 3.8),
        )


def _task_rows(data: FigureData, panels: np.ndarray, tasks: list[str]) -> None:
    """Names of tasks in their colour, bands between them, and lines between categories."""
    panels[0].set_yticks(range(len(tasks)), [data.task_names[task] for task in tasks])
    panels[0].set_ylim(-0.55, len(tasks) - 0.45)
    for panel in panels:
        panel.grid(False, axis="y")
        panel.tick_params(axis="y", length=0)
        for place in range(0, len(tasks), 2):
            panel.axhspan(place - 0.5, place + 0.5, color="#F5F5F5", linewidth=0, zorder=0)
        for place in range(1, len(tasks)):
            if category(tasks[place]) != category(tasks[place - 1]):
                panel.axhline(place - 0.5, color="#AAAAAA", linewidth=0.6)
