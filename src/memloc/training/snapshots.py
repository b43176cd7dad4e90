"""Weights of some epochs, kept on the disk until the training is over.

They are states of the training like any other (`memloc.training.resume`): one is there completely
or not at all, survives the death of the process, and is removed when the job is done. They are not
part of the state that is saved every few minutes, which would grow with each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from memloc.training.resume import ResumePoint


class Snapshots:
    """Keeps the weights of some epochs.

    Args:
        resume: Where the training saves its states.
        epochs: Those to keep, from 1.
    """

    def __init__(self, resume: ResumePoint, epochs: Sequence[int]) -> None:
        self.resume, self.epochs = resume, tuple(sorted(epochs))

    def end_epoch(self, epoch: int, weights: Mapping[str, Tensor]) -> None:
        """Keep the weights, if they are wanted; a full disk does not end a training."""
        if epoch in self.epochs:
            self._point(epoch, _Weights(weights)).save()

    def read(self, epoch: int) -> dict[str, Tensor] | None:
        """The weights of an epoch; None if they are not there."""
        found = _Weights({})
        return dict(found.weights) if self._point(epoch, found).restore() else None

    def complete(self) -> bool:
        """Whether all can be read."""
        return all(self.read(epoch) is not None for epoch in self.epochs)

    def _point(self, epoch: int, weights: _Weights) -> ResumePoint:
        point = self.resume.part(f"epoch-{epoch}")
        point.keep("weights", weights)
        return point


class _Weights:
    """A part of a state, see `memloc.training.resume.Kept`."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = weights

    def tensors(self) -> Mapping[str, Tensor]:
        return self.weights

    def values(self) -> dict[str, Any]:
        return {}

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        self.weights = tensors
