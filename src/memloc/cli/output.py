"""What all commands print alike."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from memloc.tables import REPORT

if TYPE_CHECKING:
    from memloc.api.result import Result

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Open = Annotated[bool, typer.Option("--open", help="Open the report in a browser.")]


def report_failures(failures: list[str], code: int) -> None:
    """Results were shown, but some are missing: say which, and end with an exit code."""
    for sentence in failures:
        print(f"memloc: {sentence}", file=sys.stderr)
    if failures:
        raise typer.Exit(code)


def make_console(stderr: bool = False) -> Console:
    """Standard output, or standard error; 80 columns where the width is unknown.

    Names and texts of others are printed as they are: `[bold]` is no markup here.
    """
    plain = partial(Console, highlight=False, markup=False, emoji=False, stderr=stderr)
    console = plain()
    return console if console.is_terminal else plain(width=80)


def print_json(value: Any) -> None:
    """JSON on standard output."""
    print(json.dumps(value, indent=1, ensure_ascii=False))


STOPPED = (130, 143)
"""Exit codes after Ctrl-C and after SIGTERM."""
CLEAN_UP = 6.0
"""Seconds after a signal in which further ones count for nothing; the clean-up takes less."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM, as clusters send it: whoever cleans up after Ctrl-C does so after this too."""


@contextlib.contextmanager
def interruptible(words: str) -> Iterator[None]:
    """Ctrl-C and SIGTERM end long work with a sentence, after it has cleaned up."""
    with _first_signal():
        try:
            yield
        except KeyboardInterrupt as signalled:
            terminated = isinstance(signalled, _Terminated)
            how = "terminated" if terminated else "interrupted"
            print(f"\nmemloc: {how}; {words}", file=sys.stderr, flush=True)
            raise typer.Exit(STOPPED[terminated]) from None


@contextlib.contextmanager
def _first_signal() -> Iterator[None]:
    """One of these signals is an exception, others soon after it do not disturb the clean-up."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the business of whoever started the thread
        return
    last = -math.inf

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal last
        # Not once and for all: Python drops exceptions in finalisers, where this may happen to be.
        if time.monotonic() - last >= CLEAN_UP:
            last = time.monotonic()
            raise _Terminated if number == signal.SIGTERM else KeyboardInterrupt

    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            # What is ignored stays so: a shell ignores Ctrl-C for what it runs in the background.
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def write_beside(result: Result) -> Path | None:
    """Write the report of a finished run; if that fails, say so, as the results are there."""
    folder = result.folder or Path()
    try:
        return result.report(folder / REPORT)
    # Whatever it is, hours of work must not end in an error because of a page.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        with contextlib.suppress(OSError):
            (folder / REPORT).unlink()  # it may be of a part of the results
        print(
            f"memloc: no report was written ({reason}); the results are complete, "
            f"`memloc report {folder}` tries again",
            file=sys.stderr,
        )
        return None


def write_first(result: Result, pending: Sequence[str]) -> Path | None:
    """Write the report of a part of a run; None if it cannot be written, as the end will tell.

    Nothing else goes to the folder, so no command takes it for a result. A folder that has one
    keeps its page until the new one is complete.
    """
    folder = result.folder or Path()
    if (folder / "summary.json").exists():
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return result.report(folder / REPORT, pending)
    except Exception:
        return None


def open_report(place: Path) -> None:
    """Show it in the browser; say so if there is none."""
    import webbrowser

    if not webbrowser.open(place.absolute().as_uri()):
        print(f"memloc: no browser was found; open {place} yourself", file=sys.stderr)
