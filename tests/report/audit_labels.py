"""Made-up results of an audit: the first examples are the suspects, in an order known to tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

CLASSES = ("animals", "plants", "stones")


def made_labels(n: int = 60, suspects: int = 8, texts: Sequence[str] | None = None) -> pd.DataFrame:
    """Labels whose rank is 1 for the last suspect and `suspects` for row 0, then goes by the row.

    Args:
        n: How many.
        suspects: The rows below this are marked.
        texts: Of the first rows, if not made up.
    """
    rows = np.arange(n)
    given = rows % len(CLASSES)
    doubted = rows < suspects
    suggested = np.where(doubted, (given + 1) % len(CLASSES), given)
    rank = np.where(doubted, suspects - rows, rows + 1)
    texts = texts or ()
    return pd.DataFrame(
        {
            "row": rows,
            "text": [*texts, *(f"text number {row}" for row in range(len(texts), n))],
            "label": np.array(CLASSES)[given],
            "suggested_label": np.array(CLASSES)[suggested],
            "suspect": doubted,
            "rank": rank,
            "score": 1 - rank / (n + 1),
            "learned": pd.array(
                [None if row % 5 == 0 else row % 12 for row in rows], dtype="Int64"
            ),
            "confidence": np.where(doubted, rows / n, 0.5 + rows / n / 2),
            "variability": 0.02 + 0.3 * rows / n,
        }
    )


def about(labels: pd.DataFrame, **values: Any) -> dict[str, Any]:
    """What the page is told beside the labels."""
    return {
        **{"name": "my data", "model": "minilm", "examples": len(labels), "classes": list(CLASSES)},
        **{"wrong": {"estimate": 7.4, "low": 4.0, "high": 12.0}, "epochs": 6},
        **values,
    }
