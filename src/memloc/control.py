"""The control benchmark: hide memorisation in known layers, then score every technique.

The engine of `memloc control` (section 3.2 of the paper).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
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
from memloc.config import ConfigError, ControlledModel, ControlRunConfig
from memloc.data.builtin import BUILTIN_TASKS
from memloc.data.load import load_task
from memloc.data.paper import PAPER_TASKS
from memloc.data.task import Task
from memloc.execution.device import pick_device
from memloc.execution.executor import Executor
from memloc.execution.job import Job
from memloc.execution.local import LocalExecutor, default_workers
from memloc.execution.plan import Planner
from memloc.execution.plan_control import Cell, ControlPlanner, all_jobs, in_seconds, title_of
from memloc.execution.progress import Progress, Silent
from memloc.execution.queue import JobFailed
from memloc.execution.tasks import write_task
from memloc.experiment import look_at_model, one_of_each
from memloc.methods import (
    check_enough_examples,
    check_pooling,
    check_unit,
    method_names,
    pooling_allows,
    usable_methods,
)
from memloc.models.names import ModelSource, resolve
from memloc.report.control_summary import estimate_words, summarise_control
from memloc.results import write_results
from memloc.store.store import Store, key_of

AUXILIARY_SIZE = 100
"""Training examples of a built-in auxiliary task: enough to change all layers, at little cost."""
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
    # Everything that can be wrong with the input shows before anything is computed.
    names = method_names() if config.methods is None else config.methods
    methods, broken = usable_methods(names, config.techniques.options)
    for sentence in broken:
        progress.note(sentence)
    tasks, auxiliary = _load_tasks(config)
    _check_names("--tasks", [task.name for task in (*tasks, auxiliary)])
    for task in tasks:
        noisy = int(task.train["noisy"].sum())
        check_enough_examples(methods, noisy, len(task.train) - noisy)
    sources = [resolve(one.model) for one in config.models]
    _check_names("--model", [source.name for source in sources])
    device = pick_device(config.device)
    store = Store(runs / "store")
    store.check_writable()
    n_workers = workers or default_workers(device)
    with LocalExecutor(store, n_workers) as executor:
        looks = [
            _look(executor, one, source, config, methods, progress)
            for one, source in zip(config.models, sources, strict=True)
        ]
        where = {"device": device, "cache_memory": cache_memory, "low_memory": low_memory}
        cells, weights_size = _plan(config, looks, tasks, auxiliary, executor, where)
        jobs = all_jobs(cells)
        waiting = [job for job in jobs if not store.has(*job.artefact)]
        if waiting:
            progress.note(estimate_words(jobs, waiting, n_workers, weights_size))
        outcome = executor.execute(jobs, progress)
    failures = one_of_each([words for words in outcome.failed.values() if words])
    tables = _collect(cells, store)
    if "layers" not in tables:
        raise JobFailed(failures[0])
    summary = summarise_control(config, tables)
    # A technique nobody asked for by name is no failure if it cannot be imported.
    summary["failures"] = [*([] if config.methods is None else broken), *failures]
    key = key_of("control", [job.key for job in jobs])
    folder = runs / f"control-{key[:8]}"
    write_results(folder, tables, summary, {"control": config.model_dump(mode="json")})
    reused = len(jobs) - outcome.computed - len(outcome.failed)
    summary["jobs"] = {"computed": outcome.computed, "reused": reused}
    summary["seconds"] = round(time.perf_counter() - started, 1)
    summary["folder"] = str(folder)
    return ControlResult(summary, tables, folder)


def _load_tasks(config: ControlRunConfig) -> tuple[list[Task], Task]:
    """The main tasks and the auxiliary one.

    Raises:
        ConfigError: If the auxiliary task is a main task too.
        DataError: If data are missing or unsuitable.
    """
    for name in config.held_back:
        if name not in config.tasks:
            raise ConfigError(f"--held-back {name} is not among --tasks {','.join(config.tasks)}")
    if set(config.held_back) >= set(config.tasks):
        raise ConfigError("--held-back leaves no task to score the techniques on; name fewer")
    if config.auxiliary in config.tasks:
        raise ConfigError(
            f"--aux-task {config.auxiliary} is among --tasks too; a task cannot be its own "
            "auxiliary, so choose another"
        )

    def load(name: str, limit: int | None) -> Task:
        data = config.data.replace(task=name, limit=limit)
        if name not in PAPER_TASKS:  # copies are of the paper's tasks alone
            data = data.model_copy(update={"data_dir": None})
        return load_task(data)

    size = config.auxiliary_limit
    if size is None and config.auxiliary in BUILTIN_TASKS:
        size = AUXILIARY_SIZE
    tasks = [load(name, None) for name in config.tasks]
    auxiliary = load(config.auxiliary, size)
    texts = set(auxiliary.train["text"])
    for task in tasks:
        if len(texts & set(task.train["text"])) > len(texts) / 2:
            raise ConfigError(
                f"--aux-task {config.auxiliary} has the same texts as {task.name!r}; choose "
                "another auxiliary task"
            )
    return tasks, auxiliary


def _check_names(flag: str, names: Sequence[str]) -> None:
    """Results are told apart by name.

    Raises:
        ConfigError: If two have the same.
    """
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"{flag} names {name!r} twice, and results could not be told apart; rename one, or "
                "leave it out"
            )


@dataclass(frozen=True)
class _Look:
    """A model, and what can be done with it."""

    config: ControlledModel
    source: ModelSource
    n_layers: int
    hidden: tuple[tuple[int, ...], ...]
    methods: tuple[str, ...]


def _look(
    executor: Executor,
    one: ControlledModel,
    source: ModelSource,
    config: ControlRunConfig,
    methods: tuple[str, ...],
    progress: Progress,
) -> _Look:
    facts = look_at_model(executor, one.model, source)
    n_layers = int(facts["layers"])
    chosen_windows(n_layers, config.techniques.window_sizes)
    hidden = [hidden_layers(spec, n_layers, source.name) for spec in config.layers]
    if config.methods is None:
        possible = pooling_allows(methods, facts["pooling"])
        if possible != methods:
            absent = ", ".join(name for name in methods if name not in possible)
            progress.note(
                f"left out for {source.name}, whose head does not read a single position: {absent}"
            )
        methods = possible
    check_pooling(methods, facts["pooling"])
    check_unit(methods, config.techniques.unit, facts["unit_problem"])
    # In a shallow model, first, middle and last may be the same pair.
    return _Look(one, source, n_layers, tuple(dict.fromkeys(hidden)), methods)


def _plan(
    config: ControlRunConfig,
    looks: Sequence[_Look],
    tasks: Sequence[Task],
    auxiliary: Task,
    executor: Executor,
    where: dict[str, Any],
) -> tuple[list[Cell], int]:
    """All cells, their costs in seconds, and the bytes of the weights of the largest model."""
    store = executor.store
    data = {task.name: write_task(store, task) for task in (*tasks, auxiliary)}
    planners = {
        (look.source.name, name): ControlPlanner(
            Planner(
                artefact,
                look.config.model,
                look.source,
                look.config.training,
                config.techniques,
                look.n_layers,
                where,
            ),
            data[auxiliary.name],
            config.control,
            (look.source.name, name),
        )
        for look in looks
        for name, artefact in data.items()
    }
    speeds = {key: planner.speed() for key, planner in planners.items()}
    outcome = executor.execute(list(speeds.values()), Silent())
    for words in outcome.failed.values():
        raise JobFailed(words)
    measured = {key: store.open(*job.artefact).json("speed.json") for key, job in speeds.items()}
    seconds = {key: found["seconds_per_pass"] for key, found in measured.items()}
    cells = []
    for look in looks:
        model = look.source.name
        for task in tasks:
            pass_time = seconds[model, task.name]
            passes = 1 + seconds[model, auxiliary.name] / pass_time
            for hidden in look.hidden:
                for seed in config.seeds:
                    of = title_of(
                        model if len(looks) > 1 else None,
                        task.name,
                        hidden,
                        seed if len(config.seeds) > 1 else None,
                    )
                    planner = planners[model, task.name]
                    cell = planner.cell(look.methods, hidden, seed, of, passes)
                    cells.append(in_seconds(cell, pass_time))
    return cells, max(found["trained_bytes"] for found in measured.values())


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
        for name, job in (cell.jobs.trainings | cell.jobs.methods).items():
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
