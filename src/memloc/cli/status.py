"""`memloc status`: how far a sweep or a run is, from another terminal or machine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from memloc.cli.output import Json, make_console, print_json

SHOWN = 10
"""Running jobs, and reasons of failures, that are listed."""


def status_command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The --runs folder, or runs/sweeps/NAME.")
    ] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Show how far sweeps and runs are: what is done, runs and failed, and the time left.

    Only reads files, so it works in another terminal, or on any machine that sees the folder.
    """
    from memloc.engine.status import find_status, read_status

    found = [read_status(path) for path in find_status(folder)]
    if as_json:
        print_json({"status": found})
        return
    console = make_console()
    finished = [one for one in found if _is_done(one)]
    for one in finished[-SHOWN:]:
        _line(console, f"{_title(one)}: all {one['total']['done']:,} jobs done")
    for one in found:
        if one not in finished:
            _show(one, console)


def _is_done(status: dict[str, Any]) -> bool:
    return not status["working"] and status["total"]["done"] == sum(status["total"].values())


def _title(status: dict[str, Any]) -> str:
    return f"{status['what'].capitalize()} {status['name']}"


def _line(console: Console, words: str, style: str = "") -> None:
    console.print(words, style=style, markup=False, highlight=False, soft_wrap=True)


def _show(status: dict[str, Any], console: Console) -> None:
    from memloc.engine.progress import STATES
    from memloc.report.progress_view import count_table, running_line

    total = status["total"]
    _line(console, f"{_title(status)}: {total['done']:,} of {sum(total.values()):,} jobs", "bold")
    counts = {
        kind: Counter({state: of_kind[state.replace(" ", "_")] for state in STATES})
        for kind, of_kind in status["kinds"].items()
    }
    console.print(count_table(counts))
    for one in status["running"][:SHOWN]:
        console.print(running_line(one["fraction"], one["seconds"], one["title"], console.width))
    others = total["running"] - len(status["running"][:SHOWN])
    if others > 0:
        _line(console, f"  and {others:,} more are running", "dim")
    if status["failures"]:
        _line(console, "Failed:", "bold")
    for failed in status["failures"][:SHOWN]:
        more = f" (and {failed['jobs'] - 1:,} more like it)" if failed["jobs"] > 1 else ""
        _line(console, f"- {failed['title']}: {failed['reason']}{more}")
        if failed["log"] is not None:
            _line(console, f"  log: {failed['log']}")
    others = len(status["failures"]) - SHOWN
    if others > 0:
        _line(console, f"- and {others:,} more reasons")
    _line(console, _outlook(status))


def _outlook(status: dict[str, Any]) -> str:
    from memloc.engine.progress import Left

    left = str(Left(status["seconds_left"], status["rough"]))
    words = f"{left[0].upper()}{left[1:]}"
    workers = f"; {status['workers']}" if status["workers"] else ""
    if status["total"]["running"]:
        return f"{words}, with {status['total']['running']:,} at once{workers}."
    if status["working"]:
        return f"No job is running now{workers or '; waiting for workers'}. {words}."
    return f"Nothing is running; start `memloc {status['what']}` again to go on."
