"""Looking after a store: what is in it, is it sound, what can go, and giving results to others."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tarfile
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from memloc.engine.job import read_plan
from memloc.engine.store.store import ASIDE, DamagedArtefact, Store, sha256_of
from memloc.errors import MALFORMED, StoreError, cannot_write
from memloc.tables import ARTEFACTS, CHECKSUMS
from memloc.text import parse_json

WEIGHT_KINDS = ("train", "control", "states")
"""Artefacts that are large: trained weights, and states of layers."""
RESUME = "resume"
"""States of trainings that are not finished; their key begins with that of the training."""
SHARED = ("model", "speed")
"""Tiny facts on models and machines, which belong to no result in particular."""
YOUNG = 3600.0
"""Seconds in which a run that is going on may not have said yet that it needs something."""
OLD_DRAFT = 24 * 3600.0
"""Seconds after which a draft of another machine is given up; writing one takes minutes."""
NEEDED = ("settings.json", "summary.json", ARTEFACTS)
"""What every result has."""
DATA = (".json", ".parquet", ".safetensors")
"""Endings of files that hold only data."""
KEY = re.compile(r"[0-9a-f]{32}")

Artefacts = set[tuple[str, str]]
"""Kinds and keys."""


def inventory(runs: Path) -> pd.DataFrame:
    """All artefacts of a folder of results, with those that were set aside as damaged.

    Returns:
        One row each: kind, key, bytes, written (a time stamp), damaged, path.

    Raises:
        StoreError: If there are none.
    """
    rows = []
    for path in sorted((runs / "store").glob("[!.]*/*/")):
        with contextlib.suppress(FileNotFoundError):  # somebody is removing it
            if KEY.match(path.name):
                rows.append(
                    {
                        "kind": path.parent.name,
                        "key": path.name,
                        "bytes": size_of(path),
                        "written": path.stat().st_mtime,
                        "damaged": ASIDE in path.name,
                        "path": path,
                    }
                )
    if not rows:
        raise StoreError(
            f"there is nothing in the store of {str(runs)!r}",
            remedy="give the folder that `memloc run` wrote to",
        )
    return pd.DataFrame(rows)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_dir())


def verify(store: Store, found: pd.DataFrame) -> Iterator[str | None]:
    """Read artefacts in full, one after the other; damaged ones are set aside.

    Yields:
        What is wrong with each; None if nothing is.
    """
    for kind, key in zip(found["kind"], found["key"], strict=True):
        try:
            store.open(kind, key)
            yield None
        except DamagedArtefact as damage:
            yield damage.problem


def find_garbage(runs: Path, unreferenced: bool) -> dict[str, list[Path]]:
    """What nothing needs any more: files and folders, by what they are.

    Rubbish goes in any case. Artefacts that no result refers to go only if somebody asks for it: an
    interrupted run is not a result yet, and may go on tomorrow.

    Raises:
        StoreError: If artefacts of no result are wanted, but somebody is computing, or it is not
            known what a result or a sweep needs.
    """
    store, found = Store(runs / "store"), inventory(runs)
    job, damaged, state = found["key"].str[:32], found["damaged"], found["kind"] == RESUME
    finished = state & ~damaged & job.isin(found["key"][~state])
    garbage = {
        "drafts of processes that are gone": store.dead_drafts(OLD_DRAFT),
        "artefacts set aside as damaged": list(found["path"][damaged]),
        "states of finished trainings": list(found["path"][finished]),
    }
    if unreferenced:
        if store.locks.holders():
            raise StoreError("somebody is computing (there are locks in the store); wait for that")
        needed = found["kind"].isin(SHARED) | job.isin(key for _, key in referenced(runs))
        old = found["written"] < time.time() - YOUNG
        others = old & ~damaged & ~finished & ~needed
        garbage["artefacts that no result refers to"] = list(found["path"][others])
    return garbage


def referenced(runs: Path) -> Artefacts:
    """What the results below a folder were made from, and what its sweeps compute or need.

    Raises:
        StoreError: If that is not known.
    """
    needed: Artefacts = set()
    for path in runs.rglob("settings.json"):
        if "store" not in path.relative_to(runs).parts:
            needed |= references(path.parent)
    for path in runs.glob("sweeps/*/plan*.json.gz"):
        for job in read_plan(path):
            needed |= {job.artefact, *job.needs.values()}
    return needed


def references(folder: Path) -> Artefacts:
    """What a result was made from.

    Raises:
        StoreError: If that is not known.
    """
    try:
        pairs = json.loads((folder / ARTEFACTS).read_text(encoding="utf-8"))
        return {(str(kind), str(key)) for kind, key in pairs}
    except (OSError, *MALFORMED) as error:
        raise StoreError(
            f"{str(folder / ARTEFACTS)!r}, which lists what is needed, cannot be read "
            f"({_reason(error)})",
            remedy="run the same command again, which writes it anew, or move its folder away",
        ) from None


def _reason(error: Exception) -> str:
    return str(getattr(error, "problem", None) or getattr(error, "strerror", None) or error)


def export_results(
    folders: Iterable[Path], runs: Path, file: Path, *, without_weights: bool = False
) -> dict[str, int]:
    """Pack results with all artefacts they refer to into a `.tar.gz` file.

    The store is in `runs`, unless a result has its own (as those of `memloc localise` do). Trained
    weights and states of layers are large, and may be left out.

    Returns:
        Bytes, and numbers of results, artefacts, and artefacts left out.

    Raises:
        StoreError: If something is missing or damaged; then there is no file.
    """
    packed: dict[str, Path] = {}
    left_out: Artefacts = set()
    for folder in folders:
        if not (folder / "settings.json").is_file():
            raise StoreError(
                f"{str(folder)!r} is not a folder of results; give one that `memloc run` wrote, "
                "such as runs/questions-minilm-1a446c46"
            )
        name = folder.resolve().name
        if f"results/{name}" in packed:
            raise StoreError(
                f"two of the results are called {name!r}, and one would replace the other",
                remedy="rename a folder, or export them one by one",
            )
        packed[f"results/{name}"] = folder
        store = Store(folder / "store" if (folder / "store").is_dir() else runs / "store")
        for kind, key in references(folder):
            if without_weights and kind in WEIGHT_KINDS:
                left_out.add((kind, key))
            else:
                packed[f"store/{kind}/{key}"] = store.open(kind, key).path
    draft = file.with_name(f".{file.name}")
    try:
        # The fastest level: tables are compressed already, and weights hardly can be.
        with tarfile.open(draft, "w:gz", compresslevel=1) as tar:
            for name, folder in packed.items():
                for path in sorted(folder.iterdir()):
                    if path.suffix in DATA:  # a page or a picture can be made anew
                        tar.add(path, f"{name}/{path.name}", filter=_without_owner)
        draft.replace(file)
    except OSError as error:
        raise cannot_write(file, error) from None
    finally:
        draft.unlink(missing_ok=True)
    results = sum(name.startswith("results/") for name in packed)
    return {
        "bytes": file.stat().st_size,
        "results": results,
        "artefacts": len(packed) - results,
        "left_out": len(left_out),
    }


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(uid=0, gid=0, uname="", gname="", deep=False)


def import_archive(archive: Path, runs: Path) -> dict[str, Any]:
    """Check an archive and bring what it holds into a folder of results and its store.

    Returns:
        `results` that are new, `kept_results` that were there already, numbers of new `artefacts`,
        of `kept_artefacts`, and of weights and states that were `left_out`.

    Raises:
        StoreError: If anything is wrong; then nothing is imported.
    """
    store = Store(runs / "store")
    store.check_writable()
    try:
        with store.scratch() as draft:
            _unpack(archive, draft)
            sent = Store(draft / "store")
            artefacts = {(path.parent.name, path.name) for path in sent.root.glob("[!.]*/*/")}
            for kind, key in artefacts:
                sent.open(kind, key)
            folders = sorted(draft.glob("results/*/"))
            if not folders:
                raise StoreError("it holds no results")
            needed = {pair for folder in folders for pair in _read_result(folder)}
            absent = {pair for pair in needed - artefacts if not store.has(*pair)}
            for kind, key in absent:
                if kind not in WEIGHT_KINDS:
                    raise StoreError(f"{kind} {key[:12]}, which a result refers to, is not in it")
            moved = [store.place(sent.folder(kind, key), kind, key) for kind, key in artefacts]
            # Results come last, so that nobody sees one without its artefacts.
            new = [folder for folder in folders if not (runs / folder.name).exists()]
            for folder in new:
                shutil.move(folder, runs / folder.name)  # the store may be on another disk
    except (tarfile.TarError, OSError, EOFError, zlib.error, StoreError) as error:
        raise StoreError(
            f"{str(archive)!r} was not imported: {_reason(error)}",
            remedy="ask for a new archive, made with `memloc store export`",
        ) from None
    return {
        "results": [str(runs / folder.name) for folder in new],
        "kept_results": [str(runs / folder.name) for folder in folders if folder not in new],
        "artefacts": sum(moved),
        "kept_artefacts": len(moved) - sum(moved),
        "left_out": len(absent),
    }


def _unpack(archive: Path, to: Path) -> None:
    def only_data(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        data = member.isreg() and member.name.endswith(DATA)
        return tarfile.data_filter(member, path) if data else None

    with tarfile.open(archive) as tar:
        tar.extractall(to, filter=only_data)
        while tar.fileobj and tar.fileobj.read(2**20):
            pass  # to the end, where gzip compares its checksum


def _read_result(folder: Path) -> Artefacts:
    """What a result was made from, once all of its files have been read.

    Raises:
        StoreError: If one is missing or damaged.
    """
    for path in sorted({*folder.iterdir(), *(folder / name for name in NEEDED)}):
        try:
            if path.suffix == ".json":
                found = parse_json(path.read_bytes())
                if path.name != ARTEFACTS and not isinstance(found, dict):
                    raise ValueError("it is not a JSON object")
            else:
                pq.read_schema(path)
        except (OSError, ValueError, RecursionError, pa.ArrowException) as error:
            raise StoreError(
                f"{path.name} of the result {folder.name!r} cannot be read ({_reason(error)})"
            ) from None
    changed = changed_file(folder)
    if changed is not None:
        raise StoreError(f"{changed.name} of the result {folder.name!r} differs from its checksum")
    return references(folder)


def changed_file(folder: Path) -> Path | None:
    """The first file of a result that is not what was written; of older results, nobody knows.

    Raises:
        ValueError: If the checksums cannot be read.
    """
    if not (folder / CHECKSUMS).is_file():
        return None
    checksums = parse_json((folder / CHECKSUMS).read_bytes())
    if not isinstance(checksums, dict):
        raise ValueError("it is not a JSON object")
    for path in sorted(folder.iterdir()):
        if path.name in checksums and sha256_of(path) != checksums[path.name]:
            return path
    return None
