"""What a sweep shows: a table in a terminal, lines in a log."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest
from rich.console import Console

from memloc.engine.job import Job
from memloc.engine.local import LocalExecutor
from memloc.engine.store.store import Store
from memloc.engine.sweep_view import (
    LIKE_IT,
    SweepLog,
    SweepTable,
    cut,
    make_sweep_progress,
    one_line,
)

STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[(\d+:)?\d+:\d\d\] ")


def job(kind: str, number: int, title: str | None = None) -> Job:
    return Job(kind, title or f"{kind} {number}", {"number": number})


def logged() -> tuple[SweepLog, io.StringIO]:
    stream = io.StringIO()
    progress = make_sweep_progress(Console(file=stream, width=80))
    assert isinstance(progress, SweepLog)
    return progress, stream


def table() -> tuple[SweepTable, Console]:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
    progress = make_sweep_progress(console)
    assert isinstance(progress, SweepTable)
    return progress, console


def picture(progress: SweepTable) -> list[str]:
    plain = Console(file=io.StringIO(), width=80, height=24)
    plain.print(progress.picture())
    assert isinstance(plain.file, io.StringIO)
    return [line.rstrip() for line in plain.file.getvalue().splitlines()]


def test_the_table_counts_by_kind_and_shows_what_runs() -> None:
    progress, _ = table()
    long = job("train", 9, f"θ_M: train on perturbed labels ({'very long ' * 10}, seed 9) [x]")
    trainings = [job("train", n) for n in range(4)]
    windows = [job("window", n) for n in range(1000)]
    with progress.showing([*windows, *trainings, long]):
        progress.tally.now = lambda: progress.tally.started
        for one in (*trainings, long):
            progress.start(one)
        progress.advance(long, 0.5)
        progress.finish(trainings[0])
        progress.fail(trainings[1], "train 1 failed: bad luck")
        progress.drop(windows[0])
        lines = picture(progress)
    assert lines[0] == (
        "0:00  1 of 1,005 done, 3 running, 1 failed, 1 left out, estimating the time left"
    )
    assert lines[1].split() == ["done", "running", "failed", "left", "out", "waiting"]
    assert lines[2].split() == ["training", "1", "3", "1", "·", "·"]
    assert lines[3].split() == ["retrained", "window", "·", "·", "·", "1", "999"]
    assert lines[4:6] == ["  0%     0:00  train 2", "  0%     0:00  train 3"]
    assert lines[6].startswith(" 50%     0:00  θ_M: train on perturb…")
    assert lines[6].endswith("seed 9) [x]")
    assert len(lines) == 7
    assert all(len(line) <= 80 for line in lines)


def test_a_table_with_many_running_jobs_fits_into_a_small_terminal() -> None:
    progress, _ = table()
    kinds = ("train", "control", "split", "states", "window", "localise", "explain", "speed")
    jobs = [job(kind, n) for kind in kinds for n in range(20)]
    with progress.showing(jobs):
        for one in jobs:
            progress.start(one)
        lines = picture(progress)
    assert len(lines) <= 20
    assert lines[-1] == "  and 155 more are running"


def test_the_terminal_keeps_failures_and_the_end_and_no_table() -> None:
    progress, console = table()
    one = job("train", 1)
    with progress.showing([one]):
        progress.start(one)
        progress.note("the disk is [slow]")
        progress.fail(one, "train 1 failed: bad luck")
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "[0:00] note: the disk is [slow]" in text
    assert "[0:00] train 1 failed: bad luck" in text
    assert text.rstrip().endswith(
        "[0:00] end: 0 of 1 done, 1 failed in 0 s; running again tries what failed once more"
    )


def test_one_job_is_not_jobs() -> None:
    progress, stream = logged()
    with progress.showing([Job("nap", "nap", {})]):
        pass
    assert "begin: 1 job (1 × nap)" in stream.getvalue()


def test_a_log_has_begin_now_and_then_a_line_and_the_end(tmp_path: Path) -> None:
    progress, stream = logged()
    progress.shortest = 0.2
    jobs = [Job("nap", f"nap {n}", {"n": n, "seconds": 0.3}) for n in range(3)]
    with LocalExecutor(Store(tmp_path / "store"), 1) as executor:
        outcome = executor.execute(jobs, progress)
    assert outcome.computed == 3
    lines = stream.getvalue().splitlines()
    assert all(STAMP.match(line) for line in lines)
    told = [STAMP.sub("", line) for line in lines]
    assert told[0] == "begin: 3 jobs (3 × nap)"
    assert re.fullmatch(r"end: 3 of 3 done in \d s", told[-1])
    assert len(told) >= 4
    for line in told[1:-1]:
        assert re.fullmatch(r"[0-3] of 3 done(, 1 running)?, estimating the time left", line)
    time.sleep(0.3)
    assert len(stream.getvalue().splitlines()) == len(lines), "lines after the end"


def test_lines_become_rare_with_the_hours() -> None:
    progress, _ = logged()
    waits = []

    class Event:
        def wait(self, seconds: float) -> bool:
            waits.append(seconds)
            return True

    for hours in (0, 0.1, 1, 3, 48):
        progress.tally.started = time.monotonic() - hours * 3600
        progress._tick(Event())  # type: ignore[arg-type]
    assert waits == pytest.approx([30, 30, 120, 360, 600], abs=0.1)


def test_a_line_says_what_is_being_worked_on() -> None:
    progress, _ = logged()
    jobs = [*(job("train", n) for n in range(3)), *(job("window", n) for n in range(2000))]
    with progress.showing(jobs):
        progress.start(jobs[0])
        progress.finish(jobs[0])
        progress.start(jobs[1])
        assert progress.line() == (
            "1 of 2,003 done, 1 running, estimating the time left (training 1/3)"
        )
        progress.tally.started -= 3600
        for one in jobs[3:1003]:
            progress.start(one)
            progress.tally.running[one.key].since -= 7.2
            progress.finish(one)
        line = progress.line()
    assert line.startswith("1,001 of 2,003 done, 1 running, about ")


def test_no_control_characters_reach_a_log() -> None:
    progress, stream = logged()
    one = job("train", 1)
    with progress.showing([one]):
        progress.note("two\nlines and \x1b[31mred\x1b[0m\r and a bell\a")
        progress.fail(one, "train 1 failed: x\ty")
    text = stream.getvalue()
    assert all(c.isprintable() for c in text.replace("\n", ""))
    assert len(text.splitlines()) == 4


def test_many_failures_for_one_reason_are_told_a_few_times() -> None:
    progress, stream = logged()
    jobs = [job("window", n) for n in range(50)]
    with progress.showing(jobs):
        for one in jobs:
            progress.start(one)
            progress.fail(one, f"{one.title} failed: no memory (details in {one.key}.log)")
    text = stream.getvalue()
    assert text.count("failed: no memory") == LIKE_IT
    assert text.count("further failures for this reason are only counted") == 1
    assert "end: 0 of 50 done, 50 failed" in text


def test_an_interrupted_sweep_says_how_far_it_came() -> None:
    progress, stream = logged()
    jobs = [job("window", n) for n in range(3)]
    with pytest.raises(KeyboardInterrupt), progress.showing(jobs):
        progress.start(jobs[0])
        progress.finish(jobs[0])
        progress.start(jobs[1])
        raise KeyboardInterrupt
    assert STAMP.sub("", stream.getvalue().splitlines()[-1]) == "stopped: 1 of 3 done in 0 s"


def test_messages_about_30000_jobs_cost_microseconds() -> None:
    jobs = [Job("window", f"job {n}", {"n": n}, group=f"g{n // 78}") for n in range(30_000)]
    progress, _ = logged()
    with progress.showing(jobs):
        started = time.process_time()
        for one in jobs:
            progress.start(one)
            progress.advance(one, 0.5)
            progress.finish(one)
        spent = time.process_time() - started
        started = time.process_time()
        progress.line()
        drawing = time.process_time() - started
    assert spent / (3 * len(jobs)) < 20e-6
    assert drawing < 0.05


def test_words_are_cut_in_the_middle() -> None:
    assert cut("short", 20) == "short"
    assert cut("abcdefghijklmnopqrstuvwxyz", 10) == "abc…uvwxyz"
    assert len(cut("x" * 50, 13)) == 13
    assert one_line(" a\n b\x07 ") == "a b"
