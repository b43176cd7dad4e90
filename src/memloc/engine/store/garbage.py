"""What nothing needs any more, and its removal.

Rubbish goes in any case: drafts of processes that are gone, artefacts set aside as damaged, states
of trainings that are finished, forgotten caches. Artefacts that no result refers to go only if
somebody asks for it: an interrupted run is not a result yet, and may go on tomorrow.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memloc.engine.store.inventory import (
    KEY,
    RESUME,
    Artefact,
    Entry,
    entries,
    folder_size,
    set_aside,
)
from memloc.engine.store.locks import FOLDER, is_gone
from memloc.engine.store.store import TEMPORARY, Store
from memloc.errors import MALFORMED, StoreError
from memloc.tables import ARTEFACTS

YOUNG = 3600.0
"""Seconds in which a run that is going on may not have said yet that it needs something."""
OLD_DRAFT = 24 * 3600.0
"""Seconds after which a draft of another machine is given up; writing one takes minutes."""
SHARED = ("model", "speed")
"""Tiny facts on models and machines, which belong to no result in particular."""


@dataclass(frozen=True)
class Garbage:
    """What could go.

    Attributes:
        rubbish: Folders and files that nobody can use, with their sizes, by what they are.
        unreferenced: Artefacts that no result and no sweep refers to.
        unlisted: Results of older versions, which do not say what they were made from.
        in_use: Whether somebody is computing something right now.
    """

    rubbish: dict[str, list[tuple[Path, int]]]
    unreferenced: list[Entry]
    unlisted: list[Path]
    in_use: bool

    def all_goes(self, unreferenced: bool) -> bool:
        """Whether artefacts of no result go: if that is wanted, and nobody is at work."""
        return unreferenced and not self.in_use


def find_garbage(store: Store, runs: Path, now: float | None = None) -> Garbage:
    """Look through a store and the results beside it.

    Raises:
        StoreError: If a list of what a result or a sweep needs cannot be read.
    """
    now = time.time() if now is None else now
    in_use = any(_age(path, now) < YOUNG for path in _inside(store.root / FOLDER))
    found = entries(store)
    finished = {entry.key for entry in found if entry.kind != RESUME}
    done = [e for e in found if e.kind == RESUME and e.key[:32] in finished]
    caches = [
        path for path in _inside(store.root / ".cache") if not in_use and _age(path, now) > YOUNG
    ]
    rubbish = {
        "drafts of processes that are gone": [(p, _size(p)) for p in _dead_drafts(store, now)],
        "artefacts set aside as damaged": [(path, _size(path)) for path in set_aside(store)],
        "states of finished trainings": [(entry.path, entry.size) for entry in done],
        "forgotten caches": [(path, _size(path)) for path in caches],
    }
    needed, unlisted = referenced(runs)
    needed |= planned_artefacts(runs)
    needed_keys = {key for _, key in needed}
    unreferenced = [
        entry
        for entry in found
        if entry not in done
        and entry.kind not in SHARED
        and now - entry.written > YOUNG
        and not (
            entry.key[:32] in needed_keys
            if entry.kind == RESUME
            else (entry.kind, entry.key) in needed
        )
    ]
    return Garbage(rubbish, unreferenced, unlisted, in_use)


def remove_garbage(store: Store, garbage: Garbage, unreferenced: bool) -> None:
    """Delete the rubbish and, if wanted and nobody is at work, what no result refers to."""
    for items in garbage.rubbish.values():
        for path, _ in items:
            store.remove(path.parent.name, path.name)
    if garbage.all_goes(unreferenced):
        for entry in garbage.unreferenced:
            store.remove(entry.kind, entry.key)
    store.sweep_leftovers()


def referenced(runs: Path) -> tuple[set[Artefact], list[Path]]:
    """What the results in a folder were made from, and the results that do not say it.

    Raises:
        StoreError: If a list cannot be read.
    """
    needed: set[Artefact] = set()
    unlisted = []
    for folder in result_folders(runs):
        if (folder / ARTEFACTS).is_file():
            needed |= set(read_references(folder))
        else:
            unlisted.append(folder)
    return needed, unlisted


def result_folders(runs: Path) -> Iterator[Path]:
    """All results in a folder and below, the folder itself included."""
    for place, folders, files in os.walk(runs):
        folders[:] = sorted(name for name in folders if name != "store" and name[0] != ".")
        if "settings.json" in files:
            yield Path(place)


def read_references(folder: Path) -> list[Artefact]:
    """What a result was made from.

    Raises:
        StoreError: If that is not known.
    """
    path = folder / ARTEFACTS
    if not path.is_file():
        raise StoreError(
            f"{str(folder)!r} does not say what it was made from (it has no {ARTEFACTS}); run the "
            "same command again, which computes nothing that is in the store"
        )
    try:
        pairs = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, error) from None
    if not isinstance(pairs, list) or not all(map(is_pair, pairs)):
        raise _unreadable(path, "it is not a list of kinds and keys")
    return [(kind, key) for kind, key in pairs]


def is_pair(value: Any) -> bool:
    """Whether it is a kind and a key."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(part, str) for part in value)
        and KEY.fullmatch(value[1]) is not None
    )


def planned_artefacts(runs: Path) -> set[Artefact]:
    """What the sweeps of a folder compute or need, finished or not.

    Raises:
        StoreError: If a plan cannot be read.
    """
    found: set[Artefact] = set()
    for path in sorted((runs / "sweeps").glob("*/plan*.json.gz")):
        try:
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                jobs = json.load(stream)["jobs"]
            for job in jobs:
                found.add((str(job["kind"]), str(job["key"])))
                found |= {(str(kind), str(key)) for kind, key in job["needs"].values()}
        except (OSError, EOFError, zlib.error, *MALFORMED) as error:
            raise _unreadable(path, error) from None
    return found


def _unreadable(path: Path, error: object) -> StoreError:
    return StoreError(
        f"{str(path)!r} cannot be read ({error}), so nobody knows what is still needed; run the "
        "same command again, or move its folder away"
    )


def _dead_drafts(store: Store, now: float) -> list[Path]:
    dead = []
    for path in _inside(store.root / TEMPORARY):
        _, _, owner = path.name.partition("@")
        host, _, pid = owner.rpartition("@")
        if host == socket.gethostname() and pid.isdecimal():
            gone = is_gone(int(pid))
        else:
            gone = _age(path, now) > OLD_DRAFT
        if gone:
            dead.append(path)
    return dead


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _age(path: Path, now: float) -> float:
    """Seconds; of what has just been removed, as if it were old."""
    try:
        return now - path.lstat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _size(path: Path) -> int:
    return folder_size(path) if path.is_dir() else path.lstat().st_size
