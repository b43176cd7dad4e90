"""Trackers are told how far a sweep is, and never disturb it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from memloc.engine.job import Job
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.engine.views import Tracker, check_tracker
from memloc.errors import MemlocError
from tests.engine.same_results import Recorder
from tests.engine.test_progress import failure

SPLITS = ("train", "noisy", "clean", "validation")


class FakePackage:
    """What trackio and wandb have in common, and a memory."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []

    def init(self, **values: Any) -> None:
        print("hello from the tracker")
        self.begun.append(values)

    def log(self, values: dict[str, Any]) -> None:
        self.messages.append(values)

    def finish(self) -> None:
        pass


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> FakePackage:
    package = FakePackage()
    monkeypatch.setitem(sys.modules, "fake_tracker", package)  # type: ignore[arg-type]
    for name in ("WANDB_DIR", "WANDB_CONSOLE", "WANDB_SILENT"):
        monkeypatch.setenv(name, "")
    return package


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs" / "store")


def trained(store: Store, number: int, title: str | None = None) -> Job:
    """A training with its learning curve in the store."""
    job = Job("train", title or f"θ_M: train (x), seed {number}", {"number": number})
    rows = [
        {"epoch": epoch, "split": split, "loss": 1.0, "accuracy": epoch / 10 + k / 100}
        for epoch in (1, 2, 3)
        for k, split in enumerate(SPLITS)
    ]
    with store.write(*job.artefact, job.inputs, {"seconds": 1.0}) as draft:
        draft.table("history.parquet", pd.DataFrame(rows))
    return job


def work(progress: Progress, jobs: list[Job], bad: Job | None = None) -> None:
    with progress.showing(jobs):
        for job in jobs:
            progress.start(job)
            if job is bad:
                progress.fail(job, failure(job, "bad\nluck"))
            else:
                progress.finish(job)


def test_counts_curves_and_failures_are_sent(package: FakePackage, store: Store, capsys) -> None:
    jobs = [trained(store, 1), trained(store, 2), Job("window", "layer 1", {})]
    work(Progress(Tracker("fake_tracker", "mine", store)), jobs, bad=jobs[2])
    jobs_by_kind = {"training": 2, "retrained window": 1}
    assert package.begun == [
        {"project": "memloc", "name": "mine", "config": {"jobs": jobs_by_kind}}
    ]
    counts = next(m for m in package.messages if "failures" in m)
    assert (counts["jobs/done"], counts["jobs/failed"], counts["jobs/running"]) == (2, 1, 0)
    assert counts["failures"] == "layer 1 failed: bad luck"
    for title in ("θ_M_train_x_seed_1", "θ_M_train_x_seed_2"):
        rows = [m for m in package.messages if f"{title}/epoch" in m]
        assert [row[f"{title}/epoch"] for row in rows] == [1, 2, 3]
        for k, split in enumerate(SPLITS):
            found = [row[f"{title}/{split}"] for row in rows]
            assert found == pytest.approx([e / 10 + k / 100 for e in (1, 2, 3)])
    assert capsys.readouterr() == ("", "hello from the tracker\n")


@pytest.mark.parametrize(
    ("where", "error"),
    [("init", SystemExit("no network")), ("log", ConnectionError("no\nnetwork"))],
)
def test_a_tracker_that_fails_is_noted_once_and_the_sweep_goes_on(
    package: FakePackage, store: Store, where: str, error: BaseException
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise error

    setattr(package, where, broken)
    progress = Recorder()
    progress.views.append(Tracker("fake_tracker", "mine", store))
    jobs = [Job("window", f"window {n}", {"n": n}) for n in range(4)]
    for _ in range(2):  # several rounds of one sweep
        work(progress, jobs)
    assert progress.notes == ["tracking has stopped, the sweep goes on: no network"]
    assert progress.sums["done"] == 4


def test_a_missing_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no_such_tracker").mkdir()  # a folder of that name is not the package
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MemlocError, match=r"pip install 'memloc\[no_such_tracker\]'"):
        check_tracker("no_such_tracker")


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_the_real_trackers_take_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Any
) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed: pip install {name}")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    jobs = [trained(store, 1), Job("window", "layer 1", {})]
    progress, tracker = Recorder(), Tracker(name, "mine", store)
    progress.views.append(tracker)
    work(progress, jobs, bad=jobs[1])
    tracker.finish()
    assert progress.notes == []
