"""One engine for all experiments: from settings to tables.

Every experiment goes the same way, whether its models are trained (`memloc run`), given
(`memloc localise`) or trained to hide something (`memloc control`): `prepare` finds what is wrong
with the input, `plan` lists the jobs, an executor computes those that are not in the store, and
`collect` puts the tables together. `memloc sweep` takes many experiments this way at once.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pandas as pd

from memloc import tables
from memloc.analysis.windows import chosen_windows
from memloc.config import Engine, Run
from memloc.data.task import Task
from memloc.engine.costs import pass_flops
from memloc.engine.half_splits import HalfSplits, collect_splits, further_rounds
from memloc.engine.input_cache import InputCache
from memloc.engine.job import Job
from memloc.engine.local import LocalExecutor, default_workers
from memloc.engine.loop import Artefact, Executor, Failure, JobFailed, Outcome
from memloc.engine.over_time import (
    checkpoint_costs,
    collect_checkpoints,
    cost_words,
    possible_at_checkpoints,
)
from memloc.engine.plan import RunPlan, model_job, plan_run
from memloc.engine.progress import Progress
from memloc.engine.status import status_files
from memloc.engine.store.store import Store, key_of
from memloc.models.names import ModelSource
from memloc.techniques import (
    Circumstances,
    Technique,
    all_tables,
    check_possible,
    check_unit,
    make_usable,
    names,
    possible_explanations,
    settings_of,
)


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
    tables: dict[str, pd.DataFrame]
    settings: dict[str, Any]
    about: dict[str, Any]
    task: Task | None = None
    techniques: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    failures: Sequence[str] = ()
    unexplained: Sequence[str] = ()
    artefacts: list[Artefact] | None = None
    jobs: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


class Prepared(ABC):
    """An experiment whose input is usable, as far as that shows without a look at the models."""

    @abstractmethod
    def plan(
        self,
        inputs: InputCache,
        executor: Executor,
        where: dict[str, Any],
        progress: Progress,
        label: str = "",
    ) -> Planned:
        """What there is to compute.

        Args:
            inputs: Has data and models.
            executor: For a look at the models.
            where: See `Job`.
            progress: Is told what the user should know.
            label: Added to titles, where there are many experiments at once.

        Raises:
            MemlocError: If a model does not allow what was asked for.
        """


class Planned(ABC):
    """An experiment and its jobs."""

    command: ClassVar[str] = "run"
    """Which command makes it."""
    halves: HalfSplits | None = None
    """Half-splits, if they were asked for."""

    @property
    @abstractmethod
    def jobs(self) -> list[Job]:
        """All of them, as far as is known by now."""

    @property
    def name(self) -> str:
        """Of the folder that the results go to; empty if that is not below the runs."""
        return ""

    def notice(self, store: Store, workers: int) -> str | None:
        """What to tell the user before the work starts."""
        return None

    @abstractmethod
    def collect(self, store: Store, outcome: Outcome) -> Findings:
        """Put together what was computed.

        Args:
            store: Has the results of the jobs.
            outcome: What became of them; those of other experiments do not matter.

        Raises:
            JobFailed: If there is no result.
            DamagedArtefact: If an artefact turned out damaged; it is set aside then.
        """


def carry_out(
    prepare: Callable[[InputCache], Prepared],
    store: Store,
    engine: Engine,
    device: str,
    progress: Progress,
) -> Findings:
    """One experiment on this machine; whatever is already in the store is not computed again.

    Args:
        prepare: Checks the input.
        store: Where results go.
        engine: How jobs run.
        device: Where to compute.
        progress: Where to show how far it is.

    Raises:
        MemlocError: If something the user gave cannot be used; nothing is lost then.
    """
    started = time.perf_counter()
    inputs = InputCache(store)
    prepared = prepare(inputs)
    store.check_writable()
    memory = {"cache_memory": engine.cache_memory, "low_memory": engine.low_memory}
    where, workers = {"device": device, **memory}, engine.workers or default_workers(device)
    with LocalExecutor(store, workers) as executor:
        planned = prepared.plan(inputs, executor, where, progress)
        notice = planned.notice(store, workers)
        if notice is not None:
            progress.note(notice)
        with progress.also(*status_files(store.root.parent, planned.name, planned.command)):
            outcome = executor.execute(planned.jobs, progress)
            more = further_rounds(executor, [planned.halves] if planned.halves else [], progress)
    outcome += more
    findings = planned.collect(store, outcome)
    seconds = round(time.perf_counter() - started, 1)
    return replace(findings, jobs=count_jobs(planned.jobs, outcome), seconds=seconds)


def count_jobs(jobs: Sequence[Job], outcome: Outcome) -> dict[str, int]:
    """How many were computed now, and how many were in the store already."""
    reused = len(jobs) - outcome.computed - len(outcome.missing)
    return {"computed": outcome.computed, "reused": reused}


def made_from(jobs: Iterable[Job], store: Store) -> list[Artefact]:
    """Kinds and keys of all that jobs left or read; what a failed job did not leave is no part."""
    used = {artefact for job in jobs for artefact in (job.artefact, *job.needs.values())}
    return sorted(artefact for artefact in used if store.has(*artefact))


def failures_of(jobs: Sequence[Job], outcome: Outcome) -> list[str]:
    """What went wrong with these jobs: a sentence for each reason."""
    mine = {job.artefact for job in jobs}
    return one_of_each([failure for a, failure in outcome.failed.items() if a in mine])


def one_of_each(failures: list[Failure]) -> list[str]:
    """Jobs that failed for the same reason in one sentence, with their number."""
    reasons: dict[str, list[Failure]] = {}
    for failure in failures:
        reasons.setdefault(failure.reason, []).append(failure)
    return [
        str(same[0]) + (f" (and {len(same) - 1} more like it)" if len(same) > 1 else "")
        for same in reasons.values()
    ]


@dataclass(frozen=True)
class PreparedRun(Prepared):
    """A run whose input is usable.

    Attributes:
        config: With the techniques that can be imported, and all their settings.
        techniques: Those.
        task: The examples.
        source: The model.
        broken: Sentences on techniques that cannot be imported.
    """

    config: Run
    techniques: list[Technique]
    task: Task
    source: ModelSource
    broken: list[str]

    def plan(
        self,
        inputs: InputCache,
        executor: Executor,
        where: dict[str, Any],
        progress: Progress,
        label: str = "",
    ) -> PlannedRun:
        """See `Prepared`."""
        config, task = self.config, self.task
        facts = inputs.facts(config.model, executor)
        n_layers = int(facts["layers"])
        chosen_windows(n_layers, config.windows.sizes)
        there = Circumstances(task.train, facts["pooling"])
        check_possible(self.techniques, there)
        check_unit(self.techniques, config.windows.unit, facts.get("unit_problem"))
        explanations, unexplained = possible_explanations(config.explain, there, config.techniques)
        data = inputs.data(config.data)
        cost = pass_flops(facts, inputs.lengths(config.data, config.training.max_tokens))
        at_checkpoints: tuple[list[Technique], list[Technique]] = ([], [])
        if config.checkpoints is not None:
            at_checkpoints, unexamined = possible_at_checkpoints(there, config.techniques)
            unexplained = [*unexplained, *unexamined]
        plan = plan_run(
            config,
            data,
            self.source,
            n_layers,
            where,
            explanations,
            label,
            cost,
            at_checkpoints,
            lambda artefact: inputs.store.has(*artefact),
        )
        wanted = config.generalisation
        halves = None if wanted is None else HalfSplits(plan.splits, wanted, task)
        return PlannedRun(self, facts, plan, unexplained, halves)


def prepare(config: Run, inputs: InputCache, progress: Progress) -> PreparedRun:
    """Find what can be wrong with the input of a run.

    Raises:
        MemlocError: If something cannot be used.
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
    return PreparedRun(config, techniques, task, source, broken)


@dataclass(frozen=True)
class PlannedRun(Planned):
    """A run and its jobs.

    Attributes:
        prepared: Its input.
        facts: On the model, as the job `model` finds them.
        plan: What to compute.
        unexplained: Sentences on explanations that are not possible.
        halves: Half-splits, if they were asked for.
    """

    prepared: PreparedRun
    facts: dict[str, Any]
    plan: RunPlan
    unexplained: list[str]
    halves: HalfSplits | None = None

    @property
    def n_layers(self) -> int:
        """Of the model."""
        return int(self.facts["layers"])

    @property
    def jobs(self) -> list[Job]:
        """See `Planned`."""
        return [*self.plan.jobs, *(self.halves.counted if self.halves else ())]

    def notice(self, store: Store, workers: int) -> str | None:
        """What checkpoints cost, if that is much."""
        if self.prepared.config.checkpoints is None:
            return None
        return cost_words(self.plan, self.facts, lambda artefact: store.has(*artefact))

    @property
    def name(self) -> str:
        """See `Planned`."""
        key = key_of("run", [job.key for job in self.jobs])
        return f"{self.prepared.task.name[:60]}-{self.prepared.source.name[:60]}-{key[:8]}"

    def collect(self, store: Store, outcome: Outcome) -> Findings:
        """See `Planned`."""
        config, task, source = (getattr(self.prepared, n) for n in ("config", "task", "source"))
        failures = check_failures(self.plan, self.jobs, outcome)
        found = collect(self.plan, store, task)
        halves = self.halves
        generalisation = None if halves is None else collect_splits(halves, store, found)
        return Findings(
            "run",
            self.name,
            found,
            config.model_dump(mode="json"),
            {
                "model": source.name,
                "task": task.name,
                **describe(task),
                "layers": self.n_layers,
                "seeds": list(config.seeds),
                "generalisation": generalisation,
            },
            task,
            {one.name: one.all_settings(config.windows) for one in self.prepared.techniques},
            [*self.prepared.broken, *failures],
            self.unexplained,
            made_from([model_job(config.model, source), *self.jobs], store),
        )


def describe(task: Task) -> dict[str, Any]:
    """Classes and numbers of examples, as JSON data."""
    return {
        "classes": list(task.labels),
        "examples": len(task.train),
        "noisy_examples": int(task.train["noisy"].sum()),
    }


def check_failures(plan: RunPlan, jobs: Sequence[Job], outcome: Outcome) -> list[str]:
    """What went wrong with these jobs, if techniques of the plan remain that have results.

    Raises:
        JobFailed: If there are none.
    """
    sentences = failures_of(jobs, outcome)
    results = {job.artefact for jobs in plan.seeds for job in jobs.techniques.values()}
    if results <= outcome.missing:
        more = f" (and {len(sentences) - 1} other jobs failed)" if len(sentences) > 1 else ""
        raise JobFailed(sentences[0] + more)
    return sentences


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
        found = self.parts.get("examples", [])
        self.parts |= (
            {"examples": [with_texts(p, examples, labels) for p in found]} if found else {}
        )

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


def collect(
    plan: RunPlan, store: Store, task: Task, experiment: tables.Experiment = "run"
) -> dict[str, pd.DataFrame]:
    """The tables of all jobs that are in the store."""
    parts, costs = TableParts(experiment), []

    def count(seed: int, job: str, spent: dict[str, Any], epoch: Any = None) -> None:
        found = {key: spent.get(key) for key in ("seconds", "peak_memory_bytes", "block_passes")}
        costs.append({"seed": seed, "job": job, "memorised_epoch": epoch, **found})

    for jobs in plan.seeds:
        trainings = dict(jobs.trainings)
        if plan.frozen is not None and jobs is plan.seeds[0]:
            trainings["frozen"] = plan.frozen
        for state, job in trainings.items():
            if store.has(*job.artefact):
                seed, artefact = job.identity["seed"], store.open(*job.artefact)
                parts.add("history", artefact.table("history.parquet"), seed=seed, state=state)
                epoch = artefact.json("outcome.json").get("memorised_epoch")
                count(seed, state, artefact.manifest["costs"], epoch)
        for job in jobs.parts:
            shared = jobs is not plan.seeds[0] and job in plan.seeds[0].parts
            if job.kind == "states" and not shared and store.has(*job.artefact):
                spent = store.open(*job.artefact).manifest["costs"]
                count(jobs.seed, f"states:{job.identity['role']}", spent)
        for name, job in (jobs.techniques | jobs.explanations).items():
            if store.has(*job.artefact):
                artefact = store.open(*job.artefact)
                count(jobs.seed, name, artefact.manifest["costs"])
                parts.add_result(artefact, seed=jobs.seed)
    for seed, spent in checkpoint_costs(plan, store):
        count(seed, "checkpoints", spent)
    parts.add_texts(task.train, task.labels)
    if costs:
        seeds = [row.pop("seed") for row in costs]
        parts.add("costs", pd.DataFrame(costs), seed=seeds)
    found = parts.joined()
    return found | collect_checkpoints(plan, store, found.get("history"))


def with_texts(found: pd.DataFrame, examples: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Findings per example, with the text and the names of its labels beside them."""
    texts = examples.drop(columns="noisy")
    for column in ("label", "original_label"):
        if column in texts:  # the original one is unknown if labels are only suspected
            texts[f"{column}_name"] = [names[label] for label in texts[column]]
    return found.merge(texts, on="example", how="left")
