"""Events on the way through the layers (section 5). One that never happens is missing (None).

Trajectories are positions between two classes after layers 1..L: 0 at the class of the flipped
label, 1 at that of the original label (see `memloc.analysis.centroids`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

HALFWAY = 0.5
MEM_GEN_MARGIN = 0.10
NEARLY_BEST = 0.9
LOCAL = 0.5
"""An example that makes more than this share of its way in one layer is memorised locally."""


def crossing(means: Sequence[float] | np.ndarray) -> int | None:
    """The last layer at which the mean of the noisy examples falls from above .5 to below it.

    A mean that is below .5 in all layers has crossed in layer 1. One that starts below and then
    rises has not: in the first layers classes overlap, and the side of .5 is chance.
    """
    below = np.asarray(means) < HALFWAY
    if below.all():
        return 1
    falls = np.flatnonzero(below[1:] & ~below[:-1])
    return int(falls[-1]) + 2 if len(falls) else None


def first_crossing(means: Sequence[float] | np.ndarray) -> int | None:
    """The first layer in which the noisy mean is nearer to the new class (the paper's words)."""
    below = np.flatnonzero(np.asarray(means) < HALFWAY)
    return int(below[0]) + 1 if len(below) else None


def initiation(
    a_high: Sequence[float] | np.ndarray, b_low: Sequence[float] | np.ndarray
) -> int | None:
    """The first layer from which on the bulk of class a stays apart from that of class b.

    Args:
        a_high: 87.5th percentile of class a per layer.
        b_low: 12.5th percentile of class b.
    """
    return _from_which_on(np.asarray(a_high) < np.asarray(b_low))


def mem_gen(perturbed_noisy: np.ndarray, original_noisy: np.ndarray) -> int | None:
    """The first layer where probes find the flipped label clearly better than the original one."""
    return _first(np.asarray(perturbed_noisy) > np.asarray(original_noisy) + MEM_GEN_MARGIN)


def f1_90(clean: np.ndarray, chance: float) -> int | None:
    """The first layer where probes are nearly as good on clean examples as in the best layer.

    F1 is rescaled so that guessing is 0 and the best layer is 1.
    """
    scores = np.asarray(clean, dtype=float)
    best = scores.max()
    return _first((scores - chance) / (best - chance) > NEARLY_BEST) if best > chance else None


def crossings_for_good(found: np.ndarray) -> list[int | None]:
    """Per example, the layer from which on it is nearer to the new class; [layers, examples]."""
    return [_from_which_on(column < HALFWAY) for column in found.T]


def largest_steps(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per example: the layer of its largest step towards the new class, and how much that is.

    The second is the share of all its steps towards the new class, from layer 2 on (where it was
    before layer 1, no centroid tells). It is 1 if the example moved in one layer alone, 1/(L−1) if
    all layers moved it alike. NaN, and layer 0, if it never moved that way.
    """
    steps = np.nan_to_num(np.maximum(found[:-1] - found[1:], 0.0))
    if not len(steps):
        return np.zeros(found.shape[1], np.int64), np.full(found.shape[1], np.nan)
    total = steps.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(total > 0, steps.max(axis=0) / total, np.nan)
    return np.where(total > 0, steps.argmax(axis=0) + 2, 0), share


def event_table(model: str, events: dict[str, int | None]) -> pd.DataFrame:
    """One row per event; a missing one has no layer."""
    return pd.DataFrame(
        {
            "model": model,
            "event": list(events),
            "layer": pd.array(list(events.values()), dtype="Int64"),
        }
    )


def _first(happens: np.ndarray) -> int | None:
    layers = np.flatnonzero(happens)
    return int(layers[0]) + 1 if len(layers) else None


def _from_which_on(holds: np.ndarray) -> int | None:
    """The first layer from which on it holds in all layers."""
    if not len(holds) or not holds[-1]:
        return None
    broken = np.flatnonzero(~holds)
    return int(broken[-1]) + 2 if len(broken) else 1
