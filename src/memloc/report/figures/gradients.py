"""Figure 21: gradient norms, and what post-processing makes of them (appendix E)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from memloc.analysis.control import parse_hidden
from memloc.report.figures.data import CannotDraw, FigureData, Picture
from memloc.report.figures.palette import Look
from memloc.report.figures.panels import (
    handles,
    layer_axis,
    legend_below,
    legend_height,
    letters,
    marks,
)
from memloc.report.figures.style import DOUBLE, new_figure

OF_RUNS = {
    **{"seed": "int64", "model": "object", "gradient": "object"},
    **{"layer": "int64", "norm": "float64"},
}
PANELS = (
    ("frozen,\nnoisy", ("frozen", "noisy"), None),
    (r"$\theta_{M_1}$," + "\nclean", ("near_ceiling", "clean"), None),
    (r"$\theta_{M_1}$," + "\nnoisy", ("near_ceiling", "noisy"), None),
    ("weights,\nas they are", ("near_ceiling", "noisy"), ""),
    ("weights,\n÷ frozen", ("near_ceiling", "noisy"), "noisy"),
    ("weights,\n− clean", ("near_ceiling", "difference"), ""),
    ("weights,\nboth", ("near_ceiling", "difference"), "difference"),
)
"""Title; state and gradient; and, for weights that sum to 1, by which gradient of the frozen model
they are divided (empty: by none)."""
SCALES = ((0,), (1, 2), (3, 4, 5, 6))
"""Panels that share a scale."""
ALL = "all"


def draw(data: FigureData) -> list[Picture]:
    """One figure per model: norms and weights in columns, hidden layers in rows."""
    norms, kind, hidden = _norms(data)
    models = [model for model in data.models if model in set(norms["model"])]
    return [
        _draw_model(data, model, norms[norms["model"] == model], kind, hidden) for model in models
    ]


def _norms(data: FigureData) -> tuple[pd.DataFrame, str, bool]:
    """Norms of control experiments, or else of runs; of which kind; whether layers are hidden."""
    table = data.control.get("gradients")
    if table is not None and len(table):
        kind = "L1" if "L1" in set(table["kind"]) else str(table["kind"].iloc[0])
        return table[table["kind"] == kind], kind, True
    if data.grid is None:
        raise CannotDraw("`memloc control` has recorded no gradients, and there are no runs")
    table = data.table("gradients", OF_RUNS, "no run has gradients")
    settings = next(iter(data.runs.values())).settings.get("techniques", {})
    kind = str(settings.get("gradients", {}).get("norm", "L1"))
    return table.assign(hidden=ALL), kind, False


def _draw_model(
    data: FigureData, model: str, norms: pd.DataFrame, kind: str, is_hidden: bool
) -> Picture:
    setups = sorted(norms["hidden"].unique(), key=_first_layer)
    tasks = [task for task in data.tasks if task in set(norms["task"])]
    names = {task: data.task_names[task] for task in tasks}
    height = 1.0 * len(setups) + 0.55 + legend_height(list(names.values()), DOUBLE)
    figure = new_figure(DOUBLE, height)
    grid = figure.subplots(len(setups), len(PANELS), squeeze=False, sharex=True)
    n_layers = data.depths[model]
    for line, hidden in enumerate(setups):
        of_setup = norms[norms["hidden"] == hidden]
        for column, (_, which, divisor) in enumerate(PANELS):
            panel = grid[line, column]
            if hidden != ALL:
                for layer in parse_hidden(str(hidden)):
                    panel.axvspan(layer - 0.5, layer + 0.5, color="#DDDDDD", linewidth=0, zorder=0)
            for task in tasks:
                rows = of_setup[of_setup["task"] == task]
                curve = _curve(rows, which, divisor)
                _draw_curve(panel, curve, data.task_looks[task])
            layer_axis(panel, n_layers, 3, label=line == len(setups) - 1)
        _share_scales(grid[line])
        if hidden != ALL:
            grid[line, 0].set_ylabel("layers " + str(hidden).replace("+", ", "))
    letters(list(grid[0]), [title for title, *_ in PANELS])
    legend_below(figure, handles(data.task_looks, names, line=True))
    caption = (
        f"Forgetting gradients of {data.model_names[model]} by layer, {kind} norms: (a) in the "
        "frozen model, (b) for clean and (c) for noisy examples at θ_M1, and layer weights that "
        "sum to 1 (d) without post-processing, (e) divided by the norm in the frozen model, (f) "
        "with the gradient of clean examples subtracted, (g) with both."
        + (" Rows: the layers in which memorisation was hidden (grey)." if is_hidden else "")
    )
    return Picture(data.file_names[model], figure, caption)


def _share_scales(panels: Sequence[Axes]) -> None:
    """Numbers at the first of the panels that share a scale."""
    for together in SCALES:
        high = max(panels[place].dataLim.y1 for place in together)
        for place in together:
            panels[place].set_ylim(0, high * 1.05 if np.isfinite(high) and high > 0 else 1)
            panels[place].yaxis.set_major_locator(MaxNLocator(3))
            panels[place].yaxis.set_major_formatter(_short_number)
            panels[place].tick_params(labelleft=place == together[0], labelsize=5.5, pad=1)


def _short_number(value: float, _: object = None) -> str:
    """`1.5k` for large numbers, which have no room here otherwise."""
    return EngFormatter(sep="")(value) if abs(value) >= 1000 else f"{value:g}"


def _first_layer(hidden: object) -> tuple[int, ...]:
    return () if hidden == ALL else parse_hidden(str(hidden))


def _curve(rows: pd.DataFrame, which: tuple[str, str], divisor: str | None) -> pd.Series[float]:
    """Mean over seeds, by layer; empty if the norms are not there."""
    wide = rows.pivot_table(index=["seed", "layer"], columns=["state", "gradient"], values="norm")
    # The frozen model was trained with one seed: it serves all of them.
    frozen = rows[rows["state"] == "frozen"].groupby(["gradient", "layer"])["norm"].mean()
    if which[0] == "frozen":
        return frozen[frozen.index.get_level_values(0) == which[1]].droplevel(0)
    if which not in wide:
        return pd.Series(dtype=float)
    values = wide[which].unstack("layer").dropna()
    if divisor is None:
        return values.mean()
    if divisor:
        if divisor not in frozen.index.get_level_values("gradient"):
            return pd.Series(dtype=float)
        values = values / frozen[divisor]
    return values.div(values.sum(axis=1), axis=0).mean()


def _draw_curve(panel: Axes, curve: pd.Series[float], look: Look) -> None:
    if len(curve):
        every = max(1, len(curve) // 6)
        panel.plot(
            curve.index.to_numpy(),
            curve.to_numpy(),
            markevery=every,
            linewidth=0.8,
            **marks(look, 2.6),
        )
