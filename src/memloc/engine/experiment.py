"""The whole way: from settings to a result (the engine of `memloc run`).

A run has three phases, which `memloc sweep` goes through with many runs at once: `prepare` finds
everything that is wrong with the input, `plan` says what there is to compute, and once that is in
the store, `finish` puts the result together.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from memloc.analysis.windows import chosen_windows
from memloc.config import RunConfig
from memloc.data.task import Task
from memloc.engine.costs import pass_flops
from memloc.engine.device import pick_device
from memloc.engine.executor import Executor
from memloc.engine.generalise import HalfSplits, collect_splits, further_rounds
from memloc.engine.job import Job
from memloc.engine.local import LocalExecutor, default_workers
from memloc.engine.over_time import (
    checkpoint_costs,
    collect_checkpoints,
    cost_words,
    possible_at_checkpoints,
)
from memloc.engine.plan import RunPlan, model_job, plan_run
from memloc.engine.progress import Progress, Silent
from memloc.engine.queue import JobFailed, Outcome
from memloc.engine.store.store import Store, key_of
from memloc.engine.supplies import Supplies
from memloc.models.names import ModelSource
from memloc.results.folder import made_from, with_texts, write_results
from memloc.results.summary import summarise_run
from memloc.techniques import (
    Circumstances,
    Technique,
    check_possible,
    check_unit,
    make_usable,
    names,
    possible_explanations,
    settings_of,
)


@dataclass(frozen=True)
class RunResult:
    """What a run found, and where it is kept."""

    summary: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    folder: Path


def run(
    config: RunConfig,
    runs: Path = Path("runs"),
    workers: int | None = None,
    progress: Progress | None = None,
    cache_memory: int | None = None,
    low_memory: bool = False,
) -> RunResult:
    """Flip labels, fine-tune, localise; whatever is already in the store is not computed again.

    Args:
        config: What to do.
        runs: Folder for the store and the results.
        workers: Processes, each with one thread; None takes one per core.
        progress: Where to show how far it is.
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
    where = {"device": device, "cache_memory": cache_memory, "low_memory": low_memory}
    with LocalExecutor(store, workers or default_workers(device)) as executor:
        planned = plan(prepared, supplies, executor, where)
        if config.checkpoints is not None:
            facts = supplies.facts(config.model, executor)
            words = cost_words(planned.plan, facts, lambda artefact: store.has(*artefact))
            if words is not None:
                progress.note(words)
        outcome = executor.execute(planned.jobs, progress)
        more = further_rounds(executor, [planned.halves] if planned.halves else [], progress)
    outcome = Outcome(outcome.computed + more.computed, {**outcome.failed, **more.failed})
    result = finish(planned, store, outcome, runs)
    # What follows is about this call, not about the result.
    reused = len(planned.jobs) - outcome.computed - len(outcome.failed)
    result.summary["jobs"] = {"computed": outcome.computed, "reused": reused}
    result.summary["seconds"] = round(time.perf_counter() - started, 1)
    return result


@dataclass(frozen=True)
class PreparedRun:
    """A run whose input is usable.

    Attributes:
        config: With the techniques that can be imported, and all their settings.
        techniques: Those.
        task: The examples.
        source: The model.
        broken: Sentences on techniques that cannot be imported.
    """

    config: RunConfig
    techniques: list[Technique]
    task: Task
    source: ModelSource
    broken: list[str]


def prepare(config: RunConfig, supplies: Supplies, progress: Progress) -> PreparedRun:
    """Find what can be wrong with the input, as far as that shows without a look at the model.

    Raises:
        MemlocError: If something cannot be used.
    """
    techniques, broken = make_usable(config.techniques)
    explaining = {n: s for n, s in config.techniques.items() if n in names("explanation")}
    config = config.replace(techniques={**settings_of(techniques), **explaining})
    for sentence in broken:
        progress.note(sentence)
    task = supplies.task(config.data)
    if config.data.binarise and not task.binarised:
        progress.note(f"{task.name!r} has two classes anyway, so --binarise changes nothing")
        # The result is that of a run without it, and must not pass for a binarised one.
        config = config.replace(data=config.data.replace(binarise=False))
    source = supplies.source(config.model)
    check_possible(techniques, Circumstances(task.train))
    return PreparedRun(config, techniques, task, source, broken)


@dataclass(frozen=True)
class PlannedRun:
    """A run and its jobs.

    Attributes:
        prepared: Its input.
        n_layers: Of the model.
        plan: What to compute.
        unexplained: Sentences on explanations that are not possible.
        halves: Half-splits, if they were asked for.
    """

    prepared: PreparedRun
    n_layers: int
    plan: RunPlan
    unexplained: list[str]
    halves: HalfSplits | None

    @property
    def jobs(self) -> list[Job]:
        """All of them, as far as is known by now."""
        return [*self.plan.jobs, *(self.halves.counted if self.halves else ())]


def plan(
    prepared: PreparedRun,
    supplies: Supplies,
    executor: Executor,
    where: dict[str, Any],
    label: str = "",
) -> PlannedRun:
    """What a run computes.

    Args:
        prepared: The run.
        supplies: Has its data and its model.
        executor: For a look at the model, if nobody has had one.
        where: See `Job`.
        label: Added to titles, where there are many runs at once; costs are comparable then.

    Raises:
        MemlocError: If the model does not allow what was asked for.
    """
    config, task = prepared.config, prepared.task
    facts = supplies.facts(config.model, executor)
    n_layers = int(facts["layers"])
    chosen_windows(n_layers, config.windows.sizes)
    there = Circumstances(task.train, facts["pooling"])
    check_possible(prepared.techniques, there)
    check_unit(prepared.techniques, config.windows.unit, facts.get("unit_problem"))
    explanations, unexplained = possible_explanations(config.explain, there, config.techniques)
    data = supplies.data(config.data)
    cost = 1.0
    if label:
        cost = pass_flops(facts, supplies.lengths(config.data, config.training.max_tokens))
    at_checkpoints: tuple[list[Technique], list[Technique]] = ([], [])
    if config.checkpoints is not None:
        at_checkpoints, unexamined = possible_at_checkpoints(there, config.techniques)
        unexplained = [*unexplained, *unexamined]
    plan = plan_run(
        config,
        prepared.techniques,
        data,
        prepared.source,
        n_layers,
        where,
        explanations,
        label,
        cost,
        at_checkpoints,
        lambda artefact: supplies.store.has(*artefact),
    )
    wanted = config.generalisation
    halves = None if wanted is None else HalfSplits(plan.splits, wanted, task)
    return PlannedRun(prepared, n_layers, plan, unexplained, halves)


def finish(planned: PlannedRun, store: Store, outcome: Outcome, runs: Path) -> RunResult:
    """Put together what was computed, and write the result folder.

    Args:
        planned: The run.
        store: Has the results of its jobs.
        outcome: What became of them; those of other runs do not matter.
        runs: Folder for the result folder.

    Raises:
        JobFailed: If there is no result.
        DamagedArtefact: If an artefact turned out damaged; it is set aside then.
    """
    config, task, source = (getattr(planned.prepared, n) for n in ("config", "task", "source"))
    failures = check_failures(planned.plan, planned.jobs, outcome)
    tables = collect(planned.plan, store, task)
    halves = planned.halves
    generalisation = None if halves is None else collect_splits(halves, store, tables)
    summary = summarise_run(
        config, source.name, task, planned.n_layers, tables, generalisation, planned.unexplained
    )
    summary["failures"] = [*planned.prepared.broken, *failures]
    key = key_of("run", [job.key for job in planned.jobs])
    folder = runs / f"{task.name[:60]}-{source.name[:60]}-{key[:8]}"
    used = made_from([model_job(config.model, source), *planned.jobs], store)
    write_results(folder, tables, summary, config.model_dump(mode="json"), used)
    summary["folder"] = str(folder)
    return RunResult(summary, tables, folder)


def check_failures(plan: RunPlan, jobs: Sequence[Job], outcome: Outcome) -> list[str]:
    """What went wrong with these jobs, if techniques of the plan remain that have results.

    Raises:
        JobFailed: If there are none.
    """
    mine = {job.artefact for job in jobs}
    sentences = one_of_each([words for a, words in outcome.failed.items() if words and a in mine])
    results = {job.artefact for jobs in plan.seeds for job in jobs.techniques.values()}
    if results <= outcome.failed.keys():
        more = f" (and {len(sentences) - 1} other jobs failed)" if len(sentences) > 1 else ""
        raise JobFailed(sentences[0] + more)
    return sentences


def one_of_each(sentences: list[str]) -> list[str]:
    """Jobs that failed for the same reason in one sentence, with their number."""
    reasons: dict[str, list[str]] = {}
    for sentence in sentences:
        reasons.setdefault(sentence.partition(" failed: ")[2] or sentence, []).append(sentence)
    return [
        same[0] + (f" (and {len(same) - 1} more like it)" if len(same) > 1 else "")
        for same in reasons.values()
    ]


def collect(plan: RunPlan, store: Store, task: Task) -> dict[str, pd.DataFrame]:
    """The tables of all jobs that are in the store, with the seed in front."""
    parts: dict[str, list[pd.DataFrame]] = {}

    def add(name: str, seed: int, table: pd.DataFrame, **columns: Any) -> None:
        front = {"seed": seed, **columns}
        parts.setdefault(name, []).append(
            pd.concat([pd.DataFrame(front, index=table.index), table], axis=1)
        )

    outcomes = []
    for jobs in plan.seeds:
        trainings = dict(jobs.trainings)
        if plan.frozen is not None and jobs is plan.seeds[0]:
            trainings["frozen"] = plan.frozen
        for state, job in trainings.items():
            if store.has(*job.artefact):
                seed = job.identity["seed"]
                artefact = store.open(*job.artefact)
                add("history", seed, artefact.table("history.parquet"), state=state)
                outcomes.append(
                    _outcome(seed, state, artefact.manifest, artefact.json("outcome.json"))
                )
        for job in jobs.parts:
            shared = jobs is not plan.seeds[0] and job in plan.seeds[0].parts
            if job.kind == "states" and not shared and store.has(*job.artefact):
                manifest = store.open(*job.artefact).manifest
                outcomes.append(_outcome(jobs.seed, f"states:{job.identity['role']}", manifest, {}))
        for name, job in (jobs.techniques | jobs.explanations).items():
            if store.has(*job.artefact):
                artefact = store.open(*job.artefact)
                outcomes.append(_outcome(jobs.seed, name, artefact.manifest, {}))
                for file in artefact.manifest["files"]:
                    add(file.removesuffix(".parquet"), jobs.seed, artefact.table(file))
    for seed, costs in checkpoint_costs(plan, store):
        outcomes.append(_outcome(seed, "checkpoints", {"costs": costs}, {}))
    tables = {
        name: pd.concat([part for part in of_name if len(part)] or of_name[:1], ignore_index=True)
        for name, of_name in parts.items()
    }
    if "examples" in tables:
        tables["examples"] = with_texts(tables["examples"], task.train, task.labels)
    tables["costs"] = pd.DataFrame(outcomes)
    return tables | collect_checkpoints(plan, store, tables.get("history"))


def _outcome(
    seed: int, job: str, manifest: dict[str, Any], outcome: dict[str, Any]
) -> dict[str, Any]:
    return {
        "seed": seed,
        "job": job,
        "memorised_epoch": outcome.get("memorised_epoch"),
        **{
            name: manifest["costs"].get(name)
            for name in ("seconds", "peak_memory_bytes", "block_passes")
        },
    }
