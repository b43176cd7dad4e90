"""Jobs for tests of executors, and whether two stores hold the same results of them.

What needs torch is imported by the functions that use it, because most jobs here only nap.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memloc.engine.job import Artefact, Job
from memloc.engine.local import LocalExecutor
from memloc.engine.progress import Progress, View
from memloc.engine.store.store import Store

if TYPE_CHECKING:
    from memloc.config import Run
    from memloc.engine.plan import Plan
    from memloc.models.names import ModelSource
    from memloc.techniques import Technique

LAYERS = 2


def make_model(folder: Path) -> Path:
    from tests.tiny_models import tiny_model, tiny_tokenizer

    tiny_model("bert", layers=LAYERS).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def plan_of(
    config: Run,
    data: Artefact,
    source: ModelSource,
    layers: int,
    where: dict[str, Any],
    explanations: Sequence[Technique] = (),
    **more: Any,
) -> Plan:
    """The plan of a run on a model with so many layers."""
    from memloc.engine.plan import Planner, plan_run

    described = data, config.model, source, config.training, config.windows, layers, where
    return plan_run(config, Planner(*described, **more), explanations)


def make_jobs(model: Path, store: Store, device: str = "auto") -> list[Job]:
    """Trainings, swapping, and the windows of retraining, as a cluster gets them."""
    from memloc.config import Data, Model, Run, Training
    from memloc.data.load import load_task
    from memloc.engine.job import write_task
    from memloc.models.names import resolve

    config = Run(
        model=Model(name=str(model)),
        training=Training(epochs=1, learning_rate=1e-3),
        techniques={"swapping": {}, "retraining": {"epochs": 1}},
    )
    where = {"device": device, "cache_memory": None}
    data = write_task(store, load_task(Data(task="reviews", limit=60)))
    return plan_of(config, data, resolve(config.model), LAYERS, where).jobs


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
        assert not executor.execute(jobs, Progress()).failed


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


class Recorder(Progress):
    """Keeps what it is told: titles of jobs by what became of them, failures and notes."""

    def __init__(self) -> None:
        self.events: dict[str, list[str]] = defaultdict(list)
        self.order: list[tuple[str, str]] = []
        self.said: set[str] = set()
        """What was said about workers."""
        super().__init__(_Listener(self))

    def __setattr__(self, name: str, value: object) -> None:
        if name == "workers":
            self.said.add(str(value))
        super().__setattr__(name, value)

    started = property(lambda self: self.events["running"])
    finished = property(lambda self: self.events["done"])
    waited = property(lambda self: self.events["waiting"])
    dropped = property(lambda self: self.events["left_out"])
    failed = property(lambda self: self.events["failed"])
    notes = property(lambda self: self.events["note"])


class _Listener(View):
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def event(self, progress: Progress, what: str, job: Job | None, text: str) -> None:
        words = text or (job.title if job else "")
        self.recorder.events[what].append(words)
        self.recorder.order.append((what, words))
