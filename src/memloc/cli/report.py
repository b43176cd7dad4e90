"""`memloc report`: results as an interactive page; `run` and `localise` end with it too."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from memloc.cli.options import option

Open = Annotated[bool, option("--open", "Open the report in a browser.")]


def report_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Results of `memloc run` or `memloc localise`, or a folder of such.",
        ),
    ] = Path("runs"),
    out: Annotated[
        Path | None,
        option("--out", "File to write (default: DIR/report.html).", None, False),
    ] = None,
    open_it: Open = False,
) -> None:
    """Write the results as one interactive HTML page that needs no network.

    Several runs in one folder also get a part that compares them.
    """
    from memloc.paper.scorecard import page_claims
    from memloc.report.page import write_report

    place = write_report(folder, out, page_claims)
    print(f"Report: {place}")
    if open_it:
        open_report(place)
    else:
        print("  open it in a browser, or let --open do so")


def write_beside(folder: Path) -> Path | None:
    """Write the report of a finished run; if that fails, say so, as the results are there."""
    try:
        from memloc.report.page import write_report

        return write_report(folder)
    # Whatever it is, hours of work must not end in an error because of a page.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        print(
            f"memloc: no report was written ({reason}); the results are complete, "
            f"`memloc report {folder}` tries again",
            file=sys.stderr,
        )
        return None


def tell_report(place: Path | None, console: Console, open_it: bool) -> None:
    """The last lines: where the report is and how to open it."""
    if place is None:
        return
    console.print(f"Report: {place}", soft_wrap=True, highlight=False, markup=False)
    if not open_it:
        console.print("  open it in a browser, or add --open", style="dim", highlight=False)


def open_report(place: Path) -> None:
    """Show it in the browser; say so if there is none."""
    import webbrowser

    if not webbrowser.open(place.absolute().as_uri()):
        print(f"memloc: no browser was found; open {place} yourself", file=sys.stderr)
