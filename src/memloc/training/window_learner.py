"""A model of which one window of layers learns, with what lies below the window computed once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from memloc.analysis.windows import Window
from memloc.config import Dtype, RetrainedTail, Training, Unit
from memloc.data.encode import Encoded
from memloc.models.blocks import BlockModel
from memloc.models.states import EVALUATION_BATCH, StateCache, autocast
from memloc.training.loop import TrainingFailed, train_epochs
from memloc.training.resume import ResumePoint


def tail_parameters(model: BlockModel, which: RetrainedTail) -> tuple[str, ...]:
    """Names of the parameters behind the layers that learn together with a window."""
    head = set(model.groups.head)

    def learns(name: str) -> bool:
        if which == "norm+head":
            owner = model.model.get_submodule(name.rpartition(".")[0])
            return name in head or "norm" in type(owner).__name__.lower()
        return which == "all" or (which == "head" and name in head)

    return tuple(name for name in model.groups.tail if learns(name))


class WindowLearner:
    """Layers of a window and (part of) the tail learn; all else is frozen.

    Frozen layers answer without dropout, so the states below the window never change and are taken
    from a cache. With ``frozen_dropout`` everything is in training mode, as in the authors'
    program, and every step is a pass through the whole model; so it is for models that cannot
    start from a stored state.

    Args:
        model: θ_M2 with the layers of the window reset to θ_P.
        encoded: All examples.
        rows: Which of them it learns from.
        window: The layers that learn.
        cache: States of all examples; None for whole passes.
        tail: What else learns.
        frozen_dropout: See above.
        unit: What of the layers learns. Dropout acts in all of them, as if all of them learned.
    """

    def __init__(
        self,
        model: BlockModel,
        encoded: Encoded,
        rows: np.ndarray,
        window: Window,
        cache: StateCache | None,
        tail: RetrainedTail = "norm+head",
        frozen_dropout: bool = False,
        unit: Unit = "layer",
    ) -> None:
        self.model, self.encoded, self.rows, self.window = model, encoded, rows, window
        self.frozen_dropout, self.cache = frozen_dropout, cache
        self.device = model.device
        if unit == "layer":
            # Not `model.groups`: a layer that was reset may have other parameters (no adapters).
            inside = {id(p) for layer in window.layers for p in model.block(layer).parameters()}
            self.open = {name for name, p in model.model.named_parameters() if id(p) in inside}
        else:
            groups = model.groups.of(unit)
            self.open = {name for layer in window.layers for name in groups[layer - 1]}
        self.open |= set(tail_parameters(model, tail))
        self.block_passes = 0
        """Forward passes of a batch through a layer."""
        if cache is not None:
            cache.move_to(window.first - 1)

    def trainable(self) -> dict[str, nn.Parameter]:
        """The window, and what learns of the tail."""
        return {n: p for n, p in self.model.model.named_parameters() if n in self.open}

    def lengths(self) -> np.ndarray:
        """Tokens per training example."""
        lengths: np.ndarray = self.encoded.lengths[self.rows]
        return lengths

    def logits(self, indices: np.ndarray) -> Tensor:
        """Logits of some of the training examples, differentiable."""
        return self._logits(self.rows[indices])

    def predict(self, rows: np.ndarray, dtype: Dtype) -> np.ndarray:
        """The class predicted for any examples."""
        predicted = np.empty(len(rows), dtype=np.int64)
        order = np.argsort(self.encoded.lengths[rows], kind="stable")
        with self.model.mode(training=False), torch.inference_mode(), autocast(self.device, dtype):
            for start in range(0, len(rows), EVALUATION_BATCH):
                places = order[start : start + EVALUATION_BATCH]
                logits = self._logits(rows[places])
                if not torch.isfinite(logits).all():
                    raise TrainingFailed(
                        "the retrained model answers with NaN or infinite logits",
                        setting="training.learning_rate",
                        remedy="lower it",
                    )
                predicted[places] = logits.argmax(dim=-1).cpu().numpy()
        return predicted

    @contextlib.contextmanager
    def training_mode(self) -> Iterator[None]:
        """Only the window and the tail learn, and only they (or everything) have dropout."""
        closed = [n for n, _ in self.model.model.named_parameters() if n not in self.open]
        with self.model.frozen(closed), self.model.mode(training=True):
            if not self.frozen_dropout:
                base = self.model.model.base_model
                assert isinstance(base, nn.Module)
                base.eval()
                for layer in self.window.layers:
                    self.model.block(layer).train()
            yield

    def _logits(self, rows: np.ndarray) -> Tensor:
        if self.cache is None:
            self.block_passes += self.model.n_layers
            return self.model.logits(self.encoded.batch(rows.tolist(), self.device))
        self.block_passes += self.model.n_layers - self.window.first + 1
        state, batch = self.cache.batch(rows)
        return self.model.resume(state, batch, self.window.first - 1)


@dataclass(frozen=True)
class Rows:
    """Which examples a window learns from, and which it is evaluated on."""

    train: np.ndarray
    evaluated: np.ndarray
    """The noisy ones, then the held-out clean ones."""


def divide(noisy: np.ndarray, seed: int) -> Rows:
    """Hold out as many clean examples as there are noisy ones.

    Raises:
        TrainingFailed: If nothing is left to learn from.
    """
    wrong, clean = np.flatnonzero(noisy), np.flatnonzero(~noisy)
    if len(clean) <= len(wrong):
        raise TrainingFailed(
            f"retraining needs more clean examples than noisy ones, and there are {len(clean)} "
            f"clean and {len(wrong)} noisy; leave the technique out"
        )
    held_out = np.random.default_rng(seed).choice(clean, len(wrong), replace=False)
    return Rows(np.setdiff1d(clean, held_out), np.concatenate([wrong, np.sort(held_out)]))


@dataclass(frozen=True)
class Retrained:
    """One retrained window."""

    predicted: np.ndarray
    """Class per evaluated example."""
    losses: list[list[float]]
    """Per epoch and step."""
    block_passes: int
    """Forward passes of a batch through a layer; without those for the states below the window,
    which are shared by the windows that a process happens to compute."""


def retrain_window(
    memorised: BlockModel,
    pretrained: BlockModel,
    encoded: Encoded,
    labels: Tensor,
    rows: Rows,
    window: Window,
    training: Training,
    seed: int,
    cache: StateCache | None,
    report: Callable[[float], None] = lambda _: None,
    tail: RetrainedTail = "norm+head",
    frozen_dropout: bool = False,
    unit: Unit = "layer",
    resume: ResumePoint | None = None,
) -> Retrained:
    """Reset a window to θ_P, train it on clean examples, predict the others; restore the model."""
    with (
        memorised.reset(window.layers, pretrained, unit),
        memorised.preserved(tail_parameters(memorised, tail)),
    ):
        learner = WindowLearner(
            memorised, encoded, rows.train, window, cache, tail, frozen_dropout, unit
        )
        targets = labels[torch.from_numpy(rows.train)].to(memorised.device)
        record = _Record(learner)
        if resume is not None:
            resume.keep("record", record)
        for losses in train_epochs(learner, targets, training, seed, report, resume=resume):
            record.losses.append(losses)
        predicted = learner.predict(rows.evaluated, training.dtype)
    return Retrained(predicted, record.losses, learner.block_passes)


class _Record:
    """What is told of a training beside its result; a part of its state (`ResumePoint`)."""

    def __init__(self, learner: WindowLearner) -> None:
        self.learner = learner
        self.losses: list[list[float]] = []

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def values(self) -> dict[str, Any]:
        return {"losses": self.losses, "block_passes": self.learner.block_passes}

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        self.losses, self.learner.block_passes = values["losses"], values["block_passes"]
