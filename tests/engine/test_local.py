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
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from memloc.api.experiments import run
from memloc.api.result import Result
from memloc.config import DEFAULT_TECHNIQUES, Data, Engine, Model, Run, Training
from memloc.data.load import load_task
from memloc.engine.compute import KINDS, train
from memloc.engine.job import Job, JobFailed, write_task
from memloc.engine.local import LocalExecutor, default_workers, visible_gpus
from memloc.engine.loop import CannotGoOn
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.engine.views import LogLines
from memloc.errors import StoreError
from memloc.models.names import resolve
from memloc.report.terminal import show_result
from memloc.training.loop import TrainingFailed
from tests.engine.same_results import (
    Recorder,
    assert_nothing_left,
    make_model,
    naps,
    plan_of,
    riddle,
)

TASK = load_task(Data(task="reviews", limit=60))


def config(folder: Path, **training) -> Run:
    return Run(
        data=Data(task="reviews", limit=60),
        model=Model(name=str(folder)),
        training=Training(**{"epochs": 1, "learning_rate": 1e-3, **training}),
        techniques={"swapping": {}},
        explain=False,
    )


def compute(folder: Path, runs: Path, workers: int = 1, **training) -> Result:
    return run(config(folder, **training), Engine(runs=runs, workers=workers))


def assert_same_tables(one: Path, other: Path) -> None:
    tables, others = (
        {path.stem: pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))}
        for folder in (one, other)
    )
    assert tables.keys() == others.keys()
    for name, table in tables.items():
        changing = [column for column in ("seconds", "peak_memory_bytes") if column in table]
        pd.testing.assert_frame_equal(
            table.drop(columns=changing), others[name].drop(columns=changing)
        )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A model, and a run of it in this process."""
    folder = tmp_path_factory.mktemp("finished")
    model = make_model(folder / "model")
    return model, compute(model, folder / "runs")


def test_worker_processes_and_this_process_give_identical_tables(
    finished: tuple[Path, Result], tmp_path: Path
) -> None:
    model, one = finished
    two = compute(model, tmp_path / "two", workers=2)
    assert one.summary["jobs"] == two.summary["jobs"] == {"computed": 3, "reused": 0}
    assert_same_tables(one.folder, two.folder)


def test_damaged_artefacts_and_a_moved_model_cost_only_what_is_lost(
    finished: tuple[Path, Result], tmp_path: Path
) -> None:
    model, first = finished
    runs, moved = tmp_path / "runs", tmp_path / "elsewhere"
    shutil.copytree(first.folder.parent, runs)
    shutil.copytree(model, moved)
    table = next((runs / "store" / "localise").rglob("windows.parquet"))
    table.write_bytes(table.read_bytes()[:-3])
    next((runs / "store" / "data").rglob("train.parquet")).write_bytes(b"")
    next((runs / "store" / "train").rglob("manifest.json")).unlink()
    stream = io.StringIO()
    engine = Engine(runs=runs, workers=1)
    again = run(config(moved), engine, Progress(LogLines(stream)))
    assert again.summary["jobs"] == {"computed": 2, "reused": 1}
    assert stream.getvalue().count("is damaged") == 2
    assert_same_tables(again.folder, first.folder)
    assert compute(moved, runs).summary["jobs"]["computed"] == 0


def test_only_what_depends_on_a_changed_setting_is_planned_anew(
    tiny_folder: Path, tmp_path: Path
) -> None:
    store, done = Store(tmp_path / "store"), set()

    def new(changed: Run) -> int:
        data = write_task(store, load_task(changed.data))
        plan = plan_of(changed, data, resolve(changed.model), 3, {"device": "cpu"})
        found = {job.artefact for job in plan.jobs} - done
        done.update(found)
        return len(found)

    first = config(tiny_folder).replace(techniques={"swapping": {}, "gradients": {}})
    assert new(first) == 5
    assert new(first) == 0
    # A second seed needs two trainings, swapping and gradients; the frozen model is there.
    assert new(first.replace(seeds=(1, 2))) == 4
    # Other noise is other data: everything depends on it.
    assert new(first.replace(data=first.data.replace(noise=0.3))) == 5
    assert new(first.replace(training=first.training.replace(epochs=3))) == 5
    assert new(first) == 0


def keys(plan, name: str, seed: int) -> set[str]:
    jobs = next(jobs for jobs in plan.cells if jobs.seed == seed)
    everything = (jobs.techniques[name], *jobs.parts)
    return {job.key for job in everything if job.identity.get("technique") == name}


def test_results_of_a_seed_do_not_depend_on_the_other_seeds(tiny_folder: Path) -> None:
    settings = config(tiny_folder).replace(techniques={name: {} for name in DEFAULT_TECHNIQUES})
    source, where = resolve(settings.model), {"device": "cpu", "cache_memory": None}
    alone, among = (
        plan_of(settings.replace(seeds=seeds), ("data", "x"), source, 3, where)
        for seeds in ((2,), (1, 2))
    )
    for name in DEFAULT_TECHNIQUES:
        assert keys(alone, name, 2) == keys(among, name, 2), name
    assert len(keys(alone, "retraining", 2)) == 7


def test_a_training_that_fails_takes_only_what_needs_it(
    finished: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(job, store, report):
        if job.identity["state"] == "original":
            raise TrainingFailed("the loss became nan")
        return train(job, store, report)

    settings = config(finished[0]).replace(techniques={"swapping": {}, "gradients": {}})
    engine = Engine(runs=tmp_path / "runs", workers=1)
    monkeypatch.setitem(KINDS, "train", failing)
    found = run(settings, engine)
    assert list(found.summary["techniques"]) == ["gradients"]
    assert len(found.summary["failures"]) == 1
    assert "the loss became nan" in found.summary["failures"][0]
    assert found.summary["jobs"] == {"computed": 3, "reused": 0}
    stream = io.StringIO()
    show_result(found.summary, Console(file=stream, width=80))
    assert "gradients" in stream.getvalue()
    # Without the failure the rest is computed, and what was done is reused.
    monkeypatch.setitem(KINDS, "train", train)
    assert run(settings, engine).summary["jobs"] == {"computed": 2, "reused": 3}


def test_a_folder_that_is_deleted_before_the_end_is_one_sentence(
    finished: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, execute = tmp_path / "runs", LocalExecutor.execute

    def then_delete(self, jobs, *arguments, **named):
        outcome = execute(self, jobs, *arguments, **named)
        if len(jobs) > 1:  # not the look at the model
            shutil.rmtree(runs)
        return outcome

    monkeypatch.setattr(LocalExecutor, "execute", then_delete)
    with pytest.raises(StoreError, match=r"was computed, but is gone from .*run the same command"):
        compute(finished[0], runs)


def test_a_run_without_any_result_is_one_sentence(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match=r"θ_. ?.*failed: the loss became nan.*lower it"):
        compute(tiny_folder, tmp_path / "runs", learning_rate=1e30, epochs=9)
    assert not list((tmp_path / "runs" / "store" / ".tmp").glob("*"))


# --- jobs without torch ---


@pytest.mark.parametrize(
    ("given", "visible"), [("5,GPU-abc", ["5", "GPU-abc"]), ("3,-1,4", ["3"]), ("", [])]
)
def test_only_gpus_that_are_visible_are_used(
    given: str, visible: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert visible_gpus() == visible
    assert default_workers("cuda") == max(1, len(visible))


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for environments in /proc")
def test_workers_get_one_gpu_each_and_share_if_there_are_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-abc")
    with LocalExecutor(Store(tmp_path / "store"), 3) as executor:
        executor.execute(naps(3, 0.3), Progress())
        environments = [
            Path(f"/proc/{worker.pid}/environ").read_text().split("\0")
            for worker in executor.processes
        ]
    seen = Counter(
        line.partition("=")[2]
        for lines in environments
        for line in lines
        if line.startswith("CUDA_VISIBLE_DEVICES=")
    )
    assert seen == {"5": 2, "GPU-abc": 1}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "5,GPU-abc"


class Killer(Recorder):
    """Kills the worker of a job when it begins, so often."""

    def __init__(self, store: Store, victims: dict[str, int]) -> None:
        super().__init__()
        self.store, self.victims = store, victims
        self.killed: set[int] = set()

    def start(self, job: Job) -> None:
        super().start(job)
        if self.victims.get(job.title):
            self.victims[job.title] -= 1
            name = f"{job.kind}-{job.key}"
            threading.Thread(target=self.kill, args=(name,)).start()

    def kill(self, name: str) -> None:
        while name not in (holders := self.store.locks.holders()):
            time.sleep(0.01)
        self.killed.add(holders[name])
        os.kill(holders[name], signal.SIGKILL)


def test_workers_outlive_a_failure_and_a_death_but_not_an_unwritable_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs" / "store")
    wrong, (victim, unlucky), others = riddle(), naps(2, 1.0, name="long"), naps(6, 0.05)
    left_out = naps(1, 0.05, victim, name="after")
    progress = Killer(store, {victim.title: 3, unlucky.title: 1})
    with LocalExecutor(store, 2) as executor:
        assert not executor.processes  # nothing starts before there is work
        outcome = executor.execute([wrong, victim, unlucky, *left_out, *others], progress)
        processes = list(executor.processes)
        alive = {process.pid for process in processes if process.poll() is None}
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
    assert not any(process.poll() is None for process in processes)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_ends_everything_and_leaves_no_drafts(tmp_path: Path, workers: int) -> None:
    store = Store(tmp_path / "store")
    jobs = naps(4, 0.05)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with LocalExecutor(store, workers) as executor:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))  # no room for a manifest
            with pytest.raises(CannotGoOn, match=r"cannot write to .*too large"):
                executor.execute(jobs, Progress())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_nothing_left(store)
    with LocalExecutor(store, workers) as executor:
        assert executor.execute(jobs, Progress()).computed == 4
