"""A sweep without computing it: how many jobs, which are done, how long the others will take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memloc.config import Data, Execution, Model
from memloc.data.load import BUILTIN_SIZE, is_downloaded, named_tasks
from memloc.data.noise import binarise, limit, perturb
from memloc.data.task import Task
from memloc.engine.device import pick_device
from memloc.engine.estimate import Estimate, Estimator, model_of
from memloc.engine.input_cache import InputCache
from memloc.engine.job import Job
from memloc.engine.local import LocalExecutor, default_workers
from memloc.engine.loop import Executor
from memloc.engine.progress import Progress, in_order, kind_in_words
from memloc.engine.store.store import Store, key_of
from memloc.engine.sweep import PlannedSweep, plan_sweep
from memloc.engine.sweep_config import Sweep
from memloc.errors import DataError, ModelError
from memloc.models.names import ModelSource, find_known
from memloc.text import counted

UNKNOWN = "unknown:"
"""Begins the fingerprints of models and the keys of data that are not here."""


class PlaceholderInputs(InputCache):
    """Data and models of which those that are not here are replaced by what is known about them.

    Tasks and models that are known by name have known sizes, so their jobs can be counted without
    them. What is in the store for them cannot be told, as keys of jobs depend on the content.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.missing_tasks: dict[str, str] = {}
        """Why a task is not here, by its name."""
        self.missing_models: dict[str, str] = {}

    def task(self, config: Data) -> Task:
        """The examples, or as many without content."""
        try:
            return super().task(config)
        except DataError as error:
            if not is_downloaded(config.task) or config.data_dir is not None:
                raise
            self._tasks[config] = self._placeholder(config, str(error))
            return self._tasks[config]

    def _placeholder(self, config: Data, why: str) -> Task:
        row = named_tasks()[config.task]
        self.missing_tasks[row.name] = why
        rows = np.arange(row.train_size or BUILTIN_SIZE)
        texts = [f"{row.name} {number}" for number in rows]
        table = pd.DataFrame({"example": rows, "text": texts, "label": rows % len(row.labels)})
        task = Task(row.name, row.category, row.labels, table, table.iloc[: len(row.labels)])
        if config.binarise:
            task = binarise(task)
        if config.limit is not None:
            task = limit(task, config.limit, config.seed)
        return perturb(task, config.noise, config.seed)

    def data(self, config: Data) -> tuple[str, str]:
        """Kind and key; a key that is in no store if the content is not known."""
        if self.task(config).name in self.missing_tasks:
            key = key_of("data", config.model_dump(mode="json"))
            self._data[config] = "data", f"{UNKNOWN}{key}"
        return super().data(config)

    def source(self, config: Model) -> ModelSource:
        """Where the model is, or would be."""
        try:
            return super().source(config)
        except ModelError as error:
            known = find_known(config.name)
            if known is None:
                raise
            name = known.hub.split("/")[-1]
            self.missing_models[name] = str(error)
            self._sources[config] = ModelSource(name, known.hub, f"{UNKNOWN}{known.hub}")
            return self._sources[config]

    def facts(self, config: Model, executor: Executor) -> dict[str, Any]:
        """Number of layers, pooling and sizes."""
        known = find_known(config.name)
        if known is None or not self.source(config).fingerprint.startswith(UNKNOWN):
            return super().facts(config, executor)
        # Attention has four square matrices, and an MLP two that are four times as large.
        parameters = 12 * known.layers * known.width**2
        return {
            "layers": known.layers,
            "pooling": "first",
            "layer_parameters": parameters,
            "trained_parameters": parameters,
            "width": known.width,
        }


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
    store = Store(runs / "store")
    inputs = PlaceholderInputs(store)
    planned = plan_sweep(sweep, store, progress or Progress(), inputs)
    jobs = planned.jobs
    waiting = [job for job in jobs if not store.has(*job.artefact)]
    estimator = _estimator(planned, store)
    estimator.learn([job for job in waiting if _is_here(job)])
    estimates = {job.artefact: _estimate(job, estimator) for job in waiting}
    rows = [
        _row(kind, [job for job in jobs if job.kind == kind], estimates)
        for kind in in_order({job.kind for job in jobs})
    ]
    sums = ("seconds", "bytes", "flops", "without_time", "measured")
    return {
        "name": sweep.name,
        "runs": len(planned.runs),
        "kinds": rows,
        "jobs": len(jobs),
        "in_store": len(jobs) - len(waiting),
        **{name: sum(row[name] for row in rows) for name in sums},
        "workers": _workers(sweep.execution),
        "executor": sweep.execution.executor,
        "not_known": _not_known(waiting, estimator, inputs),
    }


def _workers(execution: Execution) -> int | None:
    """How many jobs run at once; None: as many as a cluster has room for."""
    if execution.executor == "slurm":
        return execution.slurm.at_once or execution.slurm.workers
    if execution.executor == "ray":
        return execution.workers
    return execution.workers or default_workers(pick_device(execution.device))


def _estimator(planned: PlannedSweep, store: Store) -> Estimator:
    inputs = planned.inputs
    models = [run.prepared.config.model for _, run in planned.runs]
    if planned.benchmark is not None:
        models += [one.model for one in planned.benchmark.prepared.config.models]
    with LocalExecutor(store, 1) as here:
        facts = {
            inputs.source(model).fingerprint: inputs.facts(model, here)
            for model in dict.fromkeys(models)
        }
    return Estimator(store, facts, inputs.sizes())


def _is_here(job: Job) -> bool:
    """Whether its model and its data are."""
    return not any(name.startswith(UNKNOWN) for name in (model_of(job), job.needs["data"][1]))


def _estimate(job: Job, estimator: Estimator) -> Estimate:
    found = estimator.of_job(job)
    return found if _is_here(job) else Estimate(None, found.size)


def _row(kind: str, jobs: Sequence[Job], estimates: dict[Any, Estimate]) -> dict[str, Any]:
    """A kind of jobs: how many, and what those that wait will take."""
    left = [job for job in jobs if job.artefact in estimates]
    found = [estimates[job.artefact] for job in left]
    return {
        "kind": kind,
        "name": kind_in_words(kind),
        "jobs": len(jobs),
        "in_store": len(jobs) - len(left),
        "seconds": sum(one.seconds or 0.0 for one in found),
        "measured": sum(one.measured for one in found),
        "without_time": sum(one.seconds is None for one in found),
        "bytes": sum(one.size or 0.0 for one in found),
        "flops": sum(job.cost for job in left),
        "without_size": sum(one.size is None for one in found),
    }


def _not_known(
    waiting: Sequence[Job], estimator: Estimator, inputs: PlaceholderInputs
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
            why = estimator.problems.get(model_of(job), f"nothing is known about {model}")
        else:
            continue
        reasons.setdefault(why, []).append(job)
    sentences = []
    for why, jobs in reasons.items():
        kinds = ", ".join(dict.fromkeys(kind_in_words(job.kind) for job in jobs))
        sentences.append(f"the time of {counted(len(jobs), 'job')} ({kinds}), as {why}")
    for what, missing in (("models", inputs.missing_models), ("tasks", inputs.missing_tasks)):
        if missing:
            first = next(iter(missing.values()))
            sentences.append(
                f"which jobs with the {what} {', '.join(missing)} are in the store ({first})"
            )
    return sentences
