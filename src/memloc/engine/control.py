"""The control benchmark: hide memorisation in known layers, then score every technique.

The engine of `memloc control` (section 3.2 of the paper).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from memloc.analysis.control import (
    CELL,
    accuracy_table,
    gradient_choices,
    hidden_layers,
    hidden_name,
)
from memloc.analysis.windows import chosen_windows
from memloc.config import ControlledModel, ControlRunConfig
from memloc.engine.control_input import PreparedControl, prepare
from memloc.engine.device import pick_device
from memloc.engine.executor import Executor
from memloc.engine.experiment import one_of_each
from memloc.engine.job import Job
from memloc.engine.local import LocalExecutor, default_workers
from memloc.engine.plan import Planner, model_job, speed_job
from memloc.engine.plan_control import Cell, ControlPlanner, all_jobs, title_of
from memloc.engine.progress import Progress, Silent
from memloc.engine.queue import JobFailed, Outcome
from memloc.engine.store.store import Store, key_of
from memloc.engine.supplies import Supplies
from memloc.models.names import ModelSource
from memloc.results.control_summary import estimate_words, summarise_control
from memloc.results.folder import made_from, write_results
from memloc.techniques import Circumstances, Technique, check_possible, check_unit

KEPT = ("layers", "windows", "gradients", "probes", "failures")
"""Tables of techniques that the result keeps; all are in the store."""


@dataclass(frozen=True)
class ControlResult:
    """What the benchmark found, and where it is kept."""

    summary: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    folder: Path


def run_control(
    config: ControlRunConfig,
    runs: Path = Path("runs"),
    workers: int | None = None,
    progress: Progress | None = None,
    cache_memory: int | None = None,
    low_memory: bool = False,
) -> ControlResult:
    """Train control models, apply the techniques, score them; what is stored is not done again.

    Args:
        config: What to do.
        runs: Folder for the store and the results.
        workers: Processes, each with one thread; None takes one per core.
        progress: Where to show how far it is, and what it will cost.
        cache_memory: Bytes of states that a process keeps in memory; more go to a file.
        low_memory: Keep the layers of θ_O in a file until they are needed; same results.

    Raises:
        MemlocError: If something the user gave cannot be used; nothing is lost then.
    """
    started = time.perf_counter()
    progress = progress or Silent()
    store = Store(runs / "store")
    supplies = Supplies(store)
    prepared = prepare(config, supplies, progress)
    device = pick_device(config.device)
    store.check_writable()
    n_workers = workers or default_workers(device)
    where = {"device": device, "cache_memory": cache_memory, "low_memory": low_memory}
    with LocalExecutor(store, n_workers) as executor:
        looks = look(prepared, supplies, executor, progress)
        speeds, weights_size = measure(prepared, looks, supplies, executor, where)
        planned = plan(prepared, looks, supplies, where, speeds)
        waiting = [job for job in planned.jobs if not store.has(*job.artefact)]
        if waiting:
            progress.note(estimate_words(planned.jobs, waiting, n_workers, weights_size))
        outcome = executor.execute(planned.jobs, progress)
    result = finish(planned, store, outcome, runs)
    reused = len(planned.jobs) - outcome.computed - len(outcome.failed)
    result.summary["jobs"] = {"computed": outcome.computed, "reused": reused}
    result.summary["seconds"] = round(time.perf_counter() - started, 1)
    return result


@dataclass(frozen=True)
class PlannedControl:
    """A benchmark and its jobs."""

    prepared: PreparedControl
    cells: list[Cell]

    @cached_property
    def jobs(self) -> list[Job]:
        """All of them."""
        return all_jobs(self.cells)


def finish(planned: PlannedControl, store: Store, outcome: Outcome, runs: Path) -> ControlResult:
    """Put together what was computed, and write the result folder.

    Args:
        planned: The benchmark.
        store: Has the results of its jobs.
        outcome: What became of them; those of others do not matter.
        runs: Folder for the result folder.

    Raises:
        JobFailed: If there is no result.
        DamagedArtefact: If an artefact turned out damaged; it is set aside then.
    """
    config, broken = planned.prepared.config, planned.prepared.broken
    mine = {job.artefact for job in planned.jobs}
    failures = one_of_each([words for a, words in outcome.failed.items() if words and a in mine])
    tables = _collect(planned.cells, store)
    if "layers" not in tables:
        raise JobFailed(failures[0])
    summary = summarise_control(config, tables)
    # A technique nobody asked for by name is no failure if it cannot be imported.
    summary["failures"] = [*([] if config.every_technique else broken), *failures]
    key = key_of("control", [job.key for job in planned.jobs])
    folder = runs / f"control-{key[:8]}"
    models = zip(config.models, planned.prepared.sources, strict=True)
    looks = [model_job(one.model, source) for one, source in models]
    used = made_from([*looks, *planned.jobs], store)
    write_results(folder, tables, summary, {"control": config.model_dump(mode="json")}, used)
    summary["folder"] = str(folder)
    return ControlResult(summary, tables, folder)


@dataclass(frozen=True)
class Look:
    """A model, and what can be done with it."""

    config: ControlledModel
    source: ModelSource
    n_layers: int
    hidden: tuple[tuple[int, ...], ...]
    techniques: list[Technique]


def look(
    prepared: PreparedControl, supplies: Supplies, executor: Executor, progress: Progress
) -> list[Look]:
    """A look at every model.

    Raises:
        MemlocError: If a model does not allow what was asked for.
    """
    return [
        _look(prepared, one, source, supplies.facts(one.model, executor), progress)
        for one, source in zip(prepared.config.models, prepared.sources, strict=True)
    ]


def _look(
    prepared: PreparedControl,
    one: ControlledModel,
    source: ModelSource,
    facts: dict[str, Any],
    progress: Progress,
) -> Look:
    config, techniques = prepared.config, prepared.techniques
    n_layers = int(facts["layers"])
    chosen_windows(n_layers, config.windows.sizes)
    hidden = [hidden_layers(spec, n_layers, source.name) for spec in config.layers]
    there = Circumstances(pooling=facts["pooling"])
    if config.every_technique:
        for technique in techniques:
            reason = technique.obstacle(there)
            if reason is not None:
                progress.note(f"{technique.name} is left out for {source.name}: {reason}")
        techniques = [one for one in techniques if one.obstacle(there) is None]
    check_possible(techniques, there)
    check_unit(techniques, config.windows.unit, facts.get("unit_problem"))
    # In a shallow model, first, middle and last may be the same pair.
    return Look(one, source, n_layers, tuple(dict.fromkeys(hidden)), techniques)


PassCosts = dict[tuple[str, str], float]
"""What a pass of a task's data through a model costs, by the names of model and task."""


def measure(
    prepared: PreparedControl,
    looks: Sequence[Look],
    supplies: Supplies,
    executor: Executor,
    where: dict[str, Any],
) -> tuple[PassCosts, int]:
    """Seconds for a pass of every task's data, and the bytes of the weights of the largest model.

    Raises:
        JobFailed: If a model does not run.
    """
    data = {name: supplies.data(config) for name, config in prepared.data.items()}
    planners = _planners(prepared, looks, supplies, where, {})
    jobs = {
        look.source.name: speed_job(
            planners[look.source.name, prepared.auxiliary].planner.train("frozen", 0, ""),
            list(data.values()),
        )
        for look in looks
    }
    outcome = executor.execute(list(jobs.values()), Silent())
    for words in outcome.failed.values():
        raise JobFailed(words)
    store = executor.store
    found = {model: store.open(*job.artefact).json("speed.json") for model, job in jobs.items()}
    seconds = {
        (model, name): measured["seconds_per_pass"][key]
        for model, measured in found.items()
        for name, (_, key) in data.items()
    }
    return seconds, max(measured["trained_bytes"] for measured in found.values())


def plan(
    prepared: PreparedControl,
    looks: Sequence[Look],
    supplies: Supplies,
    where: dict[str, Any],
    costs: PassCosts,
    among_others: bool = False,
) -> PlannedControl:
    """What the benchmark computes.

    Args:
        prepared: The benchmark.
        looks: Its models.
        supplies: Has its data.
        where: See `Job`.
        costs: Of passes.
        among_others: Titles say all that tells jobs from those of other experiments.
    """
    config, cells = prepared.config, []
    planners = _planners(prepared, looks, supplies, where, costs, among_others)
    for look in looks:
        model = look.source.name
        for task in prepared.tasks:
            passes = 1 + costs[model, prepared.auxiliary] / costs[model, task]
            for hidden in look.hidden:
                for seed in config.seeds:
                    of = title_of(
                        model if len(looks) > 1 or among_others else None,
                        task,
                        hidden,
                        seed if len(config.seeds) > 1 else None,
                    )
                    planner = planners[model, task]
                    cells.append(planner.cell(look.techniques, hidden, seed, of, passes))
    return PlannedControl(prepared, cells)


def _planners(
    prepared: PreparedControl,
    looks: Sequence[Look],
    supplies: Supplies,
    where: dict[str, Any],
    costs: PassCosts,
    among_others: bool = False,
) -> dict[tuple[str, str], ControlPlanner]:
    config = prepared.config
    return {
        (look.source.name, name): ControlPlanner(
            Planner(
                supplies.data(data),
                look.config.model,
                look.source,
                look.config.training,
                config.windows,
                look.n_layers,
                where,
                shared_label=f" ({look.source.name}, {name})" if among_others else "",
                pass_cost=costs.get((look.source.name, name), 1.0),
            ),
            supplies.data(prepared.data[prepared.auxiliary]),
            config.control,
            (look.source.name, name),
        )
        for look in looks
        for name, data in prepared.data.items()
    }


def _collect(cells: Sequence[Cell], store: Store) -> dict[str, pd.DataFrame]:
    """The tables of all jobs that are in the store, with the cell in front."""
    parts: dict[str, list[pd.DataFrame]] = {}
    seen: set[str] = set()

    def add(name: str, cell: Cell, job: Job, table: pd.DataFrame, **columns: Any) -> None:
        shared = job.identity.get("state") == "frozen"  # by all cells of a task
        identity = (
            *(cell.model, cell.n_layers, cell.task),
            "" if shared else hidden_name(cell.hidden),
            job.identity["seed"],
        )
        front = dict(zip(CELL, identity, strict=True)) | columns
        # What a technique calls model is a state of the model here.
        table = table.rename(columns={"model": "state"})
        parts.setdefault(name, []).append(
            pd.concat([pd.DataFrame(front, index=table.index), table], axis=1)
        )

    for cell in cells:
        for name, job in (cell.jobs.trainings | cell.jobs.techniques).items():
            if job.key in seen or not store.has(*job.artefact):
                continue
            seen.add(job.key)
            artefact = store.open(*job.artefact)
            seconds = artefact.manifest["costs"]["seconds"]
            add("costs", cell, job, pd.DataFrame({"job": [name], "seconds": [seconds]}))
            if name in cell.jobs.trainings:
                outcome = pd.DataFrame([artefact.json("outcome.json")])
                add("trainings", cell, job, outcome, state=name)
                for file in ("history", "attempts"):
                    add(file, cell, job, artefact.table(f"{file}.parquet"), state=name)
            for file in KEPT:
                if f"{file}.parquet" in artefact.manifest["files"]:
                    add(file, cell, job, artefact.table(f"{file}.parquet"))
    tables = {name: pd.concat(tables, ignore_index=True) for name, tables in parts.items()}
    if "layers" in tables:
        tables["accuracy"] = accuracy_table(tables["layers"])
    if "gradients" in tables:
        tables["gradient_choices"] = gradient_choices(tables["gradients"])
    return tables
