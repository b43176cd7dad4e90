"""From errors per window to weights per layer (section 3.1, Figures 3 and 5).

    E[size, layer] = mean error over the windows of that size that contain the layer
    weight[layer]  = mean over sizes of E[size, layer]
    M-CoG          = Σ i·w_i / Σ w_i

Errors are normalised so that modifying all L layers is 1.0. Sizes that were not tried are
interpolated: E lies on straight lines between the sizes that were, and on one from 0 (nothing is
modified) to the smallest of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, overload

import numpy as np
import pandas as pd

from memloc.analysis.correlation import SEED, Interval, interval_of, interval_of_mean
from memloc.config import WindowSizes
from memloc.errors import ConfigError

ENOUGH = 0.2
"""Share of the flipped labels in the layers from which on it makes sense to ask in which."""
FEWEST_SEEDS = 3
"""Seeds from which on they alone give an interval."""
SHALLOW = 8
"""Up to so many layers, all windows are tried unless sizes are chosen: they are few."""
STEPS = 4
"""From one layer to all, in deeper models."""


class Window(NamedTuple):
    """Layers first..last, numbered from 1."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """Number of layers."""
        return self.last - self.first + 1

    @property
    def layers(self) -> range:
        """The layers themselves."""
        return range(self.first, self.last + 1)


@cache
def all_windows(n_layers: int) -> tuple[Window, ...]:
    """All L(L+1)/2 windows, smallest first, then from the bottom up."""
    return tuple(
        Window(first, first + size - 1)
        for size in range(1, n_layers + 1)
        for first in range(1, n_layers - size + 2)
    )


def chosen_sizes(n_layers: int, sizes: WindowSizes) -> tuple[int, ...]:
    """The sizes of the windows to try; the full one, to which errors are relative, is always there.

    `auto` is all up to `SHALLOW` layers. In deeper models the sizes go up from 1 in steps of a
    quarter of the depth, and the last is the depth itself.

    Raises:
        ConfigError: If a model of that depth has no such windows.
    """
    if sizes == "all" or (sizes == "auto" and n_layers <= SHALLOW):
        return tuple(range(1, n_layers + 1))
    if sizes == "auto":
        return *(round(1 + step * n_layers / STEPS) for step in range(STEPS)), n_layers
    for size in sizes:
        if not 1 <= int(size) <= n_layers:
            raise ConfigError(
                f"the model has {n_layers} layers, so windows have 1 to {n_layers} layers",
                setting="windows.sizes",
                value=size,
            )
    return tuple(sorted({*map(int, sizes), n_layers}))


def chosen_windows(n_layers: int, sizes: WindowSizes) -> tuple[Window, ...]:
    """All windows of the chosen sizes: see `chosen_sizes`."""
    chosen = chosen_sizes(n_layers, sizes)
    return tuple(window for window in all_windows(n_layers) if window.size in chosen)


def window_tables(
    technique: str,
    windows: Sequence[Window],
    predicted: np.ndarray,
    unmodified: np.ndarray,
    examples: pd.DataFrame,
) -> dict[str, pd.DataFrame]:
    """The tables layers, windows, predictions and examples of a technique that changes windows.

    An example that was never memorised, or that no window undoes, has no smallest window. Between
    `at_least` and its size are sizes that were not tried.

    Args:
        technique: Its name.
        windows: In the order of `all_windows`.
        predicted: Class per window and example.
        unmodified: Class per example, before any change.
        examples: Rows of `Context.examples`, in the same order.
    """
    ids, labels, noisy = (examples[c].to_numpy() for c in ("example", "label", "noisy"))
    first, last = np.array(windows).T
    sizes = last - first + 1
    wrong = predicted != labels
    errors = pd.DataFrame(
        {
            "technique": technique,
            "first_layer": first,
            "last_layer": last,
            "size": sizes,
            "noisy_error": wrong[:, noisy].mean(axis=1),
            "clean_error": wrong[:, ~noisy].mean(axis=1) if (~noisy).any() else np.nan,
        }
    )
    predictions = pd.DataFrame(
        {
            "technique": technique,
            "first_layer": np.repeat(first, len(ids)),
            "last_layer": np.repeat(last, len(ids)),
            "example": np.tile(ids, len(windows)),
            "predicted": predicted.reshape(-1),
        }
    )
    memorised = (unmodified == labels)[noisy]
    undone = wrong[:, noisy].any(axis=0) & memorised
    smallest = wrong[:, noisy].argmax(axis=0)  # the first: then the lowest of its size
    tried = np.unique(sizes)
    size_before = np.concatenate([[0], tried])[np.searchsorted(tried, sizes)]

    def of_smallest(values: np.ndarray) -> pd.Series[int]:
        return pd.Series(values[smallest], dtype="Int64").where(undone)

    undoing = pd.DataFrame(
        {
            "technique": technique,
            "example": ids[noisy],
            "memorised": memorised,
            "smallest_window": of_smallest(sizes),
            "at_least": of_smallest(size_before + 1),
            "first_layer": of_smallest(first),
            "last_layer": of_smallest(last),
        }
    )
    return {
        "layers": layer_weights(technique, error_matrix(errors)),
        "windows": errors,
        "predictions": predictions,
        "examples": undoing,
    }


def error_matrix(windows: pd.DataFrame) -> np.ndarray:
    """E[size − 1, layer − 1] from a table of one technique, normalised to the full window.

    Sizes of which there are no windows are rows of NaN.
    """
    n_layers = int(windows["last_layer"].max())
    full = full_error(windows)
    scale = full if full > 0 else math.nan
    matrix = np.full((n_layers, n_layers), np.nan)
    layers = np.arange(1, n_layers + 1)
    columns = ("size", "first_layer", "last_layer", "noisy_error")
    sizes, first, last, errors = (windows[[column]].to_numpy() for column in columns)
    inside = (first <= layers) & (layers <= last)
    weighted = np.where(inside, errors, 0.0)
    for size in np.unique(sizes):
        rows = sizes[:, 0] == size
        with np.errstate(invalid="ignore"):  # a layer of which all windows failed
            mean = weighted[rows].sum(axis=0) / inside[rows].sum(axis=0)
        matrix[size - 1] = mean / scale
    return matrix


def full_error(windows: pd.DataFrame) -> float:
    """The noisy error with all layers modified, from a table of one technique."""
    return float(windows.loc[windows["size"] == windows["last_layer"].max(), "noisy_error"].mean())


@overload
def lost(error: float, accuracy: float) -> float: ...
@overload
def lost(error: np.ndarray, accuracy: float) -> np.ndarray: ...
def lost(error: Any, accuracy: float) -> Any:
    """Share of labels that a modified model gives no more.

    An error alone would also count labels that θ_M never gave:

        lost = accuracy of θ_M − accuracy of the modified model
    """
    # Shares of counts: what two of them leave must be zero, not nearly zero.
    return np.round(error - (1 - accuracy), 12)


def undone_matrix(windows: pd.DataFrame, memorised: float) -> np.ndarray:
    """What windows undo, as a share of what modifying all layers undoes; indexed like E.

    It is E if θ_M gives every noisy label, as its share `memorised` says; NaN if modifying all
    layers undoes nothing.
    """
    full = full_error(windows)
    undone = lost(full, memorised)
    return lost(error_matrix(windows) * full, memorised) / (undone if undone > 0 else math.nan)


def layer_weights(technique: str, matrix: np.ndarray) -> pd.DataFrame:
    """Weight per layer: the mean of its column of E, interpolated."""
    return layer_table(technique, interpolated(matrix).mean(axis=0))


def sizes_tried(matrix: np.ndarray) -> np.ndarray:
    """The sizes of which E is known for all layers."""
    return np.flatnonzero(np.isfinite(matrix).all(axis=1)) + 1


def interpolated(matrix: np.ndarray) -> np.ndarray:
    """E with the rows of all sizes; NaN if no size was tried."""
    tried = sizes_tried(matrix)
    if not len(tried):
        return np.full(matrix.shape, np.nan)
    return np.asarray(_between(len(matrix), tried) @ matrix[tried - 1])


def _between(n_layers: int, tried: np.ndarray) -> np.ndarray:
    """[sizes, tried sizes]: what each size that was tried adds to E of every size."""
    sizes, ends = np.arange(1, n_layers + 1), np.concatenate([[0], tried])
    shares = [np.interp(sizes, ends, ends == size) for size in tried]
    return np.array(shares).reshape(len(tried), n_layers).T


def layer_table(
    technique: str, weights: np.ndarray, spread: np.ndarray | float = math.nan
) -> pd.DataFrame:
    """Weights of layers 1..L as a table."""
    return pd.DataFrame(
        {
            "technique": technique,
            "layer": np.arange(1, len(weights) + 1),
            "weight": weights,
            "spread": spread,
        }
    )


def centre_of_gravity(weights: np.ndarray) -> float | None:
    """M-CoG of weights for layers 1..L; None if there is no weight at all."""
    total = float(np.sum(weights))
    if not math.isfinite(total) or total <= 0:
        return None
    return float(np.sum(np.arange(1, len(weights) + 1) * weights) / total)


def centre_terms(windows: Sequence[Window]) -> tuple[np.ndarray, np.ndarray]:
    """What the error of each window adds to Σ i·w_i and to Σ w_i, apart from a common factor.

    Sizes that miss a layer, because windows of it failed, count as not tried: 0.
    """
    n_layers = max(window.last for window in windows)
    first, last = np.array(windows).T[..., None]
    layers = np.arange(1, n_layers + 1)
    inside = ((first <= layers) & (layers <= last)).astype(float)
    sizes = (last - first)[:, 0] + 1
    times = {size: inside[sizes == size].sum(axis=0) for size in np.unique(sizes)}
    tried = np.array([size for size, count in times.items() if count.all()])
    counts = dict(zip(tried, _between(n_layers, tried).sum(axis=0), strict=True))
    for size, count in times.items():
        inside[sizes == size] *= counts[size] / count if size in counts else 0.0
    return inside @ layers, inside.sum(axis=1)


def centre_range(windows: Sequence[Window]) -> Interval:
    """The lowest and the highest M-CoG that these windows can give.

    It is narrower than 1 to L, because large windows contain every layer. A window is taken to undo
    at least what the windows inside it undo, and the full one to undo everything. With all windows,
    the ends are reached if everything is in layer 1, or in layer L.
    """
    n_layers = max(window.last for window in windows)
    upside_down = [Window(n_layers + 1 - last, n_layers + 1 - first) for first, last in windows]
    return _lowest_centre(windows), n_layers + 1 - _lowest_centre(upside_down)


def _lowest_centre(windows: Sequence[Window]) -> float:
    """The smallest M-CoG if some windows undo everything and the others nothing.

    By the assumption, with a window goes every window around it. Of windows with the same first
    layer a smaller one lies lower, so if one of them lowers the centre, all do. The best set
    therefore has all windows that begin at some layer or below it.
    """
    above, below = centre_terms(windows)
    first = np.array(windows)[:, 0]
    sets = [first <= start for start in np.unique(first)]
    return min(float(above[chosen].sum() / below[chosen].sum()) for chosen in sets)


def centre_interval(
    windows: Sequence[Sequence[Window]], wrong: Sequence[np.ndarray]
) -> Interval | None:
    """Bootstrap interval of the mean M-CoG over seeds, from single noisy examples.

    A sample draws noisy examples, the same in all seeds, and seeds. As M-CoG is a quotient of two
    sums over windows, and errors are sums over examples, it is also one of two sums over examples.

    Args:
        windows: Of each seed.
        wrong: For each seed, [windows, noisy examples]: whether the label as trained is lost.
    """
    terms = [np.array(centre_terms(of)) for of in windows]
    sums = np.stack([of @ one for of, one in zip(terms, wrong, strict=True)], axis=1)
    random = np.random.default_rng(SEED)

    def centres(counts: np.ndarray) -> np.ndarray:
        above, below = sums @ counts.T  # [seeds, samples]
        with np.errstate(invalid="ignore", divide="ignore"):
            by_seed = above / below
        drawn = random.integers(len(terms), size=by_seed.shape)
        picked = np.take_along_axis(by_seed, drawn, axis=0)
        known = np.isfinite(picked)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(known, picked, 0).sum(axis=0) / known.sum(axis=0))

    return interval_of(centres, sums.shape[2])


def interval_over_seeds(values: Sequence[float]) -> Interval | None:
    """Student's interval of a mean over seeds; None for too few of them."""
    return interval_of_mean(values, FEWEST_SEEDS)
