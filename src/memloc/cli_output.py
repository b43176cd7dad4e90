"""What all commands print alike."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import typer
from rich.console import Console


def report_failures(summary: dict[str, Any]) -> None:
    """Results were shown, but some are missing: say which, and end with exit code 2."""
    for sentence in summary["failures"]:
        print(f"memloc: {sentence}", file=sys.stderr)
    if summary["failures"]:
        raise typer.Exit(2)


def make_console() -> Console:
    """Standard output; 80 columns where the width is unknown."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=80)


def print_json(value: Any) -> None:
    """JSON on standard output."""
    print(json.dumps(value, indent=1, ensure_ascii=False))


@contextlib.contextmanager
def interruptible(words: str) -> Iterator[None]:
    """Ctrl-C ends long work with a sentence."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nmemloc: interrupted; {words}", file=sys.stderr, flush=True)
        raise typer.Exit(130) from None
