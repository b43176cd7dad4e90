"""Jobs without torch, to be ill-treated: ``python -m tests.faults.naps RUNS`` computes them.

What can go wrong with executors and the store goes wrong with naps as it does with trainings, in a
hundredth of the time.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from memloc.cli import _leave
from memloc.cli.output import interruptible
from memloc.config import Execution
from memloc.engine.job import Job
from memloc.engine.local import make_executor
from memloc.engine.loop import Outcome
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.engine.views import LogLines
from memloc.errors import MemlocError
from tests.faults.sweeps import Sweep

MODELS, WINDOWS = 4, 8


def make_jobs() -> list[Job]:
    """As in a sweep: models, windows that need them, and what puts the windows together."""
    jobs = []
    for number in range(MODELS):
        model = Job("nap", f"model {number}", {"seconds": 0.4, "model": number}, cost=9)
        windows = [
            Job(
                "nap",
                f"window {number}.{window}",
                {"seconds": 0.1, "model": number, "window": window},
                {"model": model.artefact},
                group=f"windows {number}",
            )
            for window in range(WINDOWS)
        ]
        needs = {str(index): window.artefact for index, window in enumerate(windows)}
        together = Job("nap", f"all of {number}", {"seconds": 0.01, "all": number}, needs)
        jobs += [model, *windows, together]
    return jobs


@dataclass
class NapSweep(Sweep):
    """The same as a sweep, but in a second or two."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.faults.naps", str(self.runs)]

    def tables(self) -> dict[str, Any]:
        """What every job left; opening an artefact checks it."""
        store = Store(self.store)
        return {job.title: store.open(*job.artefact).json("nap.json") for job in make_jobs()}


def compute(runs: Path, executor: str, workers: int) -> Outcome:
    """Compute all that is not there."""
    runs.mkdir(parents=True, exist_ok=True)
    progress = Progress(LogLines())
    settings = Execution(executor=executor, workers=workers)
    with make_executor(settings, Store(runs / "store"), runs) as here:
        return here.execute(make_jobs(), progress)


def main() -> None:
    """End as the command line does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--executor", default="local")
    arguments = parser.parse_args()
    try:
        with interruptible("what is done is kept"):
            outcome = compute(arguments.runs, arguments.executor, arguments.workers)
    except typer.Exit as end:
        _leave(end.exit_code)
    except MemlocError as error:
        print(f"memloc: {error}", file=sys.stderr)
        sys.exit(2)
    print(json.dumps({"jobs": {"computed": outcome.computed, "failed": len(outcome.missing)}}))


if __name__ == "__main__":
    main()
