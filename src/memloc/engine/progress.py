"""How far the work is: one counter, which everything that shows it reads.

The loop tells `Progress` what becomes of jobs. Views read it: the table in a terminal, lines in a
log, the file for `memloc status`, a tracker. How long jobs take is learned from those that have
finished or are under way. Every message costs the same however many jobs there are.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memloc.engine.job import Artefact, Failure, Job
from memloc.text import duration, one_line

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
    "candidate": "repair candidate",
    "exam": "exam",
}
"""Kinds for people, in the order in which they mostly run."""
STATES = ("done", "running", "failed", "left_out", "waiting")
OPEN = ("running", "waiting")
SHOWN = 20
"""Running jobs, and reasons of failures, in a snapshot."""
TICKS_PER_SECOND = 2.0
ESTIMATE_AFTER = 10.0
"""Seconds before which nothing is said about the time left."""
LEAST_FRACTION = 0.02
"""Of a job, before its speed says something."""
TOLD_FAILURES = 5
"""Failures for one and the same reason that are told one by one."""
NAMED = ("snapshot", "technique", "role", "state")
"""What tells jobs of one kind apart that take different times per cost."""

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
    """Jobs of which one tells how long another takes: same technique, model and data."""
    what = next((str(inputs[name]) for name in NAMED if inputs.get(name)), "")
    model, needs = inputs.get("model"), inputs.get("needs", {})
    fingerprint = str(model.get("fingerprint", "")) if isinstance(model, dict) else ""
    # What puts windows together is of another sort than a technique, though of the same kind.
    combines = any(role.startswith("window:") for role in needs)
    return (kind, what, combines), fingerprint, needs.get("data", "")


class Rates:
    """Seconds per cost, as measured: in all, by technique, by model too, and by data too."""

    def __init__(self) -> None:
        self.sums: dict[object, tuple[float, float]] = {}

    def learn(self, setup: Setup, cost: float, seconds: float) -> None:
        """Work of this cost took so long."""
        for level in (setup, setup[:2], setup[0], None):
            before = self.sums.get(level, (0.0, 0.0))
            self.sums[level] = before[0] + seconds, before[1] + cost

    def of(self, setup: Setup) -> float:
        """Seconds per cost, of the most similar jobs that were measured; 1 if there are none."""
        for level in (setup, setup[:2], setup[0], None):
            if self.knows(level):
                seconds, cost = self.sums[level]
                return seconds / cost
        return 1.0

    def knows(self, level: object) -> bool:
        """Whether jobs of a technique, or of a technique with a model, were measured."""
        return self.sums.get(level, (0.0, 0.0))[1] > 0


def time_left(seconds: float | None) -> str:
    """For people; None: nobody can know yet."""
    return "estimating the time left" if seconds is None else f"about {duration(seconds)} left"


@dataclass
class Running:
    """A job that runs."""

    job: Job
    since: float
    fraction: float = 0.0


class View:
    """Something that shows, keeps or sends how far the work is; it overrides what it needs."""

    def update(self, progress: Progress) -> None:
        """Called when work begins, a few times a second (in another thread), and when it ends."""

    def event(self, progress: Progress, what: str, job: Job | None, text: str) -> None:
        """Something happened.

        Args:
            progress: Has the counts, in which it is included.
            what: One of `STATES`: what became of the job; or `note`.
            job: What it is about, if it is a job.
            text: What the user should know; empty if that is nothing.
        """


class Progress:
    """What became of jobs, as it goes on; its views are told everything."""

    def __init__(self, *views: View, now: Callable[[], float] = time.monotonic) -> None:
        self.views, self.now = list(views), now
        self.lock = threading.RLock()
        self.began = now()
        self.working = False
        self.states: dict[Artefact, str] = {}
        self.setups: dict[Artefact, Setup] = {}
        self.counts: dict[str, Counter[str]] = {}
        """By kind and state."""
        self.running: dict[Artefact, Running] = {}
        self.failures: defaultdict[str, list[Failure]] = defaultdict(list)
        """By reason."""
        self.workers = ""
        """What the executor says about its workers, if that is not clear from running jobs."""
        self.cost = 0.0
        """Of all jobs that were not in the store at the beginning."""
        self.todo: defaultdict[Setup, float] = defaultdict(float)
        """Cost of what runs and waits."""
        self.rates = Rates()
        self.at_once = 1
        """Jobs that ran when one last began, and so probably will until none are left to begin."""

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
        """Around all of the work, or a part of it; what is finished already counts as done."""
        with self.lock:
            if not self.states:
                self.began = self.now()
            for state, those in (("done", finished), ("waiting", jobs)):
                for job in those:
                    self._becomes(job, state)
        self.working = True
        self._update_views()
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
            self.working = False
            with self.lock:
                for running in list(self.running.values()):  # it was interrupted
                    self._becomes(running.job, "waiting")
            self._update_views()

    def _tick(self, ended: threading.Event) -> None:
        while not ended.wait(1 / TICKS_PER_SECOND):
            self._update_views()

    def _update_views(self) -> None:
        for view in list(self.views):  # a tracker that fails leaves
            view.update(self)

    # --- what the loop tells ---

    def start(self, job: Job) -> None:
        """A job runs, perhaps not for the first time."""
        if job.artefact not in self.running:
            self._change(job, "running")

    def advance(self, job: Job, fraction: float) -> None:
        """A job has come so far."""
        with self.lock:
            if job.artefact in self.running:
                self.running[job.artefact].fraction = fraction

    def wait(self, job: Job) -> None:
        """A job waits again, because its worker, its input or its result was lost."""
        if self.states.get(job.artefact) != "waiting":
            self._change(job, "waiting")

    def finish(self, job: Job) -> None:
        """A job is in the store."""
        self._change(job, "done")

    def fail(self, job: Job, failure: Failure) -> None:
        """A job cannot be computed; many failures for one reason are told only a few times."""
        with self.lock:
            self.failures[failure.reason].append(failure)
            times = len(self.failures[failure.reason])
        self._change(job, "failed", str(failure) if times <= TOLD_FAILURES else "")
        if times == TOLD_FAILURES:
            self.note("further failures for this reason are only counted")

    def drop(self, job: Job) -> None:
        """A job is left out, because what it needs failed."""
        self._change(job, "left_out")

    def note(self, text: str) -> None:
        """Something the user should know."""
        self._tell_views("note", None, text)

    def _change(self, job: Job, state: str, text: str = "") -> None:
        with self.lock:
            self._becomes(job, state)
        self._tell_views(state, job, text)

    def _tell_views(self, what: str, job: Job | None, text: str) -> None:
        for view in self.views:
            view.event(self, what, job, one_line(text))

    def _becomes(self, job: Job, state: str) -> None:
        artefact, before = job.artefact, self.states.get(job.artefact)
        counts = self.counts.setdefault(job.kind, Counter())
        if before is None:
            self.setups[artefact] = setup_of(job.kind, job.inputs)
            self.cost += job.cost * (state in OPEN)
        else:
            counts[before] -= 1
        counts[state] += 1
        self.states[artefact] = state
        ran = self.running.pop(artefact, None)
        if state == "running":
            self.running[artefact] = Running(job, self.now())
            self.at_once = len(self.running)
        elif state == "done" and ran is not None:
            self.rates.learn(self.setups[artefact], job.cost, self.now() - ran.since)
        self.todo[self.setups[artefact]] += ((state in OPEN) - (before in OPEN)) * job.cost

    # --- what views read ---

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

    def left(self) -> float | None:
        """Seconds left, with as many jobs at once as now; None as long as nobody can know."""
        rates = Rates()
        with self.lock:
            rates.sums |= self.rates.sums
            todo = self.todo.copy()
            for one in self.running.values():
                setup, done = self.setups[one.job.artefact], one.fraction * one.job.cost
                todo[setup] -= done
                if one.fraction > LEAST_FRACTION:
                    rates.learn(setup, done, self.now() - one.since)
            at_once = self.at_once if self.sums["waiting"] else max(1, len(self.running))
        if self.elapsed < ESTIMATE_AFTER or not rates.sums:
            return None
        return sum(cost * rates.of(setup) for setup, cost in todo.items() if cost > 0) / at_once

    def snapshot(self) -> dict[str, Any]:
        """All that views show, as JSON data."""
        with self.lock:
            failures = list(self.failures.items())[-SHOWN:]
            running = list(self.running.values())[:SHOWN]
            return {
                "working": self.working,
                "elapsed": self.elapsed,
                "fraction": self.fraction,
                "seconds_left": self.left(),
                "workers": self.workers,
                "kinds": {kind: _counts(of_kind) for kind, of_kind in self.counts.items()},
                "total": _counts(self.sums),
                "running": [
                    {
                        "title": one.job.title,
                        "fraction": one.fraction,
                        "seconds": self.now() - one.since,
                    }
                    for one in running
                ],
                "failures": [
                    {"title": of[0].title, "reason": reason, "log": of[0].log, "jobs": len(of)}
                    for reason, of in failures
                ],
            }

    def last_words(self) -> str:
        """What became of all of it."""
        words = f"{summary(self.sums)} in {duration(self.elapsed)}"
        if self.sums["waiting"]:
            return f"stopped: {words}"
        again = "; running again tries what failed once more" if self.failures else ""
        return f"end: {words}{again}"


def _counts(counts: Counter[str]) -> dict[str, int]:
    return {state: counts[state] for state in STATES}


def summary(total: Mapping[str, int]) -> str:
    """`1,234 of 30,000 done, 2 running, 3 failed, 1 left out`."""
    parts = [f"{total['done']:,} of {sum(total.values()):,} done"]
    parts += [f"{total[state]:,} {in_words(state)}" for state in STATES[1:4] if total[state]]
    return ", ".join(parts)


def in_words(state: str) -> str:
    """A state for people."""
    return state.replace("_", " ")
