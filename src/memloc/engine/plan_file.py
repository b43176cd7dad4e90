"""A plan on disk: all jobs of a sweep, for workers elsewhere and for whoever asks how far it is."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memloc.engine.job import Job, vars_of
from memloc.errors import MALFORMED, StoreError

NAME = "plan.json.gz"


def write_plan(folder: Path, jobs: Sequence[Job], about: dict[str, Any] | None = None) -> Path:
    """Write jobs, with their keys, to ``plan.json.gz`` in a folder; it appears at once.

    Args:
        folder: Is made if it is not there.
        jobs: All of them. What they say in `where` is mostly the same, and kept once.
        about: JSON data to go with them.

    Raises:
        StoreError: If it cannot be written.
    """
    wheres: dict[str, int] = {}
    numbers: dict[int, int] = {}
    rows = []
    for job in jobs:
        number = numbers.get(id(job.where), -1)  # jobs of a plan share them
        if number < 0:
            number = wheres.setdefault(json.dumps(job.where, sort_keys=True), len(wheres))
            numbers[id(job.where)] = number
        rows.append({**vars_of(job), "where": number, "key": job.key})
    content = {"about": about or {}, "where": [json.loads(text) for text in wheres], "jobs": rows}
    path = folder / NAME
    draft = folder / f".{NAME}-{uuid.uuid4().hex[:6]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _keep_other(path, content)
        with gzip.open(draft, "wt", encoding="utf-8", compresslevel=1) as stream:
            stream.write(json.dumps(content))  # many times faster than json.dump
        os.replace(draft, path)
    except OSError as error:
        raise StoreError(
            f"cannot write {str(path)!r}: {error.strerror or error}; free some space or choose "
            "another folder for the results"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
    return path


def _keep_other(path: Path, content: dict[str, Any]) -> None:
    """A plan of other jobs under the same name is kept: what they made may still be wanted.

    The clean-up of the store (`memloc store gc`) reads all plans, and `memloc status` the newest.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            before = {row["key"] for row in json.load(stream)["jobs"]}
    except (OSError, EOFError, zlib.error, *MALFORMED):
        return  # there is none, or it is of no use
    if before - {row["key"] for row in content["jobs"]}:
        name = hashlib.sha256("".join(sorted(before)).encode()).hexdigest()[:8]
        os.replace(path, path.with_name(f"plan-{name}.json.gz"))


def read_plan(folder: Path, name: str = NAME) -> tuple[list[Job], dict[str, Any]]:
    """The jobs, and what was written about them.

    Args:
        folder: Of the sweep.
        name: Of the file; by default that of the newest plan.

    Raises:
        StoreError: If it cannot be read.
    """
    path = folder / name
    try:
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            content = json.load(stream)
        wheres = content["where"]
        jobs = []
        for row in content["jobs"]:
            del row["key"]
            row["where"] = wheres[row["where"]]
            row["needs"] = {role: (kind, key) for role, (kind, key) in row["needs"].items()}
            jobs.append(Job(**row))
        return jobs, content["about"]
    except (OSError, EOFError, zlib.error, *MALFORMED) as error:
        raise StoreError(
            f"the plan {str(path)!r} cannot be read ({error}); start the sweep again to write it"
        ) from None
