"""What is in a store: listed for people, and checked."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from memloc.engine.store.contents import KINDS, RESUME, artefact_problem, read_manifest
from memloc.engine.store.store import MANIFEST, Store
from memloc.errors import StoreError, suggest

ASIDE = ".damaged-"
"""In the name of a folder that was set aside."""


@dataclass(frozen=True)
class Entry:
    """An artefact on disk.

    Attributes:
        kind: Of the artefact.
        key: Of the artefact.
        path: Its folder.
        size: Bytes of its files.
        written: When, in seconds.
    """

    kind: str
    key: str
    path: Path
    size: int
    written: float

    @cached_property
    def manifest(self) -> dict[str, Any] | None:
        """What it was made from; None if that cannot be read."""
        return read_manifest(self.path)

    @property
    def seconds(self) -> float | None:
        """How long it took to compute, as far as known."""
        return None if self.manifest is None else self.manifest["costs"].get("seconds")


def open_store(runs: Path) -> Store:
    """The store of a folder of results.

    Raises:
        StoreError: If there is none.
    """
    root = runs / "store"
    if not root.is_dir():
        raise StoreError(
            f"there is no store in {str(runs)!r}; give the folder that `memloc run` wrote to with "
            "--runs DIR"
        )
    return Store(root)


def entries(store: Store, kind: str | None = None) -> list[Entry]:
    """All artefacts, or those of a kind, in a fixed order.

    Raises:
        StoreError: If there is no such kind.
    """
    # Whatever else somebody keeps in this folder is none of our business.
    kinds = [path for path in _folders(store.root) if path.name in (*KINDS, RESUME)]
    if kind is not None:
        names = [path.name for path in kinds]
        if kind not in names:
            raise StoreError(f"there is no artefact of the kind {kind!r}{suggest(kind, names)}")
        kinds = [store.root / kind]
    found = [
        _entry(path) for folder in kinds for path in _folders(folder) if ASIDE not in path.name
    ]
    return [entry for entry in found if entry is not None]


def set_aside(store: Store) -> list[Path]:
    """Folders of artefacts that were found damaged."""
    return [path for kind in _folders(store.root) for path in _folders(kind) if ASIDE in path.name]


def _folders(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as found:
        yield from sorted(Path(item) for item in found if item.is_dir(follow_symlinks=False))


def _entry(path: Path) -> Entry | None:
    """None if it was removed meanwhile."""
    try:
        size = folder_size(path)
        manifest = path / MANIFEST
        written = (manifest if manifest.exists() else path).stat().st_mtime
    except FileNotFoundError:
        return None
    return Entry(path.parent.name, path.name, path, size, written)


def folder_size(path: Path) -> int:
    """Bytes of the files in a folder, and below."""
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())


@dataclass(frozen=True)
class Damage:
    """An artefact that is not what it should be."""

    entry: Entry
    problem: str
    aside: Path

    @property
    def words(self) -> str:
        """One line."""
        return (
            f"{self.entry.kind} {self.entry.key[:12]} is damaged ({self.problem}); set aside as "
            f"{self.aside.name}"
        )


def verify(
    store: Store,
    found: list[Entry],
    read: Callable[[int], None] = lambda size: None,
    say: Callable[[Damage], None] = lambda damage: None,
) -> list[Damage]:
    """Check every artefact in full; set the damaged ones aside, so that they are computed anew.

    Args:
        store: Where they are.
        found: The artefacts, from `entries`.
        read: Told the bytes that have been read.
        say: Told what is damaged, at once.
    """
    damaged = []
    for entry in found:
        with contextlib.suppress(FileNotFoundError):  # somebody removed it
            problem = artefact_problem(entry.path, entry.kind, entry.key, read)
            if problem is not None and entry.path.exists():
                damage = Damage(entry, problem, store._set_aside(entry.path))
                damaged.append(damage)
                say(damage)
    return damaged


class Describer:
    """Says in words what an artefact is."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.tasks: dict[str, str] = {}

    def words(self, entry: Entry) -> str:
        """Such as `θ_O, seed 1, on questions`."""
        if entry.kind == RESUME:
            return f"unfinished training {entry.key[:12]}"
        if entry.manifest is None:
            return f"{MANIFEST} cannot be read"
        inputs = entry.manifest["inputs"]
        parts = _parts(entry.kind, inputs)
        if entry.kind == "data":
            parts = [self._task(entry.key), f"{len(inputs.get('labels', ()))} classes"]
        elif isinstance(needs := inputs.get("needs"), dict) and "data" in needs:
            parts.append(f"on {self._task(str(needs['data']))}")
        return ", ".join(parts)

    def _task(self, key: str) -> str:
        if key not in self.tasks:
            self.tasks[key] = f"data {key[:12]}"
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
                path = self.store.root / "data" / key / "task.json"
                self.tasks[key] = str(json.loads(path.read_text(encoding="utf-8"))["name"])
        return self.tasks[key]


STATES = {"original": "θ_O", "memorised": "θ_M", "frozen": "frozen θ_P with a head"}


def _parts(kind: str, inputs: dict[str, Any]) -> list[str]:
    """What distinguishes an artefact from others of its kind."""
    parts = [str(inputs[name]) for name in ("method", "part", "host") if name in inputs]
    if "state" in inputs:
        parts.append(STATES.get(str(inputs["state"]), str(inputs["state"])))
    if "role" in inputs:
        parts.append(f"of {inputs['role']}")
    if "split" in inputs:
        parts.append(f"half {inputs['split']}")
    if isinstance(window := inputs.get("window"), list) and len(window) == 2:
        first, last = window
        parts.append(f"layer {first}" if first == last else f"layers {first}-{last}")
    if isinstance(hidden := inputs.get("layers"), list) and hidden:
        parts.append(f"hidden in layers {', '.join(map(str, hidden))}")
    if "seed" in inputs:
        parts.append(f"seed {inputs['seed']}")
    if kind == "model":
        fingerprint = str(inputs.get("fingerprint"))
        parts.append(
            f"facts on {fingerprint.split('@')[0] if '@' in fingerprint else fingerprint[:12]}"
        )
    return parts
