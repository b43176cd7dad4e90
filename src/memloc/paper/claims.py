"""The claims of Dankers & Titov (2024), and how each is decided.

`claims.yaml` lists them. A claim is measured by a function of `measures` and decided by a rule of
this module. The verdict is *holds*, *does not hold*, or *not enough data*: there are too few runs,
or the interval straddles the limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

import yaml

from memloc.analysis.correlation import FEWEST
from memloc.paper import measures
from memloc.paper.measures import Evidence, Measured
from memloc.results.grid import Grid

Verdict = Literal["holds", "does not hold", "not enough data"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "not enough data")
Format = Literal["number", "small", "percent", "hours"]
"""How a value is printed: 0.85, 0.0031, 85%, 8.5 h."""

TOLERANCE = 0.2
"""A correlation this near to the paper's is the same finding."""
VAGUE = 1.25
"""An interval of a correlation that is wider than this would agree with nearly everything."""


@dataclass(frozen=True)
class Rule:
    """When a claim holds.

    Attributes:
        decide: Whether it holds, from what was measured and the claim's number; None: undecided.
        undecided: Why nothing is decided; `{0}` is the number.
        words: The rule in words, by the number; None if every claim has its own.
    """

    decide: Callable[[Measured, float], bool | None]
    undecided: str
    words: Callable[[float], str] | None = None


def _ends(measured: Measured) -> tuple[float, float]:
    """Of the interval; of the value, if there is none."""
    value = measured.value or 0.0
    return measured.interval or (value, value)


def _beyond(side: Callable[[float, float], bool]) -> Callable[[Measured, float], bool | None]:
    """Decided by the side of a limit, with the whole interval: half of it says nothing."""

    def decide(measured: Measured, limit: float) -> bool | None:
        sides = {side(end, limit) for end in (measured.value or 0.0, *_ends(measured))}
        return sides.pop() if len(sides) == 1 else None

    return decide


def _above_chance(measured: Measured, _: float) -> bool | None:
    chance = measured.bounds[0] if measured.bounds else 0.0
    low, high = _ends(measured)
    return low > chance if low > chance or high < chance else None


def _within_bounds(measured: Measured, _: float) -> bool | None:
    """Whether the interval is within the bounds that came with the measurement."""
    if measured.bounds is None:
        return True
    (low, high), (first, last) = measured.bounds, _ends(measured)
    if low <= first and last <= high:
        return True
    return False if last < low or first > high else None


def _shifted(measured: Measured, paper: float) -> bool | None:
    """Whether a mean shift is clearly to the side of the paper's.

    Undecided if the interval agrees with the paper's shift and with none at all.
    """
    low, high = _ends(measured)
    if low <= 0 <= high and low <= paper <= high:
        return None
    return high < 0 if paper < 0 else low > 0


def _near(measured: Measured, paper: float) -> bool | None:
    """Whether a correlation is like the paper's: close to it, or with it in the interval."""
    low, high = _ends(measured)
    if high - low > VAGUE:
        return None
    close = round(abs((measured.value or 0.0) - paper), 9) <= TOLERANCE
    return close or (measured.interval is not None and low <= paper <= high)


def _near_or_more(measured: Measured, paper: float) -> bool | None:
    """The same where a stronger correlation is as good, as the claim is that there is one.

    Then an interval that agrees with the paper's and with none at all says nothing.
    """
    low, high = _ends(measured)
    if measured.interval is not None and low <= 0 <= high and low <= paper <= high:
        return None
    near = _near(measured, paper)
    return near if near is None else near or (measured.value or 0.0) > paper


ON_BOTH_SIDES = "the interval has {0:g} in it"
TOO_WIDE = f"the interval is wider than {VAGUE:g}"
RULES = {
    "above": Rule(_beyond(lambda value, limit: value > limit), ON_BOTH_SIDES),
    "at_least": Rule(_beyond(lambda value, limit: value >= limit), ON_BOTH_SIDES),
    "below": Rule(_beyond(lambda value, limit: value < limit), ON_BOTH_SIDES),
    "above_chance": Rule(_above_chance, "the interval has chance in it"),
    "within_bounds": Rule(_within_bounds, "the interval is only partly within"),
    "shifted": Rule(
        _shifted,
        "the interval has both 0 and {0:+.2f} in it",
        lambda paper: f"the interval is {'below' if paper < 0 else 'above'} 0",
    ),
    "near": Rule(
        _near,
        TOO_WIDE,
        lambda paper: f"within {TOLERANCE:g} of {paper:.2f}, or {paper:.2f} is in the interval",
    ),
    "near_or_more": Rule(
        _near_or_more,
        TOO_WIDE + ", or has both 0 and {0:.2f} in it",
        lambda paper: f"ρ >= {paper - TOLERANCE:.2f}, or {paper:.2f} is in the interval",
    ),
}


@dataclass(frozen=True)
class Claim:
    """A finding of the paper, and how to check it.

    Attributes:
        id: A short name.
        section: The heading it stands under.
        source: Where in the paper.
        statement: What the paper found.
        paper: Its number, or a word.
        measure: The function of `measures` that it is decided by.
        arguments: Of that function.
        rule: The name of what decides, in `RULES`.
        number: That the rule compares with.
        holds_if: The rule in words.
        fewest: Independent observations that a verdict takes.
        format: How the value is printed.
    """

    id: str
    section: str
    source: str
    statement: str
    paper: str
    measure: str
    rule: str
    holds_if: str
    number: float = 0.0
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fewest: int = FEWEST
    format: Format = "number"


@dataclass(frozen=True)
class Finding:
    """A claim with what was measured and the verdict; `reason` says why it is not `holds`."""

    claim: Claim
    measured: Measured
    verdict: Verdict
    reason: str = ""


def _read_claims() -> dict[str, Claim]:
    text = (files("memloc.paper") / "claims.yaml").read_text(encoding="utf-8")
    sections = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    claims = [_claim(section, row) for section, rows in sections.items() for row in rows]
    return {claim.id: claim for claim in claims}


def _claim(section: str, row: dict[str, Any]) -> Claim:
    """A name alone, of a measure or rule, has neither arguments nor a number."""
    measure, rule = row.pop("measure"), row.pop("rule")
    measure, arguments = (measure, {}) if isinstance(measure, str) else next(iter(measure.items()))
    rule, number = (rule, 0.0) if isinstance(rule, str) else next(iter(rule.items()))
    words = RULES[rule].words
    derived = {} if words is None else {"paper": f"{number:.2f}", "holds_if": words(number)}
    named = {"section": section, "measure": measure, "arguments": arguments, "rule": rule}
    return Claim(**(derived | row | named | {"number": float(number)}))


CLAIMS = _read_claims()
"""By id, in the order of the paper."""


def check_claims(grid: Grid) -> list[Finding]:
    """Every claim with its verdict."""
    evidence = Evidence(grid)
    return [judge(claim, evidence) for claim in CLAIMS.values()]


def count_verdicts(findings: Sequence[Finding]) -> dict[Verdict, int]:
    """How many hold, do not hold, and lack data."""
    counts = Counter(finding.verdict for finding in findings)
    return {verdict: counts[verdict] for verdict in VERDICTS}


def judge(claim: Claim, evidence: Evidence) -> Finding:
    """Measure a claim and decide it."""
    return decide(claim, getattr(measures, claim.measure)(evidence, **claim.arguments))


def decide(claim: Claim, measured: Measured) -> Finding:
    """The verdict on what was measured."""
    rule = RULES[claim.rule]
    holds, reason = None, ""
    if measured.missing:
        reason = measured.missing
    elif measured.units < claim.fewest:
        there = "there is" if measured.units == 1 else "there are"
        reason = f"takes {claim.fewest} {measured.unit}, {there} {measured.units or 'none'}"
    elif measured.value is None:
        reason = "the values do not vary"
    else:
        holds = rule.decide(measured, claim.number)
        if holds is None:
            reason = rule.undecided.format(claim.number)
        elif claim.rule in ("near", "near_or_more"):
            if not holds:
                reason = _compared(measured, claim.number)
            elif _only_between_models(measured, claim.number):
                holds, reason = None, "models differ, but within them it is weaker"
    verdict = VERDICTS[2] if holds is None else VERDICTS[0 if holds else 1]
    return Finding(claim, measured, verdict, reason)


def _only_between_models(measured: Measured, paper: float) -> bool:
    """Whether a correlation like the paper's is weaker in models that are looked at alone."""
    if measured.within is None:
        return False
    value, high = measured.within
    return value < paper - TOLERANCE and high < paper


def _compared(measured: Measured, paper: float) -> str:
    """How a correlation differs from the paper's: absent, reversed and stronger are not alike."""
    value, interval = measured.value or 0.0, measured.interval
    if value > paper:
        return "stronger than in the paper"
    reversed_ = value < 0 < paper and interval is not None and interval[1] < 0
    return "opposite to the paper" if reversed_ else "weaker than in the paper"
