"""The control benchmark: hide memorisation in known layers, then score every technique.

The engine of `memloc control` (section 3.2 of the paper).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from memloc.analysis.control import (
    accuracy_table,
    hidden_layers,
    hidden_name,
)
from memloc.analysis.windows import chosen_windows
from memloc.config import ControlledModel, ControlRun, Data
from memloc.data.builtin import BUILTIN_TASKS
from memloc.data.load import is_downloaded
from memloc.data.task import Task
from memloc.engine.costs import pass_flops
from memloc.engine.estimate import Estimator
from memloc.engine.experiment import (
    Findings,
    Planned,
    Prepared,
    TableParts,
    failures_of,
    made_from,
)
from memloc.engine.input_cache import InputCache
from memloc.engine.job import Job
from memloc.engine.loop import Executor, JobFailed, Outcome
from memloc.engine.plan import (
    Cell,
    ControlPlanner,
    Planner,
    all_jobs,
    model_job,
    title_of,
)
from memloc.engine.progress import Progress, in_order, kind_in_words
from memloc.engine.store.store import Store, key_of
from memloc.errors import ConfigError, MemlocError
from memloc.models.names import ModelSource
from memloc.tables import CELL
from memloc.techniques import (
    Circumstances,
    Technique,
    check_possible,
    check_unit,
    find,
    make_usable,
    names,
    settings_of,
)
from memloc.text import counted as in_words
from memloc.text import duration, listed, size

AUXILIARY_SIZE = 100
"""Training examples of a built-in auxiliary task: enough to change all layers, at little cost."""


@dataclass(frozen=True)
class PreparedControl(Prepared):
    """A benchmark whose input is usable.

    Attributes:
        config: What to do.
        techniques: Those that can be imported.
        broken: Sentences on those that cannot.
        data: Of the main tasks, by name, and of the auxiliary one.
        auxiliary: Name of the auxiliary task.
        sources: The models.
    """

    config: ControlRun
    techniques: list[Technique]
    broken: list[str]
    data: dict[str, Data]
    auxiliary: str
    sources: list[ModelSource]

    @property
    def tasks(self) -> list[str]:
        """Names of the main tasks."""
        return [name for name in self.data if name != self.auxiliary]

    def plan(
        self,
        inputs: InputCache,
        executor: Executor,
        where: dict[str, Any],
        progress: Progress,
        label: str = "",
    ) -> PlannedControl:
        """See `Prepared`."""
        looks = look(self, inputs, executor, progress)
        facts = {look.source.name: inputs.facts(look.config.model, executor) for look in looks}
        costs = {
            (look.source.name, name): pass_flops(
                facts[look.source.name], inputs.lengths(data, look.config.training.max_tokens)
            )
            for look in looks
            for name, data in self.data.items()
        }
        cells = plan(self, looks, inputs, where, costs, among_others=bool(label))
        of_models = {look.source.fingerprint: facts[look.source.name] for look in looks}
        return PlannedControl(self, cells, Estimator(inputs.store, of_models, inputs.sizes()))


def prepare(config: ControlRun, inputs: InputCache, progress: Progress) -> PreparedControl:
    """Find what can be wrong with the input, as far as that shows without a look at the models.

    Raises:
        MemlocError: If something cannot be used.
    """
    chosen = config.techniques
    if config.every_technique:
        chosen = {name: chosen.get(name, {}) for name in names()}
    techniques, broken = make_usable(chosen)
    config = config.replace(
        techniques=settings_of(techniques), all_techniques=config.every_technique
    )
    for sentence in broken:
        progress.note(sentence)
    main, auxiliary = _data_of_tasks(config)
    tasks = [_task(inputs, data, "tasks") for data in main]
    other = _task(inputs, auxiliary, "auxiliary")
    _check_texts(config, tasks, other)
    _check_names("tasks", [task.name for task in (*tasks, other)])
    for task in tasks:
        check_possible(techniques, Circumstances(task.train))
    sources = [inputs.source(one.model) for one in config.models]
    _check_names("model.name", [source.name for source in sources])
    data = {inputs.task(one).name: one for one in (*main, auxiliary)}
    return PreparedControl(config, techniques, broken, data, other.name, sources)


def _data_of_tasks(config: ControlRun) -> tuple[list[Data], Data]:
    """The main tasks and the auxiliary one.

    Raises:
        ConfigError: If the auxiliary task is a main task too.
    """
    for name in config.held_back:
        if name not in config.tasks:
            raise ConfigError(
                f"it is not among the tasks {', '.join(config.tasks)}",
                setting="held_back",
                value=name,
            )
    if set(config.held_back) >= set(config.tasks):
        raise ConfigError(
            "no task is left to score the techniques on", setting="held_back", remedy="name fewer"
        )
    if config.auxiliary in config.tasks:
        raise ConfigError(
            "it is among the tasks too, and a task cannot be its own auxiliary",
            setting="auxiliary",
            value=config.auxiliary,
            remedy="choose another",
        )

    def of_task(name: str, limit: int | None) -> Data:
        data = config.data.replace(task=name, limit=limit)
        if not is_downloaded(name):  # local copies are of these alone
            data = data.model_copy(update={"data_dir": None})
        return data

    size = config.auxiliary_limit
    if size is None and config.auxiliary in BUILTIN_TASKS:
        size = AUXILIARY_SIZE
    return [of_task(name, None) for name in config.tasks], of_task(config.auxiliary, size)


def _task(inputs: InputCache, data: Data, setting: str) -> Task:
    """One of the tasks; what is wrong with its name is wrong with the setting it came from."""
    try:
        return inputs.task(data)
    except MemlocError as error:
        if error.setting == "data.task":
            error.setting = setting
        raise


def _check_texts(config: ControlRun, tasks: Sequence[Task], auxiliary: Task) -> None:
    """The auxiliary task must teach something else.

    Raises:
        ConfigError: If it is a main task under another name.
    """
    texts = set(auxiliary.train["text"])
    for task in tasks:
        if len(texts & set(task.train["text"])) > len(texts) / 2:
            raise ConfigError(
                f"it has the same texts as {task.name!r}",
                setting="auxiliary",
                value=config.auxiliary,
                remedy="choose another auxiliary task",
            )


def _check_names(setting: str, names: Sequence[str]) -> None:
    """Results are told apart by name.

    Raises:
        ConfigError: If two have the same.
    """
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"{name!r} is named twice, and results could not be told apart",
                setting=setting,
                remedy="rename one, or leave it out",
            )


@dataclass(frozen=True)
class PlannedControl(Planned):
    """A benchmark and its jobs.

    Attributes:
        prepared: Its input.
        cells: The control models.
        estimator: Says what they will cost.
    """

    command = "control"
    prepared: PreparedControl
    cells: list[Cell]
    estimator: Estimator

    @cached_property
    def jobs(self) -> list[Job]:
        """See `Planned`."""
        return all_jobs(self.cells)

    def notice(self, store: Store, workers: int) -> str | None:
        """What it will cost."""
        waiting = [job for job in self.jobs if not store.has(*job.artefact)]
        if not waiting:
            return None
        self.estimator.learn(waiting)
        found = [self.estimator.of_job(job) for job in waiting]
        seconds = sum(one.seconds or 0.0 for one in found) / workers
        least = "at least" if any(one.seconds is None for one in found) else "about"
        kinds = Counter(job.kind for job in waiting)
        jobs = listed([f"{kinds[kind]:,} × {kind_in_words(kind)}" for kind in in_order(kinds)])
        reused = len(self.jobs) - len(waiting)
        stored = f"; {in_words(reused, 'job')} in the store already" if reused else ""
        return (
            f"{jobs}: {least} {duration(seconds)} with {in_words(workers, 'worker')} on an idle "
            "machine, more if trainings have to be repeated; "
            f"{size(sum(one.size or 0.0 for one in found))} of disk{stored}"
        )

    @property
    def name(self) -> str:
        """See `Planned`."""
        return f"control-{key_of('control', [job.key for job in self.jobs])[:8]}"

    def collect(self, store: Store, outcome: Outcome) -> Findings:
        """See `Planned`."""
        config, broken = self.prepared.config, self.prepared.broken
        failures = failures_of(self.jobs, outcome)
        tables = _collect(self.cells, store)
        if "layers" not in tables:
            raise JobFailed(failures[0])
        models = zip(config.models, self.prepared.sources, strict=True)
        looks = [model_job(one.model, source) for one, source in models]
        return Findings(
            "control",
            self.name,
            tables,
            {"control": config.model_dump(mode="json")},
            {
                "held_back": list(config.held_back),
                "auxiliary": config.auxiliary,
                "seeds": list(config.seeds),
                "learned_at": config.control.learned_at,
                "unit": config.windows.unit,
            },
            # A technique nobody asked for by name is no failure if it cannot be imported.
            failures=[*([] if config.every_technique else broken), *failures],
            artefacts=made_from([*looks, *self.jobs], store),
        )


@dataclass(frozen=True)
class Look:
    """A model, and what can be done with it."""

    config: ControlledModel
    source: ModelSource
    n_layers: int
    hidden: tuple[tuple[int, ...], ...]
    techniques: list[Technique]


def look(
    prepared: PreparedControl, inputs: InputCache, executor: Executor, progress: Progress
) -> list[Look]:
    """A look at every model.

    Raises:
        MemlocError: If a model does not allow what was asked for.
    """
    return [
        _look(prepared, one, source, inputs.facts(one.model, executor), progress)
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


def plan(
    prepared: PreparedControl,
    looks: Sequence[Look],
    inputs: InputCache,
    where: dict[str, Any],
    costs: PassCosts,
    among_others: bool = False,
) -> list[Cell]:
    """What the benchmark computes.

    Args:
        prepared: The benchmark.
        looks: Its models.
        inputs: Has its data.
        where: See `Job`.
        costs: Of passes.
        among_others: Titles say all that tells jobs from those of other experiments.
    """
    config, cells = prepared.config, []
    planners = _planners(prepared, looks, inputs, where, costs, among_others)
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
    return cells


def _planners(
    prepared: PreparedControl,
    looks: Sequence[Look],
    inputs: InputCache,
    where: dict[str, Any],
    costs: PassCosts,
    among_others: bool = False,
) -> dict[tuple[str, str], ControlPlanner]:
    config = prepared.config
    return {
        (look.source.name, name): ControlPlanner(
            Planner(
                inputs.data(data),
                look.config.model,
                look.source,
                look.config.training,
                config.windows,
                look.n_layers,
                where,
                shared_label=f" ({look.source.name}, {name})" if among_others else "",
                pass_cost=costs.get((look.source.name, name), 1.0),
            ),
            inputs.data(prepared.data[prepared.auxiliary]),
            config.control,
            (look.source.name, name),
        )
        for look in looks
        for name, data in prepared.data.items()
    }


def _collect(cells: Sequence[Cell], store: Store) -> dict[str, pd.DataFrame]:
    """The tables of all jobs that are in the store, with the cell in front."""
    parts, seen = TableParts("control"), set()
    for cell in cells:
        for name, job in (cell.jobs.trainings | cell.jobs.techniques).items():
            if job.key in seen or not store.has(*job.artefact):
                continue
            seen.add(job.key)
            artefact = store.open(*job.artefact)
            shared = job.identity.get("state") == "frozen"  # by all cells of a task
            hidden = "" if shared else hidden_name(cell.hidden)
            values = (cell.model, cell.n_layers, cell.task, hidden, job.identity["seed"])
            of_cell = dict(zip(CELL, values, strict=True))
            spent = {"job": [name], "seconds": [artefact.manifest["costs"]["seconds"]]}
            parts.add("costs", pd.DataFrame(spent), **of_cell)
            if name in cell.jobs.trainings:
                outcome = pd.DataFrame([artefact.json("outcome.json")])
                parts.add("trainings", outcome, **of_cell, state=name)
                for file in ("history", "attempts"):
                    parts.add(file, artefact.table(f"{file}.parquet"), **of_cell, state=name)
            else:
                parts.add_result(artefact, **of_cell)
    tables = parts.joined()
    if "layers" in tables:
        tables["accuracy"] = accuracy_table(tables["layers"])
    for name in dict.fromkeys(name for cell in cells for name in cell.jobs.techniques):
        tables |= find(name).benchmark(tables)
    return tables
