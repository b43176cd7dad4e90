"""What jobs cost: passes of the data through the model, and what a pass is.

Rough, but good enough for the order of jobs and, once it is known how long a few of them took, for
an estimate (`memloc.engine.estimate`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from memloc import techniques
from memloc.analysis.windows import Window
from memloc.data.task import input_columns
from memloc.errors import MemlocError

TOKENS_PER_WORD, EXTRA_TOKENS = 1.3, 2
"""Of usual tokenisers on English; what matters is that tasks can be compared."""


def passes(kind: str, identity: Mapping[str, Any], n_layers: int) -> float:
    """Forward passes of the data that take as long as a job.

    Args:
        kind: Of the job.
        identity: Its settings. Of `control`, both tasks together count as the data.
        n_layers: Of the model.
    """
    if kind in ("train", "control"):
        epochs = float(max(identity.get("snapshots") or [identity["training"]["epochs"]]))
        head_only = kind == "train" and identity["state"] == "frozen"
        return 2 + 0.1 * epochs if head_only else 4.5 * epochs
    if kind == "split":
        return 1.5 * float(identity["training"]["epochs"]) + 1
    if kind == "states":
        return 1.5
    try:
        technique = techniques.make(identity["technique"], identity["settings"])
    except (MemlocError, KeyError):  # in the store, but no longer there
        return 5.0
    if kind == "window":
        return technique.window_cost(n_layers, Window(*identity["window"]))
    return technique.cost(n_layers)


def rough_lengths(examples: pd.DataFrame, max_tokens: int) -> np.ndarray:
    """Tokens of each example, guessed from the number of its words."""
    words = np.zeros(len(examples))
    for column in input_columns(examples):
        words += [len(text.split()) for text in examples[column].tolist()]
    return np.asarray(np.minimum(TOKENS_PER_WORD * words + EXTRA_TOKENS, max_tokens))


def pass_flops(facts: Mapping[str, Any], lengths: np.ndarray) -> float:
    """Floating-point operations of one forward pass of examples of these lengths.

    Every token meets every weight of the layers once, and every other token of its text.

    Args:
        facts: Layers, their parameters and width, as the job `model` finds them.
        lengths: Tokens of each example.
    """
    weights = 2.0 * facts["layer_parameters"] * lengths.sum()
    attention = 4.0 * facts["layers"] * facts["width"] * np.square(lengths, dtype=float).sum()
    return float(weights + attention)
