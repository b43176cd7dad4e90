"""How a claim is decided: rules at their limits, and when there is no verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from memloc.paper.claims import CLAIMS
from memloc.paper.verdicts import (
    Claim,
    Evidence,
    Finding,
    Measured,
    Rule,
    above,
    at_least,
    below,
    judge,
    near,
    positive,
    shifted,
    within_bounds,
)
from memloc.results.grid import read_grid
from tests.result_folders import write_run


@pytest.fixture
def decide(tmp_path: Path):
    """Judge a claim with this rule and this measurement."""
    write_run(tmp_path)
    evidence = Evidence(read_grid(tmp_path))

    def call(rule: Rule, measured: Measured, fewest: int = 4) -> Finding:
        claim = Claim("id", "section", "source", "it is so", "1", rule, lambda _: measured, fewest)
        return judge(claim, evidence)

    return call


def test_limits_are_open_or_closed_as_their_names_say(decide) -> None:
    at_limit = Measured(0.5, 9, 9)
    verdicts = {
        rule.words: decide(rule, at_limit).verdict
        for rule in (above(0.5, "above"), at_least(0.5, "at least"), below(0.5, "below"))
    }
    assert verdicts == {"above": "does not hold", "at least": "holds", "below": "does not hold"}
    assert decide(above(0.5, ""), Measured(0.51, 9, 9)).verdict == "holds"
    assert decide(below(0.5, ""), Measured(0.49, 9, 9)).verdict == "holds"


@pytest.mark.parametrize(
    ("rule", "interval", "verdict"),
    [
        (below(0.5, ""), (0.3, 0.49), "holds"),
        (below(0.5, ""), (0.3, 0.51), "not enough data"),
        (below(0.5, ""), (0.51, 0.9), "does not hold"),
        (above(0.5, ""), (0.51, 0.9), "holds"),
        (above(0.5, ""), (0.5, 0.9), "not enough data"),
        (above(0.5, ""), (0.1, 0.5), "does not hold"),
        (at_least(0.5, ""), (0.5, 0.9), "holds"),
        (at_least(0.5, ""), (0.1, 0.5), "not enough data"),
        (at_least(0.5, ""), (0.1, 0.49), "does not hold"),
    ],
)
def test_a_limit_is_passed_with_the_whole_interval_or_nothing_is_said(
    decide, rule: Rule, interval: tuple[float, float], verdict: str
) -> None:
    found = decide(rule, Measured(sum(interval) / 2, 9, 9, interval=interval))
    assert found.verdict == verdict
    assert found.reason == ("the interval has 0.5 in it" if verdict == "not enough data" else "")


def test_a_correlation_is_positive_with_its_whole_interval(decide) -> None:
    assert decide(positive(""), Measured(0.5, 9, 9, interval=(0.1, 0.9))).verdict == "holds"
    found = decide(positive(""), Measured(0.5, 9, 9, interval=(-0.1, 0.9)))
    assert (found.verdict, found.reason) == ("not enough data", "the interval has 0 in it")


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
    decide, paper: float, value: float, interval: tuple[float, float] | None, verdict: str
) -> None:
    found = decide(shifted(paper), Measured(value, 9, 9, interval=interval))
    assert found.verdict == verdict
    if verdict == "not enough data":
        assert found.reason == f"the interval has both 0 and {paper:+.2f} in it"


def test_bounds_come_with_the_measurement(decide) -> None:
    rule = within_bounds("")
    for value, verdict in ((0.5, "holds"), (0.9, "holds"), (0.95, "does not hold")):
        assert decide(rule, Measured(value, 9, 9, bounds=(0.5, 0.9))).verdict == verdict


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
    decide, interval: tuple[float, float], verdict: str
) -> None:
    measured = Measured(sum(interval) / 2, 9, 9, interval=interval, bounds=(0.5, 0.9))
    assert decide(within_bounds(""), measured).verdict == verdict


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
    decide, value: float, interval: tuple[float, float] | None, verdict: str, reason: str
) -> None:
    found = decide(near(0.55), Measured(value, 9, 9, interval=interval))
    assert (found.verdict, found.reason) == (verdict, reason)


def test_where_the_claim_is_that_there_is_a_relation_a_stronger_one_is_as_good(decide) -> None:
    strong, weak = Measured(0.99, 9, 9, interval=(0.9, 1)), Measured(0.3, 9, 9, interval=(0.2, 0.4))
    assert decide(near(0.55, or_more=True), strong).verdict == "holds"
    assert decide(near(0.55), strong).verdict == "does not hold"
    assert decide(near(0.55, or_more=True), weak).verdict == "does not hold"


def test_an_interval_with_the_papers_correlation_and_none_at_all_in_it_says_nothing(decide) -> None:
    wide = Measured(0.5, 9, 9, interval=(-0.1, 0.9))
    found = decide(near(0.55, or_more=True), wide)
    assert found.verdict == "not enough data"
    assert found.reason == "the interval is wider than 1.25, or has both 0 and 0.55 in it"
    # Where the finding is that two techniques hardly agree, none at all is near it.
    assert decide(near(0.14), Measured(0.1, 9, 9, interval=(-0.1, 0.3))).verdict == "holds"


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
    decide, within: tuple[float, float] | None, expected: str
) -> None:
    measured = Measured(0.7, 24, 24, interval=(0.5, 0.8), within=within)
    finding = decide(near(0.55, or_more=True), measured)
    assert finding.verdict == expected
    assert ("within them" in finding.reason) == (expected != "holds")


def test_too_few_independent_observations_give_no_verdict_but_the_value_is_kept(decide) -> None:
    found = decide(above(0.5, ""), Measured(0.9, n=36, units=3, unit="runs"))
    assert (found.verdict, found.reason) == ("not enough data", "takes 4 runs, there are 3")
    assert found.measured.value == 0.9
    assert decide(above(0.5, ""), Measured(0.9, 36, 1)).reason == "takes 4 runs, there is 1"
    assert decide(above(0.5, ""), Measured()).reason == "takes 4 runs, there are none"
    assert decide(above(0.5, ""), Measured(0.9, 36, 1), fewest=1).verdict == "holds"


def test_what_is_missing_or_does_not_vary_gives_no_verdict(decide) -> None:
    found = decide(above(0.5, ""), Measured(missing="needs a control setup"))
    assert (found.verdict, found.reason) == ("not enough data", "needs a control setup")
    assert decide(above(0.5, ""), Measured(None, 9, 9)).reason == "the values do not vary"


def test_claims_have_different_names_and_fit_the_table() -> None:
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS) >= 40
    for claim in CLAIMS:
        assert claim.rule.words
        assert 0 < len(claim.paper) <= 10
        assert max(map(len, claim.statement.split())) <= 28
