"""The whole way: from settings to a result (the engine of `memloc run`)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from memloc.analysis.windows import chosen_windows
from memloc.config import ModelConfig, RunConfig
from memloc.data.load import load_task
from memloc.data.task import Task
from memloc.execution.device import pick_device
from memloc.execution.executor import Executor
from memloc.execution.local import LocalExecutor, default_workers
from memloc.execution.plan import RunPlan, model_job, plan_run
from memloc.execution.progress import Progress, Silent
from memloc.execution.queue import JobFailed, Outcome
from memloc.execution.tasks import write_task
from memloc.explain import possible_parts
from memloc.generalise import collect_splits, first_round, further_rounds
from memloc.methods import check_enough_examples, check_pooling, check_unit, usable_methods
from memloc.models.names import ModelSource, resolve
from memloc.report.summary import summarise_run
from memloc.results import with_texts, write_results
from memloc.store.store import Store, key_of


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
    # Everything that can be wrong with the input shows here, before anything is computed.
    methods, broken = usable_methods(config.methods, config.techniques.options)
    config = config.replace(methods=methods)
    for sentence in broken:
        progress.note(sentence)
    task = load_task(config.data)
    if config.data.binarise and not task.binarised:
        progress.note(f"{task.name!r} has two classes anyway, so --binarise changes nothing")
        # The result is that of a run without it, and must not pass for a binarised one.
        config = config.replace(data=config.data.replace(binarise=False))
    source = resolve(config.model)
    device = pick_device(config.device)
    noisy = int(task.train["noisy"].sum())
    check_enough_examples(config.methods, noisy, len(task.train) - noisy)
    store = Store(runs / "store")
    store.check_writable()
    with LocalExecutor(store, workers or default_workers(device)) as executor:
        facts = look_at_model(executor, config.model, source)
        n_layers = int(facts["layers"])
        chosen_windows(n_layers, config.techniques.window_sizes)
        check_pooling(config.methods, facts["pooling"])
        check_unit(config.methods, config.techniques.unit, facts["unit_problem"])
        parts, unexplained = possible_parts(config.explain, task.train, facts["pooling"])
        where = {"device": device, "cache_memory": cache_memory, "low_memory": low_memory}
        plan = plan_run(config, write_task(store, task), source, n_layers, where, parts)
        splits = first_round(plan.splits, config.generalisation)
        outcome = executor.execute([*plan.jobs, *splits], progress)
        if config.generalisation is not None:
            splits, more = further_rounds(
                executor, plan.splits, task, config.generalisation, progress
            )
            outcome = Outcome(outcome.computed + more.computed, {**outcome.failed, **more.failed})
    failures = check_failures(plan, outcome)
    tables = collect(plan, store, task)
    generalisation = collect_splits(splits, store, task, tables)
    summary = summarise_run(
        config, source.name, task, n_layers, tables, generalisation, unexplained
    )
    summary["failures"] = [*broken, *failures]
    jobs = [*plan.jobs, *splits]
    key = key_of("run", [job.key for job in jobs])
    folder = runs / f"{task.name[:60]}-{source.name[:60]}-{key[:8]}"
    write_results(folder, tables, summary, config.model_dump(mode="json"))
    # What follows is about this call, not about the result.
    reused = len(jobs) - outcome.computed - len(outcome.failed)
    summary["jobs"] = {"computed": outcome.computed, "reused": reused}
    summary["seconds"] = round(time.perf_counter() - started, 1)
    summary["folder"] = str(folder)
    return RunResult(summary, tables, folder)


def look_at_model(executor: Executor, model: ModelConfig, source: ModelSource) -> dict[str, Any]:
    """Number of layers and pooling, from the store or by looking at the model.

    Raises:
        JobFailed: If the model cannot be analysed.
    """
    job = model_job(model, source)
    outcome = executor.execute([job], Silent())
    if outcome.failed:
        raise JobFailed(outcome.failed[job.artefact].removeprefix(f"{job.title} failed: "))
    facts: dict[str, Any] = executor.store.open(*job.artefact).json("facts.json")
    return facts


def check_failures(plan: RunPlan, outcome: Outcome) -> list[str]:
    """What went wrong, if techniques remain that have results.

    Raises:
        JobFailed: If there are none.
    """
    sentences = one_of_each([words for words in outcome.failed.values() if words])
    results = {job.artefact for jobs in plan.seeds for job in jobs.methods.values()}
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
        for name, job in (jobs.methods | jobs.explanations).items():
            if store.has(*job.artefact):
                artefact = store.open(*job.artefact)
                outcomes.append(_outcome(jobs.seed, name, artefact.manifest, {}))
                for file in artefact.manifest["files"]:
                    add(file.removesuffix(".parquet"), jobs.seed, artefact.table(file))
    tables = {
        name: pd.concat([part for part in of_name if len(part)] or of_name[:1], ignore_index=True)
        for name, of_name in parts.items()
    }
    if "examples" in tables:
        tables["examples"] = with_texts(tables["examples"], task.train, task.labels)
    tables["costs"] = pd.DataFrame(outcomes)
    return tables


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
