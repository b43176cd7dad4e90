"""The executor: what a failure takes with it, in which order jobs run, and what a person sees."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memloc.config import (
    DataConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
)
from memloc.data.load import load_task
from memloc.engine.compute import context_for, forget_context
from memloc.engine.job import Job, write_task
from memloc.engine.local import LocalExecutor
from memloc.engine.plan import RunPlan, plan_run
from memloc.engine.progress import Silent
from memloc.engine.queue import CannotGoOn
from memloc.engine.store.store import Store
from memloc.models.names import resolve
from tests.tiny_models import tiny_model, tiny_tokenizer

TASK = load_task(DataConfig(task="reviews", limit=90))  # 12 noisy examples
LAYERS = 2


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    tiny_model("bert", layers=LAYERS).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    yield Store(tmp_path / "runs" / "store")
    forget_context()


def make_plan(
    folder: Path,
    store: Store,
    *techniques: str,
    epochs: int = 1,
    seeds: tuple[int, ...] = (1,),
    layers: int = LAYERS,
    **where: Any,
) -> RunPlan:
    quick = {"retraining": {"epochs": 1}, "probing": {"seeds": 1, "epochs": 1}}
    config = RunConfig(
        model=ModelConfig(name=str(folder)),
        training=TrainingConfig(epochs=epochs, learning_rate=1e-3),
        seeds=seeds,
        techniques={name: quick.get(name, {}) for name in techniques},
    )
    where = {"device": "cpu", "cache_memory": None} | where
    return plan_run(config, write_task(store, TASK), resolve(config.model), layers, where)


def sabotaged(jobs: Sequence[Job], *victims: Job) -> list[Job]:
    """The same jobs with the same keys, but some compute on a device that does not exist."""
    chosen = {job.key for job in victims}
    return [
        replace(job, where={**job.where, "device": "abacus"}) if job.key in chosen else job
        for job in jobs
    ]


def stored(store: Store, jobs: Sequence[Job]) -> set[str]:
    return {job.title for job in jobs if store.has(*job.artefact)}


class Recorder(Silent):
    """Keeps what it is told, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, str]] = []

    def start(self, job: Job) -> None:
        self.events.append(("start", job.title))

    def finish(self, job: Job) -> None:
        self.events.append(("finish", job.title))

    def fail(self, job: Job, words: str) -> None:
        self.events.append(("fail", job.title))

    def drop(self, job: Job) -> None:
        self.events.append(("drop", job.title))

    def titles(self, kind: str) -> list[str]:
        return [title for event, title in self.events if event == kind]


# --- failures ----------------------------------------------------------------------------------


def test_a_failing_job_takes_only_those_with_it_that_need_its_result(
    model_folder: Path, store: Store
) -> None:
    plan = make_plan(model_folder, store, "swapping", "gradients", seeds=(1, 2))
    broken = plan.seeds[0].trainings["original"]
    left_out = plan.seeds[0].techniques["swapping"]
    progress = Recorder()
    with LocalExecutor(store, 1) as executor:
        outcome = executor.execute(sabotaged(plan.jobs, broken), progress)
    assert outcome.failed.keys() == {broken.artefact, left_out.artefact}
    sentence = outcome.failed[broken.artefact]
    assert sentence.startswith("θ_O: train on original labels, seed 1 failed: ")
    assert "abacus" in sentence
    assert "\n" not in sentence
    assert outcome.failed[left_out.artefact] == ""
    others = {job.title for job in plan.jobs} - {broken.title, left_out.title}
    assert stored(store, plan.jobs) == others
    assert outcome.computed == len(others) == 7
    assert set(progress.titles("finish")) == others
    assert progress.titles("fail") == [broken.title]
    assert progress.titles("drop") == [left_out.title]
    assert left_out.title not in progress.titles("start")
    (record,) = (store.root.parent / "failures").glob("*.json")
    assert json.loads(record.read_text())["reason"] == sentence
    assert "Traceback" in record.with_suffix(".log").read_text()

    # Once the reason is gone, only what is missing is computed.
    with LocalExecutor(store, 1) as executor:
        outcome = executor.execute(plan.jobs, Silent())
    assert (outcome.computed, outcome.failed) == (2, {})
    assert not list((store.root.parent / "failures").iterdir())
    assert stored(store, plan.jobs) == {job.title for job in plan.jobs}


def test_a_failure_goes_through_all_that_depends_on_it(model_folder: Path, store: Store) -> None:
    plan = make_plan(model_folder, store, "swapping", "retraining", "probing")
    memorised = plan.seeds[0].trainings["memorised"]
    progress = Recorder()
    with LocalExecutor(store, 1) as executor:
        outcome = executor.execute(sabotaged(plan.jobs, memorised), progress)
    assert [words for words in outcome.failed.values() if words] == [
        outcome.failed[memorised.artefact]
    ]
    assert sorted(progress.titles("drop")) == sorted(
        [
            "swapping",
            "states of θ_M",
            "probing",  # which needs those states, not the model itself
            *("retraining, layer 1", "retraining, layer 2", "retraining, layers 1-2"),
            "retraining, all windows",
        ]
    )
    assert stored(store, plan.jobs) == {
        "θ_O: train on original labels",
        "frozen model: train the head alone",
        "states of θ_P",
    }


def unknown(title: str, *needs: Job, cost: float = 1.0, group: str | None = None) -> Job:
    """A job that nobody can compute."""
    return Job(
        "riddle",
        title,
        {"title": title},
        {str(index): job.artefact for index, job in enumerate(needs)},
        cost=cost,
        group=group,
    )


def test_a_job_that_needs_a_failed_one_twice_over_is_left_out_once(store: Store) -> None:
    model = unknown("model")
    states = unknown("states", model)
    both = unknown("both", model, states)
    progress = Recorder()
    with LocalExecutor(store, 1) as executor:
        outcome = executor.execute([model, states, both], progress)
    assert outcome.computed == 0
    assert progress.titles("fail") == ["model"]
    assert progress.titles("drop") == ["states", "both"]


def test_every_failure_has_its_own_sentence(model_folder: Path, store: Store) -> None:
    plan = make_plan(model_folder, store, "gradients", seeds=(1, 2))
    broken = [seed.trainings["memorised"] for seed in plan.seeds]
    with LocalExecutor(store, 1) as executor:
        outcome = executor.execute(sabotaged(plan.jobs, *broken), Silent())
    sentences = [words for words in outcome.failed.values() if words]
    assert [words.split(" failed: ")[0] for words in sentences] == [job.title for job in broken]
    assert outcome.computed == 3  # both θ_O and the frozen model


@contextlib.contextmanager
def unwritable(store: Store) -> Iterator[None]:
    """Something is in the way of new artefacts; permissions would not stop root."""
    drafts = store.root / ".tmp"
    drafts.rmdir()
    drafts.write_text("in the way")
    yield
    drafts.unlink()


def test_a_store_that_cannot_be_written_ends_everything(model_folder: Path, store: Store) -> None:
    plan = make_plan(model_folder, store, "swapping")
    progress = Recorder()
    with (
        unwritable(store),
        LocalExecutor(store, 1) as executor,
        pytest.raises(CannotGoOn, match=r"θ_.* failed: cannot write to .*; free some space"),
    ):
        executor.execute(plan.jobs, progress)
    assert progress.titles("finish") == []
    assert len(progress.titles("start")) == 1  # nobody tried the next job


def test_a_full_disk_ends_everything_and_leaves_no_drafts(model_folder: Path, store: Store) -> None:
    plan = make_plan(model_folder, store, "swapping")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with LocalExecutor(store, 1) as executor:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # no room for a table
            with pytest.raises(CannotGoOn, match=r"cannot write to .*too large.*--runs DIR"):
                executor.execute(plan.jobs, Silent())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert stored(store, plan.jobs) == set()
        assert list((store.root / ".tmp").iterdir()) == []
        assert executor.execute(plan.jobs, Silent()).computed == len(plan.jobs)


# --- two workers -------------------------------------------------------------------------------


class Killer(Recorder):
    """Kills the worker of a job as soon as it says how far it is, so often."""

    def __init__(self, victims: dict[str, int], executor: LocalExecutor) -> None:
        super().__init__()
        self.victims, self.pool = victims, executor.pool
        self.killed: set[int] = set()
        self.notes: list[str] = []

    def advance(self, job: Job, fraction: float) -> None:
        (process,) = (w.process for w in self.pool.workers if w.job and w.job.key == job.key)
        assert process.pid is not None
        if self.victims.get(job.title) and process.pid not in self.killed:
            self.victims[job.title] -= 1
            self.killed.add(process.pid)
            os.kill(process.pid, signal.SIGKILL)

    def note(self, words: str) -> None:
        self.notes.append(words)


def test_workers_outlive_a_failure_and_a_death_but_not_an_unwritable_store(
    model_folder: Path, store: Store
) -> None:
    # One test, as workers take seconds to start. There are enough epochs for a job to be still at
    # work when its first report arrives.
    plan = make_plan(model_folder, store, "swapping", "gradients", epochs=4, seeds=(1, 2))
    broken, victim = (seed.trainings["original"] for seed in plan.seeds)
    unlucky = plan.seeds[1].trainings["memorised"]
    blocked = Recorder()
    with LocalExecutor(store, 2) as executor:
        assert executor.pool.workers == []  # nothing starts before there is work
        progress = Killer({victim.title: 3, unlucky.title: 1}, executor)
        outcome = executor.execute(sabotaged(plan.jobs, broken), progress)
        processes = [worker.process for worker in executor.pool.workers]
        alive = {process.pid for process in processes if process.is_alive()}
        with unwritable(store), pytest.raises(CannotGoOn) as complaint:
            executor.execute(plan.jobs, blocked)

    # A failure and a death take only those with them that need the result.
    sentence = outcome.failed[broken.artefact]
    assert sentence.startswith("θ_O: train on original labels, seed 1 failed: ")
    assert "abacus" in sentence
    assert outcome.failed[victim.artefact] == (
        "θ_O: train on original labels, seed 2 failed 3 times: its worker process died (exit code "
        "-9), perhaps for lack of memory; if so, use fewer --workers"
    )
    again = [words for words in progress.notes if " is tried again: " in words]
    assert len(again) == 3  # twice the one that failed in the end
    assert sum(words.startswith(unlucky.title) for words in again) == 1
    assert sorted(progress.titles("fail")) == [broken.title, victim.title]
    assert sorted(progress.titles("drop")) == ["swapping, seed 1", "swapping, seed 2"]
    assert outcome.computed == 5
    assert stored(store, plan.jobs) == {
        "θ_M: train on perturbed labels, seed 1",
        "θ_M: train on perturbed labels, seed 2",
        "frozen model: train the head alone",
        "gradients, seed 1",
        "gradients, seed 2",
    }

    # The dead one was replaced.
    assert len(progress.killed) == 4
    assert not progress.killed & alive
    assert alive

    # Where nothing can be stored, nobody tries the next job.
    assert re.match(r"θ_O: .* failed: cannot write to .*; free some", str(complaint.value))
    assert len(blocked.titles("start")) == 2
    assert blocked.titles("finish") == []

    # All ends with the block.
    assert not any(process.is_alive() for process in processes)
    assert list((store.root / ".tmp").glob("*")) == []


# --- order -------------------------------------------------------------------------------------


def order(jobs: Sequence[Job], store: Store) -> list[str]:
    """In which order an executor takes jobs, which all fail at once."""
    progress = Recorder()
    with LocalExecutor(store, 1) as executor:
        executor.execute(jobs, progress)
    return progress.titles("start")


def test_long_jobs_come_first_and_equal_ones_in_the_order_of_the_plan(store: Store) -> None:
    costs = {"short": 1, "long": 9, "also short": 1, "middle": 5, "again short": 1}
    jobs = [unknown(title, cost=cost) for title, cost in costs.items()]
    assert order(jobs, store) == ["long", "middle", "short", "also short", "again short"]


def test_a_group_counts_as_its_smallest_job_and_keeps_its_order(store: Store) -> None:
    jobs = [
        unknown("small", cost=1),
        unknown("window 2", cost=5, group="windows"),
        unknown("window 1", cost=8, group="windows"),
        unknown("window 3", cost=2, group="windows"),
        unknown("large", cost=3),
    ]
    assert order(jobs, store) == ["large", "window 2", "window 1", "window 3", "small"]


def test_trainings_come_first_and_windows_last_from_the_bottom_up(
    model_folder: Path, store: Store
) -> None:
    methods = ("retraining", "swapping", "gradients", "probing")
    plan = make_plan(model_folder, store, *methods, epochs=50, layers=3)
    free = [unknown(job.title, cost=job.cost, group=job.group) for job in plan.jobs]
    assert order(free, store) == [
        "θ_O: train on original labels",
        "θ_M: train on perturbed labels",
        "frozen model: train the head alone",
        "swapping",
        "gradients",
        "probing",
        "states of θ_M",
        "states of θ_P",
        # A process goes up through the layers with its stored states.
        *(f"retraining, {w}" for w in ("layers 1-3", "layers 1-2", "layer 1")),
        *(f"retraining, {w}" for w in ("layers 2-3", "layer 2", "layer 3")),
        "retraining, all windows",
    ]


def test_a_job_waits_for_what_it_needs_however_long_it_is(model_folder: Path, store: Store) -> None:
    plan = make_plan(model_folder, store, "swapping", "gradients", epochs=1)
    progress = Recorder()
    with LocalExecutor(store, 1) as executor:
        executor.execute(list(reversed(plan.jobs)), progress)
    # Swapping is the longest job here, and the plan is in the wrong order.
    started = progress.titles("start")
    assert sorted(started) == sorted(job.title for job in plan.jobs)
    trainings = ("θ_O: train on original labels", "θ_M: train on perturbed labels")
    assert started.index("swapping") > max(started.index(title) for title in trainings)
    assert progress.titles("finish") == started


# --- settings that a job is given --------------------------------------------------------------


@pytest.mark.parametrize("memory", [0, 5000])
def test_the_memory_for_states_is_as_it_was_asked_for(
    model_folder: Path, store: Store, memory: int
) -> None:
    plan = make_plan(model_folder, store, "retraining", cache_memory=memory)
    assert context_for(plan.seeds[0].parts[0], store).cache_memory == memory
