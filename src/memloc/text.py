"""How numbers, sizes, durations and lists are worded, and how a text becomes a file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

LARGEST_NUMBER = 1e18


def parse_json(text: str | bytes) -> Any:
    """JSON that memloc wrote: all numbers are finite, and none is larger than any it counts.

    Raises:
        ValueError: If it is something else.
    """

    def number(digits: str) -> int | float:
        value = float(digits)
        if not math.isfinite(value) or abs(value) > LARGEST_NUMBER:
            raise ValueError(f"{digits[:20]!r} is no number that memloc writes")
        return int(digits) if digits.lstrip("-").isdecimal() else value

    return json.loads(text, parse_int=number, parse_float=number, parse_constant=number)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 job`, `1,234 jobs`; a plural that does not end in s is given."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def listed(names: Sequence[object], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    *front, end = map(str, names)
    return f"{', '.join(front)} {last} {end}" if front else end


def percent(share: float | None, digits: int = 0) -> str | None:
    """`12%`; None stays None."""
    return None if share is None else f"{share:.{digits}%}"


def duration(seconds: float) -> str:
    """`40 seconds`, `12 minutes`, `3 hours and 20 minutes`, `2 days and 4 hours`."""
    import humanize

    unit = "seconds" if seconds < 60 else "minutes" if seconds < 2 * 86_400 else "hours"
    return humanize.precisedelta(
        round(max(seconds, 0)), minimum_unit=unit, suppress=("months", "years"), format="%.0f"
    )


def clock(seconds: float) -> str:
    """`0:01:05`, for columns of times."""
    return str(timedelta(seconds=round(max(seconds, 0))))


def size(number: float) -> str:
    """Bytes: `30 MB`, `1.2 GB`; a MB is a million bytes."""
    import humanize

    return humanize.naturalsize(number, format="%.3g")


def one_line(words: str) -> str:
    """Without line ends and control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())


def shortened(words: str, width: int) -> str:
    """Without its middle if it is too long: what tells titles apart is mostly at their end."""
    if len(words) <= width:
        return words
    head = width // 3
    return f"{words[:head]}…{words[len(words) - (width - head - 1) :]}"


def write_whole(path: Path, text: str) -> None:
    """Write a file so that readers see the whole text or what was there before, never a part.

    Raises:
        OSError: If it cannot be written; nothing is left behind then.
    """
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8", errors="replace")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
