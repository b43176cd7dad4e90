"""InputCache for a dry run: what cannot be had is replaced by what is known about it.

The paper's tasks and models have known sizes, so their jobs can be counted without them. What is in
the store for them cannot be told, as keys of jobs depend on the content.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from memloc.config import Data, Model
from memloc.data.load import BUILTIN_SIZE, is_downloaded, named_tasks
from memloc.data.noise import binarise, limit, perturb
from memloc.data.task import Task
from memloc.engine.input_cache import InputCache
from memloc.engine.loop import Executor
from memloc.engine.store.store import Store, key_of
from memloc.errors import DataError, ModelError
from memloc.models.names import ModelSource, find_known

UNKNOWN = "unknown:"
"""Begins the fingerprints of models and the keys of data that are not here."""


class Guesses(InputCache):
    """As `InputCache`, but nothing of the paper is ever missing."""

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
            self._tasks[config] = self._guess(config, str(error))
            return self._tasks[config]

    def _guess(self, config: Data, why: str) -> Task:
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
