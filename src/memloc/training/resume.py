"""Exact resume inside a long training: its state is saved now and then, and taken up again.

A state is an artefact of the kind ``resume`` in the store, ``<root>/resume/<name>-<number>/``, so
it is there completely or not at all, and damage is noticed. It is only used by the very training
that wrote it, with the same versions of all libraries; else the training starts from the beginning.
Whatever is wrong with a state costs time, never the result.

Saving goes by the clock and happens between two steps. A training that goes on from a state is bit
for bit the training that was never interrupted (on the CPU; an accelerator may round otherwise from
one time to the next).
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from safetensors import SafetensorError

from memloc.errors import MALFORMED, StoreError

if TYPE_CHECKING:
    from torch import Tensor

KIND = "resume"
REVISION = 2
"""Raise it when the same training would write another state."""
SAVE_EVERY = 600.0
"""Seconds between two states."""
VALUES, TENSORS = "values.json", "tensors.safetensors"


class StateStore(Protocol):
    """Where states are kept; `memloc.engine.store` has one."""

    def keys(self, kind: str) -> list[str]:
        """Names of everything stored under a kind."""

    def open(self, kind: str, key: str) -> Any:
        """Open what was written; raises `StoreError` if it is damaged."""

    def write(self, kind: str, key: str, inputs: Any) -> AbstractContextManager[Any]:
        """Write something that is there completely or not at all."""

    def remove(self, kind: str, key: str) -> None:
        """Remove it in one go."""

    def has_result(self, key: str) -> bool:
        """Whether a finished result has this key."""

    def versions(self) -> dict[str, str]:
        """Versions of all libraries that have a say in the numbers."""


class Stateful(Protocol):
    """A part of what a training must know to go on; optimisers of torch are such, for example."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors, which may be the living ones, and JSON data, nested in any way."""

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Become what it was when it gave this."""


class Kept:
    """Data as a part of a state."""

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        self.data = dict(data or {})

    def state_dict(self) -> dict[str, Any]:
        """All of it."""
        return self.data

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """As it was."""
        self.data = state


class ResumePoint:
    """Where one training saves its state, and takes it up again.

    Args:
        store: Where states are kept.
        name: Of the training: determines the data, the seed and all settings.
        every: Seconds between two states; 0 saves after every step.
    """

    def __init__(self, store: StateStore, name: str, every: float = SAVE_EVERY) -> None:
        self.store, self.name, self.every = store, name, every
        self.kept: dict[str, Stateful] = {}
        self.belongs = self._belonging(None)
        self.last = time.monotonic()

    def part(self, name: str) -> ResumePoint:
        """For one of several trainings of the same job."""
        return ResumePoint(self.store, f"{self.name}-{name}", self.every)

    def keep(self, name: str, part: Stateful) -> None:
        """Make something part of the state."""
        self.kept[name] = part

    def restore(self, belongs: Any = None) -> bool:
        """Bring all that is kept into the newest usable state.

        Args:
            belongs: JSON data on what the state belongs to, beside the name; a state that was
                saved with other data is not used.

        Returns:
            Whether there was one; if not, nothing has changed.
        """
        self.belongs = self._belonging(belongs)
        for number in sorted(self._numbers(), reverse=True):
            state = self._read(number)
            if state is not None:
                for name, part in self.kept.items():
                    part.load_state_dict(state[name])
                return True
        return False

    def save_if_due(self) -> None:
        """Save if the last time is long enough ago."""
        if time.monotonic() - self.last >= self.every:
            self.save()

    def save(self) -> bool:
        """Write a state, then remove those before it.

        Returns:
            Whether it could be written. If not (the disk is full), training goes on and the state
            before is kept; there may be room next time.
        """
        before = self._numbers()
        number = max(before, default=0) + 1
        tensors: dict[str, Tensor] = {}
        values = _take_out({name: part.state_dict() for name, part in self.kept.items()}, tensors)
        text = json.dumps(values)
        try:
            with self.store.write(KIND, f"{self.name}-{number}", self.belongs) as draft:
                (draft.path / VALUES).write_text(text, encoding="utf-8")
                draft.tensors(TENSORS, tensors)
        except StoreError:
            return False
        finally:
            self.last = time.monotonic()
        for old in before:
            self.store.remove(KIND, f"{self.name}-{old}")
        return True

    def forget(self) -> None:
        """Remove all states."""
        for number in self._numbers():
            self.store.remove(KIND, f"{self.name}-{number}")

    def _read(self, number: int) -> dict[str, Any] | None:
        """What was kept, or None if the state cannot be used."""
        try:
            artefact = self.store.open(KIND, f"{self.name}-{number}")
            if artefact.manifest["inputs"] != self.belongs:
                return None
            # Copies: what is read may still be the file, which is removed before the end.
            tensors = {key: value.clone() for key, value in artefact.each_tensor(TENSORS)}
            state: dict[str, Any] = _put_back(artefact.json(VALUES), tensors)
        except (StoreError, OSError, SafetensorError, *MALFORMED):
            return None  # damaged, or another process has just removed it
        return state if state.keys() == self.kept.keys() else None

    def _numbers(self) -> list[int]:
        pattern = re.compile(re.escape(self.name) + r"-(\d+)")
        matches = map(pattern.fullmatch, self.store.keys(KIND))
        return [int(match[1]) for match in matches if match]

    def _belonging(self, what: Any) -> dict[str, Any]:
        digest = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()
        return {"revision": REVISION, "to": digest, "versions": self.store.versions()}


def _take_out(value: Any, tensors: dict[str, Tensor]) -> Any:
    """JSON data in which a tensor is a reference to its place among `tensors`."""
    from torch import Tensor

    if isinstance(value, Tensor):
        place = str(len(tensors))
        tensors[place] = value
        return {"tensor": place}
    if isinstance(value, Mapping):  # keys may be numbers, which JSON does not have
        return {"items": [[key, _take_out(item, tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_take_out(item, tensors) for item in value]
    return value


def _put_back(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The reverse; tuples are lists."""
    if isinstance(value, list):
        return [_put_back(item, tensors) for item in value]
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        return {key: _put_back(item, tensors) for key, item in value["items"]}
    return value


def forget_states(store: StateStore, key: str) -> None:
    """Remove all states of a job, damaged ones too: it is done."""
    for name in store.keys(KIND):
        if name.startswith(f"{key}-"):
            store.remove(KIND, name)


def forget_finished(store: StateStore) -> None:
    """Remove states of jobs whose result is there: their process was killed before it could."""
    for name in store.keys(KIND):
        if store.has_result(name.split("-")[0]):
            store.remove(KIND, name)


class Snapshots:
    """Keeps the weights of some epochs on the disk until the training is over.

    They are states of the training like any other: one is there completely or not at all, survives
    the death of the process, and is removed when the job is done. They are not part of the state
    that is saved every few minutes, which would grow with each of them.
    """

    def __init__(self, resume: ResumePoint, epochs: Sequence[int]) -> None:
        self.resume, self.epochs = resume, tuple(sorted(epochs))

    def end_epoch(self, epoch: int, weights: Mapping[str, Tensor]) -> None:
        """Keep the weights, if they are wanted; a full disk does not end a training."""
        if epoch in self.epochs:
            self._point(epoch, Kept(weights)).save()

    def read(self, epoch: int) -> dict[str, Tensor] | None:
        """The weights of an epoch; None if they are not there."""
        kept = Kept()
        return kept.data if self._point(epoch, kept).restore() else None

    def complete(self) -> bool:
        """Whether all can be read."""
        return all(self.read(epoch) is not None for epoch in self.epochs)

    def _point(self, epoch: int, weights: Kept) -> ResumePoint:
        point = self.resume.part(f"epoch-{epoch}")
        point.keep("weights", weights)
        return point
