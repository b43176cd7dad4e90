"""Bootstrap of a correlation the slow way: every sample is written out."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from scipy.stats import pearsonr, spearmanr

from memloc.analysis.correlation import COVERED, SEED


def bootstrap(
    one: np.ndarray, other: np.ndarray, units: Sequence[Hashable], resamples: int
) -> dict[str, tuple[float, float]]:
    """Intervals of ρ and r, drawing units with replacement."""
    samples: dict[str, list[float]] = {"spearman": [], "pearson": []}
    for drawn in _samples(units, resamples):
        x, y = one[drawn], other[drawn]
        if len(set(x)) > 1 and len(set(y)) > 1:
            samples["spearman"].append(spearmanr(x, y).statistic)
            samples["pearson"].append(pearsonr(x, y).statistic)
    return {name: _middle(values) for name, values in samples.items()}


def _samples(units: Sequence[Hashable], resamples: int) -> Iterator[list[int]]:
    """The places of the points in each sample; a unit drawn twice has its points in it twice."""
    names = sorted(set(units), key=repr)
    share = np.full(len(names), 1 / len(names))
    draws = np.random.default_rng(SEED).multinomial(len(names), share, size=resamples)
    for times in draws:
        yield [
            place
            for name, count in zip(names, times, strict=True)
            for _ in range(count)
            for place, unit in enumerate(units)
            if unit == name
        ]


def _middle(values: Sequence[float]) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return float(low), float(high)
