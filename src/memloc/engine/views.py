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
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from memloc.engine.job import Job
from memloc.engine.progress import STATES, Progress, View, in_order, kind_in_words, time_left
from memloc.engine.store.locks import is_gone
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
KEPT = 20
"""Running jobs, and reasons of failures, in the status file."""
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
        self.last = 0.0

    def begin(self, progress: Progress) -> None:
        """What is to be done."""
        kinds = {k: progress.counts[k].total() for k in in_order(progress.counts)}
        parts = ", ".join(f"{n:,} × {kind_in_words(kind)}" for kind, n in kinds.items())
        self._write(progress, f"begin: {counted(sum(kinds.values()), 'job')} ({parts})")

    def tick(self, progress: Progress) -> None:
        """How far it is, often at first and rarely after hours."""
        pause = max(SHORTEST, min(LONGEST, progress.elapsed / 30))
        if progress.elapsed - self.last >= pause:
            with progress.lock:
                words = f"{progress.summary(*STATES[1:4])}, {time_left(progress.left())}"
            self._write(progress, words)

    def event(self, progress: Progress, what: str, job: Job | None, text: str) -> None:
        """Notes and failures, at once."""
        if text:
            self._write(progress, f"note: {text}" if what == "note" else text)
        elif self.jobs and what == "running" and job is not None:
            self._write(progress, f"start: {job.title}")

    def end(self, progress: Progress) -> None:
        """What became of it."""
        self._write(progress, progress.last_words())

    def _write(self, progress: Progress, text: str) -> None:
        self.last = progress.elapsed
        now = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        line = f"{now} [{clock(progress.elapsed)}] {text}"
        print(line, file=self.stream or sys.stderr, flush=True)


# --- the status file: any machine that sees the folder can ask how far a sweep or a run is --------


class StatusFile(View):
    """Keeps the counter in a small file, for `memloc status`.

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
        self.write(progress, working=True)

    def tick(self, progress: Progress) -> None:
        """A new version now and then."""
        if time.monotonic() - self.last >= WRITE_EVERY:
            self.write(progress, working=True)

    def end(self, progress: Progress) -> None:
        """The last version."""
        self.write(progress, working=False)

    def write(self, progress: Progress, working: bool) -> None:
        """A new version; one that cannot be written (the disk is full) does not stop the work."""
        self.last = time.monotonic()
        found = {**self.about, "working": working, "time": time.time(), **_snapshot(progress)}
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, json.dumps(found, ensure_ascii=False))


def _snapshot(progress: Progress) -> dict[str, Any]:
    with progress.lock:
        failures = list(progress.failures.items())[-KEPT:]
        running = list(progress.running.values())[:KEPT]
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
                for one in running
            ],
            "failures": [
                {"title": of[0].title, "reason": reason, "log": of[0].log, "jobs": len(of)}
                for reason, of in failures
            ],
            "workers": progress.workers,
            "seconds_left": progress.left(),
        }


def _counts(counts: Counter[str]) -> dict[str, int]:
    return {state.replace(" ", "_"): counts[state] for state in STATES}


def run_status(runs: Path, name: str, what: str) -> list[StatusFile]:
    """The file of a single experiment; none if it has no name."""
    return [StatusFile(runs / "status" / f"{name}.json", name, what)] if name else []


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
    """What a file says; nothing runs if its writer is gone.

    Raises:
        MemlocError: If it cannot be read.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found["file"] = str(path)
        silent = abs(time.time() - found["time"]) > SILENCE
        dead = found["host"] == socket.gethostname() and is_gone(found["pid"])
        if found["working"] and (silent or dead):
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
        self.working = True
        self.last = 0.0
        self.trained: list[Job] = []
        self.failures: list[str] = []
        self.titles: dict[str, str] = {}

    def begin(self, progress: Progress) -> None:
        """Tell the tracker what there is to do."""
        if self.tracker is None:
            self._try(progress, self._init)

    def _init(self, progress: Progress) -> None:
        kinds = {kind_in_words(kind): of.total() for kind, of in progress.counts.items()}
        os.environ.setdefault("WANDB_DIR", str(self.store.root.parent.absolute()))
        os.environ.setdefault("WANDB_CONSOLE", "off")
        os.environ.setdefault("WANDB_SILENT", "true")
        with self._quiet():
            self.tracker = importlib.import_module(self.package)
            self.tracker.init(project="memloc", name=self.name, config={"jobs": kinds})
        atexit.register(self.finish)

    def finish(self) -> None:
        """At the end of the program, as a sweep may have several rounds."""
        with contextlib.suppress(Exception), self._quiet():
            self.tracker.finish()

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        """Trackers greet and say goodbye, and that must not get between the lines of a result."""
        path = self.store.root.parent / "tracking.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as log, contextlib.redirect_stdout(log):
            yield

    def event(self, progress: Progress, what: str, job: Job | None, text: str) -> None:
        """Remember what is to be sent."""
        if what == "failed" and text:
            self.failures.append(text)
        if what == "done" and job is not None and job.kind in ("train", "control"):
            self.trained.append(job)

    def tick(self, progress: Progress) -> None:
        """Send now and then."""
        if time.monotonic() - self.last >= SEND_EVERY:
            self._try(progress, self._send)

    def end(self, progress: Progress) -> None:
        """Send the rest."""
        self._try(progress, self._send)

    def _send(self, progress: Progress) -> None:
        self.last = time.monotonic()
        trained, self.trained = self.trained, []
        failures, self.failures = self.failures, []
        counts: dict[str, Any] = {f"jobs/{state}": progress.sums[state] for state in STATES}
        if failures:
            counts["failures"] = "\n".join(failures)
        for row in (counts, *(row for job in trained for row in self._curve(job))):
            self.tracker.log(row)

    def _try(self, progress: Progress, step: Callable[[Progress], None]) -> None:
        """Whatever goes wrong, the sweep is more important."""
        if not self.working:
            return
        try:
            step(progress)
        except (Exception, SystemExit) as error:  # trackers also end with SystemExit
            self.working = False
            reason = one_line(str(error)) or type(error).__name__
            progress.note(f"tracking has stopped, the sweep goes on: {reason[:300]}")

    def _curve(self, job: Job) -> list[dict[str, Any]]:
        """Accuracies by epoch; nothing if the store has lost them meanwhile."""
        title = re.sub(r"[^\w.-]+", "_", job.title).strip("_")
        if self.titles.setdefault(title, job.key) != job.key:
            title = f"{title}_{job.key[:6]}"
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
