"""The one training loop: makes θ_O, θ_M1, θ_M2 and the frozen model (section 3, appendix D).

AdamW, linear schedule with warm-up, gradient norm clipped; input embeddings frozen. The seed
decides the order of the data, the new head and dropout. Frozen means ``requires_grad=False``: such
parameters get no gradient and do not count in the clipping norm.

Several tasks can train one model together (the control setup, section 3.2): each is a `Lesson` with
an optimiser and a schedule of its own, and their batches take turns in random order.

A training that is given a `ResumePoint` saves its state there now and then, and goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from memloc.config import Training
from memloc.data.encode import Encoded
from memloc.data.task import Task
from memloc.models.blocks import BlockModel
from memloc.models.states import predict_logits
from memloc.training.evaluate import scores
from memloc.training.learners import Learner, Trainee, WholeModel
from memloc.training.lesson import Lesson, TrainingFailed
from memloc.training.position import OpenWeights, Position
from memloc.training.resume import ResumePoint
from memloc.training.snapshots import Snapshots

Weights = dict[str, Tensor]


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

    @property
    def epochs(self) -> int:
        """How many are in the history."""
        return 0 if self.history.empty else int(self.history["epoch"].max())

    def tensors(self) -> Weights:
        """All weights, for `ResumePoint`."""
        groups = {"final": self.final, "memorised_at": self.memorised_at or {}}
        return {
            f"{group}/{n}": value for group, them in groups.items() for n, value in them.items()
        }

    def values(self) -> dict[str, Any]:
        """The rest of it."""
        return {
            "memorised_epoch": self.memorised_epoch,
            "history": self.history.to_dict("records"),
            "steps": self.steps,
        }

    def restore(self, tensors: Weights, values: dict[str, Any]) -> None:
        """Become what was saved."""
        groups: dict[str, Weights] = {"final": {}, "memorised_at": {}}
        for key, value in tensors.items():
            group, name = key.split("/", 1)
            groups[group][name] = value
        self.memorised_epoch, self.steps = values["memorised_epoch"], values["steps"]
        self.history = pd.DataFrame(values["history"])
        self.final = groups["final"]
        self.memorised_at = None if self.memorised_epoch is None else groups["memorised_at"]


def fine_tune(
    learner: Learner,
    data: TrainingData,
    config: Training,
    seed: int,
    report: Callable[[float], None] = lambda _: None,
    beside: Sequence[Lesson] = (),
    resume: ResumePoint | None = None,
    snapshots: Snapshots | None = None,
    last_epoch: int | None = None,
) -> Trained:
    """Train what the learner leaves open and evaluate after every epoch.

    Args:
        learner: The model with its inputs; see `memloc.training.learners`.
        data: What it should answer.
        config: Settings.
        seed: Model seed.
        report: Called with the finished fraction.
        beside: Further tasks that train the same model at the same time.
        resume: Where the state is saved now and then, and taken up if it is there.
        snapshots: Keeps the weights of some epochs.
        last_epoch: Stop after it, in the middle of the schedule; None goes to the end.

    Raises:
        TrainingFailed: If the loss is not a number.
    """
    labels = torch.from_numpy(data.labels).to(learner.device)
    result = Trained({}, None, None, pd.DataFrame())
    if resume is not None:
        resume.keep("result", result)
    lessons = [Lesson(learner, labels, config), *beside]
    for losses in train_together(lessons, seed, report, resume):
        epoch = result.epochs + 1
        rows = _evaluate(learner, data, config, epoch)
        result.steps += len(losses[0])
        result.history = pd.DataFrame([*result.history.to_dict("records"), *rows])
        accuracy = next(float(row["accuracy"]) for row in rows if row["split"] == "train")
        if result.memorised_epoch is None and accuracy > config.memorised_at:
            result.memorised_epoch = epoch
            result.memorised_at = _copy(learner.changed())
        if snapshots is not None:
            snapshots.end_epoch(epoch, learner.changed())
        if epoch == last_epoch:
            break
    result.final = _copy(learner.changed())
    return result


def train_on_part(
    model: BlockModel,
    encoded: Encoded,
    inside: np.ndarray,
    labels: np.ndarray,
    config: Training,
    seed: int,
    report: Callable[[float], None] = lambda _: None,
    resume: ResumePoint | None = None,
) -> np.ndarray:
    """Fine-tune on some of the examples; the logits of all of them at the end.

    Raises:
        TrainingFailed: If the loss is not a number.
    """
    rows = np.flatnonzero(inside).tolist()
    part = Encoded([encoded.rows[row] for row in rows], encoded.pad_id)
    learner = WholeModel(model, part, Encoded([], encoded.pad_id))
    answers = torch.from_numpy(labels[inside]).to(learner.device)
    for _ in train_epochs(
        learner, answers, config, seed, report, "the learning rate on halves", resume
    ):
        pass
    return predict_logits(model, encoded, config.dtype)


def train_epochs(
    learner: Trainee,
    labels: Tensor,
    config: Training,
    seed: int,
    report: Callable[[float], None] = lambda _: None,
    rate: str = "the learning rate",
    resume: ResumePoint | None = None,
) -> Iterator[list[float]]:
    """Train; after each epoch yield the loss of each of its steps.

    What the caller does between two epochs happens in training mode. A training that goes on from a
    saved state yields the epochs that were not finished then; what a caller wants to know of those
    before, it keeps with `ResumePoint.keep`.

    Raises:
        TrainingFailed: If the loss is not a number.
    """
    lesson = Lesson(learner, labels, config, rate)
    for losses in train_together([lesson], seed, report, resume):
        yield losses[0]


def train_together(
    lessons: Sequence[Lesson],
    seed: int,
    report: Callable[[float], None] = lambda _: None,
    resume: ResumePoint | None = None,
) -> Iterator[list[list[float]]]:
    """Train one model on several tasks at once; after each epoch yield the losses of each task.

    An epoch goes once through the data of every task; their batches are mixed in random order.
    For `resume` see `train_epochs`.

    Raises:
        TrainingFailed: If a loss is not a number.
    """
    position = Position(lessons, seed)
    epochs = lessons[0].config.epochs
    total = sum(lesson.steps for lesson in lessons)
    with torch.random.fork_rng(), ExitStack() as modes:
        for lesson in lessons:
            modes.enter_context(lesson.learner.training_mode())
        torch.manual_seed(seed)
        if resume is not None:
            _take_up(resume, lessons, position, seed)
        for epoch in range(position.epoch, epochs + 1):
            for number, indices in position.batches():
                position.move_on(number, lessons[number].step(indices, epoch))
                if resume is not None:
                    resume.save_if_due()
                report(position.steps / total)
            yield position.end_epoch()


def _take_up(resume: ResumePoint, lessons: Sequence[Lesson], position: Position, seed: int) -> None:
    """Go on from the saved state, if there is one of this training."""
    weights = OpenWeights(lessons)
    resume.keep("position", position)
    resume.keep("weights", weights)
    for number, lesson in enumerate(lessons):
        resume.keep(f"lesson-{number}", lesson)
    resume.restore(
        {
            "seed": seed,
            "device": position.device.type,
            "weights": weights.layout(),
            "lessons": [(len(lesson.lengths), lesson.config.model_dump()) for lesson in lessons],
        }
    )


def _evaluate(
    learner: Learner, data: TrainingData, config: Training, epoch: int
) -> list[dict[str, float | int | str]]:
    train, validation = learner.evaluate(config.dtype)
    if not (np.isfinite(train).all() and np.isfinite(validation).all()):
        raise TrainingFailed(
            f"the model answers with NaN or infinite logits after epoch {epoch} at learning rate "
            f"{config.learning_rate:g}; lower the learning rate"
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
