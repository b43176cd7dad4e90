"""Explanations of the layer weights (section 5): what happens to noisy examples on their way up.

A part is a module with a function `explain(context, report)` that returns tables. What the parts
need stands here, so that planning imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from memloc.analysis.centroids import pick_classes
from memloc.errors import DataError, MemlocError


@dataclass(frozen=True)
class Part:
    """What the jobs of an explanation depend on; see `memloc.techniques.Declared`."""

    revision: int
    needs: tuple[str, ...]
    settings: tuple[str, ...] = ()


PARTS = {
    "centroids": Part(1, ("states:memorised", "states:bottom_swapped", "states:top_swapped")),
    "class_probes": Part(1, ("states:memorised",), ("probing",)),
}
SMALLEST_GROUP = 10
"""Noisy examples, and clean ones, that class probes need: a fifth of them is for testing."""


class NotExplicable(MemlocError):
    """An explanation was asked for that this model or this data set does not allow."""


def possible_parts(
    wanted: bool | None, examples: pd.DataFrame, pooling: str
) -> tuple[tuple[str, ...], list[str]]:
    """The parts that the model and the examples allow, and a sentence on each that they do not.

    Args:
        wanted: Whether explanations were asked for; None takes what is possible.
        examples: The training examples.
        pooling: Where the head of the model reads.

    Raises:
        NotExplicable: If one was asked for and is not possible.
    """
    if wanted is False:
        return (), []
    checks: dict[str, Callable[[], str | None]] = {
        "centroids": lambda: _no_centroids(examples),
        "class_probes": lambda: _no_class_probes(examples),
    }
    reasons = {part: _no_states(pooling) or check() for part, check in checks.items()}
    sentences = list(dict.fromkeys(reason for reason in reasons.values() if reason))
    if wanted and sentences:
        raise NotExplicable(f"--explain is not possible: {sentences[0]}")
    return tuple(part for part, reason in reasons.items() if reason is None), sentences


def _no_states(pooling: str) -> str | None:
    if pooling != "other":
        return None
    return (
        "the head of this model does not read the first or the last token alone, so there is no "
        "single state per layer to follow"
    )


def _no_centroids(examples: pd.DataFrame) -> str | None:
    labels, original = (examples[c].to_numpy() for c in ("label", "original_label"))
    n_classes = int(max(labels.max(), original.max())) + 1
    try:
        pick_classes(labels, original, examples["noisy"].to_numpy(), n_classes)
    except DataError as error:
        return str(error)
    return None


def _no_class_probes(examples: pd.DataFrame) -> str | None:
    noisy = int(np.sum(examples["noisy"].to_numpy()))
    for kind, count in (("noisy", noisy), ("clean", len(examples) - noisy)):
        if count < SMALLEST_GROUP:
            return (
                f"class probes need at least {SMALLEST_GROUP} {kind} examples and there are "
                f"{count}; use more examples"
            )
    return None
