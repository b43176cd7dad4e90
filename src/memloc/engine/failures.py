"""Failed jobs on disk: the reason in one sentence, and the details for whoever looks into it.

Records are ``<runs>/failures/<kind>-<key>.json`` with a log of the same name where the failure was
not foreseen. A job that is computed after all takes its record away.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
import traceback
from pathlib import Path
from typing import Any

from memloc.engine.job import Job
from memloc.engine.store.store import Store


def log_of(store: Store, job: Job) -> Path:
    """Where the details of a failure go."""
    return store.root.parent / "failures" / f"{job.kind}-{job.key}.log"


def record(store: Store, job: Job, words: str, error: BaseException | None, launch: str) -> None:
    """Keep why a job failed; best effort, as the disk may be what failed.

    Args:
        store: Its neighbour folder gets the record.
        job: What failed.
        words: The reason.
        error: If it was not foreseen.
        launch: Which start of which command this was, see `Executor`.
    """
    log = log_of(store, job)
    about = {
        "kind": job.kind,
        "key": job.key,
        "title": job.title,
        "reason": words,
        "log": str(log) if error else None,
        "host": socket.gethostname(),
        "time": time.time(),
        "launch": launch,
    }
    with contextlib.suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
        if error is not None:
            log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        draft = log.with_suffix(".tmp")
        draft.write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")
        draft.rename(log.with_suffix(".json"))


def forget(store: Store, job: Job) -> None:
    """It was computed after all."""
    for suffix in (".json", ".log"):
        with contextlib.suppress(OSError):
            log_of(store, job).with_suffix(suffix).unlink(missing_ok=True)


def failure_of(store: Store, job: Job) -> dict[str, Any] | None:
    """Why a job failed when it was last tried, if it did."""
    try:
        found = json.loads(log_of(store, job).with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
