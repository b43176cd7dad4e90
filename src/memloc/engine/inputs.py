"""What experiments share: data sets and models, each loaded and looked at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from memloc.analysis.windows import chosen_windows
from memloc.config import Data, Device, Engine, Model, Training, Windows, check_dtype
from memloc.data.encode import joins_parts
from memloc.data.load import load_task
from memloc.data.task import Task
from memloc.engine.job import Artefact, Job, write_task
from memloc.engine.local import LocalExecutor, default_workers, pick_device
from memloc.engine.loop import Executor
from memloc.engine.plan import Planner, model_job, pass_flops, rough_lengths
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.models.names import ModelSource, resolve


class InputCache:
    """Data sets and models that many experiments share: each is loaded and looked at once.

    Args:
        executor: For a look at models; its store keeps prepared data and facts about models.
        where: See `Job`.
        progress: Is told what the user should know.
        hold_out: Whether tasks need examples for validation.
    """

    def __init__(
        self,
        executor: Executor,
        where: dict[str, Any],
        progress: Progress | None = None,
        hold_out: bool = True,
    ) -> None:
        self.executor, self.store, self.where = executor, executor.store, where
        self.progress, self.hold_out = progress or Progress(), hold_out
        self._tasks: dict[Data, Task] = {}
        self._data: dict[Data, Artefact] = {}
        self._plain: dict[Data, Artefact] = {}
        self._lengths: dict[tuple[Data, int], np.ndarray] = {}
        self._sources: dict[Model, ModelSource] = {}
        self._facts: dict[Model, dict[str, Any]] = {}

    def task(self, config: Data) -> Task:
        """The examples, with their noise settled.

        Raises:
            DataError: If the data are missing, malformed or unsuitable.
        """
        if config not in self._tasks:
            self._tasks[config] = load_task(config, self.hold_out)
            for sentence in self._tasks[config].notes:
                self.progress.note(sentence)
        return self._tasks[config]

    def data(self, config: Data) -> Artefact:
        """The same as an artefact."""
        if config not in self._data:
            self._data[config] = write_task(self.store, self.task(config))
        return self._data[config]

    def suspect(self, config: Data, task: Task) -> None:
        """From now on the examples are these, of which some are suspected."""
        self._plain[config] = self.data(config)
        self._tasks[config], self._data[config] = task, write_task(self.store, task)

    def source(self, config: Model) -> ModelSource:
        """Where the pre-trained model is.

        Raises:
            ModelError: If there is no such model.
        """
        if config not in self._sources:
            self._sources[config] = resolve(config)
        return self._sources[config]

    def facts(self, config: Model) -> dict[str, Any]:
        """Number of layers, pooling and sizes, from the store or by looking at the model.

        Raises:
            JobFailed: If the model cannot be analysed.
            StoreError: If the store cannot be written.
        """
        if config not in self._facts:
            self._facts[config] = self._look(model_job(config, self.source(config)))
        return self._facts[config]

    def _look(self, job: Job) -> dict[str, Any]:
        self.store.check_writable()
        outcome = self.executor.execute([job], Progress())
        if outcome.failed:
            raise outcome.failed[job.artefact].error(title=False)
        facts: dict[str, Any] = self.store.open(*job.artefact).json("facts.json")
        return facts

    def changes(self, model: Model, data: Data, max_tokens: int) -> dict[str, Any] | None:
        """Settings that a model gets by reading the data; None if it never changes itself.

        Raises:
            JobFailed: If answers would depend on the order of the texts.
        """
        if self.facts(model).get("changes") is None:
            return None
        job = model_job(model, self.source(model), self.data(data), max_tokens)
        found: dict[str, Any] = self._look(job)["changes"]
        for setting, value in found.items():
            self.progress.note(
                f"{self.source(model).name} has {setting} {value!r}, as {self.task(data).name} has "
                "short texts only"
            )
        return found

    def pass_cost(self, model: Model, data: Data, max_tokens: int) -> float:
        """What a pass of the data through a model costs, in floating-point operations."""
        key = data, max_tokens
        if key not in self._lengths:
            self._lengths[key] = rough_lengths(self.task(data).train, max_tokens)
        return pass_flops(self.facts(model), self._lengths[key])

    def planner(
        self,
        model: Model,
        data: Data,
        training: Training,
        windows: Windows,
        label: str = "",
        auxiliary: Data | None = None,
    ) -> Planner:
        """Makes the jobs on a data set and a model; `label` is added to their titles.

        Raises:
            MemlocError: If the model has no windows of these sizes, or the device not this dtype.
        """
        check_dtype(training.dtype, self.where.get("device", "auto"))
        n_layers = int(self.facts(model)["layers"])
        chosen_windows(n_layers, windows.sizes)
        read = [self.task(one).train for one in (data, auxiliary) if one is not None]
        return Planner(
            self.data(data),
            model,
            self.source(model),
            training,
            windows,
            n_layers,
            self.where,
            label=label,
            pass_cost=self.pass_cost(model, data, training.max_tokens),
            joined=any(joins_parts(table, model.pair_format) for table in read),
            changes=self.changes(model, data, training.max_tokens),
            twin=data.twin if data.suspects else None,
            plain=self._plain.get(data),
        )


@contextmanager
def working(
    store: Store, engine: Engine, device: Device, progress: Progress, hold_out: bool = True
) -> Iterator[InputCache]:
    """Inputs for work on this machine, whose workers end with it.

    Args:
        store: Where results go.
        engine: How jobs run.
        device: Where to compute.
        progress: Where to show how far it is.
        hold_out: See `InputCache`.
    """
    chosen = pick_device(device)
    with LocalExecutor(store, engine.workers or default_workers(chosen)) as executor:
        yield InputCache(executor, engine.where(chosen), progress, hold_out)
