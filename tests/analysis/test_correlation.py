"""Correlations against scipy, and bootstrap intervals against samples that are written out."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, pearsonr, spearmanr, ttest_1samp, ttest_ind
from scipy.stats import t as student

from memloc.analysis.correlation import (
    FEWEST,
    Points,
    agreeing_group,
    compare_correlations,
    compare_profiles,
    correlate,
    interval_of_difference,
    interval_of_mean,
    interval_of_share,
    mean_correlation,
    means_of_units,
    more_than_chance,
    profiles_agree,
)
from tests.oracles.correlation import bootstrap


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


@pytest.mark.parametrize("units", ["abcdefghijklmn", "aaaabbbccccdee"])
def test_intervals_are_those_of_samples_of_whole_units_written_out(units: str) -> None:
    one, other = noisy_pair(14, seed=4)
    found = correlate(one, other, list(units), resamples=300)
    slow = bootstrap(one, other, units, 300)
    assert (found.n, found.units) == (14, len(set(units)))
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
    assert interval_of_mean(values) == pytest.approx(ttest_1samp(values, 0).confidence_interval())
    assert interval_of_mean(values[: FEWEST - 1]) is None
    assert interval_of_mean([1.0] * 4) == (1.0, 1.0)
    one, other = values[:5], values[5:12]
    theory = ttest_ind(one, other).confidence_interval()
    assert interval_of_difference(one, other) == pytest.approx(theory)
    assert interval_of_difference(one[:1], other) is None


def test_a_unit_counts_once_however_many_values_it_has() -> None:
    values, units = [1.0, 3.0, 10.0, 5.0, 6.0, 7.0], list("aabccc")
    assert means_of_units(values, units).tolist() == [2.0, 10.0, 6.0]


@pytest.mark.parametrize(("yes", "n"), [(9, 9), (0, 9), (3, 12), (24, 27)])
def test_the_interval_of_a_share_is_exact(yes: int, n: int) -> None:
    exact = binomtest(yes, n).proportion_ci(method="exact")
    found = interval_of_share([1.0] * yes + [0.0] * (n - yes))
    assert found == pytest.approx((exact.low, exact.high))
    if yes == n:
        assert found == pytest.approx((0.6637, 1.0), abs=1e-4)


def test_halves_count_by_halves_and_do_not_narrow_the_interval_of_a_share() -> None:
    assert interval_of_share([0.5] * 8) == pytest.approx(interval_of_share([1.0] * 4 + [0.0] * 4))
    assert interval_of_share([1.0] * 3) is None


def test_a_difference_of_correlations_has_the_error_of_a_jackknife_written_out() -> None:
    random = np.random.default_rng(3)
    tasks = list(range(8))
    sides = [[random.random((2, 8)) for _ in range(size)] for size in (1, 3)]

    def gap(kept: list[int]) -> float:
        one, other = (np.mean([spearmanr(*pair[:, kept]).statistic for pair in s]) for s in sides)
        return float(one - other)

    found = compare_correlations(*([Points(*pair, tasks) for pair in side] for side in sides))
    left_out = np.array([gap([t for t in tasks if t != out]) for out in tasks])
    error = np.sqrt(7 / 8 * ((left_out - left_out.mean()) ** 2).sum())
    away = student.ppf(0.975, 7) * error
    assert found.spearman == pytest.approx(gap(tasks))
    assert found.spearman_interval == pytest.approx((gap(tasks) - away, gap(tasks) + away))
    assert (found.n, found.units) == (8, 8)
    assert compare_correlations([], [Points(*sides[0][0], tasks)]).spearman is None


# --- do techniques agree? -----------------------------------------------------------------------


def pairs(**values: float | None) -> list[dict[str, Any]]:
    """a_b=.7 is the correlation of a and b."""
    return [{"techniques": name.split("_"), "spearman": value} for name, value in values.items()]


def test_every_pair_of_techniques_has_the_correlation_of_scipy() -> None:
    generator = np.random.default_rng(1)
    names = ("swapping", "retraining", "gradients")
    profiles = {name: generator.random(12).round(1).tolist() for name in names}  # with ties
    found = compare_profiles({**profiles, "probing": [None] * 12})
    assert [pair["techniques"] for pair in found] == [
        list(pair) for pair in combinations((*names, "probing"), 2)
    ]
    for pair in found:
        one, other = (profiles.get(name) for name in pair["techniques"])
        known = one is not None and other is not None
        expected = pytest.approx(spearmanr(one, other).statistic) if known else None
        assert pair["spearman"] == expected


def test_three_of_four_may_agree_whatever_the_order_of_the_names() -> None:
    found = pairs(a_b=0.9, a_c=0.8, b_c=0.7, a_d=0.95, b_d=0.1, c_d=-0.5)
    for names in permutations("abcd"):
        assert set(agreeing_group(names, found, layers=12)) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("found", "group"),
    [
        # a agrees with b and c, but they do not with each other: the better pair is left.
        (pairs(a_b=0.7, a_c=0.9, b_c=0.5), ("a", "c")),
        # {a, b, c} and {b, c, d} have the same worst pair (b, c), so the first is kept ...
        (pairs(a_b=0.99, a_c=0.99, b_c=0.61, b_d=0.8, c_d=0.8, a_d=0.0), ("a", "b", "c")),
        # ... and with a worse pair in the first, it is the second.
        (pairs(a_b=0.99, a_c=0.61, b_c=0.9, b_d=0.8, c_d=0.8, a_d=0.0), ("b", "c", "d")),
        (pairs(a_b=None), ()),
    ],
)
def test_of_groups_in_which_every_pair_agrees_the_best_is_taken(
    found: list[dict[str, Any]], group: tuple[str, ...]
) -> None:
    names = sorted({name for pair in found for name in pair["techniques"]})
    assert agreeing_group(names, found, layers=12) == group


@pytest.mark.parametrize("n", [5, 6, 7, 8])
def test_chance_is_what_all_orders_of_the_layers_give(n: int) -> None:
    orders = np.array(list(permutations(range(n))))
    distances = ((orders - np.arange(n)) ** 2).sum(axis=1)
    rho = 1 - 6 * distances / (n * (n**2 - 1))
    values = sorted(set(rho.round(9)))
    rare = [value for value in values if (abs(rho) >= value - 1e-9).mean() < 0.05 and value > 0]
    assert more_than_chance(n) == pytest.approx(min(rare))


def test_few_layers_agree_only_by_an_order_that_chance_hardly_gives() -> None:
    # The critical values of published tables, two-sided at 5%.
    published = {5: 1.0, 6: 0.886, 8: 0.738, 9: 0.7, 10: 0.648, 11: 0.618, 12: 0.587}
    for n, value in published.items():
        assert more_than_chance(n) == pytest.approx(value, abs=0.0006)
    assert more_than_chance(30) == pytest.approx(0.362, abs=0.002)
    assert profiles_agree(31 / 35, 6)
    assert not profiles_agree(0.83, 6)
    assert profiles_agree(0.6, 24)
    assert not profiles_agree(0.59, 24)
    assert not profiles_agree(1.0, 4)
    assert not profiles_agree(None, 12)
    found = pairs(a_b=0.83)
    assert agreeing_group("ab", found, layers=12)
    assert not agreeing_group("ab", found, layers=6)
