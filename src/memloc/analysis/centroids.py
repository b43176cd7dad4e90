"""Centroid analysis (section 5): how noisy examples move from their old class to the new one.

For an ordered pair of classes (a, b) and a layer, the line through the centroids of the clean
examples of a and of b is an axis with 0 at a and 1 at b. The noisy examples that were b and became
a are projected on it, and the clean examples of both classes:

    position(x) = (x − c_a)·(c_b − c_a) / |c_b − c_a|²

Positions are signed: an example can lie beyond either centroid. Pairs are pooled; a pair without
noisy examples, or with a class that has no clean ones, is left out and counted.

Events are layers on the way of the noisy examples. An event that never happens is None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memloc.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

GROUPS = ("noisy", "class_a", "class_b")
LOW, HIGH = 12.5, 87.5
"""Percentiles that bound the middle 75%."""
HALFWAY = 0.5
MEM_GEN_MARGIN = 0.10
NEARLY_BEST = 0.9
LOCAL = 0.5
"""An example that makes more than this share of its way in one layer is memorised locally."""


@dataclass(frozen=True)
class Classes:
    """Who takes part in the analysis; the same for every model and layer."""

    labels: np.ndarray
    """As trained."""
    original: np.ndarray
    noisy: np.ndarray
    counts: np.ndarray
    """[a, b] how many noisy examples were b and became a."""
    used: np.ndarray
    """[a, b] whether there are such examples, and clean ones of both classes."""

    @property
    def moved(self) -> np.ndarray:
        """Rows of the noisy examples that belong to one of the pairs."""
        return np.flatnonzero(self.noisy & self.used[self.labels, self.original])


@dataclass(frozen=True)
class Positions:
    """Where examples lie between two classes, per layer 1..L; NaN where centroids coincide."""

    noisy: np.ndarray
    """[layers, noisy examples of the pairs], in the order of `Classes.moved`."""
    class_a: np.ndarray
    """[layers, clean examples of class a of every pair]."""
    class_b: np.ndarray


def pick_classes(
    labels: np.ndarray, original: np.ndarray, noisy: np.ndarray, n_classes: int
) -> Classes:
    """Find the ordered pairs of classes that can be looked at.

    Raises:
        DataError: If there is none.
    """
    clean = np.bincount(labels[~noisy], minlength=n_classes)
    counts = np.zeros((n_classes, n_classes), np.int64)
    np.add.at(counts, (labels[noisy], original[noisy]), 1)
    used = (counts > 0) & (clean[:, None] > 0) & (clean[None, :] > 0)
    if not used.any():
        with_clean = int((clean > 0).sum())
        raise DataError(
            f"centroids need noisy examples between two classes that also have clean ones, and "
            f"only {with_clean} of {n_classes} classes have clean examples",
            remedy="use more examples or leave out the explanations",
        )
    return Classes(labels, original, noisy, counts, used)


def positions(states: np.ndarray | Tensor, classes: Classes) -> Positions:
    """Positions of all examples of all pairs in all layers, from one pass over the states.

    Everything follows from the products of states and centroids, of which there are as many as
    classes, not pairs:  (x − c_a)·(c_b − c_a) = x·c_b − x·c_a − c_a·c_b + c_a·c_a.

    Args:
        states: [layers, examples, width], the states after layers 1..L.
        classes: Who takes part.
    """
    moved = classes.moved
    members = [
        np.flatnonzero(~classes.noisy & (classes.labels == label))
        for label in range(len(classes.used))
    ]
    pairs = np.argwhere(classes.used).tolist()
    noisy, class_a, class_b = [], [], []
    for state in np.asarray(states):
        on_line = _lines(state, members)
        noisy.append(on_line(moved, classes.labels[moved], classes.original[moved]))
        class_a.append(np.concatenate([on_line(members[a], a, b) for a, b in pairs]))
        class_b.append(np.concatenate([on_line(members[b], a, b) for a, b in pairs]))
    return Positions(np.stack(noisy), np.stack(class_a), np.stack(class_b))


def _lines(
    state: np.ndarray, members: Sequence[np.ndarray]
) -> Callable[[np.ndarray, Any, Any], np.ndarray]:
    """What gives, in one layer, positions of examples between the centroids of a (0) and b (1)."""
    centred = state.astype(np.float64)
    centred -= centred.mean(axis=0)  # products of centred states lose less by cancellation
    nowhere = np.zeros(centred.shape[1])
    centroids = np.stack([centred[m].mean(axis=0) if len(m) else nowhere for m in members])
    products, between = centred @ centroids.T, centroids @ centroids.T
    sizes = between.diagonal()[:, None] + between.diagonal()
    squared = sizes - 2 * between
    # What rounding leaves of two equal centroids is no direction.
    squared = np.where(squared > 1e-12 * sizes, squared, np.nan)

    def on_line(rows: np.ndarray, a: Any, b: Any) -> np.ndarray:
        along = products[rows, b] - products[rows, a] + (between[a, a] - between[a, b])
        return np.asarray(along / squared[a, b])

    return on_line


def summary_table(model: str, found: Positions) -> pd.DataFrame:
    """Mean and middle 75% per layer and group; layers without a direction have NaN."""
    tables = []
    for group in GROUPS:
        values: np.ndarray = getattr(found, group)
        low, mean, high = np.full((3, len(values)), np.nan)
        for layer, row in enumerate(values):
            known = row[np.isfinite(row)]
            if len(known):
                mean[layer] = known.mean()
                low[layer], high[layer] = np.percentile(known, [LOW, HIGH])
        tables.append(
            pd.DataFrame(
                {
                    "model": model,
                    "layer": np.arange(1, len(values) + 1),
                    "group": group,
                    "count": np.isfinite(values).sum(axis=1),
                    "mean": mean,
                    "low": low,
                    "high": high,
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def trajectory_table(model: str, found: Positions, examples: np.ndarray) -> pd.DataFrame:
    """One row per noisy example and layer."""
    n_layers, n = found.noisy.shape
    return pd.DataFrame(
        {
            "model": model,
            "example": np.repeat(examples, n_layers),
            "layer": np.tile(np.arange(1, n_layers + 1), n),
            "position": found.noisy.T.reshape(-1),
        }
    )


def centroid_events(centroids: pd.DataFrame) -> dict[str, int | None]:
    """Crossing and classification initiation from a table of one model."""
    rows = {group: part.sort_values("layer") for group, part in centroids.groupby("group")}
    means = rows["noisy"]["mean"].to_numpy()
    return {
        "crossing": crossing(means),
        "first_crossing": first_crossing(means),
        "initiation": initiation(
            rows["class_a"]["high"].to_numpy(), rows["class_b"]["low"].to_numpy()
        ),
    }


def crossing_table(found: Positions, examples: np.ndarray) -> pd.DataFrame:
    """Per noisy example: where it crosses for good, and how much of its way one layer makes."""
    layers, shares = largest_steps(found.noisy)
    return pd.DataFrame(
        {
            "example": examples,
            "crossing": pd.array(crossings_for_good(found.noisy), dtype="Int64"),
            "largest_step_layer": pd.array(
                [layer or None for layer in layers.tolist()], dtype="Int64"
            ),
            "largest_step": shares,
        }
    )


def pair_table(classes: Classes) -> pd.DataFrame:
    """All ordered pairs of classes, with the number of noisy examples and whether they count."""
    pairs = permutations(range(len(classes.used)), 2)
    rows = [(*pair, classes.counts[pair], classes.used[pair]) for pair in pairs]
    return pd.DataFrame(rows, columns=["label", "original_label", "noisy", "used"])


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

    The bulk ends at the 87.5th percentile of class a and begins at the 12.5th of class b.
    """
    return _from_which_on(np.asarray(a_high) < np.asarray(b_low))


def mem_gen(perturbed_noisy: np.ndarray, original_noisy: np.ndarray) -> int | None:
    """The first layer where probes find the flipped label clearly better than the original one.

    Not known if a layer below it has no F1 (NaN), as it may have happened there.
    """
    perturbed, original = np.asarray(perturbed_noisy), np.asarray(original_noisy)
    return _first(perturbed > original + MEM_GEN_MARGIN, np.isfinite(perturbed + original))


def f1_90(clean: np.ndarray, chance: float) -> int | None:
    """The first layer where probes are nearly as good on clean examples as in the best layer.

    F1 is rescaled so that guessing is 0 and the best layer is 1. Not known if any layer has no F1
    (NaN), as it may be the best.
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


def _first(happens: np.ndarray, known: np.ndarray | bool = True) -> int | None:
    layers = np.flatnonzero(happens | ~np.broadcast_to(known, happens.shape))
    return int(layers[0]) + 1 if len(layers) and happens[layers[0]] else None


def _from_which_on(holds: np.ndarray) -> int | None:
    """The first layer from which on it holds in all layers."""
    if not len(holds) or not holds[-1]:
        return None
    broken = np.flatnonzero(~holds)
    return int(broken[-1]) + 2 if len(broken) else 1
