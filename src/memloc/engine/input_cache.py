"""Data sets and models that many experiments share: each is loaded and looked at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from memloc.config import Data, Model
from memloc.data.load import load_task
from memloc.data.task import Task
from memloc.engine.costs import rough_lengths
from memloc.engine.job import write_task
from memloc.engine.loop import Executor
from memloc.engine.plan import model_job
from memloc.engine.progress import Silent
from memloc.engine.store.store import Store
from memloc.models.names import ModelSource, resolve


class InputCache:
    """What experiments are made of, by its configuration.

    Args:
        store: Where prepared data and facts about models are kept.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._tasks: dict[Data, Task] = {}
        self._data: dict[Data, tuple[str, str]] = {}
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

    def data(self, config: Data) -> tuple[str, str]:
        """The same as an artefact: kind and key."""
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

    def lengths(self, config: Data, max_tokens: int) -> np.ndarray:
        """Tokens of each example, roughly."""
        key = config, max_tokens
        if key not in self._lengths:
            self._lengths[key] = rough_lengths(self.task(config).train, max_tokens)
        return self._lengths[key]

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
        """
        if config not in self._facts:
            job = model_job(config, self.source(config))
            outcome = executor.execute([job], Silent())
            if outcome.failed:
                raise outcome.failed[job.artefact].error(title=False)
            self._facts[config] = self.store.open(*job.artefact).json("facts.json")
        return self._facts[config]
