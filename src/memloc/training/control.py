"""Training for the control setup: memorisation is hidden in known layers (section 3.2).

The main task, with noisy labels, may change only the chosen layers and its own head. An auxiliary
task, with clean labels and a head outside the model, may change all layers (and final norm and
pooler), so that the others differ from θ_P too. Each task has its optimiser and its schedule; their
batches are mixed in random order. If the main task is not learned by heart, training starts again
at a higher learning rate.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from memloc.config import Control, Dtype
from memloc.data.encode import Encoded, evaluation_batches
from memloc.models.blocks import BlockModel
from memloc.models.states import EVALUATION_BATCH, autocast
from memloc.training.learners import WholeModel
from memloc.training.loop import Trained, TrainingFailed


class HiddenTask(WholeModel):
    """The main task: only some layers, and its head, learn from it.

    Args:
        model: The model.
        train: Training inputs.
        validation: Validation inputs.
        layers: Those it may change; none for the frozen reference.
    """

    def __init__(
        self, model: BlockModel, train: Encoded, validation: Encoded, layers: tuple[int, ...]
    ) -> None:
        super().__init__(model, train, validation)
        opened = set(model.groups.head)
        opened |= {name for layer in layers for name in model.groups.blocks[layer - 1]}
        self.closed = tuple(n for n, _ in model.model.named_parameters() if n not in opened)

    def changed(self) -> dict[str, nn.Parameter]:
        """Everything but the embeddings: the auxiliary task changes what this one may not."""
        fixed = set(self.model.groups.embeddings)
        return {n: p for n, p in self.model.model.named_parameters() if n not in fixed}

    def logits(self, indices: np.ndarray) -> Tensor:
        """A forward pass in which nothing else takes a gradient."""
        with self.model.frozen(self.closed):
            return super().logits(indices)

    @contextlib.contextmanager
    def training_mode(self) -> Iterator[None]:
        """Dropout on; what is closed changes from batch to batch, see `logits`."""
        with self.model.mode(training=True):
            yield


class SecondHead:
    """The head of an auxiliary task; it takes the place of the model's own only while it is used.

    Args:
        model: The model whose layers are shared.
        donor: A model of the same architecture, with a new head for the auxiliary task. Only its
            head is kept.
    """

    def __init__(self, model: BlockModel, donor: BlockModel) -> None:
        self.model = model
        places = dict.fromkeys(name.split(".")[0] for name in model.groups.head)
        self.modules = {place: donor.model.get_submodule(place) for place in places}

    def parameters(self) -> dict[str, nn.Parameter]:
        """By name, as if it were part of the model."""
        return {
            f"{place}.{name}": parameter
            for place, module in self.modules.items()
            for name, parameter in module.named_parameters()
        }

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model answers through this head."""
        own = {place: self.model.model.get_submodule(place) for place in self.modules}
        try:
            for place, module in self.modules.items():
                module.train(own[place].training)
                setattr(self.model.model, place, module)
            yield
        finally:
            for place, module in own.items():
                setattr(self.model.model, place, module)


class AuxiliaryTask:
    """The task that may change all layers, through a head of its own."""

    def __init__(self, head: SecondHead, train: Encoded) -> None:
        self.head, self.model, self.train = head, head.model, train
        self.device = head.model.device
        groups = head.model.groups
        self.closed = {*groups.embeddings, *groups.head}

    def trainable(self) -> dict[str, nn.Parameter]:
        """All layers, what else is shared, and its head."""
        shared = {n: p for n, p in self.model.model.named_parameters() if n not in self.closed}
        return shared | {f"auxiliary {n}": p for n, p in self.head.parameters().items()}

    def lengths(self) -> np.ndarray:
        """Tokens per training example."""
        return self.train.lengths

    def logits(self, indices: np.ndarray) -> Tensor:
        """A forward pass through the second head; the embeddings take no gradient."""
        batch = self.train.batch(indices.tolist(), self.device)
        with self.head.in_place(), self.model.frozen(self.model.groups.embeddings):
            return self.model.logits(batch)

    @contextlib.contextmanager
    def training_mode(self) -> Iterator[None]:
        """Dropout on."""
        with self.model.mode(training=True):
            yield

    def accuracy(self, labels: np.ndarray, dtype: Dtype) -> float:
        """Share of its training examples that it answers as it should."""
        right = 0
        with (
            self.model.mode(training=False),
            self.head.in_place(),
            torch.inference_mode(),
            autocast(self.device, dtype),
        ):
            for indices in evaluation_batches(self.train, EVALUATION_BATCH):
                logits = self.model.logits(self.train.batch(indices.tolist(), self.device))
                right += int((logits.argmax(dim=-1).cpu().numpy() == labels[indices]).sum())
        return right / len(labels)


@dataclass(frozen=True)
class Attempt:
    """One training: how far it came (the accuracy is NaN if it failed), or why it failed."""

    learning_rate: float
    accuracy: float
    failure: str | None = None


@dataclass(frozen=True)
class Learned:
    """The model that counts, the attempt that made it, and all attempts."""

    trained: Trained
    chosen: Attempt
    attempts: tuple[Attempt, ...]


def train_until_learned(train: Callable[[float], Trained], rate: float, config: Control) -> Learned:
    """Train at rising learning rates until the training accuracy is high enough.

    Args:
        train: Trains a new model at a learning rate.
        rate: The first one.
        config: How high is enough, how many attempts, how fast the rate rises.

    Returns:
        The first model that is good enough, else the best.

    Raises:
        TrainingFailed: If no attempt came to an end.
    """
    best: tuple[Trained, Attempt] | None = None
    attempts: list[Attempt] = []
    for number in range(config.attempts):
        current = rate * config.rate_factor**number
        try:
            trained = train(current)
        except TrainingFailed as error:
            attempts.append(Attempt(current, math.nan, str(error)))
            break  # a higher rate would not mend it
        attempts.append(Attempt(current, final_accuracy(trained)))
        if best is None or attempts[-1].accuracy > best[1].accuracy:
            best = trained, attempts[-1]
        if learned_by_heart(trained, config):
            break
    if best is None:
        raise TrainingFailed(str(attempts[0].failure))
    return Learned(*best, tuple(attempts))


def learned_by_heart(trained: Trained, config: Control) -> bool:
    """Whether a training was good enough, so that no further one is needed."""
    return final_accuracy(trained) > config.learned_at


def final_accuracy(trained: Trained) -> float:
    """Accuracy on the training labels after the last epoch."""
    history = trained.history
    last = history[(history["epoch"] == history["epoch"].max()) & (history["split"] == "train")]
    return float(last["accuracy"].iloc[0])
