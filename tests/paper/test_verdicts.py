"""How a claim is decided: rules at their limits, and when there is no verdict."""

from __future__ import annotations

import pytest

from memloc.paper import measures
from memloc.paper.claims import CLAIMS, RULES, Claim, Finding, Measured, decide


def judged(rule: str, number: float, measured: Measured, fewest: int = 4) -> Finding:
    """The verdict of a rule on a measurement."""
    claim = Claim("id", "s", "f", "it is so", "1", "m", rule, "", number, fewest=fewest)
    return decide(claim, measured)


@pytest.mark.parametrize(
    ("rule", "interval", "verdict"),
    [
        ("below", (0.3, 0.49), "holds"),
        ("below", (0.3, 0.51), "not enough data"),
        ("below", (0.51, 0.9), "does not hold"),
        ("above", (0.51, 0.9), "holds"),
        ("above", (0.5, 0.9), "not enough data"),
        ("above", (0.1, 0.5), "does not hold"),
        ("at_least", (0.5, 0.9), "holds"),
        ("at_least", (0.1, 0.5), "not enough data"),
        ("at_least", (0.1, 0.49), "does not hold"),
    ],
)
def test_a_limit_is_passed_with_the_whole_interval_or_nothing_is_said(
    rule: str, interval: tuple[float, float], verdict: str
) -> None:
    found = judged(rule, 0.5, Measured(sum(interval) / 2, 9, 9, interval=interval))
    assert found.verdict == verdict
    assert found.reason == ("the interval has 0.5 in it" if verdict == "not enough data" else "")


@pytest.mark.parametrize(
    ("paper", "value", "interval", "verdict"),
    [
        (-0.85, -0.5, (-0.9, -0.1), "holds"),
        (-0.85, -3.0, (-4.0, -2.0), "holds"),  # more than in the paper, to the same side
        (-0.85, -0.5, (-0.9, 0.1), "not enough data"),
        (-0.85, -0.1, (-0.4, 0.2), "does not hold"),  # little, if any
        (-0.85, 0.5, (0.1, 0.9), "does not hold"),
        (0.45, 0.5, (0.1, 0.9), "holds"),
        (0.45, 0.3, (-0.1, 0.9), "not enough data"),
        (0.45, 0.0, (0.0, 0.0), "does not hold"),
        (0.45, -0.5, (-0.9, -0.1), "does not hold"),
        (0.45, 0.2, None, "holds"),
    ],
)
def test_a_shift_is_to_the_side_of_the_papers_with_its_whole_interval(
    paper: float, value: float, interval: tuple[float, float] | None, verdict: str
) -> None:
    found = judged("shifted", paper, Measured(value, 9, 9, interval=interval))
    assert found.verdict == verdict
    if verdict == "not enough data":
        assert found.reason == f"the interval has both 0 and {paper:+.2f} in it"


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.5, 0.9), "holds"),
        ((0.4, 0.8), "not enough data"),
        ((0.8, 1.0), "not enough data"),
        ((0.1, 0.4), "does not hold"),
        ((0.95, 1.0), "does not hold"),
    ],
)
def test_an_interval_that_is_partly_within_bounds_says_nothing(
    interval: tuple[float, float], verdict: str
) -> None:
    measured = Measured(sum(interval) / 2, 9, 9, interval=interval, bounds=(0.5, 0.9))
    assert judged("within_bounds", 0, measured).verdict == verdict


@pytest.mark.parametrize(
    ("value", "interval", "verdict", "reason"),
    [
        (0.75, (0.7, 0.8), "holds", ""),  # .2 away
        (0.35, (0.3, 0.4), "holds", ""),
        (0.76, (0.7, 0.8), "does not hold", "stronger than in the paper"),
        (0.30, (0.2, 0.4), "does not hold", "weaker than in the paper"),
        (0.30, (0.0, 0.6), "holds", ""),  # .55 is in the interval
        (0.10, (-0.6, 0.7), "not enough data", "the interval is wider than 1.25"),
        (0.50, (-0.4, 0.9), "not enough data", "the interval is wider than 1.25"),  # near by chance
        (-0.30, (-0.6, -0.1), "does not hold", "opposite to the paper"),
        (0.10, None, "does not hold", "weaker than in the paper"),
    ],
)
def test_a_correlation_is_near_the_papers_or_has_it_in_its_interval(
    value: float, interval: tuple[float, float] | None, verdict: str, reason: str
) -> None:
    found = judged("near", 0.55, Measured(value, 9, 9, interval=interval))
    assert (found.verdict, found.reason) == (verdict, reason)


def test_where_the_claim_is_that_there_is_a_relation_a_stronger_one_is_as_good() -> None:
    strong, weak = Measured(0.99, 9, 9, interval=(0.9, 1)), Measured(0.3, 9, 9, interval=(0.2, 0.4))
    assert judged("near_or_more", 0.55, strong).verdict == "holds"
    assert judged("near", 0.55, strong).verdict == "does not hold"
    assert judged("near_or_more", 0.55, weak).verdict == "does not hold"


def test_an_interval_with_the_papers_correlation_and_none_at_all_in_it_says_nothing() -> None:
    wide = Measured(0.5, 9, 9, interval=(-0.1, 0.9))
    found = judged("near_or_more", 0.55, wide)
    assert found.verdict == "not enough data"
    assert found.reason == "the interval is wider than 1.25, or has both 0 and 0.55 in it"
    # Where the finding is that two techniques hardly agree, none at all is near it.
    assert judged("near", 0.14, Measured(0.1, 9, 9, interval=(-0.1, 0.3))).verdict == "holds"


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        (None, "holds"),
        ((0.36, 0.5), "holds"),  # near the paper's
        ((0.1, 0.6), "holds"),  # has the paper's in its interval
        ((0.3, 0.5), "not enough data"),
    ],
)
def test_a_correlation_that_comes_from_differences_between_models_says_nothing(
    within: tuple[float, float] | None, expected: str
) -> None:
    measured = Measured(0.7, 24, 24, interval=(0.5, 0.8), within=within)
    finding = judged("near_or_more", 0.55, measured)
    assert finding.verdict == expected
    assert ("within them" in finding.reason) == (expected != "holds")


def test_too_few_independent_observations_give_no_verdict_but_the_value_is_kept() -> None:
    found = judged("above", 0.5, Measured(0.9, n=36, units=3, unit="runs"))
    assert (found.verdict, found.reason) == ("not enough data", "takes 4 runs, there are 3")
    assert found.measured.value == 0.9
    assert judged("above", 0.5, Measured(0.9, 36, 1)).reason == "takes 4 runs, there is 1"
    assert judged("above", 0.5, Measured()).reason == "takes 4 runs, there are none"
    assert judged("above", 0.5, Measured(0.9, 36, 1), fewest=1).verdict == "holds"


def test_what_does_not_vary_gives_no_verdict() -> None:
    assert judged("above", 0.5, Measured(None, 9, 9)).reason == "the values do not vary"


def test_accuracy_is_compared_with_chance() -> None:
    for interval, verdict in {
        (0.4, 0.9): "holds",
        (0.3, 0.9): "not enough data",
        (0.1, 0.2): "does not hold",
    }.items():
        measured = Measured(sum(interval) / 2, 9, 9, interval=interval, bounds=(0.33, 1.0))
        assert judged("above_chance", 0, measured).verdict == verdict


def test_every_claim_can_be_measured_and_decided_and_fits_the_table() -> None:
    assert len(CLAIMS) >= 40
    for claim in CLAIMS.values():
        assert callable(getattr(measures, claim.measure))
        assert claim.rule in RULES
        assert claim.holds_if
        assert 0 < len(claim.paper) <= 10
        assert max(map(len, claim.statement.split())) <= 28
