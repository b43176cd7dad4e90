"""Correlations against scipy, and bootstrap intervals against samples that are written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from memloc.analysis.correlation import (
    FEWEST,
    Points,
    correlate,
    interval_of_mean,
    mean_correlation,
)
from tests.oracles.correlation import bootstrap, bootstrap_mean


def noisy_pair(n: int, seed: int = 0, digits: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Two lists with something in common; rounded, so that there are ties."""
    random = np.random.default_rng(seed)
    one = random.random(n)
    return one.round(digits), (one + random.random(n)).round(digits)


@pytest.mark.parametrize("n", [4, 5, 12, 48, 576])
@pytest.mark.parametrize("digits", [1, 9])
def test_both_coefficients_are_those_of_scipy(n: int, digits: int) -> None:
    one, other = noisy_pair(n, seed=n, digits=digits)
    found = correlate(one, other)
    assert found.n == found.units == n
    assert found.spearman == pytest.approx(spearmanr(one, other).statistic, abs=1e-9)
    assert found.pearson == pytest.approx(pearsonr(one, other).statistic, abs=1e-9)


def test_the_interval_is_that_of_samples_written_out() -> None:
    one, other = noisy_pair(9, seed=3)
    found = correlate(one, other, resamples=300)
    slow = bootstrap(one, other, range(9), 300)
    assert found.spearman_interval == pytest.approx(slow["spearman"], abs=1e-9)
    assert found.pearson_interval == pytest.approx(slow["pearson"], abs=1e-9)


def test_units_of_different_size_are_drawn_as_a_whole() -> None:
    one, other = noisy_pair(14, seed=4)
    units = list("aaaabbbccccdee")
    found = correlate(one, other, units, resamples=300)
    slow = bootstrap(one, other, units, 300)
    assert (found.n, found.units) == (14, 5)
    assert found.spearman == pytest.approx(spearmanr(one, other).statistic)
    assert found.spearman_interval == pytest.approx(slow["spearman"], abs=1e-9)
    assert found.pearson_interval == pytest.approx(slow["pearson"], abs=1e-9)


def test_fewer_than_four_points_have_no_correlation() -> None:
    found = correlate([1, 2, 3], [1, 2, 3])
    assert (found.spearman, found.pearson, found.n) == (None, None, 3)
    assert correlate([], []).n == 0
    assert correlate([1, 2, 3, 4], [1, 2, 3, 4]).spearman == pytest.approx(1)


def test_pairs_with_a_missing_side_are_dropped_and_not_counted() -> None:
    one, other = [1, 2, np.nan, 4, 5, 6.0], [1, 3, 2, np.nan, 4, 9.0]
    found = correlate(one, other)
    assert found.n == 4
    assert found.spearman == pytest.approx(spearmanr([1, 2, 5, 6], [1, 3, 4, 9]).statistic)
    assert correlate([1, 2, np.nan, 4], [1, 3, 2, np.nan]).spearman is None


def test_a_constant_side_has_no_correlation_even_if_sums_are_inexact() -> None:
    wobbling = [0.1 + 0.2, 0.3, 0.3, 0.3, 0.3]  # the first is larger by a rounding error
    for constant in ([0.0] * 5, [0.7] * 5, wobbling):
        assert correlate([1, 2, 3, 4, 5], constant).spearman is None
        assert correlate(constant, [1, 2, 3, 4, 5]).pearson is None


def test_the_same_number_computed_in_two_ways_is_a_tie() -> None:
    one = [0.1 + 0.2, 0.3, 0.4, 0.5]
    assert one[0] != one[1]
    other = [1, 2, 3, 4]
    assert correlate(one, other).spearman == pytest.approx(
        spearmanr([0.3, 0.3, 0.4, 0.5], other).statistic
    )


def test_fewer_than_four_units_have_no_interval() -> None:
    one, other = noisy_pair(12, digits=9)
    few = correlate(one, other, list("aaaabbbbcccc"))
    assert few.spearman is not None
    assert (few.units, few.spearman_interval, few.pearson_interval) == (3, None, None)
    assert correlate(one, other, list("aaabbbcccddd")).spearman_interval is not None


def test_the_mean_over_pairs_is_that_of_the_defined_ones() -> None:
    one, other = noisy_pair(8, seed=1, digits=9), noisy_pair(6, seed=2, digits=9)
    short = Points([1, 2, 3], [1, 2, 3], "abc")
    pairs = [Points(*one, list("abcdefgh")), Points(*other, list("cdefgh")), short]
    found = mean_correlation(pairs)
    values = [spearmanr(*one).statistic, spearmanr(*other).statistic]
    assert found.spearman == pytest.approx(np.mean(values))
    assert (found.n, found.units) == (6, 8)
    assert found.spearman_interval is not None
    assert found.spearman_interval[0] < np.mean(values) < found.spearman_interval[1]


def test_the_interval_of_a_mean_is_that_of_theory() -> None:
    values = np.random.default_rng(0).normal(5, 2, 400)
    interval = interval_of_mean(values)
    assert interval is not None
    error = values.std() / np.sqrt(400)
    assert interval == pytest.approx(
        (values.mean() - 1.96 * error, values.mean() + 1.96 * error), abs=0.15 * error
    )
    assert interval_of_mean(values[: FEWEST - 1]) is None
    assert interval_of_mean([1.0] * 4) == (1.0, 1.0)


def test_the_interval_of_a_mean_draws_units_as_a_whole() -> None:
    values = np.random.default_rng(1).normal(0, 1, 14)
    units = list("aaaabbbccccdee")
    found = interval_of_mean(values, units, resamples=300)
    assert found == pytest.approx(bootstrap_mean(values, units, 300), abs=1e-12)
    assert interval_of_mean(values, list("aaaaabbbbccccc")) is None  # three units
    singles = interval_of_mean(values[:9], range(9))
    assert singles == pytest.approx(interval_of_mean(values[:9]))
