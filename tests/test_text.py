"""Numbers, durations, sizes and lists as people write them."""

from __future__ import annotations

import pytest

from memloc.text import clock, counted, duration, listed, one_line, shortened, size


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "0 seconds"),
        (59.7, "1 minute"),
        (3570, "1 hour"),
        (12_000, "3 hours and 20 minutes"),
        (187_200, "2 days and 4 hours"),
        (30 * 86_400, "30 days"),
        (-1, "0 seconds"),
    ],
)
def test_durations_are_as_exact_as_needed(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_numbers_sizes_and_lists() -> None:
    assert (counted(1, "job"), counted(1234, "job")) == ("1 job", "1,234 jobs")
    assert counted(2, "training", "trainings in all") == "2 trainings in all"
    assert [listed(names) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]
    assert [size(n) for n in (10, 1500, 2e6, 3.44e9)] == ["10 Bytes", "1.5 kB", "2 MB", "3.44 GB"]
    assert clock(65) == "0:01:05"


def test_long_words_lose_their_middle_and_no_line_ends_are_left() -> None:
    assert shortened("short", 20) == "short"
    assert shortened("abcdefghijklmnopqrstuvwxyz", 10) == "abc…uvwxyz"
    assert one_line(" a\n b\x07 ") == "a b"
