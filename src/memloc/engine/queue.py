"""Which job next? Knows the graph, and what became of every job; executors only carry them out."""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memloc.engine import failures
from memloc.engine.job import Job
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.errors import MemlocError

Artefact = tuple[str, str]
Reply = tuple[str, Any]
"""What became of an attempt: one of the words below, and details. JSON data, for any transport.

done: computed and stored. there: another process had stored it meanwhile. elsewhere: another
process is computing it. failed: the sentence. damaged: an input turned out damaged; kind, key and a
sentence. cannot go on: nothing could be stored; the sentence.
"""
LOSSES = 3
"""Workers that may die over a job before it counts as failed."""
MENDED = 10
"""How often an artefact may turn out damaged in one go; more than that, and the disk is broken."""


class JobFailed(MemlocError):
    """A job ended with an error; the message says which and why."""


class CannotGoOn(JobFailed):
    """A job failed in a way that all others would too, such as a full disk."""


@dataclass(frozen=True)
class Outcome:
    """How many jobs were computed, and what went wrong with the others."""

    computed: int = 0
    failed: dict[Artefact, str] = field(default_factory=dict)
    """The sentence for each job that failed; jobs that need it were left out."""


class JobQueue:
    """Jobs that wait for a worker, or for what they need.

    Args:
        jobs: All of a plan.
        finished: Those that are in the store.
        store: To see what other processes do.
        progress: Is told everything.
        failed_before: The sentence if a job is known to fail, so that it is not tried again.
        launch: See `Executor`; for records of failures that no worker could write.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        finished: set[Artefact],
        store: Store,
        progress: Progress,
        failed_before: Callable[[Job], str | None] = lambda job: None,
        launch: str = "",
    ) -> None:
        self.store, self.progress, self.failed_before = store, progress, failed_before
        self.launch = launch
        self.jobs = {job.artefact: job for job in jobs}
        self.order = {artefact: number for number, artefact in enumerate(self.jobs)}
        self.rank = _ranks(jobs)
        self.computed: set[Artefact] = set()
        self.finished = set(finished)
        self.failed: dict[Artefact, str] = {}
        self.running: set[Artefact] = set()
        self.elsewhere: set[Artefact] = set()
        self.losses: Counter[Artefact] = Counter()
        self.mended: Counter[Artefact] = Counter()
        self.waiting: dict[Artefact, int] = {}
        """How many of its needs each job still waits for."""
        self.dependents: dict[Artefact, list[Artefact]] = {}
        self.ready: dict[str, list[tuple[int, Artefact]]] = {}
        """Jobs that could run now: a heap, in the order of the plan, for each group."""
        self.groups: list[tuple[float, int, str]] = []
        """The groups with ready jobs, long ones first (a heap)."""
        for artefact, job in self.jobs.items():
            for need in set(job.needs.values()):
                if need in self.jobs:
                    self.dependents.setdefault(need, []).append(artefact)
        for artefact in self.jobs:
            if artefact not in self.finished:
                self._wait(artefact)

    @property
    def over(self) -> bool:
        """Nothing is left to do, here or elsewhere."""
        return not (self.waiting or self.running or self.elsewhere)

    def take(
        self, after: Job | None = None, fits: Callable[[Job], bool] = lambda job: True
    ) -> Job | None:
        """The next job that can run now.

        Args:
            after: What the worker did before: another of the same group needs the same models,
                which it still has in memory, and so goes before other groups.
            fits: Whether the worker can do a job; those it cannot do stay where they are.
        """
        passed_over = []
        found = None
        while found is None and (name := self._next_group(after)) is not None:
            artefact = heapq.heappop(self.ready[name])[1]
            if self.waiting.get(artefact) != 0:  # taken already, or an input turned out damaged
                continue
            job = self.jobs[artefact]
            if not fits(job):
                passed_over.append(artefact)
                continue
            words = self.failed_before(job)
            if words is not None:
                self._fail(job, words)
                continue
            found = job
        for artefact in passed_over:
            self._make_ready(artefact)
        if found is not None:
            self._start(found)
        return found

    def ready_jobs(self) -> Iterator[Job]:
        """All that `take` could give now."""
        entries = (artefact for heap in self.ready.values() for _, artefact in heap)
        for artefact in dict.fromkeys(entries):  # one that came back is there twice
            if self.waiting.get(artefact) == 0:
                yield self.jobs[artefact]

    def _start(self, job: Job) -> None:
        del self.waiting[job.artefact]
        self.running.add(job.artefact)
        self.progress.start(job)

    def _next_group(self, after: Job | None) -> str | None:
        while self.groups and not self.ready[self.groups[0][2]]:
            heapq.heappop(self.groups)
        if not self.groups:
            return None
        longest = self.groups[0][2]
        near = after.group if after is not None else None
        alone = self.jobs[self.ready[longest][0][1]].group is None
        return near if near is not None and self.ready.get(near) and not alone else longest

    def settle(self, job: Job, reply: Reply) -> None:
        """A worker is done with a job, in one way or another.

        Raises:
            CannotGoOn: If nothing can be stored any more.
        """
        word, value = reply
        self.running.discard(job.artefact)
        if word == "done":
            self.computed.add(job.artefact)
            self._finish(job)
        elif word == "there":
            self._finish(job)
        elif word == "elsewhere":
            self.elsewhere.add(job.artefact)
        elif word == "failed":
            self._fail(job, value)
        elif word == "damaged":
            self._mend(job, *value)
        else:
            raise CannotGoOn(value)

    def lost(self, job: Job, words: str) -> None:
        """The worker died; try again, unless this happens all the time."""
        self.running.discard(job.artefact)
        self.losses[job.artefact] += 1
        if self.losses[job.artefact] < LOSSES:
            self.progress.note(f"{job.title} is tried again: {words}")
            self._wait(job.artefact)
        else:
            self._fail_here(job, f"{job.title} failed {LOSSES} times: {words}")

    def look_elsewhere(self) -> None:
        """See what became of jobs that other processes compute; call it now and then."""
        for artefact in sorted(self.elsewhere, key=self.order.__getitem__):
            job = self.jobs[artefact]
            if self.store.has(*artefact):
                self.elsewhere.discard(artefact)
                self._finish(job)
            elif self.store.claims.holder(*artefact) is None:
                self.elsewhere.discard(artefact)
                self._wait(artefact)

    def watch(self) -> int:
        """See what became of jobs if workers choose them themselves; call it now and then.

        Folders are listed rather than asked for each job: thousands may be ready on a slow disk.

        Returns:
            How many jobs are settled now that were not before.
        """
        kinds = {kind for kind, _ in (*self.waiting, *self.running)}
        claimed = set(self.store.claims.all())
        failed = set(_names(self.store.root.parent / "failures"))
        stored = {(kind, key) for kind in kinds for key in _names(self.store.root / kind)}
        before = len(self.finished) + len(self.failed)
        news = True
        while news:  # what is finished makes others ready, which may be finished too
            news = False
            for job in [*self.ready_jobs(), *(self.jobs[artefact] for artefact in self.running)]:
                name = f"{job.kind}-{job.key}"
                words = self.failed_before(job) if f"{name}.json" in failed else None
                done = job.artefact in stored and self.store.has(*job.artefact)
                if (name in claimed or words or done) and job.artefact in self.waiting:
                    self._start(job)
                if done or words:
                    self.settle(job, ("done", None) if done else ("failed", words))
                    news = True
                elif name not in claimed and job.artefact in self.running:
                    self.running.discard(job.artefact)  # its worker died, or starts again
                    self._wait(job.artefact)
        return len(self.finished) + len(self.failed) - before

    def give_up(self, words: str) -> None:
        """Nobody is left to do what remains: one sentence, not one for each of thousands."""
        left = sorted({*self.running, *self.waiting, *self.elsewhere}, key=self.order.__getitem__)
        for jobs in (self.running, self.waiting, self.elsewhere):
            jobs.clear()
        others = f" and {len(left) - 1} more jobs" if len(left) > 1 else ""
        for number, artefact in enumerate(left):
            job = self.jobs[artefact]
            if number == 0:
                self._fail_here(job, f"{job.title}{others} failed: {words}")
            else:
                self.failed[artefact] = ""
                self.progress.drop(job)

    def _wait(self, artefact: Artefact) -> None:
        """Until all it needs is there; what is not among the jobs is there already."""
        needs = {need for need in self.jobs[artefact].needs.values() if need in self.jobs}
        if needs & self.failed.keys():  # it failed while this one was away
            self._leave_out(artefact)
            return
        self.waiting[artefact] = len(needs - self.finished)
        if not self.waiting[artefact]:
            self._make_ready(artefact)

    def _make_ready(self, artefact: Artefact) -> None:
        job = self.jobs[artefact]
        name = job.group or job.key
        heap = self.ready.setdefault(name, [])
        if not heap:
            heapq.heappush(self.groups, (-self.rank[name], self.order[artefact], name))
        heapq.heappush(heap, (self.order[artefact], artefact))

    def _finish(self, job: Job) -> None:
        self.finished.add(job.artefact)
        self.progress.finish(job)
        for artefact in self.dependents.get(job.artefact, ()):
            if artefact in self.waiting:
                self.waiting[artefact] -= 1
                if not self.waiting[artefact]:
                    self._make_ready(artefact)

    def _fail(self, job: Job, words: str) -> None:
        """It cannot be computed, nor can what needs it."""
        self.waiting.pop(job.artefact, None)
        self.failed[job.artefact] = words
        self.progress.fail(job, words)
        for artefact in self.dependents.get(job.artefact, ()):
            if artefact in self.waiting:
                self._leave_out(artefact)

    def _fail_here(self, job: Job, words: str) -> None:
        """A failure of which no worker could leave a record."""
        failures.record(self.store, job, words, None, self.launch)
        self._fail(job, words)

    def _leave_out(self, artefact: Artefact) -> None:
        """What it needs failed, so it and all that need it are not computed."""
        left_out = [artefact]
        while left_out:
            artefact = left_out.pop()
            self.waiting.pop(artefact, None)
            if artefact not in self.failed:
                self.failed[artefact] = ""
                self.progress.drop(self.jobs[artefact])
                left_out += [a for a in self.dependents.get(artefact, ()) if a in self.waiting]

    def _mend(self, job: Job, kind: str, key: str, words: str) -> None:
        """An input was damaged, and is set aside now: compute it anew, then try again."""
        artefact = kind, key
        self.mended[artefact] += 1
        if artefact not in self.jobs or self.mended[artefact] > MENDED:
            self._fail_here(job, f"{job.title} failed: {words}")
            return
        self.progress.note(words.split(";")[0] + "; it is computed anew")
        if artefact in self.finished:
            self.finished.discard(artefact)
            for other in self.dependents.get(artefact, ()):
                if other in self.waiting:
                    self.waiting[other] += 1
            self._wait(artefact)
        self._wait(job.artefact)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # not there yet, or the file system hiccups: the next look will tell


def _ranks(jobs: Sequence[Job]) -> dict[str, float]:
    """Long jobs first, so that all workers end at about the same time.

    A group counts as its smallest job: many small jobs are what fills the gaps at the end.
    """
    rank: dict[str, float] = {}
    for job in jobs:
        name = job.group or job.key
        rank[name] = min(job.cost, rank.get(name, job.cost))
    return rank
