"""Each analysis alone, for those who build their own experiments: tidy tables in and out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memloc.analysis.centroids import (
    centroid_events,
    event_table,
    pick_classes,
    positions,
    summary_table,
)
from memloc.analysis.correlation import compare_profiles
from memloc.analysis.windows import centre_of_gravity, error_matrix
from memloc.analysis.windows import layer_weights as weights_of_matrix

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["agreement", "centroids", "events", "layer_weights", "mcog"]


def mcog(weights: Sequence[float]) -> float | None:
    """The centre of gravity of the weights of layers 1..L; None if no layer has any weight.

    Example:
        >>> memloc.api.analyses.mcog([0.5, 0.25, 0.25])
        1.75
    """
    return centre_of_gravity(np.asarray(weights, dtype=float))


def layer_weights(windows: pd.DataFrame) -> pd.DataFrame:
    """Weights of the layers from the errors of windows, for every technique.

    Args:
        windows: technique, first_layer, last_layer, size, noisy_error; as `Result.windows`. Several
            seeds are averaged.
    """
    return pd.concat(
        [
            weights_of_matrix(str(technique), error_matrix(rows))
            for technique, rows in windows.groupby("technique", sort=False)
        ],
        ignore_index=True,
    )


def agreement(layers: pd.DataFrame) -> pd.DataFrame:
    """Spearman's ρ between the layer weights of every two techniques.

    Args:
        layers: technique, layer, weight; as `Result.layers`. Several seeds are averaged.
    """
    profiles: dict[str, list[Any]] = {
        str(technique): rows.groupby("layer")["weight"].mean().tolist()
        for technique, rows in layers.groupby("technique", sort=False)
    }
    pairs = [(*pair["techniques"], pair["spearman"]) for pair in compare_profiles(profiles)]
    return pd.DataFrame(pairs, columns=["technique", "other_technique", "spearman"])


def centroids(
    states: np.ndarray | Tensor, labels: Sequence[int], original_labels: Sequence[int]
) -> pd.DataFrame:
    """Where noisy examples lie between their new class (0) and the old one (1), layer by layer.

    Args:
        states: [layers, examples, width] after layers 1..L, where the head reads them: see
            `Context.pooled_states`, whose first entry is before layer 1.
        labels: As trained, numbers.
        original_labels: The correct ones; examples where the two differ are noisy.

    Returns:
        model, layer, group (noisy, class_a, class_b), count, mean, low, high.
    """
    new, old = np.asarray(labels), np.asarray(original_labels)
    classes = pick_classes(new, old, new != old, int(max(new.max(), old.max())) + 1)
    return summary_table("memorised", positions(states, classes))


def events(centroids: pd.DataFrame) -> pd.DataFrame:
    """In which layer noisy examples cross to the new class, and from which on classes are apart.

    Args:
        centroids: Of one model, as `centroids` returns them.

    Returns:
        model, event (crossing, first_crossing, initiation), layer (none: it never happens).
    """
    return event_table(str(centroids["model"].iloc[0]), centroid_events(centroids))
