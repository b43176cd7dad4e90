"""Spearman's ρ and Pearson's r, means and shares, with 95% intervals.

What is independent are *units*, mostly tasks: all models, seeds and layers of a task belong
together. The twelve layers of one run are not twelve independent observations, nor are four models
of one task. A bootstrap sample draws units with replacement; a mean is that of the means of units,
with Student's t; a share has the exact interval of Clopper and Pearson.

A sample is kept as how often each point was drawn. The ranks of a sample follow from these counts
by one running sum over the points in their order,

    rank of a value = (times a smaller value was drawn) + (times it was drawn itself + 1) / 2

so all samples are computed at once and nothing is sorted again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import betaincinv, stdtrit

FEWEST = 4
"""A correlation of fewer points says nothing, an interval of a mean or ρ of fewer units neither."""
RESAMPLES = 2000
SEED = 2024
COVERED = 0.95
"""Share of the bootstrap samples that lie in the interval."""
DIGITS = 12
"""Numbers that differ only beyond these digits are the same number, computed in two ways."""
CONSTANT = 10.0 ** (-2 * DIGITS - 2)
"""Variance of values that are all the same, apart from the rounding of their mean."""
CHUNK = 2_000_000
"""Numbers per array: samples are taken in parts, so that memory stays small."""

AGREEING = 0.6
"""ρ from which on two profiles of layer weights count as agreeing (Figures 8, 9)."""
MOST_SQUARES = {5: 0, 6: 4, 7: 12, 8: 22, 9: 36, 10: 58, 11: 84, 12: 118}
"""Of so many values: the largest sum of squared differences of ranks whose ρ is surely more than
chance, counted over all their orders. Beyond, Student's t is as good."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Points:
    """What is to be correlated: pairs of numbers, and the unit each belongs to."""

    one: Sequence[float] | np.ndarray
    other: Sequence[float] | np.ndarray
    units: Sequence[Hashable]

    def complete(self) -> tuple[np.ndarray, np.ndarray, list[Hashable]]:
        """The pairs of which no side is missing."""
        one, other = np.asarray(self.one, dtype=float), np.asarray(self.other, dtype=float)
        known = np.isfinite(one) & np.isfinite(other)
        units = [unit for unit, is_known in zip(self.units, known, strict=True) if is_known]
        return _without_dust(one[known]), _without_dust(other[known]), units


@dataclass(frozen=True)
class Correlation:
    """Both coefficients; None where they are not defined or there is too little data.

    Attributes:
        n: Points (of the pair with the fewest, if it is a mean over pairs).
        units: Different units, which the intervals resample.
    """

    spearman: float | None
    pearson: float | None
    n: int
    units: int
    spearman_interval: Interval | None = None
    pearson_interval: Interval | None = None


def correlate(
    one: Sequence[float] | np.ndarray,
    other: Sequence[float] | np.ndarray,
    units: Sequence[Hashable] | None = None,
    resamples: int = RESAMPLES,
) -> Correlation:
    """Spearman's ρ and Pearson's r of two lists of numbers; pairs with a missing side are dropped.

    Every pair is a unit, unless `units` says what it belongs to. Without resamples, there are no
    intervals.
    """
    points = Points(one, other, range(len(one)) if units is None else units)
    return mean_correlation([points], resamples)


def mean_correlation(pairs: Sequence[Points], resamples: int = RESAMPLES) -> Correlation:
    """The mean over those pairs of lists whose correlation is defined.

    Units of the same name are drawn together in all pairs.
    """
    complete = [points.complete() for points in pairs]
    defined = [one for one in complete if _defined(one[0], one[1])]
    sizes = [len(units) for _, _, units in defined or complete]
    names = sorted({unit for _, _, units in defined or complete for unit in units}, key=repr)
    n = min(sizes, default=0)
    if not defined:
        return Correlation(None, None, n, len(names))
    found = _means(defined, names, np.ones((1, len(names))))[0]
    intervals: list[Interval | None] = [None, None]
    if resamples and len(names) >= FEWEST:
        widest = max(len(one) for one, _, _ in defined)
        samples = [_means(defined, names, c) for c in _draw(len(names), resamples, widest)]
        intervals = [_interval(values) for values in np.concatenate(samples).T]
    return Correlation(float(found[0]), float(found[1]), n, len(names), *intervals)


def compare_correlations(first: Sequence[Points], second: Sequence[Points]) -> Correlation:
    """By how much the mean correlation of the first pairs of lists exceeds that of the second.

    The interval is Student's, with the error of a jackknife: every unit is left out once, on both
    sides. Bootstrap samples, in which units occur twice, change correlations of few points more
    than those of many, and would move the difference.
    """
    sides = [[points.complete() for points in side] for side in (first, second)]
    sides = [[one for one in side if _defined(one[0], one[1])] for side in sides]
    every = [one for side in sides for one in side]
    names = sorted({unit for _, _, units in every for unit in units}, key=repr)
    n = min((len(one[2]) for one in every), default=0)
    if not all(sides):
        return Correlation(None, None, n, len(names))

    def gaps(counts: np.ndarray) -> np.ndarray:
        one, other = (_means(side, names, counts) for side in sides)
        return np.asarray(one - other)

    units = len(names)
    found = gaps(np.ones((1, units)))[0]
    without = gaps(1 - np.eye(units))
    squared_errors = (units - 1) * without.var(axis=0)
    intervals: list[Interval | None] = [None, None]
    if units >= FEWEST and np.isfinite(without).all():
        pairs = zip(found, squared_errors, strict=True)
        intervals = [_student(value, squared, units - 1) for value, squared in pairs]
    return Correlation(float(found[0]), float(found[1]), n, units, *intervals)


def means_of_units(values: Sequence[float] | np.ndarray, units: Sequence[Hashable]) -> np.ndarray:
    """The mean of each unit, so that none counts more for having more values."""
    numbers, names = np.asarray(values, dtype=float), list(units)
    mine = {name: [place for place, unit in enumerate(names) if unit == name] for name in names}
    return np.array([numbers[places].mean() for places in mine.values()])


def interval_of_mean(means: Sequence[float] | np.ndarray, fewest: int = FEWEST) -> Interval | None:
    """Student's interval of the mean of independent numbers; None for too few."""
    numbers = np.asarray(means, dtype=float)
    if len(numbers) < fewest:
        return None
    return _student(numbers.mean(), numbers.var(ddof=1) / len(numbers), len(numbers) - 1)


def interval_of_difference(
    one: Sequence[float] | np.ndarray, other: Sequence[float] | np.ndarray
) -> Interval | None:
    """Student's interval of the difference of two means; None if a side has fewer than two.

    The variance is taken to be the same on both sides, so a side may be small.
    """
    sides = [np.asarray(side, dtype=float) for side in (one, other)]
    sizes = [len(side) for side in sides]
    if min(sizes) < 2 or sum(sizes) < FEWEST:
        return None
    freedom = sum(sizes) - 2
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in sides)
    squared_error = squares / freedom * sum(1 / size for size in sizes)
    return _student(sides[0].mean() - sides[1].mean(), squared_error, freedom)


def _student(middle: float, squared_error: float, freedom: int) -> Interval:
    away = float(stdtrit(freedom, (1 + COVERED) / 2)) * math.sqrt(squared_error)
    return float(middle - away), float(middle + away)


def interval_of_share(shares: Sequence[float] | np.ndarray) -> Interval | None:
    """Clopper and Pearson's interval of a share among independent units: 9 of 9 is [.66, 1].

    None for fewer than four units.

    A unit that is neither 0 nor 1, such as a task in which half of the models do it, counts by that
    part. The interval is then too wide rather than too narrow, as such units vary less.
    """
    numbers = np.asarray(shares, dtype=float)
    n, yes = len(numbers), float(numbers.sum())
    if n < FEWEST:
        return None
    tail = (1 - COVERED) / 2
    low = float(betaincinv(yes, n - yes + 1, tail)) if yes > 0 else 0.0
    high = float(betaincinv(yes + 1, n - yes, 1 - tail)) if yes < n else 1.0
    return low, high


def interval_of(
    statistic: Callable[[np.ndarray], np.ndarray], units: int, resamples: int = RESAMPLES
) -> Interval | None:
    """Bootstrap interval of any number; None for fewer than four units.

    Args:
        statistic: Gets how often each unit is drawn, [samples, units], and returns the number for
            each sample; NaN is unknown.
        units: How many there are.
        resamples: Bootstrap samples.
    """
    if units < FEWEST:
        return None
    return _interval(np.concatenate([statistic(c) for c in _draw(units, resamples, units)]))


def _without_dust(values: np.ndarray) -> np.ndarray:
    """Relative to the largest, without rounding errors, which would have ranks of their own."""
    largest = np.abs(values).max(initial=0.0)
    return np.round(values / largest, DIGITS) if largest > 0 else values


def _defined(one: np.ndarray, other: np.ndarray) -> bool:
    return len(one) >= FEWEST and np.ptp(one) > 0 and np.ptp(other) > 0


def _draw(units: int, resamples: int, width: int) -> Iterator[np.ndarray]:
    """How often each unit is drawn, [samples, units] in parts; the same for the same numbers."""
    random = np.random.default_rng(SEED)
    left = resamples
    while left:
        part = min(left, max(1, CHUNK // max(1, width)))
        yield random.multinomial(units, np.full(units, 1 / units), size=part).astype(float)
        left -= part


def _means(
    pairs: Sequence[tuple[np.ndarray, np.ndarray, Any]],
    names: Sequence[Hashable],
    counts: np.ndarray,
) -> np.ndarray:
    """[samples, 2]: ρ and r, averaged over the pairs; NaN where one of them is not defined."""
    index = {name: place for place, name in enumerate(names)}
    both = []
    for one, other, units in pairs:
        weights = counts[:, [index[unit] for unit in units]]
        ranks = _ranks(one, weights), _ranks(other, weights)
        both.append((_weighted(*ranks, weights), _weighted(one, other, weights)))
    return np.asarray(np.mean(both, axis=0).T)


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """[samples, points]: mean ranks, where point i occurs as often as its weight says."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    times = np.add.reduceat(weights[:, order], starts, axis=1)
    ranks = np.cumsum(times, axis=1) - times + (times + 1) / 2
    inverse = np.empty(len(values), dtype=int)
    inverse[order] = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(values)]))
    return np.asarray(ranks[:, inverse])


def _weighted(one: np.ndarray, other: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Pearson's r of weighted points, per sample; NaN where a side is constant."""
    total = np.maximum(weights.sum(axis=1), 1.0)  # perhaps no unit of this pair was drawn
    sides, variances = [], []
    for values in (one, other):
        centred = values - ((weights * values).sum(axis=1) / total)[:, None]
        sides.append(centred)
        variances.append((weights * centred**2).sum(axis=1) / total)
    together = (weights * sides[0] * sides[1]).sum(axis=1) / total
    varied = (variances[0] > CONSTANT) & (variances[1] > CONSTANT)
    spread = np.prod([np.sqrt(np.where(varied, variance, 1.0)) for variance in variances], axis=0)
    return np.where(varied, np.clip(together / spread, -1.0, 1.0), np.nan)


def _interval(samples: np.ndarray) -> Interval | None:
    """The middle of the samples; None if most of them have no value."""
    known = samples[np.isfinite(samples)]
    if len(known) < len(samples) / 2:
        return None
    outside = (1 - COVERED) / 2
    low, high = np.quantile(known, [outside, 1 - outside])
    return float(low), float(high)


def compare_profiles(profiles: Mapping[str, Sequence[float | None]]) -> list[dict[str, Any]]:
    """ρ of every pair of techniques; None where it is not defined."""
    return [
        {"techniques": [one, other], "spearman": _rho(profiles[one], profiles[other])}
        for one, other in combinations(profiles, 2)
    ]


def _rho(one: Sequence[float | None], other: Sequence[float | None]) -> float | None:
    profiles = np.array([one, other], dtype=float)  # None is NaN
    known = np.isfinite(profiles).all()
    return correlate(profiles[0], profiles[1], resamples=0).spearman if known else None


def more_than_chance(n: int) -> float:
    """The lowest ρ that two unrelated orders of n values reach less than once in twenty.

    Two-sided, so that |ρ| is compared: .886 for 6 values, .587 for 12. Infinite for fewer than 5,
    as one of the few orders there are comes up too often.
    """
    if n > max(MOST_SQUARES):
        t = float(stdtrit(n - 2, (1 + COVERED) / 2))
        return t / math.sqrt(n - 2 + t**2)
    if n not in MOST_SQUARES:
        return math.inf
    return 1 - 6 * MOST_SQUARES[n] / (n * (n**2 - 1))


def profiles_agree(rho: float | None, layers: int) -> bool:
    """Whether two profiles of layer weights agree, and better than chance makes orders agree."""
    return rho is not None and round(rho, 9) >= round(max(AGREEING, more_than_chance(layers)), 9)


def agreeing_group(
    names: Sequence[str], pairs: Sequence[Mapping[str, Any]], layers: int
) -> tuple[str, ...]:
    """The largest group of techniques of which every pair agrees; the best such group on a tie."""
    rho = {frozenset(pair["techniques"]): pair["spearman"] for pair in pairs}
    for size in range(len(names), 1, -1):
        groups = {
            group: [rho[frozenset(pair)] for pair in combinations(group, 2)]
            for group in combinations(names, size)
        }
        agreeing = {
            group: min(values)
            for group, values in groups.items()
            if all(profiles_agree(value, layers) for value in values)
        }
        if agreeing:
            return max(agreeing, key=lambda group: agreeing[group])
    return ()
