"""The claims of Dankers & Titov (2024), and how each is decided.

`claims.yaml` lists them. A claim is measured by a function of `measures` and decided by a rule of
this module, both by name, so a further claim is one entry. The verdict is *holds*, *does not hold*,
or *not enough data*: there are too few runs, or the interval straddles the limit.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from memloc.analysis.correlation import FEWEST
from memloc.data.builtin import packaged
from memloc.paper import measures
from memloc.paper.measures import FEWEST_NOISY, HALF, CannotMeasure, Evidence, Measured

Verdict = Literal["holds", "does not hold", "not enough data"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "not enough data")
Format = Literal["number", "small", "percent", "hours"]
"""How a value is printed: 0.85, 0.0031, 85%, 8.5 h."""

FEWEST_OBSERVATIONS = 6
"""A verdict takes as many observations, of at least `FEWEST` tasks."""
TOLERANCE = 0.2
"""A correlation this near to the paper's is the same finding."""
WEAK = 0.5
"""A correlation of the paper below this is no finding that chance could not imitate ..."""
EQUIVALENT = 0.3
"""... so the whole interval must be this near to it."""


Decision = tuple[bool | None, str]
"""Whether a claim holds, None if that cannot be said; and why it does not hold, or is undecided."""


def _ends(measured: Measured) -> tuple[float, float, float]:
    """The value and the ends of its interval, which are known when a rule decides."""
    assert measured.value is not None
    assert measured.interval is not None
    return measured.value, *measured.interval


def _beyond(side: Callable[[float, float], bool], measured: Measured, limit: float) -> Decision:
    """Decided by the side of a limit, with the whole interval: half of it says nothing."""
    sides = {side(value, limit) for value in _ends(measured)}
    return (sides.pop(), "") if len(sides) == 1 else (None, f"the interval has {limit:g} in it")


def _nearly_always(measured: Measured, limit: float) -> Decision:
    """Whether a share is at least so large, and surely more than half.

    No share of twelve tasks is surely above .9, not even 12 of 12.
    """
    value, low, high = _ends(measured)
    if high < limit:
        return False, ""
    if value < limit:
        return None, f"it is below {limit:g}, but the interval is not"
    return (True, "") if low > HALF else (None, f"the interval has {HALF:g} in it")


def _above_chance(measured: Measured, paper: float) -> Decision:
    """Undecided if the interval agrees with chance and with the paper's accuracy."""
    chance = measured.bounds[0] if measured.bounds else 0.0
    _, low, high = _ends(measured)
    if low > chance:
        return True, ""
    reason = f"the interval has both chance and {paper:.2f} in it"
    return (False, "") if high < paper else (None, reason)


def _within_bounds(measured: Measured, number: float) -> Decision:
    """Whether the interval is within the bounds that came with it, or else within ±number."""
    low, high = measured.bounds or (-number, number)
    _, first, last = _ends(measured)
    if low <= first and last <= high:
        return True, ""
    partly = last >= low and first <= high
    return (None, "the interval is only partly within") if partly else (False, "")


def _shifted(measured: Measured, paper: float) -> Decision:
    """Whether a mean shift is clearly to the side of the paper's.

    Undecided if the interval agrees with the paper's shift and with none at all.
    """
    _, low, high = _ends(measured)
    if low <= 0 <= high and low <= paper <= high:
        return None, f"the interval has both 0 and {paper:+.2f} in it"
    return (high < 0 if paper < 0 else low > 0), ""


def _as_strong(measured: Measured, paper: float) -> Decision:
    """Whether there is a correlation, about as strong as the paper's or stronger."""
    value, low, high = _ends(measured)
    if round(paper - value, 9) > TOLERANCE and high < paper:
        return False, _compared(measured, paper)
    return (True, "") if low > 0 else (None, "the interval has 0 in it")


def _as_weak(measured: Measured, paper: float) -> Decision:
    """Whether there is a correlation, and it is surely about as weak as the paper's.

    Being near a weak correlation, or having it in the interval, unrelated data manage half the
    time. So nothing is said unless the interval is narrow.
    """
    _, low, high = _ends(measured)
    if high < max(0.0, paper - EQUIVALENT) or low > paper + EQUIVALENT:
        return False, _compared(measured, paper)
    if low <= 0:
        return None, "the interval has 0 in it"
    if low < paper - EQUIVALENT or high > paper + EQUIVALENT:
        return None, f"the interval is not within {EQUIVALENT:g} of {paper:.2f}"
    return True, ""


def _compared(measured: Measured, paper: float) -> str:
    """How a correlation differs from the paper's: absent, reversed and stronger are not alike."""
    value, _, high = _ends(measured)
    if value > paper:
        return "stronger than in the paper"
    return "opposite to the paper" if high < 0 < paper else "weaker than in the paper"


RULES: dict[str, Callable[[Measured, float], Decision]] = {
    "above": partial(_beyond, operator.gt),
    "below": partial(_beyond, operator.lt),
    "nearly_always": _nearly_always,
    "above_chance": _above_chance,
    "within_bounds": _within_bounds,
    "shifted": _shifted,
    "as_strong": _as_strong,
    "as_weak": _as_weak,
}
"""What decides a claim, from what was measured and the claim's number."""


def _rule_words(rule: str, paper: float) -> dict[str, str]:
    """The paper's number and the rule in words, where both follow from the rule."""
    words = {
        "shifted": f"the interval is {'below' if paper < 0 else 'above'} 0",
        "as_strong": f"the interval is above 0, and reaches {paper:.2f} or ρ >= "
        f"{paper - TOLERANCE:.2f}",
        "as_weak": f"the interval is above 0 and within {EQUIVALENT:g} of {paper:.2f}",
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
        format: How the value is printed.
        note: What keeps the paper's own number of tasks from deciding it.
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
    format: Format = "number"
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """A claim with what was measured and the verdict; `reason` says why it is not `holds`."""

    claim: Claim
    measured: Measured
    verdict: Verdict
    reason: str = ""


def _read_claims() -> dict[str, Claim]:
    sections = packaged("memloc.paper", "claims")
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


def check_claims(evidence: Evidence) -> list[Finding]:
    """Every claim with its verdict."""
    findings = [judge(claim, evidence) for claim in CLAIMS.values()]
    if evidence.enough_noisy:
        return findings
    reason = f"no run has {FEWEST_NOISY} noisy examples"
    return [Finding(one.claim, one.measured, "not enough data", reason) for one in findings]


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
    """The verdict on what was measured.

    Where the paper leaves open what it measured, all choices must have the same verdict.
    """
    holds, reason = _decision(claim, measured)
    choices = Counter(_decision(claim, choice)[0] for choice in measured.choices.values())
    if len({holds, *choices}) > 1:
        said = {True: "holds", False: "does not", None: "is undecided"}
        counts = [f"{words} with {choices[one]}" for one, words in said.items() if choices[one]]
        holds = None
        reason = f"it depends on the validation score: {', '.join(counts)} of {choices.total()}"
    verdict: Verdict = "not enough data"
    if holds is not None:
        verdict = "holds" if holds else "does not hold"
    if holds is None and claim.note:
        reason += f"; {claim.note}"
    return Finding(claim, measured, verdict, reason)


def _decision(claim: Claim, measured: Measured) -> Decision:
    """By the claim's rule, over all runs and then within models."""
    for number, fewest, unit in (
        (measured.n, FEWEST_OBSERVATIONS, measured.unit),
        (measured.tasks, FEWEST, "tasks"),
    ):
        if number < fewest:
            there = "there is" if number == 1 else "there are"
            return None, f"takes {fewest} {unit}, {there} {number or 'none'}"
    if measured.value is None or measured.interval is None:
        return None, "the values do not vary"
    holds, reason = RULES[claim.rule](measured, claim.number)
    if holds is not False and measured.within is not None:
        alone, why = _decision(claim, measured.within)
        if alone is False or (holds and alone is None):
            return alone, f"within models: {why}"
    return holds, reason
