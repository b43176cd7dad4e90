"""What a sweep found, or would compute, in 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from memloc.report.terminal import show_jobs
from memloc.text import counted, duration, size


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
    failed = summary["jobs"]["failed"]
    if failed:
        console.print(
            f"{counted(failed, 'job')} failed or {'was' if failed == 1 else 'were'} left out for "
            f"that; the same command tries only {'it' if failed == 1 else 'them'} again."
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
        table.add_column(name, justify="right", no_wrap=True)
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


def show_dry_run(found: dict[str, Any], console: Console) -> None:
    """A line per kind of jobs, the sums, and what is not known."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("jobs")
    for name in ("number", "in store", "time on one worker", "disk"):
        table.add_column(name, justify="right")
    for row in found["kinds"]:
        left = row["jobs"] - row["in_store"]
        cells = [
            _amount(words(row[what]), row[f"without_{unknown}"], left)
            for words, what, unknown in ((duration, "seconds", "time"), (size, "bytes", "size"))
        ]
        table.add_row(row["name"], f"{row['jobs']:,}", f"{row['in_store']:,}", *cells)
    console.print(table)
    left = found["jobs"] - found["in_store"]
    jobs, runs = counted(found["jobs"], "job"), counted(found["runs"], "run")
    console.print(f"\n{jobs} of {runs}, {left:,} to compute.")
    if left and found["without_time"] < left:
        least = "At least " if found["without_time"] else "About "
        together = ""
        if found["workers"]:
            time = duration(found["seconds"] / found["workers"])
            together = f": {time} with {counted(found['workers'], 'worker')}"
        time, room = duration(found["seconds"]), size(found["bytes"])
        console.print(f"{least}{time} of work{together}; {room} of disk.")
        basis = "earlier jobs took" if found["measured"] == 0 else "was measured here"
        if 0 < found["measured"] < left - found["without_time"]:
            basis = "earlier jobs took, and what was measured here"
        console.print(f"[dim]By what {basis}; a busy machine takes longer.[/dim]")
    for sentence in found["not_known"]:
        console.print(f"Not known: {sentence}.", markup=False, highlight=False)


def _amount(words: str, unknown: int, left: int) -> str:
    """What is known, and that something is not."""
    if not left:
        return "-"
    return "not known" if unknown == left else f"{words}{' + ?' if unknown else ''}"
