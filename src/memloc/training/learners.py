"""What the training loop trains: the whole model, or its head on features computed once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from memloc.config import Dtype
from memloc.data.encode import Encoded
from memloc.models.blocks import BlockModel
from memloc.models.states import autocast, pooled_states, predict_logits


class Trainee(Protocol):
    """A model together with its training inputs."""

    device: torch.device

    def trainable(self) -> dict[str, nn.Parameter]:
        """The open parameters by name."""
        ...

    def lengths(self) -> np.ndarray:
        """Tokens per training example."""
        ...

    def logits(self, indices: np.ndarray) -> Tensor:
        """Logits of some training examples, differentiable."""
        ...

    def training_mode(self) -> contextlib.AbstractContextManager[None]:
        """Dropout on and frozen parameters closed, restored afterwards."""
        ...


class Learner(Trainee, Protocol):
    """A model that is evaluated after every epoch, also on validation inputs."""

    def changed(self) -> dict[str, nn.Parameter]:
        """All parameters that are another after training, be it by a task beside this one."""
        ...

    def evaluate(self, dtype: Dtype) -> tuple[np.ndarray, np.ndarray]:
        """Logits of all training and all validation examples."""
        ...


class WholeModel:
    """Everything but the input embeddings learns."""

    def __init__(self, model: BlockModel, train: Encoded, validation: Encoded) -> None:
        self.model, self.train, self.validation = model, train, validation
        self.device = model.device
        self.closed = model.groups.embeddings

    def trainable(self) -> dict[str, nn.Parameter]:
        """Parameters outside the embeddings."""
        return {n: p for n, p in self.model.model.named_parameters() if n not in self.closed}

    def changed(self) -> dict[str, nn.Parameter]:
        """What it trains."""
        return self.trainable()

    def lengths(self) -> np.ndarray:
        """Tokens per training example."""
        return self.train.lengths

    def logits(self, indices: np.ndarray) -> Tensor:
        """An ordinary forward pass."""
        return self.model.logits(self.train.batch(indices.tolist(), self.device))

    def evaluate(self, dtype: Dtype) -> tuple[np.ndarray, np.ndarray]:
        """Whole passes over both sets."""
        return (
            predict_logits(self.model, self.train, dtype),
            predict_logits(self.model, self.validation, dtype),
        )

    @contextlib.contextmanager
    def training_mode(self) -> Iterator[None]:
        """Dropout on, embeddings closed."""
        with self.model.frozen(self.closed), self.model.mode(training=True):
            yield


class HeadOnly(WholeModel):
    """Only the head learns: the frozen model.

    Everything below the head is constant, so the state the head reads is computed once. Where the
    model allows no such short cut, whole passes are made, with the same result.
    """

    def __init__(self, model: BlockModel, train: Encoded, validation: Encoded) -> None:
        super().__init__(model, train, validation)
        head = set(model.groups.head)
        self.closed = tuple(n for n, _ in model.model.named_parameters() if n not in head)
        self.cached = model.can_resume and model.pooling != "other"
        if self.cached:
            last = (model.n_layers,)
            read = [pooled_states(model, part, layers=last) for part in (train, validation)]
            # States are kept in float32, whatever the model computes in.
            precision = next(model.block(model.n_layers).parameters()).dtype
            self.features = tuple(
                (states[0] if len(states) else states).to(precision) for states in read
            )

    def logits(self, indices: np.ndarray) -> Tensor:
        """From the stored states, if possible."""
        if not self.cached:
            return super().logits(indices)
        return self.model.tail(self.features[0][torch.from_numpy(indices)].to(self.device))

    def evaluate(self, dtype: Dtype) -> tuple[np.ndarray, np.ndarray]:
        """From the stored states, if possible."""
        if not self.cached:
            return super().evaluate(dtype)
        train, validation = self.features
        with self.model.mode(training=False), torch.inference_mode(), autocast(self.device, dtype):
            return self._tail(train), self._tail(validation)

    @contextlib.contextmanager
    def training_mode(self) -> Iterator[None]:
        """Dropout only in the head: what is frozen answers the same every time."""
        with super().training_mode():
            base = self.model.model.base_model
            assert isinstance(base, nn.Module)
            base.eval()
            yield

    def _tail(self, features: Tensor) -> np.ndarray:
        if not len(features):
            return predict_logits(self.model, self.validation)
        logits: np.ndarray = self.model.tail(features.to(self.device)).float().cpu().numpy()
        return logits
