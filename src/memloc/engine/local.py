"""Run jobs on this machine: in worker processes with one thread each, or here if one is enough.

A worker reads bundles of jobs from its standard input, a line of JSON each, and answers on its
standard output; a thread waits for the answers. Finished work is in the store before a worker says
so. Whatever happens to a worker, at most its job in progress is lost, and that is tried again.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from memloc.config import Device, Execution
from memloc.engine.job import Job, Reply, Tell, jobs_from_text, jobs_to_text, work_through
from memloc.engine.loop import Executor, WorkerLost
from memloc.engine.store.store import Store
from memloc.errors import ConfigError

REPORT_EVERY = 0.2
"""Seconds between two progress messages of a worker."""
WORKER = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from memloc.engine.local import work
work(sys.argv[2])
"""
"""What a worker process runs: it finds the modules of this process, but not the user's script."""


def make_executor(config: Execution, store: Store, folder: Path) -> Executor:
    """The executor that was asked for; nothing starts yet.

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
        workers: Processes with one thread each; 1 means to work in this process.
        share: Jobs that run at once, here and elsewhere, if several machines share the jobs.
    """

    def __init__(self, store: Store, workers: int, share: int | None = None) -> None:
        super().__init__(store)
        self.slots, self.workers = workers, share or workers
        self.processes: dict[subprocess.Popen[bytes], str | None] = {}
        """With the GPU that each of them sees."""
        self.idle: list[subprocess.Popen[bytes]] = []
        self.threads = ThreadPoolExecutor(workers)

    def submit(self, bundle: Sequence[Job], tell: Tell) -> Future[None]:
        """To a worker that has nothing to do, or here."""
        if self.slots > 1:
            worker = self.idle.pop() if self.idle else self._start_worker()
            assert worker.stdin is not None
            with contextlib.suppress(OSError):  # it has died, as whoever listens to it notices
                worker.stdin.write(jobs_to_text(bundle).encode() + b"\n")
                worker.stdin.flush()
            return self.threads.submit(self._listen, worker, bundle, tell)
        future: Future[None] = Future()
        work_through(bundle, self.store, tell)
        future.set_result(None)
        return future

    def _start_worker(self) -> subprocess.Popen[bytes]:
        taken = list(self.processes.values())
        gpu = min(visible_gpus(), key=taken.count, default=None)  # shared by more workers
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, json.dumps(sys.path), self.store.root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ if gpu is None else {**os.environ, "CUDA_VISIBLE_DEVICES": gpu},
            start_new_session=True,  # Ctrl-C is the business of this process
        )
        self.processes[worker] = gpu
        return worker

    def _listen(self, worker: subprocess.Popen[bytes], bundle: Sequence[Job], tell: Tell) -> None:
        """Pass on what a worker says about a bundle, in a thread of its own."""
        jobs = {job.key: job for job in bundle}
        assert worker.stdout is not None
        with contextlib.suppress(OSError, ValueError):  # it has died, perhaps in mid-sentence
            for line in worker.stdout:
                key, news = json.loads(line)
                tell(jobs[key], news)
                if isinstance(news, dict):
                    del jobs[key]
                if not jobs:
                    self.idle.append(worker)
                    return
        self.processes.pop(worker, None)
        code = worker.wait()
        memory = ", perhaps for lack of memory; if so, use fewer workers"
        hint = memory if code == -signal.SIGKILL else ""
        raise WorkerLost(f"its worker process died (exit code {code}){hint}")

    def stop(self) -> None:
        """End the processes, whatever they do, and free what this one kept if it did the work."""
        workers = list(self.processes)
        for worker in workers:
            worker.kill()  # all that a worker could do about it is done below
        for worker in workers:
            worker.wait()
        self.threads.shutdown()
        if workers:
            self.store.sweep_leftovers()
        if "memloc.engine.compute" in sys.modules:
            sys.modules["memloc.engine.compute"].forget_context()


def work(root: str) -> None:
    """What a worker process does until nobody writes to it any more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not get between the answers
    bundles: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            bundles.put(line)
        os._exit(1)  # also in the middle of a job: whoever wanted it is gone

    threading.Thread(target=listen, daemon=True).start()
    store, last = Store(Path(root)), 0.0

    def tell(job: Job, news: float | Reply) -> None:
        nonlocal last
        if isinstance(news, dict) or news == 0 or time.monotonic() - last > REPORT_EVERY:
            last = time.monotonic()
            print(json.dumps([job.key, news]), file=answers, flush=True)

    while True:
        work_through(jobs_from_text(bundles.get()), store, tell)


# --- CUDA, MPS or the CPU -------------------------------------------------------------------------


def pick_device(device: Device) -> str:
    """The device to use; `auto` means CUDA, then MPS, then the CPU.

    Torch is imported only if there may be a choice: it takes seconds, and a run whose results are
    all stored does not need it.

    Raises:
        ConfigError: If the device that was asked for is not there.
    """
    if device == "cpu" or (device == "auto" and not _accelerator_likely()):
        return "cpu"
    import torch

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return next((name for name, available in there.items() if available), "cpu")
    if not there[device]:
        raise ConfigError(
            "it is not available on this machine", setting="device", value=device, remedy="use auto"
        )
    return device


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        names = [name.strip() for name in given.split(",")]
        # As for CUDA itself, -1 hides all that come after it.
        return [name for name in (names[: names.index("-1")] if "-1" in names else names) if name]
    if not _accelerator_likely():
        return []
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _accelerator_likely() -> bool:
    return platform.system() != "Linux" or any(
        Path(node).exists() for node in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
    )
