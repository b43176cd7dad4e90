"""One loop for all executors: what is ready is submitted, what comes back is recorded.

`graphlib.TopologicalSorter` says which jobs are ready. An executor says where they run: it takes a
bundle of jobs and gives a future. What state a job is in, only `Progress` knows. Several loops can
work on one store, as every job has a lock.
"""

from __future__ import annotations

import contextlib
import heapq
import queue
import threading
import time
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    Tell,
    forget_failures,
    read_failure,
    record_failure,
    recorded_failures,
)
from memloc.engine.progress import OPEN, Progress
from memloc.engine.store.store import Store
from memloc.errors import MemlocError
from memloc.training.resume import forget_finished

LOOK_EVERY = 1.0
"""Seconds between two looks at what other processes have done."""
REPAIRS = 5
"""How often a job may find a damaged input; after that, the disk is probably broken."""
LARGEST_BUNDLE = 100


class CannotGoOn(JobFailed):
    """A job failed in a way that all others would too, such as a full disk."""


class WorkerLost(Exception):
    """Whoever computed a bundle is gone; the message says how."""


@dataclass(frozen=True)
class Outcome:
    """What became of jobs: what was left out needs the result of one that failed."""

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


class Executor(contextlib.AbstractContextManager["Executor"]):
    """Computes jobs somewhere, for as long as the `with` block lasts; results go to the store."""

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

    def __exit__(self, *error: object) -> None:
        """Stop whatever still runs."""
        self.stop()

    def execute(
        self,
        jobs: Sequence[Job],
        progress: Progress,
        again: bool = True,
        first: Collection[Artefact] = (),
    ) -> Outcome:
        """Compute all jobs that are not in the store yet.

        A job that fails takes with it only those that need its result; the others go on.

        Args:
            jobs: All of a plan; what they need is in the store or among them.
            progress: Is told everything.
            again: Whether what failed earlier is tried again.
            first: What, with all that it needs, comes before everything else.

        Raises:
            CannotGoOn: If nothing could be stored any more.
        """
        if again:
            forget_failures(self.store, jobs)
        outcome = _Loop(self, jobs, progress, first).run()
        self.finish()
        return outcome

    def connect(self, jobs: Sequence[Job]) -> None:
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

    def poll(self, progress: Progress) -> None:
        """Look after workers; called every second or so."""

    def finish(self) -> None:
        """Called when nothing is left to do."""

    @abstractmethod
    def stop(self) -> None:
        """End whatever still runs."""


class _Loop:
    """Carries out jobs, in the order of what they need; see `Executor.execute`."""

    def __init__(
        self,
        executor: Executor,
        jobs: Sequence[Job],
        progress: Progress,
        first: Collection[Artefact] = (),
    ) -> None:
        self.executor, self.store, self.progress = executor, executor.store, progress
        self.jobs = {job.artefact: job for job in jobs}
        self.dependants: defaultdict[Artefact, list[Artefact]] = defaultdict(list)
        for artefact, job in self.jobs.items():
            for need in job.needs.values():
                self.dependants[need].append(artefact)
        self.ready = Ready(jobs, leading_to(first, self.jobs))
        self.bundles = 0
        """Under way."""
        self.submitted: set[Artefact] = set()
        self.elsewhere: set[Artefact] = set()
        """What another loop computes."""
        self.computed: set[Artefact] = set()
        self.failed: dict[Artefact, Failure] = {}
        self.attempts: Counter[Artefact] = Counter()
        """Those that failed through no fault of the job."""
        self.events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.thread = threading.get_ident()
        self.looked = time.monotonic()

    def run(self) -> Outcome:
        """Until every job is done, failed or left out."""
        todo: list[Job] = []
        finished: list[Job] = []
        for artefact, job in self.jobs.items():
            (finished if self.store.sound(*artefact) else todo).append(job)
        for problem in self.store.damaged:
            self.progress.note(f"{problem}; it is computed anew")
        self.store.damaged.clear()
        if not todo:
            return Outcome()
        self.store.sweep_leftovers()
        forget_finished(self.store)
        self.executor.connect(list(self.jobs.values()))
        with self.progress.showing(todo, finished):
            # More than once if an input was damaged: a sorter cannot take back that it is done.
            while waiting := {a for a in self.jobs if self.progress.states[a] in OPEN}:
                self._compute(waiting)
        left_out = frozenset(a for a in self.jobs if self.progress.states[a] == "left_out")
        return Outcome(len(self.computed), self.failed, left_out)

    def _compute(self, waiting: set[Artefact]) -> None:
        """All that can be."""
        needs = {a: [n for n in self.jobs[a].needs.values() if n in waiting] for a in waiting}
        self.sorter = TopologicalSorter(needs)
        self.sorter.prepare()
        self._add_ready()
        while self.ready or self.bundles or self.submitted or self.elsewhere:
            while self.ready and self.bundles < self.executor.slots:
                bundle = self.ready.take(self.executor.workers)
                if not any(map(self._lacks_input, bundle)):
                    self._submit(bundle)
            if self.bundles or self.submitted or self.elsewhere:
                self._wait()

    def _lacks_input(self, job: Job) -> bool:
        """Whether something it needs was there, but turned out damaged since."""
        return any(self.progress.states.get(need) in OPEN for need in job.needs.values())

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
        if threading.get_ident() == self.thread:
            self._hear(job, news)
        else:
            self.events.put(partial(self._hear, job, news))

    def _hear(self, job: Job, news: float | Reply) -> None:
        if isinstance(news, dict):
            self._settle(job, news)
        elif news == 0:
            self.progress.start(job)
        else:
            self.progress.advance(job, news)

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
            if key in stored[kind] and self.store.has(kind, key):
                if artefact in self.submitted:
                    self.computed.add(artefact)
                self._finish(artefact)
            elif artefact in self.elsewhere:
                if not self.store.locks.held(kind, key):
                    self.elsewhere.discard(artefact)
                    self.ready.add(job)
            elif job.name in held:
                self.progress.start(job)
            elif job.name in failed and (failure := read_failure(self.store, job)) is not None:
                self._fail(job, failure)
            else:
                self.progress.wait(job)

    def _over(self, bundle: Sequence[Job], future: Future[None]) -> None:
        self.bundles -= 1
        try:
            future.result()
        except WorkerLost as loss:
            left = [job for job in bundle if job.artefact in self.submitted]
            self.submitted -= {job.artefact for job in left}
            for job in left:
                if job is left[0] and not self._try_again(job, str(loss), self.executor.attempts):
                    continue  # it may have cost the worker its life
                self.progress.wait(job)
                self.ready.add(job)

    def _try_again(self, job: Job, problem: str, most: int) -> bool:
        """Whether a job that was not to blame is tried again; else it has failed."""
        self.attempts[job.artefact] += 1
        times = self.attempts[job.artefact]
        if times < most:
            self.progress.note(f"{job.title} is tried again: {problem}")
            return True
        words = f"{problem}, {times} times" if times > 1 else problem
        self._fail(job, record_failure(self.store, job, MemlocError(words)))
        return False

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
            if self.progress.states[artefact] in OPEN:
                self.progress.drop(self.jobs[artefact])
                todo += self.dependants[artefact]

    def _repair(self, job: Job, artefact: Artefact, problem: str) -> None:
        """An input was damaged, and is set aside now: both are computed when all else is."""
        if self._try_again(job, problem, REPAIRS if artefact in self.jobs else 1):
            for each in (job, self.jobs[artefact]):
                self.progress.wait(each)


def leading_to(artefacts: Collection[Artefact], jobs: Mapping[Artefact, Job]) -> set[Artefact]:
    """These artefacts and all that they need, as far as it is among the jobs."""
    found: set[Artefact] = set()
    todo = list(artefacts)
    while todo:
        artefact = todo.pop()
        if artefact in jobs and artefact not in found:
            found.add(artefact)
            todo += jobs[artefact].needs.values()
    return found


class Ready:
    """Jobs that could run now: long ones first, so that all workers end at about the same time.

    Jobs of a group come one after the other, in the order of the plan; they count as their average.

    Args:
        jobs: All of a plan.
        urgent: Those that come before all others, however long these are.
    """

    def __init__(self, jobs: Iterable[Job], urgent: Collection[Artefact] = ()) -> None:
        groups: defaultdict[str, list[tuple[int, Job]]] = defaultdict(list)
        for number, job in enumerate(jobs):
            groups[job.group or job.key].append((number, job))
        self.place = {
            job.artefact: (job.artefact not in urgent, -average, group[0][0], number)
            for group in groups.values()
            for average in [sum(job.cost for _, job in group) / len(group)]
            for number, job in group
        }
        self.heap: list[tuple[tuple[bool, float, int, int], Job]] = []
        self.cost = 0.0

    def __len__(self) -> int:
        """How many."""
        return len(self.heap)

    def add(self, job: Job) -> None:
        """It has all that it needs."""
        heapq.heappush(self.heap, (self.place[job.artefact], job))
        self.cost += job.cost

    def take(self, workers: int) -> list[Job]:
        """The next bundle.

        As much of a group as leaves every worker at least one more such bundle: large bundles load
        models rarely, and small ones at the end let all workers end together.
        """
        room = self.cost / (2 * workers)
        bundle: list[Job] = []
        while self.heap and len(bundle) < LARGEST_BUNDLE:
            job = self.heap[0][1]
            if bundle and (job.group is None or job.group != bundle[0].group or job.cost > room):
                break
            bundle.append(heapq.heappop(self.heap)[1])
            room -= job.cost
            self.cost -= job.cost
        return bundle
