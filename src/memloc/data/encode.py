"""Tokenise once; batch by length so that almost nothing is padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from memloc.config import PairFormat
from memloc.data.task import input_columns
from memloc.errors import DataError, ModelError

POOL_OF_BATCHES = 16
"""Training batches are sorted by length within pools of this many, so order stays random."""


@dataclass(frozen=True)
class TextCodec:
    """A tokeniser and what is needed to use it the same way everywhere."""

    tokenizer: Any
    separator: str
    pad_id: int
    max_tokens: int
    vocabulary: int | None = None
    """Rows of the model's embedding table."""


@dataclass(frozen=True)
class Encoded:
    """Token ids of every example, without padding."""

    rows: list[dict[str, list[int]]]
    pad_id: int

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.rows)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens per example."""
        return np.array([len(row["input_ids"]) for row in self.rows])

    def batch(
        self, indices: Sequence[int], device: torch.device | str = "cpu"
    ) -> dict[str, Tensor]:
        """The given examples, padded on the right to the longest of them."""
        rows = [self.rows[index] for index in indices]
        longest = max(len(row["input_ids"]) for row in rows)
        columns = {}
        for name in rows[0]:
            fill = self.pad_id if name == "input_ids" else 0
            columns[name] = torch.tensor(
                [row[name] + [fill] * (longest - len(row[name])) for row in rows], device=device
            )
        return columns


def encode(table: pd.DataFrame, codec: TextCodec, pair_format: PairFormat = "joined") -> Encoded:
    """Tokenise the input columns of a table.

    Two sentences are one text with the separator between them (section 3), or, with
    ``pair_format="native"``, go to the tokeniser as a pair.

    Raises:
        DataError: If the tokeniser makes nothing of a text.
        ModelError: If the tokeniser does not fit the model.
    """
    if table.empty:
        return Encoded([], codec.pad_id)
    columns = input_columns(table)
    if pair_format == "native" and columns == ["text", "text_pair"]:
        inputs = [table["text"].tolist(), table["text_pair"].tolist()]
    else:
        joint = f" {codec.separator} "
        inputs = [[joint.join(texts) for texts in table[columns].itertuples(index=False)]]
    encoding = codec.tokenizer(*inputs, truncation=True, max_length=codec.max_tokens, padding=False)
    names = [name for name in encoding if name in ("input_ids", "attention_mask", "token_type_ids")]
    rows = [
        dict(zip(names, values, strict=True))
        for values in zip(*(encoding[name] for name in names), strict=True)
    ]
    for index, row in enumerate(rows):
        row.setdefault("attention_mask", [1] * len(row["input_ids"]))
        if not row["input_ids"]:
            raise DataError(
                f"the tokeniser makes nothing of the text {inputs[0][index]!r} (example {index}); "
                "remove that example"
            )
        if codec.vocabulary is not None and max(row["input_ids"]) >= codec.vocabulary:
            raise ModelError(
                f"the tokeniser gives token {max(row['input_ids'])} but the model knows only "
                f"{codec.vocabulary} (example {index}); use the tokeniser it was trained with"
            )
    return Encoded(rows, codec.pad_id)


def evaluation_batches(encoded: Encoded, size: int) -> Iterator[np.ndarray]:
    """Indices in batches of similar length, each example once."""
    order = np.argsort(encoded.lengths, kind="stable")
    for start in range(0, len(order), size):
        yield order[start : start + size]


def equal_length_batches(encoded: Encoded, size: int) -> Iterator[np.ndarray]:
    """Indices in batches of exactly one length, so without any padding; each example once.

    Batches may be small: for work that stacks many states of the same batch anyway.
    """
    lengths = encoded.lengths
    for length in np.unique(lengths):
        indices = np.flatnonzero(lengths == length)
        for start in range(0, len(indices), size):
            yield indices[start : start + size]


def training_batches(
    lengths: np.ndarray, size: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """Indices of one epoch: random order, but batches of similar length."""
    order = generator.permutation(len(lengths))
    pool = size * POOL_OF_BATCHES
    batches = []
    for start in range(0, len(order), pool):
        chunk = order[start : start + pool]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        batches += [chunk[i : i + size] for i in range(0, len(chunk), size)]
    return [batches[index] for index in generator.permutation(len(batches))]
