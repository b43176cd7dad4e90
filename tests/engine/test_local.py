"""Jobs in worker processes: same results, nothing lost, nothing computed twice."""

from __future__ import annotations

import io
import os
import resource
import shutil
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from memloc.api.experiments import run
from memloc.config import (
    DEFAULT_TECHNIQUES,
    Data,
    Engine,
    Model,
    Run,
    Training,
)
from memloc.data.load import load_task
from memloc.engine.compute import KINDS, train
from memloc.engine.device import visible_gpus
from memloc.engine.job import Job, write_task
from memloc.engine.local import LocalExecutor, default_workers
from memloc.engine.loop import CannotGoOn, JobFailed
from memloc.engine.plan import plan_run
from memloc.engine.progress import LogLines, Progress, Silent
from memloc.engine.store.store import Store
from memloc.models.names import resolve
from memloc.report.terminal import show_run
from memloc.training.loop import TrainingFailed
from tests.engine.same_results import Recorder, assert_nothing_left, naps, riddle

TASK = load_task(Data(task="reviews", limit=60))


def config(folder: Path, **training) -> Run:
    return Run(
        data=Data(task="reviews", limit=60),
        model=Model(name=str(folder)),
        training=Training(**{"epochs": 2, "learning_rate": 1e-3, **training}),
        techniques={"swapping": {}},
        explain=False,
    )


def read_tables(folder: Path) -> dict[str, pd.DataFrame]:
    tables = {path.stem: pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))}
    tables["costs"] = tables["costs"].drop(columns=["seconds", "peak_memory_bytes"])
    return tables


def assert_same_tables(one: Path, other: Path) -> None:
    tables, others = read_tables(one), read_tables(other)
    assert tables.keys() == others.keys()
    for name, table in tables.items():
        pd.testing.assert_frame_equal(table, others[name])


def test_worker_processes_and_this_process_give_identical_tables(
    tiny_folder: Path, tmp_path: Path
) -> None:
    one = run(config(tiny_folder), Engine(runs=tmp_path / "one", workers=1))
    two = run(config(tiny_folder), Engine(runs=tmp_path / "two", workers=2))
    assert one.summary["jobs"] == two.summary["jobs"] == {"computed": 4, "reused": 0}
    assert_same_tables(one.folder, two.folder)


def test_only_what_depends_on_a_changed_setting_is_planned_anew(
    tiny_folder: Path, tmp_path: Path
) -> None:
    store, done = Store(tmp_path / "store"), set()

    def new(changed: Run) -> int:
        data = write_task(store, load_task(changed.data))
        plan = plan_run(changed, data, resolve(changed.model), 3, {"device": "cpu"})
        found = {job.artefact for job in plan.jobs} - done
        done.update(found)
        return len(found)

    first = config(tiny_folder)
    assert new(first) == 4
    assert new(first) == 0
    # A second seed needs two trainings and one swapping; the frozen model is there.
    assert new(first.replace(seeds=(1, 2))) == 3
    # Other noise is other data: everything depends on it.
    assert new(first.replace(data=first.data.replace(noise=0.3))) == 4
    assert new(config(tiny_folder, epochs=3)) == 4
    assert new(first) == 0


@pytest.mark.slow
def test_only_what_depends_on_a_changed_setting_is_computed_again(
    tiny_folder: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"

    def jobs(changed: Run) -> dict[str, int]:
        return run(changed, Engine(runs=runs, workers=1)).summary["jobs"]

    first = config(tiny_folder)
    assert jobs(first) == {"computed": 4, "reused": 0}
    assert jobs(first) == {"computed": 0, "reused": 4}
    assert jobs(first.replace(seeds=(1, 2))) == {"computed": 3, "reused": 4}
    assert jobs(first.replace(data=first.data.replace(noise=0.3)))["computed"] == 4
    assert jobs(config(tiny_folder, epochs=3))["computed"] == 4
    assert jobs(first) == {"computed": 0, "reused": 4}


def keys(plan, name: str, seed: int) -> set[str]:
    jobs = next(jobs for jobs in plan.seeds if jobs.seed == seed)
    everything = (jobs.techniques[name], *jobs.parts)
    return {job.key for job in everything if job.identity.get("technique") == name}


def test_results_of_a_seed_do_not_depend_on_the_other_seeds(tiny_folder: Path) -> None:
    settings = config(tiny_folder).replace(techniques={name: {} for name in DEFAULT_TECHNIQUES})
    source, where = resolve(settings.model), {"device": "cpu", "cache_memory": None}
    alone, among = (
        plan_run(settings.replace(seeds=seeds), ("data", "x"), source, 3, where)
        for seeds in ((2,), (1, 2))
    )
    for name in DEFAULT_TECHNIQUES:
        assert keys(alone, name, 2) == keys(among, name, 2), name
    assert len(keys(alone, "retraining", 2)) == 7


@pytest.mark.parametrize(("state", "left"), [("original", "gradients"), ("frozen", "swapping")])
def test_a_training_that_fails_takes_only_what_needs_it(
    state: str, left: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(job, store, report):
        if job.identity["state"] == state:
            raise TrainingFailed("the loss became nan")
        return train(job, store, report)

    monkeypatch.setitem(KINDS, "train", failing)
    settings = config(tiny_folder).replace(techniques={"swapping": {}, "gradients": {}})
    found = run(settings, Engine(runs=tmp_path / "runs", workers=1))
    assert list(found.summary["techniques"]) == [left]
    assert len(found.summary["failures"]) == 1
    assert "the loss became nan" in found.summary["failures"][0]
    assert found.summary["jobs"] == {"computed": 3, "reused": 0}
    stream = io.StringIO()
    show_run(found.summary, Console(file=stream, width=80))
    assert left in stream.getvalue()
    # Without the failure the rest is computed, and what was done is reused.
    monkeypatch.setitem(KINDS, "train", train)
    again = run(settings, Engine(runs=tmp_path / "runs", workers=1))
    assert again.summary["jobs"] == {"computed": 2, "reused": 3}


def test_a_moved_model_is_recognised_by_its_content(tiny_folder: Path, tmp_path: Path) -> None:
    run(config(tiny_folder), Engine(runs=tmp_path / "runs", workers=1))
    moved = tiny_folder.rename(tmp_path / "elsewhere")
    assert (
        run(config(moved), Engine(runs=tmp_path / "runs", workers=1)).summary["jobs"]["computed"]
        == 0
    )


def test_damaged_artefacts_are_said_and_computed_anew(tiny_folder: Path, tmp_path: Path) -> None:
    first = run(config(tiny_folder), Engine(runs=tmp_path / "runs", workers=1))
    before = read_tables(first.folder)
    store = tmp_path / "runs" / "store"
    table = next((store / "localise").rglob("windows.parquet"))
    table.write_bytes(table.read_bytes()[:-3])
    next((store / "data").rglob("train.parquet")).write_bytes(b"")
    next((store / "train").rglob("manifest.json")).unlink()
    stream = io.StringIO()
    progress = Progress(LogLines(stream))
    again = run(config(tiny_folder), Engine(runs=tmp_path / "runs", workers=1), progress)
    assert again.summary["jobs"] == {"computed": 2, "reused": 2}
    assert stream.getvalue().count("is damaged") == 2
    for name, table in read_tables(again.folder).items():
        pd.testing.assert_frame_equal(table, before[name])
    assert (
        run(config(tiny_folder), Engine(runs=tmp_path / "runs", workers=1)).summary["jobs"][
            "computed"
        ]
        == 0
    )


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_failing_job_is_one_sentence_and_keeps_what_is_done(
    tiny_folder: Path, tmp_path: Path, workers: int
) -> None:
    with pytest.raises(JobFailed, match=r"θ_. ?.*failed: the loss became nan.*lower it"):
        run(
            config(tiny_folder, learning_rate=1e30, epochs=9),
            Engine(runs=tmp_path / "runs", workers=workers),
        )
    assert not list((tmp_path / "runs" / "store" / ".tmp").glob("*"))


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for environments in /proc")
@pytest.mark.parametrize(
    ("given", "visible", "handed_out"),
    [
        ("5,GPU-abc", ["5", "GPU-abc"], {"5": 2, "GPU-abc": 1}),  # three workers share two
        ("3,-1,4", ["3"], {"3": 3}),
        ("", [], {"": 3}),
    ],
)
def test_workers_get_one_gpu_each_of_those_that_are_visible(
    given: str,
    visible: list[str],
    handed_out: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert visible_gpus() == visible
    assert default_workers("cuda") == max(1, len(visible))
    seen: Counter[str] = Counter()

    class Spy(Silent):
        def finish(self, job) -> None:
            seen.clear()
            for worker in executor.processes:
                content = Path(f"/proc/{worker.process.pid}/environ").read_text().split("\0")
                (line,) = (line for line in content if line.startswith("CUDA_VISIBLE_DEVICES="))
                seen[line.partition("=")[2]] += 1

    with LocalExecutor(Store(tmp_path / "store"), 3) as executor:
        executor.execute(naps(3, 0.1), Spy())
    assert seen == handed_out
    assert os.environ["CUDA_VISIBLE_DEVICES"] == given


# --- jobs without torch ---


class Killer(Recorder):
    """Kills the worker of a job when it begins, so often."""

    def __init__(self, victims: dict[str, int]) -> None:
        super().__init__()
        self.victims = victims
        self.killed: set[int] = set()

    def start(self, job: Job) -> None:
        super().start(job)
        if self.victims.get(job.title):
            self.victims[job.title] -= 1
            thread = threading.Thread(target=self.kill, args=(f"{job.kind}-{job.key}",))
            thread.start()

    def kill(self, name: str) -> None:
        while name not in (holders := self.store.locks.holders()):
            time.sleep(0.01)
        self.killed.add(holders[name])
        os.kill(holders[name], signal.SIGKILL)

    store: Store


def test_workers_outlive_a_failure_and_a_death_but_not_an_unwritable_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs" / "store")
    wrong, (victim, unlucky), others = riddle(), naps(2, 1.0, name="long"), naps(6, 0.05)
    left_out = naps(1, 0.05, victim, name="after")
    progress = Killer({victim.title: 3, unlucky.title: 1})
    progress.store = store
    with LocalExecutor(store, 2) as executor:
        assert executor.processes == []  # nothing starts before there is work
        outcome = executor.execute([wrong, victim, unlucky, *left_out, *others], progress)
        processes = [worker.process for worker in executor.processes]
        alive = {process.pid for process in processes if process.is_alive()}
        shutil.rmtree(store.root / ".tmp")
        (store.root / ".tmp").write_text("in the way")
        blocked = Recorder()
        with pytest.raises(
            CannotGoOn, match=r"more \d failed: cannot write to .*; free some space"
        ):
            executor.execute(naps(4, 0.05, name="more"), blocked)
    assert outcome.failed.keys() == {wrong.artefact, victim.artefact}
    assert outcome.left_out == {left_out[0].artefact}
    assert outcome.failed[victim.artefact].reason == (
        "its worker process died (exit code -9), perhaps for lack of memory; if so, use fewer "
        "workers, 3 times"
    )
    assert "TypeError: " in outcome.failed[wrong.artefact].reason
    assert len([words for words in progress.notes if " is tried again: " in words]) == 3
    assert outcome.computed == 7
    # The dead ones were replaced.
    assert len(progress.killed) == 4
    assert alive
    assert not progress.killed & alive
    # Where nothing can be stored, nobody tries the next job, and all ends with the block.
    assert blocked.finished == []
    assert not any(process.is_alive() for process in processes)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_ends_everything_and_leaves_no_drafts(tmp_path: Path, workers: int) -> None:
    store = Store(tmp_path / "store")
    jobs = naps(4, 0.05)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with LocalExecutor(store, workers) as executor:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))  # no room for a manifest
            with pytest.raises(CannotGoOn, match=r"cannot write to .*too large"):
                executor.execute(jobs, Silent())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_nothing_left(store)
    with LocalExecutor(store, workers) as executor:
        assert executor.execute(jobs, Silent()).computed == 4


def test_how_far_a_job_is_and_what_a_bundle_has_done_is_reported_at_once(tmp_path: Path) -> None:
    jobs = [replace(job, group="group") for job in naps(8, 0.3)]
    moments: list[float] = []

    class Clock(Recorder):
        def finish(self, job: Job) -> None:
            super().finish(job)
            moments.append(time.monotonic())

    with LocalExecutor(Store(tmp_path / "store"), 2) as executor:
        executor.execute(jobs, progress := Clock())
    assert sorted(progress.started) == sorted(progress.finished)
    assert max(after - before for before, after in pairwise(moments)) < 1.5
