"""Jobs for tests of executors, and whether two stores hold the same results of them.

What needs torch is imported by the functions that use it, because most jobs here only nap.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from memloc.engine.job import Job
from memloc.engine.local import LocalExecutor
from memloc.engine.loop import Failure
from memloc.engine.progress import Silent
from memloc.engine.store.store import Store

LAYERS = 2


def make_model(folder: Path) -> Path:
    from tests.tiny_models import tiny_model, tiny_tokenizer

    tiny_model("bert", layers=LAYERS).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def make_jobs(model: Path, store: Store, device: str = "auto") -> list[Job]:
    """Trainings, swapping, and the windows of retraining, as a cluster gets them."""
    from memloc.config import Data, Model, Run, Training
    from memloc.data.load import load_task
    from memloc.engine.job import write_task
    from memloc.engine.plan import plan_run
    from memloc.models.names import resolve

    config = Run(
        model=Model(name=str(model)),
        training=Training(epochs=1, learning_rate=1e-3),
        techniques={"swapping": {}, "retraining": {"epochs": 1}},
    )
    where = {"device": device, "cache_memory": None}
    data = write_task(store, load_task(Data(task="reviews", limit=60)))
    return list(plan_run(config, data, resolve(config.model), LAYERS, where).jobs)


def naps(count: int, seconds: float, *needs: Job, name: str = "nap") -> list[Job]:
    """Jobs that only take their time."""
    roles = {str(number): need.artefact for number, need in enumerate(needs)}
    return [
        Job("nap", f"{name} {number}", {"seconds": seconds, "name": f"{name} {number}"}, roles)
        for number in range(count)
    ]


def riddle() -> Job:
    """Nobody can compute it."""
    return Job("nap", "riddle", {"seconds": "many"})


def compute_here(jobs: Sequence[Job], store: Store) -> None:
    with LocalExecutor(store, 1) as executor:
        assert not executor.execute(jobs, Silent()).failed


def assert_same_results(jobs: Sequence[Job], one: Store, other: Store) -> None:
    for job in jobs:
        mine, theirs = one.open(*job.artefact), other.open(*job.artefact)
        assert mine.manifest["files"].keys() == theirs.manifest["files"].keys()
        for name in mine.manifest["files"]:
            _assert_same_file(mine.path / name, theirs.path / name)


def _assert_same_file(mine: Path, theirs: Path) -> None:
    import pandas as pd
    from safetensors.numpy import load_file

    if mine.suffix == ".parquet":
        pd.testing.assert_frame_equal(
            pd.read_parquet(mine), pd.read_parquet(theirs), check_exact=True
        )
    elif mine.suffix == ".safetensors":
        ours, others = load_file(mine), load_file(theirs)
        assert ours.keys() == others.keys()
        assert all((ours[name] == others[name]).all() for name in ours)
    else:
        assert json.loads(mine.read_text()) == json.loads(theirs.read_text())


def assert_nothing_left(store: Store) -> None:
    """No lock, no draft."""
    for name in (".locks", ".tmp"):
        assert not list((store.root / name).glob("*")), name


class Recorder(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[str] = []
        self.waited: list[str] = []
        self.finished: list[str] = []
        self.failed: list[str] = []
        self.dropped: list[str] = []
        self.notes: list[str] = []
        self.said: set[str] = set()
        """What was said about workers."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "workers" and "said" in self.__dict__:
            self.said.add(str(value))
        super().__setattr__(name, value)

    def start(self, job: Job) -> None:
        self.started.append(job.title)

    def wait(self, job: Job) -> None:
        self.waited.append(job.title)

    def finish(self, job: Job) -> None:
        self.finished.append(job.title)

    def fail(self, job: Job, failure: Failure) -> None:
        self.failed.append(str(failure))

    def drop(self, job: Job) -> None:
        self.dropped.append(job.title)

    def note(self, words: str) -> None:
        self.notes.append(words)


def first_holder(store: Store, kind: str) -> int | None:
    """Who computes something of this kind now, if anybody does."""
    found = [pid for name, pid in store.locks.holders().items() if name.startswith(f"{kind}-")]
    return found[0] if found else None
