"""Jobs in worker processes: same results, nothing lost, nothing computed twice."""

from __future__ import annotations

import io
import os
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from memloc.api.experiments import run
from memloc.config import DEFAULT_TECHNIQUES, DataConfig, ModelConfig, RunConfig, TrainingConfig
from memloc.data.load import load_task
from memloc.engine.compute import KINDS, train
from memloc.engine.device import visible_gpus
from memloc.engine.job import write_task
from memloc.engine.local import LocalExecutor, default_workers
from memloc.engine.plan import plan_run
from memloc.engine.progress import LogLines, Progress, Silent
from memloc.engine.queue import JobFailed
from memloc.engine.store.store import Store
from memloc.models.names import resolve
from memloc.report.terminal import show_run
from memloc.training.lesson import TrainingFailed
from tests.execution.same_results import naps

TASK = load_task(DataConfig(task="reviews", limit=60))


def config(folder: Path, **training) -> RunConfig:
    return RunConfig(
        data=DataConfig(task="reviews", limit=60),
        model=ModelConfig(name=str(folder)),
        training=TrainingConfig(**{"epochs": 2, "learning_rate": 1e-3, **training}),
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
    one = run(config(tiny_folder), tmp_path / "one", workers=1)
    two = run(config(tiny_folder), tmp_path / "two", workers=2)
    assert one.summary["jobs"] == two.summary["jobs"] == {"computed": 4, "reused": 0}
    assert_same_tables(one.folder, two.folder)


def test_only_what_depends_on_a_changed_setting_is_computed_again(
    tiny_folder: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"

    def jobs(changed: RunConfig) -> dict[str, int]:
        return run(changed, runs, workers=1).summary["jobs"]

    first = config(tiny_folder)
    assert jobs(first) == {"computed": 4, "reused": 0}
    assert jobs(first) == {"computed": 0, "reused": 4}
    # A second seed needs two trainings and one swapping; the frozen model is there.
    assert jobs(first.replace(seeds=(1, 2))) == {"computed": 3, "reused": 4}
    # Other noise is other data: everything depends on it.
    assert jobs(first.replace(data=first.data.replace(noise=0.3)))["computed"] == 4
    assert jobs(config(tiny_folder, epochs=3))["computed"] == 4
    assert jobs(first) == {"computed": 0, "reused": 4}


def keys(plan, name: str, seed: int) -> set[str]:
    jobs = next(jobs for jobs in plan.seeds if jobs.seed == seed)
    everything = (jobs.techniques[name], *jobs.parts)
    return {job.key for job in everything if job.identity.get("method") == name}


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
    found = run(settings, tmp_path / "runs", workers=1)
    assert list(found.summary["methods"]) == [left]
    assert len(found.summary["failures"]) == 1
    assert "the loss became nan" in found.summary["failures"][0]
    assert found.summary["jobs"] == {"computed": 3, "reused": 0}
    stream = io.StringIO()
    show_run(found.summary, Console(file=stream, width=80))
    assert left in stream.getvalue()
    # Without the failure the rest is computed, and what was done is reused.
    monkeypatch.setitem(KINDS, "train", train)
    again = run(settings, tmp_path / "runs", workers=1)
    assert again.summary["jobs"] == {"computed": 2, "reused": 3}


def test_a_moved_model_is_recognised_by_its_content(tiny_folder: Path, tmp_path: Path) -> None:
    run(config(tiny_folder), tmp_path / "runs", workers=1)
    moved = tiny_folder.rename(tmp_path / "elsewhere")
    assert run(config(moved), tmp_path / "runs", workers=1).summary["jobs"]["computed"] == 0


def test_damaged_artefacts_are_said_and_computed_anew(tiny_folder: Path, tmp_path: Path) -> None:
    first = run(config(tiny_folder), tmp_path / "runs", workers=1)
    before = read_tables(first.folder)
    store = tmp_path / "runs" / "store"
    table = next((store / "localise").rglob("windows.parquet"))
    table.write_bytes(table.read_bytes()[:-3])
    next((store / "data").rglob("train.parquet")).write_bytes(b"")
    next((store / "train").rglob("manifest.json")).unlink()
    stream = io.StringIO()
    progress = Progress(LogLines(stream))
    again = run(config(tiny_folder), tmp_path / "runs", workers=1, progress=progress)
    assert again.summary["jobs"] == {"computed": 2, "reused": 2}
    assert stream.getvalue().count("is damaged") == 2
    for name, table in read_tables(again.folder).items():
        pd.testing.assert_frame_equal(table, before[name])
    assert run(config(tiny_folder), tmp_path / "runs", workers=1).summary["jobs"]["computed"] == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_job_is_one_sentence_and_keeps_what_is_done(
    tiny_folder: Path, tmp_path: Path, workers: int
) -> None:
    with pytest.raises(JobFailed, match=r"θ_. ?.*failed: the loss became nan.*--learning-rate"):
        run(config(tiny_folder, learning_rate=1e30, epochs=9), tmp_path / "runs", workers=workers)
    assert not list((tmp_path / "runs" / "store" / ".tmp").glob("*"))


def test_an_unexpected_error_is_one_sentence_with_the_details_in_a_file(
    tiny_folder: Path, tmp_path: Path
) -> None:
    settings = config(tiny_folder)
    store = Store(tmp_path / "store")
    where = {"device": "nonsense", "cache_memory": None}
    plan = plan_run(settings, write_task(store, TASK), resolve(settings.model), 3, where)
    with LocalExecutor(store, 1) as executor:
        outcome = executor.execute(plan.jobs, Silent())
    assert outcome.computed == 0
    assert len(outcome.failed) == len(plan.jobs)
    sentences = [words for words in outcome.failed.values() if words]
    assert len(sentences) == 3  # the trainings; swapping was left out without a word
    assert all("failed: " in words and "\n" not in words for words in sentences)


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
            for worker in executor.pool.workers:
                content = Path(f"/proc/{worker.process.pid}/environ").read_text().split("\0")
                (line,) = (line for line in content if line.startswith("CUDA_VISIBLE_DEVICES="))
                seen[line.partition("=")[2]] += 1

    with LocalExecutor(Store(tmp_path / "store"), 3) as executor:
        executor.execute(naps(3, 0.1), Spy())
    assert seen == handed_out
    assert os.environ["CUDA_VISIBLE_DEVICES"] == given
