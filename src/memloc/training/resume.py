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
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from safetensors import SafetensorError

from memloc.errors import StoreError

if TYPE_CHECKING:
    from torch import Tensor

KIND = "resume"
REVISION = 1
"""Raise it when the same training would write another state."""
SAVE_EVERY = 600.0
"""Seconds between two states."""
VALUES = "values.json"
UNREADABLE = (
    *(StoreError, OSError, SafetensorError),
    *(ValueError, LookupError, TypeError, AttributeError),
)
"""What reading a state may end with, if somebody or something has changed it."""


class Draft(Protocol):
    """A state being written."""

    path: Path

    def tensors(self, name: str, tensors: dict[str, Tensor]) -> None:
        """Write a safetensors file."""
        ...


class SavedState(Protocol):
    """A state opened for reading, its files checked."""

    @property
    def manifest(self) -> dict[str, Any]:
        """What is recorded beside it."""
        ...

    def json(self, name: str) -> Any:
        """Read a JSON file."""
        ...

    def each_tensor(self, name: str) -> Iterable[tuple[str, Tensor]]:
        """Read a safetensors file, one tensor after the other."""
        ...


class StateStore(Protocol):
    """Where states are kept; `memloc.engine.store` has one."""

    def keys(self, kind: str) -> list[str]:
        """Names of everything stored under a kind."""
        ...

    def open(self, kind: str, key: str) -> SavedState:
        """Open what was written; raises `StoreError` if it is damaged."""
        ...

    def write(self, kind: str, key: str, inputs: Any) -> AbstractContextManager[Draft]:
        """Write something that is there completely or not at all."""
        ...

    def remove(self, kind: str, key: str) -> None:
        """Remove it in one go."""
        ...

    def has_result(self, key: str) -> bool:
        """Whether a finished result has this key."""
        ...

    def versions(self) -> dict[str, str]:
        """Versions of all libraries that have a say in the numbers."""
        ...


class Kept(Protocol):
    """A part of what a training must know to go on."""

    def tensors(self) -> Mapping[str, Tensor]:
        """By name; they may be the living ones, as they are written at once."""
        ...

    def values(self) -> dict[str, Any]:
        """JSON data, exactly: numbers of Python, not of numpy."""
        ...

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Become what it was when it gave these."""
        ...


class KeptValues:
    """JSON data as a part of a state."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}

    def tensors(self) -> dict[str, Tensor]:
        """None."""
        return {}

    def values(self) -> dict[str, Any]:
        """All of them."""
        return self.data

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """As they were."""
        self.data = values


class ResumePoint:
    """Where one training saves its state, and takes it up again.

    Args:
        store: Where states are kept.
        name: Of the training: determines the data, the seed and all settings.
        every: Seconds between two states; 0 saves after every step.
    """

    def __init__(self, store: StateStore, name: str, every: float = SAVE_EVERY) -> None:
        self.store, self.name, self.every = store, name, every
        self.kept: dict[str, Kept] = {}
        self.belongs = self._belonging(None)
        self.last = time.monotonic()

    def part(self, name: str) -> ResumePoint:
        """For one of several trainings of the same job."""
        return ResumePoint(self.store, f"{self.name}-{name}", self.every)

    def keep(self, name: str, part: Kept) -> None:
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
                    part.restore(*state[name])
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
        tensors = {name: dict(part.tensors()) for name, part in self.kept.items()}
        files = {name: f"{name}.safetensors" for name in tensors if tensors[name]}
        values = {name: part.values() for name, part in self.kept.items()}
        text = json.dumps({"files": files, "values": values})
        try:
            with self.store.write(KIND, f"{self.name}-{number}", self.belongs) as draft:
                (draft.path / VALUES).write_text(text, encoding="utf-8")
                for name, file in files.items():
                    draft.tensors(file, tensors[name])
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

    def _read(self, number: int) -> dict[str, tuple[dict[str, Tensor], dict[str, Any]]] | None:
        """Tensors and values of all that is kept, or None if the state cannot be used."""
        try:
            artefact = self.store.open(KIND, f"{self.name}-{number}")
            content = artefact.json(VALUES)
            files, values = content["files"], content["values"]
            if (
                artefact.manifest["inputs"] != self.belongs
                or artefact.manifest["files"].keys() != {VALUES, *files.values()}
                or values.keys() != self.kept.keys()
            ):
                return None
            state: dict[str, tuple[dict[str, Tensor], dict[str, Any]]] = {}
            for name in self.kept:
                read = artefact.each_tensor(files[name]) if name in files else ()
                # Copies: what is read may still be the file, which is removed before the end.
                state[name] = {key: value.clone() for key, value in read}, values[name]
        except UNREADABLE:
            return None  # damaged, or another process has just removed it
        return state

    def _numbers(self) -> list[int]:
        pattern = re.compile(re.escape(self.name) + r"-(\d+)")
        matches = map(pattern.fullmatch, self.store.keys(KIND))
        return [int(match[1]) for match in matches if match]

    def _belonging(self, what: Any) -> dict[str, Any]:
        digest = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()
        return {"revision": REVISION, "to": digest, "versions": self.store.versions()}


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
    """A part of a state, see `Kept`."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = weights

    def tensors(self) -> Mapping[str, Tensor]:
        return self.weights

    def values(self) -> dict[str, Any]:
        return {}

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        self.weights = tensors
