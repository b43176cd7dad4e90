"""Where progress is told: lines in a log, the file for `memloc status`, a tracker."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import json
import os
import re
import socket
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from memloc.engine.job import Job
from memloc.engine.progress import (
    STATES,
    Progress,
    View,
    in_order,
    kind_in_words,
    summary,
    time_left,
)
from memloc.engine.store.locks import Locks, is_gone
from memloc.engine.store.store import Store
from memloc.errors import MALFORMED, MemlocError
from memloc.text import clock, counted, one_line, write_whole

SHORTEST, LONGEST = 15.0, 600.0
"""Seconds between two lines in a log: at first, and after hours."""
STATUS = "status.json"
WRITE_EVERY = 3.0
"""Seconds between two versions of the status file."""
SILENCE = 60.0
"""Seconds without a new version after which its writer counts as gone."""
SEND_EVERY = 5.0
"""Seconds between two messages to a tracker."""


class LogLines(View):
    """Lines with clock time and elapsed time, where there is no terminal.

    Args:
        stream: By default standard error.
        jobs: Whether every job that begins has a line, as in the logs of workers.
    """

    def __init__(self, stream: IO[str] | None = None, jobs: bool = False) -> None:
        self.stream, self.jobs = stream, jobs
        self.last: float | None = None

    def update(self, progress: Progress) -> None:
        """What is to be done; how far it is, often at first and rarely after hours; the end."""
        if not progress.working:
            self._write(progress, progress.last_words())
            self.last = None
        elif self.last is None:
            kinds = {k: progress.counts[k].total() for k in in_order(progress.counts)}
            parts = ", ".join(f"{n:,} × {kind_in_words(kind)}" for kind, n in kinds.items())
            self._write(progress, f"begin: {counted(sum(kinds.values()), 'job')} ({parts})")
        elif progress.elapsed - self.last >= max(SHORTEST, min(LONGEST, progress.elapsed / 30)):
            with progress.lock:
                words = f"{summary(progress.sums)}, {time_left(progress.left())}"
            self._write(progress, words)

    def event(self, progress: Progress, what: str, job: Job | None, text: str) -> None:
        """Notes and failures, at once."""
        if text:
            self._write(progress, f"note: {text}" if what == "note" else text)
        elif self.jobs and what == "running" and job is not None:
            self._write(progress, f"start: {job.title}")

    def _write(self, progress: Progress, text: str) -> None:
        if progress.working:
            self.last = progress.elapsed
        now = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        line = f"{now} [{clock(progress.elapsed)}] {text}"
        print(line, file=self.stream or sys.stderr, flush=True)


# --- the status file: any machine that sees the folder can ask how far a sweep or a run is --------


class StatusFile(View):
    """Keeps the counter in a small file, for `memloc status`; `what` is the command: `sweep`, …."""

    def __init__(self, path: Path, name: str, what: str, store: Store) -> None:
        self.path = path
        self.about = {"name": name, "what": what, "host": socket.gethostname(), "pid": os.getpid()}
        self.about["store"] = str(store.root.absolute())
        self.last = -WRITE_EVERY

    def update(self, progress: Progress) -> None:
        """A new version now and then; if the disk is full, the work goes on without it."""
        now = time.monotonic()
        if progress.working and now - self.last < WRITE_EVERY:
            return
        self.last = now if progress.working else -WRITE_EVERY
        found = {**self.about, "time": time.time(), **progress.snapshot()}
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, json.dumps(found, ensure_ascii=False))


def run_status(store: Store, name: str, what: str) -> list[StatusFile]:
    """The file of a single experiment; none if it has no name."""
    path = store.root.parent / "status" / f"{name}.json"
    return [StatusFile(path, name, what, store)] if name else []


def find_status(folder: Path) -> list[Path]:
    """The files of sweeps and runs at or below a folder, in the order of their last change.

    Raises:
        MemlocError: If there are none.
    """
    patterns = (STATUS, f"*/{STATUS}", f"sweeps/*/{STATUS}", "status/*.json")
    found = [path for pattern in patterns for path in folder.glob(pattern)]
    if not found:
        there = "is no sweep and no run in" if folder.is_dir() else "is no folder"
        raise MemlocError(
            f"there {there} {str(folder)!r}",
            remedy="give the folder with the runs, or runs/sweeps/NAME "
            "(one that has just begun is there once it is planned)",
        )
    return sorted(found, key=lambda path: path.stat().st_mtime)


def read_status(path: Path) -> dict[str, Any]:
    """What a file says, and `elsewhere`: if its writer is gone, what others compute in its store.

    Workers of a cluster go on if the command that submitted them is killed.

    Raises:
        MemlocError: If it cannot be read.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        silent = abs(time.time() - found["time"]) > SILENCE
        dead = found["host"] == socket.gethostname() and is_gone(found["pid"])
        found |= {"file": str(path), "elsewhere": 0}
        if found["working"] and (silent or dead):
            for counts in (found["total"], *found["kinds"].values()):
                counts["waiting"] += counts["running"]
                counts["running"] = 0
            elsewhere = len(Locks(Path(found["store"])).holders())
            found |= {"working": False, "running": [], "workers": "", "elsewhere": elsewhere}
        return found
    except (OSError, *MALFORMED) as error:
        raise MemlocError(
            f"{str(path)!r} cannot be read ({error})", remedy="start again to write it"
        ) from None


# --- trackio and Weights & Biases -----------------------------------------------------------------


def check_tracker(package: str) -> None:
    """A tracker can be used.

    Raises:
        MemlocError: If it is not installed.
    """
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:  # a folder of that name is not the package
        raise MemlocError(
            f"tracking needs the package {package}",
            remedy=f"install it with `pip install 'memloc[{package}]'`",
        )


class Tracker(View):
    """Sends counts, failures and the learning curve of every finished training.

    A tracker that fails (no network, not logged in) is left alone after one note.

    Args:
        package: `trackio` or `wandb`.
        name: Of the sweep; the project is `memloc`.
        store: Has the learning curves.
    """

    def __init__(self, package: str, name: str, store: Store) -> None:
        self.package, self.name, self.store = package, name, store
        self.tracker: Any = None
        self.last = 0.0
        self.trained: list[Job] = []
        self.failures: list[str] = []

    def update(self, progress: Progress) -> None:
        """Say what there is to do, then now and then how far it is, and the rest at the end."""
        try:
            if self.tracker is None:
                self._init(progress)
            elif not progress.working or time.monotonic() - self.last >= SEND_EVERY:
                self._send(progress)
        except (Exception, SystemExit) as error:  # trackers also end with SystemExit
            progress.views.remove(self)
            reason = one_line(str(error)) or type(error).__name__
            progress.note(f"tracking has stopped, the sweep goes on: {reason[:300]}")

    def _init(self, progress: Progress) -> None:
        kinds = {kind_in_words(kind): of.total() for kind, of in progress.counts.items()}
        os.environ.setdefault("WANDB_DIR", str(self.store.root.parent.absolute()))
        os.environ.setdefault("WANDB_CONSOLE", "off")
        os.environ.setdefault("WANDB_SILENT", "true")
        with contextlib.redirect_stdout(sys.stderr):  # where results are, it must not greet
            self.tracker = importlib.import_module(self.package)
            self.tracker.init(project="memloc", name=self.name, config={"jobs": kinds})
        atexit.register(self.finish)

    def finish(self) -> None:
        """At the end of the program, as a sweep may have several rounds."""
        with contextlib.suppress(Exception), contextlib.redirect_stdout(sys.stderr):
            self.tracker.finish()

    def event(self, progress: Progress, what: str, job: Job | None, text: str) -> None:
        """Remember what is to be sent."""
        if what == "failed" and text:
            self.failures.append(text)
        if what == "done" and job is not None and job.kind in ("train", "control"):
            self.trained.append(job)

    def _send(self, progress: Progress) -> None:
        self.last = time.monotonic()
        trained, self.trained = self.trained, []
        failures, self.failures = self.failures, []
        counts: dict[str, Any] = {f"jobs/{state}": progress.sums[state] for state in STATES}
        if failures:
            counts["failures"] = "\n".join(failures)
        for row in (counts, *(row for job in trained for row in self._curve(job))):
            self.tracker.log(row)

    def _curve(self, job: Job) -> list[dict[str, Any]]:
        """Accuracies by epoch; nothing if the store has lost them meanwhile."""
        title = re.sub(r"[^\w.-]+", "_", job.title).strip("_")
        try:
            history = self.store.open(*job.artefact).table("history.parquet")
            table = history.pivot_table(index="epoch", columns="split", values="accuracy")
        except (MemlocError, OSError, ValueError, KeyError):
            return []
        return [
            {f"{title}/epoch": int(str(epoch))}
            | {f"{title}/{split}": float(value) for split, value in row.dropna().items()}
            for epoch, row in table.iterrows()
        ]
