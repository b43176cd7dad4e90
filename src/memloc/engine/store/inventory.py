"""What is in a store: listed, described for people, and checked."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from memloc.engine.store.store import MANIFEST, Store, is_whole, key_of
from memloc.errors import StoreError, suggest

Artefact = tuple[str, str]
"""Kind and key."""
WEIGHT_KINDS = ("train", "control", "states")
"""Artefacts that are large: trained weights, and states of layers."""
KINDS = ("data", "model", *WEIGHT_KINDS, "window", "localise", "explain", "split", "speed")
"""All that results are made of."""
RESUME = "resume"
"""States of trainings that are not finished; their key begins with that of the training."""
KEY = re.compile(r"[0-9a-f]{32}")
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}\.(json|parquet|safetensors)")
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
            f"there is no store in {str(runs)!r}",
            remedy="give the folder that `memloc run` wrote to",
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


def artefact_problem(
    folder: Path, kind: str, key: str, read: Callable[[int], None] = lambda size: None
) -> str | None:
    """What is wrong with an artefact, its checksums included; None if nothing is.

    Args:
        folder: Of the artefact.
        kind: What it must be.
        key: Its name.
        read: Told the bytes of every file that has been read.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return f"{MANIFEST} cannot be read"
    if not is_whole(manifest):
        return f"{MANIFEST} does not match its checksum"
    if (manifest.get("kind"), manifest.get("key")) != (kind, key):
        return f"{MANIFEST} names another artefact"
    # States of unfinished trainings are named after the training, not after their content.
    if kind != RESUME and key_of(kind, manifest["inputs"]) != key:
        return "its key does not follow from its inputs"
    there = {path.name for path in folder.iterdir()} - {MANIFEST}
    if extra := sorted(there - manifest["files"].keys()):
        return f"{extra[0]!r} does not belong to it"
    for name, checksum in manifest["files"].items():
        path = folder / name
        if name not in there:
            return f"{name} is missing"
        if path.is_symlink() or not path.is_file():
            return f"{name} is not a regular file"
        try:
            with path.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
        except PermissionError as error:
            raise _not_ours(path, error) from None
        except OSError as error:
            return f"{name} cannot be read: {error.strerror or error}"
        if found != checksum:
            return f"{name} does not match its checksum"
        read(path.stat().st_size)
    return None


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest if it has the form of one, otherwise None."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        except PermissionError as error:
            raise _not_ours(folder / MANIFEST, error) from None
        if isinstance(manifest, dict) and all(
            isinstance(manifest.get(name), dict) for name in ("inputs", "files", "costs")
        ):
            return manifest
    return None


def _not_ours(path: Path, error: OSError) -> StoreError:
    """What another user keeps to himself is not damaged."""
    return StoreError(f"{str(path)!r} cannot be read: {error.strerror}; ask its owner to allow it")


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
    parts = [str(inputs[name]) for name in ("technique", "host") if name in inputs]
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
