"""One engine for all experiments: from settings to tables.

Every experiment goes the same way, whether its models are trained (`memloc run`), given
(`memloc localise`) or trained to hide something (`memloc control`): a planning function finds what
is wrong with the input and lists the jobs, an executor computes those that are not in the store,
and `collect` puts the tables together. `memloc sweep` takes many experiments this way at once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from memloc import tables
from memloc.analysis.control import accuracy_table
from memloc.analysis.over_time import (
    Examined,
    checkpoint_layer_table,
    checkpoint_table,
    checkpoint_window_table,
)
from memloc.analysis.windows import chosen_windows
from memloc.config import (
    ControlRun,
    Data,
    Engine,
    Localisation,
    Model,
    Run,
    TechniqueSettings,
)
from memloc.data.load import load_task
from memloc.data.task import Task
from memloc.engine.costs import Estimator, pass_flops, rough_lengths
from memloc.engine.half_splits import HalfSplits, collect_splits, further_rounds
from memloc.engine.job import Artefact, Failure, Job, JobFailed, write_task
from memloc.engine.local import LocalExecutor, default_workers, pick_device
from memloc.engine.loop import Executor, Outcome
from memloc.engine.plan import Cell, Plan, model_job, plan_run
from memloc.engine.progress import Progress, in_order, kind_in_words
from memloc.engine.store.store import Store, key_of
from memloc.engine.views import run_status
from memloc.models.names import ModelSource, resolve
from memloc.techniques import (
    Circumstances,
    Technique,
    all_tables,
    at_checkpoints,
    check_possible,
    find,
    make,
    make_usable,
    names,
    possible,
    possible_explanations,
    settings_of,
)
from memloc.text import counted, duration, listed, size


class InputCache:
    """Data sets and models that many experiments share: each is loaded and looked at once.

    Args:
        store: Where prepared data and facts about models are kept.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._tasks: dict[Data, Task] = {}
        self._data: dict[Data, Artefact] = {}
        self._lengths: dict[tuple[Data, int], np.ndarray] = {}
        self._sources: dict[Model, ModelSource] = {}
        self._facts: dict[Model, dict[str, Any]] = {}

    def task(self, config: Data) -> Task:
        """The examples, with their noise settled.

        Raises:
            DataError: If the data are missing, malformed or unsuitable.
        """
        if config not in self._tasks:
            self._tasks[config] = load_task(config)
        return self._tasks[config]

    def data(self, config: Data) -> Artefact:
        """The same as an artefact."""
        if config not in self._data:
            self._data[config] = write_task(self.store, self.task(config))
        return self._data[config]

    def sizes(self) -> dict[str, int]:
        """Training examples of all data that were asked for, by key."""
        return {key: len(self.task(config).train) for config, (_, key) in self._data.items()}

    def write_again(self) -> None:
        """Put data back that turned out damaged."""
        for config in self._data:
            write_task(self.store, self.task(config))

    def pass_cost(self, facts: Mapping[str, Any], config: Data, max_tokens: int) -> float:
        """What a pass of the data through a model costs, in floating-point operations."""
        key = config, max_tokens
        if key not in self._lengths:
            self._lengths[key] = rough_lengths(self.task(config).train, max_tokens)
        return pass_flops(facts, self._lengths[key])

    def source(self, config: Model) -> ModelSource:
        """Where the pre-trained model is.

        Raises:
            ModelError: If there is no such model.
        """
        if config not in self._sources:
            self._sources[config] = resolve(config)
        return self._sources[config]

    def facts(self, config: Model, executor: Executor) -> dict[str, Any]:
        """Number of layers, pooling and sizes, from the store or by looking at the model.

        Raises:
            JobFailed: If the model cannot be analysed.
            StoreError: If the store cannot be written.
        """
        if config not in self._facts:
            self.store.check_writable()
            job = model_job(config, self.source(config))
            outcome = executor.execute([job], Progress())
            if outcome.failed:
                raise outcome.failed[job.artefact].error(title=False)
            self._facts[config] = self.store.open(*job.artefact).json("facts.json")
        return self._facts[config]


@dataclass(frozen=True)
class Findings:
    """What an experiment computed; `memloc.results` summarises it.

    Attributes:
        kind: Of the experiment.
        name: Of the folder that its results go to.
        tables: By name.
        settings: What was asked for, as JSON data.
        about: What there is to say beside the tables: names and counts, as JSON data.
        task: The examples, if all tables are about the same ones.
        techniques: The settings of each technique, as JSON data.
        failures: A sentence on everything that failed.
        unexplained: A sentence on every explanation that is not possible.
        artefacts: What it was made from; None if nothing of it is in a store.
        jobs: How many were computed, and how many were in the store already.
        seconds: What it took.
    """

    kind: tables.Experiment
    name: str
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    task: Task | None = None
    techniques: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    failures: Sequence[str] = ()
    unexplained: Sequence[str] = ()
    artefacts: list[Artefact] | None = None
    jobs: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Experiment:
    """An experiment whose input is usable, with all its jobs.

    Attributes:
        config: What was asked for, with all settings of the techniques.
        plan: What to compute.
        outline: The findings, without what has to be computed. Their name begins that of the
            result folder; it is empty if that is not below the runs.
        looks: The jobs that looked at its models.
        facts: What they found, by fingerprint.
        halves: Half-splits, if they were asked for.
    """

    config: Run | Localisation | ControlRun
    plan: Plan
    outline: Findings
    looks: Sequence[Job] = ()
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    halves: HalfSplits | None = None

    @property
    def jobs(self) -> list[Job]:
        """All of them, as far as is known by now."""
        return [*self.plan.jobs, *(self.halves.counted if self.halves else ())]

    @property
    def name(self) -> str:
        """Of the folder that the results go to."""
        kind, begins = self.outline.kind, self.outline.name
        key = key_of(kind, [job.key for job in self.jobs])
        return f"{begins}-{key[:8]}" if begins else ""

    def estimate(self, inputs: InputCache, workers: int) -> str | None:
        """What it will cost, to tell the user before the work starts; None if all is computed."""
        waiting = [job for job in self.jobs if not inputs.store.has(*job.artefact)]
        if not waiting:
            return None
        estimator = Estimator(inputs.store, self.facts, inputs.sizes())
        estimator.learn(waiting)
        found = [estimator.of_job(job) for job in waiting]
        seconds = sum(one.seconds or 0.0 for one in found) / workers
        least = "at least" if any(one.seconds is None for one in found) else "about"
        kinds = Counter(job.kind for job in waiting)
        jobs = listed([f"{kinds[kind]:,} × {kind_in_words(kind)}" for kind in in_order(kinds)])
        reused = len(self.jobs) - len(waiting)
        stored = f"; {counted(reused, 'job')} in the store already" if reused else ""
        return (
            f"{jobs}: {least} {duration(seconds)} with {counted(workers, 'worker')} on an idle "
            "machine, more if trainings have to be repeated; "
            f"{size(sum(one.size or 0.0 for one in found))} of disk{stored}"
        )

    def collect(self, store: Store, outcome: Outcome) -> Findings:
        """Put together what was computed.

        Args:
            store: Has the results of the jobs.
            outcome: What became of them; those of other experiments do not matter.

        Raises:
            JobFailed: If there is no result.
            DamagedArtefact: If an artefact turned out damaged; it is set aside then.
        """
        jobs = self.jobs
        mine = {job.artefact for job in jobs}
        failures = one_of_each([why for job, why in outcome.failed.items() if job in mine])
        results = {job.artefact for cell in self.plan.cells for job in cell.techniques.values()}
        if results <= outcome.missing:
            more = f" (and {len(failures) - 1} other jobs failed)" if len(failures) > 1 else ""
            raise JobFailed(failures[0] + more)
        outline = self.outline
        found = collect(self.plan, store, outline.kind, outline.task)
        about, settings = dict(outline.about), self.config.model_dump(mode="json")
        if self.halves is not None:
            about["generalisation"] = collect_splits(self.halves, store, found)
        used = {a for job in (*self.looks, *jobs) for a in (job.artefact, *job.needs.values())}
        return replace(
            outline,
            name=self.name or outline.kind,
            tables=found,
            settings={"control": settings} if outline.kind == "control" else settings,
            about=about,
            failures=[*outline.failures, *failures],
            artefacts=sorted(artefact for artefact in used if store.has(*artefact)),
        )


def carry_out(
    prepare: Callable[[Any, InputCache, Executor, dict[str, Any], Progress], Experiment],
    settings: Run | Localisation | ControlRun,
    store: Store,
    engine: Engine,
    progress: Progress,
) -> Findings:
    """One experiment on this machine; whatever is already in the store is not computed again.

    Args:
        prepare: Checks the input, and lists the jobs.
        settings: What to do.
        store: Where results go.
        engine: How jobs run.
        progress: Where to show how far it is.

    Raises:
        MemlocError: If something the user gave cannot be used; nothing is lost then.
    """
    started = time.perf_counter()
    inputs, device = InputCache(store), pick_device(settings.device)
    where = {"device": device, **engine.model_dump(include={"cache_memory", "low_memory"})}
    workers = engine.workers or default_workers(device)
    with LocalExecutor(store, workers) as executor:
        experiment = prepare(settings, inputs, executor, where, progress)
        kind = experiment.outline.kind
        cost = None
        if kind == "control" or experiment.plan.of_checkpoints:
            cost = experiment.estimate(inputs, workers)
        if cost is not None:
            progress.note(cost)
        with progress.also(*run_status(store, experiment.name, kind)):
            outcome = executor.execute(experiment.jobs, progress)
            halves = [experiment.halves] if experiment.halves else []
            outcome += further_rounds(executor, halves, progress)
    findings = experiment.collect(store, outcome)
    reused = len(experiment.jobs) - outcome.computed - len(outcome.missing)
    counts = {"computed": outcome.computed, "reused": reused}
    return replace(findings, jobs=counts, seconds=round(time.perf_counter() - started, 1))


def one_of_each(failures: Sequence[Failure]) -> list[str]:
    """Jobs that failed for the same reason in one sentence, with their number."""
    reasons: dict[str, list[Failure]] = {}
    for failure in failures:
        reasons.setdefault(failure.reason, []).append(failure)
    return [
        str(same[0]) + (f" (and {len(same) - 1} more like it)" if len(same) > 1 else "")
        for same in reasons.values()
    ]


def prepare(
    config: Run,
    inputs: InputCache,
    executor: Executor,
    where: dict[str, Any],
    progress: Progress,
    label: str = "",
) -> Experiment:
    """A run: its input is checked first, then its model is looked at.

    The same arguments make all experiments (`memloc.engine.control`, `memloc.engine.given`).

    Args:
        config: What to do.
        inputs: Has data and models.
        executor: For a look at models.
        where: See `Job`.
        progress: Is told what the user should know.
        label: Added to titles, where there are many experiments at once.

    Raises:
        MemlocError: If something cannot be used, or a model does not allow what was asked for.
    """
    techniques, broken = make_usable(config.techniques)
    explaining = {n: s for n, s in config.techniques.items() if n in names("explanation")}
    config = config.replace(techniques={**settings_of(techniques), **explaining})
    for sentence in broken:
        progress.note(sentence)
    task = inputs.task(config.data)
    if config.data.binarise and not task.binarised:
        progress.note(f"{task.name!r} has two classes anyway, so there is nothing to binarise")
        # The result is that of a run without it, and must not pass for a binarised one.
        config = config.replace(data=config.data.replace(binarise=False))
    source = inputs.source(config.model)
    check_possible(techniques, Circumstances(task.train))
    facts = inputs.facts(config.model, executor)
    n_layers = int(facts["layers"])
    chosen_windows(n_layers, config.windows.sizes)
    there = Circumstances(task.train, facts["pooling"])
    check_possible(techniques, there, config.windows.unit, facts.get("unit_problem"))
    explanations, unexplained = possible_explanations(config.explain, there, config.techniques)
    looking: tuple[list[Technique], list[Technique]] = ([], [])
    if config.checkpoints is not None:
        looking, unexamined = possible_at_checkpoints(there, config.techniques)
        unexplained = [*unexplained, *unexamined]
    plan = plan_run(
        config,
        inputs.data(config.data),
        source,
        n_layers,
        where,
        explanations,
        label,
        inputs.pass_cost(facts, config.data, config.training.max_tokens),
        looking,
        lambda artefact: inputs.store.has(*artefact),
    )
    outline = Findings(
        "run",
        f"{task.name[:60]}-{source.name[:60]}",
        about={
            "model": source.name,
            "task": task.name,
            **describe(task),
            "layers": n_layers,
            "seeds": list(config.seeds),
            "generalisation": None,
        },
        task=task,
        techniques={one.name: one.all_settings(config.windows) for one in techniques},
        failures=broken,
        unexplained=unexplained,
    )
    wanted = config.generalisation
    halves = None if wanted is None else HalfSplits(plan.splits, wanted, task)
    look = model_job(config.model, source)
    return Experiment(config, plan, outline, [look], {source.fingerprint: facts}, halves)


def possible_at_checkpoints(
    there: Circumstances, settings: TechniqueSettings
) -> tuple[tuple[list[Technique], list[Technique]], list[str]]:
    """Techniques and explanations that can look at checkpoints, and a sentence on the others."""
    techniques, reasons = possible([make(n, settings.get(n)) for n in at_checkpoints()], there)
    explanations, _ = possible_explanations(None, there, settings)
    return (techniques, [one for one in explanations if one.at_checkpoints]), [
        f"{name} does not look at checkpoints: {reason}" for name, reason in reasons.items()
    ]


def describe(task: Task) -> dict[str, Any]:
    """Classes and numbers of examples, as JSON data."""
    return {
        "classes": list(task.labels),
        "examples": len(task.train),
        "noisy_examples": int(task.train["noisy"].sum()),
    }


# --- tables ------------------------------------------------------------------------------------


class TableParts:
    """Tables that are put together from the results of many jobs.

    Args:
        experiment: Decides which columns stand in front.
    """

    def __init__(self, experiment: tables.Experiment) -> None:
        self.experiment, self.known = experiment, all_tables()
        self.parts: dict[str, list[pd.DataFrame]] = {}

    def add(self, name: str, rows: pd.DataFrame, **front: Any) -> None:
        """A part of a table.

        Args:
            name: Of the table.
            rows: The part.
            front: Columns to put in front, such as the seed, which `localise` does without.
        """
        if self.experiment == "localise":
            front.pop("seed", None)
        renamed = rows.rename(columns=tables.RENAMED.get(self.experiment, {}))
        columns = pd.DataFrame(front, index=rows.index)
        self.parts.setdefault(name, []).append(pd.concat([columns, renamed], axis=1))

    def add_result(self, artefact: Any, **front: Any) -> None:
        """All tables of a technique or an explanation, as far as the experiment keeps them."""
        for file in artefact.manifest["files"]:
            name = file.removesuffix(".parquet")
            schema = self.known.get(name)
            if self.experiment in (("run", "localise") if schema is None else schema.of):
                self.add(name, artefact.table(file), **front)

    def add_texts(self, examples: pd.DataFrame, labels: Sequence[str]) -> None:
        """Put texts and the names of labels beside the findings on examples."""
        if "examples" in self.parts:
            found = self.parts["examples"]
            self.parts["examples"] = [with_texts(part, examples, labels) for part in found]

    def joined(self) -> dict[str, pd.DataFrame]:
        """All tables; what is declared for them is checked."""
        found = {
            name: pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
            for name, parts in self.parts.items()
        }
        return {
            name: self.known[name].frame(table, self.experiment) if name in self.known else table
            for name, table in found.items()
        }


def with_texts(found: pd.DataFrame, examples: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Findings per example, with the text and the names of its labels beside them."""
    texts = examples.drop(columns="noisy")
    for column in ("label", "original_label"):
        if column in texts:  # the original one is unknown if labels are only suspected
            texts[f"{column}_name"] = [names[label] for label in texts[column]]
    return found.merge(texts, on="example", how="left")


def collect(
    plan: Plan, store: Store, experiment: tables.Experiment, task: Task | None = None
) -> dict[str, pd.DataFrame]:
    """The tables of all jobs that are in the store, each once."""
    parts, costs, fronts = TableParts(experiment), [], []
    control, seen = experiment == "control", set()
    own = {job.key for job in plan.of_checkpoints}

    def count(front: dict[str, Any], job: str, spent: Mapping[str, Any], epoch: Any = None) -> None:
        row = {"job": job, "seconds": spent.get("seconds")}
        if not control:
            more = ("peak_memory_bytes", "block_passes")
            row |= {"memorised_epoch": epoch, **{key: spent.get(key) for key in more}}
        costs.append(row)
        fronts.append(front)

    for cell in plan.cells:
        states = {f"states:{j.identity['role']}": j for j in cell.parts if j.kind == "states"}
        for name, job in (cell.trainings | ({} if control else states) | cell.results).items():
            if job.key in seen or not store.has(*job.artefact):
                continue
            seen.add(job.key)
            artefact = store.open(*job.artefact)
            front = {**cell.front, "seed": job.identity.get("seed", cell.seed)}
            epoch = None
            if name in cell.trainings:
                if control and name == "frozen":  # shared by all cells of a task
                    front["hidden"] = ""
                outcome = artefact.json("outcome.json")
                epoch = outcome["memorised_epoch"]
                parts.add("history", artefact.table("history.parquet"), **front, state=name)
                if control:
                    parts.add("trainings", pd.DataFrame([outcome]), **front, state=name)
                    parts.add("attempts", artefact.table("attempts.parquet"), **front, state=name)
            elif job.kind != "states":
                parts.add_result(artefact, **front)
            count(front, name, artefact.manifest["costs"], epoch)
    for cell in plan.cells:
        spent = _spent_on_checkpoints(cell, own, store)
        if spent:
            count({"seed": cell.seed}, "checkpoints", spent)
    if task is not None:
        parts.add_texts(task.train, task.labels)
    if costs:
        front_columns = {key: [front[key] for front in fronts] for key in fronts[0]}
        parts.add("costs", pd.DataFrame(costs), **front_columns)
    found = parts.joined()
    if control:
        if "layers" in found:
            found["accuracy"] = accuracy_table(found["layers"])
        for name in dict.fromkeys(name for cell in plan.cells for name in cell.techniques):
            found |= find(name).benchmark(found)
    return found | _collect_checkpoints(plan, store, found.get("history"))


def _collect_checkpoints(
    plan: Plan, store: Store, history: pd.DataFrame | None
) -> dict[str, pd.DataFrame]:
    """The tables of all checkpoints whose jobs are in the store; empty without checkpoints."""
    found = []
    for cell in plan.cells:
        for epoch, at in cell.checkpoints.items():
            accuracy = _accuracy(history, cell.seed, epoch)
            if not accuracy:
                continue  # its training failed
            parts: dict[str, list[pd.DataFrame]] = {}
            for job in at.results.values():
                if store.has(*job.artefact):
                    artefact = store.open(*job.artefact)
                    for name in ("layers", "windows", "centroids", "events"):
                        if f"{name}.parquet" in artefact.manifest["files"]:
                            parts.setdefault(name, []).append(artefact.table(f"{name}.parquet"))
            joined = {name: pd.concat(some, ignore_index=True) for name, some in parts.items()}
            found.append(Examined(cell.seed, epoch, accuracy, **joined))
    if not found:
        return {}
    weighted = at_checkpoints()
    made = (
        (tables.checkpoints_of(weighted), checkpoint_table(found, weighted)),
        (tables.CHECKPOINT_LAYERS, checkpoint_layer_table(found, weighted)),
        (tables.CHECKPOINT_WINDOWS, checkpoint_window_table(found)),
    )
    return {schema.name: schema.frame(table, "run") for schema, table in made}


def _spent_on_checkpoints(cell: Cell, own: set[str], store: Store) -> dict[str, float]:
    """What the checkpoints of a seed cost in all, beside what a run has anyway."""
    spent = [
        store.open(*job.artefact).manifest["costs"]
        for at in cell.checkpoints.values()
        for job in (*at.parts, *at.results.values())
        if job.key in own and store.has(*job.artefact)
    ]
    if not spent:
        return {}
    sums = {key: sum(cost.get(key) or 0 for cost in spent) for key in ("seconds", "block_passes")}
    return {**sums, "peak_memory_bytes": max(c.get("peak_memory_bytes") or 0 for c in spent)}


def _accuracy(history: pd.DataFrame | None, seed: int, epoch: int) -> dict[str, float]:
    """Accuracy of θ_M after an epoch, by split."""
    if history is None:
        return {}
    rows = history[
        (history["state"] == "memorised") & (history["seed"] == seed) & (history["epoch"] == epoch)
    ]
    return {str(k): float(v) for k, v in zip(rows["split"], rows["accuracy"], strict=True)}
