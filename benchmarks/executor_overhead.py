"""What surrounds the work: many short jobs with two local workers, against the work alone.

``python -m benchmarks.executor_overhead`` prints the ratio of the time that passed, with the start
of the workers, to the time that the jobs themselves would take.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from memloc.engine.job import Job
from memloc.engine.local import LocalExecutor
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store

WORKERS = 2


@dataclass(frozen=True)
class Overhead:
    """Seconds that passed, seconds of pure work per worker, and processor time per job."""

    seconds: float
    work: float
    processor_per_job: float

    @property
    def ratio(self) -> float:
        """1 would be no overhead at all."""
        return self.seconds / self.work


def measure(jobs: int, seconds: float, folder: Path) -> Overhead:
    """Run naps of so many seconds, and add up."""
    naps = [Job("nap", f"nap {n}", {"seconds": seconds, "n": n}) for n in range(jobs)]
    before = _processor_time()
    started = time.perf_counter()
    with LocalExecutor(Store(folder / "store"), WORKERS) as executor:
        outcome = executor.execute(naps, Progress())
        passed = time.perf_counter() - started
    if outcome.computed != jobs:
        raise RuntimeError(f"{outcome.computed} of {jobs} jobs were computed")
    return Overhead(passed, jobs * seconds / WORKERS, (_processor_time() - before) / jobs)


def _processor_time() -> float:
    """Of this process and of children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.executor_overhead")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--milliseconds", type=float, default=10.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(arguments.jobs, arguments.milliseconds / 1000, Path(folder))
    print(
        f"{arguments.jobs} jobs of {arguments.milliseconds:g} ms, {WORKERS} workers: "
        f"{found.ratio:.2f} × the pure work time; {found.processor_per_job * 1000:.2f} ms of "
        "processor time per job"
    )


if __name__ == "__main__":
    main()
