"""Jobs that train go on where they were when their process was killed."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memloc.config import Control, Data, Generalisation, Model, Training, Windows
from memloc.data.load import load_task
from memloc.engine.compute import context_for, forget_context, resume_point
from memloc.engine.job import Job, run_job, write_task
from memloc.engine.plan import Planner
from memloc.engine.store.store import Store
from memloc.models.names import resolve
from memloc.techniques.retraining import Retraining
from tests.tiny_models import tiny_model, tiny_tokenizer

LAYERS = 2
NEVER = 1e9
CHILD = """
import json, sys, time
from pathlib import Path
from memloc.engine.job import Job, run_job
from memloc.engine.store.store import Store

values = json.loads(sys.stdin.read())
values["needs"] = {role: tuple(need) for role, need in values["needs"].items()}


def report(fraction):
    print(fraction, flush=True)
    time.sleep(0.02)  # it must not be done before it can be killed


run_job(Job(**values), Store(Path(sys.argv[1])), report)
"""


class Interrupted(Exception):
    """Raised from the progress report."""


class Bench:
    """Jobs on a tiny model, and what they give without any interruption."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.numbers = folder, itertools.count()
        model = folder / "tiny"
        tiny_model("bert", layers=LAYERS).save_pretrained(model)
        tiny_tokenizer().save_pretrained(model)
        self.task = load_task(Data(task="reviews", limit=90))
        self.other = load_task(Data(task="questions", limit=40))
        store = self.new_store()
        training = Training(epochs=2, learning_rate=1e-3, batch_size=32, memorised_at=0.3)
        config = Model(name=str(model))
        planner = Planner(
            write_task(store, self.task),
            config,
            resolve(config),
            training,
            Windows(),
            LAYERS,
            {"device": "cpu", "cache_memory": None},
        )
        trainings = {state: planner.train(state, 1, state) for state in ("memorised", "frozen")}
        long = replace(planner, training=training.replace(epochs=4, batch_size=8))
        models = {"memorised": trainings["memorised"].artefact}
        _, windows = planner.apply(Retraining(epochs=2), 1, models)
        # Nothing is learned well enough, so there are three attempts.
        other = write_task(store, self.other)
        cell = planner.control_cell((), (1,), 1, other, Control(learned_at=0.9999))
        self.jobs: dict[str, Job] = {
            **trainings,
            "long": long.train("memorised", 1, "long"),
            "window": windows[0],
            "split": planner.splits(Generalisation(splits=2, epochs=2))[0],
            "control": cell.trainings["memorised"],
        }
        self.expected: dict[str, tuple[dict[str, bytes], list[float]]] = {}
        for name, job in self.jobs.items():
            fractions: list[float] = []
            run_job(replace(job, where={**job.where, "save_every": NEVER}), store, fractions.append)
            self.expected[name] = content(store, job), fractions
        self.memorised = store.root / "train" / trainings["memorised"].key

    def new_store(self) -> Store:
        """An empty store, but for what jobs need."""
        store = Store(self.folder / f"store-{next(self.numbers)}")
        if hasattr(self, "memorised"):
            write_task(store, self.task)
            write_task(store, self.other)
        return store

    def with_model(self) -> Store:
        """A store in which θ_M is there too."""
        store = self.new_store()
        target = store.root / "train" / self.memorised.name
        target.parent.mkdir()
        target.symlink_to(self.memorised)
        return store


def content(store: Store, job: Job) -> dict[str, bytes]:
    """The files of an artefact, without the manifest, which has the time it took."""
    folder = store.root / job.kind / job.key
    return {f.name: f.read_bytes() for f in sorted(folder.iterdir()) if f.name != "manifest.json"}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    yield Bench(tmp_path_factory.mktemp("bench"))
    forget_context()


def run_until(job: Job, store: Store, last: int, save_every: float = 0) -> list[float]:
    """Run a job for some steps; which fractions it reported."""
    fractions: list[float] = []

    def report(fraction: float) -> None:
        fractions.append(fraction)
        if len(fractions) == last:
            raise Interrupted

    try:
        run_job(replace(job, where={**job.where, "save_every": save_every}), store, report)
    except Interrupted:
        assert not store.has(*job.artefact)
    forget_context()  # another process would not have it
    return fractions


def assert_nothing_left(store: Store) -> None:
    store.sweep_leftovers()
    for folder in ("resume", ".tmp"):
        assert list((store.root / folder).glob("*")) == []


@pytest.mark.parametrize("name", ["memorised", "frozen", "window", "split"])
def test_an_interrupted_job_goes_on_and_leaves_the_same_files(bench: Bench, name: str) -> None:
    job, (expected, steps) = bench.jobs[name], bench.expected[name]
    store = bench.with_model() if name == "window" else bench.new_store()
    assert len(steps) >= 4
    seen = run_until(job, store, 1)
    seen += run_until(job, store, len(steps) // 2)
    seen += run_until(job, store, 100)
    assert seen == steps
    assert content(store, job) == expected
    assert_nothing_left(store)


def test_all_attempts_go_on_from_their_states(bench: Bench) -> None:
    job, (expected, steps) = bench.jobs["control"], bench.expected["control"]
    of_one = steps.index(1.0) + 1
    assert len(steps) == 3 * of_one
    store = bench.new_store()
    # In the middle of the second attempt, at its very end, and in the middle of the third.
    seen = run_until(job, store, of_one + 2)
    seen += run_until(job, store, of_one - 2)
    seen += run_until(job, store, 2)
    seen += run_until(job, store, 100)
    assert seen == steps
    assert content(store, job) == expected
    assert_nothing_left(store)


def test_windows_share_what_was_loaded_though_each_saves_its_own_state(bench: Bench) -> None:
    store, job = bench.with_model(), bench.jobs["window"]
    kept = context_for(job, store)
    run_job(job, store, lambda _: None)
    assert context_for(job, store) is kept
    assert kept.resume is None
    assert kept.scratch.keys() >= {"unmodified", "states"}
    forget_context()


def test_other_techniques_find_the_model_that_was_loaded(bench: Bench) -> None:
    store, job = bench.with_model(), bench.jobs["window"]
    first = context_for(job, store)
    loaded, encoded = first.model("memorised"), first.encoded
    settings = {**job.identity["settings"], "epochs": 1}
    other = context_for(replace(job, identity={**job.identity, "settings": settings}), store)
    assert other is not first
    assert other.model("memorised") is loaded
    assert other.encoded is encoded
    moved = replace(job, where={**job.where, "trust_remote_code": True})
    assert context_for(moved, store).model("memorised") is not loaded
    forget_context()


def test_the_interval_is_ten_minutes_unless_the_job_says_otherwise(bench: Bench) -> None:
    job, store = bench.jobs["memorised"], Store(bench.folder)
    assert resume_point(job, store).every == 600
    for given, every in [(None, 600), (30, 30), (0, 0)]:
        changed = replace(job, where={**job.where, "save_every": given})
        assert changed.key == job.key
        assert resume_point(changed, store).every == every


def test_a_process_killed_in_the_middle_leaves_the_same_files(bench: Bench) -> None:
    job, (expected, steps) = bench.jobs["long"], bench.expected["long"]
    store = bench.new_store()
    seen = kill_after(job, store, 17)
    assert seen == steps[: len(seen)]
    rest = run_until(job, store, 100)
    # A state is saved before a step is reported, so nothing that was reported is done again; it may
    # have been killed between the two.
    assert rest in (steps[len(seen) :], steps[len(seen) + 1 :])
    assert content(store, job) == expected
    assert_nothing_left(store)


def kill_after(job: Job, store: Store, last: int) -> list[float]:
    """Run a job in a process of its own, kill it after some steps; what it had reported."""
    values: dict[str, Any] = {
        name: getattr(job, name) for name in ("kind", "title", "identity", "needs")
    }
    values["where"] = {**job.where, "save_every": 0}
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(store.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(values))
    process.stdin.close()
    lines = [process.stdout.readline() for _ in range(last)]
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    lines += process.stdout.readlines()
    return [float(line) for line in lines if line.strip()]
