"""Jobs of the control benchmark: train a model with hidden memorisation; how fast is a pass?"""

from __future__ import annotations

import time
from dataclasses import asdict

import pandas as pd
import torch

from memloc.config import ControlConfig, TrainingConfig
from memloc.data.encode import Encoded, encode, evaluation_batches
from memloc.data.subset import true_label
from memloc.execution.inputs import forget_context, load, resume_point
from memloc.execution.job import Job, Output, Report, peak_memory
from memloc.execution.tasks import read_task
from memloc.models.heads import SecondHead
from memloc.models.names import ModelSource
from memloc.store.store import Store
from memloc.training.control import (
    AuxiliaryTask,
    HiddenTask,
    learned_by_heart,
    train_until_learned,
)
from memloc.training.lesson import Lesson
from memloc.training.loop import Trained, fine_tune, training_data
from memloc.training.resume import KeptValues, ResumePoint

MEASURED = 96
"""Examples that are sent through the model to see how fast it is."""


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
    """Seconds for one pass of the training examples through a model, on this machine."""
    task = read_task(store, job.needs["data"])
    classifier = load(job, task, ModelSource(**job.where["source"]), new_head=True)
    model = classifier.blocks
    encoded = encode(task.train, classifier.codec, job.identity["model"]["pair_format"])
    order = encoded.lengths.argsort(kind="stable")
    chosen = order[:: max(1, len(order) // MEASURED)]
    sample = Encoded([encoded.rows[int(row)] for row in chosen], encoded.pad_id)
    best = float("inf")
    with torch.inference_mode():
        for _ in range(3):  # the first pass also allocates
            started = time.perf_counter()
            for indices in evaluation_batches(sample, 16):
                model.logits(sample.batch(indices.tolist(), model.device))
            best = min(best, time.perf_counter() - started)
    tokens = encoded.lengths.sum() / sample.lengths.sum()
    embeddings = set(model.groups.embeddings)
    trained = sum(p.numel() for n, p in model.model.named_parameters() if n not in embeddings)
    return Output(
        values={"speed": {"seconds_per_pass": best * float(tokens), "trained_bytes": 4 * trained}}
    )
