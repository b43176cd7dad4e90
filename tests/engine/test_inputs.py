"""What a job works on: models share what they have in common, and go when they are not needed."""

from __future__ import annotations

import io
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from memloc.config import Data, Model, Run, Training
from memloc.data.load import load_task
from memloc.engine import compute
from memloc.engine.compute import context_for, forget_context, on_this_machine
from memloc.engine.experiment import prepare
from memloc.engine.inputs import InputCache
from memloc.engine.job import Job, write_task
from memloc.engine.local import LocalExecutor
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.engine.views import LogLines
from memloc.models.blocks import BlockModel
from memloc.models.names import resolve
from tests.engine.same_results import plan_of
from tests.tiny_models import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Job]:
    """A job that swaps layers, and a store with the models it needs."""
    folder = tmp_path_factory.mktemp("inputs")
    tiny_model("bert", layers=3).save_pretrained(folder / "tiny")
    tiny_tokenizer().save_pretrained(folder / "tiny")
    store = Store(folder / "store")
    config = Run(
        model=Model(name=str(folder / "tiny")),
        training=Training(epochs=1, learning_rate=1e-3),
        techniques={"swapping": {}},
    )
    data = write_task(store, load_task(Data(task="reviews", limit=90)))
    where = {"device": "cpu", "cache_memory": None}
    cell = plan_of(config, data, resolve(config.model), 3, where).cells[0]
    with LocalExecutor(store, 1) as executor:
        executor.execute([cell.trainings[s] for s in ("original", "memorised")], Progress())
    return store, cell.techniques["swapping"]


@pytest.fixture(params=[False, True], ids=["usual", "low memory"])
def job(request: pytest.FixtureRequest, trained: tuple[Store, Job]) -> Iterator[Job]:
    job = trained[1]
    changed = replace(job, where={**job.where, "low_memory": request.param})
    assert changed.key == job.key  # the results are the same
    yield changed
    forget_context()


def addresses(model: BlockModel) -> dict[str, int]:
    return {name: parameter.data_ptr() for name, parameter in model.model.named_parameters()}


def filled_layers(model: BlockModel) -> int:
    return sum(any(p.numel() for p in block.parameters()) for block in model.stack)


def test_models_of_one_origin_share_embeddings_and_with_low_memory_no_two_are_whole(
    job: Job, trained: tuple[Store, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, low_memory = trained[0], job.where["low_memory"]
    loaded: list[tuple[str, int]] = []
    alive: list[BlockModel] = []
    load = compute._load_role

    def watch(*arguments: Any) -> Any:
        loaded.append((arguments[-1], sum(map(filled_layers, alive))))
        found = load(*arguments)
        alive.append(found.blocks)
        return found

    monkeypatch.setattr(compute, "_load_role", watch)
    context = context_for(job, store)
    memorised, original = context.model("memorised"), context.model("original")
    expected = [("original", 0), ("memorised", 0)]
    assert loaded == (expected if low_memory else [("memorised", 0), ("original", 3)])
    mine, theirs = addresses(memorised), addresses(original)
    shared = {name for name in mine if mine[name] == theirs[name]}
    assert shared == set(memorised.groups.embeddings)
    assert filled_layers(memorised) == 3
    # The one that the self-test on the texts read last.
    assert filled_layers(original) == (1 if low_memory else 3)
    # What was trained is what was stored.
    weights = store.open(*job.needs["original"]).tensors("final.safetensors")
    names = original.groups.blocks[1]
    found = dict(zip(names, original.block(2).parameters(), strict=True))
    assert all(torch.equal(found[name], weights[name]) for name in names)


def test_models_are_gone_when_they_are_forgotten(job: Job, trained: tuple[Store, Job]) -> None:
    context = context_for(job, trained[0])
    alive = [weakref.ref(context.model(role).model) for role in ("memorised", "original")]
    assert len(context.encoded) == len(context.examples)
    del context
    assert all(ref() is not None for ref in alive)
    forget_context()
    assert all(ref() is None for ref in alive)


@pytest.mark.parametrize(("task", "same"), [("questions", False), ("reviews", True)])
def test_binarising_is_for_tasks_of_several_classes(
    task: str, same: bool, tiny_folder: Path, tmp_path: Path
) -> None:
    store, stream = Store(tmp_path / "store"), io.StringIO()
    model = Model(name=str(tiny_folder))
    data = [Data(task=task, limit=60, binarise=binarise) for binarise in (False, True)]
    with LocalExecutor(store, 1) as executor:
        inputs = InputCache(executor, {"device": "cpu"}, Progress(LogLines(stream)))
        names = {
            prepare(Run(data=one, model=model, techniques={"swapping": {}}), inputs).name
            for one in data
        }
    assert (inputs.data(data[0]) == inputs.data(data[1])) == same
    assert (len(names) == 1) == same  # results go to the same folder
    assert stream.getvalue().count("has two classes anyway") == same


def test_the_embedded_model_is_found_wherever_it_is_installed(tmp_path: Path) -> None:
    here = resolve(Model(name="minilm"))
    assert on_this_machine(replace(here, location="/elsewhere/site-packages/model")) == here
    assert on_this_machine(here) == here
    # A folder of the same name holds another model.
    other = replace(here, location=str(tmp_path / "minilm"), fingerprint="another")
    assert on_this_machine(other) == other
