"""What a sweep found, in 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from memloc.report.terminal import show_jobs

SHORT = {"retraining": "retrain", "gradients": "gradient", "weight-change": "change"}
"""Names of techniques that fit into a column."""


def show_sweep(summary: dict[str, Any], runs: Path, console: Console) -> None:
    """A line per run, what is missing, where the results are, and what to do with them."""
    rows = summary["runs"]
    if rows:
        console.print(_table(rows))
        console.print(
            "[dim]learnt: accuracy on flipped labels (! not memorised); then M-CoG per "
            "technique[/dim]"
        )
    benchmark = summary["control"]
    if benchmark is not None:
        words = benchmark.get("interpretation") or "no result"
        console.print(f"Control: {words}", markup=False)
    show_jobs(summary["jobs"], summary["seconds"], console)
    if summary["jobs"]["failed"]:
        console.print(
            f"{summary['jobs']['failed']} jobs failed or were left out for that; the same command "
            "tries only them again."
        )
    _say(console, f"Results: {runs}/ (one folder per run); this summary: {summary['folder']}/")
    if any(row["folder"] for row in rows):
        _say(
            console,
            f"Next: memloc claims {runs}\n"
            f"      memloc agreement {runs}\n"
            f"      memloc figures {runs}\n"
            f"      memloc report {runs}",
        )


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    techniques = list(dict.fromkeys(name for row in rows for name in row.get("m_cog", {})))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("task", overflow="ellipsis", no_wrap=True)
    table.add_column("model", overflow="ellipsis", no_wrap=True)
    table.add_column("learnt", justify="right", no_wrap=True)
    for name in techniques:
        table.add_column(SHORT.get(name, name), justify="right", no_wrap=True)
    for row in rows:
        task = row["task"] + (" (2)" if row["binarised"] else "")
        if row["folder"] is None:
            table.add_row(task, row["model"], "failed")
            continue
        learnt = f"{row['noisy_accuracy']:.2f}{' ' if row['memorised'] else '!'}"
        weights = (row["m_cog"].get(name) for name in techniques)
        table.add_row(
            task, row["model"], learnt, *("-" if w is None else f"{w:.2f}" for w in weights)
        )
    return table


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True, highlight=False)
