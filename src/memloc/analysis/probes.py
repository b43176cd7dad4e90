"""What probes say about layers. Those that did not fit their own training data say nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd

ENOUGH_FITTED = 0.5
"""Share of the probes of a layer that must have fitted, or else its F1 is missing."""


def fitted_means(probes: pd.DataFrame, by: list[str], columns: list[str]) -> pd.DataFrame:
    """Means of some columns over the probes that fitted; NaN if fewer than half of them did.

    The probes of a mean have the columns `by` in common.
    """
    known = probes[columns].where(probes["fitted"]).join(probes[by])
    enough = probes.groupby(by, sort=False)["fitted"].mean() >= ENOUGH_FITTED
    return known.groupby(by, sort=False)[columns].mean().where(enough)


def gains(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of layers 1..L from F1 [layers 0..L and the baseline, seeds], and their spread.

    F1 is NaN for a probe that did not fit. A weight is NaN if one of its two layers has no F1.
    """

    def mean(values: np.ndarray) -> np.ndarray:
        fitted = np.isfinite(values)
        enough = fitted.mean(axis=1) >= ENOUGH_FITTED
        total: np.ndarray = np.nansum(values, axis=1) / np.maximum(fitted.sum(axis=1), 1)
        return np.where(enough, total, np.nan)

    before = np.concatenate([scores[-1:], scores[1:-2]])
    gain = scores[1:-1] - before
    pairs = np.isfinite(gain).sum(axis=1)
    spread = np.full(len(gain), np.nan)
    spread[pairs > 1] = np.nanstd(gain[pairs > 1], axis=1, ddof=1)
    return np.maximum(0.0, mean(scores[1:-1]) - mean(before)), spread


def unfitted(probes: pd.DataFrame) -> dict[str, str] | None:
    """How many probes did not fit (because) and what to do (remedy), in words; None if all did."""
    failed = int((~probes["fitted"]).sum())
    because = f"{failed} of {len(probes)} probes did not fit their training data"
    return {"because": because, "remedy": "train probes for more steps"} if failed else None
