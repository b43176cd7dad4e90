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
import os
import platform
import shutil
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from safetensors import SafetensorError

from memloc.engine.store.locks import Locks, is_gone
from memloc.errors import StoreError

if TYPE_CHECKING:
    import torch


MANIFEST = "manifest.json"
TEMPORARY = ".tmp"
FLUSHED_ABOVE = 0.5
"""Seconds of work that are worth waiting for the disk."""
CHECKED_AT_ONCE = 8_000_000
"""Bytes: larger files are checked when they are read, before that only their size is."""


class DamagedArtefact(StoreError):
    """A stored artefact is not there, or does not match its checksums.

    Args:
        problem: What is wrong.
        kind: Of the artefact.
        key: Of the artefact.
    """

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
        return pd.read_parquet(self.path / name)

    def tensors(self, name: str) -> dict[str, torch.Tensor]:
        """Read a safetensors file of the artefact."""
        from safetensors.torch import load_file  # brings torch, which finished work does not need

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

    def has(self, kind: str, key: str) -> bool:
        """Whether the artefact is finished."""
        return (self._folder(kind, key) / MANIFEST).is_file()

    def open(self, kind: str, key: str) -> Artefact:
        """Open a finished artefact after checking its files.

        Raises:
            StoreError: If it is damaged; it is then set aside, so that running again mends it.
        """
        return self._checked(kind, key, limit=None)

    def sound(self, kind: str, key: str) -> bool:
        """Whether the artefact is finished and undamaged; a damaged one is set aside.

        Of large files only the size is checked here: those of a long sweep would take hours to
        read. They are checked in full whenever they are opened.
        """
        if not self.has(kind, key):
            return False
        try:
            self._checked(kind, key, limit=CHECKED_AT_ONCE)
        except DamagedArtefact as error:
            self.damaged.append(error.problem)
            return False
        return True

    def _checked(self, kind: str, key: str, limit: int | None) -> Artefact:
        folder = self._folder(kind, key)
        if not folder.exists():
            raise DamagedArtefact(f"stored {kind} {key[:8]} is gone", kind, key)
        problem = "manifest.json cannot be read"
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            sizes = manifest.get("sizes", {})
            bad = [
                name
                for name, sha in manifest["files"].items()
                if not _matches(folder / name, sha, sizes.get(name), limit)
            ]
            if not is_whole(manifest):
                bad = [MANIFEST]
            if not bad:
                return Artefact(folder, manifest)
            problem = f"{bad[0]} does not match its checksum"
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        except FileNotFoundError as error:
            problem = f"{Path(str(error.filename)).name} is missing"
        except OSError as error:
            # Not to be read now (permissions, a file system that is away) is not damaged: what took
            # days to compute must not be thrown away for it.
            raise StoreError(
                f"{str(error.filename or folder)!r} cannot be read: {error.strerror or error}; "
                "mend that, then run the same command again"
            ) from None
        aside = self._set_aside(folder)
        raise DamagedArtefact(
            f"stored {kind} {key[:8]} is damaged ({problem}) and was set aside as {aside}",
            kind,
            key,
        )

    def _set_aside(self, folder: Path) -> Path:
        aside = folder.with_name(f"{folder.name}.damaged-{uuid.uuid4().hex[:6]}")
        with contextlib.suppress(FileNotFoundError):  # another process did it first
            folder.rename(aside)
        return aside

    @contextlib.contextmanager
    def write(
        self, kind: str, key: str, inputs: Any, costs: dict[str, float] | None = None
    ) -> Iterator[Draft]:
        """Write an artefact; it appears under its name only when the block ends without an error.

        Raises:
            StoreError: If the disk is full or not writable.
        """
        final = self._folder(kind, key)
        # The name says who writes, so that leftovers of the dead can be told from work in progress.
        owner = f"{socket.gethostname()}@{os.getpid()}"
        temporary = self.root / TEMPORARY / f"{uuid.uuid4().hex[:8]}@{owner}"
        try:
            temporary.mkdir(parents=True)
            draft = Draft(temporary)
            yield draft
            files = {file.name: _sha256(file) for file in sorted(temporary.iterdir())}
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
            final.parent.mkdir(parents=True, exist_ok=True)
            if final.exists() and not (final / MANIFEST).is_file():
                self._set_aside(final)  # somebody deleted its manifest
            try:
                temporary.rename(final)
            except OSError:
                if not (final / MANIFEST).is_file():
                    raise
                # Another process finished the same artefact first: its content is equal.
            if lasting:
                _flush(final.parent)
        except (OSError, SafetensorError) as error:
            raise StoreError(
                f"cannot write to {str(self.root)!r}: {getattr(error, 'strerror', None) or error}; "
                "free some space or choose another folder for the results"
            ) from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def keys(self, kind: str) -> list[str]:
        """Names of everything stored under a kind, damaged things too."""
        try:
            return os.listdir(self.root / kind)
        except FileNotFoundError:
            return []

    def has_result(self, key: str) -> bool:
        """Whether there is a finished artefact of any kind with this key."""
        return any(self.root.glob(f"*/{key}/{MANIFEST}"))

    def remove(self, kind: str, key: str) -> None:
        """Remove an artefact in one go, so that nobody ever finds half of it.

        It gets a name like a draft of this process, so it is swept with those if the process dies.
        """
        owner = f"{socket.gethostname()}@{os.getpid()}"
        aside = self.root / TEMPORARY / f"{uuid.uuid4().hex[:8]}@{owner}"
        try:
            aside.parent.mkdir(parents=True, exist_ok=True)
            self._folder(kind, key).rename(aside)
        except OSError:
            return  # another process has removed it, or nothing can be written here any more
        if aside.is_file():
            aside.unlink()
        shutil.rmtree(aside, ignore_errors=True)

    def versions(self) -> dict[str, str]:
        """Versions of the libraries that this process computes with."""
        return library_versions()

    def check_writable(self) -> None:
        """Fail early, before any work, if nothing could be written.

        Raises:
            StoreError: If the folder cannot be created or written.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".probe-{uuid.uuid4().hex}"
            probe.write_bytes(b"0")
            probe.unlink()
        except OSError as error:
            raise StoreError(
                f"cannot write to {str(self.root)!r}: {error.strerror or error}; "
                "choose another folder for the results"
            ) from None

    def sweep_leftovers(self) -> None:
        """Remove drafts whose writing process is gone (killed, or the machine went down)."""
        for folder in (self.root / TEMPORARY).glob("*@*@*"):
            _, _, owner = folder.name.partition("@")
            host, _, pid = owner.rpartition("@")
            ours = host == socket.gethostname() and pid.isdecimal()
            if ours and is_gone(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)
        self.locks.sweep()

    def _folder(self, kind: str, key: str) -> Path:
        return self.root / kind / key


def manifest_checksum(manifest: dict[str, Any]) -> str:
    """Of everything in a manifest but its checksum."""
    content = {name: value for name, value in manifest.items() if name != "checksum"}
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def is_whole(manifest: dict[str, Any]) -> bool:
    """Whether nothing in a manifest has changed."""
    if not {"checksum", "sizes"} & manifest.keys():
        return True  # an earlier version wrote neither
    return manifest.get("checksum") == manifest_checksum(manifest)


def _matches(path: Path, sha: str, size: int | None, limit: int | None) -> bool:
    if size is not None and path.stat().st_size != size:
        return False
    if limit is not None and size is not None and size > limit:
        return True
    return _sha256(path) == sha


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
