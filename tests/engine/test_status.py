"""`memloc status`: how far a sweep or a run is, from one small file."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from memloc.engine.job import Job
from memloc.engine.progress import Progress
from memloc.engine.store.locks import Locks
from memloc.engine.store.store import Store
from memloc.engine.views import StatusFile, read_status, run_status
from tests.conftest import assert_one_sentence
from tests.engine.test_progress import failure, job


class Work:
    """A sweep or run that is told what becomes of its jobs, and the file it keeps."""

    def __init__(self, runs: Path, path: str, name: str, what: str = "sweep", jobs: int = 5):
        self.path = runs / path
        self.view = StatusFile(self.path, name, what, Store(runs / "store"))
        self.progress = Progress()
        self.jobs = [job("train", n) for n in range(jobs)]
        for one in self.jobs:
            self.progress._becomes(one, "waiting")

    def save(self, working: bool = True, **changes: object) -> None:
        self.progress.working = working
        self.view.last = -100
        self.view.update(self.progress)
        if changes:
            found = json.loads(self.path.read_text())
            self.path.write_text(json.dumps({**found, **changes}))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def work(runs: Path) -> Work:
    return Work(runs, "sweeps/mine/status.json", "mine")


def test_done_running_failed_left_out_and_waiting_are_shown(memloc, runs: Path, work: Work) -> None:
    first, second, third, fourth, _ = work.jobs
    work.progress.finish(first)
    work.progress.fail(second, failure(second, "no memory", "failures/train-1.log"))
    work.progress.drop(third)
    work.progress.start(fourth)
    work.progress.advance(fourth, 0.5)
    work.save()
    code, out, _ = memloc("status", runs)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "Sweep mine"
    assert lines[1].endswith("0:00:00, estimating the time left")
    assert lines[2] == "1 of 5 done, 1 running, 1 failed, 1 left out"
    assert lines[3].split() == ["done", "running", "failed", "left", "out", "waiting"]
    assert lines[4].split() == ["training", "1", "1", "1", "1", "1"]
    assert lines[5].startswith(" 50% ")
    assert lines[5].endswith("train 3")
    assert lines[6:] == ["Failed: train 1: no memory; log: failures/train-1.log"]
    (found,) = json.loads(memloc("status", runs, "--json")[1])["status"]
    assert found["total"] == {"done": 1, "running": 1, "failed": 1, "left_out": 1, "waiting": 1}
    assert found["running"][0]["title"] == "train 3"


def test_with_workers_pending_it_does_not_say_that_nothing_is_running(
    memloc, runs: Path, work: Work
) -> None:
    work.save()
    assert "0 of 5 done; waiting for workers\n" in memloc("status", runs)[1]
    work.progress.workers = "4 wait in the queue"
    work.save()
    out = memloc("status", runs)[1]
    assert "0 of 5 done; waiting for workers; 4 wait in the queue\n" in out
    assert "Nothing is running" not in out


@pytest.mark.parametrize(
    "of_the_dead",
    [{"pid": 999_999_999}, {"host": "elsewhere", "time": time.time() - 3600}],
    ids=["gone", "silent"],
)
def test_nothing_runs_after_the_process_died(
    memloc, runs: Path, work: Work, of_the_dead: dict[str, object]
) -> None:
    work.progress.start(work.jobs[0])
    work.save(**of_the_dead)
    assert read_status(work.path)["total"]["running"] == 0
    out = memloc("status", runs)[1]
    assert out.splitlines()[-1] == "Nothing is running; start `memloc sweep` again to go on."
    with Locks(runs / "store").hold("train", "x"):  # a worker of a cluster goes on
        last = memloc("status", runs)[1].splitlines()[-1]
    assert last == (
        "The command is gone, but 1 job is being computed; start `memloc sweep` again to watch."
    )


def test_runs_have_a_status_too_and_what_is_done_takes_one_line(memloc, runs: Path) -> None:
    name = "reviews-minilm-1a2b3c4d"
    done = Work(runs, f"status/{name}.json", name, "run")
    for one in done.jobs:
        done.progress.finish(one)
    done.save(working=False)
    Work(runs, "sweeps/a/status.json", "a").save(working=False)
    Work(runs, "sweeps/b/status.json", "b", jobs=2).save(working=False)
    lines = memloc("status", runs)[1].splitlines()
    assert lines[0] == "Run reviews-minilm-1a2b3c4d: all 5 jobs done"
    assert lines[1] == "Sweep a"
    assert {"0 of 5 done", "Sweep b", "0 of 2 done"} < set(lines)
    assert "Sweep a" not in memloc("status", runs / "sweeps" / "b")[1]


def test_bad_folders_and_files_are_one_sentence(
    memloc, runs: Path, work: Work, tmp_path: Path
) -> None:
    assert_one_sentence(*memloc("status", tmp_path / "no"), "there is no folder")
    assert_one_sentence(*memloc("status", tmp_path), "one that has just begun is there once it is")
    work.path.parent.mkdir(parents=True)
    work.path.write_text("{}")
    assert_one_sentence(*memloc("status", runs), "cannot be read")


def test_the_file_follows_the_work_and_a_full_disk_does_not_stop_it(runs: Path) -> None:
    path = runs / "status" / "x.json"
    store = Store(runs / "store")
    progress = Progress(*run_status(store, "x", "run"))
    jobs = [Job("nap", f"nap {n}", {"n": n}) for n in range(2)]
    with progress.showing(jobs):
        assert read_status(path)["working"]
        progress.start(jobs[0])
        progress.finish(jobs[0])
    found = read_status(path)
    assert not found["working"]
    assert (found["total"]["done"], found["total"]["waiting"]) == (1, 1)
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]
    blocked = runs / "file"
    blocked.touch()
    with Progress(StatusFile(blocked / "x.json", "x", "run", store)).showing(jobs):
        pass
