"""Tokenise once; batch by length so that almost nothing is padding."""

from __future__ import annotations

from bisect import bisect
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
    cut: int = 0
    """How many examples were longer than the model may read."""

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
    ``pair_format="native"``, go to the tokeniser as a pair. Of an example that is too long, the
    longest of its parts is cut, at its end.

    Raises:
        DataError: If the tokeniser makes nothing of a text.
        ModelError: If the tokeniser does not fit the model.
    """
    if table.empty:
        return Encoded([], codec.pad_id)
    columns = input_columns(table)
    joint = f" {codec.separator} "
    parts = list(table[columns].itertuples(index=False, name=None))
    if joins_parts(table, pair_format):
        inputs = [[joint.join(texts) for texts in parts]]
    else:
        inputs = [table[column].tolist() for column in columns]
    rows = _rows(codec.tokenizer(*inputs, truncation=True, max_length=codec.max_tokens))
    # Those that fill the limit may be longer than it.
    full = [i for i, row in enumerate(rows) if len(row["input_ids"]) >= codec.max_tokens]
    cut = 0
    for index, whole in zip(full, _whole(codec, inputs, full), strict=True):
        if len(whole["input_ids"]) > codec.max_tokens:
            cut += 1
            if len(inputs) < len(columns):
                rows[index] = _cut_longest(whole, parts[index], joint, codec) or rows[index]
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
    return Encoded(rows, codec.pad_id, cut)


def joins_parts(table: pd.DataFrame, pair_format: PairFormat) -> bool:
    """Whether examples have several parts that become one text, with separators between them."""
    columns = input_columns(table)
    as_pair = pair_format == "native" and columns == ["text", "text_pair"]
    return len(columns) > 1 and not as_pair


def _rows(encoding: Any) -> list[dict[str, list[int]]]:
    known = ("input_ids", "attention_mask", "token_type_ids", "offset_mapping")
    names = [name for name in encoding if name in known]
    return [
        dict(zip(names, values, strict=True))
        for values in zip(*(encoding[name] for name in names), strict=True)
    ]


def _whole(
    codec: TextCodec, inputs: Sequence[Sequence[str]], chosen: Sequence[int]
) -> list[dict[str, list[int]]]:
    """Some examples at their full length, with the characters that tokens stand for, if known."""
    if not chosen:
        return []
    texts = [[column[index] for index in chosen] for column in inputs]
    offsets = len(texts) == 1 and codec.tokenizer.is_fast
    return _rows(codec.tokenizer(*texts, verbose=False, return_offsets_mapping=offsets))


def _cut_longest(
    whole: dict[str, list[int]], parts: Sequence[str], joint: str, codec: TextCodec
) -> dict[str, list[int]] | None:
    """An example of several parts without the end of the longest; None if nothing would be left."""
    limit = codec.max_tokens
    if "offset_mapping" not in whole:  # tokenisers in Python do not tell
        low, high = len(parts), sum(map(len, parts))
        while low < high:  # the most characters with which it fits
            middle = (low + high + 1) // 2
            fits = len(_of_characters(parts, middle, joint, codec)["input_ids"]) <= limit
            low, high = (middle, high) if fits else (low, middle - 1)
        found = _of_characters(parts, low, joint, codec)
        return found if len(found["input_ids"]) <= limit else None
    offsets: Any = whole.pop("offset_mapping")
    ends = np.cumsum([len(part) + len(joint) for part in parts]) - len(joint)
    starts = ends - [len(part) for part in parts]
    first, last = np.array(offsets).T[..., None]
    inside = (first < last) & (starts < last) & (last <= ends)  # [tokens, parts]; no separators
    counts = inside.sum(axis=0)
    room = limit - int((~inside.any(axis=1)).sum())
    if room < len(parts):
        return None
    kept = inside & (np.cumsum(inside, axis=0) <= longest_first(counts.tolist(), room))
    stays = kept.any(axis=1) | ~inside.any(axis=1)
    return {name: np.array(values)[stays].tolist() for name, values in whole.items()}


def _of_characters(
    parts: Sequence[str], room: int, joint: str, codec: TextCodec
) -> dict[str, list[int]]:
    lengths = longest_first([len(part) for part in parts], room)
    text = joint.join(part[:length] for part, length in zip(parts, lengths, strict=True))
    return _rows(codec.tokenizer([text], verbose=False))[0]


def longest_first(lengths: Sequence[int], room: int) -> list[int]:
    """How much of each part is kept, if all have so much room: the longest is shortened first."""

    def up_to(most: int) -> list[int]:
        return [min(length, most) for length in lengths]

    level = bisect(range(max(lengths) + 1), room, key=lambda most: sum(up_to(most))) - 1
    kept = up_to(level)
    longer = [part for part, length in enumerate(lengths) if length > level]
    for part in longer[: room - sum(kept)]:
        kept[part] += 1
    return kept


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
