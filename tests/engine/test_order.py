"""The jobs of a run: in which order they are computed, and with which settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memloc.config import Data, Model, Run, Training
from memloc.data.load import load_task
from memloc.engine.compute import forget_context
from memloc.engine.job import write_task
from memloc.engine.loop import Ready
from memloc.engine.plan import Plan, plan_run
from memloc.engine.store.store import Store
from memloc.models.names import resolve
from tests.tiny_models import tiny_model, tiny_tokenizer

TASK = load_task(Data(task="reviews", limit=90))  # 12 noisy examples
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
) -> Plan:
    quick = {"retraining": {"epochs": 1}, "probing": {"seeds": 1, "epochs": 1}}
    config = Run(
        model=Model(name=str(folder)),
        training=Training(epochs=epochs, learning_rate=1e-3),
        seeds=seeds,
        techniques={name: quick.get(name, {}) for name in techniques},
    )
    where = {"device": "cpu", "cache_memory": None} | where
    return plan_run(config, write_task(store, TASK), resolve(config.model), layers, where)


def test_trainings_come_first_and_windows_last_from_the_bottom_up(
    model_folder: Path, store: Store
) -> None:
    techniques = ("retraining", "swapping", "gradients", "probing")
    jobs = make_plan(model_folder, store, *techniques, epochs=50, layers=3).jobs
    ready = Ready(jobs)
    for job in jobs:
        ready.add(job)
    bundles = []
    while ready:
        bundles.append([job.title for job in ready.take(1)])
    assert bundles == [
        ["θ_O: train on original labels"],
        ["θ_M: train on perturbed labels"],
        ["frozen model: train the head alone"],
        ["probing"],
        # They look at the same model.
        ["states of θ_M", "swapping", "gradients"],
        # A process goes up through the layers with its stored states.
        [f"retraining, {w}" for w in ("layers 1-3", "layers 1-2")],
        [f"retraining, {w}" for w in ("layer 1", "layers 2-3")],
        ["retraining, layer 2"],
        ["retraining, layer 3"],
        ["states of θ_P"],
        ["retraining, all windows"],
    ]
