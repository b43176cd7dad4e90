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
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from memloc.config import Slurm
from memloc.engine.job import Job
from memloc.engine.loop import (
    CannotGoOn,
    Executor,
    Outcome,
    Reply,
    Tell,
    read_failure,
)
from memloc.engine.plan_file import read_plan, write_plan
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.errors import ClusterError, MemlocError

ASK_EVERY = 10.0
"""Seconds between two questions to Slurm."""
FRUITLESS = 3
"""How often lost workers are replaced without a job having been finished meanwhile."""
END = "cannot-go-on.txt"
"""Where a worker leaves why nothing can be stored any more."""
PATIENCE = 3.0
"""Seconds for cancelled workers to end, and for those of Slurm after their work."""
LEISURE = 60.0
"""Seconds for workers of this machine to end after their work."""
ALIVE = {
    *("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "STAGE_OUT", "SUSPENDED", "STOPPED"),
    *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "SIGNALING"),
    "SPECIAL_EXIT",
}
"""States of Slurm in which a worker runs, or will."""


class SlurmExecutor(Executor):
    """An array of workers; it is submitted when there is work.

    Args:
        store: Where results go, on a file system that all machines share.
        config: What to ask Slurm for.
        folder: For plans, logs of workers and what submitit leaves, on such a file system too.

    Raises:
        ClusterError: If submitit or Slurm is not there.
    """

    slots = sys.maxsize
    attempts = 1
    reports_starts = False

    def __init__(self, store: Store, config: Slurm, folder: Path) -> None:
        super().__init__(store, uuid.uuid4().hex)
        self.config, self.folder = config, folder.absolute()
        self.submitit = check_slurm(config)
        logging.getLogger("submitit").setLevel(logging.ERROR)  # it talks into our progress
        self.at_a_time = config.gpus or config.cpus
        self.jobs: Sequence[Job] = ()
        self.array: list[Any] = []
        self.waiting: list[tuple[Sequence[Job], Future[list[Reply]]]] = []
        self.settled = self.settled_before = self.rounds = 0
        self.asked = 0.0
        self.words = ""

    def execute(self, jobs: Sequence[Job], progress: Progress) -> Outcome:
        """See `Executor`; workers end when nothing is left to do."""
        self.jobs = jobs
        outcome = super().execute(jobs, progress)
        self._wait_for_workers()
        return outcome

    def connect(self) -> None:
        """Submit workers."""
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
        self.plan = self.folder / name
        write_plan(self.plan, self.jobs)
        todo = sum(not self.store.has(*job.artefact) for job in self.jobs)
        self.settled = self.settled_before = self.rounds = 0
        count = min(self.config.workers, -(-todo // self.at_a_time))
        self.workers = count * self.at_a_time
        self.array = self._submit_workers(count)
        self.asked = time.monotonic()

    def submit(self, bundle: Sequence[Job], tell: Tell) -> Future[list[Reply]]:
        """Nothing to do: workers find the jobs in the plan."""
        future: Future[list[Reply]] = Future()
        self.waiting.append((bundle, future))
        return future

    def poll(self, progress: Progress) -> None:
        """See what became of jobs and of workers."""
        ended = self._ended()  # first, as they may have finished jobs before
        progress.workers = self.words
        failed = set(_names(self.store.root.parent / "failures"))
        kinds = {job.kind for bundle, _ in self.waiting for job in bundle}
        stored = {(kind, key) for kind in kinds for key in _names(self.store.root / kind)}
        left = []
        for bundle, future in self.waiting:
            replies = [self._reply(job, stored, failed) for job in bundle]
            if all(replies):
                self.settled += len(bundle)
                future.set_result([reply for reply in replies if reply])
            else:
                left.append((bundle, future))
        self.waiting = left
        if (self.plan / END).is_file():
            raise CannotGoOn((self.plan / END).read_text(encoding="utf-8").strip())
        if ended and left:
            self._replace(ended, progress)

    def _reply(self, job: Job, stored: set[Any], failed: set[str]) -> Reply | None:
        if job.artefact in stored and self.store.has(*job.artefact):
            return {"state": "done"}
        if f"{job.kind}-{job.key}.json" in failed:
            failure = read_failure(self.store, job)
            if failure is not None and failure.launch == self.launch:
                return {"state": "failed", "failure": asdict(failure)}
        return None

    def stop(self) -> None:
        """Cancel the workers."""
        array, self.array = self.array, []
        if self.config.cluster == "slurm":
            ids = sorted({str(worker.job_id).partition("_")[0] for worker in array})
            if ids:
                _run("scancel", *ids)
            return
        running = [worker for worker in array if not worker.done()]
        for worker in running:
            worker.cancel()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not all(worker.done() for worker in running):
            time.sleep(0.05)
        self.store.sweep_leftovers()

    # --- workers ---

    def _submit_workers(self, count: int) -> list[Any]:
        config = self.config
        executor = self.submitit.AutoExecutor(
            self.plan / "workers",
            cluster=config.cluster,
            slurm_max_num_timeout=config.requeues,
            local_max_num_timeout=config.requeues,
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
        worker = SlurmWorker(root, str(self.plan), self.launch, self.at_a_time, self.workers)
        try:
            with executor.batch():
                return [executor.submit(worker) for _ in range(count)]
        except (RuntimeError, OSError) as error:  # what sbatch said
            words = " ".join(str(error).split()) or type(error).__name__
            raise ClusterError(
                f"Slurm did not accept the workers ({words})", remedy="check the `slurm` settings"
            ) from None

    def _ended(self, every: float | None = None) -> list[Any]:
        """The workers that have ended, as far as is known; Slurm is not asked all the time."""
        if self.config.cluster == "local":
            return [worker for worker in self.array if worker.done()]
        if time.monotonic() - self.asked < (ASK_EVERY if every is None else every):
            return []
        self.asked = time.monotonic()
        # Not sacct, which many clusters do not have; what squeue has forgotten ended long ago.
        lines = _run("squeue", "--me", "--noheader", "--array", "--states=all", "--format=%i %T")
        if lines is None:  # nobody answers; perhaps the next time
            return []
        states = dict(line.split(maxsplit=1) for line in lines if " " in line)
        mine = [(worker, states.get(str(worker.job_id), "")) for worker in self.array]
        counts = Counter("wait" if state == "PENDING" else "run" for _, state in mine)
        self.words = f"{counts['run']} Slurm workers run, {counts['wait']} wait in the queue"
        return [worker for worker, state in mine if state not in ALIVE]

    def _replace(self, ended: list[Any], progress: Progress) -> None:
        """Workers ended though there is work: they were cancelled, killed or could not start."""
        self.rounds = 1 if self.settled > self.settled_before else self.rounds + 1
        self.settled_before = self.settled
        self.array = [worker for worker in self.array if worker not in ended]
        if self.rounds <= FRUITLESS:
            progress.note(f"{len(ended)} Slurm workers ended early and are replaced")
            self.array += self._submit_workers(len(ended))
        elif not self.array:
            raise ClusterError(f"all Slurm workers ended; {self._last_words()}")

    def _last_words(self) -> str:
        """Of the worker that wrote last."""
        folder = self.plan / "workers"
        logs = sorted(folder.glob("*.out"), key=lambda path: path.stat().st_mtime)
        if not logs:
            return f"they left no log in {str(folder)!r}"
        lines = logs[-1].read_text(encoding="utf-8", errors="replace").strip().splitlines()
        end = f" and ends with {lines[-1].strip()!r}" if lines else " and is empty"
        return f"the log of one is {str(logs[-1])!r}{end}"

    def _wait_for_workers(self) -> None:
        """They see that all is done and end, on a busy machine slowly; ask those who do not.

        Processes of this machine would complain about it in the terminal, so they have more time.
        """
        here = self.config.cluster == "local"
        deadline = time.monotonic() + (LEISURE if here else PATIENCE)
        while self.array and time.monotonic() < deadline:
            time.sleep(0.1)
            ended = self._ended(every=1.0)
            self.array = [worker for worker in self.array if worker not in ended]
        self.stop()


@dataclass
class SlurmWorker:
    """What a worker runs. submitit stores it with pickle, so it holds nothing but words."""

    root: str
    folder: str
    launch: str
    processes: int
    share: int

    def __call__(self) -> int:
        """Work through the plan with the others; returns how many jobs this one computed."""
        from memloc.engine.local import LocalExecutor
        from memloc.engine.progress import LogLines, Progress

        signal.signal(signal.SIGTERM, _leave)  # cancelled: leave no locks behind
        jobs, _ = read_plan(Path(self.folder))
        store = Store(Path(self.root))
        try:
            with LocalExecutor(store, self.processes, self.launch, self.share) as executor:
                return executor.execute(jobs, Progress(LogLines(jobs=True))).computed
        except CannotGoOn as error:
            (Path(self.folder) / END).write_text(str(error), encoding="utf-8")
            raise
        except MemlocError as error:
            print(f"memloc: {error}")
            raise

    def checkpoint(self) -> Any:
        """Out of time, or pre-empted: submitit submits this again, and the store has the rest."""
        return importlib.import_module("submitit").helpers.DelayedSubmission(self)


def _leave(signum: int, frame: FrameType | None) -> None:
    sys.exit(128 + signum)


def check_slurm(config: Slurm) -> Any:
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
    if config.cluster == "slurm" and not (shutil.which("sbatch") and shutil.which("srun")):
        raise ClusterError(
            "executor 'slurm' needs Slurm, but sbatch is not on this machine",
            remedy="start it where you submit jobs, or use executor 'local' or 'ray'",
        )
    return submitit


def _run(*command: str) -> list[str] | None:
    """The lines that a command of Slurm prints, or None if it fails."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode == 0:
            return done.stdout.splitlines()
    return None


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # not there yet, or the file system hiccups: the next look will tell
