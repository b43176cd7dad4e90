"""The one training loop: makes θ_O, θ_M1, θ_M2 and the frozen model (section 3, appendix D).

AdamW, linear schedule with warm-up, gradient norm clipped; input embeddings frozen. The seed
decides the order of the data, the new head and dropout. Frozen means ``requires_grad=False``: such
parameters get no gradient and do not count in the clipping norm.

Several tasks can train one model together (the control setup, section 3.2): each is an `Objective`
with an optimiser and a schedule of its own, and their batches take turns in random order.

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
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import get_scheduler

from memloc.config import Training
from memloc.data.encode import Encoded, training_batches
from memloc.data.task import Task
from memloc.errors import MemlocError
from memloc.models.blocks import BlockModel
from memloc.models.states import autocast, predict_logits
from memloc.training.learners import Learner, Trainee, WholeModel
from memloc.training.resume import ResumePoint, Snapshots

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
    beside: Sequence[Objective] = (),
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
    objectives = [Objective(learner, labels, config), *beside]
    for losses in train_together(objectives, seed, report, resume):
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
        learner, answers, config, seed, report, "generalisation.learning_rate", resume
    ):
        pass
    return predict_logits(model, encoded, config.dtype)


def train_epochs(
    learner: Trainee,
    labels: Tensor,
    config: Training,
    seed: int,
    report: Callable[[float], None] = lambda _: None,
    rate_setting: str = "training.learning_rate",
    resume: ResumePoint | None = None,
) -> Iterator[list[float]]:
    """Train; after each epoch yield the loss of each of its steps.

    What the caller does between two epochs happens in training mode. A training that goes on from a
    saved state yields the epochs that were not finished then; what a caller wants to know of those
    before, it keeps with `ResumePoint.keep`.

    Raises:
        TrainingFailed: If the loss is not a number.
    """
    objective = Objective(learner, labels, config, rate_setting)
    for losses in train_together([objective], seed, report, resume):
        yield losses[0]


def train_together(
    objectives: Sequence[Objective],
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
    position = Position(objectives, seed)
    epochs = objectives[0].config.epochs
    total = sum(objective.steps for objective in objectives)
    with torch.random.fork_rng(), ExitStack() as modes:
        for objective in objectives:
            modes.enter_context(objective.learner.training_mode())
        torch.manual_seed(seed)
        if resume is not None:
            _take_up(resume, objectives, position, seed)
        for epoch in range(position.epoch, epochs + 1):
            for number, indices in position.batches():
                position.move_on(number, objectives[number].step(indices, epoch))
                if resume is not None:
                    resume.save_if_due()
                report(position.steps / total)
            yield position.end_epoch()


def _take_up(
    resume: ResumePoint, objectives: Sequence[Objective], position: Position, seed: int
) -> None:
    """Go on from the saved state, if there is one of this training."""
    weights = OpenWeights(objectives)
    resume.keep("position", position)
    resume.keep("weights", weights)
    for number, objective in enumerate(objectives):
        resume.keep(f"objective-{number}", objective)
    resume.restore(
        {
            "seed": seed,
            "device": position.device.type,
            "weights": weights.layout(),
            "objectives": [(len(each.lengths), each.config.model_dump()) for each in objectives],
        }
    )


def _evaluate(
    learner: Learner, data: TrainingData, config: Training, epoch: int
) -> list[dict[str, float | int | str]]:
    train, validation = learner.evaluate(config.dtype)
    if not (np.isfinite(train).all() and np.isfinite(validation).all()):
        raise TrainingFailed(
            f"the model answers with NaN or infinite logits after epoch {epoch}",
            setting="training.learning_rate",
            value=config.learning_rate,
            remedy="lower it",
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


class Objective:
    """What one task does to a model: its data, the parameters it may change, its optimiser.

    Args:
        learner: The model with its inputs.
        labels: What it should answer.
        config: Settings.
        rate_setting: The setting that its learning rate comes from, for error messages.
    """

    def __init__(
        self,
        learner: Trainee,
        labels: Tensor,
        config: Training,
        rate_setting: str = "training.learning_rate",
    ) -> None:
        self.learner, self.labels, self.config = learner, labels, config
        self.rate_setting = rate_setting
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
                f"the loss became {loss} in epoch {epoch}",
                setting=self.rate_setting,
                value=self.config.learning_rate,
                remedy="lower it",
            )
        torch.nn.utils.clip_grad_norm_(self.parameters, self.config.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        return loss

    def tensors(self) -> dict[str, Tensor]:
        """What the optimiser remembers of each parameter, by its place."""
        state: dict[int, dict[str, Tensor]] = self.optimizer.state_dict()["state"]
        return {
            f"{place}/{name}": value
            for place, of_parameter in state.items()
            for name, value in of_parameter.items()
        }

    def values(self) -> dict[str, Any]:
        """The schedule, and the learning rate it has set."""
        rates = [group["lr"] for group in self.optimizer.param_groups]
        return {"rates": rates, "schedule": self.schedule.state_dict()}

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Go on with the optimiser and the schedule of a training that was interrupted."""
        whole = self.optimizer.state_dict()
        whole["state"] = {}
        for key, value in tensors.items():
            place, name = key.split("/")
            whole["state"].setdefault(int(place), {})[name] = value
        for group, rate in zip(whole["param_groups"], values["rates"], strict=True):
            group["lr"] = rate
        self.optimizer.load_state_dict(whole)
        self.schedule.load_state_dict(values["schedule"])


def _accumulate(learner: Trainee, labels: Tensor, indices: np.ndarray, config: Training) -> float:
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


class Position:
    """The way through the epochs.

    The random order of an epoch is made at its start. It is made again, from the generator as it
    was then, when a training goes on in the middle.

    Args:
        objectives: Whose batches take turns.
        seed: Model seed.
    """

    def __init__(self, objectives: Sequence[Objective], seed: int) -> None:
        self.objectives = objectives
        self.device = objectives[0].learner.device
        self.order = np.random.default_rng(seed)
        self.epoch, self.steps = 1, 0
        self._start_epoch()

    def batches(self) -> list[tuple[int, np.ndarray]]:
        """What is left of this epoch: numbers of objectives, and indices of their examples."""
        self.order.bit_generator.state = self.order_at_start
        batches = [
            (number, indices)
            for number, objective in enumerate(self.objectives)
            for indices in objective.batches(self.order)
        ]
        if len(self.objectives) > 1:
            batches = [batches[index] for index in self.order.permutation(len(batches))]
        return batches[sum(map(len, self.losses)) :]

    def move_on(self, number: int, loss: float) -> None:
        """A batch of an objective is done."""
        self.losses[number].append(loss)
        self.steps += 1

    def end_epoch(self) -> list[list[float]]:
        """The losses of the epoch, by objective."""
        losses = self.losses
        self.epoch += 1
        self._start_epoch()
        return losses

    def _start_epoch(self) -> None:
        self.order_at_start = self.order.bit_generator.state
        self.losses: list[list[float]] = [[] for _ in self.objectives]

    def tensors(self) -> dict[str, Tensor]:
        """The generators of torch, on which dropout depends."""
        generators = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            generators["cuda"] = torch.cuda.get_rng_state(self.device)
        elif self.device.type == "mps":
            generators["mps"] = torch.mps.get_rng_state()
        return generators

    def values(self) -> dict[str, Any]:
        """The epoch, its order, and its losses so far."""
        return {
            "epoch": self.epoch,
            "steps": self.steps,
            "order_at_start": self.order_at_start,
            "losses": self.losses,
        }

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Go on from there."""
        self.epoch, self.steps = values["epoch"], values["steps"]
        self.order_at_start, self.losses = values["order_at_start"], values["losses"]
        torch.set_rng_state(tensors["cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["cuda"], self.device)
        elif self.device.type == "mps":
            torch.mps.set_rng_state(tensors["mps"])


class OpenWeights:
    """All parameters that any of the objectives may change, each once."""

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self.parameters: dict[str, nn.Parameter] = {}
        seen: set[int] = set()
        for number, objective in enumerate(objectives):
            for name, parameter in objective.learner.trainable().items():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    self.parameters[f"{number}/{name}"] = parameter

    def layout(self) -> dict[str, list[str]]:
        """Shape and type of each."""
        return {n: [str(tuple(p.shape)), str(p.dtype)] for n, p in self.parameters.items()}

    def tensors(self) -> dict[str, Tensor]:
        """By name."""
        return dict(self.parameters)

    def values(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Overwrite them in place."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(tensors[name])


def scores(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Mean cross-entropy, accuracy and macro-F1."""
    loss = torch.nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(labels))
    predicted = logits.argmax(axis=1)
    return {
        "loss": float(loss),
        "accuracy": float((predicted == labels).mean()),
        "macro_f1": macro_f1(labels, predicted),
    }


def macro_f1(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Mean F1 of the classes that occur in either.

    That of scikit-learn, of which every process would have to wait a second for the import.
    """
    n_classes = int(max(labels.max(), predicted.max())) + 1
    given = np.bincount(labels, minlength=n_classes)
    found = np.bincount(predicted, minlength=n_classes)
    right = np.bincount(labels[labels == predicted], minlength=n_classes)
    occurs = given + found > 0
    return float((2.0 * right[occurs] / (given + found)[occurs]).mean())
