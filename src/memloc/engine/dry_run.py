"""A sweep without computing it: how many jobs, which are done, how long the others will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memloc.config import Data, Execution, Model
from memloc.data.builtin import BUILTIN_SIZE
from memloc.data.load import is_downloaded, named_tasks
from memloc.data.noise import binarise, limit, perturb
from memloc.data.task import Task
from memloc.engine.costs import Estimator, model_of
from memloc.engine.experiment import InputCache
from memloc.engine.job import Job
from memloc.engine.local import default_workers, pick_device
from memloc.engine.loop import Executor
from memloc.engine.progress import Progress, in_order, kind_in_words
from memloc.engine.store.store import Store, key_of
from memloc.engine.sweep import plan_sweep
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
    facts = {k: v for one in planned.experiments for k, v in one.facts.items()}
    estimator = Estimator(store, facts, inputs.sizes())
    estimator.learn([job for job in waiting if _is_here(job)])
    table = pd.DataFrame(
        {
            "kind": job.kind,
            "flops": job.cost,
            "seconds": found.seconds if _is_here(job) else None,
            "bytes": found.size,
        }
        for job in waiting
        for found in [estimator.of_job(job)]
    ).reindex(columns=["kind", "flops", "seconds", "bytes"])
    of_kinds = Counter(job.kind for job in jobs)
    rows = [
        _row(table[table["kind"] == kind], of_kinds[kind])
        | {"kind": kind, "name": kind_in_words(kind)}
        for kind in in_order(of_kinds)
    ]
    return {
        "name": sweep.name,
        "runs": len(planned.runs),
        "kinds": rows,
        **_row(table, len(jobs)),
        "workers": _workers(sweep.execution),
        "executor": sweep.execution.executor,
        "not_known": _not_known(waiting, estimator, inputs),
    }


def _row(waiting: pd.DataFrame, jobs: int) -> dict[str, Any]:
    """How many jobs, and what those that wait will take."""
    return {
        "jobs": jobs,
        "in_store": jobs - len(waiting),
        **{name: float(waiting[name].sum()) for name in ("seconds", "bytes", "flops")},
        "without_time": int(waiting["seconds"].isna().sum()),
        "without_size": int(waiting["bytes"].isna().sum()),
    }


def _workers(execution: Execution) -> int | None:
    """How many jobs run at once; None: as many as a cluster has room for."""
    if execution.executor == "slurm":
        return execution.slurm.at_once or execution.slurm.workers
    if execution.executor == "ray":
        return execution.workers
    return execution.workers or default_workers(pick_device(execution.device))


def _is_here(job: Job) -> bool:
    """Whether its model and its data are."""
    return not any(name.startswith(UNKNOWN) for name in (model_of(job), job.needs["data"][1]))


def _not_known(
    waiting: Sequence[Job], estimator: Estimator, inputs: PlaceholderInputs
) -> list[str]:
    """Sentences on what is not known, and why."""
    sentences = []
    for what, missing in (("models", inputs.missing_models), ("tasks", inputs.missing_tasks)):
        if missing:
            first = next(iter(missing.values()))
            sentences.append(
                f"which jobs with the {what} {', '.join(missing)} are in the store, and how long "
                f"they take ({first})"
            )
    for model, why in estimator.problems.items():
        those = [job for job in waiting if model_of(job) == model]
        sentences.append(f"the time of {counted(len(those), 'job')}, as {why}")
    return sentences
