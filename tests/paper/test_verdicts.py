"""How a claim is decided: rules at their limits, and when there is no verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memloc.paper import measures
from memloc.paper.claims import CLAIMS, RULES, WEAK, Claim, Finding, Measured, decide


def judged(rule: str, number: float, measured: Measured) -> Finding:
    """The verdict of a rule on a measurement."""
    return decide(Claim("id", "s", "f", "it is so", "1", "m", rule, "", number), measured)


def measured(value: float, interval: tuple[float, float], **more: Any) -> Measured:
    """Of as many tasks as the paper has."""
    return Measured(value, 48, 12, interval=interval, **more)


@pytest.mark.parametrize(
    ("rule", "interval", "verdict"),
    [
        ("below", (0.3, 0.49), "holds"),
        ("below", (0.3, 0.51), "not enough data"),
        ("below", (0.51, 0.9), "does not hold"),
        ("above", (0.51, 0.9), "holds"),
        ("above", (0.5, 0.9), "not enough data"),
        ("above", (0.1, 0.5), "does not hold"),
    ],
)
def test_a_limit_is_passed_with_the_whole_interval_or_nothing_is_said(
    rule: str, interval: tuple[float, float], verdict: str
) -> None:
    found = judged(rule, 0.5, measured(sum(interval) / 2, interval))
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
    ],
)
def test_a_shift_is_to_the_side_of_the_papers_with_its_whole_interval(
    paper: float, value: float, interval: tuple[float, float], verdict: str
) -> None:
    found = judged("shifted", paper, measured(value, interval))
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
    found = measured(sum(interval) / 2, interval, bounds=(0.5, 0.9))
    assert judged("within_bounds", 0, found).verdict == verdict
    around_zero = tuple(end - 0.7 for end in interval)
    assert judged("within_bounds", 0.2001, measured(0, around_zero)).verdict == verdict


@pytest.mark.parametrize(
    ("value", "interval", "verdict"),
    [
        (0.9, (0.51, 1.0), "holds"),
        (1.0, (0.49, 1.0), "not enough data"),
        (0.89, (0.6, 0.95), "not enough data"),
        (0.7, (0.55, 0.89), "does not hold"),
    ],
)
def test_nearly_always_is_a_large_share_that_is_surely_more_than_half(
    value: float, interval: tuple[float, float], verdict: str
) -> None:
    assert judged("nearly_always", 0.9, measured(value, interval)).verdict == verdict


ZERO = "the interval has 0 in it"


@pytest.mark.parametrize(
    ("value", "interval", "verdict", "reason"),
    [
        (0.55, (0.35, 0.7), "holds", ""),
        (0.99, (0.9, 1.0), "holds", ""),  # where there is a relation, a stronger one is as good
        (0.35, (0.3, 0.4), "holds", ""),  # .2 away
        (0.34, (0.3, 0.4), "does not hold", "weaker than in the paper"),
        (0.30, (0.01, 0.6), "holds", ""),  # .55 is in the interval
        (0.50, (0.0, 0.9), "not enough data", ZERO),  # agrees with none at all as well
        (0.10, (-0.6, 0.7), "not enough data", ZERO),
        (0.10, (-0.3, 0.5), "does not hold", "weaker than in the paper"),
        (-0.3, (-0.6, -0.1), "does not hold", "opposite to the paper"),
    ],
)
def test_a_correlation_is_there_and_as_strong_as_the_papers(
    value: float, interval: tuple[float, float], verdict: str, reason: str
) -> None:
    found = judged("as_strong", 0.55, measured(value, interval))
    assert (found.verdict, found.reason) == (verdict, reason)


@pytest.mark.parametrize(
    ("interval", "verdict", "reason"),
    [
        ((0.1, 0.6), "holds", ""),
        ((0.02, 0.6), "not enough data", "the interval is not within 0.3 of 0.35"),
        ((0.2, 0.7), "not enough data", "the interval is not within 0.3 of 0.35"),
        ((-0.1, 0.6), "not enough data", ZERO),  # unrelated data are as near
        ((0.66, 0.9), "does not hold", "stronger than in the paper"),
        ((-0.1, 0.04), "does not hold", "weaker than in the paper"),
        ((-0.5, -0.1), "does not hold", "opposite to the paper"),
    ],
)
def test_a_weak_correlation_is_the_papers_only_if_its_whole_interval_is_near(
    interval: tuple[float, float], verdict: str, reason: str
) -> None:
    found = judged("as_weak", 0.35, measured(sum(interval) / 2, interval))
    assert (found.verdict, found.reason) == (verdict, reason)


def test_strong_and_weak_correlations_of_the_paper_have_their_own_rules() -> None:
    numbers = {rule: [c.number for c in CLAIMS.values() if c.rule == rule] for rule in RULES}
    assert min(numbers["as_strong"]) >= WEAK > max(numbers["as_weak"])


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        (None, "holds"),
        ((0.36, (0.1, 0.5)), "holds"),  # near the paper's
        ((0.3, (0.1, 0.6)), "holds"),  # has the paper's in its interval
        ((0.5, (-0.1, 0.8)), "not enough data"),
        ((0.3, (0.1, 0.5)), "does not hold"),
    ],
)
def test_within_models_the_same_rule_applies(
    within: tuple[float, tuple[float, float]] | None, expected: str
) -> None:
    alone = None if within is None else measured(*within)
    finding = judged("as_strong", 0.55, measured(0.7, (0.5, 0.8), within=alone))
    assert finding.verdict == expected
    assert finding.reason.startswith("within models: ") == (expected != "holds")


def test_a_verdict_that_depends_on_the_choice_of_a_score_is_none_and_says_so() -> None:
    yes, no = measured(0.7, (0.5, 0.8)), measured(0.2, (0.1, 0.3))
    found = judged("as_strong", 0.55, replace(yes, choices={"a": yes, "b": yes, "c": no}))
    assert found.verdict == "not enough data"
    reason = "it depends on the validation score: holds with 2, does not with 1 of 3"
    assert found.reason == reason
    same = judged("as_strong", 0.55, replace(yes, choices={"a": yes, "b": yes}))
    assert (same.verdict, same.reason) == ("holds", "")


def test_too_few_observations_or_tasks_give_no_verdict_but_the_value_is_kept() -> None:
    interval = (0.8, 1.0)
    found = judged("above", 0.5, Measured(0.9, n=36, tasks=3, interval=interval))
    assert (found.verdict, found.reason) == ("not enough data", "takes 4 tasks, there are 3")
    assert found.measured.value == 0.9
    few = judged("above", 0.5, Measured(0.9, n=5, tasks=5, interval=interval))
    assert (few.verdict, few.reason) == ("not enough data", "takes 6 runs, there are 5")
    assert judged("above", 0.5, Measured(0.9, 1, 1)).reason == "takes 6 runs, there is 1"
    assert judged("above", 0.5, Measured()).reason == "takes 6 runs, there are none"


def test_what_does_not_vary_gives_no_verdict() -> None:
    assert judged("above", 0.5, Measured(None, 9, 9)).reason == "the values do not vary"


def test_accuracy_is_compared_with_chance() -> None:
    for interval, verdict in {
        (0.4, 0.9): "holds",
        (0.3, 0.9): "not enough data",
        (0.1, 0.6): "does not hold",  # not the paper's either
    }.items():
        found = measured(sum(interval) / 2, interval, bounds=(0.33, 1.0))
        assert judged("above_chance", 0.65, found).verdict == verdict


def test_every_claim_can_be_measured_and_decided_and_fits_the_table() -> None:
    assert len(CLAIMS) >= 60
    for claim in CLAIMS.values():
        assert callable(getattr(measures, claim.measure))
        assert claim.rule in RULES
        assert claim.holds_if
        assert 0 < len(claim.paper) <= 10
        assert max(map(len, claim.statement.split())) <= 28
