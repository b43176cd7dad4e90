"""The scorecard of the paper's claims: JSON data, Markdown, and a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memloc.analysis.correlation import COVERED
from memloc.paper.claims import Finding, Format, check_claims, count_verdicts
from memloc.paper.measures import gather
from memloc.report.many_runs import show_cautions, show_title
from memloc.results.grid import Grid, grid_data, grid_title

STYLES = {"holds": "bold green", "does not hold": "bold red", "not enough data": "dim"}
WIDTHS = {"verdict": 15, "claim": 28, "paper": 10, "here": 20, "n": 3}
"""Columns of the terminal table; with single spaces between them 80."""
UNKNOWN = "-"


def scorecard_data(grid: Grid, findings: Sequence[Finding]) -> dict[str, Any]:
    """Everything as JSON data."""
    return {
        **grid_data(grid),
        "verdicts": count_verdicts(findings),
        "false_by_chance": round(false_by_chance(findings), 2),
        "claims": [_record(finding) for finding in findings],
    }


def _record(finding: Finding) -> dict[str, Any]:
    claim, measured = finding.claim, finding.measured
    low, high = measured.interval or (None, None)
    named = ("id", "section", "source", "statement", "paper")
    return {
        **{name: getattr(claim, name) for name in named},
        "value": measured.value,
        "low": low,
        "high": high,
        "n": measured.n,
        "unit": measured.unit,
        "tasks": measured.tasks,
        "verdict": finding.verdict,
        "rule": claim.holds_if,
        "reason": finding.reason,
        "words": measured.words,
        "choices": {name: choice.value for name, choice in measured.choices.items()},
    }


def page_claims(grid: Grid) -> tuple[str, list[dict[str, Any]]]:
    """What the page of several runs shows of the claims, for `memloc.report.page`."""
    evidence = gather(grid)
    findings = check_claims(evidence)
    claims = [
        {**_record(one), "here": shown_value(one), "explanation": explanation(one)}
        for one in findings
    ]
    return " ".join((*evidence.grid.remarks, summary_line(findings))), claims


def show_scorecard(grid: Grid, findings: Sequence[Finding], console: Console) -> None:
    """Print the scorecard."""
    show_title("claims", grid_title(grid), grid.notes, console)
    console.print()
    console.print(_row(*WIDTHS, style="dim"))
    for section, members in groupby(findings, key=lambda finding: finding.claim.section):
        console.print(Text(f"\n{section}", style="bold"))
        for finding in members:
            _show_finding(finding, console)
    console.print()
    console.print(Text(summary_line(findings), style="bold"))
    show_cautions(grid, console)


def _show_finding(finding: Finding, console: Console) -> None:
    claim, measured = finding.claim, finding.measured
    here, n = shown_value(finding), str(measured.n) if measured.n else UNKNOWN
    verdict = Text(finding.verdict, style=STYLES[finding.verdict])
    console.print(_row(verdict, claim.statement, claim.paper, here, n))
    console.print(
        Padding(
            Text(explanation(finding), style="dim"), (0, 0, 0, WIDTHS["verdict"] + 3), expand=False
        )
    )


def _row(*cells: str | Text, style: str = "") -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    for name, width in WIDTHS.items():
        table.add_column(width=width, justify="right" if name == "n" else "left")
    table.add_row(*cells, style=style)
    return table


def explanation(finding: Finding) -> str:
    """Where the claim is from, what decides, and what is missing or else worth knowing."""
    parts = [f"{finding.claim.source}; holds if {finding.claim.holds_if}"]
    if finding.reason:
        parts.append(finding.reason)
    if finding.measured.words:
        parts.append(finding.measured.words)
    return "; ".join(parts)


def shown_value(finding: Finding) -> str:
    """The value with its interval, as the claim prints it."""
    measured, style = finding.measured, finding.claim.format
    if measured.value is None:
        return UNKNOWN
    value = _formatted(measured.value, style)
    if measured.interval is None:
        return value
    low, high = (_formatted(end, style).removesuffix(" h") for end in measured.interval)
    return f"{value} [{low}, {high}]"


def _formatted(value: float, style: Format) -> str:
    if style == "percent":
        return f"{value:.0%}"
    if style == "hours":
        return f"{value:.1f} h"
    text = f"{value:.4f}" if style == "small" else f"{value:.2f}"
    return text.lstrip("-") if float(text) == 0 else text


def summary_line(findings: Sequence[Finding]) -> str:
    """How many hold, in a sentence."""
    counts = count_verdicts(findings)
    words = ("hold" if counts["holds"] != 1 else "holds", "do not", "without enough data")
    if counts["does not hold"] == 1:
        words = (words[0], "does not", words[2])
    parts = [f"{n} {word}" for n, word in zip(counts.values(), words, strict=True)]
    return (
        f"Of {len(findings)} claims: {', '.join(parts)}. By chance alone, up to "
        f"{false_by_chance(findings):.1f} of these verdicts may be wrong, at 5% each."
    )


def false_by_chance(findings: Sequence[Finding]) -> float:
    """How many verdicts are expected to be wrong by chance, if every rule errs as often as it may.

    Claims are not corrected for their number: each is decided by its own 95% interval.
    """
    decided = sum(finding.verdict != "not enough data" for finding in findings)
    return (1 - COVERED) * decided


def scorecard_markdown(grid: Grid, findings: Sequence[Finding]) -> str:
    """The same as a Markdown page."""
    lines = ["# The paper's claims, checked", "", f"{grid_title(grid)}. {summary_line(findings)}"]
    lines += [line for note in grid.notes for line in ("", f"> {_escaped(note)}")]
    for section, members in groupby(findings, key=lambda finding: finding.claim.section):
        lines += ["", f"## {section}", ""]
        lines += ["| verdict | claim | source | paper | here | n | holds if |"]
        lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
        for finding in members:
            claim, measured = finding.claim, finding.measured
            more = "; ".join(part for part in (finding.reason, measured.words) if part)
            here = shown_value(finding) + (f" ({more})" if more else "")
            cells = (finding.verdict, claim.statement, claim.source, claim.paper, here)
            row = (*cells, str(measured.n), claim.holds_if)
            lines.append(f"| {' | '.join(_escaped(cell) for cell in row)} |")
    if grid.cautions:
        lines += ["", "## Cautions of the runs", ""]
        lines += [f"- {_escaped(one)} ({', '.join(of)})" for one, of in grid.cautions.items()]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
