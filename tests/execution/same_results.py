"""A small plan, and whether two stores hold the same results of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.numpy import load_file

from memloc.config import (
    DataConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
)
from memloc.data.load import load_task
from memloc.engine.job import Job, write_task
from memloc.engine.local import LocalExecutor
from memloc.engine.plan import plan_run
from memloc.engine.progress import Silent
from memloc.engine.store.store import Store
from memloc.models.names import resolve
from tests.tiny_models import tiny_model, tiny_tokenizer

TASK = load_task(DataConfig(task="reviews", limit=60))
LAYERS = 2


def make_model(folder: Path) -> Path:
    tiny_model("bert", layers=LAYERS).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def make_jobs(model: Path, store: Store, device: str = "auto") -> list[Job]:
    """Trainings, swapping, and the windows of retraining, as a cluster gets them."""
    config = RunConfig(
        model=ModelConfig(name=str(model)),
        training=TrainingConfig(epochs=1, learning_rate=1e-3),
        techniques={"swapping": {}, "retraining": {"epochs": 1}},
    )
    where = {"device": device, "cache_memory": None}
    data = write_task(store, TASK)
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
    """No claim, no draft."""
    for name in (".claims", ".tmp"):
        assert not list((store.root / name).glob("*")), name


class Recorder(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[str] = []
        self.finished: list[str] = []
        self.failed: list[str] = []
        self.notes: list[str] = []

    def start(self, job: Job) -> None:
        self.started.append(job.title)

    def finish(self, job: Job) -> None:
        self.finished.append(job.title)

    def fail(self, job: Job, words: str) -> None:
        self.failed.append(words)

    def note(self, words: str) -> None:
        self.notes.append(words)


def first_holder(store: Store, kind: str) -> Any:
    """Who computes something of this kind now, if anybody does."""
    found = [who for name, who in store.claims.all().items() if name.startswith(f"{kind}-")]
    return found[0] if found else None
