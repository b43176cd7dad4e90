"""The jobs of a run: in which order they are computed, and with which settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memloc.config import Data, Model, Run, Training
from memloc.data.load import load_task
from memloc.engine.compute import context_for, forget_context
from memloc.engine.job import Job, write_task
from memloc.engine.local import LocalExecutor
from memloc.engine.plan import RunPlan, plan_run
from memloc.engine.store.store import Store
from memloc.models.names import resolve
from tests.engine.same_results import Recorder
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
) -> RunPlan:
    quick = {"retraining": {"epochs": 1}, "probing": {"seeds": 1, "epochs": 1}}
    config = Run(
        model=Model(name=str(folder)),
        training=Training(epochs=epochs, learning_rate=1e-3),
        seeds=seeds,
        techniques={name: quick.get(name, {}) for name in techniques},
    )
    where = {"device": "cpu", "cache_memory": None} | where
    return plan_run(config, write_task(store, TASK), resolve(config.model), layers, where)


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


def test_trainings_come_first_and_windows_last_from_the_bottom_up(
    model_folder: Path, store: Store
) -> None:
    methods = ("retraining", "swapping", "gradients", "probing")
    plan = make_plan(model_folder, store, *methods, epochs=50, layers=3)
    free = [unknown(job.title, cost=job.cost, group=job.group) for job in plan.jobs]
    with LocalExecutor(store, 1) as executor:
        executor.execute(free, progress := Recorder())
    assert progress.started == [
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


@pytest.mark.parametrize("memory", [0, 5000])
def test_the_memory_for_states_is_as_it_was_asked_for(
    model_folder: Path, store: Store, memory: int
) -> None:
    plan = make_plan(model_folder, store, "retraining", cache_memory=memory)
    assert context_for(plan.seeds[0].parts[0], store).cache_memory == memory
