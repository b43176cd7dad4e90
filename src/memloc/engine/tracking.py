"""Optional: send the progress of a sweep to trackio or Weights & Biases.

What is sent: how many jobs are done, running, failed, left out and waiting, now and then; the
learning curve of every training once it has finished; failures as text. A tracker that fails (no
network, not logged in) is left alone after one note. It never delays or stops the sweep: it runs in
a process of its own, and a thread writes to that.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from memloc.engine.job import Job
from memloc.engine.progress import Progress
from memloc.engine.settings import TrackerName
from memloc.engine.store.store import Store
from memloc.engine.sweep_view import one_line
from memloc.engine.tally import STATES, Tally, in_words
from memloc.engine.tracker_process import FINISH, TrackerProcess
from memloc.errors import MemlocError

PROJECT = "memloc"
SEND_EVERY = 5.0
"""Seconds between two messages."""
LAST_WAIT = FINISH + 5
"""Seconds for the last messages to go out at the end of a sweep."""
STOP_WAIT = 1.0
"""The same after Ctrl-C, where nobody likes to wait."""
CURVES_OF = ("train", "control")


class Tracker(Protocol):
    """What trackio and wandb have in common, and a way to get rid of them."""

    def init(self, *, project: str, name: str, config: dict[str, Any]) -> object:
        """Begin."""
        ...

    def log(self, values: dict[str, Any], /) -> None:
        """Send values."""
        ...

    def finish(self) -> None:
        """Send what is left, and end."""
        ...

    def stop(self) -> None:
        """End at once."""
        ...


def make_tracked(progress: Progress, tracker: TrackerName, name: str, store: Store) -> Progress:
    """Progress that also goes to a tracker.

    Args:
        progress: Shown as before.
        tracker: Which one.
        name: Of the sweep; the project is `memloc`.
        store: Has the learning curves.

    Raises:
        MemlocError: If the package is not installed.
    """
    found = importlib.util.find_spec(tracker)
    if found is None or found.origin is None:  # a folder of that name is not the package
        raise MemlocError(
            f"--track {tracker} needs the package {tracker}; install it with "
            f"`pip install 'memloc[{tracker}]'`"
        )
    log = store.root.parent / "tracking.log"
    progress.note(f"{tracker} is told how far the sweep is; what it says itself is in {log}")
    return Tracked(progress, TrackerProcess(tracker, log), name, store)


class Tracked:
    """Passes everything on to another progress, and some of it to a tracker.

    Args:
        progress: The other.
        tracker: Gets the messages.
        name: Of the sweep.
        store: Has the learning curves.
        every: Seconds between two messages.
    """

    def __init__(
        self, progress: Progress, tracker: Tracker, name: str, store: Store,
        every: float = SEND_EVERY,
    ) -> None:  # fmt: skip
        self.progress, self.tracker, self.name, self.store = progress, tracker, name, store
        self.every = every
        self.lock = threading.Lock()
        self.tally = Tally(())
        self.trained: deque[Job] = deque()
        self.failures: deque[str] = deque()
        self.curves: deque[deque[dict[str, Any]]] = deque()
        """The rows that are still to be sent, for every training."""
        self.titles: dict[str, str] = {}
        self.broken = False

    @contextlib.contextmanager
    def showing(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Send while the work goes on."""
        self.tally = Tally(jobs)
        ended = threading.Event()
        sender = threading.Thread(target=self._send_all, args=(ended,), daemon=True)
        patience = STOP_WAIT
        with self.progress.showing(jobs):
            sender.start()
            try:
                yield
                patience = LAST_WAIT
            finally:
                ended.set()
                sender.join(timeout=patience)
                if sender.is_alive() and not self.broken:
                    self.broken = True
                    self.note("the tracker did not take all messages in time; it was stopped")
                self.tracker.stop()

    def start(self, job: Job) -> None:
        """A job begins."""
        with self.lock:
            self.tally.start(job)
        self.progress.start(job)

    def advance(self, job: Job, fraction: float) -> None:
        """Only shown."""
        self.progress.advance(job, fraction)

    def finish(self, job: Job) -> None:
        """A job is in the store; of a training, the learning curve follows."""
        with self.lock:
            self.tally.end(job, "done")
            if job.kind in CURVES_OF:
                self.trained.append(job)
        self.progress.finish(job)

    def fail(self, job: Job, words: str) -> None:
        """A job cannot be computed."""
        with self.lock:
            self.tally.end(job, "failed")
            self.failures.append(one_line(words))
        self.progress.fail(job, words)

    def drop(self, job: Job) -> None:
        """A job is left out."""
        with self.lock:
            self.tally.end(job, "left out")
        self.progress.drop(job)

    def note(self, words: str) -> None:
        """Only shown."""
        self.progress.note(words)

    def _send_all(self, ended: threading.Event) -> None:
        """What the thread does."""
        if self.broken:
            return
        try:
            with self.lock:
                counts = {in_words(kind): of.total() for kind, of in self.tally.counts.items()}
            self.tracker.init(project=PROJECT, name=self.name, config={"jobs": counts})
            while not ended.wait(self.every):
                self.tracker.log(self._message())
            self.tracker.log(self._message())
            while self.failures or self.curves or self.trained:
                self.tracker.log(self._message())
            self.tracker.finish()
        except Exception as error:  # whatever it is, the sweep is more important
            if self.broken:
                return  # it was stopped
            self.broken = True
            reason = one_line(str(error)) or type(error).__name__
            self.progress.note(f"tracking has stopped, the sweep goes on: {reason[:300]}")

    def _message(self) -> dict[str, Any]:
        """Counts, one failure or several, and one epoch of every curve that is not sent yet."""
        with self.lock:
            sums = self.tally.sums
            trained, failures = list(self.trained), list(self.failures)
            self.trained.clear()
            self.failures.clear()
        for job in trained:
            self.curves.append(self._curve(job))
        values: dict[str, Any] = {f"jobs/{state}": sums[state] for state in STATES}
        if failures:
            values["failures"] = "\n".join(failures)
        for curve in self.curves:
            if curve:
                values |= curve.popleft()
        self.curves = deque(curve for curve in self.curves if curve)
        return values

    def _curve(self, job: Job) -> deque[dict[str, Any]]:
        """Accuracies by epoch; nothing if the store has lost them meanwhile."""
        title = re.sub(r"[^\w.-]+", "_", job.title).strip("_")
        if self.titles.setdefault(title, job.key) != job.key:
            title = f"{title}_{job.key[:6]}"
        try:
            history = self.store.open(*job.artefact).table("history.parquet")
            table = history.pivot_table(index="epoch", columns="split", values="accuracy")
        except (MemlocError, OSError, ValueError, KeyError):
            return deque()
        return deque(
            {f"{title}/epoch": int(str(epoch))}
            | {f"{title}/{split}": float(value) for split, value in row.dropna().items()}
            for epoch, row in table.iterrows()
        )
