"""The end of a sweep: every run is finished, whatever became of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from memloc.engine import control, experiment
from memloc.engine.executor import Executor
from memloc.engine.generalise import REPAIRS
from memloc.engine.job import Job
from memloc.engine.progress import Progress
from memloc.engine.queue import JobFailed, Outcome
from memloc.engine.store.store import DamagedArtefact
from memloc.engine.supplies import Supplies
from memloc.results.narrative import MEMORISED

T = TypeVar("T")


class Finisher:
    """Finishes runs; what turns out damaged is computed anew.

    Args:
        supplies: Has the data.
        executor: Computes anew.
        outcome: What became of all jobs.
        runs: Folder for the result folders.
        progress: Is told what the user should know.
    """

    def __init__(
        self,
        supplies: Supplies,
        executor: Executor,
        outcome: Outcome,
        runs: Path,
        progress: Progress,
    ) -> None:
        self.supplies, self.executor, self.runs = supplies, executor, runs
        self.progress, self.outcome = progress, outcome
        self.others: list[str] = []
        """What went wrong beside jobs."""

    def run(self, label: str, planned: experiment.PlannedRun) -> dict[str, Any]:
        """The line of a run in the summary."""
        prepared = planned.prepared
        row: dict[str, Any] = {
            "run": label,
            "task": prepared.task.name,
            "model": prepared.source.name,
            "binarised": prepared.task.binarised,
            "seeds": list(prepared.config.seeds),
        }
        try:
            result = self._finished(
                planned.jobs,
                lambda: experiment.finish(planned, self.executor.store, self.outcome, self.runs),
            )
        except JobFailed as error:
            return {**row, "folder": None, "failures": [str(error)]}
        self.others += prepared.broken
        learnt = result.summary["memorised_share"]
        methods = result.summary["methods"]
        return {
            **row,
            "noisy_accuracy": learnt,
            "memorised": learnt >= MEMORISED,
            "m_cog": {name: found["m_cog"] for name, found in methods.items()},
            "layers": planned.n_layers,
            "folder": str(result.folder),
            "failures": result.summary["failures"],
        }

    def control(self, planned: control.PlannedControl | None) -> dict[str, Any] | None:
        """The benchmark in the summary."""
        if planned is None:
            return None
        try:
            result = self._finished(
                planned.jobs,
                lambda: control.finish(planned, self.executor.store, self.outcome, self.runs),
            )
        except JobFailed as error:
            return {"folder": None, "failures": [str(error)]}
        return {
            "folder": str(result.folder),
            "by_technique": result.summary["by_technique"],
            "chance": result.summary["chance"],
            "interpretation": result.summary["interpretation"],
            "failures": result.summary["failures"],
        }

    def _finished(self, jobs: Sequence[Job], finish: Callable[[], T]) -> T:
        for _ in range(REPAIRS):
            try:
                return finish()
            except DamagedArtefact as error:
                self.progress.note(str(error).split(";")[0] + "; it is computed anew")
                self.supplies.write_again()
                again = self.executor.execute(jobs, self.progress)
                self.outcome = Outcome(
                    self.outcome.computed + again.computed, {**self.outcome.failed, **again.failed}
                )
        return finish()
