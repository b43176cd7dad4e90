"""Content-addressed artefacts: what is done is never done again, and never half done.

An artefact is a folder ``<root>/<kind>/<key>/`` with data files and a ``manifest.json``. The key is
a hash of everything that determines the result. A folder is written under a temporary name, flushed
and renamed, so that it is there completely or not at all, whatever happens to the process. Only
safetensors, Parquet and JSON are written: reading an artefact never runs code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from memloc.engine.store.locks import Locks, is_gone
from memloc.errors import MALFORMED, StoreError, cannot_write

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import torch


MANIFEST = "manifest.json"
TEMPORARY = ".tmp"
ASIDE = ".damaged-"
"""In the name of an artefact that was set aside."""
FLUSHED_ABOVE = 0.5
"""Seconds of work that are worth waiting for the disk."""
CHECKED_AT_ONCE = 8_000_000
"""Bytes: larger files are checked when they are read, before that only their size is."""


class DamagedArtefact(StoreError):
    """A stored artefact is not there, or does not match its checksums."""

    def __init__(self, problem: str, kind: str, key: str) -> None:
        super().__init__(problem, remedy="run the same command again to compute it anew")
        self.artefact = kind, key


def key_of(kind: str, inputs: Any) -> str:
    """Hash of everything that determines an artefact."""
    text = json.dumps([kind, inputs], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def library_versions() -> dict[str, str]:
    """Recorded beside every artefact (not part of its key)."""
    names = ("memloc", "torch", "transformers", "tokenizers", "datasets", "numpy", "pandas")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


@dataclass(frozen=True)
class Artefact:
    """A finished folder in the store, opened for reading."""

    path: Path
    manifest: dict[str, Any]

    def json(self, name: str) -> Any:
        """Read a JSON file of the artefact."""
        return json.loads((self.path / name).read_text(encoding="utf-8"))

    def table(self, name: str) -> pd.DataFrame:
        """Read a Parquet file of the artefact."""
        import pandas as pd  # takes as long as a hundred short jobs

        return pd.read_parquet(self.path / name)

    def tensors(self, name: str) -> dict[str, torch.Tensor]:
        """Read a safetensors file of the artefact."""
        from safetensors.torch import load_file  # brings torch, which finished work does not need

        return dict(load_file(self.path / name))

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """The same without torch."""
        from safetensors.numpy import load_file

        return dict(load_file(self.path / name))

    def each_tensor(self, name: str) -> Iterator[tuple[str, torch.Tensor]]:
        """Read a safetensors file one tensor after the other, never holding all of them."""
        from safetensors import safe_open

        path = self.path / name
        with safe_open(path, framework="pt") as file:
            keys = list(file.keys())
        for key in keys:
            # Opened anew for each: what is read of a mapped file stays in memory until it closes.
            with safe_open(path, framework="pt") as file:
                yield key, file.get_tensor(key)


class Draft:
    """A folder being written; becomes an artefact when the `with` block ends well."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def json(self, name: str, value: Any) -> None:
        """Write a JSON file."""
        (self.path / name).write_text(
            json.dumps(value, indent=1, ensure_ascii=False, default=str), encoding="utf-8"
        )

    def table(self, name: str, table: pd.DataFrame) -> None:
        """Write a Parquet file."""
        table.to_parquet(self.path / name, index=False)

    def tensors(self, name: str, tensors: dict[str, torch.Tensor]) -> None:
        """Write a safetensors file."""
        from safetensors.torch import save_file

        contiguous = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
        save_file(contiguous, self.path / name)


class Store:
    """The artefacts below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.locks = Locks(root)
        self.damaged: list[str] = []
        """What is wrong with the artefacts that `sound` found damaged."""

    def folder(self, kind: str, key: str) -> Path:
        """Where an artefact is, or would be."""
        return self.root / kind / key

    def has(self, kind: str, key: str) -> bool:
        """Whether the artefact is finished."""
        return (self.folder(kind, key) / MANIFEST).is_file()

    def has_result(self, key: str) -> bool:
        """Whether there is a finished artefact of any kind with this key."""
        return any(self.root.glob(f"*/{key}/{MANIFEST}"))

    def keys(self, kind: str) -> list[str]:
        """Names of everything stored under a kind, damaged things too."""
        try:
            return os.listdir(self.root / kind)
        except OSError:
            return []

    def versions(self) -> dict[str, str]:
        """Versions of the libraries that this process computes with."""
        return library_versions()

    def open(self, kind: str, key: str, largest: float = math.inf) -> Artefact:
        """Open a finished artefact after checking it; of files beyond `largest`, only the size.

        Raises:
            DamagedArtefact: If it is damaged; it is then set aside, so that running again mends it.
            StoreError: If it cannot be read now (permissions, a file system that is away). That is
                not damage: what took days to compute must not be thrown away for it.
        """
        folder = self.folder(kind, key)
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            wrong = _mismatch(folder, manifest, largest)
            if wrong is None:
                return Artefact(folder, manifest)
            problem = f"{wrong} does not match its checksum"
        except MALFORMED:
            problem = f"{MANIFEST} cannot be read"
        except FileNotFoundError as error:
            problem = f"{Path(str(error.filename)).name} is missing"
        except OSError as error:
            raise StoreError(
                f"{str(error.filename or folder)!r} cannot be read: {error.strerror or error}",
                remedy="mend that, then run the same command again",
            ) from None
        aside = self._set_aside(folder)
        words = f"is damaged ({problem}) and was set aside as {aside}" if aside else "is gone"
        raise DamagedArtefact(f"stored {kind} {key[:8]} {words}", kind, key)

    def sound(self, kind: str, key: str) -> bool:
        """Whether the artefact is finished and undamaged; a damaged one is set aside.

        Of large files only the size is checked here: those of a long sweep would take hours to
        read. They are checked in full whenever they are opened.
        """
        if not self.has(kind, key):
            return False
        try:
            self.open(kind, key, CHECKED_AT_ONCE)
        except DamagedArtefact as damage:
            self.damaged.append(damage.problem)
            return False
        return True

    def _set_aside(self, folder: Path) -> Path | None:
        """Give a damaged artefact another name; None if another process did it first."""
        aside = folder.with_name(f"{folder.name}{ASIDE}{uuid.uuid4().hex[:6]}")
        try:
            folder.rename(aside)
        except FileNotFoundError:
            return None
        return aside

    @contextlib.contextmanager
    def write(
        self, kind: str, key: str, inputs: Any, costs: dict[str, float] | None = None
    ) -> Iterator[Draft]:
        """Write an artefact; it appears under its name only when the block ends without an error.

        Raises:
            StoreError: If the disk is full or not writable.
        """
        try:
            with self.scratch() as temporary:
                draft = Draft(temporary)
                yield draft
                files = {file.name: sha256_of(file) for file in sorted(temporary.iterdir())}
                manifest = {
                    "kind": kind,
                    "key": key,
                    "inputs": inputs,
                    "files": files,
                    "sizes": {name: (temporary / name).stat().st_size for name in files},
                    "costs": costs or {},
                    "versions": library_versions(),
                }
                draft.json(MANIFEST, {**manifest, "checksum": manifest_checksum(manifest)})
                # What a crash of the machine takes away is found by its checksum and computed anew;
                # where that would take longer than waiting for the disk, the disk is waited for.
                lasting = (costs or {}).get("seconds", 0) > FLUSHED_ABOVE
                for file in temporary.iterdir() if lasting else ():
                    _flush(file)
                self.place(temporary, kind, key)
                if lasting:
                    _flush(self.root / kind)
        except (OSError, SafetensorError) as error:
            raise cannot_write(self.root, error) from None

    def place(self, folder: Path, kind: str, key: str) -> bool:
        """Move a finished folder to its name; False if the same artefact is there already."""
        final = self.folder(kind, key)
        final.parent.mkdir(parents=True, exist_ok=True)
        if final.exists() and not self.has(kind, key):
            self._set_aside(final)  # somebody deleted its manifest
        try:
            folder.rename(final)
        except OSError:
            if not self.has(kind, key):
                raise
            return False  # another process finished it first: its content is equal
        return True

    def _temporary(self) -> Path:
        """A new name; it says whose it is, to tell leftovers of the dead from work in progress."""
        owner = f"{socket.gethostname()}@{os.getpid()}"
        return self.root / TEMPORARY / f"{uuid.uuid4().hex[:8]}@{owner}"

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder on the disk of the store for as long as the block lasts."""
        folder = self._temporary()
        try:
            folder.mkdir(parents=True)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def remove(self, kind: str, key: str) -> None:
        """Remove an artefact in one go, so that nobody ever finds half of it.

        It gets a name like a draft of this process, so it is swept with those if the process dies.
        """
        aside = self._temporary()
        try:
            aside.parent.mkdir(parents=True, exist_ok=True)
            self.folder(kind, key).rename(aside)
        except OSError:
            return  # another process has removed it, or nothing can be written here any more
        if aside.is_file():
            aside.unlink()
        shutil.rmtree(aside, ignore_errors=True)

    def check_writable(self) -> None:
        """Fail early, before any work, if nothing could be written.

        Raises:
            StoreError: If the folder cannot be created or written.
        """
        try:
            with self.scratch() as folder:
                (folder / "probe").write_bytes(b"0")
        except OSError as error:
            raise cannot_write(self.root, error) from None

    def dead_drafts(self, give_up_after: float = math.inf) -> list[Path]:
        """Drafts whose writing process is gone (killed, or the machine went down).

        Those of another machine count as dead after so many seconds.
        """
        dead = []
        for path in (self.root / TEMPORARY).glob("*@*@*"):
            host, pid = path.name.split("@", 1)[1].rsplit("@", 1)
            with contextlib.suppress(FileNotFoundError):
                if host == socket.gethostname() and pid.isdecimal():
                    gone = is_gone(int(pid))
                else:
                    gone = time.time() - path.stat().st_mtime > give_up_after
                if gone:
                    dead.append(path)
        return dead

    def sweep_leftovers(self) -> None:
        """Remove what processes of this machine left when they died: drafts and locks."""
        for folder in self.dead_drafts():
            shutil.rmtree(folder, ignore_errors=True)
        self.locks.sweep()


def manifest_checksum(manifest: dict[str, Any]) -> str:
    """Of everything in a manifest but its checksum."""
    content = {name: value for name, value in manifest.items() if name != "checksum"}
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _mismatch(folder: Path, manifest: dict[str, Any], largest: float) -> str | None:
    """The first file of an artefact that is not what it was when it was written."""
    named = folder.parent.name, folder.name
    whole = manifest["checksum"] == manifest_checksum(manifest)
    if not whole or (manifest["kind"], manifest["key"]) != named:
        return MANIFEST
    for name, checksum in manifest["files"].items():
        size = manifest["sizes"][name]
        if (folder / name).stat().st_size != size:
            return str(name)
        if size <= largest and sha256_of(folder / name) != checksum:
            return str(name)
    return None


def sha256_of(path: Path) -> str:
    """Checksum of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
