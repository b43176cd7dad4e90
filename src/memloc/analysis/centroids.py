"""Centroid analysis (section 5): how noisy examples move from their old class to the new one.

For an ordered pair of classes (a, b) and a layer, the line through the centroids of the clean
examples of a and of b is an axis with 0 at a and 1 at b. The noisy examples that were b and became
a are projected on it, and the clean examples of both classes:

    position(x) = (x − c_a)·(c_b − c_a) / |c_b − c_a|²

Positions are signed: an example can lie beyond either centroid. Pairs are pooled; a pair without
noisy examples, or with a class that has no clean ones, is left out and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from memloc.analysis.events import (
    crossing,
    crossings_for_good,
    first_crossing,
    initiation,
    largest_steps,
)
from memloc.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

GROUPS = ("noisy", "class_a", "class_b")
LOW, HIGH = 12.5, 87.5
"""Percentiles that bound the middle 75%."""


@dataclass(frozen=True)
class Classes:
    """Who takes part in the analysis; the same for every model and layer."""

    labels: np.ndarray
    """As trained."""
    original: np.ndarray
    noisy: np.ndarray
    pairs: np.ndarray
    """[pairs, 2] the ordered pairs (a, b) that have noisy examples and clean ones of both."""
    skipped: int
    """Ordered pairs of classes that do not."""

    @property
    def moved(self) -> np.ndarray:
        """Rows of the noisy examples that belong to one of the pairs."""
        known = {(a, b) for a, b in self.pairs.tolist()}
        rows = np.flatnonzero(self.noisy).tolist()
        of_pair = [(int(self.labels[row]), int(self.original[row])) in known for row in rows]
        return np.array(rows, dtype=np.int64)[of_pair]


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
    moved = np.zeros((n_classes, n_classes), np.int64)
    np.add.at(moved, (labels[noisy], original[noisy]), 1)
    usable = (moved > 0) & (clean[:, None] > 0) & (clean[None, :] > 0)
    pairs = np.argwhere(usable)
    if not len(pairs):
        with_clean = int((clean > 0).sum())
        raise DataError(
            f"centroids need noisy examples between two classes that also have clean ones, and "
            f"only {with_clean} of {n_classes} classes have clean examples",
            remedy="use more examples or leave out the explanations",
        )
    return Classes(labels, original, noisy, pairs, n_classes * (n_classes - 1) - len(pairs))


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
        for label in range(int(max(classes.labels.max(), classes.original.max())) + 1)
    ]
    noisy, class_a, class_b = [], [], []
    for state in np.asarray(states):
        layer = _Layer.of(state, members)
        pairs = [(a, b) for a, b in classes.pairs.tolist()]
        noisy.append(layer.on_line(moved, classes.labels[moved], classes.original[moved]))
        class_a.append(np.concatenate([layer.on_line(members[a], a, b) for a, b in pairs]))
        class_b.append(np.concatenate([layer.on_line(members[b], a, b) for a, b in pairs]))
    return Positions(np.stack(noisy), np.stack(class_a), np.stack(class_b))


@dataclass(frozen=True)
class _Layer:
    """The products that all positions of one layer follow from."""

    products: np.ndarray
    """[examples, classes] of states with centroids."""
    between: np.ndarray
    """[classes, classes] of centroids with centroids."""
    squared: np.ndarray
    """[classes, classes] distance of the centroids, squared; NaN if they coincide."""

    @classmethod
    def of(cls, state: np.ndarray, members: Sequence[np.ndarray]) -> _Layer:
        centred = state.astype(np.float64)
        centred -= centred.mean(axis=0)  # products of centred states lose less by cancellation
        nowhere = np.zeros(centred.shape[1])
        centroids = np.stack([centred[m].mean(axis=0) if len(m) else nowhere for m in members])
        between = centroids @ centroids.T
        sizes = between.diagonal()[:, None] + between.diagonal()
        squared = sizes - 2 * between
        # What rounding leaves of two equal centroids is no direction.
        return cls(
            centred @ centroids.T, between, np.where(squared > 1e-12 * sizes, squared, np.nan)
        )

    def on_line(self, rows: np.ndarray, a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
        """Positions of examples between the centroids of a (0) and b (1)."""
        along = self.products[rows, b] - self.products[rows, a]
        along += self.between[a, a] - self.between[a, b]
        position: np.ndarray = along / self.squared[a, b]
        return position


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


def pair_table(classes: Classes, n_classes: int) -> pd.DataFrame:
    """All ordered pairs of classes, with the number of noisy examples and whether they count."""
    used = {(a, b) for a, b in classes.pairs.tolist()}
    pairs = [(a, b) for a in range(n_classes) for b in range(n_classes) if a != b]
    moved = list(
        zip(
            classes.labels[classes.noisy].tolist(),
            classes.original[classes.noisy].tolist(),
            strict=True,
        )
    )
    return pd.DataFrame(
        {
            "label": [a for a, _ in pairs],
            "original_label": [b for _, b in pairs],
            "noisy": [moved.count(pair) for pair in pairs],
            "used": [pair in used for pair in pairs],
        }
    )
