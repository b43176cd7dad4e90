"""Trackers are told how far a sweep is, and never disturb it."""

from __future__ import annotations

import contextlib
import io
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from memloc.engine import tracking
from memloc.engine.job import Job
from memloc.engine.progress import Progress, Silent
from memloc.engine.store.store import Store
from memloc.engine.sweep_view import SweepLog
from memloc.engine.tracker_process import TrackerError, TrackerProcess
from memloc.engine.tracking import Tracked, make_tracked
from memloc.errors import MemlocError

SPLITS = ("train", "noisy", "clean", "validation")


class Recorder:
    """A tracker that remembers."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.threads: set[int] = set()
        self.finished = self.stopped = 0

    def init(self, **values: Any) -> None:
        self.begun.append(values)
        self.threads.add(threading.get_ident())

    def log(self, values: dict[str, Any]) -> None:
        self.messages.append(values)
        self.times.append(time.monotonic())
        self.threads.add(threading.get_ident())

    def finish(self) -> None:
        self.finished += 1

    def stop(self) -> None:
        self.stopped += 1


class Noting(Silent):
    """Remembers notes, and what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.calls: list[str] = []

    def note(self, words: str) -> None:
        self.notes.append(words)

    def start(self, job: Job) -> None:
        self.calls.append(f"start {job.title}")

    def advance(self, job: Job, fraction: float) -> None:
        self.calls.append(f"advance {job.title} {fraction}")

    def finish(self, job: Job) -> None:
        self.calls.append(f"finish {job.title}")

    def fail(self, job: Job, words: str) -> None:
        self.calls.append(f"fail {job.title}: {words}")

    def drop(self, job: Job) -> None:
        self.calls.append(f"drop {job.title}")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs" / "store")


def trained(store: Store, number: int, epochs: int = 3, title: str | None = None) -> Job:
    """A training with its learning curve in the store."""
    job = Job("train", title or f"θ_M: train (x), seed {number}", {"number": number})
    rows = [
        {"epoch": epoch, "split": split, "loss": 1.0, "accuracy": epoch / 10 + k / 100}
        for epoch in range(1, epochs + 1)
        for k, split in enumerate(SPLITS)
    ]
    with store.write(*job.artefact, job.inputs, {"seconds": 1.0}) as draft:
        draft.table("history.parquet", pd.DataFrame(rows))
    return job


def work(progress: Progress, jobs: list[Job], bad: Job | None = None) -> None:
    with progress.showing(jobs):
        for job in jobs:
            progress.start(job)
            progress.advance(job, 0.5)
            time.sleep(0.05)
            if job is bad:
                progress.fail(job, f"{job.title} failed: bad\nluck")
            else:
                progress.finish(job)


def test_counts_curves_and_failures_are_sent(store: Store) -> None:
    jobs = [trained(store, 1), trained(store, 2), Job("window", "layer 1", {})]
    recorder, shown = Recorder(), Noting()
    work(Tracked(shown, recorder, "mine", store, every=0.02), jobs, bad=jobs[2])
    assert recorder.begun == [
        {
            "project": "memloc",
            "name": "mine",
            "config": {"jobs": {"training": 2, "retrained window": 1}},
        }
    ]
    assert recorder.finished == recorder.stopped == 1
    counts = [[m[f"jobs/{s}"] for s in ("done", "running", "failed")] for m in recorder.messages]
    assert counts[0][0] == 0
    assert counts[-1] == [2, 0, 1]
    for title in ("θ_M_train_x_seed_1", "θ_M_train_x_seed_2"):
        rows = [m for m in recorder.messages if f"{title}/epoch" in m]
        assert [row[f"{title}/epoch"] for row in rows] == [1, 2, 3]
        for k, split in enumerate(SPLITS):
            found = [row[f"{title}/{split}"] for row in rows]
            assert found == pytest.approx([e / 10 + k / 100 for e in (1, 2, 3)])
    told = [m["failures"] for m in recorder.messages if "failures" in m]
    assert told == ["layer 1 failed: bad luck"]
    assert len(recorder.threads) == 1
    assert threading.get_ident() not in recorder.threads
    assert not shown.notes
    assert shown.calls[:3] == [
        f"start {jobs[0].title}", f"advance {jobs[0].title} 0.5", f"finish {jobs[0].title}"
    ]  # fmt: skip
    assert shown.calls[-1].startswith("fail layer 1: ")


def test_messages_are_rare_however_fast_jobs_are(store: Store) -> None:
    recorder = Recorder()
    jobs = [Job("window", f"window {n}", {"n": n}) for n in range(500)]
    progress = Tracked(Silent(), recorder, "mine", store, every=0.1)
    started = time.monotonic()
    with progress.showing(jobs):
        for job in jobs:
            progress.start(job)
            progress.finish(job)
            time.sleep(0.001)
    seconds = time.monotonic() - started
    gaps = [b - a for a, b in zip(recorder.times[:-1], recorder.times[1:-1], strict=False)]
    assert len(recorder.messages) <= seconds / 0.1 + 2
    assert all(gap > 0.09 for gap in gaps)


def test_trainings_of_one_title_are_told_apart(store: Store) -> None:
    jobs = [trained(store, number, title="same") for number in (1, 2)]
    recorder = Recorder()
    work(Tracked(Silent(), recorder, "mine", store, every=0.01), jobs)
    names = {key.partition("/")[0] for m in recorder.messages for key in m if "/epoch" in key}
    assert names == {"same", f"same_{jobs[1].key[:6]}"}


def test_a_curve_that_is_gone_is_left_out(store: Store) -> None:
    recorder = Recorder()
    work(Tracked(Silent(), recorder, "mine", store, every=0.01), [Job("train", "gone", {})])
    assert recorder.finished == 1
    assert recorder.messages[-1]["jobs/done"] == 1


@pytest.mark.parametrize("where", ["init", "log", "finish"])
def test_a_tracker_that_fails_is_noted_once_and_the_sweep_goes_on(store: Store, where: str) -> None:
    recorder, shown = Recorder(), Noting()

    def broken(*_: Any, **__: Any) -> None:
        raise ConnectionError("no\nnetwork")

    setattr(recorder, where, broken)
    jobs = [Job("window", f"window {n}", {"n": n}) for n in range(4)]
    progress = Tracked(shown, recorder, "mine", store, every=0.01)
    for _ in range(2):  # several rounds of one sweep
        work(progress, jobs)
    assert shown.notes == ["tracking has stopped, the sweep goes on: no network"]
    assert sum(call.startswith("finish") for call in shown.calls) == 8


@contextlib.contextmanager
def stuck(recorder: Recorder) -> Iterator[None]:
    """A tracker that waits for a network for ever."""
    free = threading.Event()
    recorder.log = lambda values: free.wait() and None  # type: ignore[method-assign]
    yield
    free.set()


def test_a_tracker_that_hangs_delays_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "LAST_WAIT", 0.3)
    recorder, shown = Recorder(), Noting()
    jobs = [Job("window", f"window {n}", {"n": n}) for n in range(4)]
    with stuck(recorder):
        started = time.monotonic()
        work(Tracked(shown, recorder, "mine", store, every=0.01), jobs)
        assert time.monotonic() - started < 2
    assert recorder.stopped == 1
    assert len(shown.notes) == 1


def test_after_ctrl_c_nobody_waits_for_a_tracker(store: Store) -> None:
    recorder = Recorder()
    progress = Tracked(Silent(), recorder, "mine", store, every=0.01)
    with stuck(recorder):
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt), progress.showing([Job("window", "w", {})]):
            raise KeyboardInterrupt
        assert time.monotonic() - started < 2
    assert recorder.stopped == 1


def test_a_missing_package_is_one_sentence(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MemlocError, match=r"pip install 'memloc\[wandb\]'"):
        make_tracked(Silent(), "wandb", "mine", store)


def test_a_folder_of_the_name_of_a_package_is_not_the_package(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if any(Path(folder, "wandb", "__init__.py").exists() for folder in sys.path):
        pytest.skip("wandb is installed")
    (tmp_path / "wandb").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MemlocError, match="needs the package wandb"):
        make_tracked(Silent(), "wandb", "mine", store)


FAKE = """
import json, os, sys
def init(project, name, config):
    print("hello from the tracker")
    global out
    out = open(os.environ["TRACKED"], "a")
    assert not sys.stdin.isatty()
    if name == "bad":
        sys.exit("not\\nlogged in")
def log(values): out.write(json.dumps(values) + "\\n")
def finish(): out.write("finished\\n"); out.close()
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package for the tracker's process, as real ones may not be installed."""
    (tmp_path / "fake_tracker.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    monkeypatch.setenv("TRACKED", str(tmp_path / "tracked"))
    return tmp_path / "tracked"


def test_the_process_passes_messages_on_and_keeps_what_is_printed(
    fake: Path, store: Store, tmp_path: Path
) -> None:
    log = tmp_path / "runs" / "tracking.log"
    work(
        Tracked(Silent(), TrackerProcess("fake_tracker", log), "x", store, 0.1), [trained(store, 1)]
    )
    lines = fake.read_text().splitlines()
    assert lines[-1] == "finished"
    assert '"jobs/done": 1' in lines[-2]
    assert "hello from the tracker" in log.read_text()


def test_the_process_says_why_it_ended(fake: Path, store: Store, tmp_path: Path) -> None:
    process = TrackerProcess("fake_tracker", tmp_path / "tracking.log")
    process.init(project="memloc", name="bad", config={})
    with pytest.raises(TrackerError, match=r"^not logged in$"):
        process.finish()
    absent = TrackerProcess("no_such_tracker", tmp_path / "tracking.log")
    absent.init(project="memloc", name="x", config={})
    with pytest.raises(TrackerError, match="No module named 'no_such_tracker'"):
        absent.finish()


def test_the_process_can_be_stopped_at_any_time(fake: Path, tmp_path: Path) -> None:
    process = TrackerProcess("fake_tracker", tmp_path / "tracking.log")
    process.stop()
    process.init(project="memloc", name="x", config={})
    process.stop()
    assert process.process is not None
    assert process.process.wait(timeout=5) < 0


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_the_real_trackers_take_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Any
) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed: pip install {name}")
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    stream = io.StringIO()
    jobs = [trained(store, 1), Job("window", "layer 1", {})]
    progress = make_tracked(SweepLog(Console(file=stream)), name, "mine", store)
    work(progress, jobs, bad=jobs[1])
    assert "tracking has stopped" not in stream.getvalue()
    assert "end: 1 of 2 done" in stream.getvalue()
    if name == "wandb":
        (run,) = (tmp_path / "runs" / "wandb").glob("offline-run-*/*.wandb")
        content = run.read_bytes()
    else:
        with contextlib.closing(sqlite3.connect(tmp_path / "trackio" / "memloc.db")) as base:
            content = str(base.execute("select metrics from metrics").fetchall()).encode()
    assert b"jobs/done" in content
    assert (
        "θ_M_train_x_seed_1/validation".encode() in content
        or b"_M_train_x_seed_1/validation" in content
    )
    assert b"layer 1 failed: bad luck" in content
