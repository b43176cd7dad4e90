"""What a job works on: models share what they have in common, and go when they are not needed."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from memloc.config import Model
from memloc.engine import compute as inputs
from memloc.engine.compute import context_for, forget_context, on_this_machine
from memloc.engine.job import Job
from memloc.engine.local import LocalExecutor
from memloc.engine.progress import Silent
from memloc.engine.store.store import Store
from memloc.models.blocks import BlockModel
from memloc.models.names import resolve
from tests.engine.test_order import make_plan


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    yield Store(tmp_path / "store")
    forget_context()


def swapping_job(folder: Path, store: Store, low_memory: bool) -> Job:
    """With the models it needs in the store."""
    plan = make_plan(folder, store, "swapping", layers=3, low_memory=low_memory)
    with LocalExecutor(store, 1) as executor:
        executor.execute(list(plan.seeds[0].trainings.values()), Silent())
    return plan.seeds[0].techniques["swapping"]


def addresses(model: BlockModel) -> dict[str, int]:
    return {name: parameter.data_ptr() for name, parameter in model.model.named_parameters()}


def filled_layers(model: BlockModel) -> int:
    return sum(any(p.numel() for p in block.parameters()) for block in model.stack)


@pytest.mark.parametrize("low_memory", [False, True])
def test_models_of_one_origin_have_one_set_of_embeddings(
    low_memory: bool,
    tiny_folder: Path,
    store: Store,
) -> None:
    job = swapping_job(tiny_folder, store, low_memory)
    context = context_for(job, store)
    memorised, original = context.model("memorised"), context.model("original")
    mine, theirs = addresses(memorised), addresses(original)
    shared = {name for name in mine if mine[name] == theirs[name]}
    assert shared == set(memorised.groups.embeddings)
    assert filled_layers(memorised) == 3
    assert filled_layers(original) == (0 if low_memory else 3)
    # What was trained is what was stored.
    weights = store.open(*job.needs["original"]).tensors("final.safetensors")
    names = original.groups.blocks[1]
    found = dict(zip(names, original.block(2).parameters(), strict=True))
    assert all(torch.equal(found[name], weights[name]) for name in names)


def test_with_low_memory_no_two_models_are_ever_whole(
    tiny_folder: Path,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = swapping_job(tiny_folder, store, True)
    whole: list[tuple[str, int]] = []
    alive: list[BlockModel] = []
    load = inputs._load_role

    def watch(*arguments: Any) -> Any:
        whole.append((arguments[-1], sum(map(filled_layers, alive))))
        found = load(*arguments)
        alive.append(found.blocks)
        return found

    monkeypatch.setattr(inputs, "_load_role", watch)
    context_for(job, store).model("memorised")
    assert whole == [("original", 0), ("memorised", 0)]


@pytest.mark.parametrize("low_memory", [False, True])
def test_models_are_gone_when_they_are_forgotten(
    low_memory: bool,
    tiny_folder: Path,
    store: Store,
) -> None:
    job = swapping_job(tiny_folder, store, low_memory)
    context = context_for(job, store)
    alive = [weakref.ref(context.model(role).model) for role in ("memorised", "original")]
    assert len(context.encoded) == len(context.examples)
    del context
    assert all(ref() is not None for ref in alive)
    forget_context()
    assert all(ref() is None for ref in alive)


def test_low_memory_is_no_part_of_what_a_job_is(
    tiny_folder: Path,
    store: Store,
) -> None:
    keys = [
        [job.key for job in make_plan(tiny_folder, store, "swapping", low_memory=low).jobs]
        for low in (False, True)
    ]
    assert keys[0] == keys[1]


def test_the_embedded_model_is_found_wherever_it_is_installed(tmp_path: Path) -> None:
    here = resolve(Model(name="minilm"))
    assert on_this_machine(replace(here, location="/elsewhere/site-packages/model")) == here
    assert on_this_machine(here) == here
    # A folder of the same name holds another model.
    other = replace(here, location=str(tmp_path / "minilm"), fingerprint="another")
    assert on_this_machine(other) == other
