"""The one form in which a data set travels through memloc."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

INPUT_COLUMNS = ("word", "text", "text_pair")
"""Columns that make up the input, in the order in which they are joined."""


@dataclass(frozen=True)
class Task:
    """A classification task.

    Both tables have one row per example: `example` (int64, the row in the source, from 0), `text`,
    optionally `text_pair` and `word` (strings), `label` (int64, index into `labels`). Once noise is
    known or made, the training table also has `original_label` (int64) and `noisy` (bool).
    `binarised` if there were more classes, and only two were kept.
    """

    name: str
    category: str
    labels: tuple[str, ...]
    train: pd.DataFrame
    validation: pd.DataFrame
    binarised: bool = False

    @property
    def has_noise(self) -> bool:
        """Whether it is settled which training labels are wrong."""
        return "noisy" in self.train.columns

    def with_train(self, train: pd.DataFrame) -> Task:
        """The same task with another training table (rows renumbered, `example` kept)."""
        return replace(self, train=train.reset_index(drop=True))


def input_columns(table: pd.DataFrame) -> list[str]:
    """The input columns that `table` has, in joining order."""
    return [column for column in INPUT_COLUMNS if column in table.columns]
