"""What each kind of job computes, and what it works on: models, examples and states.

Models are loaded when asked for. A process keeps what it loaded for its last job, because the next
one (another window of the same model) usually needs the same.
"""

from __future__ import annotations

import contextlib
import gc
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import pandas as pd
import torch
from scipy.special import softmax
from torch import Tensor

from memloc.analysis.generalisation import half_split
from memloc.analysis.windows import Window
from memloc.config import Control, Model, Training, Windows
from memloc.data.encode import Encoded, encode, evaluation_batches
from memloc.data.noise import true_label
from memloc.data.task import Task
from memloc.engine.job import Job, Output, Report, peak_memory, read_task
from memloc.engine.local import pick_device
from memloc.engine.plan import (
    DYNAMICS,
    VALIDATION,
    pass_flops,
    rough_lengths,
    snapshot_of,
    windows_in,
)
from memloc.engine.store.store import Store
from memloc.errors import StoreError
from memloc.models.blocks import BlockModel
from memloc.models.load import Classifier, load_classifier, set_padding, share_embeddings
from memloc.models.names import ModelSource, Role, StatesOf, resolve
from memloc.models.on_demand import LayersOnDemand
from memloc.models.states import EVALUATION_BATCH, autocast, predict_logits, states_of
from memloc.techniques import Technique, make, register_from
from memloc.techniques.base import CACHE_MEMORY, Context, Tables
from memloc.techniques.probing import Probing
from memloc.techniques.retraining import Retraining
from memloc.training.exam import Exam
from memloc.training.learners import AuxiliaryTask, Learner, TailOnly, hidden_task
from memloc.training.loop import (
    Objective,
    Trained,
    fine_tune,
    train_on_part,
    train_until_learned,
    training_data,
)
from memloc.training.resume import SAVE_EVERY, ResumePoint

FINAL = "final.safetensors"
"""File with the weights at the end of a training."""
COUNTED = 200
"""Examples of a data set whose tokens are counted."""
FLOPS_ON_CPU, FLOPS_ON_GPU = 1e11, 1e13
"""Operations of a measurement: a second or a few."""
_last: list[_Models] = []
"""What this process has loaded for its last job; empty if that was none."""


# --- what a job works on ----------------------------------------------------------------------


def context_for(job: Job, store: Store) -> Context:
    """The context of a job, perhaps that of the job before."""
    models = _Models(job, store)
    if not _last or _last[0].key != models.key:
        if _last:
            models.take_over(_last[0])
        forget_context()
        _last.append(models)
    return _last[0].context


def forget_context() -> None:
    """Free the memory."""
    _last.clear()
    gc.collect()  # models may hold themselves in a circle, and the next must not come beside them


def resume_point(job: Job, store: Store) -> ResumePoint:
    """Where the trainings of a job save their states."""
    every = job.where.get("save_every")
    return ResumePoint(store, job.key, SAVE_EVERY if every is None else every)


class _Models:
    """The examples and models of a job, loaded when one is first asked for."""

    def __init__(self, job: Job, store: Store) -> None:
        self.job, self.store = job, store
        self.roles = [r for r in get_args(Role) if r in job.needs or r in job.where["models"]]
        self.reference: Role = self.roles[0] if self.roles else "pretrained"
        """Inputs are encoded the way of the model that memorised, or of the only one there is."""
        self.low_memory = job.where.get("low_memory", False) and "original" in self.roles
        self.loaded: dict[Role, Classifier] = {}
        self.inputs: Encoded | None = None
        """The training examples, since a model is there that they are encoded for."""

    @cached_property
    def key(self) -> str:
        """The same for jobs that have the same context."""
        names = ("model", "models", "training", "seed", "settings", "unit", "window_sizes", "clean")
        needs = {r: need for r, need in self.job.needs.items() if not r.startswith("window:")}
        identity = {name: self.job.identity.get(name) for name in names}
        what = [str(self.store.root), needs, self.job.where, identity]
        return json.dumps(what, sort_keys=True)

    @cached_property
    def context(self) -> Context:
        """What techniques see of all this."""
        job = self.job

        @cache
        def states(of: StatesOf) -> Tensor:
            artefact = self.store.open(*job.needs[f"states:{of}"])
            return artefact.tensors("states.safetensors")["states"]

        memory = job.where.get("cache_memory")
        return Context(
            self.task.train,
            lambda: self.encoded,
            lambda role: self.get(role).blocks,
            states,
            job.where["layers"],
            seed=job.identity.get("seed", 0),
            training=Training(**job.identity["training"]),
            windows=Windows(
                sizes=job.identity.get("window_sizes") or "all",
                clean=job.identity.get("clean", "all"),
                unit=job.identity.get("unit", "layer"),
            ),
            cache_memory=CACHE_MEMORY if memory is None else memory,
            cache_folder=_cache_folder(self.store),
        )

    @cached_property
    def task(self) -> Task:
        return read_task(self.store, self.job.needs["data"])

    @property
    def encoded(self) -> Encoded:
        self.get(self.reference)
        assert self.inputs is not None
        return self.inputs

    def take_over(self, before: _Models) -> None:
        """What the job before had loaded, as far as this one needs the same."""
        if self._origin() != before._origin() or "origin" in before.job.identity:
            return  # a technique of somebody else may have left its models changed
        if "task" in vars(before):
            self.task = before.task
        self.inputs = before.inputs
        self.loaded = {
            role: found
            for role, found in before.loaded.items()
            if role in self.roles and self._source(role) == before._source(role)
        }

    def _source(self, role: Role) -> object:
        return self.job.needs.get(role), self.job.where["models"].get(role)

    def _origin(self) -> object:
        """What everything that is loaded depends on; all share the reference's embeddings."""
        identity, reference = self.job.identity, self.reference
        beside = ("models", "technique")
        where = {name: value for name, value in self.job.where.items() if name not in beside}
        what = identity["model"], identity["training"]["max_tokens"]
        needs = self.job.needs["data"], self._source(reference)
        return self.store.root, where, what, needs, reference, self.low_memory

    def get(self, role: Role) -> Classifier:
        # The layers of θ_O are in their file before another model comes.
        first: list[Role] = ["original"] if self.low_memory else []
        wanted = dict.fromkeys([*first, self.reference, role])
        new: dict[Role, Classifier] = {}
        for each in [each for each in wanted if each not in self.loaded]:
            new[each] = _load_role(self.job, self.store, self.task, each)
            if each == "original" and self.low_memory:
                LayersOnDemand(new[each].blocks, _cache_folder(self.store))
        reference = (self.loaded | new)[self.reference]
        if self.inputs is None:
            self.inputs = encoded_for(self.job, reference, self.task.train)
        for each, found in new.items():
            if each != self.reference:
                # Heads find the last real token by the padding id, so all must know the same one.
                set_padding(found.blocks.model, reference.codec.pad_id)
                share_embeddings(found.blocks, reference.blocks)
            found.blocks.examine(self.inputs)
        self.loaded |= new
        return self.loaded[role]


def _cache_folder(store: Store) -> Path:
    return store.root / ".cache"


def _load_role(job: Job, store: Store, task: Task, role: Role) -> Classifier:
    """As somebody fine-tuned it, or the pre-trained one, perhaps with stored weights over it."""
    if role in job.where["models"]:
        return load(job, task, given=role)
    classifier = load(job, task)
    if role == "pretrained":
        return classifier
    artefact = store.open(*job.needs[role])
    file = f"{role}.safetensors"  # the weights of a single epoch are there once
    weights = artefact.each_tensor(file if file in artefact.manifest["files"] else FINAL)
    parameters = dict(classifier.blocks.model.named_parameters())
    with torch.no_grad():
        for parameter, value in weights:  # the rest stays pre-trained
            parameters[parameter].copy_(value)
    return classifier


def load(job: Job, task: Task, seed: int = 0, given: Role | None = None) -> Classifier:
    """A model with its tokeniser: the pre-trained one with a new head, or a given one.

    Jobs of clusters leave the device to the machine they come to (`auto`).

    Args:
        job: Says which models there are.
        task: A new head has one output per class of it.
        seed: Of the new head.
        given: Role of a model that somebody fine-tuned.
    """
    found = job.where["source"] if given is None else job.where["models"][given]
    source, device = on_this_machine(ModelSource(**found)), job.where["device"]
    model: dict[str, Any] = job.identity["model"]
    return load_classifier(
        source,
        Model(
            name=source.location,
            head=model.get("head", "own"),
            blocks=model["blocks"],
            pair_format=model["pair_format"],
            trust_remote_code=job.where["trust_remote_code"],
        ),
        n_labels=len(task.labels) if given is None else None,
        labels=task.labels if given is None else None,
        seed=seed,
        device=pick_device("auto") if device == "auto" else device,
        max_tokens=job.identity["training"]["max_tokens"],
    )


def encoded_for(job: Job, classifier: Classifier, examples: pd.DataFrame) -> Encoded:
    """Examples as a model of the job reads them."""
    return encode(examples, classifier.codec, job.identity["model"]["pair_format"])


def on_this_machine(source: ModelSource) -> ModelSource:
    """The same model; the embedded one is part of the installation, wherever that is here."""
    if source.name != "minilm" or Path(source.location).is_dir():
        return source
    embedded = resolve(Model(name="minilm"))
    return embedded if embedded.fingerprint == source.fingerprint else source


# --- models -----------------------------------------------------------------------------------


def train(job: Job, store: Store, report: Report) -> Output:
    """Fine-tune: identity has state (original, memorised, frozen), model, training and seed.

    With `snapshot` in the identity, the result is the weights after that epoch. The epochs in
    `where["snapshots"]` are left on the way as the artefacts of `snapshot_of`. θ_O of an open
    training follows its θ_M, which it needs for that.
    """
    forget_context()
    task = read_task(store, job.needs["data"])
    state, seed = job.identity["state"], job.identity["seed"]
    classifier = load(job, task, seed)
    train_set, validation = (
        encoded_for(job, classifier, table) for table in (task.train, task.validation)
    )
    config = Training(**job.identity["training"])
    model = classifier.blocks
    model.examine(train_set, validation)
    without = "without" in job.identity
    rows = np.flatnonzero(~task.train["noisy"].to_numpy()) if without else None
    learner = Learner(model, train_set, validation, rows=rows)
    settle_after: int | None = None
    if state == "frozen":
        tail, dropout = config.frozen_tail, config.frozen_dropout
        config = config.with_fixed_epochs()
        learner = TailOnly(model, train_set, validation, tail, dropout)
    elif "memorised" in job.needs:
        outcome = store.open(*job.needs["memorised"]).json("outcome.json")
        settle_after = outcome["settled_after"]
    last: int | None = job.identity.get("snapshot")
    identity = {name: value for name, value in job.identity.items() if name != "snapshot"}
    whole = replace(job, identity=identity, needs={"data": job.needs["data"]})

    def with_new(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A new pooler under a frozen model is not trained, but no checkpoint holds it either."""
        parameters = dict(classifier.blocks.model.named_parameters())
        return {name: parameters[name] for name in classifier.fresh} | dict(weights)

    def validation_accuracy() -> float | None:
        """Of the model as it is now."""
        if not len(data.validation_labels):
            return None
        predicted = learner.evaluate_validation(config.dtype).argmax(axis=1)
        return float((predicted == data.validation_labels).mean())

    def end_epoch(epoch: int, weights: Mapping[str, Tensor]) -> None:
        """Leave the weights, if they are wanted; a full disk does not end a training."""
        if epoch == last or epoch not in job.where.get("snapshots", ()):
            return
        other = snapshot_of(whole, epoch)
        with contextlib.suppress(StoreError):
            if not store.has(*other.artefact):
                accuracy = validation_accuracy()
                with store.write(*other.artefact, other.inputs) as draft:
                    draft.tensors(FINAL, with_new(weights))
                    draft.json(f"{VALIDATION}.json", accuracy)

    data = training_data(task, state, without)
    trained = fine_tune(
        learner,
        data,
        config,
        seed,
        report,
        resume=resume_point(job, store).part("training"),
        end_epoch=end_epoch,
        last_epoch=last,
        settle_after=settle_after,
    )
    costs = {"peak_memory_bytes": peak_memory()}
    trained.final = with_new(trained.final)
    if last is not None:
        accuracy = {VALIDATION: validation_accuracy()}
        return Output(tensors={"final": trained.final}, values=accuracy, costs=costs)
    return Output(
        tables={"history": trained.history},
        tensors=_weights(trained, state) | {DYNAMICS: {"logits": torch.stack(trained.logits)}},
        values={
            "outcome": {
                "memorised_epoch": trained.memorised_epoch,
                "settled_after": trained.settled_after,
                "steps": trained.steps,
                "cut_share": train_set.cut / len(train_set),
            }
        },
        costs=costs,
    )


def _weights(trained: Trained, state: str) -> dict[str, dict[str, Tensor]]:
    """What is stored of a training, by file."""
    tensors = {"final": trained.final}
    if state == "memorised":
        # If the score is never reached, θ_M1 is θ_M2, and the outcome says so (no epoch).
        tensors["near_ceiling"] = trained.memorised_at or trained.final
    return tensors


def control(job: Job, store: Store, report: Report) -> Output:
    """Train with hidden memorisation: identity has state, layers, seed, training and control.

    θ_O starts at the learning rate that θ_M needed, so that both are trained alike.
    """
    forget_context()
    task, other = (read_task(store, job.needs[role]) for role in ("data", "auxiliary"))
    training = Training(**job.identity["training"])
    config = Control(**job.identity["control"])
    state, seed = job.identity["state"], job.identity["seed"]
    layers = tuple(job.identity["layers"])
    data = training_data(task, state)
    labels = true_label(other.train).copy()
    auxiliary_rate = config.auxiliary_rate or training.learning_rate / 2
    resume = resume_point(job, store)
    auxiliary_accuracy: dict[float, float] = {}
    cut_share = 0.0

    def attempt(rate: float) -> Trained:
        nonlocal cut_share
        done = len(auxiliary_accuracy)
        classifier, donor = load(job, task, seed), load(job, other, seed + 1)
        train_set, validation = (
            encoded_for(job, classifier, table) for table in (task.train, task.validation)
        )
        cut_share = train_set.cut / len(train_set)
        learner = hidden_task(classifier.blocks, train_set, validation, layers, config.tail)
        inputs = encoded_for(job, classifier, other.train)
        classifier.blocks.examine(train_set, validation, inputs)
        auxiliary = AuxiliaryTask(classifier.blocks, donor.blocks, inputs)
        objective = Objective(
            auxiliary,
            torch.from_numpy(labels).to(learner.device),
            training.replace(learning_rate=auxiliary_rate),
            "the learning rate of the auxiliary task",
        )
        trained = fine_tune(
            learner,
            data,
            training.replace(learning_rate=rate),
            seed,
            lambda fraction: report((done + fraction) / (done + 1)),
            [objective],
            resume.part(f"attempt-{done + 1}"),
        )
        auxiliary_accuracy[rate] = auxiliary.accuracy(labels, training.dtype)
        return trained

    rate = training.learning_rate
    if state == "original":
        rate = store.open(*job.needs["memorised"]).json("outcome.json")["learning_rate"]
    if state == "frozen":  # a head alone cannot learn noisy labels by heart, at no rate
        config = config.replace(attempts=1)
    trained, chosen, attempts = train_until_learned(attempt, rate, config)
    return Output(
        tables={
            "history": trained.history,
            "attempts": pd.DataFrame(map(asdict, attempts)).astype({"failure": "string"}),
        },
        tensors=_weights(trained, state),
        values={
            "outcome": {
                "memorised_epoch": trained.memorised_epoch,
                "steps": trained.steps,
                "learning_rate": chosen.learning_rate,
                "accuracy": chosen.accuracy,
                "learned": chosen.accuracy > config.learned_at,
                "auxiliary_accuracy": auxiliary_accuracy[chosen.learning_rate],
                "cut_share": cut_share,
            }
        },
        costs={"peak_memory_bytes": peak_memory()},
    )


def speed(job: Job, store: Store, report: Report) -> Output:
    """How fast a model is on this machine, and how many tokens its tokeniser makes of data sets."""
    tasks = {key: read_task(store, (kind, key)) for kind, key in job.needs.values()}
    began = time.perf_counter()
    classifier = load(job, next(iter(tasks.values())))
    seconds_to_load = time.perf_counter() - began
    model, facts = classifier.blocks, facts_of(classifier.blocks)
    limit = job.identity["training"]["max_tokens"]
    longer, samples = {}, []
    for key, task in tasks.items():
        rows = task.train.iloc[:: max(1, len(task.train) // COUNTED)]
        samples.append(encoded_for(job, classifier, rows))
        guessed = pass_flops(facts, rough_lengths(rows, limit))
        longer[key] = pass_flops(facts, samples[-1].lengths) / guessed
    model.examine(*samples)
    budget = FLOPS_ON_CPU if model.device.type == "cpu" else FLOPS_ON_GPU
    batch = samples[0].batch(_within(samples[0], budget, facts), model.device)
    best = float("inf")
    with torch.inference_mode(), autocast(model.device, job.identity["training"]["dtype"]):
        for _ in range(4):  # the first pass also allocates
            started = time.perf_counter()
            model.logits(batch).sum().item()
            best = min(best, time.perf_counter() - started)
    shape = batch["input_ids"].shape
    rate = pass_flops(facts, np.full(shape[0], shape[1])) / best
    found = {"flops_per_second": rate, "seconds_to_load": seconds_to_load, "longer": longer}
    return Output(values={"speed": found})


def _within(sample: Encoded, budget: float, facts: dict[str, Any]) -> list[int]:
    """Examples of middling length, as many as the budget allows, up to the usual batch."""
    order = sample.lengths.argsort(kind="stable")
    middle = order[max(0, len(order) // 2 - 8) :][:16]
    of_example = pass_flops(facts, sample.lengths[middle]) / len(middle)
    return [int(index) for index in middle[: max(1, int(budget / of_example))]]


def facts_of(model: BlockModel) -> dict[str, Any]:
    """What planning must know about a model."""
    sizes = {name: tensor.numel() for name, tensor in model.model.named_parameters()}
    embeddings = set(model.groups.embeddings)
    return {
        "layers": model.n_layers,
        "pooling": model.pooling,
        "layer_parameters": sum(sizes[name] for group in model.groups.blocks for name in group),
        "trained_parameters": sum(n for name, n in sizes.items() if name not in embeddings),
        "width": model.width,
        "unit_problem": model.unit_problem,
        "changes": model.changes,
    }


# --- techniques, states and half-splits -------------------------------------------------------


def model(job: Job, store: Store, report: Report) -> Output:
    """Look at a pre-trained model, and perhaps at how it reads data: what planning must know."""
    source = on_this_machine(ModelSource(**job.where["source"]))
    classifier = load_classifier(
        source,
        Model(
            name=source.location,
            head=job.identity.get("head", "own"),
            blocks=job.identity["blocks"],
            trust_remote_code=job.where["trust_remote_code"],
        ),
        n_labels=2,
        max_tokens=job.identity.get("max_tokens", 512),
    )
    if "data" in job.needs:
        task, pairs = read_task(store, job.needs["data"]), job.identity["pair_format"]
        tables = (task.train, task.validation)
        classifier.blocks.examine(*(encode(one, classifier.codec, pairs) for one in tables))
    return Output(values={"facts": facts_of(classifier.blocks)})


def states(job: Job, store: Store, report: Report) -> Output:
    """States of all layers where the head reads them, for everything that looks at states."""
    context = context_for(job, store)
    of = cast(StatesOf, job.identity["role"])
    found = states_of(of, context.model, context.encoded, report)
    batches = len(list(evaluation_batches(context.encoded, EVALUATION_BATCH)))
    costs = {"block_passes": (len(found) - 1) * batches, "peak_memory_bytes": peak_memory()}
    return Output(tensors={"states": {"states": found}}, costs=costs)


def window(job: Job, store: Store, report: Report) -> Output:
    """One window of a technique, or several: identity has technique, revision, settings, windows.

    Tables of several windows have the numbers of their layers in front of their names.
    """
    context = replace(context_for(job, store), resume=resume_point(job, store))
    technique = _technique(job)
    if "window" in job.identity:
        found = technique.window(context, Window(*job.identity["window"]), report)
    else:
        windows = [Window(*window) for window in job.identity["windows"]]
        parts = technique.group(context, windows, report)
        found = {
            f"{_prefix(window)}{name}": table
            for window, part in zip(windows, parts, strict=True)
            for name, table in part.items()
        }
    return Output(tables=found, costs={"peak_memory_bytes": peak_memory()})


def _prefix(window: Window) -> str:
    return f"{window.first}-{window.last}-"


def localise(job: Job, store: Store, report: Report) -> Output:
    """Apply a technique, or put together what was found on its windows."""
    context, technique = replace(context_for(job, store), costs={}), _technique(job)
    needs = {role: need for role, need in job.needs.items() if role.startswith("window:")}
    if not needs:
        tables = technique.localise(context, report)
        return Output(tables=tables, costs={**context.costs, "peak_memory_bytes": peak_memory()})
    artefacts = {role: store.open(*need) for role, need in needs.items()}
    parts: dict[Window, Tables] = {}
    for role, artefact in artefacts.items():
        windows = windows_in(role)
        for each in windows:
            start = _prefix(each) if len(windows) > 1 else ""
            parts[each] = {
                name.removeprefix(start).removesuffix(".parquet"): artefact.table(name)
                for name in artefact.manifest["files"]
                if name.startswith(start)
            }
    ordered = sorted(parts, key=lambda window: (window.size, window.first))
    tables = technique.combine(context, ordered, [parts[each] for each in ordered])
    spent = [artefact.manifest["costs"] for artefact in artefacts.values()]
    costs = {
        "seconds": round(sum(cost["seconds"] for cost in spent), 3),
        "peak_memory_bytes": max(cost["peak_memory_bytes"] for cost in spent),
    }
    return Output(tables=tables, costs={**context.costs, **costs})


def _technique(job: Job) -> Technique:
    if "technique" in job.where:
        register_from(job.where["technique"])
    return make(job.identity["technique"], job.identity["settings"])


def split(job: Job, store: Store, report: Report) -> Output:
    """Train on a random half of the training data and ask for the labels of all of it."""
    forget_context()
    task = read_task(store, job.needs["data"])
    config = Training(**job.identity["training"])
    number, seed = job.identity["split"], job.identity["seed"]
    classifier = load(job, task, number)
    encoded = encoded_for(job, classifier, task.train)
    classifier.blocks.examine(encoded)
    inside = half_split(len(encoded), number, seed, paired=job.identity.get("paired", False))
    labels = task.train["label"].to_numpy(copy=True)
    resume = resume_point(job, store).part("training")
    train_on_part(
        classifier.blocks,
        encoded,
        np.flatnonzero(inside),
        labels,
        config,
        number,
        report,
        resume,
        "generalisation.learning_rate",
    )
    logits = predict_logits(classifier.blocks, encoded, config.dtype)
    probabilities = softmax(logits.astype(np.float64), axis=1)
    answers = pd.DataFrame(
        {
            "example": task.train["example"],
            "inside": inside,
            "predicted": logits.argmax(axis=1),
            "probability": probabilities[np.arange(len(labels)), labels],
        }
    )
    return Output(
        tables={"answers": answers},
        tensors={"probabilities": {"probabilities": torch.from_numpy(probabilities).float()}},
        costs={"peak_memory_bytes": peak_memory()},
    )


# --- repair ---------------------------------------------------------------------------------------


def candidate(job: Job, store: Store, report: Report) -> Output:
    """Train θ_M, or a window of it, without the suspects.

    The identity has seed and training; of a window, also window, unit and settings of retraining.
    """
    forget_context()
    models, resume = _Models(job, store), resume_point(job, store)
    kept = np.flatnonzero(~models.task.train["noisy"].to_numpy())
    if "window" in job.identity:
        technique = Retraining(**job.identity["settings"])
        context = replace(models.context, resume=resume)
        weights: Mapping[str, Tensor] = technique.weights(
            context, Window(*job.identity["window"]), kept, report
        )
    else:
        model, encoded = models.get("memorised").blocks, models.encoded
        labels = models.task.train["label"].to_numpy(copy=True)
        config, seed = Training(**job.identity["training"]), job.identity["seed"]
        train_on_part(model, encoded, kept, labels, config, seed, report, resume.part("training"))
        weights = Learner(model, encoded).trainable()
    costs = {"peak_memory_bytes": peak_memory()}
    return Output(tensors={Path(FINAL).stem: dict(weights)}, costs=costs)


def repaired(job: Job, store: Store) -> tuple[Classifier, float]:
    """The model that an exam is about, and the seconds in which its weights were put in place.

    It is θ_O if the identity says that it is the twin; else θ_M with the weights that were trained
    for it, or with those of θ_O in the layers of its window. It belongs to the caller.
    """
    forget_context()
    models = _Models(job, store)
    if job.identity["candidate"] == "twin":
        return models.get("original"), 0.0
    found = models.get("memorised")
    weights: Iterable[tuple[str, Tensor]]
    if "candidate" in job.needs:
        weights = store.open(*job.needs["candidate"]).each_tensor(FINAL)
    elif "window" not in job.identity:
        return found, 0.0
    else:
        theirs = dict(models.get("original").blocks.model.named_parameters())
        groups = found.blocks.groups.of(job.identity["unit"])
        layers = Window(*job.identity["window"]).layers
        weights = [(name, theirs[name]) for layer in layers for name in groups[layer - 1]]
    started = time.perf_counter()
    parameters = dict(found.blocks.model.named_parameters())
    with torch.no_grad():
        for name, value in weights:
            parameters[name].copy_(value)
    return found, time.perf_counter() - started


def exam(job: Job, store: Store, report: Report) -> Output:
    """Examine a candidate: identity has candidate, seed, training, probing and true_labels."""
    classifier, seconds = repaired(job, store)
    task = read_task(store, job.needs["data"])
    train_set, validation = (
        encoded_for(job, classifier, table) for table in (task.train, task.validation)
    )
    classifier.blocks.examine(train_set, validation)
    known = job.identity["true_labels"]
    probing = Probing(**job.identity["probing"]).config
    assert isinstance(probing, Probing.Config)
    found = Exam(
        classifier.blocks,
        train_set,
        validation,
        task.train["label"].to_numpy(copy=True),
        task.train["noisy"].to_numpy(copy=True),
        task.validation["label"].to_numpy(copy=True),
        true_label(task.train) if known else None,
        Training(**job.identity["training"]),
        probing,
        job.identity["seed"],
    ).take(report, resume_point(job, store))
    costs = {"seconds_to_make": seconds, "peak_memory_bytes": peak_memory()}
    return Output(tables={"exam": pd.DataFrame(found)}, costs=costs)


KINDS: dict[str, Callable[[Job, Store, Report], Output]] = {
    "model": model,
    "train": train,
    "states": states,
    "window": window,
    "localise": localise,
    "explain": localise,
    "split": split,
    "control": control,
    "speed": speed,
    "candidate": candidate,
    "exam": exam,
}
