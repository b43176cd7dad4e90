"""Do techniques agree? Correlations of hand-made profiles, and groups of which all pairs agree."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from memloc.analysis.correlation import AGREEING, agreeing_group, compare_profiles


def rho(one: list[Any], other: list[Any]) -> float | None:
    (pair,) = compare_profiles({"one": one, "other": other})
    found: float | None = pair["spearman"]
    return found


def pairs(**values: float | None) -> list[dict[str, Any]]:
    """a_b=.7 is the correlation of a and b."""
    return [{"techniques": name.split("_"), "spearman": value} for name, value in values.items()]


@pytest.mark.parametrize("layers", [4, 12])
def test_the_correlation_is_that_of_scipy(layers: int) -> None:
    generator = np.random.default_rng(1)
    names = ("swapping", "retraining", "gradients")
    profiles = {name: generator.random(layers).round(1).tolist() for name in names}  # with ties
    found = compare_profiles(profiles)
    assert [pair["techniques"] for pair in found] == [list(p) for p in combinations(names, 2)]
    for pair in found:
        one, other = (profiles[name] for name in pair["techniques"])
        assert pair["spearman"] == pytest.approx(spearmanr(one, other).statistic)


def test_only_the_order_of_the_layers_counts() -> None:
    assert rho([1, 2, 3, 4], [0.1, 0.2, 0.3, 9.0]) == pytest.approx(1)
    assert rho([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # By hand: ranks differ by 1, 1, 0, 0, so ρ = 1 − 6·2/(4·15).
    assert rho([1, 2, 3, 4], [2, 1, 3, 4]) == pytest.approx(0.8)


def test_a_constant_profile_has_no_correlation() -> None:
    assert rho([1, 2, 3, 4], [0.5] * 4) is None
    assert rho([0.0] * 4, [1, 2, 3, 4]) is None
    assert rho([0.5] * 4, [0.5] * 4) is None


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_profile_with_missing_values_has_no_correlation(missing: float | None) -> None:
    assert rho([1, 2, 3, missing], [1, 2, 3, 4]) is None
    assert rho([1, 2, 3, 4], [missing] * 4) is None


def test_fewer_than_four_layers_have_no_correlation() -> None:
    assert rho([1, 2, 3], [1, 2, 3]) is None
    assert rho([1], [1]) is None
    assert rho([1, 2, 3, 4], [1, 2, 3, 4]) == pytest.approx(1)


def test_a_technique_alone_has_no_pair() -> None:
    assert compare_profiles({"swapping": [1, 2, 3, 4]}) == []


def test_all_techniques_may_agree() -> None:
    found = pairs(a_b=0.9, a_c=0.7, b_c=0.65)
    assert agreeing_group(("a", "b", "c"), found) == ("a", "b", "c")


def test_agreement_begins_at_the_threshold() -> None:
    assert agreeing_group(("a", "b"), pairs(a_b=AGREEING)) == ("a", "b")
    assert agreeing_group(("a", "b"), pairs(a_b=AGREEING - 0.01)) == ()


def test_three_of_four_may_agree_whatever_the_order_of_the_names() -> None:
    found = pairs(a_b=0.9, a_c=0.8, b_c=0.7, a_d=0.95, b_d=0.1, c_d=-0.5)
    for names in permutations("abcd"):
        assert set(agreeing_group(names, found)) == {"a", "b", "c"}


def test_every_pair_of_a_group_has_to_agree() -> None:
    # a agrees with b and c, but they do not with each other: the better pair is left.
    assert agreeing_group(("a", "b", "c"), pairs(a_b=0.7, a_c=0.9, b_c=0.5)) == ("a", "c")


def test_of_two_disjoint_pairs_the_better_one_is_taken() -> None:
    low = dict.fromkeys(("a_c", "a_d", "b_c", "b_d"), 0.0)
    assert agreeing_group(("a", "b", "c", "d"), pairs(a_b=0.7, c_d=0.9, **low)) == ("c", "d")
    assert agreeing_group(("a", "b", "c", "d"), pairs(a_b=0.9, c_d=0.7, **low)) == ("a", "b")


def test_of_two_groups_the_one_with_the_better_worst_pair_is_taken() -> None:
    found = pairs(a_b=0.99, a_c=0.99, b_c=0.61, b_d=0.8, c_d=0.8, a_d=0.0)
    # {a, b, c} and {b, c, d} have the same worst pair (b, c), so the first is kept ...
    assert agreeing_group(("a", "b", "c", "d"), found) == ("a", "b", "c")
    # ... and with a worse pair in the first, it is the second.
    found = pairs(a_b=0.99, a_c=0.61, b_c=0.9, b_d=0.8, c_d=0.8, a_d=0.0)
    assert agreeing_group(("a", "b", "c", "d"), found) == ("b", "c", "d")


def test_a_large_group_beats_a_better_small_one() -> None:
    found = pairs(a_b=0.65, a_c=0.65, b_c=0.65, a_d=0.0, b_d=0.0, c_d=0.99)
    assert agreeing_group(("a", "b", "c", "d"), found) == ("a", "b", "c")


def test_nobody_may_agree() -> None:
    assert agreeing_group(("a", "b", "c"), pairs(a_b=-0.9, a_c=0.1, b_c=0.59)) == ()
    assert agreeing_group(("a", "b"), pairs(a_b=None)) == ()
    assert agreeing_group(("a",), []) == ()
    assert agreeing_group((), []) == ()


def test_a_pair_without_correlation_does_not_agree() -> None:
    assert agreeing_group(("a", "b", "c"), pairs(a_b=0.8, a_c=None, b_c=0.9)) == ("b", "c")
