"""Optional: send the progress of a sweep to trackio or Weights & Biases.

What is sent: how many jobs are done, running, failed, left out and waiting, now and then; the
learning curve of every training once it has finished; failures as text. A tracker that fails (no
network, not logged in) is left alone after one note, and the sweep goes on.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from memloc.engine.job import Job
from memloc.engine.progress import STATES, Progress, View, kind_in_words
from memloc.engine.store.store import Store
from memloc.errors import MemlocError
from memloc.text import one_line

PROJECT = "memloc"
SEND_EVERY = 5.0
"""Seconds between two messages."""
CURVES_OF = ("train", "control")


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
    """Sends counts, failures and learning curves.

    Args:
        package: `trackio` or `wandb`.
        name: Of the sweep; the project is `memloc`.
        store: Has the learning curves.
    """

    def __init__(self, package: str, name: str, store: Store) -> None:
        self.package, self.name, self.store = package, name, store
        self.log_file = store.root.parent / "tracking.log"
        self.tracker: Any = None
        self.working = True
        self.last = 0.0
        self.finished: deque[Job] = deque()
        self.failures: deque[str] = deque()
        self.titles: dict[str, str] = {}

    def begin(self, progress: Progress) -> None:
        """Tell the tracker what there is to do."""
        if self.tracker is None:
            kinds = {kind_in_words(kind): of.total() for kind, of in progress.counts.items()}
            self._try(progress, lambda: self._init(kinds))

    def _init(self, kinds: dict[str, int]) -> None:
        folder = self.log_file.absolute().parent
        quiet = {"WANDB_DIR": str(folder), "WANDB_CONSOLE": "off", "WANDB_SILENT": "true"}
        os.environ.update({name: value for name, value in quiet.items() if name not in os.environ})
        with self._quiet():
            self.tracker = importlib.import_module(self.package)
            self.tracker.init(project=PROJECT, name=self.name, config={"jobs": kinds})
        atexit.register(self._finish)

    def _finish(self) -> None:
        """At the end of the program, as a sweep may have several rounds."""
        with contextlib.suppress(Exception), self._quiet():
            self.tracker.finish()

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        """Trackers greet and say goodbye, and that must not get between the lines of a result."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("a", encoding="utf-8") as log, contextlib.redirect_stdout(log):
            yield

    def event(self, progress: Progress, what: str, job: Job | None, text: str) -> None:
        """Remember what is to be sent."""
        if what == "failed" and text:
            self.failures.append(text)
        if what == "done" and job is not None and job.kind in CURVES_OF:
            self.finished.append(job)

    def tick(self, progress: Progress) -> None:
        """Send now and then."""
        if time.monotonic() - self.last >= SEND_EVERY:
            self._try(progress, lambda: self._send(progress))

    def end(self, progress: Progress) -> None:
        """Send the rest."""
        self._try(progress, lambda: self._send(progress))

    def _send(self, progress: Progress) -> None:
        self.last = time.monotonic()
        counts: dict[str, Any] = {f"jobs/{state}": progress.sums[state] for state in STATES}
        if self.failures:
            counts["failures"] = "\n".join(self.failures)
            self.failures.clear()
        self.tracker.log(counts)
        while self.finished:
            for row in self._curve(self.finished.popleft()):
                self.tracker.log(row)

    def _try(self, progress: Progress, step: Callable[[], None]) -> None:
        """Whatever goes wrong, the sweep is more important."""
        if not self.working:
            return
        try:
            step()
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
