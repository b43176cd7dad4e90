"""Figure 2: do techniques find the layers in which memorisation was hidden?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from memloc.analysis.control import score
from memloc.config import DEFAULT_TECHNIQUES
from memloc.report.figures.data import CannotDraw, FigureData, Picture
from memloc.report.figures.palette import GREY, TECHNIQUES, lighter
from memloc.report.figures.style import DOUBLE, new_figure

WEAK = ("gradients", "probing")
"""Techniques by which the paper tells models apart; the others find nearly all layers."""
BAR = 0.4
MODEL_COLOUR = "#444444"


def draw(data: FigureData) -> list[Picture]:
    """Three panels: by technique, by task, by model."""
    table = data.control.get("accuracy")
    if table is None or table.empty:
        raise CannotDraw("there are no results of `memloc control`")
    order = [*(t for t in TECHNIQUES if t in set(table["technique"]))]
    order += sorted(set(table["technique"]) - set(order))
    tasks = [task for task in data.tasks if task in set(table["task"])]
    models = [model for model in data.models if model in set(table["model"])]
    # Which techniques are averaged, as in the summary of `memloc control`.
    usual = [name for name in DEFAULT_TECHNIQUES if name in order] or order
    weak = [name for name in WEAK if name in order] or order
    of_what = " and ".join(weak) if set(weak) <= set(WEAK) else ""
    looks = data.technique_looks
    parts: list[tuple[str, list[str], str, dict[str, tuple[str, str]]]] = [
        ("by technique", order, "technique", {t: (t, looks[t].colour) for t in order}),
        (
            "by task",
            usual,
            "task",
            {t: (data.task_names[t], data.task_looks[t].colour) for t in tasks},
        ),
        (
            "by model",
            weak,
            "model",
            {m: (data.model_names[m], MODEL_COLOUR) for m in models},
        ),
    ]
    widths = [max(2.5, len(names)) + 0.8 for *_, names in parts]
    figure = new_figure(DOUBLE, 2.1)
    panels = figure.subplots(1, 3, sharey=True, width_ratios=widths)
    for panel, (title, techniques, column, names) in zip(panels, parts, strict=True):
        _bars(panel, score(table, column, techniques), column, names)
        panel.set_title(title)
    if of_what:
        panels[2].set_xlabel(f"({of_what})")
    panels[0].set_ylim(0, 1.03)
    panels[0].set_ylabel("accuracy")
    entries = [
        Patch(color=lighter(MODEL_COLOUR), label="accuracy@1"),
        Patch(color=MODEL_COLOUR, label="accuracy@2"),
        Line2D([], [], color="black", linestyle=(0, (3, 2)), linewidth=0.8, label="chance"),
    ]
    figure.legend(handles=entries, loc="outside lower center", ncols=3)
    caption = (
        "Control setup: share of the highest-weighted layer (accuracy@1, light) and of the two "
        "highest (accuracy@2, dark) that are among those in which memorisation was hidden, by "
        f"technique, by task (mean of {', '.join(usual)}) and by model"
        f"{of_what and f' ({of_what} alone)'}; dashed: chance. Error bars: 95% bootstrap intervals "
        "over control models."
    )
    return [Picture("", figure, caption)]


def _bars(
    panel: Axes, rows: pd.DataFrame, column: str, names: Mapping[str, tuple[str, str]]
) -> None:
    scores = rows.set_index([column, "k"])
    for place, (name, (_, colour)) in enumerate(names.items()):
        for k, offset in ((1, -BAR / 2), (2, BAR / 2)):
            if (name, k) not in scores.index:
                continue
            mean, low, high = scores.loc[(name, k), ["accuracy", "low", "high"]].to_numpy(float)
            panel.bar(
                place + offset,
                mean,
                BAR,
                color=lighter(colour) if k == 1 else colour,
                yerr=None if np.isnan(low) else [[mean - low], [high - mean]],
                error_kw={"elinewidth": 0.6, "ecolor": "black"},
            )
    # Models of different depth have different chances.
    chances = rows.groupby(column)["chance"].mean()
    if chances.nunique() == 1:
        panel.axhline(float(chances.iloc[0]), color="black", linewidth=0.8, linestyle=(0, (3, 2)))
    for place, name in enumerate(names if chances.nunique() > 1 else ()):
        chance = float(chances[name])
        panel.plot(
            [place - 0.5, place + 0.5], [chance] * 2, color="black", linewidth=0.8,
            linestyle=(0, (3, 2)),
        )  # fmt: skip
    panel.set_xticks(
        range(len(names)), [printed for printed, _ in names.values()],
        rotation=40, ha="right", rotation_mode="anchor",
    )  # fmt: skip
    panel.tick_params(axis="x", length=0)
    panel.set_xlim(-0.6, max(len(names), 2.5) - 0.4)
    panel.grid(False, axis="x")
    panel.spines["bottom"].set_color(GREY)
