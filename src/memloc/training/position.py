"""Where a training is: which batch comes next, what dropout does to it, and the weights so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from memloc.training.lesson import Lesson


class Position:
    """The way through the epochs.

    The random order of an epoch is made at its start. It is made again, from the generator as it
    was then, when a training goes on in the middle.

    Args:
        lessons: Whose batches take turns.
        seed: Model seed.
    """

    def __init__(self, lessons: Sequence[Lesson], seed: int) -> None:
        self.lessons = lessons
        self.device = lessons[0].learner.device
        self.order = np.random.default_rng(seed)
        self.epoch, self.steps = 1, 0
        self._start_epoch()

    def batches(self) -> list[tuple[int, np.ndarray]]:
        """What is left of this epoch: numbers of lessons, and indices of their examples."""
        self.order.bit_generator.state = self.order_at_start
        batches = [
            (number, indices)
            for number, lesson in enumerate(self.lessons)
            for indices in lesson.batches(self.order)
        ]
        if len(self.lessons) > 1:
            batches = [batches[index] for index in self.order.permutation(len(batches))]
        return batches[sum(map(len, self.losses)) :]

    def move_on(self, number: int, loss: float) -> None:
        """A batch of a lesson is done."""
        self.losses[number].append(loss)
        self.steps += 1

    def end_epoch(self) -> list[list[float]]:
        """The losses of the epoch, by lesson."""
        losses = self.losses
        self.epoch += 1
        self._start_epoch()
        return losses

    def _start_epoch(self) -> None:
        self.order_at_start = self.order.bit_generator.state
        self.losses: list[list[float]] = [[] for _ in self.lessons]

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
    """All parameters that any of the lessons may change, each once."""

    def __init__(self, lessons: Sequence[Lesson]) -> None:
        self.parameters: dict[str, nn.Parameter] = {}
        seen: set[int] = set()
        for number, lesson in enumerate(lessons):
            for name, parameter in lesson.learner.trainable().items():
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
