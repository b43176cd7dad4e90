"""The claims of Dankers & Titov (2024), and how each is decided.

`claims.yaml` lists them. A claim is measured by a function of `measures` and decided by a rule of
this module, both by name, so a further claim is one entry. The verdict is *holds*, *does not hold*,
or *not enough data*: there are too few runs, or the interval straddles the limit.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from typing import Any, Literal

import yaml

from memloc.analysis.correlation import FEWEST
from memloc.paper import measures
from memloc.paper.measures import CannotMeasure, Evidence, Measured
from memloc.results.grid import Grid

Verdict = Literal["holds", "does not hold", "not enough data"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "not enough data")
Format = Literal["number", "small", "percent", "hours"]
"""How a value is printed: 0.85, 0.0031, 85%, 8.5 h."""

TOLERANCE = 0.2
"""A correlation this near to the paper's is the same finding."""
VAGUE = 1.25
"""An interval of a correlation that is wider than this would agree with nearly everything."""


Decision = tuple[bool | None, str]
"""Whether a claim holds, None if that cannot be said; and why it does not hold, or is undecided."""


def _beyond(side: Callable[[float, float], bool], measured: Measured, limit: float) -> Decision:
    """Decided by the side of a limit, with the whole interval: half of it says nothing."""
    sides = {side(value, limit) for value in (measured.value or 0.0, *measured.ends)}
    return (sides.pop(), "") if len(sides) == 1 else (None, f"the interval has {limit:g} in it")


def _above_chance(measured: Measured, _: float) -> Decision:
    chance = measured.bounds[0] if measured.bounds else 0.0
    low, high = measured.ends
    if low <= chance <= high:
        return None, "the interval has chance in it"
    return low > chance, ""


def _within_bounds(measured: Measured, _: float) -> Decision:
    """Whether the interval is within the bounds that came with the measurement."""
    (low, high), (first, last) = measured.bounds or (-math.inf, math.inf), measured.ends
    if low <= first and last <= high:
        return True, ""
    partly = last >= low and first <= high
    return (None, "the interval is only partly within") if partly else (False, "")


def _shifted(measured: Measured, paper: float) -> Decision:
    """Whether a mean shift is clearly to the side of the paper's.

    Undecided if the interval agrees with the paper's shift and with none at all.
    """
    low, high = measured.ends
    if low <= 0 <= high and low <= paper <= high:
        return None, f"the interval has both 0 and {paper:+.2f} in it"
    return (high < 0 if paper < 0 else low > 0), ""


def _near(measured: Measured, paper: float, or_more: bool = False) -> Decision:
    """Whether a correlation is like the paper's: close to it, or with it in the interval.

    With `or_more` a stronger correlation is as good, as the claim is that there is one. Then an
    interval that agrees with the paper's and with none at all says nothing.
    """
    value, (low, high) = measured.value or 0.0, measured.ends
    has_paper = measured.interval is not None and low <= paper <= high
    too_wide = f"the interval is wider than {VAGUE:g}"
    if or_more:
        too_wide += f", or has both 0 and {paper:.2f} in it"
    if high - low > VAGUE or (or_more and has_paper and low <= 0):
        return None, too_wide
    close = round(abs(value - paper), 9) <= TOLERANCE
    if not (close or has_paper or (or_more and value > paper)):
        return False, _compared(measured, paper)
    within, highest = measured.within or (paper, paper)
    if within < paper - TOLERANCE and highest < paper:
        return None, "models differ, but within them it is weaker"
    return True, ""


def _compared(measured: Measured, paper: float) -> str:
    """How a correlation differs from the paper's: absent, reversed and stronger are not alike."""
    value, interval = measured.value or 0.0, measured.interval
    if value > paper:
        return "stronger than in the paper"
    reversed_ = value < 0 < paper and interval is not None and interval[1] < 0
    return "opposite to the paper" if reversed_ else "weaker than in the paper"


RULES: dict[str, Callable[[Measured, float], Decision]] = {
    "above": partial(_beyond, operator.gt),
    "at_least": partial(_beyond, operator.ge),
    "below": partial(_beyond, operator.lt),
    "above_chance": _above_chance,
    "within_bounds": _within_bounds,
    "shifted": _shifted,
    "near": _near,
    "near_or_more": partial(_near, or_more=True),
}
"""What decides a claim, from what was measured and the claim's number."""


def _rule_words(rule: str, paper: float) -> dict[str, str]:
    """The paper's number and the rule in words, where both follow from the rule."""
    words = {
        "shifted": f"the interval is {'below' if paper < 0 else 'above'} 0",
        "near": f"within {TOLERANCE:g} of {paper:.2f}, or {paper:.2f} is in the interval",
        "near_or_more": f"ρ >= {paper - TOLERANCE:.2f}, or {paper:.2f} is in the interval",
    }
    return {"paper": f"{paper:.2f}", "holds_if": words[rule]} if rule in words else {}


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
    named = {"section": section, "measure": measure, "arguments": arguments, "rule": rule}
    return Claim(**(_rule_words(rule, number) | row | named | {"number": float(number)}))


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
    try:
        measured = getattr(measures, claim.measure)(evidence, **claim.arguments)
    except CannotMeasure as missing:
        return Finding(claim, Measured(), "not enough data", str(missing))
    return decide(claim, measured)


def decide(claim: Claim, measured: Measured) -> Finding:
    """The verdict on what was measured."""
    if measured.units < claim.fewest:
        there = "there is" if measured.units == 1 else "there are"
        few = f"takes {claim.fewest} {measured.unit}, {there} {measured.units or 'none'}"
        return Finding(claim, measured, "not enough data", few)
    if measured.value is None:
        return Finding(claim, measured, "not enough data", "the values do not vary")
    holds, reason = RULES[claim.rule](measured, claim.number)
    verdict: Verdict = "not enough data"
    if holds is not None:
        verdict = "holds" if holds else "does not hold"
    return Finding(claim, measured, verdict, reason)
