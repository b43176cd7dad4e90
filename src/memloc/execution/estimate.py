"""What jobs cost: floating-point operations of a pass of the data through a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from memloc.data.task import input_columns

TOKENS_PER_WORD, EXTRA_TOKENS = 1.3, 2
"""Of usual tokenisers on English; what matters is that tasks can be compared."""


def rough_lengths(examples: pd.DataFrame, max_tokens: int) -> np.ndarray:
    """Tokens of each example, guessed from the number of its words."""
    words = np.zeros(len(examples))
    for column in input_columns(examples):
        words += examples[column].str.count(r"\S+").to_numpy(dtype=float)
    return np.asarray(np.minimum(TOKENS_PER_WORD * words + EXTRA_TOKENS, max_tokens))


def pass_flops(facts: dict[str, Any], lengths: np.ndarray) -> float:
    """Floating-point operations of one forward pass of examples of these lengths.

    Every token meets every weight of the layers once, and every other token of its text.

    Args:
        facts: Layers, their parameters and width, as the job `model` finds them.
        lengths: Tokens of each example.
    """
    weights = 2.0 * facts["layer_parameters"] * lengths.sum()
    attention = 4.0 * facts["layers"] * facts["width"] * np.square(lengths, dtype=float).sum()
    return float(weights + attention)
