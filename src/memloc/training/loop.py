"""The one training loop: makes θ_O, θ_M1, θ_M2 and the frozen model (section 3, appendix D).

AdamW, linear schedule with warm-up, gradient norm clipped; input embeddings frozen. The seed
decides the order of the data, the new head and dropout. Frozen means ``requires_grad=False``: such
parameters get no gradient and do not count in the clipping norm.

Several tasks can train one model together (the control setup, section 3.2): each is an `Objective`
with an optimiser and a schedule of its own, and their batches take turns in random order.

With `epochs: auto` the learning rate stays at its peak until nearly all training labels are
learned, and then falls to 0 in as many epochs as `settling` says, in which the rest are learned.
θ_O follows the schedule of its θ_M, so that both make the same number of steps.

The logits of all training examples are kept after every epoch: the training dynamics. Validation
is only evaluated as often as a curve needs.

A training that is given a `ResumePoint` saves its state there now and then, and goes on from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR
from transformers import get_scheduler

from memloc.config import Control, Training
from memloc.data.encode import Encoded, training_batches
from memloc.data.task import Task
from memloc.errors import MemlocError
from memloc.models.blocks import BlockModel
from memloc.models.states import Report, autocast
from memloc.training.learners import Learner
from memloc.training.resume import ResumePoint

Weights = dict[str, Tensor]
NEARLY_LEARNED = 0.98
"""Training accuracy from which on the learning rate of an open training falls. At its peak, the
last labels take long, as those that are learned are lost again."""
FEWEST_SETTLING, SETTLING_SHARE = 3, 0.5
"""Epochs in which it falls: at least so many, and this share of those before."""
CURVE = 6
"""Epochs that are enough to draw a curve of the validation accuracy."""


class TrainingFailed(MemlocError):
    """Training went wrong in a way that more of it would not mend."""


@dataclass
class TrainingData:
    """Labels of the training and validation examples, and which training labels are wrong.

    Those that a learner does not learn from count as noisy or clean all the same.
    """

    labels: np.ndarray
    noisy: np.ndarray
    validation_labels: np.ndarray


def training_data(task: Task, state: str, without_suspects: bool = False) -> TrainingData:
    """What θ_O (state `original`) or any other model of a task learns.

    A θ_O without suspects learns the other labels as they are given.
    """
    column = "original_label" if state == "original" and not without_suspects else "label"
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
    settled_after: int | None = None
    """Of an open training: the epoch after which the learning rate fell."""
    logits: list[Tensor] = field(default_factory=list)
    """Of all training examples, after every epoch, in half precision."""

    @property
    def epochs(self) -> int:
        """How many are in the history."""
        return 0 if self.history.empty else int(self.history["epoch"].max())

    @property
    def accuracy(self) -> float:
        """On the training labels after the last epoch."""
        rows = self.history[self.history["split"] == "train"]
        return float(rows.set_index("epoch")["accuracy"].loc[self.epochs])

    def state_dict(self) -> dict[str, Any]:
        """As a part of a state that is saved."""
        return {**vars(self), "history": self.history.to_dict("records")}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Become what was saved."""
        vars(self).update(state, history=pd.DataFrame(state["history"]))


def fine_tune(
    learner: Learner,
    data: TrainingData,
    config: Training,
    seed: int,
    report: Report = lambda _: None,
    beside: Sequence[Objective] = (),
    resume: ResumePoint | None = None,
    end_epoch: Callable[[int, Mapping[str, Tensor]], None] = lambda _, __: None,
    last_epoch: int | None = None,
    settle_after: int | None = None,
) -> Trained:
    """Train what the learner leaves open and evaluate after every epoch.

    Args:
        learner: The model with its inputs; see `memloc.training.learners`.
        data: What it should answer.
        config: Settings.
        seed: Decides the order of the data and dropout.
        report: Called with the finished fraction.
        beside: Further tasks that train the same model at the same time.
        resume: Where the state is saved now and then, and taken up if it is there.
        end_epoch: Called with the number of every epoch and the weights after it.
        last_epoch: Stop after it, in the middle of the schedule; None goes to the end.
        settle_after: Of an open training: the epoch after which the learning rate falls. None waits
            until the training labels are learned.

    Raises:
        TrainingFailed: If the loss is not a number.
    """
    labels = torch.from_numpy(data.labels[learner.rows]).to(learner.device)
    result = Trained({}, None, None, pd.DataFrame())
    if resume is not None:
        resume.keep("result", result)
    objective = Objective(learner, labels, config)
    between = math.ceil(config.likely_epochs / CURVE)
    for losses in train([objective, *beside], seed, report, resume):
        epoch = result.epochs + 1
        train_logits = learner.evaluate(config.dtype)
        right = train_logits.argmax(axis=1) == data.labels
        accuracy = float(right[learner.rows].mean())
        if objective.open_end is not None and objective.open_end.start is None:
            enough = min(NEARLY_LEARNED, config.memorised_at)
            due = accuracy > enough if settle_after is None else epoch == settle_after
            if due or epoch == objective.latest:
                objective.settle(epoch)
                result.settled_after = epoch
        drawn = epoch % between == 0 or epoch in (1, objective.last_epoch, last_epoch)
        validation = learner.evaluate_validation(config.dtype) if drawn else None
        rows = _score(train_logits, validation, data, config, epoch, learner.rows)
        result.steps += len(losses[0])
        result.history = pd.DataFrame([*result.history.to_dict("records"), *rows])
        result.logits.append(_compact(train_logits))
        if result.memorised_epoch is None and accuracy > config.memorised_at:
            result.memorised_epoch = epoch
            result.memorised_at = _copy(learner.changed())
        end_epoch(epoch, learner.changed())
        if epoch == last_epoch:
            break
    result.final = _copy(learner.changed())
    return result


def train_on_part(
    model: BlockModel,
    encoded: Encoded,
    rows: np.ndarray,
    labels: np.ndarray,
    config: Training,
    seed: int,
    report: Report = lambda _: None,
    resume: ResumePoint | None = None,
    rate_setting: str = "training.learning_rate",
) -> None:
    """Train a model in place on some of the examples, and evaluate nothing.

    Args:
        model: All but its embeddings learns.
        encoded: All examples.
        rows: Those that it learns from.
        labels: Of all examples.
        config: Settings.
        seed: Decides the order of the data and dropout.
        report: Called with the finished fraction.
        resume: Where the state is saved now and then, and taken up if it is there.
        rate_setting: See `Objective`.

    Raises:
        TrainingFailed: If the loss is not a number.
    """
    learner = Learner(model, encoded, rows=rows)
    answers = torch.from_numpy(labels[rows]).to(learner.device)
    objective = Objective(learner, answers, config, rate_setting)
    for _ in train([objective], seed, report, resume):
        pass


@dataclass(frozen=True)
class Attempt:
    """One training: how far it came (the accuracy is NaN if it failed), or why it failed."""

    learning_rate: float
    accuracy: float
    failure: str | None = None


def train_until_learned(
    attempt: Callable[[float], Trained], rate: float, config: Control
) -> tuple[Trained, Attempt, list[Attempt]]:
    """Train new models at rising learning rates until the training accuracy is high enough.

    Returns:
        The first model that is good enough, else the best; its attempt; and all attempts.

    Raises:
        TrainingFailed: If no attempt came to an end.
    """
    best: tuple[Trained, Attempt] | None = None
    attempts: list[Attempt] = []
    for number in range(config.attempts):
        current = rate * config.rate_factor**number
        try:
            trained = attempt(current)
        except TrainingFailed as error:
            attempts.append(Attempt(current, math.nan, str(error)))
            break  # a higher rate would not mend it
        attempts.append(Attempt(current, trained.accuracy))
        if best is None or trained.accuracy > best[1].accuracy:
            best = trained, attempts[-1]
        if trained.accuracy > config.learned_at:
            break
    if best is None:
        raise TrainingFailed(str(attempts[0].failure))
    return *best, attempts


def train(
    objectives: Sequence[Objective],
    seed: int,
    report: Report = lambda _: None,
    resume: ResumePoint | None = None,
) -> Iterator[list[list[float]]]:
    """Train one model on one or several tasks; after each epoch yield the losses of each task.

    An epoch goes once through the data of every task; their batches are mixed in random order.
    What the caller does between two epochs happens in training mode. A training that goes on from a
    saved state yields the epochs that were not finished then; what a caller wants to know of those
    before, it keeps with `ResumePoint.keep`.

    Raises:
        TrainingFailed: If a loss is not a number.
    """
    position = Position(objectives, seed)
    first = objectives[0]
    with torch.random.fork_rng(), ExitStack() as modes:
        for objective in objectives:
            modes.enter_context(objective.learner.training_mode())
        modes.enter_context(first.learner.model.compiled(first.config.compile))
        torch.manual_seed(seed)
        if resume is not None:
            resume.keep("position", position)
            resume.restore({"seed": seed, **position.layout()})
        while position.epoch <= first.last_epoch:
            likely = first.likely_end(position.epoch)
            total = likely * sum(objective.steps_per_epoch for objective in objectives)
            for number, indices in position.batches():
                position.move_on(number, objectives[number].step(indices))
                if resume is not None:
                    resume.save_if_due()
                report(position.steps / total)
            yield position.end_epoch()


class OpenEnd:
    """The learning rate of a training whose end is not known yet, as a share of its peak.

    It rises, stays, and falls to 0 from `start` on, once that is known. `LambdaLR` saves its
    fields with its own.

    Args:
        rising: Steps in which it rises.
    """

    def __init__(self, rising: int) -> None:
        self.rising = rising
        self.start: int | None = None
        self.falling = 0

    def __call__(self, step: int) -> float:
        """At a step, from 0."""
        rate = min(1.0, step / self.rising) if self.rising else 1.0
        if self.start is None:
            return rate
        return rate * max(0.0, 1 - (step - self.start) / self.falling)


def settling(epoch: int) -> int:
    """Epochs in which the learning rate falls, if it does so after this one."""
    return max(FEWEST_SETTLING, math.ceil(SETTLING_SHARE * epoch))


class Objective:
    """What one task does to a model: its data, the parameters it may change, its optimiser.

    `rate_setting` names the setting that its learning rate comes from, in error messages.
    """

    def __init__(
        self,
        learner: Learner,
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
        self.steps_per_epoch = -(-len(learner.lengths) // config.batch_size)
        self.open_end: OpenEnd | None = None
        self.latest = 0
        """Of an open training: the last epoch after which the learning rate can still fall."""
        self.schedule = self._schedule()
        self.optimizer.zero_grad()  # a training that failed may have left gradients behind

    def _schedule(self) -> LambdaLR:
        config = self.config
        if config.epochs != "auto":
            steps = self.steps_per_epoch * config.epochs
            linear: LambdaLR = get_scheduler(
                "linear", self.optimizer, int(config.warmup * steps), steps
            )
            return linear
        rising = int(config.warmup * config.likely_epochs * self.steps_per_epoch)
        self.open_end = OpenEnd(rising)
        most = config.most_epochs
        self.latest = max((e for e in range(most) if e + settling(e) <= most), default=0)
        if not self.latest:
            self.settle(0)
        return LambdaLR(self.optimizer, self.open_end)

    def settle(self, epoch: int) -> None:
        """From the end of this epoch on, let the learning rate of an open training fall."""
        assert self.open_end is not None
        falling = min(settling(epoch), self.config.most_epochs - epoch)
        self.open_end.start = epoch * self.steps_per_epoch
        self.open_end.falling = falling * self.steps_per_epoch

    @property
    def last_epoch(self) -> int:
        """The number of epochs; of an open training the limit, until it settles."""
        if self.config.epochs != "auto":
            return self.config.epochs
        end = self.open_end
        if end is None or end.start is None:
            return self.config.most_epochs
        return (end.start + end.falling) // self.steps_per_epoch

    def likely_end(self, epoch: int) -> int:
        """The number of epochs as far as it can be known in one of them, for estimates."""
        likely = max(self.config.likely_epochs, epoch + settling(epoch))
        return min(self.last_epoch, likely)

    def step(self, indices: np.ndarray) -> Tensor:
        """Learn from one batch, in parts that fit the device; its loss.

        Nothing here waits for the device: whoever wants to know the loss has to.
        """
        part = self.config.micro_batch_size or len(indices)
        total = torch.zeros((), device=self.learner.device)
        for start in range(0, len(indices), part):
            chunk = indices[start : start + part]
            with autocast(self.learner.device, self.config.dtype):
                logits = self.learner.logits(chunk)
            share = len(chunk) / len(indices)
            loss = cross_entropy(logits.float(), self.labels[torch.from_numpy(chunk)]) * share
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.config.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        return total


class Position:
    """How far a training is: all that must be known to go on with it.

    The random order of an epoch is made at its start. It is made again, from the generator as it
    was then, when a training goes on in the middle.
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
            for number, one in enumerate(self.objectives)
            for indices in training_batches(one.learner.lengths, one.config.batch_size, self.order)
        ]
        if len(self.objectives) > 1:
            batches = [batches[index] for index in self.order.permutation(len(batches))]
        return batches[sum(map(len, self.losses)) :]

    def move_on(self, number: int, loss: Tensor) -> None:
        """A batch of an objective is done."""
        self.losses[number].append(loss)
        self.steps += 1

    def end_epoch(self) -> list[list[float]]:
        """The losses of the epoch, by objective.

        Raises:
            TrainingFailed: If one of them is not a number.
        """
        losses: list[list[float]] = [_stacked(some).tolist() for some in self.losses]
        for objective, some in zip(self.objectives, losses, strict=True):
            wrong = next((loss for loss in some if not math.isfinite(loss)), None)
            if wrong is not None:
                raise TrainingFailed(
                    f"the loss became {wrong} in epoch {self.epoch}",
                    setting=objective.rate_setting,
                    value=objective.config.learning_rate,
                    remedy="lower it",
                )
        self.epoch += 1
        self._start_epoch()
        return losses

    def _start_epoch(self) -> None:
        self.order_at_start = self.order.bit_generator.state
        self.losses: list[list[Tensor]] = [[] for _ in self.objectives]

    def layout(self) -> dict[str, Any]:
        """What a saved state must have in common with this training, beside its name and seed."""
        return {
            "device": self.device.type,
            "weights": {n: [str(tuple(p.shape)), str(p.dtype)] for n, p in self._weights().items()},
            "objectives": [
                (len(one.learner.lengths), one.config.model_dump()) for one in self.objectives
            ],
        }

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimisers and schedules, the generators, the epoch and its losses so far."""
        generators = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            generators["cuda"] = torch.cuda.get_rng_state(self.device)
        elif self.device.type == "mps":
            generators["mps"] = torch.mps.get_rng_state()
        return {
            "epoch": self.epoch,
            "steps": self.steps,
            "order_at_start": self.order_at_start,
            "losses": [_stacked(some) for some in self.losses],
            "generators": generators,
            "weights": self._weights(),
            "optimizers": [one.optimizer.state_dict() for one in self.objectives],
            "schedules": [one.schedule.state_dict() for one in self.objectives],
        }

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Go on from there; weights are overwritten in place."""
        self.epoch, self.steps = state["epoch"], state["steps"]
        self.order_at_start = state["order_at_start"]
        self.losses = [list(some.to(self.device)) for some in state["losses"]]
        with torch.no_grad():
            for name, parameter in self._weights().items():
                parameter.copy_(state["weights"][name])
        for number, one in enumerate(self.objectives):
            one.optimizer.load_state_dict(state["optimizers"][number])
            one.schedule.load_state_dict(state["schedules"][number])
        torch.set_rng_state(state["generators"]["cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["generators"]["cuda"], self.device)
        elif self.device.type == "mps":
            torch.mps.set_rng_state(state["generators"]["mps"])

    def _weights(self) -> dict[str, nn.Parameter]:
        """All parameters that any of the objectives may change, each once."""
        found: dict[str, nn.Parameter] = {}
        for number, one in enumerate(self.objectives):
            seen = {id(parameter) for parameter in found.values()}
            for name, parameter in one.learner.trainable().items():
                if id(parameter) not in seen:
                    found[f"{number}/{name}"] = parameter
        return found


def _stacked(losses: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(losses)) if losses else torch.zeros(0)


def _compact(logits: np.ndarray) -> Tensor:
    """Half as large; differences of a thousandth do not matter in training dynamics."""
    largest = float(np.finfo(np.float16).max)
    return torch.from_numpy(logits.clip(-largest, largest)).half()


def _score(
    train: np.ndarray,
    validation: np.ndarray | None,
    data: TrainingData,
    config: Training,
    epoch: int,
    learned: np.ndarray,
) -> list[dict[str, float | int | str]]:
    """Rows of the history, from logits; `validation` may be missing, `learned` are rows."""
    splits = {
        "train": (train[learned], data.labels[learned]),
        **by_noise(train, data.labels, data.noisy),
    }
    if validation is not None:
        splits["validation"] = (validation, data.validation_labels)
    if not all(np.isfinite(logits).all() for logits, _ in splits.values()):
        raise TrainingFailed(
            f"the model answers with NaN or infinite logits after epoch {epoch}",
            setting="training.learning_rate",
            value=config.learning_rate,
            remedy="lower it",
        )
    return [
        {"epoch": epoch, "split": split, **scores(logits, labels)}
        for split, (logits, labels) in splits.items()
        if len(labels)
    ]


def by_noise(
    logits: np.ndarray, labels: np.ndarray, noisy: np.ndarray
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Logits and labels of the noisy examples, and of the others."""
    return {
        "noisy": (logits[noisy], labels[noisy]),
        "clean": (logits[~noisy], labels[~noisy]),
    }


def _copy(parameters: Mapping[str, Tensor]) -> Weights:
    return {name: parameter.detach().cpu().clone() for name, parameter in parameters.items()}


def scores(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Mean cross-entropy, accuracy and macro-F1."""
    predicted = logits.argmax(axis=1)
    return {
        "loss": float(cross_entropy(torch.from_numpy(logits), torch.from_numpy(labels))),
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
