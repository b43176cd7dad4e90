"""Figures 8 and 9: do techniques agree, do models agree?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from memloc.analysis.correlation import FEWEST, mean_correlation
from memloc.report.figures.data import CannotDraw, FigureData, Picture
from memloc.report.figures.style import DOUBLE, SINGLE, new_figure
from memloc.results.grid_agreement import LAYER_WEIGHTS, M_COG, Pair, model_pairs, technique_pairs

COLOURS = "RdBu"
"""Red for −1, blue for 1: also told apart by people who cannot tell red from green."""
DARK = 0.6
"""From here on, numbers are white."""


def draw_centres(data: FigureData) -> list[Picture]:
    """ρ of centres of gravity."""
    return _draw(data, M_COG, "M-CoG")


def draw_weights(data: FigureData) -> list[Picture]:
    """ρ of layer weights."""
    return _draw(data, LAYER_WEIGHTS, "layer weights")


def _draw(data: FigureData, quantity: str, words: str) -> list[Picture]:
    grid = data.need_runs()
    sides = []
    if len(grid.techniques) > 1:
        names = {name: name for name in grid.techniques}
        sides.append((names, technique_pairs(grid, quantity), "techniques"))
    if len(data.run_models) > 1:
        names = {model: data.model_names[model] for model in data.run_models}
        sides.append((names, model_pairs(grid, quantity), "models"))
    if not sides:
        raise CannotDraw("there is one technique and one model, so nothing to compare")
    matrices = [_matrix(list(names), pairs) for names, pairs, _ in sides]
    if all(np.isnan(matrix).all() for matrix in matrices):
        raise CannotDraw(f"there are fewer than {FEWEST} points to correlate; compute more runs")
    width = DOUBLE if len(sides) == 2 else SINGLE
    # Names at the left, and below at an angle, take as much room as the longest of them.
    letters = max(len(name) for names, _, _ in sides for name in names.values())
    height = (width - 0.4) / len(sides) - letters * 0.05 + letters * 0.042
    figure = new_figure(width, min(height, 3.4))
    panels = figure.subplots(1, len(sides), squeeze=False)[0]
    images = []
    for panel, (names, _, kind), matrix in zip(panels, sides, matrices, strict=True):
        images.append(_draw_matrix(panel, matrix, list(names.values())))
        panel.set_title(kind)
    bar = figure.colorbar(images[0], ax=list(panels), shrink=0.7, aspect=22, pad=0.02)
    bar.set_label("Spearman’s ρ")
    bar.outline.set_visible(False)
    caption = (
        f"Spearman’s ρ of {words} between {' and between '.join(kind for *_, kind in sides)}. "
        f"Hatched: fewer than {FEWEST} points, or no variation."
    )
    return [Picture("", figure, caption)]


def _matrix(names: Sequence[str], pairs: Sequence[Pair]) -> np.ndarray:
    """Below the diagonal ρ; NaN everywhere else."""
    matrix = np.full((len(names), len(names)), np.nan)
    for pair in pairs:
        found = mean_correlation([pair.points], resamples=0).spearman
        places = sorted((names.index(pair.one), names.index(pair.other)), reverse=True)
        matrix[places[0], places[1]] = np.nan if found is None else found
    return matrix


def _draw_matrix(panel: Axes, matrix: np.ndarray, names: list[str]) -> AxesImage:
    n = len(names)
    shown = matrix[1:, :-1]  # the first row and the last column have nothing below the diagonal
    image = panel.imshow(shown, cmap=COLOURS, vmin=-1, vmax=1, aspect="equal")
    size = 6.5 if n <= 6 else 5.5
    for row in range(n - 1):
        for column in range(row + 1):
            value = shown[row, column]
            if np.isnan(value):
                panel.fill_between(
                    [column - 0.5, column + 0.5], row - 0.5, row + 0.5,
                    facecolor="#F4F4F4", hatch="////", linewidth=0,
                )  # fmt: skip
                continue
            words = f"{value:.2f}".replace("-", "−").replace("0.", ".", 1)
            colour = "white" if abs(value) > DARK else "black"
            panel.text(column, row, words, ha="center", va="center", color=colour, fontsize=size)
    panel.set_xticks(range(n - 1), names[:-1], rotation=35, ha="right", rotation_mode="anchor")
    panel.set_yticks(range(n - 1), names[1:])
    panel.tick_params(length=0)
    panel.grid(False)
    for spine in panel.spines.values():
        spine.set_visible(False)
    return image
