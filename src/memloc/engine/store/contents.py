"""Is an artefact what it says it is? Manifest, names, checksums, and whether its files can be read.

Nothing here runs anything that a file brings along: JSON, Parquet and safetensors hold only data.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from safetensors import SafetensorError, safe_open

from memloc.engine.store.store import MANIFEST, is_whole, key_of
from memloc.errors import StoreError

WEIGHT_KINDS = ("train", "control", "states")
"""Artefacts that are large: trained weights, and states of layers."""
KINDS = ("data", "model", *WEIGHT_KINDS, "window", "localise", "explain", "split", "speed")
"""All that results are made of."""
RESUME = "resume"
"""States of trainings that are not finished; their key begins with that of the training."""
KIND = re.compile(r"[a-z][a-z_]{0,30}")
KEY = re.compile(r"[0-9a-f]{32}")
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}\.(json|parquet|safetensors)")
LARGEST_JSON = 64 * 2**20
LARGEST_TABLE = 8 * 2**30
"""Bytes in memory; a small file can unfold to any size."""
BATCH = 65_536


def manifest_problem(folder: Path, kind: str, key: str) -> str | None:
    """What is wrong with an artefact, without looking into its files; None if nothing is."""
    manifest = read_manifest(folder)
    if manifest is None:
        return f"{MANIFEST} cannot be read"
    if not is_whole(manifest):
        return f"{MANIFEST} does not match its checksum"
    if (manifest.get("kind"), manifest.get("key")) != (kind, key):
        return f"{MANIFEST} names another artefact"
    # States of unfinished trainings are named after the training, not after their content.
    if kind != RESUME and key_of(kind, manifest.get("inputs")) != key:
        return "its key does not follow from its inputs"
    there = {path.name for path in folder.iterdir()} - {MANIFEST}
    listed = manifest["files"].keys()
    if absent := sorted(listed - there):
        return f"{absent[0]} is missing"
    if extra := sorted(there - listed):
        return f"{extra[0]!r} does not belong to it"
    return None


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest if it has the form of one, otherwise None."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        try:
            text = (folder / MANIFEST).read_text(encoding="utf-8")
        except PermissionError as error:
            raise _not_ours(folder / MANIFEST, error) from None
        manifest = json.loads(text)
        if (
            isinstance(manifest, dict)
            and isinstance(manifest.get("inputs"), dict)
            and _maps_to_text(manifest.get("files"))
            and isinstance(costs := manifest.get("costs"), dict)
            and isinstance(costs.get("seconds", 0), (int, float))
        ):
            return manifest
    return None


def _not_ours(path: Path, error: OSError) -> StoreError:
    """What another user keeps to himself is not damaged."""
    return StoreError(f"{str(path)!r} cannot be read: {error.strerror}; ask its owner to allow it")


def _maps_to_text(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


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
    problem = manifest_problem(folder, kind, key)
    if problem is not None:
        return problem
    manifest = read_manifest(folder) or {"files": {}}
    for name, checksum in manifest["files"].items():
        path = folder / name
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


def file_problem(path: Path) -> str | None:
    """Why a file of an artefact or a result cannot be used, by its suffix; None if it can."""
    try:
        if path.suffix == ".json":
            return _json_problem(path)
        if path.suffix == ".parquet":
            return _table_problem(path)
        with safe_open(path, framework="numpy") as file:  # reads and checks the header
            file.keys()
    except (OSError, ValueError, RecursionError, SafetensorError, pa.ArrowException) as error:
        return f"it cannot be read: {first_line(error)}"
    return None


def _json_problem(path: Path) -> str | None:
    if path.stat().st_size > LARGEST_JSON:
        return f"it has more than {LARGEST_JSON // 2**20} MB"
    json.loads(path.read_bytes())
    return None


def _table_problem(path: Path) -> str | None:
    """Read all of a table, a part at a time, and add up what it takes in memory."""
    schema = pq.read_schema(path)
    for field in schema:
        if not _plain(field.type):
            return f"its column {field.name!r} is of the type {field.type}"
    texts = [field.name for field in schema if _is_text(field.type)]
    size = 0
    # As dictionaries: a text that a small file repeats a billion times is in memory once.
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        if file.metadata.num_rows * max(1, len(schema)) > LARGEST_TABLE:
            return f"it has {file.metadata.num_rows:,} rows"
        for batch in file.iter_batches(BATCH):
            size += sum(_unfolded(column) for column in batch.columns)
            if size > LARGEST_TABLE:
                return f"it unfolds to more than {LARGEST_TABLE // 2**30} GB"
    return None


def _plain(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_null(kind)
        or _is_text(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _unfolded(column: pa.Array) -> int:
    """Bytes of a column when every value stands for itself."""
    if not isinstance(column, pa.DictionaryArray):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary)
    return int(pc.sum(pc.take(lengths, column.indices)).as_py() or 0) + 8 * len(column)


def first_line(error: BaseException) -> str:
    """What a library complains of, short enough for a sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")[:150]
