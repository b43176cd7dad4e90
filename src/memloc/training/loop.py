"""The one training loop: makes θ_O, θ_M1, θ_M2 and the frozen model (section 3, appendix D).

AdamW, linear schedule with warm-up, gradient norm clipped; input embeddings frozen. The seed
decides the order of the data, the new head and dropout. Frozen means ``requires_grad=False``: such
parameters get no gradient and do not count in the clipping norm.

Several tasks can train one model together (the control setup, section 3.2): each is a `Lesson` with
an optimiser and a schedule of its own, and their batches take turns in random order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import get_scheduler

from memloc.config import TrainingConfig
from memloc.data.encode import Encoded, training_batches
from memloc.data.task import Task
from memloc.errors import MemlocError
from memloc.models.blocks import BlockModel
from memloc.training.evaluate import autocast, predict_logits, scores
from memloc.training.learners import Learner, Trainee, WholeModel

Weights = dict[str, Tensor]


class TrainingFailed(MemlocError):
    """Training went wrong in a way that more of it would not mend."""


@dataclass
class TrainingData:
    """Labels of the training and validation examples, and which training labels are wrong."""

    labels: np.ndarray
    noisy: np.ndarray
    validation_labels: np.ndarray


def training_data(task: Task, state: str) -> TrainingData:
    """What θ_O (state `original`) or any other model of a task learns."""
    column = "original_label" if state == "original" else "label"
    return TrainingData(
        task.train[column].to_numpy(copy=True),
        task.train["noisy"].to_numpy(copy=True),
        task.validation["label"].to_numpy(copy=True),
    )


@dataclass
class Trained:
    """What training leaves behind. Weights hold only the parameters that were trained."""

    final: Weights
    memorised_at: Weights | None
    memorised_epoch: int | None
    history: pd.DataFrame
    steps: int = 0


def fine_tune(
    learner: Learner,
    data: TrainingData,
    config: TrainingConfig,
    seed: int,
    report: Callable[[float], None] = lambda _: None,
    beside: Sequence[Lesson] = (),
) -> Trained:
    """Train what the learner leaves open and evaluate after every epoch.

    Args:
        learner: The model with its inputs; see `memloc.training.learners`.
        data: What it should answer.
        config: Settings.
        seed: Model seed.
        report: Called with the finished fraction.
        beside: Further tasks that train the same model at the same time.

    Raises:
        TrainingFailed: If the loss is not a number.
    """
    labels = torch.from_numpy(data.labels).to(learner.device)
    result = Trained({}, None, None, pd.DataFrame())
    rows: list[dict[str, float | int | str]] = []
    lessons = [Lesson(learner, labels, config), *beside]
    for epoch, losses in enumerate(train_together(lessons, seed, report), start=1):
        result.steps += len(losses[0])
        rows += _evaluate(learner, data, config, epoch)
        accuracy = next(
            float(row["accuracy"])
            for row in rows
            if row["epoch"] == epoch and row["split"] == "train"
        )
        if result.memorised_epoch is None and accuracy > config.memorised_at:
            result.memorised_epoch = epoch
            result.memorised_at = _copy(learner.changed())
    result.final = _copy(learner.changed())
    result.history = pd.DataFrame(rows)
    return result


def train_on_part(
    model: BlockModel,
    encoded: Encoded,
    inside: np.ndarray,
    labels: np.ndarray,
    config: TrainingConfig,
    seed: int,
    report: Callable[[float], None] = lambda _: None,
) -> np.ndarray:
    """Fine-tune on some of the examples; the logits of all of them at the end.

    Raises:
        TrainingFailed: If the loss is not a number.
    """
    rows = np.flatnonzero(inside).tolist()
    part = Encoded([encoded.rows[row] for row in rows], encoded.pad_id)
    learner = WholeModel(model, part, Encoded([], encoded.pad_id))
    answers = torch.from_numpy(labels[inside]).to(learner.device)
    for _ in train_epochs(learner, answers, config, seed, report, "--split-rate"):
        pass
    return predict_logits(model, encoded, config.dtype)


def train_epochs(
    learner: Trainee,
    labels: Tensor,
    config: TrainingConfig,
    seed: int,
    report: Callable[[float], None] = lambda _: None,
    remedy: str = "--learning-rate",
) -> Iterator[list[float]]:
    """Train; after each epoch yield the loss of each of its steps.

    What the caller does between two epochs happens in training mode.

    Raises:
        TrainingFailed: If the loss is not a number.
    """
    for losses in train_together([Lesson(learner, labels, config, remedy)], seed, report):
        yield losses[0]


def train_together(
    lessons: Sequence[Lesson], seed: int, report: Callable[[float], None] = lambda _: None
) -> Iterator[list[list[float]]]:
    """Train one model on several tasks at once; after each epoch yield the losses of each task.

    An epoch goes once through the data of every task; their batches are mixed in random order.

    Raises:
        TrainingFailed: If a loss is not a number.
    """
    order = np.random.default_rng(seed)
    epochs = lessons[0].config.epochs
    total, steps = sum(lesson.steps for lesson in lessons), 0
    with torch.random.fork_rng(), ExitStack() as modes:
        for lesson in lessons:
            modes.enter_context(lesson.learner.training_mode())
        torch.manual_seed(seed)
        for epoch in range(1, epochs + 1):
            losses: list[list[float]] = [[] for _ in lessons]
            batches = [
                (number, indices)
                for number, lesson in enumerate(lessons)
                for indices in lesson.batches(order)
            ]
            if len(lessons) > 1:
                batches = [batches[index] for index in order.permutation(len(batches))]
            for number, indices in batches:
                losses[number].append(lessons[number].step(indices, epoch))
                steps += 1
                report(steps / total)
            yield losses


class Lesson:
    """What one task does to a model: its data, the parameters it may change, its optimiser.

    Args:
        learner: The model with its inputs.
        labels: What it should answer.
        config: Settings.
        remedy: The option that lowers the learning rate, for error messages.
    """

    def __init__(
        self,
        learner: Trainee,
        labels: Tensor,
        config: TrainingConfig,
        remedy: str = "--learning-rate",
    ) -> None:
        self.learner, self.labels, self.config, self.remedy = learner, labels, config, remedy
        self.parameters = list(learner.trainable().values())
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
        )
        self.lengths = learner.lengths()
        self.steps = -(-len(self.lengths) // config.batch_size) * config.epochs
        warmup = int(config.warmup * self.steps)
        self.schedule = get_scheduler("linear", self.optimizer, warmup, self.steps)
        self.optimizer.zero_grad()  # a training that failed may have left gradients behind

    def batches(self, order: np.random.Generator) -> list[np.ndarray]:
        """Indices of one epoch."""
        return training_batches(self.lengths, self.config.batch_size, order)

    def step(self, indices: np.ndarray, epoch: int) -> float:
        """Learn from one batch; its loss.

        Raises:
            TrainingFailed: If the loss is not a number.
        """
        loss = _accumulate(self.learner, self.labels, indices, self.config)
        if not np.isfinite(loss):
            raise TrainingFailed(
                f"the loss became {loss} in epoch {epoch} at learning rate "
                f"{self.config.learning_rate:g}; lower it with {self.remedy}"
            )
        torch.nn.utils.clip_grad_norm_(self.parameters, self.config.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        return loss


def _accumulate(
    learner: Trainee, labels: Tensor, indices: np.ndarray, config: TrainingConfig
) -> float:
    """Gradient of the mean loss of one batch, in parts that fit the device."""
    part = config.micro_batch_size or len(indices)
    total = 0.0
    for start in range(0, len(indices), part):
        chunk = indices[start : start + part]
        with autocast(learner.device, config.dtype):
            logits = learner.logits(chunk)
        share = len(chunk) / len(indices)
        loss = cross_entropy(logits.float(), labels[torch.from_numpy(chunk)]) * share
        loss.backward()
        total += float(loss.detach())
    return total


def _evaluate(
    learner: Learner, data: TrainingData, config: TrainingConfig, epoch: int
) -> list[dict[str, float | int | str]]:
    train, validation = learner.evaluate(config.dtype)
    if not (np.isfinite(train).all() and np.isfinite(validation).all()):
        raise TrainingFailed(
            f"the model answers with NaN or infinite logits after epoch {epoch} at learning rate "
            f"{config.learning_rate:g}; lower it with --learning-rate"
        )
    splits = {
        "train": (train, data.labels),
        "noisy": (train[data.noisy], data.labels[data.noisy]),
        "clean": (train[~data.noisy], data.labels[~data.noisy]),
        "validation": (validation, data.validation_labels),
    }
    return [
        {"epoch": epoch, "split": split, **scores(logits, labels)}
        for split, (logits, labels) in splits.items()
        if len(labels)
    ]


def _copy(parameters: Mapping[str, Tensor]) -> Weights:
    return {name: parameter.detach().cpu().clone() for name, parameter in parameters.items()}
