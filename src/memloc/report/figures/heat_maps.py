"""Figures 3 and 16: memorisation error by window size and layer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from memloc.report.figures.data import CannotDraw, FigureData, Picture
from memloc.report.figures.panels import fitting, layer_ticks
from memloc.report.figures.style import DOUBLE, SINGLE, new_figure

MODIFYING = ("swapping", "retraining")
SIDE_BY_SIDE = 6
CONTOUR = 0.95
"""Where nearly all memorisation is undone."""


def draw(data: FigureData) -> list[Picture]:
    """One figure per model: tasks side by side, techniques below each other."""
    data.need_runs()
    found = {model: _matrices(data, model) for model in data.run_models}
    pictures = [_draw_model(data, model, matrices) for model, matrices in found.items() if matrices]
    if not pictures:
        raise CannotDraw("no run has windows of swapping or retraining")
    return pictures


def _matrices(data: FigureData, model: str) -> dict[tuple[str, str], np.ndarray]:
    """E by task and technique."""
    found = {}
    for task in data.tasks_of(model):
        methods: dict[str, Any] = data.runs[task, model].summary["methods"]
        for technique in MODIFYING:
            matrix = methods.get(technique, {}).get("error_by_size_and_layer")
            if matrix is None:
                continue
            values = np.array(matrix, dtype=float)  # None becomes NaN
            if (
                values.ndim == 2
                and values.shape[0] == values.shape[1]
                and np.isfinite(values).any()
            ):
                found[task, technique] = values
    return found


def _draw_model(
    data: FigureData, model: str, matrices: dict[tuple[str, str], np.ndarray]
) -> Picture:
    tasks = [task for task in data.tasks_of(model) if any(task == one for one, _ in matrices)]
    techniques = [name for name in MODIFYING if any(name == other for _, other in matrices)]
    columns = min(len(tasks), SIDE_BY_SIDE)
    blocks = math.ceil(len(tasks) / columns)
    columns = math.ceil(len(tasks) / blocks)
    width = SINGLE if columns <= 2 else DOUBLE
    side = (width - 1.0) / columns - 0.1
    rows = blocks * len(techniques)
    figure = new_figure(width, rows * (min(side, 1.6) + 0.09) + blocks * 0.18 + 0.3)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    image = None
    for place, task in enumerate(tasks):
        block, column = divmod(place, columns)
        for line, technique in enumerate(techniques):
            panel = grid[block * len(techniques) + line, column]
            if line == 0:
                name = data.task_names[task]
                panel.set_title(name, fontsize=fitting(name, side + 0.05, 7.5))
            matrix = matrices.get((task, technique))
            if matrix is None:
                panel.text(0.5, 0.5, "none", transform=panel.transAxes, ha="center", color="grey")
            else:
                image = draw_matrix(panel, matrix)
            if column == 0:
                panel.set_ylabel(f"{technique}\nwindow size")
            lowest = place + columns >= len(tasks) and line == len(techniques) - 1
            if lowest:
                panel.set_xlabel("layer")
            panel.tick_params(labelbottom=lowest)
    for unused in range(len(tasks) - (blocks - 1) * columns, columns):
        for line in range(len(techniques)):
            grid[(blocks - 1) * len(techniques) + line, unused].remove()
    if image is not None:
        bar = figure.colorbar(image, ax=list(grid.flat), shrink=0.6, aspect=25, pad=0.015)
        bar.set_label("memorisation error (relative)")
        bar.outline.set_visible(False)
    caption = (
        f"Memorisation error of {' and '.join(techniques)} for {data.model_names[model]}: mean "
        "over all windows of a size (row) that contain a layer (column), relative to modifying all "
        f"layers, mean over seeds. Orange lines: where {CONTOUR:.0%} are "
        "reached."
    )
    return Picture(data.file_names[model], figure, caption)


def draw_matrix(panel: Axes, matrix: np.ndarray) -> Any:
    """E as colours; lines where nearly all memorisation is undone."""
    n = len(matrix)
    edges = np.arange(n + 1) + 0.5
    panel.set_facecolor("#EEEEEE")  # sizes of which there are no windows
    image = panel.pcolormesh(
        edges, edges, np.ma.masked_invalid(matrix), cmap="YlGnBu", vmin=0, vmax=1, rasterized=False
    )
    image.set_edgecolor("face")  # no hairlines between cells in viewers of PDF files
    image.set_linewidth(0.1)
    _outline(panel, matrix >= CONTOUR)
    panel.set(xlim=(0.5, n + 0.5), ylim=(n + 0.5, 0.5))
    panel.set_xticks(layer_ticks(n, 4 if n > 6 else 6))
    panel.set_yticks(layer_ticks(n, 4 if n > 6 else 6))
    panel.grid(False)
    for spine in panel.spines.values():
        spine.set_visible(True)
    return image


def _outline(panel: Axes, inside: np.ndarray) -> None:
    """A line between the cells inside and those outside."""
    segments_x: list[float] = []
    segments_y: list[float] = []
    n = len(inside)
    for row in range(n):
        for column in range(n):
            if row and inside[row, column] != inside[row - 1, column]:
                segments_x += [column + 0.5, column + 1.5, np.nan]
                segments_y += [row + 0.5, row + 0.5, np.nan]
            if column and inside[row, column] != inside[row, column - 1]:
                segments_x += [column + 0.5, column + 0.5, np.nan]
                segments_y += [row + 0.5, row + 1.5, np.nan]
    panel.plot(segments_x, segments_y, color="#D55E00", linewidth=0.8, solid_capstyle="projecting")
