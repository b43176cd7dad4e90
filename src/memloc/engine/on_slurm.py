"""Run jobs on Slurm: an array of workers, each of which works through the same plan.

Not one job of Slurm per job of ours: thousands of short ones would wait in its queue, and load the
same models again and again. Workers find each other through the claims of the store, so any number
of them may run at any time, be pre-empted or run out of time. This process only watches the store.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import shutil
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memloc.engine.executor import Executor
from memloc.engine.plan_file import read_plan, write_plan
from memloc.engine.queue import CannotGoOn, JobQueue
from memloc.engine.settings import SlurmConfig
from memloc.engine.store.store import Store
from memloc.errors import ClusterError, MemlocError

WATCH_EVERY = 2.0
"""Seconds between two looks at the store."""
END = "cannot-go-on.txt"
"""Where a worker leaves why nothing can be stored any more."""
PATIENCE = 3.0
"""Seconds for cancelled workers to end, and for those of Slurm after their work."""
LEISURE = 60.0
"""Seconds for workers of this machine to end after their work."""


class SlurmExecutor(Executor):
    """An array of workers; it is submitted when there is work.

    Args:
        store: Where results go, on a file system that all machines share.
        config: What to ask Slurm for.
        folder: For plans, logs of workers and what submitit leaves, on such a file system too.
        launch: See `Executor`.

    Raises:
        ClusterError: If submitit or Slurm is not there.
    """

    def __init__(
        self, store: Store, config: SlurmConfig, folder: Path, launch: str | None = None
    ) -> None:
        # Workers share a launch: what failed in one is not tried again by another.
        super().__init__(store, launch or uuid.uuid4().hex)
        self.config, self.folder = config, folder.absolute()
        check_slurm(config)
        self.submitit = _import_submitit()
        logging.getLogger("submitit").setLevel(logging.ERROR)  # it talks into our progress
        self.array: list[Any] = []

    def work(self, queue: JobQueue) -> None:
        """Submit workers, and watch until all is done; submit again if they ended too early."""
        folder = self.folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
        write_plan(folder, list(queue.jobs.values()))
        fruitful = True
        while not queue.over:
            if not self.array:
                if not fruitful:
                    queue.give_up(f"all Slurm workers ended; {_last_words(folder)}")
                    return
                self._submit(folder, len(queue.waiting))
                fruitful = False
            time.sleep(WATCH_EVERY)
            ended = all(worker.done() for worker in self.array)  # first: they may finish jobs yet
            fruitful = queue.watch() > 0 or fruitful
            self._check_end(folder)
            if ended:
                self.array = []
        self._wait_for_workers()

    def stop(self) -> None:
        """Cancel the workers."""
        running = [worker for worker in self.array if not worker.done()]
        self.array = []
        if not running:
            return
        if self.config.cluster == "slurm":
            ids = sorted({str(worker.job_id).split("_")[0] for worker in running})
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(["scancel", *ids], timeout=PATIENCE, check=False)
            return
        for worker in running:
            worker.cancel()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not all(worker.done() for worker in running):
            time.sleep(0.05)
        self.store.sweep_leftovers()

    def _submit(self, folder: Path, jobs: int) -> None:
        config = self.config
        executor = self.submitit.AutoExecutor(
            folder / "workers",
            cluster=config.cluster,
            slurm_max_num_timeout=config.requeues,
            local_max_num_timeout=config.requeues,
        )
        at_a_time = config.gpus or config.cpus
        count = max(1, min(config.workers, -(-jobs // at_a_time)))
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
        worker = SlurmWorker(str(self.store.root.absolute()), str(folder), self.launch, at_a_time)
        try:
            with executor.batch():
                self.array = [executor.submit(worker) for _ in range(count)]
        except (RuntimeError, OSError) as error:  # what sbatch said
            self.array = []
            words = " ".join(str(error).split()) or type(error).__name__
            raise ClusterError(
                f"Slurm did not accept the workers ({words}); check the `slurm` settings"
            ) from None

    def _check_end(self, folder: Path) -> None:
        if (folder / END).is_file():
            raise CannotGoOn((folder / END).read_text(encoding="utf-8").strip())

    def _wait_for_workers(self) -> None:
        """They see that all is done and end, on a busy machine slowly; ask those who do not.

        Processes of this machine would complain about it in the terminal, so they have more time.
        """
        patience = PATIENCE if self.config.cluster == "slurm" else LEISURE
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and not all(worker.done() for worker in self.array):
            time.sleep(0.1)
        self.stop()


@dataclass
class SlurmWorker:
    """What a worker runs. submitit stores it with pickle, so it holds nothing but words."""

    root: str
    folder: str
    launch: str
    processes: int

    def __call__(self) -> int:
        """Work through the plan with the others; returns how many jobs this one computed."""
        from memloc.engine.local import LocalExecutor
        from memloc.engine.progress import LogLines, Progress

        jobs, _ = read_plan(Path(self.folder))
        try:
            with LocalExecutor(Store(Path(self.root)), self.processes, self.launch) as executor:
                return executor.execute(jobs, Progress(LogLines(jobs=True))).computed
        except CannotGoOn as error:
            (Path(self.folder) / END).write_text(str(error), encoding="utf-8")
            raise
        except MemlocError as error:
            print(f"memloc: {error}")
            raise

    def checkpoint(self) -> Any:
        """Out of time, or pre-empted: submitit submits this again, and the store has the rest."""
        return _import_submitit().helpers.DelayedSubmission(self)


def check_slurm(config: SlurmConfig) -> None:
    """Workers can be submitted from here.

    Raises:
        ClusterError: If submitit or Slurm is not there.
    """
    _import_submitit()
    if config.cluster == "slurm" and not (shutil.which("sbatch") and shutil.which("srun")):
        raise ClusterError(
            "executor 'slurm' needs Slurm, but sbatch is not on this machine; start it where "
            "you submit jobs, or use executor 'local' or 'ray'"
        )


def _last_words(folder: Path) -> str:
    """Of the worker that wrote last."""
    logs = sorted((folder / "workers").glob("*.out"), key=lambda path: path.stat().st_mtime)
    if not logs:
        return f"they left no log in {str(folder / 'workers')!r}, see `sacct` for the reason"
    lines = logs[-1].read_text(encoding="utf-8", errors="replace").strip().splitlines()
    end = f" and ends with {lines[-1].strip()!r}" if lines else " and is empty"
    return f"the log of one is {str(logs[-1])!r}{end}"


def _import_submitit() -> Any:
    try:
        return importlib.import_module("submitit")
    except ImportError:
        raise ClusterError(
            "executor 'slurm' needs submitit, which is not installed; get it with: "
            "pip install 'memloc[slurm]'"
        ) from None
