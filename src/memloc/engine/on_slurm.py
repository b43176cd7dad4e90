"""Run jobs on Slurm: an array of workers, each of which works through the same plan.

Not one job of Slurm per job of ours: thousands of short ones would wait in its queue, and load the
same models again and again. Workers find each other through the locks of the store, so any number
of them may run at any time, be pre-empted or run out of time, and they go on if the process that
submitted them ends. That process watches the store, and replaces workers that are lost.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from memloc.config import Slurm
from memloc.engine.job import Job, Tell, read_plan, write_plan
from memloc.engine.local import LocalExecutor
from memloc.engine.loop import CannotGoOn, Executor
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.engine.views import LogLines
from memloc.errors import ClusterError, MemlocError
from memloc.text import counted

ASK_EVERY = 10.0
"""Seconds between two questions to Slurm."""
FRUITLESS = 3
"""How often lost workers are replaced if no job was finished since the last time."""
END = "cannot-go-on.txt"
"""A file that says why workers should end, such as that nothing can be stored any more."""
PATIENCE = 3.0
"""Seconds for workers to end, after their work or when they are cancelled."""


class SlurmExecutor(Executor):
    """An array of workers; it is submitted when there is work.

    The store is on a file system that all machines share, and so is the `folder` for plans, logs of
    workers and what submitit leaves.

    Raises:
        ClusterError: If submitit or Slurm is not there.
    """

    slots = sys.maxsize
    reports = False

    def __init__(self, store: Store, config: Slurm, folder: Path) -> None:
        super().__init__(store)
        self.config, self.folder = config, folder.absolute()
        self.submitit = check_slurm()
        logging.getLogger("submitit").setLevel(logging.ERROR)  # it talks into our progress
        self.at_a_time = config.gpus or config.cpus
        self.array: list[Any] = []
        self.gone: list[Any] = []
        """Workers that Slurm did not know when it was last asked."""

    def connect(self, jobs: Sequence[Job]) -> None:
        """Submit workers."""
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
        self.plan = write_plan(self.folder / name, jobs)
        todo = sum(not self.store.has(*job.artefact) for job in jobs)
        count = min(self.config.workers, -(-todo // self.at_a_time))
        self.workers = count * self.at_a_time
        self.array = self._submit_workers(count)
        self.asked = time.monotonic()
        self.fruitless = self.done = 0

    def submit(self, bundle: Sequence[Job], tell: Tell) -> Future[None]:
        """Nothing to do: workers find the jobs in the plan, and the loop sees the results."""
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def poll(self, progress: Progress) -> None:
        """See what became of workers."""
        if self.plan.with_name(END).is_file():
            raise CannotGoOn(self.plan.with_name(END).read_text(encoding="utf-8").strip())
        if time.monotonic() - self.asked < ASK_EVERY:
            return
        self.asked = time.monotonic()
        states = _queue()
        if states is None:
            return
        known = [states[worker.job_id] for worker in self.array if worker.job_id in states]
        waiting = known.count("PENDING")
        progress.workers = f"{len(known) - waiting} Slurm workers run, {waiting} wait in the queue"
        # Twice in a row: one that is requeued is missing for a moment, and between the two
        # answers the loop has looked into the store and still found work.
        gone = [worker for worker in self.array if worker.job_id not in states]
        lost = [worker for worker in gone if worker in self.gone]
        self.gone = gone
        if lost:
            self._replace(lost, progress)

    def finish(self) -> None:
        """Workers end by themselves, or are cancelled soon."""
        self._wait_for_workers()
        self.stop()

    def stop(self) -> None:
        """Cancel the workers."""
        if not self.array:
            return
        with contextlib.suppress(OSError):  # submitit shields workers that are just starting
            self.plan.with_name(END).write_text("cancelled", encoding="utf-8")
        _run("scancel", *sorted({str(worker.job_id).partition("_")[0] for worker in self.array}))
        self._wait_for_workers()
        self.array = []
        self.store.sweep_leftovers()

    # --- workers ---

    def _submit_workers(self, count: int) -> list[Any]:
        config = self.config
        executor = self.submitit.AutoExecutor(
            self.plan.with_name("workers"),
            cluster="slurm",
            slurm_max_num_timeout=config.requeues,
        )
        executor.update_parameters(
            name="memloc",
            timeout_min=config.minutes,
            mem_gb=config.memory_gb,
            cpus_per_task=config.cpus,
            gpus_per_node=config.gpus or None,
            stderr_to_stdout=True,
            slurm_partition=config.partition,
            slurm_array_parallelism=config.at_once or count,
            slurm_setup=list(config.setup) or None,
            slurm_additional_parameters={
                name.replace("_", "-"): value for name, value in config.options.items()
            },
        )
        root = str(self.store.root.absolute())
        worker = SlurmWorker(root, str(self.plan), self.at_a_time, self.workers)
        try:
            with executor.batch():
                return [executor.submit(worker) for _ in range(count)]
        except (RuntimeError, OSError) as error:  # what sbatch said
            words = " ".join(str(error).split()) or type(error).__name__
            raise ClusterError(
                f"Slurm did not accept the workers ({words})", remedy="check the `slurm` settings"
            ) from None

    def _replace(self, ended: list[Any], progress: Progress) -> None:
        """Workers ended though there is work: they were cancelled, killed or could not start."""
        done = progress.sums["done"] + progress.sums["failed"]
        self.fruitless = 1 if done > self.done else self.fruitless + 1
        self.done = done
        self.array = [worker for worker in self.array if worker not in ended]
        if self.fruitless <= FRUITLESS:
            workers = counted(len(ended), "Slurm worker")
            progress.note(f"{workers} ended early and will be replaced")
            self.array += self._submit_workers(len(ended))
        elif not self.array:
            raise ClusterError(f"all Slurm workers ended; {self._last_words()}")

    def _last_words(self) -> str:
        """Of the worker that wrote last."""
        logs = list(self.plan.parent.glob("workers/*.out"))
        if not logs:
            return f"they left no log in {str(self.plan.parent)!r}"
        last = max(logs, key=lambda path: path.stat().st_mtime)
        lines = last.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"the log of one is {str(last)!r} and ends with {lines[-1:]}"

    def _wait_for_workers(self) -> None:
        """Until they have ended, but not for long."""
        deadline = time.monotonic() + PATIENCE
        while self.array and time.monotonic() < deadline:
            time.sleep(0.3)
            states = _queue()
            self.array = [one for one in self.array if states is None or one.job_id in states]


@dataclass
class SlurmWorker:
    """What a worker runs. submitit stores it with pickle, so it holds nothing but words."""

    root: str
    plan: str
    processes: int
    share: int

    def __call__(self) -> int:
        """Work through the plan with the others; returns how many jobs this one computed."""
        signal.signal(signal.SIGTERM, _leave)  # cancelled: leave no locks behind
        if Path(self.plan).with_name(END).is_file():
            return 0
        jobs = read_plan(Path(self.plan))
        store = Store(Path(self.root))
        try:
            with LocalExecutor(store, self.processes, self.share) as executor:
                progress = Progress(LogLines(jobs=True))
                return executor.execute(jobs, progress, again=False).computed
        except CannotGoOn as error:
            Path(self.plan).with_name(END).write_text(str(error), encoding="utf-8")
            raise
        except MemlocError as error:
            print(f"memloc: {error}")
            raise

    def checkpoint(self) -> Any:
        """Out of time, or pre-empted: submitit submits this again, and the store has the rest."""
        return importlib.import_module("submitit").helpers.DelayedSubmission(self)


def _leave(signum: int, frame: FrameType | None) -> None:
    # Slurm asks several times, and the next would come in the middle of the cleaning up.
    signal.signal(signum, signal.SIG_IGN)
    sys.exit(128 + signum)


def check_slurm() -> Any:
    """Workers can be submitted from here; gives submitit.

    Raises:
        ClusterError: If submitit or Slurm is not there.
    """
    try:
        submitit = importlib.import_module("submitit")
    except ImportError:
        raise ClusterError(
            "executor 'slurm' needs submitit, which is not installed",
            remedy="get it with: pip install 'memloc[slurm]'",
        ) from None
    if not (shutil.which("sbatch") and shutil.which("srun")):
        raise ClusterError(
            "executor 'slurm' needs Slurm, but sbatch is not on this machine",
            remedy="start it where you submit jobs, or use executor 'local' or 'ray'",
        )
    return submitit


def _queue() -> dict[str, str] | None:
    """All workers that run or will, with their state; None if Slurm does not answer."""
    # Not sacct, which many clusters do not have.
    lines = _run("squeue", "--me", "--noheader", "--array", "--format=%i %T")
    if lines is None:
        return None
    return dict(line.split(maxsplit=1) for line in lines if " " in line)


def _run(*command: str) -> list[str] | None:
    """The lines that a command of Slurm prints, or None if it fails."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode == 0:
            return done.stdout.splitlines()
    return None
