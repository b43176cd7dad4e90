"""A sweep without computing it: how many jobs, which are done, how long the others will take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memloc.config import Execution
from memloc.engine.device import pick_device
from memloc.engine.estimate import Estimate, Estimator, History
from memloc.engine.guesses import UNKNOWN, Guesses
from memloc.engine.job import Job
from memloc.engine.local import LocalExecutor, default_workers
from memloc.engine.loop import Artefact
from memloc.engine.plan import speed_job
from memloc.engine.progress import Progress, Silent
from memloc.engine.store.store import Store
from memloc.engine.sweep import PlannedSweep, plan_sweep
from memloc.engine.sweep_config import Sweep

NAMES = {
    "train": "training",
    "control": "control training",
    "states": "states",
    "window": "retrained window",
    "localise": "technique",
    "explain": "explanation",
    "split": "half-split",
}
"""Kinds of jobs, for people, in this order."""


def dry_run(sweep: Sweep, runs: Path, progress: Progress | None = None) -> dict[str, Any]:
    """What a sweep would compute, as JSON data.

    Prepared data, a look at each model and a measurement of its speed go to the store; nothing
    else is computed.

    Args:
        sweep: What to do.
        runs: Folder for the store and the results.
        progress: Is told what the user should know.

    Raises:
        MemlocError: If something that was asked for is not possible.
    """
    progress = progress or Silent()
    store = Store(runs / "store")
    inputs = Guesses(store)
    planned = plan_sweep(sweep, store, progress, inputs)
    jobs = planned.jobs
    waiting = [job for job in jobs if not store.has(*job.artefact)]
    estimator = _estimator(planned, store, waiting)
    failed = _measure(estimator, store, waiting)
    left = {job.artefact for job in waiting}
    rows = [
        _row(kind, [j for j in jobs if j.kind == kind], left, estimator)
        for kind in NAMES
        if any(job.kind == kind for job in jobs)
    ]
    return {
        "name": sweep.name,
        "runs": len(planned.runs),
        "kinds": rows,
        "jobs": len(jobs),
        "in_store": len(jobs) - len(waiting),
        "seconds": sum(row["seconds"] for row in rows),
        "bytes": sum(row["bytes"] for row in rows),
        "flops": sum(row["flops"] for row in rows),
        "without_time": sum(row["without_time"] for row in rows),
        "measured": sum(row["measured"] for row in rows),
        "workers": _workers(sweep.execution),
        "executor": sweep.execution.executor,
        "not_known": _not_known(waiting, estimator, inputs, failed),
    }


def _workers(execution: Execution) -> int | None:
    """How many jobs run at once; None: as many as a cluster has room for."""
    if execution.executor == "slurm":
        return execution.slurm.at_once or execution.slurm.workers
    if execution.executor == "ray":
        return execution.workers
    return execution.workers or default_workers(pick_device(execution.device))


def _estimator(planned: PlannedSweep, store: Store, waiting: Sequence[Job]) -> Estimator:
    inputs = planned.inputs
    models = [run.prepared.config.model for _, run in planned.runs]
    if planned.benchmark is not None:
        models += [one.model for one in planned.benchmark.prepared.config.models]
    with LocalExecutor(store, 1) as here:
        facts = {
            inputs.source(model).fingerprint: inputs.facts(model, here)
            for model in dict.fromkeys(models)
        }
    history = History(store, {f: v for f, v in facts.items() if not f.startswith(UNKNOWN)})
    history.look(list(dict.fromkeys(job.kind for job in waiting)))
    return Estimator(history, facts, inputs.sizes())


def _measure(estimator: Estimator, store: Store, waiting: Sequence[Job]) -> dict[str, str]:
    """Measure the models of which the store says nothing; what went wrong, by fingerprint."""
    here = [job for job in waiting if _is_here(job)]
    failed = {}
    for fingerprint in estimator.unknown(here):
        mine = [job for job in here if model_of(job) == fingerprint]
        job = speed_job(mine[0], [job.needs["data"] for job in mine])
        with LocalExecutor(store, 1) as executor:
            outcome = executor.execute([job], Silent())
        if outcome.failed:
            failed[fingerprint] = str(outcome.failed[job.artefact])
        else:
            found = store.open(*job.artefact).json("speed.json")
            estimator.measured[fingerprint] = found
    return failed


def model_of(job: Job) -> str:
    """Fingerprint of its model."""
    return str(job.identity["model"]["fingerprint"])


def _is_here(job: Job) -> bool:
    """Whether its model and its data are."""
    return not any(name.startswith(UNKNOWN) for name in (model_of(job), job.needs["data"][1]))


def _row(
    kind: str, jobs: Sequence[Job], waiting: set[Artefact], estimator: Estimator
) -> dict[str, Any]:
    """A kind of jobs: how many, and what those that wait will take."""
    left = [job for job in jobs if job.artefact in waiting]
    found = [estimator.of_job(job) if _is_here(job) else Estimate(None, None) for job in left]
    sizes = [estimator.of_job(job).size for job in left]
    return {
        "kind": kind,
        "name": NAMES[kind],
        "jobs": len(jobs),
        "in_store": len(jobs) - len(left),
        "seconds": sum(one.seconds for one in found if one.seconds is not None),
        "measured": sum(one.source == "measured" for one in found),
        "without_time": sum(one.seconds is None for one in found),
        "bytes": sum(size for size in sizes if size is not None),
        "flops": sum(job.cost for job in left),
        "without_size": sum(size is None for size in sizes),
    }


def _not_known(
    waiting: Sequence[Job], estimator: Estimator, inputs: Guesses, failed: dict[str, str]
) -> list[str]:
    """Sentences on what is not known, and why."""
    reasons: dict[str, list[Job]] = {}
    for job in waiting:
        model = job.where["source"]["name"]
        if model in inputs.missing_models:
            why = f"{model} is not here"
        elif not _is_here(job):
            why = f"data for {model} are not here"
        elif estimator.of_job(job).seconds is None:
            why = failed.get(model_of(job), f"nothing is known about {model}")
        else:
            continue
        reasons.setdefault(why, []).append(job)
    sentences = []
    for why, jobs in reasons.items():
        kinds = ", ".join(dict.fromkeys(NAMES[job.kind] for job in jobs))
        sentences.append(
            f"the time of {len(jobs):,} job{'s' * (len(jobs) != 1)} ({kinds}), as {why}"
        )
    absent = {
        "models": inputs.missing_models,
        "tasks": inputs.missing_tasks,
    }
    for what, missing in absent.items():
        if missing:
            first = next(iter(missing.values()))
            sentences.append(
                f"which jobs with the {what} {', '.join(missing)} are in the store ({first})"
            )
    return sentences
