"""What a job works on: models, examples and states, loaded when asked for.

A process keeps what it loaded for its last job, because the next one (another window of the same
model) usually needs the same.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from memloc.config import ModelConfig, TrainingConfig, Windows
from memloc.data.encode import Encoded, encode
from memloc.data.task import Task
from memloc.engine.checkpoints import file_of
from memloc.engine.device import pick_device
from memloc.engine.job import Job
from memloc.engine.store.store import Store
from memloc.engine.tasks import read_task
from memloc.models.blocks import BlockModel
from memloc.models.load import Classifier, load_classifier, set_padding, share_embeddings
from memloc.models.names import ModelSource, Role, StatesOf, resolve
from memloc.models.on_demand import LayersOnDemand
from memloc.techniques.base import CACHE_MEMORY, Context
from memloc.training.resume import SAVE_EVERY, ResumePoint

_kept: dict[str, Context] = {}


def context_for(job: Job, store: Store) -> Context:
    """The context of a job, perhaps that of the job before."""
    names = ("model", "models", "training", "seed", "settings", "unit", "window_sizes", "epoch")
    needs = {role: need for role, need in job.needs.items() if not role.startswith("window:")}
    what = [str(store.root), needs, job.where, {n: job.identity.get(n) for n in names}]
    key = json.dumps(what, sort_keys=True)
    if key not in _kept:
        forget_context()
        _kept[key] = _make_context(job, store)
    return _kept[key]


def forget_context() -> None:
    """Free the memory."""
    _kept.clear()
    gc.collect()  # models may hold themselves in a circle, and the next must not come beside them


def resume_point(job: Job, store: Store) -> ResumePoint:
    """Where the trainings of a job save their states."""
    every = job.where.get("save_every")
    return ResumePoint(store, job.key, SAVE_EVERY if every is None else every)


def _make_context(job: Job, store: Store) -> Context:
    task = read_task(store, job.needs["data"])
    models = _Models(job, store, task)

    @cache
    def encoded() -> Encoded:
        codec = models.get(models.reference).codec
        return encode(task.train, codec, job.identity["model"]["pair_format"])

    @cache
    def states(of: StatesOf) -> Tensor:
        artefact = store.open(*job.needs[f"states:{of}"])
        return artefact.tensors("states.safetensors")["states"]

    memory = job.where.get("cache_memory")
    return Context(
        task.train,
        encoded,
        lambda role: models.get(role).blocks,
        states,
        job.where["layers"],
        seed=job.identity.get("seed", 0),
        training=TrainingConfig(**job.identity["training"]),
        windows=Windows(
            sizes=job.identity.get("window_sizes"), unit=job.identity.get("unit", "layer")
        ),
        cache_memory=CACHE_MEMORY if memory is None else memory,
        cache_folder=_cache_folder(store),
    )


class _Models:
    """The models of a job, loaded when one is first asked for."""

    def __init__(self, job: Job, store: Store, task: Task) -> None:
        self.job, self.store, self.task = job, store, task
        self.roles = [r for r in get_args(Role) if r in job.needs or r in job.where["models"]]
        self.reference: Role = self.roles[0] if self.roles else "pretrained"
        """Inputs are encoded the way of the model that memorised, or of the only one there is."""
        self.low_memory = job.where.get("low_memory", False) and "original" in self.roles
        self.loaded: dict[Role, Classifier] = {}

    def get(self, role: Role) -> Classifier:
        # The layers of θ_O are in their file before another model comes.
        first: list[Role] = ["original"] if self.low_memory else []
        wanted = dict.fromkeys([*first, self.reference, role])
        new = [each for each in wanted if each not in self.loaded]
        for each in new:
            found = _load_role(self.job, self.store, self.task, each)
            if each == "original" and self.low_memory:
                LayersOnDemand(found.blocks, _cache_folder(self.store))
            self.loaded[each] = found
        reference = self.loaded[self.reference]
        for each in new:
            if each != self.reference:
                blocks = self.loaded[each].blocks
                # Heads find the last real token by the padding id, so all must know the same one.
                set_padding(blocks.model, reference.codec.pad_id)
                share_embeddings(blocks, reference.blocks)
        return self.loaded[role]


def _cache_folder(store: Store) -> Path:
    return store.root / ".cache"


def _load_role(job: Job, store: Store, task: Task, role: Role) -> Classifier:
    """As somebody fine-tuned it, or the pre-trained one, perhaps with stored weights over it."""
    if role in job.where["models"]:
        return load(job, task, ModelSource(**job.where["models"][role]), new_head=False)
    classifier = load(job, task, ModelSource(**job.where["source"]), new_head=True)
    if role == "pretrained":
        return classifier
    artefact = store.open(*job.needs[role])
    name = "near_ceiling" if role == "near_ceiling" else "final"
    if "epoch" in job.identity:
        name = file_of(job.identity["epoch"])
    put_weights(classifier.blocks, artefact.each_tensor(f"{name}.safetensors"))
    return classifier


def load(job: Job, task: Task, source: ModelSource, *, new_head: bool, seed: int = 0) -> Classifier:
    """A model with its tokeniser; a new head has one output per class of the task.

    Jobs of clusters leave the device to the machine they come to (`auto`).
    """
    source, device = on_this_machine(source), job.where["device"]
    model: dict[str, Any] = job.identity["model"]
    return load_classifier(
        source,
        ModelConfig(
            name=source.location,
            blocks=model["blocks"],
            pair_format=model["pair_format"],
            trust_remote_code=job.where["trust_remote_code"],
        ),
        n_labels=len(task.labels) if new_head else None,
        labels=task.labels if new_head else None,
        seed=seed,
        device=pick_device("auto") if device == "auto" else device,
        max_tokens=job.identity["training"]["max_tokens"],
    )


def on_this_machine(source: ModelSource) -> ModelSource:
    """The same model; the embedded one is part of the installation, wherever that is here."""
    if source.name != "minilm" or Path(source.location).is_dir():
        return source
    embedded = resolve(ModelConfig(name="minilm"))
    return embedded if embedded.fingerprint == source.fingerprint else source


def put_weights(model: BlockModel, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Overwrite parameters in place; the rest stays pre-trained."""
    parameters = dict(model.model.named_parameters())
    with torch.no_grad():
        for name, value in weights:
            parameters[name].copy_(value)
