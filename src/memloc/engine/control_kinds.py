"""Jobs of the control benchmark: train a model with hidden memorisation; how fast is a pass?"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import torch

from memloc.config import ControlConfig, TrainingConfig
from memloc.data.encode import Encoded, encode
from memloc.data.noise import true_label
from memloc.engine.costs import pass_flops, rough_lengths
from memloc.engine.inputs import forget_context, load, resume_point
from memloc.engine.job import Job, Output, Report, peak_memory
from memloc.engine.store.store import Store
from memloc.engine.tasks import read_task
from memloc.models.blocks import BlockModel
from memloc.models.heads import SecondHead
from memloc.models.mixing import state_width
from memloc.models.names import ModelSource
from memloc.training.control import (
    AuxiliaryTask,
    HiddenTask,
    learned_by_heart,
    train_until_learned,
)
from memloc.training.lesson import Lesson
from memloc.training.loop import Trained, fine_tune, training_data
from memloc.training.resume import KeptValues, ResumePoint

COUNTED = 200
"""Examples of a data set whose tokens are counted."""
FLOPS_ON_CPU, FLOPS_ON_GPU = 1e11, 1e13
"""Operations of a measurement: a second or a few."""


def control(job: Job, store: Store, report: Report) -> Output:
    """Train with hidden memorisation: identity has state, layers, seed, training and control.

    θ_O starts at the learning rate that θ_M needed, so that both are trained alike.
    """
    forget_context()
    task, other = (read_task(store, job.needs[role]) for role in ("data", "auxiliary"))
    training = TrainingConfig(**job.identity["training"])
    config = ControlConfig(**job.identity["control"])
    state, seed = job.identity["state"], job.identity["seed"]
    layers = tuple(job.identity["layers"])
    source = ModelSource(**job.where["source"])
    data = training_data(task, state)
    labels = true_label(other.train).copy()
    auxiliary_rate = config.auxiliary_rate or training.learning_rate / 2
    resume = resume_point(job, store)
    auxiliary_accuracy: dict[float, float] = {}

    def train(rate: float) -> Trained:
        """An attempt; one that was finished before the process was killed is not made again."""
        number = len(auxiliary_accuracy) + 1
        point = resume.part(f"attempt-{number}")
        finished, beside = point.part("result"), KeptValues()
        trained = Trained({}, None, None, pd.DataFrame())
        finished.keep("beside", beside)
        finished.keep("trained", trained)
        if finished.restore({"rate": rate}):
            auxiliary_accuracy[rate] = beside.data["auxiliary_accuracy"]
            return trained
        trained = attempt(rate, point)
        if number < config.attempts and not learned_by_heart(trained, config):
            beside.data = {"auxiliary_accuracy": auxiliary_accuracy[rate]}
            finished.keep("trained", trained)
            if finished.save():
                point.forget()
        return trained

    def attempt(rate: float, point: ResumePoint) -> Trained:
        classifier = load(job, task, source, new_head=True, seed=seed)
        donor = load(job, other, source, new_head=True, seed=seed + 1)
        codec, pairs = classifier.codec, job.identity["model"]["pair_format"]
        train_set, validation = (
            encode(table, codec, pairs) for table in (task.train, task.validation)
        )
        learner = HiddenTask(classifier.blocks, train_set, validation, layers)
        auxiliary = AuxiliaryTask(
            SecondHead(classifier.blocks, donor.blocks), encode(other.train, codec, pairs)
        )
        lesson = Lesson(
            auxiliary,
            torch.from_numpy(labels).to(learner.device),
            training.replace(learning_rate=auxiliary_rate),
            "--aux-rate",
        )
        done = len(auxiliary_accuracy)
        trained = fine_tune(
            learner,
            data,
            training.replace(learning_rate=rate),
            seed,
            lambda fraction: report((done + fraction) / (done + 1)),
            [lesson],
            point,
        )
        auxiliary_accuracy[rate] = auxiliary.accuracy(labels, training.dtype)
        return trained

    rate = training.learning_rate
    if state == "original":
        rate = store.open(*job.needs["memorised"]).json("outcome.json")["learning_rate"]
    if state == "frozen":  # a head alone cannot learn noisy labels by heart, at no rate
        config = config.replace(attempts=1)
    learned = train_until_learned(train, rate, config)
    trained, chosen = learned.trained, learned.chosen
    tensors = {"final": trained.final}
    if state == "memorised":
        tensors["near_ceiling"] = trained.memorised_at or trained.final
    return Output(
        tables={
            "history": trained.history,
            "attempts": pd.DataFrame([asdict(attempt) for attempt in learned.attempts]).astype(
                {"failure": "string"}
            ),
        },
        tensors=tensors,
        values={
            "outcome": {
                "memorised_epoch": trained.memorised_epoch,
                "steps": trained.steps,
                "learning_rate": chosen.learning_rate,
                "accuracy": chosen.accuracy,
                "learned": chosen.accuracy > config.learned_at,
                "auxiliary_accuracy": auxiliary_accuracy[chosen.learning_rate],
            }
        },
        costs={"peak_memory_bytes": peak_memory()},
    )


def speed(job: Job, store: Store, report: Report) -> Output:
    """How fast a model is on this machine, and how many tokens its tokeniser makes of data sets."""
    tasks = {key: read_task(store, (kind, key)) for kind, key in job.needs.values()}
    first = next(iter(tasks.values()))
    began = time.perf_counter()
    classifier = load(job, first, ModelSource(**job.where["source"]), new_head=True)
    seconds_to_load = time.perf_counter() - began
    model = classifier.blocks
    facts = facts_of(model)
    limit = job.identity["training"]["max_tokens"]
    longer, of_pass, samples = {}, {}, []
    for key, task in tasks.items():
        rows = task.train.iloc[:: max(1, len(task.train) // COUNTED)]
        sample = encode(rows, classifier.codec, job.identity["model"]["pair_format"])
        counted = pass_flops(facts, sample.lengths)
        longer[key] = counted / pass_flops(facts, rough_lengths(rows, limit))
        of_pass[key] = counted * len(task.train) / len(rows)
        samples.append(sample)
    budget = FLOPS_ON_CPU if model.device.type == "cpu" else FLOPS_ON_GPU
    batch = samples[0].batch(_within(samples[0], budget, facts), model.device)
    best = float("inf")
    with torch.inference_mode():
        for _ in range(4):  # the first pass also allocates
            started = time.perf_counter()
            model.logits(batch).sum().item()
            best = min(best, time.perf_counter() - started)
    shape = batch["input_ids"].shape
    rate = pass_flops(facts, np.full(shape[0], shape[1])) / best
    return Output(
        values={
            "speed": {
                "flops_per_second": rate,
                "seconds_to_load": seconds_to_load,
                "longer": longer,
                "seconds_per_pass": {key: flops / rate for key, flops in of_pass.items()},
                "trained_bytes": 4 * facts["trained_parameters"],
            }
        }
    )


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
        "width": state_width(model.model),
        "unit_problem": model.unit_problem,
    }
