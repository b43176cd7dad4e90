"""What all executors have in common: what is to be done, how one job is tried, what it costs.

An executor only says where jobs run: `memloc.engine.local` in processes of this machine,
`memloc.engine.on_ray` on a Ray cluster, `memloc.engine.on_slurm` in jobs of Slurm. Results
are the same: a job is data, its result is in the store before anybody hears of it, and whoever
computes it holds a claim, so that others who share the store leave it alone.
"""

from __future__ import annotations

import errno
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence

from memloc.engine import failures
from memloc.engine.job import Job, Report, run_job
from memloc.engine.progress import Progress
from memloc.engine.queue import JobQueue, Outcome, Reply
from memloc.engine.store.store import DamagedArtefact, Store
from memloc.errors import MemlocError, StoreError
from memloc.training.resume import forget_finished

LOOK_EVERY = 1.0
"""Seconds between two looks at what other processes have done."""


class Executor(ABC):
    """Computes jobs, for as long as the `with` block lasts.

    Args:
        store: Where results go.
        launch: Which start of which command this is. Several executors of one launch (the workers
            of a cluster) do not repeat what failed in another; a new launch tries everything again.
    """

    def __init__(self, store: Store, launch: str | None = None) -> None:
        self.store = store
        self.shares_launch = launch is not None
        self.launch = launch or uuid.uuid4().hex

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
        finished = {job.artefact for job in jobs if self.store.sound(*job.artefact)}
        for words in self.store.damaged:
            progress.note(words)
        self.store.damaged.clear()
        waiting = [job for job in jobs if job.artefact not in finished]
        if not waiting:
            return Outcome()
        self.store.sweep_leftovers()
        forget_finished(self.store)
        queue = JobQueue(jobs, finished, self.store, progress, self._failed_before, self.launch)
        self.connect()
        with progress.showing(waiting):
            self.work(queue)
        return Outcome(len(queue.computed), queue.failed)

    def _failed_before(self, job: Job) -> str | None:
        if not self.shares_launch:
            return None
        found = failures.failure_of(self.store, job)
        return str(found["reason"]) if found and found.get("launch") == self.launch else None

    def connect(self) -> None:  # noqa: B027 (most need not)
        """Reach whoever computes, if that can fail; nothing is shown before.

        Raises:
            ClusterError: If it does.
        """

    @abstractmethod
    def work(self, queue: JobQueue) -> None:
        """Carry out jobs until the queue is over.

        Raises:
            CannotGoOn: If nothing could be stored any more.
        """

    @abstractmethod
    def stop(self) -> None:
        """End whatever still runs."""


def attempt(job: Job, store: Store, report: Report, launch: str) -> Reply:
    """Try one job in this process; whatever happens is a reply, never an exception.

    Interruption is the exception to that.
    """
    try:
        with store.claims.hold(*job.artefact, job.title) as ours:
            if not ours:
                return "elsewhere", None
            if store.has(*job.artefact):
                return "there", None
            run_job(job, store, report)
            failures.forget(store, job)
            return "done", None
    except DamagedArtefact as error:
        return "damaged", [*error.artefact, str(error)]
    except StoreError as error:
        return "cannot go on", f"{job.title} failed: {error}"
    except MemlocError as error:
        words = f"{job.title} failed: {error}"
        failures.record(store, job, words, None, launch)
        return "failed", words
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            full = f"{error.strerror}; free some space or choose another folder with --runs DIR"
            return "cannot go on", f"{job.title} failed: {full}"
        reason = str(error).strip().split("\n")[0]
        words = (
            f"{job.title} failed: {type(error).__name__}: {reason} (details in "
            f"{failures.log_of(store, job)})"
        )
        failures.record(store, job, words, error, launch)
        return "failed", words
