"""Run jobs on this machine: in worker processes with one thread each, or here if one is enough.

Workers get jobs as text through a pipe and report back through it. Finished work is in the store
before a worker says so; whatever happens to a worker, at most its job in progress is lost, and that
is tried again.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from memloc.engine.device import visible_gpus
from memloc.engine.executor import LOOK_EVERY, Executor, attempt
from memloc.engine.job import Job
from memloc.engine.queue import JobQueue
from memloc.engine.store.store import Store

REPORT_EVERY = 0.2
"""Seconds between two progress messages of a worker."""
PATIENCE = 3.0
"""Seconds for all workers together to end when asked to; then they are killed."""


class LocalExecutor(Executor):
    """Worker processes; they start when there is work.

    Args:
        store: Where results go.
        workers: Processes with one thread each; 1 means to work in this process.
        launch: See `Executor`.
        gpus: Names of the GPUs to hand out, one per worker; by default those that are visible.
    """

    def __init__(
        self,
        store: Store,
        workers: int,
        launch: str | None = None,
        gpus: Sequence[str] | None = None,
    ) -> None:
        super().__init__(store, launch)
        self.workers = workers
        self.pool = _Pool(store, self.launch, gpus)

    def work(self, queue: JobQueue) -> None:
        """In workers, or here one after the other."""
        if self.workers > 1:
            self.pool.run(queue, min(self.workers, len(queue.waiting)))
            return
        job: Job | None = None
        while not queue.over:
            job = queue.take(after=job)
            if job is None:
                time.sleep(LOOK_EVERY)
                queue.look_elsewhere()
                continue
            report = partial(queue.progress.advance, job)
            queue.settle(job, attempt(job, self.store, report, self.launch))

    def stop(self) -> None:
        """End the workers."""
        self.pool.stop()


def default_workers(device: str) -> int:
    """One per core for the CPU (every job has one thread), one per GPU otherwise."""
    if device == "cuda":
        return max(1, len(visible_gpus()))
    if device != "cpu":
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Worker:
    """A process and what it is busy with."""

    def __init__(self, process: BaseProcess, connection: Connection, gpu: str | None) -> None:
        self.process, self.connection, self.gpu = process, connection, gpu
        self.job: Job | None = None
        self.before: Job | None = None

    def send(self, job: Job) -> None:
        self.job = self.before = job
        # If the worker has died meanwhile, receiving will say so.
        with contextlib.suppress(OSError):
            self.connection.send_bytes(job.to_json().encode())


class _Pool:
    """A few worker processes."""

    def __init__(self, store: Store, launch: str, gpus: Sequence[str] | None) -> None:
        self.store, self.launch = store, launch
        self.gpus = gpus
        self.workers: list[_Worker] = []

    def run(self, queue: JobQueue, size: int) -> None:
        """Until the queue is over."""
        looked = time.monotonic()
        while not queue.over:
            while len(self.workers) < size:
                self._start_worker()
            for worker in self.workers:
                if worker.job is None and (job := queue.take(after=worker.before)):
                    worker.send(job)
            busy = {worker.connection: worker for worker in self.workers if worker.job}
            for readable in wait(list(busy), timeout=LOOK_EVERY) if busy else ():
                assert isinstance(readable, Connection)
                self._receive(busy[readable], queue)
            if not busy and not queue.over:
                time.sleep(LOOK_EVERY)
            if queue.elsewhere and time.monotonic() - looked > LOOK_EVERY:
                looked = time.monotonic()
                queue.look_elsewhere()

    def _start_worker(self) -> None:
        if self.gpus is None:
            self.gpus = visible_gpus()
        taken = [worker.gpu for worker in self.workers]
        gpu = min(self.gpus, key=taken.count, default=None)  # shared if there are more workers
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_work, args=(theirs, self.store.root, self.launch), daemon=True
        )
        with _ignoring_interrupts(), _without_main(), _visible(gpu):
            process.start()
        theirs.close()
        self.workers.append(_Worker(process, ours, gpu))

    def _receive(self, worker: _Worker, queue: JobQueue) -> None:
        job = worker.job
        assert job is not None
        try:
            kind, value = json.loads(worker.connection.recv_bytes())
        except (EOFError, OSError):
            self.workers.remove(worker)
            worker.process.join(timeout=5)
            worker.connection.close()
            code = worker.process.exitcode
            queue.lost(
                job,
                f"its worker process died (exit code {code}), perhaps for lack of memory; "
                "if so, use fewer --workers",
            )
            return
        if kind == "progress":
            queue.progress.advance(job, value)
            return
        worker.job = None
        queue.settle(job, (kind, value))

    def stop(self) -> None:
        """End the processes, whatever they do."""
        for worker in self.workers:
            worker.process.terminate()
        deadline = time.monotonic() + PATIENCE
        for worker in self.workers:
            worker.process.join(timeout=max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.connection.close()
        if self.workers:
            self.store.sweep_leftovers()
        self.workers.clear()


@contextlib.contextmanager
def _visible(gpu: str | None) -> Iterator[None]:
    """A process that starts now sees one GPU only, whatever it imports first."""
    if gpu is None:
        yield
        return
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    try:
        yield
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


def _work(connection: Connection, root: Path, launch: str) -> None:
    """What a worker process does until its pipe closes."""
    _die_with_parent()
    store = Store(root)
    while True:
        try:
            job = Job.from_json(connection.recv_bytes().decode())
        except EOFError:
            return
        last = time.monotonic()

        def report(fraction: float) -> None:
            nonlocal last
            if time.monotonic() - last > REPORT_EVERY:
                last = time.monotonic()
                _send(connection, ("progress", fraction))

        _send(connection, attempt(job, store, report, launch))


@contextlib.contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Ctrl-C is the parent's business; set before the start, as importing takes seconds.

    Only the main thread may set it, so in another one (of a server, say) all stays as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """A new process does not run the user's script again: it needs nothing from there.

    So a script may call memloc without a guard (`if __name__ == "__main__"`).
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _send(connection: Connection, message: tuple[str, Any]) -> None:
    try:
        connection.send_bytes(json.dumps(message).encode())
    except OSError:
        sys.exit(1)  # nobody listens any more


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
