"""What a terminal shows while work goes on, in 80 columns."""

from __future__ import annotations

import io

from rich.console import Console

from memloc.engine.job import Job
from memloc.engine.progress import Progress
from memloc.engine.views import LogLines
from memloc.report.progress_view import LiveTable, make_progress, picture
from tests.engine.test_progress import failure


def job(kind: str, number: int, title: str | None = None) -> Job:
    return Job(kind, title or f"{kind} {number}", {"number": number})


def on_terminal() -> tuple[Progress, io.StringIO]:
    stream = io.StringIO()
    progress = make_progress(Console(file=stream, force_terminal=True, width=80, height=24))
    (view,) = progress.views
    assert isinstance(view, LiveTable)
    progress.now = lambda: 0.0
    return progress, stream


def lines_of(progress: Progress) -> list[str]:
    plain = Console(file=io.StringIO(), width=80, height=24)
    plain.print(picture(progress.snapshot(), plain))
    assert isinstance(plain.file, io.StringIO)
    return [line.rstrip() for line in plain.file.getvalue().splitlines()]


def test_without_a_terminal_there_are_lines() -> None:
    (view,) = make_progress(Console(file=io.StringIO())).views
    assert isinstance(view, LogLines)


def test_the_table_counts_by_kind_and_shows_what_runs() -> None:
    progress, _ = on_terminal()
    long = job("train", 9, f"θ_M: train on perturbed labels ({'very long ' * 10}, seed 9) [x]")
    trainings = [job("train", n) for n in range(4)]
    windows = [job("window", n) for n in range(1000)]
    with progress.showing([*windows, *trainings, long]):
        for one in (*trainings, long):
            progress.start(one)
        progress.advance(long, 0.5)
        progress.finish(trainings[0])
        progress.fail(trainings[1], failure(trainings[1], "bad luck"))
        progress.drop(windows[0])
        progress.workers = "3 workers pending"
        lines = lines_of(progress)
    assert lines[0].endswith("  0% 0:00:00, estimating the time left")
    assert lines[1] == "1 of 1,005 done, 3 running, 1 failed, 1 left out; 3 workers pending"
    assert lines[2].split() == ["done", "running", "failed", "left", "out", "waiting"]
    assert lines[3].split() == ["training", "1", "3", "1", "·", "·"]
    assert lines[4].split() == ["retrained", "window", "·", "·", "·", "1", "999"]
    assert lines[5:7] == ["  0%  0:00:00  train 2", "  0%  0:00:00  train 3"]
    assert lines[7].startswith(" 50%  0:00:00  θ_M: train on perturb…")
    assert lines[7].endswith("seed 9) [x]")
    assert len(lines) == 8
    assert all(len(line) <= 80 for line in lines)


def test_the_terminal_keeps_notes_failures_and_the_end_and_no_table() -> None:
    progress, stream = on_terminal()
    one = job("train", 1)
    with progress.showing([one]):
        progress.start(one)
        progress.note("the disk is [slow]")
        progress.fail(one, failure(one, "bad luck"))
    text = stream.getvalue()
    assert "Note: the disk is [slow]" in text
    assert "train 1 failed: bad luck" in text
    assert text.rstrip().endswith(
        "[0:00:00] end: 0 of 1 done, 1 failed in 0 seconds; running again tries what failed once "
        "more"
    )
