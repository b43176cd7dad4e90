"""The kinds of jobs: fine-tune a model, and apply a technique to a pair of models."""

from __future__ import annotations

import torch

from memloc.config import ModelConfig, TrainingConfig
from memloc.data.encode import encode
from memloc.data.task import Task
from memloc.execution.job import Job, Output, Report
from memloc.execution.tasks import read_task
from memloc.methods import Context, find_method
from memloc.models.blocks import BlockModel
from memloc.models.load import Classifier, load_classifier
from memloc.models.names import ModelSource
from memloc.store.store import Store
from memloc.training.learners import HeadOnly, WholeModel
from memloc.training.loop import TrainingData, fine_tune


def train(job: Job, store: Store, report: Report) -> Output:
    """Fine-tune: identity has state (original, memorised, frozen), model, training and seed."""
    task = read_task(store, job.needs["data"])
    config = TrainingConfig(**job.identity["training"])
    state: str = job.identity["state"]
    classifier = _load(job, task, config.max_tokens, job.identity["seed"])
    pair_format = job.identity["model"]["pair_format"]
    sets = tuple(encode(t, classifier.codec, pair_format) for t in (task.train, task.validation))
    learner = (HeadOnly if state == "frozen" else WholeModel)(classifier.blocks, *sets)
    column = "original_label" if state == "original" else "label"
    data = TrainingData(
        task.train[column].to_numpy(copy=True),
        task.train["noisy"].to_numpy(copy=True),
        task.validation["label"].to_numpy(copy=True),
    )
    trained = fine_tune(learner, data, config, job.identity["seed"], report)
    parameters = dict(classifier.blocks.model.named_parameters())
    # A new pooler under a frozen model is not trained, but no checkpoint holds it either.
    untrained = {name: parameters[name] for name in classifier.fresh - trained.final.keys()}
    tensors = {"final": {**trained.final, **untrained}}
    if state == "memorised":
        # If the score is never reached, θ_M1 is θ_M2, and the outcome says so (no epoch).
        tensors["near_ceiling"] = trained.memorised_at or trained.final
    return Output(
        tables={"history": trained.history},
        tensors=tensors,
        values={"outcome": {"memorised_epoch": trained.memorised_epoch, "steps": trained.steps}},
        costs={"peak_memory_bytes": _peak_memory()},
    )


def localise(job: Job, store: Store, report: Report) -> Output:
    """Apply a technique: identity has method, revision, model and max_tokens."""
    task = read_task(store, job.needs["data"])
    memorised = _trained(job, store, task, "memorised")
    original = _trained(job, store, task, "original")
    pair_format = job.identity["model"]["pair_format"]
    context = Context(
        task.train,
        encode(task.train, memorised.codec, pair_format),
        memorised.blocks,
        original.blocks,
        job.identity["dtype"],
    )
    result = find_method(job.identity["method"]).localise(context, report)
    costs = {**result.costs, "peak_memory_bytes": _peak_memory()}
    return Output(tables=dict(result.tables), costs=costs)


KINDS = {"train": train, "localise": localise}


def _load(job: Job, task: Task, max_tokens: int, seed: int) -> Classifier:
    source = ModelSource(**job.where["source"])
    model = job.identity["model"]
    return load_classifier(
        source,
        ModelConfig(
            name=source.location,
            blocks=model["blocks"],
            pair_format=model["pair_format"],
            trust_remote_code=job.where["trust_remote_code"],
        ),
        n_labels=len(task.labels),
        labels=task.labels,
        seed=seed,
        device=job.where["device"],
        max_tokens=max_tokens,
    )


def _trained(job: Job, store: Store, task: Task, role: str) -> Classifier:
    """The pre-trained model with the trained weights put over it."""
    artefact = store.open(*job.needs[role])
    classifier = _load(job, task, job.identity["max_tokens"], seed=0)
    put_weights(classifier.blocks, artefact.tensors("final.safetensors"))
    return classifier


def put_weights(model: BlockModel, weights: dict[str, torch.Tensor]) -> None:
    """Overwrite parameters in place; the rest stays pre-trained."""
    parameters = dict(model.model.named_parameters())
    with torch.no_grad():
        for name, value in weights.items():
            parameters[name].copy_(value)


def _peak_memory() -> int:
    """Largest resident size of this process so far, in bytes."""
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
