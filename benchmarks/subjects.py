"""What is measured on: `minilm` (6 layers) and a random BERT of the same width (12 layers)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import BertConfig, BertForSequenceClassification

from memloc.config import Model
from memloc.data.builtin import generate
from memloc.data.encode import Encoded, encode
from memloc.models.blocks import BlockModel
from memloc.models.load import Classifier, load_classifier
from memloc.models.names import resolve

PREFIX = "bert.encoder.layer"


@dataclass(frozen=True)
class Subject:
    """Models and examples; `build` makes a model of the same shape with other weights."""

    name: str
    build: Callable[[int], Classifier]
    table: pd.DataFrame
    encoded: Encoded
    tokenizer: Any

    @property
    def texts(self) -> list[str]:
        """The texts."""
        return list(self.table["text"])

    @property
    def labels(self) -> torch.Tensor:
        """The labels as trained."""
        return torch.tensor(self.table["label"].to_numpy())

    @property
    def tokens(self) -> int:
        """Real tokens of all examples."""
        return int(self.encoded.lengths.sum())


def make_subjects(examples: int) -> list[Subject]:
    """Both models on the same examples of `questions`, 15% of them noisy."""
    table = generate("questions", examples, 0).train
    generator = np.random.default_rng(0)
    table["noisy"] = False
    table.loc[generator.choice(examples, int(0.15 * examples), replace=False), "noisy"] = True
    subjects = []
    for name, build in (("minilm", minilm), ("random BERT", twelve_layers)):
        codec = build(0).codec
        subjects.append(Subject(name, build, table, encode(table, codec), codec.tokenizer))
    return subjects


def minilm(seed: int) -> Classifier:
    """The embedded 6-layer model with six classes."""
    config = Model(name="minilm")
    classifier = load_classifier(resolve(config), config, n_labels=6, seed=0)
    shake(classifier.blocks.model, seed)
    return classifier


def twelve_layers(seed: int) -> Classifier:
    """A random 12-layer BERT as wide as `minilm`, with its tokeniser."""
    codec = minilm(0).codec
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BertForSequenceClassification(
            BertConfig(
                vocab_size=30522, hidden_size=384, num_hidden_layers=12, num_attention_heads=12,
                intermediate_size=1536, num_labels=6, initializer_range=0.05,
            )
        ).eval()  # fmt: skip
    shake(model, seed)
    return Classifier(BlockModel(model), codec)


def shake(model: Any, seed: int) -> None:
    """Random changes to all weights, so that exchanging layers changes predictions."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter += 0.05 * noise * parameter.std().nan_to_num(0.0)


def block_size(model: BlockModel) -> int:
    """Parameters of one layer."""
    return sum(parameter.numel() for parameter in model.block(1).parameters())


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what the work returned."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def timed_in_turns(
    fast: Callable[[], Any], slow: Callable[[], Any], times: int = 3
) -> tuple[float, Any, float, Any]:
    """Median seconds and results of two short pieces of work, done in turns.

    So a machine that is slow for a moment is slow for both.
    """
    runs = [(*timed(fast), *timed(slow)) for _ in range(times)]
    seconds = [sorted(run[column] for run in runs)[times // 2] for column in (0, 2)]
    return seconds[0], runs[0][1], seconds[1], runs[0][3]


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
