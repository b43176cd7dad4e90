"""Run jobs on this machine: in worker processes with one thread each, or here if one is enough.

Workers get jobs through a pipe and report back through it. Finished work is in the store before a
worker says so; whatever happens to a worker, at most its job in progress is lost.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from memloc.errors import MemlocError, StoreError
from memloc.execution.job import Job, Report, run_job
from memloc.execution.progress import Progress
from memloc.store.store import Store

Artefact = tuple[str, str]
REPORT_EVERY = 0.2
"""Seconds between two progress messages of a worker."""


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


class Executor:
    """Worker processes for as long as the `with` block lasts; they start when there is work.

    Args:
        store: Where results go.
        workers: Processes with one thread each; 1 means to work in this process.
    """

    def __init__(self, store: Store, workers: int) -> None:
        self.store, self.workers = store, workers
        self.pool = _Pool(store)

    def __enter__(self) -> Executor:
        """Nothing starts yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the workers, and free what this process kept if it did the work."""
        self.pool.stop()
        inputs = sys.modules.get("memloc.execution.inputs")
        if inputs is not None:
            inputs.forget_context()

    def execute(self, jobs: Sequence[Job], progress: Progress) -> Outcome:
        """Compute all jobs that are not in the store yet.

        A job that fails takes with it only those that need its result; the others go on.

        Raises:
            CannotGoOn: If nothing could be stored any more.
        """
        waiting = [job for job in jobs if not self.store.sound(*job.artefact)]
        for words in self.store.damaged:
            progress.note(words)
        self.store.damaged.clear()
        if not waiting:
            return Outcome()
        self.store.sweep_leftovers()
        queue = _Queue(waiting, progress)
        with progress.showing(waiting):
            if self.workers > 1:
                self.pool.run(queue, min(self.workers, len(waiting)))
            else:
                while job := queue.take():
                    try:
                        _attempt(job, self.store, partial(progress.advance, job))
                    except CannotGoOn:
                        raise
                    except JobFailed as error:
                        queue.fail(job, str(error))
                    else:
                        queue.finish(job)
        return Outcome(len(queue.done), queue.failed)


class _Queue:
    """Jobs that wait for a worker, or for what they need."""

    def __init__(self, jobs: list[Job], progress: Progress) -> None:
        # Long jobs first, so that all workers end at about the same time. A group counts as its
        # smallest job: many small jobs are what fills the gaps at the end.
        rank: dict[str, float] = {}
        for job in jobs:
            name = job.group or job.key
            rank[name] = min(job.cost, rank.get(name, job.cost))
        self.waiting = sorted(jobs, key=lambda job: -rank[job.group or job.key])
        self.progress = progress
        self.running: set[Artefact] = set()
        self.done: set[Artefact] = set()
        self.failed: dict[Artefact, str] = {}

    def take(self) -> Job | None:
        """The next job that can run now."""
        unfinished = {job.artefact for job in self.waiting} | self.running
        for job in self.waiting:
            if not unfinished & set(job.needs.values()):
                self.waiting.remove(job)
                self.running.add(job.artefact)
                self.progress.start(job)
                return job
        return None

    def finish(self, job: Job) -> None:
        """It is in the store."""
        self.running.remove(job.artefact)
        self.done.add(job.artefact)
        self.progress.finish(job)

    def fail(self, job: Job, words: str) -> None:
        """It cannot be computed, nor can what needs it."""
        self.running.discard(job.artefact)
        self.failed[job.artefact] = words
        self.progress.fail(job, words)
        self._drop_dependents(job)

    def _drop_dependents(self, job: Job) -> None:
        """Leave out what needs a job that failed or was left out itself."""
        for other in [o for o in self.waiting if job.artefact in o.needs.values()]:
            if other in self.waiting:  # it may also need another one that was just left out
                self.waiting.remove(other)
                self.failed[other.artefact] = ""
                self.progress.drop(other)
                self._drop_dependents(other)


def default_workers(device: str) -> int:
    """One per core for the CPU (every job has one thread), one for an accelerator."""
    if device != "cpu":
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Pool:
    """A few worker processes and what they are busy with."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.idle: list[Connection] = []
        self.busy: dict[Connection, Job] = {}
        self.processes: dict[Connection, BaseProcess] = {}

    def run(self, queue: _Queue, workers: int) -> None:
        """Until the queue is empty."""
        while queue.waiting or self.busy:
            while len(self.processes) < workers:
                self._start_worker()
            while self.idle and (job := queue.take()):
                connection = self.idle.pop()
                self.busy[connection] = job
                # If the worker has died meanwhile, receiving will say so.
                with contextlib.suppress(OSError):
                    connection.send(job)
            for readable in wait(list(self.busy), timeout=0.5):
                assert isinstance(readable, Connection)
                self._receive(readable, queue)

    def _start_worker(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self.store.root), daemon=True)
        # Ctrl-C is the parent's business; set before the start, as importing takes seconds.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, before)
        theirs.close()
        self.processes[ours] = process
        self.idle.append(ours)

    def _receive(self, connection: Connection, queue: _Queue) -> None:
        job = self.busy[connection]
        try:
            kind, value = connection.recv()
        except (EOFError, OSError):
            process = self.processes.pop(connection)
            process.join(timeout=5)
            del self.busy[connection]
            connection.close()
            queue.fail(
                job,
                f"{job.title} failed: its worker process died (exit code {process.exitcode}), "
                "perhaps for lack of memory; run again with fewer --workers",
            )
            return
        if kind == "progress":
            queue.progress.advance(job, value)
            return
        del self.busy[connection]
        self.idle.append(connection)
        if kind == "done":
            queue.finish(job)
        elif kind == "failed":
            queue.fail(job, value)
        else:
            raise CannotGoOn(value)

    def stop(self) -> None:
        """End the processes, whatever they do."""
        for process in self.processes.values():
            process.terminate()
        for connection, process in self.processes.items():
            process.join(timeout=3)
            if process.is_alive():
                process.kill()
                process.join()
            connection.close()
        if self.processes:
            self.store.sweep_leftovers()


def _work(connection: Connection, root: Path) -> None:
    """What a worker process does until its pipe closes."""
    _die_with_parent()
    store = Store(root)
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        last = 0.0

        def report(fraction: float) -> None:
            nonlocal last
            if time.monotonic() - last > REPORT_EVERY:
                last = time.monotonic()
                _send(connection, ("progress", fraction))

        try:
            _attempt(job, store, report)
        except CannotGoOn as error:
            _send(connection, ("cannot go on", str(error)))
        except JobFailed as error:
            _send(connection, ("failed", str(error)))
        else:
            _send(connection, ("done", None))


def _send(connection: Connection, message: tuple[str, Any]) -> None:
    try:
        connection.send(message)
    except (BrokenPipeError, OSError):
        sys.exit(1)  # nobody listens any more


def _attempt(job: Job, store: Store, report: Report) -> None:
    """Run a job; whatever goes wrong becomes one sentence, with the traceback in a file."""
    try:
        run_job(job, store, report)
    except StoreError as error:
        raise CannotGoOn(f"{job.title} failed: {error}") from None
    except MemlocError as error:
        raise JobFailed(f"{job.title} failed: {error}") from None
    except Exception as error:
        log = store.root.parent / "failures" / f"{job.kind}-{job.key[:8]}.log"
        with contextlib.suppress(OSError):
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        reason = str(error).strip().split("\n")[0]
        raise JobFailed(
            f"{job.title} failed: {type(error).__name__}: {reason} (details in {log})"
        ) from None


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
