"""The whole way: from settings to a result (the engine of `memloc run`)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from memloc.config import RunConfig
from memloc.data.load import load_task
from memloc.data.task import Task
from memloc.execution.device import pick_device
from memloc.execution.local import default_workers, execute
from memloc.execution.plan import RunPlan, plan_run
from memloc.execution.progress import Progress, Silent
from memloc.execution.tasks import write_task
from memloc.models.names import resolve
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
) -> RunResult:
    """Flip labels, fine-tune, localise; whatever is already in the store is not computed again.

    Args:
        config: What to do.
        runs: Folder for the store and the results.
        workers: Processes, each with one thread; None takes one per core.
        progress: Where to show how far it is.

    Raises:
        MemlocError: If something the user gave cannot be used; nothing is lost then.
    """
    started = time.perf_counter()
    # Everything that can be wrong with the input shows here, before anything is written.
    task = load_task(config.data)
    source = resolve(config.model)
    device = pick_device(config.device)
    store = Store(runs / "store")
    store.check_writable()
    plan = plan_run(config, write_task(store, task), source, device)
    computed = execute(plan.jobs, store, workers or default_workers(device), progress or Silent())
    tables = collect(plan, store, task)
    summary = summarise_run(config, source.name, task, tables)
    key = key_of("run", [job.key for job in plan.jobs])
    folder = runs / f"{task.name[:60]}-{source.name[:60]}-{key[:8]}"
    write_results(folder, tables, summary, config.model_dump(mode="json"))
    # What follows is about this call, not about the result.
    summary["jobs"] = {"computed": computed, "reused": len(plan.jobs) - computed}
    summary["seconds"] = round(time.perf_counter() - started, 1)
    summary["folder"] = str(folder)
    return RunResult(summary, tables, folder)


def collect(plan: RunPlan, store: Store, task: Task) -> dict[str, pd.DataFrame]:
    """The tables of all jobs, with the seed in front."""
    parts: dict[str, list[pd.DataFrame]] = {}

    def add(name: str, seed: int, table: pd.DataFrame, **columns: Any) -> None:
        front = {"seed": seed, **columns}
        parts.setdefault(name, []).append(
            pd.concat([pd.DataFrame(front, index=table.index), table], axis=1)
        )

    outcomes = []
    for jobs in plan.seeds:
        trainings = {"original": jobs.original, "memorised": jobs.memorised}
        if jobs.seed == plan.frozen.identity["seed"]:
            trainings["frozen"] = plan.frozen
        for state, job in trainings.items():
            artefact = store.open(*job.artefact)
            add("history", jobs.seed, artefact.table("history.parquet"), state=state)
            outcomes.append(
                _outcome(jobs.seed, state, artefact.manifest, artefact.json("outcome.json"))
            )
        for name, job in jobs.methods.items():
            artefact = store.open(*job.artefact)
            outcomes.append(_outcome(jobs.seed, name, artefact.manifest, {}))
            for table in ("layers", "windows", "predictions", "examples"):
                add(table, jobs.seed, artefact.table(f"{table}.parquet"))
    tables = {name: pd.concat(tables, ignore_index=True) for name, tables in parts.items()}
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
