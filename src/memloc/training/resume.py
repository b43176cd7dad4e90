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
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from memloc.errors import MALFORMED, StoreError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.checkpoint.stateful import Stateful

    from memloc.engine.store.store import Store

KIND = "resume"
REVISION = 3
"""Raise it when the same training would write another state."""
SAVE_EVERY = 600.0
"""Seconds between two states."""
VALUES, TENSORS = "values.json", "tensors.safetensors"


class ResumePoint:
    """Where one training saves its state, and takes it up again.

    Args:
        store: Where states are kept.
        name: Of the training: determines the data, the seed and all settings.
        every: Seconds between two states; 0 saves after every step.
    """

    def __init__(self, store: Store, name: str, every: float = SAVE_EVERY) -> None:
        self.store, self.name, self.every = store, name, every
        self.kept: dict[str, Stateful | dict[str, Any]] = {}
        self.belongs = self._belonging(None)
        self.last = time.monotonic()

    def part(self, name: str) -> ResumePoint:
        """For one of several trainings of the same job."""
        return ResumePoint(self.store, f"{self.name}-{name}", self.every)

    def keep(self, name: str, part: Stateful | dict[str, Any]) -> None:
        """Make something part of the state: tensors and JSON data, nested in any way.

        What has `state_dict` and `load_state_dict`, as optimisers of torch do, is asked for it.
        """
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
                    if isinstance(part, dict):
                        part.clear()
                        part.update(state[name])
                    else:
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
        state = {
            name: part if isinstance(part, dict) else part.state_dict()
            for name, part in self.kept.items()
        }
        text = json.dumps(_take_out(state, tensors))
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


def forget_states(store: Store, key: str) -> None:
    """Remove all states of a job, damaged ones too: it is done."""
    for name in store.keys(KIND):
        if name.startswith(f"{key}-"):
            store.remove(KIND, name)


def forget_finished(store: Store) -> None:
    """Remove states of jobs whose result is there: their process was killed before it could."""
    for name in store.keys(KIND):
        if store.has_result(name.split("-")[0]):
            store.remove(KIND, name)
