"""Layer weights and positions over training time, and the line of their centre."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from memloc.report.figures.data import FigureData, Picture
from memloc.report.figures.panels import fitting, layer_ticks
from memloc.report.figures.style import DOUBLE, SINGLE, new_figure
from memloc.results.over_time import CENTRES

SIDE_BY_SIDE = 6
COLUMNS = {
    **{"seed": "int64", "epoch": "int64", "technique": "object", "layer": "int64"},
    "value": "float64",
}
LINES = {"seed": "int64", "epoch": "int64", **dict.fromkeys(CENTRES.values(), "Float64")}
MISSING = "no run has checkpoints (memloc run --checkpoints)"
LINE = "#D55E00"


def draw(data: FigureData) -> list[Picture]:
    """One figure per model: tasks side by side, techniques below each other."""
    values = data.table("checkpoint_layers", COLUMNS, MISSING)
    lines = data.table("checkpoints", LINES, MISSING)
    return [
        _draw_model(data, model, values[values["model"] == model], lines[lines["model"] == model])
        for model in data.run_models
        if model in set(values["model"])
    ]


def _draw_model(data: FigureData, model: str, values: pd.DataFrame, lines: pd.DataFrame) -> Picture:
    tasks = [task for task in data.tasks_of(model) if task in set(values["task"])]
    techniques = [name for name in CENTRES if name in set(values["technique"])]
    blocks = math.ceil(len(tasks) / SIDE_BY_SIDE)
    columns = math.ceil(len(tasks) / blocks)
    width = SINGLE if columns <= 2 else DOUBLE
    side = (width - 0.6) / columns - 0.1
    rows, n_layers, numbers = blocks * len(techniques), data.depths[model], max(2, int(side / 0.3))
    figure = new_figure(width, rows * (min(side, 1.2) + 0.09) + blocks * 0.3 + 0.2)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for place, task in enumerate(tasks):
        block, column = divmod(place, columns)
        for line, technique in enumerate(techniques):
            panel = grid[block * len(techniques) + line, column]
            _draw_panel(panel, technique, _of(values, task), _of(lines, task), n_layers, numbers)
            if line == 0:
                name = data.task_names[task]
                panel.set_title(name, fontsize=fitting(name, side + 0.05, 7.5))
            if column == 0:
                panel.set_ylabel(f"{technique}\nlayer")
            lowest = line == len(techniques) - 1
            panel.tick_params(labelbottom=lowest)
            if lowest:
                panel.set_xlabel("epoch")
    for unused in range(len(tasks) - (blocks - 1) * columns, columns):
        for line in range(len(techniques)):
            grid[(blocks - 1) * len(techniques) + line, unused].remove()
    caption = (
        f"Memorisation over training time in {data.model_names[model]}, mean over seeds. Swapping "
        "and probing: layer weights relative to the largest of each panel; lines: M-CoG. "
        "Centroids: mean position of noisy examples, dark at their new class; lines: "
        "crossing. Grey, and not yet: epochs with too little memorisation to localise."
    )
    return Picture(data.file_names[model], figure, caption)


def _of(table: pd.DataFrame, task: str) -> pd.DataFrame:
    return table[table["task"] == task]


def _draw_panel(
    panel: Axes,
    technique: str,
    values: pd.DataFrame,
    lines: pd.DataFrame,
    n_layers: int,
    numbers: int,
) -> None:
    """Layers upwards, epochs to the right; there is room for so many numbers of epochs."""
    own = values[values["technique"] == technique]
    epochs = sorted(lines["epoch"].unique().tolist())
    means = own.groupby(["epoch", "layer"])["value"].mean().unstack("layer").reindex(epochs)
    shown = means.to_numpy(dtype=float).T
    most = np.nanmax(shown, initial=0.0)
    shown = 1 - shown if technique == "centroids" else shown / (most or 1.0)
    panel.set_facecolor("#EEEEEE")
    edges = np.arange(len(epochs) + 1) - 0.5
    if shown.size:
        image: Any = panel.pcolormesh(
            edges, np.arange(n_layers + 1) + 0.5, np.ma.masked_invalid(shown),
            cmap="YlGnBu", vmin=0, vmax=1,
        )  # fmt: skip
        image.set_edgecolor("face")  # no hairlines between cells in viewers of PDF files
        image.set_linewidth(0.1)
    if not np.isfinite(shown).any():
        panel.text(
            0.5, 0.5, "not yet" if len(own) else "not possible", transform=panel.transAxes,
            ha="center", va="center", color="#555555", fontsize=7,
        )  # fmt: skip
    centres = lines.groupby("epoch")[CENTRES[technique]].mean().reindex(epochs)
    panel.plot(
        range(len(epochs)), centres.astype("float64"),
        color=LINE, linewidth=1.0, marker="o", markersize=2 if len(epochs) < 15 else 0,
    )  # fmt: skip
    panel.set(xlim=(edges[0], edges[-1]), ylim=(0.5, n_layers + 0.5))
    ticks = np.linspace(0, len(epochs) - 1, min(len(epochs), numbers)).round().astype(int)
    panel.set_xticks(ticks, [str(epochs[tick]) for tick in ticks])
    panel.set_yticks(layer_ticks(n_layers, 4))
    panel.grid(False)
    for spine in panel.spines.values():
        spine.set_visible(True)
