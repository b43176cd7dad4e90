"""Do techniques agree? Correlations of hand-made profiles, and groups of which all pairs agree."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from memloc.analysis.correlation import agreeing_group, compare_profiles


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


def test_three_of_four_may_agree_whatever_the_order_of_the_names() -> None:
    found = pairs(a_b=0.9, a_c=0.8, b_c=0.7, a_d=0.95, b_d=0.1, c_d=-0.5)
    for names in permutations("abcd"):
        assert set(agreeing_group(names, found)) == {"a", "b", "c"}


def test_every_pair_of_a_group_has_to_agree() -> None:
    # a agrees with b and c, but they do not with each other: the better pair is left.
    assert agreeing_group(("a", "b", "c"), pairs(a_b=0.7, a_c=0.9, b_c=0.5)) == ("a", "c")


def test_of_two_groups_the_one_with_the_better_worst_pair_is_taken() -> None:
    found = pairs(a_b=0.99, a_c=0.99, b_c=0.61, b_d=0.8, c_d=0.8, a_d=0.0)
    # {a, b, c} and {b, c, d} have the same worst pair (b, c), so the first is kept ...
    assert agreeing_group(("a", "b", "c", "d"), found) == ("a", "b", "c")
    # ... and with a worse pair in the first, it is the second.
    found = pairs(a_b=0.99, a_c=0.61, b_c=0.9, b_d=0.8, c_d=0.8, a_d=0.0)
    assert agreeing_group(("a", "b", "c", "d"), found) == ("b", "c", "d")
