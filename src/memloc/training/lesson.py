"""A lesson: what one task does to a model, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import get_scheduler

from memloc.config import Training
from memloc.data.encode import training_batches
from memloc.errors import MemlocError
from memloc.models.states import autocast
from memloc.training.learners import Trainee


class TrainingFailed(MemlocError):
    """Training went wrong in a way that more of it would not mend."""


class Lesson:
    """What one task does to a model: its data, the parameters it may change, its optimiser.

    Args:
        learner: The model with its inputs.
        labels: What it should answer.
        config: Settings.
        rate: What the learning rate is called in error messages.
    """

    def __init__(
        self,
        learner: Trainee,
        labels: Tensor,
        config: Training,
        rate: str = "the learning rate",
    ) -> None:
        self.learner, self.labels, self.config, self.rate = learner, labels, config, rate
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
                f"{self.config.learning_rate:g}; lower {self.rate}"
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
