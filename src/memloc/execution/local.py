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
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from memloc.errors import MemlocError
from memloc.execution.job import Job, Report, run_job
from memloc.execution.progress import Progress
from memloc.store.store import Store

REPORT_EVERY = 0.2
"""Seconds between two progress messages of a worker."""


class JobFailed(MemlocError):
    """A job ended with an error; the message says which and why."""


def execute(jobs: Sequence[Job], store: Store, workers: int, progress: Progress) -> int:
    """Compute all jobs that are not in the store yet; return how many were computed.

    Raises:
        JobFailed: When a job fails. Jobs that were done before it stay done.
    """
    waiting = [job for job in jobs if not store.sound(*job.artefact)]
    for words in store.damaged:
        progress.note(words)
    if not waiting:
        return 0
    store.sweep_leftovers()
    workers = min(workers, len(waiting))
    with progress.showing(waiting):
        if workers <= 1:
            for job in _in_order(waiting):
                progress.start(job)
                _attempt(job, store, partial(progress.advance, job))
                progress.finish(job)
        else:
            _Pool(store, workers, progress).run(waiting)
    return len(waiting)


def default_workers(device: str) -> int:
    """One per core for the CPU (every job has one thread), one for an accelerator."""
    if device != "cpu":
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _in_order(jobs: list[Job]) -> list[Job]:
    """Jobs after what they need."""
    done: set[tuple[str, str]] = set()
    names = {job.artefact for job in jobs}
    ordered: list[Job] = []
    while len(ordered) < len(jobs):
        for job in jobs:
            needed = set(job.needs.values()) & names
            if job.artefact not in done and needed <= done:
                ordered.append(job)
                done.add(job.artefact)
    return ordered


class _Pool:
    """A few worker processes and the jobs that they have not done yet."""

    def __init__(self, store: Store, workers: int, progress: Progress) -> None:
        self.store, self.workers, self.progress = store, workers, progress
        self.idle: list[Connection] = []
        self.busy: dict[Connection, Job] = {}
        self.processes: dict[Connection, BaseProcess] = {}

    def run(self, jobs: list[Job]) -> None:
        waiting = sorted(jobs, key=lambda job: -job.cost)  # long jobs first
        try:
            for _ in range(self.workers):
                self._start_worker()
            while waiting or self.busy:
                unfinished = {job.artefact for job in [*waiting, *self.busy.values()]}
                ready = [job for job in waiting if not unfinished & set(job.needs.values())]
                while self.idle and ready:
                    job = ready.pop(0)
                    waiting.remove(job)
                    connection = self.idle.pop()
                    self.busy[connection] = job
                    self.progress.start(job)
                    # If the worker has died meanwhile, receiving will say so.
                    with contextlib.suppress(OSError):
                        connection.send(job)
                for readable in wait(list(self.busy), timeout=0.5):
                    assert isinstance(readable, Connection)
                    self._receive(readable)
        finally:
            self._stop()

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

    def _receive(self, connection: Connection) -> None:
        job = self.busy[connection]
        try:
            kind, value = connection.recv()
        except (EOFError, OSError):
            process = self.processes[connection]
            process.join(timeout=5)
            raise JobFailed(
                f"{job.title} failed: its worker process died (exit code {process.exitcode}), "
                "perhaps for lack of memory; run again with fewer --workers"
            ) from None
        if kind == "progress":
            self.progress.advance(job, value)
        elif kind == "done":
            self.progress.finish(job)
            self.idle.append(connection)
            del self.busy[connection]
        else:
            raise JobFailed(value)

    def _stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for connection, process in self.processes.items():
            process.join(timeout=3)
            if process.is_alive():
                process.kill()
                process.join()
            connection.close()
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
