"""A sweep without computing it: how many jobs, which are done, how long the others will take."""

from __future__ import annotations

import contextlib
import json
import socket
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from memloc.config import Data, Dtype, Execution, Model
from memloc.data.builtin import BUILTIN_SIZE
from memloc.data.load import is_downloaded, named_tasks
from memloc.data.noise import binarise, limit, perturb
from memloc.data.task import Task
from memloc.engine.inputs import InputCache
from memloc.engine.job import Artefact, Job
from memloc.engine.local import LocalExecutor, default_workers, pick_device
from memloc.engine.loop import Executor
from memloc.engine.progress import Progress, Rates, Sort, in_order, kind_in_words, setup_of
from memloc.engine.store.store import MANIFEST, Store, key_of
from memloc.engine.sweep import plan_sweep
from memloc.engine.sweep_config import Sweep
from memloc.errors import MALFORMED, DataError, ModelError
from memloc.models.names import ModelSource, find_known
from memloc.text import counted

UNKNOWN = "unknown:"
"""Begins the fingerprints of models and the keys of data that are not here."""
SPEED_REVISION = 3
A100_PEAK: dict[Dtype, float] = {"float32": 19.5e12, "tf32": 156e12}
"""Operations per second in dense matrix products, by the maker's data sheet. PyTorch computes in
float32 unless it is told otherwise."""
LOOKED_AT = 400
"""Artefacts of each kind that are looked at."""
SMALL_RESULT = 30_000
"""Bytes of a result without weights or states, if none is known."""


class PlaceholderInputs(InputCache):
    """Data and models of which those that are not here are replaced by what is known about them.

    Tasks and models that are known by name have known sizes, so their jobs can be counted without
    them. What is in the store for them cannot be told, as keys of jobs depend on the content.
    """

    def __init__(
        self, executor: Executor, where: dict[str, Any], progress: Progress | None = None
    ) -> None:
        super().__init__(executor, where, progress)
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

    def facts(self, config: Model) -> dict[str, Any]:
        """Number of layers, pooling and sizes."""
        known = find_known(config.name)
        if known is not None and self.source(config).fingerprint.startswith(UNKNOWN):
            # Attention has four square matrices, and an MLP two that are four times as large.
            parameters = 12 * known.layers * known.width**2
            self._facts[config] = {
                "layers": known.layers,
                "pooling": "first",
                "layer_parameters": parameters,
                "trained_parameters": parameters,
                "width": known.width,
            }
        return super().facts(config)

    def all_facts(self) -> dict[str, dict[str, Any]]:
        """What is known of all models that were asked for, by fingerprint."""
        return {self.source(config).fingerprint: facts for config, facts in self._facts.items()}

    def sizes(self) -> dict[str, int]:
        """Training examples of all data that were asked for, by key."""
        return {key: len(self.task(config).train) for config, (_, key) in self._data.items()}


def dry_run(sweep: Sweep, runs: Path, progress: Progress | None = None) -> dict[str, Any]:
    """What a sweep would compute, as JSON data.

    Prepared data, a look at each model and a measurement of its speed go to the store; nothing
    else is computed.

    Raises:
        MemlocError: If something that was asked for is not possible.
    """
    store = Store(runs / "store")
    with LocalExecutor(store, 1) as executor:
        inputs = PlaceholderInputs(executor, sweep.where, progress)
        planned = plan_sweep(sweep, inputs)
    jobs = planned.jobs
    waiting = [job for job in jobs if not store.has(*job.artefact)]
    estimator = Estimator(store, inputs.all_facts(), inputs.sizes())
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
        "a100_hours": {
            dtype: float(table["flops"].sum()) / peak / 3600 for dtype, peak in A100_PEAK.items()
        },
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
    return not any(name.startswith(UNKNOWN) for name in (_model(job), job.needs["data"][1]))


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
        those = [job for job in waiting if _model(job) == model]
        sentences.append(f"the time of {counted(len(those), 'job')}, as {why}")
    return sentences


# --- what jobs will take --------------------------------------------------------------------------


class Estimate(NamedTuple):
    """What a job will take: seconds on one worker, and bytes; None: not known."""

    seconds: float | None
    size: float | None


class Estimator:
    """How long jobs will take, and how much disk.

    How many operations a second does is known from jobs of the same technique and model in the
    store; failing that, from a few batches that are sent through the model here. `facts` on models
    are by fingerprint, numbers of `examples` by the key of the data.
    """

    def __init__(
        self, store: Store, facts: Mapping[str, Mapping[str, Any]], examples: Mapping[str, int]
    ) -> None:
        self.store, self.facts, self.examples = store, facts, examples
        self.rates = Rates()
        self.sizes: defaultdict[tuple[Sort, str], list[int]] = defaultdict(list)
        self.speeds: dict[str, dict[str, Any]] = {}
        """What measuring found out about models, by fingerprint."""
        self.problems: dict[str, str] = {}
        """Why a model could not be measured."""

    def learn(self, jobs: Sequence[Job]) -> None:
        """Read what the store says about such jobs, and measure models of which it says nothing."""
        for kind in dict.fromkeys(job.kind for job in jobs):
            for manifest in islice((self.store.root / kind).glob(f"*/{MANIFEST}"), LOOKED_AT):
                with contextlib.suppress(OSError, *MALFORMED):
                    self._learn_from(kind, json.loads(manifest.read_text(encoding="utf-8")))
        unknown: dict[str, list[Job]] = {}
        for job in jobs:
            if self.of_job(job).seconds is None:
                unknown.setdefault(_model(job), []).append(job)
        for model, those in unknown.items():
            self._measure(model, those)

    def _learn_from(self, kind: str, manifest: dict[str, Any]) -> None:
        setup = setup_of(kind, manifest["inputs"])
        self.sizes[setup[:2]].append(sum(manifest["sizes"].values()))
        if not setup[0][2]:  # what puts windows together bears their time
            costs = manifest["costs"]
            self.rates.learn(setup, float(costs["cost"]), float(costs["seconds"]))

    def _measure(self, fingerprint: str, jobs: Sequence[Job]) -> None:
        job = speed_job(jobs[0], [job.needs["data"] for job in jobs])
        with LocalExecutor(self.store, 1) as executor:
            outcome = executor.execute([job], Progress())
        if outcome.failed:
            self.problems[fingerprint] = str(outcome.failed[job.artefact])
        else:
            self.speeds[fingerprint] = self.store.open(*job.artefact).json("speed.json")

    def of_job(self, job: Job) -> Estimate:
        """Seconds on one worker, and bytes."""
        setup = setup_of(job.kind, job.inputs)
        size = self._size(job, setup[:2])
        if setup[0][2]:
            return Estimate(0.0, size)  # it only puts windows together
        if self.rates.knows(setup[:2]):
            return Estimate(job.cost * self.rates.of(setup), size)
        speed = self.speeds.get(setup[1])
        if speed is None:
            return Estimate(None, size)
        # Costs are of guessed lengths; of these data the tokens were counted on a sample.
        longer = speed["longer"].get(job.needs["data"][1], 1.0)
        seconds = job.cost * longer / speed["flops_per_second"]
        # Jobs of a group find the model in memory, others load it first.
        start = 0.0 if job.group else float(speed["seconds_to_load"])
        return Estimate(start + seconds, size)

    def _size(self, job: Job, like: tuple[Sort, str]) -> float | None:
        if like in self.sizes:
            return sum(self.sizes[like]) / len(self.sizes[like])
        facts = self.facts.get(like[1])
        if facts is None:
            return None
        if job.kind in ("train", "control"):
            state = job.identity["state"]
            if state == "frozen" and job.kind == "train":
                return SMALL_RESULT  # a head alone
            # θ_M is stored twice: when it had just learned the labels, and at the end.
            copies = 1 + (state == "memorised" and "snapshot" not in job.identity)
            return float(4 * facts["trained_parameters"] * copies)
        if job.kind == "states":
            n = self.examples.get(job.needs["data"][1])
            return None if n is None else float(4 * (facts["layers"] + 1) * n * facts["width"])
        return SMALL_RESULT


def speed_job(like: Job, data: Sequence[Artefact]) -> Job:
    """How fast the model of a job is on this machine, and how long texts of data are for it."""
    training = {name: like.identity["training"][name] for name in ("max_tokens", "dtype")}
    identity = {
        "model": like.identity["model"],
        "training": training,
        "host": socket.gethostname(),
        "revision": SPEED_REVISION,
    }
    needs = {f"data {number}": one for number, one in enumerate(dict.fromkeys(data), 1)}
    where = {**like.where, "device": pick_device(like.where["device"])}
    return Job("speed", "measure the model", identity, needs, where)


def _model(job: Job) -> str:
    """Fingerprint of its model."""
    return str(job.identity["model"]["fingerprint"])
