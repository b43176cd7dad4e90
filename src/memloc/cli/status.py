"""`memloc status`: how far a sweep is, from another terminal or machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from memloc.cli.output import Json, make_console, print_json

if TYPE_CHECKING:
    from memloc.engine.status import SweepStatus

SHOWN = 10
"""Running jobs, and reasons of failures, that are listed."""


def status_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="The --runs folder of a sweep, or runs/sweeps/NAME for one sweep."
        ),
    ] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Show how far a sweep is: what is done, who works on what, what failed, the time left.

    Only reads files, so it works in another terminal, or on any machine that sees the folder.
    """
    from memloc.engine.status import find_sweeps, status_of

    found = [status_of(sweep) for sweep in find_sweeps(folder)]
    if as_json:
        print_json({"sweeps": [_as_json(status) for status in found]})
        return
    console = make_console()
    for number, status in enumerate(found):
        if number:
            console.print()
        _show(status, console)


def _show(status: SweepStatus, console: Console) -> None:
    from memloc.engine.sweep_view import count_table, one_line

    def line(words: str, style: str = "", indent: str = "") -> None:
        text = indent + one_line(words)
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    sums = status.sums
    line(f"Sweep {status.name}: {sums['done']:,} of {sums.total():,} jobs done", "bold")
    console.print(count_table(status.counts))
    if status.running:
        hosts = len({holder.host for _, holder in status.running})
        line(f"Running on {hosts} machine{'s' if hosts > 1 else ''}:", "bold")
        for words in _running(status, console.width):
            console.print(words, markup=False, highlight=False)
    if status.failures:
        line("Failed:", "bold")
    for failed in status.failures[:SHOWN]:
        more = f" (and {failed.number - 1:,} more like it)" if failed.number > 1 else ""
        line(f"- {failed.title}: {failed.reason}{more}")
        if failed.log is not None:
            line(f"log: {failed.log}", indent="  ")
    others = sum(failed.number for failed in status.failures[SHOWN:]) + status.unread
    if others:
        line(f"- and {others:,} more")
    line(_outlook(status))


def _running(status: SweepStatus, width: int) -> list[str]:
    from memloc.engine.status import age_of
    from memloc.engine.sweep_view import cut, one_line
    from memloc.engine.tally import duration

    lines = []
    for job, holder in status.running[:SHOWN]:
        age = age_of(holder)
        front = f"  {cut(one_line(holder.host or '?'), 20)}  "
        front += "" if age is None else f"{duration(age):>6}  "
        lines.append(front + cut(one_line(job.title), width - len(front)))
    others = len(status.running) - SHOWN
    return [*lines, f"  and {others:,} more"] if others > 0 else lines


def _outlook(status: SweepStatus) -> str:
    sums = status.sums
    if sums["done"] == sums.total():
        return "Everything is done."
    if sums["running"]:
        words = status.left.words
        return f"{words[0].upper()}{words[1:]}, with {sums['running']:,} at once."
    words = "Nothing is running; start `memloc sweep` again to go on"
    if status.left.seconds is None:
        return f"{words}."
    return f"{words} ({status.left.words}, one job at a time)."


def _as_json(status: SweepStatus) -> dict[str, Any]:
    from memloc.engine.status import age_of

    return {
        "name": status.name,
        "folder": str(status.folder),
        "kinds": {kind: _counts(counts) for kind, counts in status.counts.items()},
        "total": _counts(status.sums),
        "running": [
            {
                "kind": job.kind,
                "key": job.key,
                "title": job.title,
                "host": holder.host,
                "process": holder.pid,
                "seconds": age_of(holder),
            }
            for job, holder in status.running
        ],
        "failures": [
            {
                "title": failed.title,
                "reason": failed.reason,
                "jobs": failed.number,
                "log": failed.log and str(failed.log),
                "host": failed.host,
                "time": failed.time,
            }
            for failed in status.failures
        ],
        "seconds_left": status.left.seconds,
        "rough": status.left.rough,
    }


def _counts(counts: Any) -> dict[str, int]:
    from memloc.engine.tally import STATES

    return {state.replace(" ", "_"): counts[state] for state in STATES}
