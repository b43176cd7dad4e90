"""Run jobs on this machine: in worker processes with one thread each, or here if one is enough.

A worker gets a bundle of jobs as text through a pipe and reports back through it; a thread waits
for the reports. Finished work is in the store before a worker says so, so whatever happens to a
worker, at most its job in progress is lost, and that is tried again.
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
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from memloc.config import Execution
from memloc.engine.device import pick_device, visible_gpus
from memloc.engine.job import Job
from memloc.engine.loop import Executor, Reply, Tell, WorkerLost, work_through
from memloc.engine.store.store import Store

REPORT_EVERY = 0.2
"""Seconds between two progress messages of a worker."""
PATIENCE = 3.0
"""Seconds for all workers together to end when asked to; then they are killed."""


def check_executor(config: Execution) -> None:
    """What can be checked at once, before long plans are made for it.

    Raises:
        MemlocError: If it cannot be used here.
    """
    if config.executor == "ray":
        from memloc.engine.on_ray import check_ray

        check_ray(config.ray)
    elif config.executor == "slurm":
        from memloc.engine.on_slurm import check_slurm

        check_slurm(config.slurm)


def make_executor(config: Execution, store: Store, folder: Path) -> Executor:
    """The executor that was asked for.

    Args:
        config: Which one, and its settings.
        store: Where results go.
        folder: For its own files, such as logs of workers elsewhere.

    Raises:
        MemlocError: If it cannot be used here.
    """
    if config.executor == "ray":
        from memloc.engine.on_ray import RayExecutor

        return RayExecutor(store, config.ray, config.workers)
    if config.executor == "slurm":
        from memloc.engine.on_slurm import SlurmExecutor

        return SlurmExecutor(store, config.slurm, folder)
    return LocalExecutor(store, config.workers or default_workers(pick_device(config.device)))


def default_workers(device: str) -> int:
    """One per core for the CPU (every job has one thread), one per GPU otherwise."""
    if device == "cuda":
        return max(1, len(visible_gpus()))
    if device != "cpu":
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class LocalExecutor(Executor):
    """Worker processes; they start when there is work.

    Args:
        store: Where results go.
        workers: Processes with one thread each; 1 means to work in this process.
        launch: See `Executor`.
        share: Jobs that run at once, here and elsewhere, if several machines share the jobs.
    """

    def __init__(
        self, store: Store, workers: int, launch: str = "", share: int | None = None
    ) -> None:
        super().__init__(store, launch)
        self.slots, self.workers = workers, share or workers
        self.processes: list[_Worker] = []
        self.threads = ThreadPoolExecutor(workers)
        self.gpus: list[str] | None = None

    def submit(self, bundle: Sequence[Job], tell: Tell) -> Future[list[Reply]]:
        """To a worker that has nothing to do, or here."""
        if self.slots > 1:
            idle = next((worker for worker in self.processes if not worker.busy), None)
            worker = idle or self._start_worker()
            worker.busy = True
            return self.threads.submit(self._talk, worker, bundle, tell)
        work = work_through(
            bundle, self.store, self.launch, lambda number, share: tell(bundle[number], share)
        )
        for job, reply in zip(bundle, work, strict=False):  # it stops when the disk is full
            tell(job, reply)
        future: Future[list[Reply]] = Future()
        future.set_result([])
        return future

    def _start_worker(self) -> _Worker:
        if self.gpus is None:
            self.gpus = visible_gpus()
        taken = [worker.gpu for worker in self.processes]
        gpu = min(self.gpus, key=taken.count, default=None)  # shared if there are more workers
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_work, args=(theirs, self.store.root, self.launch), daemon=True
        )
        with _ignoring_interrupts(), _without_main(), _visible(gpu):
            process.start()
        theirs.close()
        self.processes.append(_Worker(process, ours, gpu))
        return self.processes[-1]

    def _talk(self, worker: _Worker, bundle: Sequence[Job], tell: Tell) -> list[Reply]:
        """Send a bundle and pass on what the worker reports, in a thread of its own."""
        try:
            worker.connection.send_bytes(json.dumps([job.to_json() for job in bundle]).encode())
            while True:
                number, news = json.loads(worker.connection.recv_bytes())
                if number is None:
                    worker.busy = False
                    return []
                tell(bundle[number], news)
        except (EOFError, OSError):
            worker.process.join(timeout=PATIENCE)
            with contextlib.suppress(ValueError):  # all are being stopped
                self.processes.remove(worker)
            worker.connection.close()
            code = worker.process.exitcode
            hint = (
                ", perhaps for lack of memory; if so, use fewer workers"
                if code == -signal.SIGKILL
                else ""
            )
            raise WorkerLost(f"its worker process died (exit code {code}){hint}") from None

    def stop(self) -> None:
        """End the processes, whatever they do."""
        workers = list(self.processes)
        for worker in workers:
            worker.process.terminate()
        deadline = time.monotonic() + PATIENCE
        for worker in workers:
            worker.process.join(timeout=max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self.threads.shutdown(cancel_futures=True)
        for worker in workers:
            worker.connection.close()
        if workers:
            self.store.sweep_leftovers()
        self.processes.clear()
        self.threads = ThreadPoolExecutor(self.slots)


class _Worker:
    """A process, and whether it has a bundle."""

    def __init__(self, process: BaseProcess, connection: Connection, gpu: str | None) -> None:
        self.process, self.connection, self.gpu = process, connection, gpu
        self.busy = False


def _work(connection: Connection, root: Path, launch: str) -> None:
    """What a worker process does until its pipe closes."""
    _die_with_parent()
    store = Store(root)
    last = 0.0

    def report(number: int, fraction: float) -> None:
        nonlocal last
        if time.monotonic() - last > REPORT_EVERY:
            last = time.monotonic()
            _send(connection, number, fraction)

    while True:
        try:
            bundle = [Job.from_json(text) for text in json.loads(connection.recv_bytes())]
        except EOFError:
            return
        last = time.monotonic()
        for number, reply in enumerate(work_through(bundle, store, launch, report)):
            _send(connection, number, reply)
        _send(connection, None, None)


def _send(connection: Connection, number: int | None, news: Any) -> None:
    try:
        connection.send_bytes(json.dumps([number, news]).encode())
    except OSError:
        sys.exit(1)  # nobody listens any more


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _visible(gpu: str | None) -> Iterator[None]:
    """A process that starts now sees one GPU only, whatever it imports first."""
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    try:
        yield
    finally:
        if gpu is not None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        if before is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


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
