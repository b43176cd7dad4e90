"""Many experiments at once (the engine of `memloc sweep`).

All runs are planned before anything is computed, so that whatever is wrong shows at once; then all
jobs of all runs go to one executor together, each artefact once, so that nothing waits for another
run; then every run is finished, whatever became of the others.
"""

from __future__ import annotations

import fnmatch
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memloc.engine import control, experiment
from memloc.engine.experiment import Experiment, Findings, one_of_each
from memloc.engine.inputs import InputCache
from memloc.engine.job import Job, JobFailed, write_plan
from memloc.engine.local import LocalExecutor, make_executor
from memloc.engine.plan import each_once
from memloc.engine.progress import Progress
from memloc.engine.store.store import DamagedArtefact, Store
from memloc.engine.sweep_config import Sweep, SweepCell
from memloc.engine.views import StatusFile
from memloc.errors import MemlocError, StoreError, cannot_write, nearest
from memloc.text import write_whole

CONTROL = "control"
"""What the control benchmark is called among the cells."""
OnFinished = Callable[[Findings], dict[str, Any]]
"""Keeps the findings of one experiment, and says what the summary of the sweep tells of them."""


def select(sweep: Sweep, pattern: str) -> Sweep:
    """The cells whose `task-model` fits a pattern such as `rte-*`; `control` is the benchmark.

    Raises:
        MemlocError: If none does.
    """
    names = ["-".join(both) for both in short_names(sweep.cells)]
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


def short_names(cells: Sequence[SweepCell]) -> list[tuple[str, str]]:
    """Task and model of each cell; of paths only the last part, unless two have the same."""
    counts = Counter(
        Path(name).name for name in {name for cell in cells for name in (cell.task, cell.model)}
    )

    def short(name: str) -> str:
        last = Path(name).name
        return last if counts[last] == 1 else name

    return [(short(cell.task), short(cell.model)) for cell in cells]


def _labels(cells: Sequence[SweepCell]) -> list[str]:
    """What distinguishes each cell from all others, for people."""
    counts: Counter[str] = Counter()
    found = []
    for cell, (task, model) in zip(cells, short_names(cells), strict=True):
        label = f"{task}{' binarised' if cell.config.data.binarise else ''}, {model}"
        counts[label] += 1
        found.append(label if counts[label] == 1 else f"{label}, no. {counts[label]}")
    return found


@dataclass(frozen=True)
class PlannedSweep:
    """All experiments of a sweep."""

    runs: list[tuple[str, Experiment]]
    """With what distinguishes each."""
    benchmark: Experiment | None

    @property
    def jobs(self) -> list[Job]:
        """Every job once, however many runs share it."""
        experiments = [run for _, run in self.runs] + ([self.benchmark] if self.benchmark else [])
        return each_once(job for one in experiments for job in one.jobs)


def plan_sweep(sweep: Sweep, inputs: InputCache) -> PlannedSweep:
    """Prepare and plan everything; data and facts about models go to the store.

    Raises:
        MemlocError: If something that was asked for is not possible; the message says in which run.
    """
    labelled = list(zip(_labels(sweep.cells), sweep.cells, strict=True))
    for label, cell in labelled:  # what is missing shows before models are looked at
        with _about(label):
            inputs.task(cell.config.data)
            inputs.source(cell.config.model)
    runs, benchmark = [], None
    for label, cell in labelled:
        with _about(label):
            runs.append((label, experiment.prepare(cell.config, inputs, f" ({label})")))
    if sweep.control is not None:
        with _about(CONTROL):
            benchmark = control.prepare(sweep.control, inputs, CONTROL)
    return PlannedSweep(runs, benchmark)


@contextmanager
def _about(label: str) -> Iterator[None]:
    """Complaints say which run they are about, and name settings of the file."""
    try:
        yield
    except StoreError:
        raise
    except MemlocError as error:
        raise MemlocError(f"{label}: {error}") from None


def run_sweep(
    sweep: Sweep, runs: Path, on_finished: OnFinished, progress: Progress | None = None
) -> dict[str, Any]:
    """Compute all that is not in the store, and finish every run.

    Returns:
        A summary, also kept as `sweeps/<name>/summary.json` in the folder of the runs.

    Raises:
        MemlocError: If something that was asked for is not possible; nothing is computed then.
    """
    started = time.perf_counter()
    progress = progress or Progress()
    store, folder = Store(runs / "store"), runs / "sweeps" / sweep.name
    executor = make_executor(sweep.execution, store, folder)  # it must be possible here
    with LocalExecutor(store, 1) as here:
        planned = plan_sweep(sweep, InputCache(here, sweep.where, progress))
    jobs = planned.jobs
    write_plan(folder, jobs)
    _write(folder / "experiment.yaml", sweep.resolved())
    status = StatusFile(folder / "status.json", sweep.name, "sweep", store)
    with progress.also(status), executor:
        outcome = executor.execute(jobs, progress)
    failures = one_of_each(list(outcome.failed.values()))

    def finish(one: Experiment) -> dict[str, Any]:
        """Keep its findings, or say why there are none."""
        try:
            return on_finished(one.collect(store, outcome))
        except JobFailed as error:
            return {"folder": None, "failures": [str(error)]}
        except DamagedArtefact as error:
            failures.append(str(error))
            return {"folder": None, "failures": [str(error)]}

    rows = [
        {**_row(label, one, *names), **finish(one)}
        for (label, one), names in zip(planned.runs, short_names(sweep.cells), strict=True)
    ]
    benchmark = planned.benchmark and finish(planned.benchmark)
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


def _row(label: str, run: Experiment, task: str, model: str) -> dict[str, Any]:
    """What the summary says of a run beside its findings."""
    about, examples = run.outline.about, run.outline.task
    return {
        "run": label,
        "task": task,
        "model": model,
        "binarised": examples is not None and examples.binarised,
        "seeds": about["seeds"],
        "layers": about["layers"],
    }


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise cannot_write(path, error) from None
