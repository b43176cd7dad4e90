"""One loop for all executors: what is ready is submitted, what comes back is recorded.

`graphlib.TopologicalSorter` says which jobs are ready. An executor says where they run: it takes a
bundle of jobs and gives a future. The result of a job is in the store before anybody hears of it,
and whoever computes it holds a lock, so several loops can work on one store.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import json
import queue
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from functools import partial
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any

from memloc.engine.job import Job, Report, run_job
from memloc.engine.progress import Progress
from memloc.engine.store.store import DamagedArtefact, Store
from memloc.errors import MISSING, MemlocError, StoreError
from memloc.training.resume import forget_finished

Artefact = tuple[str, str]
Reply = dict[str, Any]
"""What became of an attempt, as JSON data.

`state` is one of: done (computed and stored), there (another process had stored it), elsewhere
(another process is computing it), failed (`failure`), damaged (an input: `artefact`, `problem`),
full (nothing can be stored any more: `problem`, `remedy`).
"""
Tell = Callable[[Job, float | Reply], None]
"""How an executor reports before a bundle is over: how far a job is, or what became of it."""
LOOK_EVERY = 1.0
"""Seconds between two looks at what other processes have done."""
REPAIRS = 10
"""How often an artefact may turn out damaged; after that, the disk is probably broken."""
LARGEST_BUNDLE = 100
MORE_SPACE = "free some space or choose another folder for the runs"


class JobFailed(MemlocError):
    """A job ended with an error; the message says which and why."""


class CannotGoOn(JobFailed):
    """A job failed in a way that all others would too, such as a full disk."""


class WorkerLost(Exception):
    """Whoever computed a bundle is gone; the message says how."""


@dataclass(frozen=True)
class Failure:
    """Why a job failed, as JSON data.

    Attributes:
        kind: Of the job.
        key: Of the job.
        title: Of the job, for people.
        reason: What went wrong.
        setting: See `MemlocError`, as for value and remedy.
        value: Of the setting.
        remedy: What to do about it.
        log: A file with the traceback, if the failure was not foreseen.
        launch: Which start of which command this was, see `Executor`.
    """

    kind: str
    key: str
    title: str
    reason: str
    setting: str | None = None
    value: Any = None
    remedy: str | None = None
    log: str | None = None
    launch: str = ""

    @classmethod
    def of(cls, job: Job, error: Exception, log: Path | None = None, launch: str = "") -> Failure:
        """Why a job failed, by the error it ended with."""
        about = job.kind, job.key, job.title
        if not isinstance(error, MemlocError):
            reason = f"{type(error).__name__}: {str(error).strip()}".partition("\n")[0]
            return cls(*about, reason, log=str(log) if log else None, launch=launch)
        value = None if error.value is MISSING else error.value
        if not isinstance(value, str | int | float | None):
            value = str(value)
        return cls(*about, error.problem, error.setting, value, error.remedy, launch=launch)

    def error(self, title: bool = True) -> JobFailed:
        """The failure as an error, with or without the title of the job."""
        details = f" (details in {self.log})" if self.log else ""
        return JobFailed(
            f"{self.title} failed: {self.reason}{details}" if title else self.reason + details,
            setting=self.setting,
            value=MISSING if self.value is None else self.value,
            remedy=self.remedy,
        )

    def __str__(self) -> str:
        """One sentence."""
        return str(self.error())


@dataclass(frozen=True)
class Outcome:
    """What became of jobs.

    Attributes:
        computed: How many were computed.
        failed: Those that failed, and why.
        left_out: Those that need the result of one that failed.
    """

    computed: int = 0
    failed: dict[Artefact, Failure] = field(default_factory=dict)
    left_out: frozenset[Artefact] = frozenset()

    @property
    def missing(self) -> set[Artefact]:
        """All that have no result."""
        return {*self.failed, *self.left_out}

    def __add__(self, other: Outcome) -> Outcome:
        """What became of both."""
        return Outcome(
            self.computed + other.computed,
            {**self.failed, **other.failed},
            self.left_out | other.left_out,
        )


class Executor(ABC):
    """Computes jobs somewhere, for as long as the `with` block lasts.

    Args:
        store: Where results go.
        launch: Which start of which command this is. The workers of a cluster share a launch, and
            do not repeat what failed in another; a new launch tries everything again.
    """

    slots = 1
    """Bundles that may be under way at once."""
    workers = 1
    """Jobs that probably run at once; decides how large bundles are."""
    attempts = 3
    """Workers that may be lost over a job before it counts as failed."""
    reports_starts = True
    """Whether a bundle starts as soon as it is submitted; else locks in the store tell."""

    def __init__(self, store: Store, launch: str = "") -> None:
        self.store, self.launch = store, launch

    def __enter__(self) -> Executor:
        """Nothing starts yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stop whatever still runs, and free what this process kept if it did the work."""
        self.stop()
        inputs = sys.modules.get("memloc.engine.compute")
        if inputs is not None:
            inputs.forget_context()

    def execute(self, jobs: Sequence[Job], progress: Progress) -> Outcome:
        """Compute all jobs that are not in the store yet.

        A job that fails takes with it only those that need its result; the others go on.

        Raises:
            CannotGoOn: If nothing could be stored any more.
        """
        return Loop(self, jobs, progress).run()

    def connect(self) -> None:  # noqa: B027 (most need not)
        """Reach whoever computes, if that can fail; nothing is shown before.

        Raises:
            ClusterError: If it does.
        """

    @abstractmethod
    def submit(self, bundle: Sequence[Job], tell: Tell) -> Future[list[Reply]]:
        """Have jobs computed one after the other.

        Args:
            bundle: Jobs that share models, so that these are loaded once.
            tell: May be called from any thread.

        Returns:
            What became of the jobs, in their order, or nothing if all were told of; or
            `WorkerLost`.
        """

    def poll(self, progress: Progress) -> None:  # noqa: B027 (most need not)
        """Look after workers; called every second or so."""

    @abstractmethod
    def stop(self) -> None:
        """End whatever still runs."""


class Loop:
    """Carries out jobs, in the order of what they need.

    Args:
        executor: Where.
        jobs: All of a plan; what they need is in the store or among them.
        progress: Is told everything.
    """

    def __init__(self, executor: Executor, jobs: Sequence[Job], progress: Progress) -> None:
        self.executor, self.store, self.progress = executor, executor.store, progress
        self.jobs = {job.artefact: job for job in jobs}
        self.needs = {
            job.artefact: {need for need in job.needs.values() if need in self.jobs}
            for job in self.jobs.values()
        }
        self.dependants: dict[Artefact, list[Artefact]] = {}
        for artefact, needs in self.needs.items():
            for need in needs:
                self.dependants.setdefault(need, []).append(artefact)
        self.finished: set[Artefact] = set()
        self.computed: set[Artefact] = set()
        self.failed: dict[Artefact, Failure] = {}
        self.left_out: set[Artefact] = set()
        self.submitted: set[Artefact] = set()
        self.started: set[Artefact] = set()
        self.elsewhere: set[Artefact] = set()
        self.under_way = 0
        self.losses: Counter[Artefact] = Counter()
        self.repairs: Counter[Artefact] = Counter()
        self.ready = _Ready(jobs)
        self.events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.thread = threading.get_ident()
        self.looked = time.monotonic()

    def run(self) -> Outcome:
        """Until every job is finished, failed or left out."""
        self.finished = {artefact for artefact in self.jobs if self.store.sound(*artefact)}
        for problem in self.store.damaged:
            self.progress.note(f"{problem}; it is computed anew")
        self.store.damaged.clear()
        waiting = [job for artefact, job in self.jobs.items() if artefact not in self.finished]
        if not waiting:
            return Outcome()
        self.store.sweep_leftovers()
        forget_finished(self.store)
        self.executor.connect()
        stored = [self.jobs[artefact] for artefact in self.finished]
        with self.progress.showing(waiting, stored):
            self._sort()
            while self.under_way or self._unsettled():
                self._submit()
                self._wait()
        return Outcome(len(self.computed), self.failed, frozenset(self.left_out))

    def _unsettled(self) -> int:
        return len(self.jobs) - len(self.finished) - len(self.failed) - len(self.left_out)

    # --- what is ready ---

    def _sort(self) -> None:
        """Begin anew with what is not settled, as a sorter cannot take back that a job is done."""
        settled = self.finished | self.failed.keys() | self.left_out
        todo = {
            artefact: needs - settled
            for artefact, needs in self.needs.items()
            if artefact not in settled
        }
        self.sorter = TopologicalSorter(todo)
        self.sorter.prepare()
        self.ready.clear()
        self._add_ready()

    def _add_ready(self) -> None:
        for artefact in self.sorter.get_ready():
            self._again(artefact)

    def _again(self, artefact: Artefact) -> None:
        """Put a job in line, unless somebody is at it or what it needs is not there."""
        needs = self.needs[artefact]
        if not (needs.isdisjoint(self.failed) and needs.isdisjoint(self.left_out)):
            self._leave_out([artefact])
        elif not self._is_busy(artefact) and needs <= self.finished:
            self.ready.add(self.jobs[artefact])

    def _is_busy(self, artefact: Artefact) -> bool:
        return artefact in self.submitted or artefact in self.elsewhere

    def _submit(self) -> None:
        while self.under_way < self.executor.slots:
            bundle = self.ready.take(self.executor.workers)
            if not bundle:
                return
            self.submitted |= {job.artefact for job in bundle}
            if self.executor.reports_starts:
                self._start(bundle[0])
            self.under_way += 1
            future = self.executor.submit(bundle, partial(self._tell, bundle))
            future.add_done_callback(partial(self._call_over, bundle))

    def _call_over(self, bundle: Sequence[Job], future: Future[list[Reply]]) -> None:
        # Not at once, even in this thread: exceptions would get lost in the future.
        self.events.put(partial(self._over, bundle, future))

    # --- what comes back ---

    def _put(self, event: Callable[[], None]) -> None:
        """Handle something in the thread of the loop."""
        if threading.get_ident() == self.thread:
            event()
        else:
            self.events.put(event)

    def _tell(self, bundle: Sequence[Job], job: Job, news: float | Reply) -> None:
        if isinstance(news, dict):
            self._put(partial(self._settle, job, news, bundle))
        else:
            self._put(partial(self.progress.advance, job, news))

    def _wait(self) -> None:
        """For news, but not for longer than until the next look."""
        with contextlib.suppress(queue.Empty):
            pause = self.looked + LOOK_EVERY - time.monotonic()
            self.events.get(timeout=max(0.0, pause))()
            while True:
                self.events.get_nowait()()
        if time.monotonic() - self.looked >= LOOK_EVERY:
            self._look()
            self.looked = time.monotonic()

    def _look(self) -> None:
        """See what other processes have done, and who is at work."""
        self.executor.poll(self.progress)
        for artefact in sorted(self.elsewhere):
            there = self.store.has(*artefact)
            if there or not self.store.locks.held(*artefact):
                self.elsewhere.discard(artefact)
                self._finish(artefact) if there else self._again(artefact)
        if not self.executor.reports_starts:
            held = self.store.locks.holders()
            for artefact in tuple(self.submitted):
                if "-".join(artefact) in held:
                    self._start(self.jobs[artefact])
                elif artefact in self.started and self.store.has(*artefact):
                    self.submitted.discard(artefact)  # the reply comes with the rest of its bundle
                    self._finish(artefact)
                elif artefact in self.started:
                    self.started.discard(artefact)
                    self.progress.wait(self.jobs[artefact])

    def _over(self, bundle: Sequence[Job], future: Future[list[Reply]]) -> None:
        self.under_way -= 1
        try:
            replies = future.result()
        except WorkerLost as loss:
            self._lost(bundle, str(loss))
            return
        for job, reply in zip(bundle, replies, strict=False):  # it ends early if the disk is full
            if job.artefact in self.submitted:
                self._settle(job, reply)
            elif reply["state"] == "done":
                self.computed.add(job.artefact)

    def _lost(self, bundle: Sequence[Job], reason: str) -> None:
        """The first job without a result cost the worker its life, perhaps; the others wait."""
        left = [job for job in bundle if job.artefact in self.submitted]
        for number, job in enumerate(left):
            self.submitted.discard(job.artefact)
            self.started.discard(job.artefact)
            if number == 0:
                self.losses[job.artefact] += 1
                if self.losses[job.artefact] >= self.executor.attempts:
                    times = self.losses[job.artefact]
                    words = f"{reason}, {times} times" if times > 1 else reason
                    self._fail_here(job, words)
                    continue
                self.progress.note(f"{job.title} is tried again: {reason}")
                self.progress.wait(job)
            self._again(job.artefact)

    def _settle(self, job: Job, reply: Reply, bundle: Sequence[Job] = ()) -> None:
        """An attempt is over, in one way or another.

        Raises:
            CannotGoOn: If nothing can be stored any more.
        """
        artefact = job.artefact
        self.submitted.discard(artefact)
        match reply["state"]:
            case "done":
                self._start(job)
                self.computed.add(artefact)
                self._finish(artefact)
            case "there":
                self._finish(artefact)
            case "elsewhere":
                self.started.discard(artefact)
                self.elsewhere.add(artefact)
            case "failed":
                self._start(job)
                self._fail(job, Failure(**reply["failure"]))
            case "damaged":
                self._repair(job, tuple(reply["artefact"]), reply["problem"])
            case _:
                problem = f"{job.title} failed: {reply['problem']}"
                raise CannotGoOn(problem, remedy=reply["remedy"])
        for this, following in pairwise(bundle):
            if this is job and self.executor.reports_starts:
                self._start(following)

    def _start(self, job: Job) -> None:
        if job.artefact not in self.started:
            self.started.add(job.artefact)
            self.progress.start(job)

    def _finish(self, artefact: Artefact) -> None:
        self.started.discard(artefact)
        self.finished.add(artefact)
        self.progress.finish(self.jobs[artefact])
        try:
            self.sorter.done(artefact)
        except ValueError:  # it was under way when an input turned out damaged
            self._sort()
        self._add_ready()

    def _fail(self, job: Job, failure: Failure) -> None:
        """It cannot be computed, nor can what needs it."""
        self.started.discard(job.artefact)
        self.failed[job.artefact] = failure
        self.progress.fail(job, failure)
        self._leave_out(self.dependants.get(job.artefact, []))

    def _fail_here(self, job: Job, problem: str) -> None:
        """A failure of which no worker left a record."""
        error = MemlocError(problem)
        self._fail(job, record_failure(self.store, job, error, self.executor.launch))

    def _leave_out(self, artefacts: Sequence[Artefact]) -> None:
        """What these need failed, so they and all that need them are not computed."""
        todo = list(artefacts)
        while todo:
            artefact = todo.pop()
            settled = (self.finished, self.failed, self.left_out)
            if not self._is_busy(artefact) and not any(artefact in each for each in settled):
                self.left_out.add(artefact)
                self.progress.drop(self.jobs[artefact])
                todo += self.dependants.get(artefact, [])

    def _repair(self, job: Job, artefact: Artefact, problem: str) -> None:
        """An input was damaged, and is set aside now: compute it anew, then try again."""
        self.started.discard(job.artefact)
        self.repairs[artefact] += 1
        if artefact not in self.jobs or self.repairs[artefact] > REPAIRS:
            self._fail_here(job, problem)
            return
        self.progress.note(f"{problem}; it is computed anew")
        self.progress.wait(job)
        if artefact in self.finished:
            self.finished.discard(artefact)
            self._sort()
        else:
            self._again(job.artefact)


class _Ready:
    """Jobs that could run now: long ones first, so that all workers end at about the same time.

    A group counts as its smallest job, because many small jobs fill the gaps at the end. Within a
    group the order is that of the plan.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.order = {job.artefact: number for number, job in enumerate(jobs)}
        self.rank: dict[tuple[str, str], float] = {}
        for job in jobs:
            name = _group(job)
            self.rank[name] = min(job.cost, self.rank.get(name, job.cost))
        self.clear()

    def clear(self) -> None:
        self.groups: dict[tuple[str, str], dict[int, Job]] = {}
        self.heap: list[tuple[float, int, tuple[str, str]]] = []

    def add(self, job: Job) -> None:
        name = _group(job)
        group = self.groups.setdefault(name, {})
        if not group:
            heapq.heappush(self.heap, (-self.rank[name], self.order[job.artefact], name))
        group[self.order[job.artefact]] = job

    def take(self, workers: int) -> list[Job]:
        """The next bundle.

        As much of a group as leaves every worker at least one more bundle of it: large bundles
        load models rarely, and small ones at the end let all workers end together.
        """
        while self.heap and not self.groups[self.heap[0][2]]:
            heapq.heappop(self.heap)
        if not self.heap:
            return []
        group = self.groups[self.heap[0][2]]
        room = sum(job.cost for job in group.values()) / (2 * workers)
        bundle: list[Job] = []
        for number in sorted(group):
            room -= group[number].cost
            if bundle and (room < 0 or len(bundle) == LARGEST_BUNDLE):
                break
            bundle.append(group.pop(number))
        return bundle


def _group(job: Job) -> tuple[str, str]:
    """Jobs of one kind and group need the same models."""
    return job.kind, job.group or job.key


# --- one attempt, in whichever process ---


def work_through(
    bundle: Sequence[Job], store: Store, launch: str, report: Callable[[int, float], None]
) -> Iterator[Reply]:
    """Try jobs one after the other; whatever happens is a reply, never an exception."""
    for number, job in enumerate(bundle):
        reply = attempt(job, store, partial(report, number), launch)
        yield reply
        if reply["state"] == "full":
            return


def attempt(job: Job, store: Store, report: Report, launch: str = "") -> Reply:
    """Try one job in this process; only an interruption ends it with an exception."""
    try:
        with store.locks.hold(*job.artefact) as ours:
            if not ours:
                return {"state": "elsewhere"}
            if store.has(*job.artefact):
                return {"state": "there"}
            known = read_failure(store, job) if launch else None
            if known is not None and known.launch == launch:
                return {"state": "failed", "failure": asdict(known)}
            run_job(job, store, report)
            forget_failure(store, job)
            return {"state": "done"}
    except DamagedArtefact as error:
        return {"state": "damaged", "artefact": error.artefact, "problem": error.problem}
    except StoreError as error:
        return {"state": "full", "problem": error.problem, "remedy": error.remedy}
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return {"state": "full", "problem": error.strerror, "remedy": MORE_SPACE}
        failure = record_failure(store, job, error, launch)
        return {"state": "failed", "failure": asdict(failure)}


# --- failures on disk ---


def _record_of(store: Store, job: Job) -> Path:
    return store.root.parent / "failures" / f"{job.kind}-{job.key}.json"


def record_failure(store: Store, job: Job, error: Exception, launch: str = "") -> Failure:
    """Keep why a job failed, as ``<runs>/failures/<kind>-<key>.json`` and the traceback beside it.

    Best effort, as the disk may be what failed.
    """
    path = _record_of(store, job)
    log = None if isinstance(error, MemlocError) else path.with_suffix(".log")
    failure = Failure.of(job, error, log, launch)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if log is not None:
            log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        draft = path.with_suffix(".tmp")
        draft.write_text(json.dumps(asdict(failure), indent=1, ensure_ascii=False), "utf-8")
        draft.rename(path)
    return failure


def read_failure(store: Store, job: Job) -> Failure | None:
    """Why a job failed when it was last tried, if it did."""
    try:
        return Failure(**json.loads(_record_of(store, job).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def forget_failure(store: Store, job: Job) -> None:
    """It was computed after all."""
    for suffix in (".json", ".log"):
        with contextlib.suppress(OSError):
            _record_of(store, job).with_suffix(suffix).unlink(missing_ok=True)
