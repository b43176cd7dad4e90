"""One loop for all executors: what is ready is submitted, what comes back is recorded.

`graphlib.TopologicalSorter` says which jobs are ready. An executor says where they run: it takes a
bundle of jobs and gives a future. Several loops can work on one store, as every job has a lock.
"""

from __future__ import annotations

import contextlib
import heapq
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from graphlib import TopologicalSorter

from memloc.engine.job import (
    Artefact,
    Failure,
    Job,
    JobFailed,
    Reply,
    forget_failures,
    read_failure,
    record_failure,
    recorded_failures,
)
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.errors import MemlocError
from memloc.training.resume import forget_finished

Tell = Callable[[Job, float | Reply], None]
"""How an executor reports before a bundle is over: how far a job is, or what became of it."""
LOOK_EVERY = 1.0
"""Seconds between two looks at what other processes have done."""
REPAIRS = 10
"""How often an artefact may turn out damaged; after that, the disk is probably broken."""
LARGEST_BUNDLE = 100
LOOKS = ("states", "localise", "explain")
"""Kinds of jobs that look at models without training any."""


class CannotGoOn(JobFailed):
    """A job failed in a way that all others would too, such as a full disk."""


class WorkerLost(Exception):
    """Whoever computed a bundle is gone; the message says how."""


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
    """

    slots = 1
    """Bundles that may be under way at once."""
    workers = 1
    """Jobs that probably run at once; decides how large bundles are."""
    attempts = 3
    """Workers that may be lost over a job before it counts as failed."""
    reports = True
    """Whether jobs are reported as they begin and end; else the loop looks into the store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __enter__(self) -> Executor:
        """Nothing starts yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stop whatever still runs."""
        self.stop()

    def execute(self, jobs: Sequence[Job], progress: Progress) -> Outcome:
        """Compute all jobs that are not in the store yet.

        A job that fails takes with it only those that need its result; the others go on. What
        failed earlier is tried again.

        Raises:
            CannotGoOn: If nothing could be stored any more.
        """
        forget_failures(self.store, jobs)
        return Loop(self, jobs, progress).run()

    def connect(self) -> None:  # noqa: B027 (most need not)
        """Reach whoever computes, if that can fail; nothing is shown before.

        Raises:
            ClusterError: If it does.
        """

    @abstractmethod
    def submit(self, bundle: Sequence[Job], tell: Tell) -> Future[None]:
        """Have jobs computed one after the other.

        Args:
            bundle: Jobs that share models, so that these are loaded once.
            tell: May be called from any thread.

        Returns:
            Ends when everything was told that is not seen in the store; or with `WorkerLost`.
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
        self.needs: dict[Artefact, list[Artefact]] = {}
        self.dependants: defaultdict[Artefact, list[Artefact]] = defaultdict(list)
        for artefact, job in self.jobs.items():
            self.needs[artefact] = [need for need in job.needs.values() if need in self.jobs]
            for need in self.needs[artefact]:
                self.dependants[need].append(artefact)
        self.ready = _Ready(self.jobs.values())
        self.submitted: set[Artefact] = set()
        self.elsewhere: set[Artefact] = set()
        """What another loop computes."""
        self.finished: set[Artefact] = set()
        self.computed: set[Artefact] = set()
        self.failed: dict[Artefact, Failure] = {}
        self.left_out: set[Artefact] = set()
        self.damaged: set[Artefact] = set()
        """Inputs that are computed anew in the next round, and then what needs them."""
        self.bundles = 0
        """Under way."""
        self.losses: Counter[Artefact] = Counter()
        self.repairs: Counter[Artefact] = Counter()
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
        with self.progress.showing(waiting, [self.jobs[artefact] for artefact in self.finished]):
            self._round()
            while self.damaged:
                self.finished -= self.damaged
                self.damaged.clear()
                self._round()
        return Outcome(len(self.computed), self.failed, frozenset(self.left_out))

    def _round(self) -> None:
        """Compute all that can be; a sorter cannot take back that a damaged input is done."""
        settled = self.finished | self.failed.keys() | self.left_out
        self.sorter = TopologicalSorter(
            {
                artefact: [need for need in needs if need not in settled]
                for artefact, needs in self.needs.items()
                if artefact not in settled
            }
        )
        self.sorter.prepare()
        self._add_ready()
        while self.ready or self.bundles or self.submitted or self.elsewhere:
            while self.ready and self.bundles < self.executor.slots:
                self._submit(self.ready.take(self.executor.workers))
            self._wait()

    def _add_ready(self) -> None:
        for artefact in self.sorter.get_ready():
            self.ready.add(self.jobs[artefact])

    def _submit(self, bundle: list[Job]) -> None:
        def call(future: Future[None]) -> None:
            # Not handled at once, even in this thread: exceptions would get lost in the future.
            self.events.put(partial(self._over, bundle, future))

        self.submitted |= {job.artefact for job in bundle}
        self.bundles += 1
        self.executor.submit(bundle, self._tell).add_done_callback(call)

    # --- what comes back ---

    def _tell(self, job: Job, news: float | Reply) -> None:
        if isinstance(news, dict):
            event = partial(self._settle, job, news)
        elif news == 0:
            event = partial(self.progress.start, job)
        else:
            event = partial(self.progress.advance, job, news)
        if threading.get_ident() == self.thread:
            event()
        else:
            self.events.put(event)

    def _wait(self) -> None:
        """For news, but not for longer than until the next look."""
        with contextlib.suppress(queue.Empty):
            pause = self.looked + LOOK_EVERY - time.monotonic()
            self.events.get(timeout=max(0.0, pause))()
            while True:
                self.events.get_nowait()()
        if time.monotonic() - self.looked >= LOOK_EVERY:
            self.executor.poll(self.progress)
            self._look()
            self.looked = time.monotonic()

    def _look(self) -> None:
        """See in the store what other processes do."""
        watched = self.elsewhere | (set() if self.executor.reports else self.submitted)
        if not watched:
            return
        held = self.store.locks.holders()
        stored = {kind: set(self.store.keys(kind)) for kind in {kind for kind, _ in watched}}
        failed = recorded_failures(self.store)
        for artefact in sorted(watched):
            job, (kind, key) = self.jobs[artefact], artefact
            ours, name = artefact in self.submitted, f"{kind}-{key}"
            if key in stored[kind] and self.store.has(kind, key):
                if ours:
                    self.computed.add(artefact)
                self._finish(artefact)
            elif not ours:
                if not self.store.locks.held(kind, key):
                    self.elsewhere.discard(artefact)
                    self.ready.add(job)
            elif name in held:
                self.progress.start(job)
            elif name in failed and (failure := read_failure(self.store, job)) is not None:
                self._fail(job, failure)
            else:
                self.progress.wait(job)

    def _over(self, bundle: Sequence[Job], future: Future[None]) -> None:
        self.bundles -= 1
        try:
            future.result()
        except WorkerLost as loss:
            self._lost(bundle, str(loss))

    def _lost(self, bundle: Sequence[Job], reason: str) -> None:
        """The first job without a result cost the worker its life, perhaps; the others wait."""
        left = [job for job in bundle if job.artefact in self.submitted]
        self.submitted -= {job.artefact for job in left}
        for job in left[:1]:
            self.losses[job.artefact] += 1
            times = self.losses[job.artefact]
            if times >= self.executor.attempts:
                self._fail_here(job, f"{reason}, {times} times" if times > 1 else reason)
                left.remove(job)
            else:
                self.progress.note(f"{job.title} is tried again: {reason}")
        for job in left:
            self.progress.wait(job)
            self.ready.add(job)

    def _settle(self, job: Job, reply: Reply) -> None:
        """An attempt is over, in one way or another.

        Raises:
            CannotGoOn: If nothing can be stored any more.
        """
        artefact = job.artefact
        if artefact not in self.submitted:  # the result was seen in the store before
            if reply["state"] == "there":
                self.computed.discard(artefact)
            return
        self.submitted.discard(artefact)
        match reply["state"]:
            case "done":
                self.computed.add(artefact)
                self._finish(artefact)
            case "there":
                self._finish(artefact)
            case "elsewhere":
                self.elsewhere.add(artefact)
            case "failed":
                self._fail(job, Failure(**reply["failure"]))
            case "damaged":
                self._repair(job, tuple(reply["artefact"]), reply["problem"])
            case _:
                problem = f"{job.title} failed: {reply['problem']}"
                raise CannotGoOn(problem, remedy=reply["remedy"])

    def _finish(self, artefact: Artefact) -> None:
        self.submitted.discard(artefact)
        self.elsewhere.discard(artefact)
        self.finished.add(artefact)
        self.progress.finish(self.jobs[artefact])
        self.sorter.done(artefact)
        self._add_ready()

    def _fail(self, job: Job, failure: Failure) -> None:
        """It cannot be computed, nor can what needs it."""
        self.submitted.discard(job.artefact)
        self.failed[job.artefact] = failure
        self.progress.fail(job, failure)
        todo = list(self.dependants[job.artefact])
        while todo:
            artefact = todo.pop()
            if artefact not in self.left_out and artefact not in self.finished:
                self.left_out.add(artefact)
                self.progress.drop(self.jobs[artefact])
                todo += self.dependants[artefact]

    def _fail_here(self, job: Job, problem: str) -> None:
        """A failure of which no worker left a record."""
        self._fail(job, record_failure(self.store, job, MemlocError(problem)))

    def _repair(self, job: Job, artefact: Artefact, problem: str) -> None:
        """An input was damaged, and is set aside now: the next round computes it anew."""
        self.repairs[artefact] += 1
        if artefact not in self.jobs or self.repairs[artefact] > REPAIRS:
            self._fail_here(job, problem)
            return
        self.progress.note(f"{problem}; it is computed anew")
        for each in (job, self.jobs[artefact]):
            self.progress.wait(each)
        self.damaged.add(artefact)


class _Ready:
    """Jobs that could run now: long ones first, so that all workers end at about the same time.

    Jobs of a group come one after the other, in the order of the plan; they count as their average.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        members: defaultdict[str, list[tuple[int, Job]]] = defaultdict(list)
        for number, job in enumerate(jobs):
            members[_group(job)].append((number, job))
        self.place = {
            job.artefact: (-average, group[0][0], number)
            for group in members.values()
            for average in [sum(job.cost for _, job in group) / len(group)]
            for number, job in group
        }
        self.heap: list[tuple[tuple[float, int, int], Job]] = []
        self.cost = 0.0

    def __len__(self) -> int:
        return len(self.heap)

    def add(self, job: Job) -> None:
        heapq.heappush(self.heap, (self.place[job.artefact], job))
        self.cost += job.cost

    def take(self, workers: int) -> list[Job]:
        """The next bundle.

        As much of a group as leaves every worker at least one more such bundle: large bundles load
        models rarely, and small ones at the end let all workers end together.
        """
        group = _group(self.heap[0][1])
        room = self.cost / (2 * workers)
        bundle: list[Job] = []
        while self.heap and _group(self.heap[0][1]) == group and len(bundle) < LARGEST_BUNDLE:
            cost = self.heap[0][1].cost
            if bundle and cost > room:
                break
            bundle.append(heapq.heappop(self.heap)[1])
            room -= cost
            self.cost -= cost
        return bundle


def _group(job: Job) -> str:
    """Jobs that share models: those of one kind and group, or all that look at one θ_M."""
    if job.group is not None or job.kind not in LOOKS:
        return f"{job.kind} {job.group or job.key}"
    model = job.needs.get("memorised") or job.needs.get("near_ceiling")
    given = job.where.get("models", {}).get("memorised")
    return str(model or (given and (given, job.needs["data"])) or job.artefact)
