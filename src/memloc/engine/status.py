"""How far a sweep or a run is, in one small file: any machine that sees the folder can ask.

The process that gives out the jobs writes the counter to the file every few seconds, and at the
end. A file that still says `working` although nobody has written to it for a while is of a process
that was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

from memloc.engine.job import Job
from memloc.engine.progress import STATES, Progress, View
from memloc.errors import MALFORMED, MemlocError

NAME = "status.json"
FOLDER = "status"
WRITE_EVERY = 3.0
"""Seconds between two versions of the file."""
SILENCE = 60.0
"""Seconds without a new version after which its writer counts as gone."""
KEPT = 20
"""Running jobs, and reasons of failures, in the file."""
PATTERNS = (NAME, f"*/{NAME}", f"sweeps/*/{NAME}", f"{FOLDER}/*.json")


def status_files(runs: Path, name: str, what: str) -> list[StatusFile]:
    """The file of a single experiment; none if it has no name."""
    return [StatusFile(runs / FOLDER / f"{name}.json", name, what)] if name else []


class StatusFile(View):
    """Keeps a file up to date.

    Args:
        path: Of the file.
        name: Of the sweep or run.
        what: `sweep`, `run`, …: the command that does it.
    """

    def __init__(self, path: Path, name: str, what: str) -> None:
        self.path = path
        self.about = {"name": name, "what": what, "host": socket.gethostname(), "pid": os.getpid()}
        self.last = 0.0

    def begin(self, progress: Progress) -> None:
        """It is there from the beginning."""
        self._write(progress, working=True)

    def tick(self, progress: Progress) -> None:
        """A new version now and then."""
        if time.monotonic() - self.last >= WRITE_EVERY:
            self._write(progress, working=True)

    def end(self, progress: Progress) -> None:
        """The last version."""
        self._write(progress, working=False)

    def _write(self, progress: Progress, working: bool) -> None:
        self.last = time.monotonic()
        text = json.dumps(
            {**self.about, "working": working, "time": time.time(), **snapshot(progress)},
            ensure_ascii=False,
        )
        draft = self.path.with_name(f".{self.path.name}-{uuid.uuid4().hex[:6]}")
        # A file that cannot be written (the disk is full) must not stop the work.
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                draft.write_text(text, encoding="utf-8")
                os.replace(draft, self.path)
            finally:
                draft.unlink(missing_ok=True)


def snapshot(progress: Progress) -> dict[str, Any]:
    """The counter, as JSON data."""
    with progress.lock:
        left = progress.left()
        return {
            "elapsed": progress.elapsed,
            "kinds": {kind: _counts(of_kind) for kind, of_kind in progress.counts.items()},
            "total": _counts(progress.sums),
            "running": [
                {
                    "title": one.job.title,
                    "fraction": one.fraction,
                    "seconds": progress.now() - one.since,
                }
                for one in list(progress.running.values())[:KEPT]
            ],
            "failures": [asdict(alike) for alike in list(progress.failures.values())[-KEPT:]],
            "workers": progress.workers,
            "seconds_left": left.seconds,
            "rough": left.rough,
        }


def _counts(counts: Any) -> dict[str, int]:
    return {state.replace(" ", "_"): counts[state] for state in STATES}


def find_status(folder: Path) -> list[Path]:
    """The files of sweeps and runs at or below a folder, in the order of their last change.

    Raises:
        MemlocError: If there are none.
    """
    if not folder.is_dir():
        raise MemlocError(
            f"there is no folder {str(folder)!r}",
            remedy="give the folder with the runs, or runs/sweeps/NAME",
        )
    found = [path for pattern in PATTERNS for path in folder.glob(pattern)]
    if not found:
        raise MemlocError(
            f"there is no sweep and no run in {str(folder)!r}",
            remedy="give the folder with the runs, or runs/sweeps/NAME "
            "(one that has just begun is there once it is planned)",
        )
    return sorted(found, key=lambda path: path.stat().st_mtime)


def read_status(path: Path) -> dict[str, Any]:
    """What a file says; nothing runs if its writer is gone.

    Raises:
        MemlocError: If it cannot be read.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found["file"] = str(path)
        if found["working"] and _is_gone(found):
            found["working"] = False
            for counts in (found["total"], *found["kinds"].values()):
                counts["waiting"] += counts["running"]
                counts["running"] = 0
            found["running"], found["workers"] = [], ""
        return found
    except (OSError, *MALFORMED) as error:
        raise MemlocError(
            f"{str(path)!r} cannot be read ({error})", remedy="start again to write it"
        ) from None


def _is_gone(found: dict[str, Any]) -> bool:
    """Whether the process that wrote a file has died, as far as can be known."""
    if abs(time.time() - found["time"]) > SILENCE:
        return True
    if found["host"] != socket.gethostname():
        return False
    try:
        os.kill(found["pid"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it is there, and somebody else's
    return False


class Journal(View):
    """Adds a line to a file for everything that happens, for looking back.

    Args:
        path: Gets one JSON object per line; several processes may write to the same file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def event(self, progress: Progress, what: str, job: Job | None, text: str) -> None:
        """A line."""
        about = {} if job is None else {"kind": job.kind, "key": job.key, "title": job.title}
        line = {"time": round(time.time(), 3), "pid": os.getpid(), "event": what, **about}
        if text:
            line["text"] = text
        with contextlib.suppress(OSError), self.path.open("ab", buffering=0) as stream:
            stream.write(f"{json.dumps(line, ensure_ascii=False)}\n".encode())
