"""Many experiments at once (the engine of `memloc sweep`).

All runs are prepared and planned before anything is computed, so that whatever is wrong shows at
once; then all jobs of all runs go to one executor together, each artefact once, so that nothing
waits for another run; then every run is finished, whatever became of the others.
"""

from __future__ import annotations

import fnmatch
import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from memloc.config import Execution
from memloc.engine import control, experiment
from memloc.engine.device import pick_device
from memloc.engine.half_splits import REPAIRS, further_rounds
from memloc.engine.input_cache import InputCache
from memloc.engine.job import Job
from memloc.engine.local import LocalExecutor, check_executor, make_executor
from memloc.engine.loop import Artefact, Executor, JobFailed, Outcome
from memloc.engine.plan_file import write_plan
from memloc.engine.progress import Progress, Silent
from memloc.engine.status import Journal, StatusFile
from memloc.engine.store.store import DamagedArtefact, Store
from memloc.engine.sweep_config import Sweep, SweepCell
from memloc.errors import MemlocError, StoreError, nearest

CONTROL = "control"
"""What the control benchmark is called among the cells."""
T = TypeVar("T")
OnFinished = Callable[[experiment.Findings], dict[str, Any]]
"""Keeps the findings of one experiment, and says what the summary of the sweep tells of them."""


def select(sweep: Sweep, pattern: str) -> Sweep:
    """The cells whose `task-model` fits a pattern such as `rte-*`; `control` is the benchmark.

    Raises:
        MemlocError: If none does.
    """
    names = cell_names(sweep.cells)
    cells = tuple(
        cell
        for cell, name in zip(sweep.cells, names, strict=True)
        for plain in [f"{Path(cell.task).name}-{Path(cell.model).name}"]  # all that are called so
        if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(plain, pattern)
    )
    benchmark = sweep.control if fnmatch.fnmatchcase(CONTROL, pattern) else None
    if not cells and benchmark is None:
        all_names = [*dict.fromkeys(names), *([CONTROL] if sweep.control else [])]
        raise MemlocError(
            "it fits no cell", setting="only", value=pattern, remedy=nearest(pattern, all_names)
        )
    return replace(sweep, cells=cells, control=benchmark)


def cell_names(cells: Sequence[SweepCell]) -> list[str]:
    """`rte-bert`; of models and files in folders only as much as distinguishes them."""
    return [f"{task}-{model}" for task, model in _short_names(cells)]


def _short_names(cells: Sequence[SweepCell]) -> list[tuple[str, str]]:
    """Task and model of each cell."""
    tasks = shorten([cell.task for cell in cells])
    models = shorten([cell.model for cell in cells])
    return [(tasks[cell.task], models[cell.model]) for cell in cells]


def shorten(names: Sequence[str]) -> dict[str, str]:
    """Of each name or path the last parts, as many as no other has."""
    tails = {
        name: ["/".join(parts[-n:]) for n in range(1, len(parts) + 1)]
        for name in names
        for parts in [Path(name).parts]
    }
    counts = Counter(tail for of_name in tails.values() for tail in of_name)
    return {
        name: next((tail for tail in of_name if counts[tail] == 1), name)
        for name, of_name in tails.items()
    }


@dataclass(frozen=True)
class PlannedSweep:
    """All jobs of a sweep.

    Attributes:
        sweep: What was asked for.
        runs: The runs, with what distinguishes each.
        benchmark: The control benchmark.
        inputs: What they work on.
    """

    sweep: Sweep
    runs: list[tuple[str, experiment.PlannedRun]]
    benchmark: control.PlannedControl | None
    inputs: InputCache

    @property
    def jobs(self) -> list[Job]:
        """Every job once, however many runs share it."""
        found: dict[Artefact, Job] = {}
        for _, run in self.runs:
            for job in run.jobs:
                found.setdefault(job.artefact, job)
        for job in self.benchmark.jobs if self.benchmark else ():
            found.setdefault(job.artefact, job)
        return list(found.values())


def plan_sweep(
    sweep: Sweep, store: Store, progress: Progress, inputs: InputCache | None = None
) -> PlannedSweep:
    """Prepare and plan everything.

    Args:
        sweep: What to do.
        store: Where results go; data and facts about models go there now.
        progress: Is told what the user should know.
        inputs: Where data and models come from.

    Raises:
        MemlocError: If something that was asked for is not possible; the message says in which run.
    """
    inputs = inputs or InputCache(store)
    prepared = [
        _told(label, partial(experiment.prepare, cell.config, inputs, progress))
        for label, cell in _labelled(sweep.cells)
    ]
    benchmark = None
    if sweep.control is not None:
        benchmark = _told(CONTROL, partial(control.prepare, sweep.control, inputs, progress))
    where = sweep.execution.where(_device(sweep.execution))
    store.check_writable()
    with LocalExecutor(store, 1) as here:
        runs = [
            (
                label,
                _told(label, partial(run.plan, inputs, here, where, progress, f" ({label})")),
            )
            for (label, _), run in zip(_labelled(sweep.cells), prepared, strict=True)
        ]
        controlled = None
        if benchmark is not None:
            step = partial(benchmark.plan, inputs, here, where, progress, f" ({CONTROL})")
            controlled = _told(CONTROL, step)
    return PlannedSweep(sweep, runs, controlled, inputs)


def _labelled(cells: Sequence[SweepCell]) -> list[tuple[str, SweepCell]]:
    """What distinguishes each cell from all others, for people."""
    labels: dict[str, int] = {}
    found = []
    for cell, (task, model) in zip(cells, _short_names(cells), strict=True):
        classes = " binarised" if cell.config.data.binarise else ""
        label = f"{task}{classes}, {model}"
        labels[label] = labels.get(label, 0) + 1
        number = f", no. {labels[label]}" if labels[label] > 1 else ""
        found.append((label + number, cell))
    return found


def _told(label: str, step: Callable[[], T]) -> T:
    """Do a step; a complaint says which run it is about, and names settings of the file."""
    try:
        return step()
    except StoreError:
        raise
    except MemlocError as error:
        raise MemlocError(f"{label}: {error}") from None


def _device(execution: Execution) -> str:
    """Workers elsewhere know best what they have."""
    here = execution.executor == "local"
    return pick_device(execution.device) if here else execution.device


def run_sweep(
    sweep: Sweep, runs: Path, on_finished: OnFinished, progress: Progress | None = None
) -> dict[str, Any]:
    """Compute all that is not in the store, and finish every run.

    Args:
        sweep: What to do.
        runs: Folder for the store and `sweeps/<name>`.
        on_finished: Called with the findings of every experiment.
        progress: Where to show how far it is.

    Returns:
        A summary, also kept as `sweeps/<name>/summary.json`.

    Raises:
        MemlocError: If something that was asked for is not possible; nothing is computed then.
    """
    started = time.perf_counter()
    progress = progress or Silent()
    check_executor(sweep.execution)
    store = Store(runs / "store")
    inputs = InputCache(store)
    planned = plan_sweep(sweep, store, progress, inputs)
    jobs = planned.jobs
    folder = runs / "sweeps" / sweep.name
    about = {"name": sweep.name, "runs": [label for label, _ in planned.runs]}
    write_plan(folder, jobs, about)
    _write(folder / "experiment.yaml", sweep.resolved())
    status = StatusFile(folder / "status.json", sweep.name, "sweep")
    with (
        progress.also(status, Journal(folder / "journal.jsonl")),
        make_executor(sweep.execution, store, folder) as executor,
    ):
        outcome = executor.execute(jobs, progress)
        halves = [run.halves for _, run in planned.runs if run.halves is not None]
        more = further_rounds(executor, halves, progress)
        if len(planned.jobs) > len(jobs):
            jobs = planned.jobs
            write_plan(folder, jobs, about)
        finisher = _Finisher(inputs, executor, outcome + more, progress, on_finished)
        rows = [finisher.run(label, run) for label, run in planned.runs]
        for row, (task, model) in zip(rows, _short_names(sweep.cells), strict=True):
            for key, name in (("task", task), ("model", model)):
                if "/" in name:  # others are called alike but for their folder
                    row[key] = name
        benchmark = finisher.control(planned.benchmark)
    outcome = finisher.outcome
    failures = [
        *experiment.one_of_each(list(outcome.failed.values())),
        *dict.fromkeys(finisher.others),
    ]
    summary = {
        "name": sweep.name,
        "runs": rows,
        "control": benchmark,
        "failures": failures,
        "jobs": {
            "computed": outcome.computed,
            "failed": len(outcome.missing),
            "reused": len(jobs) - outcome.computed - len(outcome.missing),
        },
        "seconds": round(time.perf_counter() - started, 1),
        "folder": str(folder),
    }
    _write(folder / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False))
    return summary


class _Finisher:
    """Finishes every experiment, whatever became of the others; computes anew what is damaged.

    Args:
        inputs: Has the data.
        executor: Computes anew.
        outcome: What became of all jobs.
        progress: Is told what the user should know.
        on_finished: Called with the findings of every experiment.
    """

    def __init__(
        self,
        inputs: InputCache,
        executor: Executor,
        outcome: Outcome,
        progress: Progress,
        on_finished: OnFinished,
    ) -> None:
        self.inputs, self.executor, self.outcome = inputs, executor, outcome
        self.progress, self.on_finished = progress, on_finished
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
            row |= {**self._finished(planned), "layers": planned.n_layers}
        except JobFailed as error:
            return {**row, "folder": None, "failures": [str(error)]}
        self.others += prepared.broken
        return row

    def control(self, planned: control.PlannedControl | None) -> dict[str, Any] | None:
        """The benchmark in the summary."""
        if planned is None:
            return None
        try:
            return self._finished(planned)
        except JobFailed as error:
            return {"folder": None, "failures": [str(error)]}

    def _finished(self, planned: experiment.Planned) -> dict[str, Any]:
        for _ in range(REPAIRS):
            try:
                return self.on_finished(planned.collect(self.executor.store, self.outcome))
            except DamagedArtefact as error:
                self.progress.note(f"{error.problem}; it is computed anew")
                self.inputs.write_again()
                self.outcome += self.executor.execute(planned.jobs, self.progress)
        return self.on_finished(planned.collect(self.executor.store, self.outcome))


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}-{uuid.uuid4().hex[:6]}")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    except OSError as error:
        raise StoreError(
            f"cannot write {str(path)!r}: {error.strerror or error}; free some space or choose "
            "another folder for the results"
        ) from None
    finally:
        draft.unlink(missing_ok=True)
