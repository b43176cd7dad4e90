"""How far a sweep is: what became of its jobs, by kind, and how long the rest will take.

Every message costs the same however many jobs there are. What a job takes is learned from those
that have finished: seconds per cost, for the same technique on the same model and data if there are
any, else for the same technique, else for all jobs.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from memloc.engine.job import Job

KIND_WORDS = {
    "model": "look at a model",
    "speed": "measure a pass",
    "train": "training",
    "control": "control training",
    "split": "half-split",
    "states": "states",
    "window": "retrained window",
    "localise": "technique",
    "explain": "explanation",
}
"""Kinds for people, in the order in which they mostly run."""
STATES = ("done", "running", "failed", "left out", "waiting")
Sort = tuple[str, str, bool]
Setup = tuple[Sort, str, str]
Costs = defaultdict[Setup, float]
ESTIMATE_AFTER = 20.0
"""Seconds, and the number of jobs below, without which nothing is said about the time left."""
ESTIMATE_JOBS = 3


def in_words(kind: str) -> str:
    """A kind of jobs for people."""
    return KIND_WORDS.get(kind, kind)


def in_order(kinds: Iterable[str]) -> list[str]:
    """Kinds in the order in which they mostly run."""
    order = {kind: number for number, kind in enumerate(KIND_WORDS)}
    return sorted(kinds, key=lambda kind: (order.get(kind, len(order)), kind))


def duration(seconds: float) -> str:
    """As exact as anybody needs it: 40 s, 12 min, 3 h 20 min, 2 d 4 h."""
    if seconds < 60:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def setup_of(job: Job) -> Setup:
    """Jobs of which one tells how long another takes: same technique, model and data."""
    name = job.identity.get("technique") or ""
    model = job.identity.get("model")
    fingerprint = str(model.get("fingerprint", "")) if isinstance(model, dict) else ""
    # What puts windows together is of another sort than a technique, though of the same kind.
    sort = job.kind, str(name), job.group is not None
    return sort, fingerprint, job.needs.get("data", ("", ""))[1]


class Rates:
    """Seconds per cost, as measured."""

    def __init__(self) -> None:
        self.jobs = 0
        self.sums: dict[Setup | Sort | None, tuple[float, float]] = {}

    def learn(self, setup: Setup, cost: float, seconds: float) -> None:
        """A job of this cost took so long."""
        self.jobs += 1
        for level in (setup, setup[0], None):
            before = self.sums.get(level, (0.0, 0.0))
            self.sums[level] = before[0] + seconds, before[1] + cost

    def of(self, setup: Setup) -> float:
        """Seconds per cost; 1 if nothing is known."""
        for level in (setup, setup[0], None):
            seconds, cost = self.sums.get(level, (0.0, 0.0))
            if cost > 0:
                return seconds / cost
        return 1.0

    def knows(self, setup: Setup) -> bool:
        """Whether the like of it was measured at all."""
        return setup[0] in self.sums


@dataclass(frozen=True)
class Left:
    """The time left.

    Attributes:
        seconds: None as long as nobody can know.
        rough: Whether most of it is jobs of which none has finished yet.
    """

    seconds: float | None
    rough: bool = False

    @property
    def words(self) -> str:
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


class Tally:
    """What became of the jobs of a sweep, as it goes on.

    Args:
        jobs: What is to be done.
        now: A clock.
    """

    def __init__(self, jobs: Iterable[Job], now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.started = now()
        self.state: dict[str, str] = {}
        self.counts: dict[str, Counter[str]] = {}
        self.running: dict[str, Running] = {}
        self.rates = Rates()
        self.total: Costs = defaultdict(float)
        """Cost of all jobs, by setup."""
        self.over: Costs = defaultdict(float)
        """Cost of what is done, failed or left out."""
        self.done: Costs = defaultdict(float)
        self.setups: dict[str, Setup] = {}
        self.marks: list[tuple[float, Costs]] = [(self.started, defaultdict(float))]
        """What was done when: for the speed of late."""
        for job in jobs:
            self._add(job)

    def _add(self, job: Job) -> None:
        setup = setup_of(job)
        self.setups[job.key] = setup
        self.state[job.key] = "waiting"
        self.counts.setdefault(job.kind, Counter())["waiting"] += 1
        self.total[setup] += job.cost

    def start(self, job: Job) -> None:
        """A job begins, perhaps not for the first time."""
        self._becomes(job, "running")
        self.running[job.key] = Running(job, self.now())

    def advance(self, job: Job, fraction: float) -> None:
        """A job has come so far."""
        found = self.running.get(job.key)
        if found is not None:
            found.fraction = fraction

    def end(self, job: Job, state: str) -> None:
        """A job is done, failed or left out."""
        found = self.running.get(job.key)
        if found is not None and state == "done":
            self.rates.learn(self.setups[job.key], job.cost, self.now() - found.since)
        self._becomes(job, state)

    def _becomes(self, job: Job, state: str) -> None:
        if job.key not in self.state:
            self._add(job)  # it was in the store, but turned out damaged
        before = self.state[job.key]
        self.state[job.key] = state
        counts = self.counts[job.kind]
        counts[before] -= 1
        counts[state] += 1
        self.running.pop(job.key, None)
        setup = self.setups[job.key]
        ended = (state not in ("running", "waiting")) - (before not in ("running", "waiting"))
        self.over[setup] += ended * job.cost
        self.done[setup] += ((state == "done") - (before == "done")) * job.cost

    @property
    def sums(self) -> Counter[str]:
        """Jobs of all kinds, by state."""
        return sum(self.counts.values(), Counter())

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self.now() - self.started

    def left(self) -> Left:
        """The time left, if it goes on as fast as in the second half of the time so far.

        What counts as speed is work done, whoever did it, so the number of workers need not be
        known and may change.
        """
        done = self.done.copy()
        remaining = self.total.copy()
        for setup, cost in self.over.items():
            remaining[setup] -= cost
        for found in self.running.values():
            setup = self.setups[found.job.key]
            done[setup] += found.fraction * found.job.cost
            remaining[setup] -= found.fraction * found.job.cost
        self._mark(done)
        if self.elapsed < ESTIMATE_AFTER or self.rates.jobs < ESTIMATE_JOBS:
            return Left(None)
        work = {setup: cost * self.rates.of(setup) for setup, cost in remaining.items() if cost > 0}
        since, before = self._mark_before(self.elapsed / 2)
        recent = sum(
            (cost - before.get(setup, 0.0)) * self.rates.of(setup) for setup, cost in done.items()
        )
        if recent <= 0:  # the jobs that run now are longer than that
            since = self.started
            recent = sum(cost * self.rates.of(setup) for setup, cost in done.items())
        if recent <= 0:
            return Left(None)
        total = sum(work.values())
        unknown = sum(seconds for setup, seconds in work.items() if not self.rates.knows(setup))
        return Left(total * (self.now() - since) / recent, unknown > total / 2)

    def _mark(self, done: Costs) -> None:
        """Remember what is done now, about forty times in all, however long it takes."""
        if self.now() - self.marks[-1][0] > max(1.0, self.elapsed / 40):
            self.marks.append((self.now(), done))
            middle = self.started + self.elapsed / 2
            while len(self.marks) > 2 and self.marks[1][0] <= middle:
                del self.marks[0]

    def _mark_before(self, seconds: float) -> tuple[float, Costs]:
        """The latest mark from the first so many seconds."""
        found = self.marks[0]
        for mark in self.marks:
            if mark[0] - self.started <= seconds:
                found = mark
        return found
