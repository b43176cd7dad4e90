"""What a claim is, and how it is decided.

A claim of the paper, a function that measures it, and a rule. The verdict is *holds*, *does not
hold*, or *not enough data*: too few runs, or an interval that says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pandas as pd

from memloc.analysis.correlation import FEWEST, Correlation, Interval
from memloc.results.agreement import Binarised, agreement_table, compare_twins
from memloc.results.control import ControlResults, read_controls
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
class Evidence:
    """What claims are measured by: the runs, and the correlations between them."""

    grid: Grid

    @cached_property
    def agreement(self) -> pd.DataFrame:
        """All correlations (`memloc.results.agreement`)."""
        return agreement_table(self.grid)

    @cached_property
    def control(self) -> ControlResults | None:
        """The control benchmarks in the same folder; None if there are none."""
        return read_controls(self.grid.controls)

    @cached_property
    def binarised(self) -> Binarised | None:
        """The same tasks with all their classes and with two; None if there are no such runs."""
        return compare_twins(self.grid.groups, self.grid.chosen)


@dataclass(frozen=True)
class Measured:
    """What was found here.

    Attributes:
        value: None if it cannot be measured.
        n: How many observations are behind it.
        units: How many of them are independent; a verdict takes as many as the claim says.
        unit: What these are: runs or tasks.
        interval: 95%, by resampling units.
        within: A correlation in single models, averaged, if there are several; and the upper end of
            its interval.
        bounds: Values that agree with the paper, where this depends on the depth of the models.
        words: What else to know, in a few words.
        missing: What has to be there for a measurement, if it is not.
        details: The single values behind a mean.
    """

    value: float | None = None
    n: int = 0
    units: int = 0
    unit: str = "runs"
    interval: Interval | None = None
    within: tuple[float, float] | None = None
    bounds: Interval | None = None
    words: str = ""
    missing: str = ""
    details: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Rule:
    """When a claim holds: in words, and as a function that may also be undecided (None).

    `paper` is the correlation to compare with, if that is the rule; `undecided` says why the
    function decides nothing.
    """

    words: str
    holds: Callable[[float, Measured], bool | None]
    paper: float | None = None
    undecided: str = ""


@dataclass(frozen=True)
class Claim:
    """A finding of the paper, and how to check it.

    Attributes:
        id: A short name.
        section: The heading it stands under.
        source: Where in the paper.
        statement: What the paper found.
        paper: Its number, or a word.
        rule: What decides.
        measure: What it is decided by.
        fewest: Independent observations that a verdict takes.
        format: How the value is printed.
    """

    id: str
    section: str
    source: str
    statement: str
    paper: str
    rule: Rule
    measure: Callable[[Evidence], Measured]
    fewest: int = FEWEST
    format: Format = "number"


@dataclass(frozen=True)
class Finding:
    """A claim with what was measured and the verdict; `reason` says why it is not `holds`."""

    claim: Claim
    measured: Measured
    verdict: Verdict
    reason: str = ""


def judge(claim: Claim, evidence: Evidence) -> Finding:
    """Measure a claim and decide it."""
    measured = claim.measure(evidence)
    undecided: Verdict = "not enough data"
    if measured.missing:
        return Finding(claim, measured, undecided, measured.missing)
    if measured.units < claim.fewest:
        there = "there is" if measured.units == 1 else "there are"
        few = f"takes {claim.fewest} {measured.unit}, {there} {measured.units or 'none'}"
        return Finding(claim, measured, undecided, few)
    if measured.value is None:
        return Finding(claim, measured, undecided, "the values do not vary")
    holds = claim.rule.holds(measured.value, measured)
    if holds is None:
        return Finding(claim, measured, undecided, claim.rule.undecided)
    if holds and _only_between_models(measured, claim.rule.paper):
        return Finding(claim, measured, undecided, "models differ, but within them it is weaker")
    if holds or claim.rule.paper is None:
        return Finding(claim, measured, "holds" if holds else "does not hold")
    return Finding(claim, measured, "does not hold", _compared(measured, claim.rule.paper))


def _only_between_models(measured: Measured, paper: float | None) -> bool:
    """Whether a correlation like the paper's is weaker in models that are looked at alone."""
    if paper is None or measured.within is None:
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


def above(limit: float, words: str) -> Rule:
    """Holds for values above a limit."""
    return _beyond(limit, words, lambda value: value > limit)


def at_least(limit: float, words: str) -> Rule:
    """Holds for values from a limit on."""
    return _beyond(limit, words, lambda value: value >= limit)


def below(limit: float, words: str) -> Rule:
    """Holds for values below a limit."""
    return _beyond(limit, words, lambda value: value < limit)


def _beyond(limit: float, words: str, side: Callable[[float], bool]) -> Rule:
    """Decided by the side of a limit, with the whole interval: half of it says nothing."""

    def holds(value: float, measured: Measured) -> bool | None:
        sides = {side(end) for end in (value, *(measured.interval or ()))}
        return sides.pop() if len(sides) == 1 else None

    return Rule(words, holds, undecided=f"the interval has {limit:g} in it")


def shifted(paper: float) -> Rule:
    """Holds for a mean shift that is clearly to the side of the paper's.

    Undecided if the interval agrees with the paper's shift and with none at all.
    """

    def holds(value: float, measured: Measured) -> bool | None:
        low, high = measured.interval or (value, value)
        if low <= 0 <= high and low <= paper <= high:
            return None
        return high < 0 if paper < 0 else low > 0

    side = "below" if paper < 0 else "above"
    undecided = f"the interval has both 0 and {paper:+.2f} in it"
    return Rule(f"the interval is {side} 0", holds, undecided=undecided)


def within_bounds(words: str) -> Rule:
    """Holds for values within the bounds that came with the measurement.

    Undecided if their interval is partly within and partly outside.
    """

    def holds(value: float, measured: Measured) -> bool | None:
        if measured.bounds is None:
            return True
        (low, high), (first, last) = measured.bounds, measured.interval or (value, value)
        if low <= first and last <= high:
            return True
        return False if last < low or first > high else None

    return Rule(words, holds, undecided="the interval is only partly within")


def positive(words: str) -> Rule:
    """Holds for correlations above 0."""
    return above(0.0, words)


def _says_nothing(measured: Measured) -> bool:
    return measured.interval is not None and measured.interval[1] - measured.interval[0] > VAGUE


def _has(measured: Measured, value: float) -> bool:
    return measured.interval is not None and measured.interval[0] <= value <= measured.interval[1]


def near(paper: float, or_more: bool = False) -> Rule:
    """Holds for correlations like the paper's: close to it, or with it in their interval.

    Args:
        paper: The paper's value.
        or_more: A stronger correlation is as good, as the claim is that there is one. Then an
            interval that agrees with the paper's and with none at all says nothing.
    """

    def holds(value: float, measured: Measured) -> bool | None:
        if _says_nothing(measured) or (or_more and _has(measured, 0.0) and _has(measured, paper)):
            return None
        if round(abs(value - paper), 9) <= TOLERANCE or (or_more and value > paper):
            return True
        return _has(measured, paper)

    close = f"ρ >= {paper - TOLERANCE:.2f}" if or_more else f"within {TOLERANCE:g} of {paper:.2f}"
    undecided = f"the interval is wider than {VAGUE:g}"
    if or_more:
        undecided += f", or has both 0 and {paper:.2f} in it"
    return Rule(f"{close}, or {paper:.2f} is in the interval", holds, paper, undecided)


def of_correlation(found: Correlation, unit: str, **more: Any) -> Measured:
    """A correlation as a measurement, by Spearman's ρ."""
    return Measured(
        found.spearman, found.n, found.units, unit, interval=found.spearman_interval, **more
    )
