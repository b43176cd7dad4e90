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

import json
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from safetensors import SafetensorError

from memloc.engine.store.store import MANIFEST, TEMPORARY, Store, key_of, library_versions
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

    def __init__(self, store: Store, name: str, every: float = SAVE_EVERY) -> None:
        self.store, self.name, self.every = store, name, every
        self.kept: dict[str, Kept] = {}
        self.belongs = _belongs(None)
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
        self.belongs = _belongs(belongs)
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
            _remove(self.store, self._folder(old))
        return True

    def forget(self) -> None:
        """Remove all states."""
        for number in self._numbers():
            _remove(self.store, self._folder(number))

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
        matches = (pattern.fullmatch(folder.name) for folder in _folders(self.store))
        return [int(match[1]) for match in matches if match]

    def _folder(self, number: int) -> Path:
        return self.store.root / KIND / f"{self.name}-{number}"


def forget_states(store: Store, key: str) -> None:
    """Remove all states of a job, damaged ones too: it is done."""
    for folder in _folders(store):
        if folder.name.startswith(f"{key}-"):
            _remove(store, folder)


def forget_finished(store: Store) -> None:
    """Remove states of jobs whose result is there: their process was killed before it could."""
    for folder in _folders(store):
        key = folder.name.split("-")[0]
        if any(store.root.glob(f"*/{key}/{MANIFEST}")):
            _remove(store, folder)


def _belongs(what: Any) -> dict[str, Any]:
    return {"revision": REVISION, "to": key_of(KIND, what), "versions": library_versions()}


def _folders(store: Store) -> Iterator[Path]:
    try:
        names = os.listdir(store.root / KIND)
    except FileNotFoundError:
        return
    for name in names:
        yield store.root / KIND / name


def _remove(store: Store, folder: Path) -> None:
    """Remove a state in one go, so that nobody ever finds half of it.

    It gets a name like a draft of this process, so it is swept with those if the process dies.
    """
    owner = f"{socket.gethostname()}@{os.getpid()}"
    aside = store.root / TEMPORARY / f"{uuid.uuid4().hex[:8]}@{owner}"
    try:
        aside.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(aside)
    except OSError:
        return  # another process has removed it, or nothing can be written here any more
    shutil.rmtree(aside, ignore_errors=True)
