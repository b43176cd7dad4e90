"""What is measured on: a BERT of 12 layers as wide as `minilm`, and a task with flipped labels."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from memloc.config import Data, Model
from memloc.data.encode import Encoded, encode
from memloc.data.load import load_task
from memloc.data.task import Task, input_columns
from memloc.errors import DataError, ModelError
from memloc.models.blocks import BlockModel
from memloc.models.load import Classifier, load_classifier
from memloc.models.names import resolve


@dataclass(frozen=True)
class Subject:
    """Examples, and a way to make the pre-trained model, which has the head of the authors."""

    name: str
    task: Task
    build: Callable[[], BlockModel]
    tokenizer: Any
    train: Encoded
    validation: Encoded

    @property
    def noisy(self) -> np.ndarray:
        """Which of the training labels were flipped."""
        return self.task.train["noisy"].to_numpy()


def make_subject(data: Data, model: str | None = None) -> Subject:
    """The task, with a BERT from a folder or the hub; by default `minilm` with every layer twice.

    The transcription of the authors' program reads texts, and runs a BERT.

    Raises:
        DataError: If examples are not single texts.
        ModelError: If the model is no BERT.
    """
    task = load_task(data)
    if input_columns(task.train) != ["text"]:
        raise DataError(f"{task.name} has pairs of texts", remedy="take a task of single texts")
    config = Model(name=model or "minilm", head="paper")
    source = resolve(config)

    def load() -> Classifier:
        return load_classifier(source, config, n_labels=len(task.labels), seed=1)

    codec = load().codec

    def build() -> BlockModel:
        classifier: Any = load().blocks.model
        if classifier.config.model_type != "bert":
            raise ModelError(f"{source.name} is no BERT", remedy="give a model of that kind")
        return BlockModel(classifier if model else with_layers_twice(classifier))

    return Subject(
        source.name if model else "minilm with every layer twice",
        task,
        build,
        codec.tokenizer,
        *(encode(table, codec) for table in (task.train, task.validation)),
    )


def with_layers_twice(classifier: Any) -> Any:
    """A BERT of twice the depth: each layer is followed by a copy of itself.

    Unlike a deep model with random weights, it soon learns labels by heart.
    """
    encoder = classifier.base_model.encoder
    encoder.layer = nn.ModuleList(
        twin for layer in encoder.layer for twin in (layer, copy.deepcopy(layer))
    )
    classifier.config.num_hidden_layers = len(encoder.layer)
    return classifier
