"""Results with all they were made from in one file, for a colleague.

An archive has `results/<folder>/<file>` and `store/<kind>/<key>/<file>` and nothing else: regular
files of JSON, Parquet and safetensors, which hold only data. Import believes nothing: it unpacks to
a draft, checks every name, key and checksum, and only then moves anything to its place. Nothing is
ever executed.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import socket
import tarfile
import unicodedata
import uuid
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from memloc.engine.store.garbage import read_references
from memloc.engine.store.inventory import (
    FILE,
    KEY,
    KINDS,
    WEIGHT_KINDS,
    Artefact,
    artefact_problem,
    read_manifest,
)
from memloc.engine.store.store import TEMPORARY, Store
from memloc.errors import StoreError
from memloc.tables import ARTEFACTS

MAX_SIZE = 20 * 2**30
"""Bytes that an archive may unfold to if the user does not say otherwise."""
MOST_FILES = 500_000
NEEDED = ("settings.json", "summary.json", ARTEFACTS)
"""What every result has."""
RESULT_NAME = re.compile(r"\w[\w .,;+=@()&'%!~-]{0,139}(?<![ .])")
RESERVED = ("store", "sweeps")
"""Folders beside the results, with a meaning of their own."""


class BadArchive(StoreError):
    """An archive is damaged, or not what `memloc store export` writes."""


@dataclass(frozen=True)
class Exported:
    """What an archive holds; `left_out` counts the weights and states that it does not."""

    file: Path
    size: int
    results: int
    artefacts: int
    left_out: int


def export_results(
    folders: Iterable[Path], runs: Path, file: Path, *, without_weights: bool = False
) -> Exported:
    """Pack results with all artefacts they refer to; the same content gives the same bytes.

    Args:
        folders: The results.
        runs: Where the store is, unless a result has its own (as those of `memloc localise` do).
        file: Ends in `.tar` or `.tar.gz`.
        without_weights: Leave out trained weights and states of layers, which are large.

    Raises:
        StoreError: If something is missing or damaged; then there is no file.
    """
    if not file.name.endswith((".tar", ".tar.gz")):
        raise StoreError(f"{str(file)!r} is no name for an archive; end it with .tar.gz or .tar")
    files: dict[str, Path] = {}
    artefacts: dict[Artefact, Path] = {}
    left_out: set[Artefact] = set()
    names: set[str] = set()
    for folder in folders:
        name = folder.resolve().name
        if name.casefold() in names:
            raise StoreError(f"two results are called {name!r}; rename one of them")
        names.add(name.casefold())
        files |= {f"results/{name}/{path.name}": path for path in _result_files(folder, name)}
        store = Store(folder / "store" if (folder / "store").is_dir() else runs / "store")
        for kind, key in read_references(folder):
            if without_weights and kind in WEIGHT_KINDS:
                left_out.add((kind, key))
            elif (kind, key) not in artefacts:
                artefacts[kind, key] = _sound(store, folder, kind, key)
    if not names:
        raise StoreError("there is nothing to export; name at least one folder of results")
    for (kind, key), path in artefacts.items():
        files |= {f"store/{kind}/{key}/{each.name}": each for each in path.iterdir()}
    _write(file, files)
    return Exported(file, file.stat().st_size, len(names), len(artefacts), len(left_out))


def _result_files(folder: Path, name: str) -> list[Path]:
    """What belongs to a result; a page and pictures can be made anew."""
    if not all((folder / each).is_file() for each in NEEDED[:2]):
        raise StoreError(
            f"{str(folder)!r} is not a folder of results; give one that `memloc run` wrote, such "
            "as runs/questions-minilm-da4b207c"
        )
    if not _is_result_name(name):
        raise StoreError(
            f"the folder {name!r} cannot be exported: a name may have letters, digits, spaces and "
            "simple punctuation; rename it"
        )
    tables = [path for path in sorted(folder.glob("*.parquet")) if FILE.fullmatch(path.name)]
    return [*(folder / each for each in NEEDED), *tables]


def _is_result_name(name: str) -> bool:
    return (
        name.casefold() not in RESERVED
        and RESULT_NAME.fullmatch(name) is not None
        and unicodedata.normalize("NFC", name) == name
    )


def _sound(store: Store, folder: Path, kind: str, key: str) -> Path:
    path = store.root / kind / key
    problem = None if path.is_dir() else f"it is not in {str(store.root)!r}"
    problem = problem or artefact_problem(path, kind, key)
    if problem:
        remedy = "run the same command again to compute it"
        if kind in WEIGHT_KINDS:
            remedy += ", or leave out the weights"
        raise StoreError(
            f"{kind} {key[:12]}, of which {str(folder)!r} was made, cannot be exported ({problem})",
            remedy=remedy,
        )
    return path


def _write(file: Path, files: dict[str, Path]) -> None:
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex[:6]}")
    try:
        with draft.open("xb") as stream:
            if file.name.endswith(".gz"):
                # The fastest level: tables are compressed already, and weights hardly can be.
                with gzip.GzipFile("", "wb", 1, stream, mtime=0) as packed:
                    _pack(files, cast(BinaryIO, packed))
            else:
                _pack(files, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, file)
    except (OSError, ValueError) as error:
        raise StoreError(
            f"cannot write {str(file)!r}: {getattr(error, 'strerror', None) or error}",
            remedy="free some space or choose another place",
        ) from None
    finally:
        draft.unlink(missing_ok=True)


def _pack(files: dict[str, Path], stream: BinaryIO) -> None:
    """The same bytes for the same content: sorted, and neither times nor owners."""
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, path in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = path.stat().st_size
            with path.open("rb") as content:
                tar.addfile(member, content)


@dataclass(frozen=True)
class Imported:
    """What an import brought.

    Attributes:
        results: Folders that are new.
        kept_results: Folders that were there already and stay as they were.
        artefacts: Number of new ones.
        kept_artefacts: Number of those that were there already.
        left_out: Number of weights and states that the results refer to but nobody sent.
    """

    results: list[Path]
    kept_results: list[Path]
    artefacts: int
    kept_artefacts: int
    left_out: int


def import_archive(archive: Path, runs: Path, max_size: int = MAX_SIZE) -> Imported:
    """Check an archive and bring what it holds into a folder of results and its store.

    Args:
        archive: From `export_results`.
        runs: Folder for the results; the store is in it.
        max_size: Bytes that it may unfold to.

    Raises:
        StoreError: If anything is wrong; then nothing is imported.
    """
    if not archive.is_file():
        raise StoreError(f"there is no file {str(archive)!r}; check the path")
    store = Store(runs / "store")
    store.check_writable()
    try:
        with _draft(store) as draft:
            _unpack(archive, draft, max_size)
            artefacts = _check_artefacts(draft / "store")
            results = _check_results(draft / "results", set(artefacts), store)
            return _place(runs, store, artefacts, results)
    except BadArchive as error:
        remedy = error.remedy or "ask for a new one, made with `memloc store export`"
        words = f"{str(archive)!r} was not imported: {error.problem}"
        raise StoreError(words, remedy=remedy) from None
    except OSError as error:
        raise StoreError(
            f"{str(archive)!r} was not imported: {error.strerror or error}",
            remedy="free some space or choose another folder for the results",
        ) from None


@contextmanager
def _draft(store: Store) -> Iterator[Path]:
    """A folder beside the artefacts, named so that it is swept if this process is killed."""
    owner = f"{socket.gethostname()}@{os.getpid()}"
    draft = store.root / TEMPORARY / f"{uuid.uuid4().hex[:8]}@{owner}"
    draft.mkdir(parents=True)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _unpack(archive: Path, to: Path, limit: int) -> None:
    """Write the files of an archive below an empty folder, under `store` and `results`.

    Raises:
        BadArchive: If anything is wrong; what was written until then is left to the caller.
    """
    seen: set[str] = set()
    total = 0

    def check(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
        nonlocal total
        shown = ascii(member.name[:100])
        if member.type != tarfile.REGTYPE:
            raise BadArchive(f"{shown} is not a regular file")
        if not _is_place(member.name):
            raise BadArchive(f"{shown} is not the name of a file of a store or of results")
        if member.name.casefold() in seen:
            raise BadArchive(f"{shown} is in it twice")
        seen.add(member.name.casefold())
        total += member.size
        if len(seen) > MOST_FILES:
            raise BadArchive(f"it has more than {MOST_FILES:,} files")
        if member.size < 0 or total > limit:
            raise BadArchive(
                f"its files have more than {limit / 2**30:.3g} GB together",
                remedy="if you trust it, allow a larger size",
            )
        return tarfile.data_filter(member, path)

    try:
        with tarfile.open(archive) as tar:
            tar.extractall(to, filter=check)
            while tar.fileobj and tar.fileobj.read(2**20):
                pass  # to the end, where gzip compares its checksum
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError):
        raise BadArchive("it is damaged, cut off, or no archive") from None
    if not seen:
        raise BadArchive("it is empty")


def _is_place(name: str) -> bool:
    """Whether a name in an archive is exactly one of the two forms that there are."""
    match name.split("/"):
        case ["store", kind, key, file]:
            return kind in KINDS and bool(KEY.fullmatch(key) and FILE.fullmatch(file))
        case ["results", folder, file]:
            is_data = FILE.fullmatch(file) is not None and not file.endswith(".safetensors")
            return is_data and _is_result_name(folder)
    return False


def _check_artefacts(root: Path) -> dict[Artefact, Path]:
    """Every artefact is what it says it is.

    Raises:
        BadArchive: If one is not.
    """
    found = {(path.parent.name, path.name): path for path in sorted(root.glob("*/*"))}
    for (kind, key), path in found.items():
        problem = artefact_problem(path, kind, key)
        if problem is None and kind == "data":
            problem = _data_problem(path)
        if problem:
            raise BadArchive(f"{kind} {key[:12]} in it is damaged or forged ({problem})")
    return found


def _data_problem(folder: Path) -> str | None:
    """Data are named after their content, so that can be checked too."""
    import pandas as pd

    from memloc.engine.job import table_hash

    inputs = (read_manifest(folder) or {"inputs": {}})["inputs"]
    for name in ("train", "validation"):
        path = folder / f"{name}.parquet"
        if not path.is_file():
            return f"{path.name} is missing"
        if table_hash(pd.read_parquet(path)) != inputs.get(name):
            return f"{path.name} has another content than its name says"
    return None


def _check_results(root: Path, sent: set[Artefact], store: Store) -> dict[Path, set[Artefact]]:
    """Every result is complete; returns what was left out, by result.

    Raises:
        BadArchive: If one is not.
    """
    left_out: dict[Path, set[Artefact]] = {}
    for folder in sorted(root.glob("*")):
        name = ascii(folder.name)
        for each in NEEDED:
            if not (folder / each).is_file():
                raise BadArchive(f"the result {name} in it has no {each}")
        for path in sorted(folder.iterdir()):
            if not _is_readable(path):
                raise BadArchive(f"the result {name} in it is damaged ({path.name})")
        try:
            references = set(read_references(folder))
        except StoreError:
            raise BadArchive(f"{ARTEFACTS} of the result {name} is no list of artefacts") from None
        absent = {each for each in references - sent if not store.has(*each)}
        for kind, key in sorted(absent):
            if kind not in WEIGHT_KINDS:
                words = f"{kind} {key[:12]}" if kind in KINDS else "something unknown"
                raise BadArchive(f"the result {name} refers to {words}, which is not in it")
        left_out[folder] = absent
    if not left_out:
        raise BadArchive("it holds no results")
    return left_out


def _is_readable(path: Path) -> bool:
    try:
        if path.suffix == ".json":
            json.loads(path.read_bytes())
        else:
            pq.read_schema(path)
    except (ValueError, RecursionError, pa.ArrowException):
        return False
    return True


def _place(
    runs: Path, store: Store, artefacts: dict[Artefact, Path], results: dict[Path, set[Artefact]]
) -> Imported:
    """Move what is new; results come last, so that nobody sees one without its artefacts."""
    new, kept = [], []
    moved = 0
    for (kind, key), path in artefacts.items():
        final = store.root / kind / key
        final.parent.mkdir(exist_ok=True)
        if not store.has(kind, key):
            if final.exists():
                store._set_aside(final)  # somebody deleted its manifest
            path.rename(final)
            moved += 1
    for folder in results:
        final = runs / folder.name
        if final.exists():
            kept.append(final)
        else:
            shutil.move(folder, final)  # the store may be on another disk
            new.append(final)
    return Imported(new, kept, moved, len(artefacts) - moved, len(set().union(*results.values())))
