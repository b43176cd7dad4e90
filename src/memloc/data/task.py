"""The one form in which a data set travels through memloc."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from memloc.config import Data

Noise = Literal["flipped", "wrong", "suspected"]
INPUT_COLUMNS = ("word", "text", "text_pair")
"""Columns that make up the input, in the order in which they are joined."""


def input_columns(table: pd.DataFrame) -> list[str]:
    """The input columns that `table` has, in joining order."""
    return [column for column in INPUT_COLUMNS if column in table.columns]


@dataclass(frozen=True)
class Task:
    """A classification task.

    Both tables have one row per example: `example` (int64, the row in the source, from 0), `text`,
    optionally `text_pair` and `word` (strings), `label` (int64, index into `labels`). Once noise is
    known or made, the training table also has `original_label` (int64) and `noisy` (bool).
    `binarised` if there were more classes, and only two were kept. `noise` is what noisy labels
    are: flipped by memloc, known to be wrong, or only suspected of it. `notes` are sentences that
    the user should read.
    """

    name: str
    category: str
    labels: tuple[str, ...]
    train: pd.DataFrame
    validation: pd.DataFrame
    binarised: bool = False
    noise: Noise = "flipped"
    notes: tuple[str, ...] = ()

    def with_train(self, train: pd.DataFrame) -> Task:
        """The same task with another training table (rows renumbered, `example` kept)."""
        return replace(self, train=train.reset_index(drop=True))


@dataclass(frozen=True)
class NamedTask:
    """A task that is known by its name: a built-in one, or one that a package brings.

    Attributes:
        name: What to give as the task.
        category: Its kind, such as 'sentiment'.
        labels: The class names, in order.
        source: Where it comes from, such as 'built-in'.
        load: Makes the task, before it is reduced and noise is added.
        train_size: Training examples (for a built-in task: without a limit), if known.
        note: Licence, or what else to mind.
        description: What is to be told apart.
        downloaded: Its data come from the hub, or from a local copy below `data_dir`.
    """

    name: str
    category: str
    labels: tuple[str, ...]
    source: str
    load: Callable[[Data], Task]
    train_size: int | None = None
    note: str = ""
    description: str = ""
    downloaded: bool = False

    @property
    def classes(self) -> int:
        """How many."""
        return len(self.labels)

    def facts(self) -> dict[str, str | int | None]:
        """What there is to say about it, as plain data."""
        names = ("name", "category", "classes", "source", "train_size", "note", "description")
        return {name: getattr(self, name) for name in names}
