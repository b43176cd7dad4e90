"""How far the work is: one counter, which everything that shows it reads.

The loop tells `Progress` what becomes of jobs. Views read it: the table in a terminal, lines in a
log, the file for `memloc status`, a tracker. What a job takes is learned from those that have
finished or are under way: seconds per cost, for the same technique on the same model and data if
there are any, else for the same technique, else for all jobs. Every message costs the same however
many jobs there are.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any

from memloc.engine.job import Job
from memloc.text import clock, counted, duration, one_line

if TYPE_CHECKING:
    from memloc.engine.loop import Failure

KIND_WORDS = {
    "model": "look at a model",
    "speed": "measure a pass",
    "train": "training",
    "control": "control training",
    "states": "states",
    "window": "retrained window",
    "localise": "technique",
    "explain": "explanation",
    "split": "half-split",
}
"""Kinds for people, in the order in which they mostly run."""
STATES = ("done", "running", "failed", "left out", "waiting")
TODO = ("running", "waiting")
TICKS_PER_SECOND = 2.0
ESTIMATE_AFTER = 10.0
"""Seconds before which nothing is said about the time left."""
LEAST_FRACTION = 0.02
"""Of a job, before its speed says something."""
MEMORY = 60.0
"""Seconds over which the number of jobs at once is averaged."""
TOLD_FAILURES = 5
"""Failures for one and the same reason that are told one by one."""
SHORTEST, LONGEST = 15.0, 600.0
"""Seconds between two lines in a log: at first, and after hours."""

NAMED = ("snapshots", "technique", "role", "state")
"""What tells jobs of one kind apart that take different times per cost."""

Artefact = tuple[str, str]
Sort = tuple[str, str, bool]
Setup = tuple[Sort, str, str]


def kind_in_words(kind: str) -> str:
    """A kind of jobs for people."""
    return KIND_WORDS.get(kind, kind)


def in_order(kinds: Iterable[str]) -> list[str]:
    """Kinds in the order in which they mostly run."""
    order = {kind: number for number, kind in enumerate(KIND_WORDS)}
    return sorted(kinds, key=lambda kind: (order.get(kind, len(order)), kind))


def setup_of(kind: str, inputs: Mapping[str, Any]) -> Setup:
    """Jobs of which one tells how long another takes: same technique, model and data.

    Args:
        kind: Of the job.
        inputs: Of the job, as its result in the store has them too.
    """
    what = next((str(inputs[name]) for name in NAMED if inputs.get(name)), "")
    model, needs = inputs.get("model"), inputs.get("needs", {})
    fingerprint = str(model.get("fingerprint", "")) if isinstance(model, dict) else ""
    # What puts windows together is of another sort than a technique, though of the same kind.
    combines = any(role.startswith("window:") for role in needs)
    return (kind, what, combines), fingerprint, needs.get("data", "")


class Rates:
    """Seconds per cost, as measured.

    Args:
        known: What is known already.
    """

    def __init__(self, known: Rates | None = None) -> None:
        self.sums: dict[object, tuple[float, float]] = {}
        if known is not None:
            self.sums |= known.sums

    def learn(self, setup: Setup, cost: float, seconds: float) -> None:
        """Work of this cost took so long."""
        for level in (setup, setup[:2], setup[0], None):
            before = self.sums.get(level, (0.0, 0.0))
            self.sums[level] = before[0] + seconds, before[1] + cost

    def of(self, setup: Setup) -> float:
        """Seconds per cost; 1 if nothing is known."""
        for level in (setup, setup[:2], setup[0], None):
            seconds, cost = self.sums.get(level, (0.0, 0.0))
            if cost > 0:
                return seconds / cost
        return 1.0

    def of_model(self, setup: Setup) -> float | None:
        """Seconds per cost, if the like of it was measured with the same model."""
        return self.of(setup) if self.sums.get(setup[:2], (0.0, 0.0))[1] > 0 else None

    def knows(self, setup: Setup) -> bool:
        """Whether the like of it was measured at all."""
        return setup[0] in self.sums


@dataclass(frozen=True)
class Left:
    """The time left.

    Attributes:
        seconds: None as long as nobody can know.
        rough: Whether most of it is jobs of which none has been measured yet.
    """

    seconds: float | None
    rough: bool = False

    def __str__(self) -> str:
        """For people."""
        if self.seconds is None:
            return "estimating the time left"
        return f"{'roughly' if self.rough else 'about'} {duration(self.seconds)} left"


@dataclass
class Running:
    """A job that runs."""

    job: Job
    since: float
    fraction: float = 0.0
    first: tuple[float, float] | None = None
    """When it first said how far it is, and how far that was: it has loaded everything by then."""

    def speed(self, now: float) -> tuple[float, float] | None:
        """The cost of what it has done since then, and the seconds that took, if that is enough."""
        if self.first is None or self.fraction - self.first[1] < LEAST_FRACTION:
            return None
        return (self.fraction - self.first[1]) * self.job.cost, now - self.first[0]


@dataclass
class FailedAlike:
    """Jobs that failed for one reason; `title` and `log` are of the first."""

    title: str
    reason: str
    log: str | None
    jobs: int = 0


class View:
    """Something that shows, keeps or sends how far the work is; it overrides what it needs."""

    def begin(self, progress: Progress) -> None:
        """Work begins."""

    def tick(self, progress: Progress) -> None:
        """Called a few times a second, in another thread, while work goes on."""

    def event(self, progress: Progress, what: str, job: Job | None, text: str) -> None:
        """Something happened.

        Args:
            progress: Has the counts, in which it is included.
            what: One of `STATES`: what became of the job; or `note`.
            job: What it is about, if it is a job.
            text: What the user should know; empty if that is nothing.
        """

    def end(self, progress: Progress) -> None:
        """Work is over, or was interrupted."""


class Progress:
    """What became of jobs, as it goes on.

    Args:
        views: Are told everything.
        now: A clock.
    """

    def __init__(self, *views: View, now: Callable[[], float] = time.monotonic) -> None:
        self.views, self.now = list(views), now
        self.lock = threading.RLock()
        self.began = now()
        self.jobs: dict[Artefact, Job] = {}
        self.states: dict[Artefact, str] = {}
        self.setups: dict[Artefact, Setup] = {}
        self.counts: dict[str, Counter[str]] = {}
        self.running: dict[Artefact, Running] = {}
        self.failures: dict[str, FailedAlike] = {}
        """By reason."""
        self.workers = ""
        """What the executor says about its workers, if that is not clear from running jobs."""
        self.cost = 0.0
        """Of all jobs that were not in the store at the beginning."""
        self.todo: defaultdict[Setup, float] = defaultdict(float)
        """Cost of what runs and waits."""
        self.rates = Rates()
        self.changed = self.began
        self.busy = self.weight = 0.0
        """Average number of jobs at once: a sum that forgets, and that of its weights."""

    @contextlib.contextmanager
    def also(self, *views: View) -> Iterator[None]:
        """Tell these views too, for as long as the block lasts."""
        self.views += views
        try:
            yield
        finally:
            for view in views:
                self.views.remove(view)

    @contextlib.contextmanager
    def showing(self, jobs: Iterable[Job], finished: Iterable[Job] = ()) -> Iterator[None]:
        """Around all of the work, or a part of it.

        Args:
            jobs: What is to be done.
            finished: What is in the store already; it counts as done.
        """
        with self.lock:
            if not self.jobs:
                self.began = self.changed = self.now()
            for job in finished:
                self._becomes(job, "done")
            for job in jobs:
                self._becomes(job, "waiting")
        self._tell_views("begin")
        ended = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(ended,), daemon=True)
        if self.views:
            ticker.start()
        try:
            yield
        finally:
            ended.set()
            if self.views:
                ticker.join()
            with self.lock:
                for running in list(self.running.values()):  # it was interrupted
                    self._becomes(running.job, "waiting")
            self._tell_views("end")

    def _tick(self, ended: threading.Event) -> None:
        while not ended.wait(1 / TICKS_PER_SECOND):
            self._tell_views("tick")

    def _tell_views(self, what: str) -> None:
        for view in self.views:
            getattr(view, what)(self)

    def start(self, job: Job) -> None:
        """A job begins, perhaps not for the first time."""
        with self.lock:
            self._becomes(job, "running")
            self.running[job.artefact] = Running(job, self.now())
        self._event("running", job)

    def advance(self, job: Job, fraction: float) -> None:
        """A job has come so far."""
        with self.lock:
            found = self.running.get(job.artefact)
            if found is not None:
                found.fraction = fraction
                found.first = found.first or (self.now(), fraction)

    def wait(self, job: Job) -> None:
        """A job that had begun waits again, because its worker or its input was lost."""
        with self.lock:
            self._becomes(job, "waiting")
        self._event("waiting", job)

    def finish(self, job: Job) -> None:
        """A job is in the store."""
        with self.lock:
            found = self.running.get(job.artefact)
            if found is not None:
                self.rates.learn(self.setups[job.artefact], job.cost, self.now() - found.since)
            self._becomes(job, "done")
        self._event("done", job)

    def fail(self, job: Job, failure: Failure) -> None:
        """A job cannot be computed; many failures for one reason are told only a few times."""
        with self.lock:
            self._becomes(job, "failed")
            alike = self.failures.setdefault(
                failure.reason, FailedAlike(job.title, failure.reason, failure.log)
            )
            alike.jobs += 1
            times = alike.jobs
        self._event("failed", job, str(failure) if times <= TOLD_FAILURES else "")
        if times == TOLD_FAILURES:
            self.note("further failures for this reason are only counted")

    def drop(self, job: Job) -> None:
        """A job is left out, because what it needs failed."""
        with self.lock:
            self._becomes(job, "left out")
        self._event("left out", job)

    def note(self, text: str) -> None:
        """Something the user should know."""
        self._event("note", None, text)

    def _event(self, what: str, job: Job | None, text: str = "") -> None:
        for view in self.views:
            view.event(self, what, job, one_line(text))

    def _becomes(self, job: Job, state: str) -> None:
        self._average()
        counts = self.counts.setdefault(job.kind, Counter())
        before = self.states.get(job.artefact)
        if before is None:
            self.jobs[job.artefact] = job
            self.setups[job.artefact] = setup_of(job.kind, job.inputs)
            self.cost += job.cost * (state in TODO)
        else:
            counts[before] -= 1
        counts[state] += 1
        self.states[job.artefact] = state
        self.running.pop(job.artefact, None)
        change = (state in TODO) - (before in TODO)
        if change:
            self.todo[self.setups[job.artefact]] += change * job.cost

    def _average(self) -> None:
        """Keep the average number of jobs at once up to date."""
        kept = math.exp((self.changed - self.now()) / MEMORY)
        self.busy = kept * self.busy + (1 - kept) * len(self.running)
        self.weight = kept * self.weight + 1 - kept
        self.changed = self.now()

    @property
    def sums(self) -> Counter[str]:
        """Jobs of all kinds, by state."""
        return sum(self.counts.values(), Counter())

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self.now() - self.began

    @property
    def fraction(self) -> float:
        """Of all the work that was not in the store at the beginning."""
        with self.lock:
            todo = sum(self.todo.values())
            todo -= sum(one.fraction * one.job.cost for one in self.running.values())
        return min(1.0, max(0.0, 1 - todo / self.cost)) if self.cost else 1.0

    def left(self) -> Left:
        """The time left, with as many jobs at once as of late."""
        with self.lock:
            self._average()
            rates, todo = Rates(self.rates), self.todo.copy()
            for one in self.running.values():
                setup = self.setups[one.job.artefact]
                todo[setup] -= one.fraction * one.job.cost
                if (speed := one.speed(self.now())) is not None:
                    rates.learn(setup, *speed)
            at_once = max(1.0, self.busy / self.weight if self.weight else 0.0)
        if self.elapsed < ESTIMATE_AFTER or not rates.sums:
            return Left(None)
        work = {setup: cost * rates.of(setup) for setup, cost in todo.items() if cost > 0}
        unknown = sum(seconds for setup, seconds in work.items() if not rates.knows(setup))
        total = sum(work.values())
        return Left(total / at_once, unknown > total / 2)

    def summary(self, *states: str) -> str:
        """`1,234 of 30,000 done, 2 running, 3 failed, 1 left out`."""
        sums = self.sums
        parts = [f"{sums['done']:,} of {sums.total():,} done"]
        return ", ".join(parts + [f"{sums[state]:,} {state}" for state in states if sums[state]])

    def last_words(self) -> str:
        """What became of all of it."""
        sums = self.sums
        words = f"{self.summary('failed', 'left out')} in {duration(self.elapsed)}"
        if sums["waiting"]:
            return f"stopped: {words}"
        again = "; running again tries what failed once more" if sums["failed"] else ""
        return f"end: {words}{again}"


class Silent(Progress):
    """Shows nothing."""


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
            self._write(progress, self.line(progress))

    def line(self, progress: Progress) -> str:
        """How far it is, and what is being worked on."""
        with progress.lock:
            counts = progress.counts
            kinds = [kind for kind in in_order(counts) if counts[kind]["running"]]
            now = [
                f"{kind_in_words(kind)} {counts[kind]['done']:,}/{counts[kind].total():,}"
                for kind in kinds
            ]
            at = f" ({', '.join(now)})" if now and len(counts) > 1 else ""
            return f"{progress.summary(*STATES[1:4])}, {progress.left()}{at}"

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
