"""The 12 tasks of Dankers & Titov (2024): `tasks.yaml`, and loading them from files or the hub."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memloc.config import Data
from memloc.data.builtin import packaged
from memloc.data.files import SPLIT_SEED, as_labels, as_texts, label_ids, read_table
from memloc.data.hub import load_splits
from memloc.data.task import INPUT_COLUMNS, NamedTask, Task
from memloc.errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset

TRAIN_SHARE = 0.8
"""Share of the examples for training, where the data set has no split of its own."""


@dataclass(frozen=True)
class PaperTask:
    """Where a task of the paper comes from and how it is made (section 3, table 1).

    Attributes:
        name: What memloc calls it.
        category: One of the paper's four.
        hub: Its name on the hub.
        configuration: Which configuration, if it has several or is `converted`.
        converted: The data set is a loading script; take the hub's Parquet copies of it.
        columns: The column on the hub for each of memloc's input columns.
        label: The column on the hub with the label, as a class name or its number.
        labels: The class names, in order.
        train_size: Training examples in the local copies the table was checked with.
        domain: Where its texts are from.
        licence: The terms of the data, as far as they are stated.
        description: What is to be told apart.
        has_split: Whether the data set itself sets evaluation data apart.
        drop_others: Examples with other labels are left out (instead of being an error).
        topics: If set, the label column holds a list of topics; keep the documents with a single
            topic that is among this many most frequent ones, and of repeated texts the first.
    """

    name: str
    category: str
    hub: str
    columns: dict[str, str]
    label: str
    labels: tuple[str, ...]
    train_size: int
    domain: str
    licence: str
    description: str
    configuration: str | None = None
    converted: bool = False
    has_split: bool = True
    drop_others: bool = False
    topics: int | None = None


def _read_tasks() -> dict[str, PaperTask]:
    rows = packaged("memloc.paper", "tasks")
    return {
        name: PaperTask(name, **row | {"labels": tuple(row["labels"])})
        for name, row in rows.items()
    }


PAPER_TASKS = _read_tasks()
"""By name."""


def tasks() -> list[NamedTask]:
    """The paper's tasks, for `memloc.data.load.named_tasks`."""

    def load(config: Data) -> Task:
        return load_paper(PAPER_TASKS[config.task], config.data_dir)

    return [
        NamedTask(
            name=row.name,
            category=row.category,
            labels=row.labels,
            source="paper",
            load=load,
            train_size=row.train_size,
            note=row.licence,
            description=row.description,
            downloaded=True,
        )
        for row in PAPER_TASKS.values()
    ]


def load_paper(row: PaperTask, data_dir: Path | None = None) -> Task:
    """Load a task of the paper, its labels as they were published.

    Of the evaluation data (`validation`, or `test` if there is none) a random half is kept, as in
    the paper, which tests on the other half. The data are from the hub, or from a folder with
    ``<task>/{train,validation,test}.jsonl``.

    Raises:
        DataError: If the data cannot be found or are not what they should be.
    """
    if data_dir is not None:
        labels = row.labels
        train, evaluation = _from_folder(row, data_dir)
    else:
        labels, train, evaluation = _from_hub(row)
    random = np.random.default_rng(SPLIT_SEED)
    half = np.sort(random.permutation(len(evaluation))[: max(1, len(evaluation) // 2)])
    validation = evaluation.iloc[half].reset_index(drop=True)
    return Task(row.name, row.category, labels, train, validation)


def _from_folder(row: PaperTask, data_dir: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    folder = data_dir / row.name
    train = folder / "train.jsonl"
    candidates = [folder / "validation.jsonl", folder / "test.jsonl"]
    for path in (data_dir, folder):
        if not path.is_dir():
            raise DataError(
                f"there is no folder {path}",
                setting="data.data_dir",
                remedy=f"give one that holds {row.name}/train.jsonl",
            )
    evaluation = next((path for path in candidates if path.is_file()), None)
    if evaluation is None:
        raise DataError(f"there is neither {candidates[0]} nor {candidates[1]}; add one of them")
    return _read_local(row, train), _read_local(row, evaluation)


def _read_local(row: PaperTask, path: Path) -> pd.DataFrame:
    source = read_table(path)
    wanted = [name for name in INPUT_COLUMNS if name in row.columns]
    absent = [name for name in [*wanted, "label_name"] if name not in source.columns]
    if absent:
        raise DataError(f"{path} has no {absent[0]!r}; every line needs {[*wanted, 'label_name']}")
    table = pd.DataFrame({"example": np.arange(len(source), dtype=np.int64)})
    for name in wanted:
        table[name] = as_texts(source[name], path)
    table["label"] = label_ids(as_labels(source["label_name"], path), row.labels, path)
    return table


def _from_hub(row: PaperTask) -> tuple[tuple[str, ...], pd.DataFrame, pd.DataFrame]:
    splits = load_splits(row.hub, row.configuration, row.converted)
    parts = ["train"]
    if row.has_split:
        parts.append("validation" if "validation" in splits else "test")
    absent = [name for name in parts if name not in splits]
    if absent:
        raise DataError(
            f"{row.hub} has no {absent[0]!r} split (but: {', '.join(splits)})",
            setting="data.data_dir",
            remedy="give a folder with a local copy",
        )
    tables = [_read_split(row, splits[name]) for name in parts]
    labels = row.labels
    if row.topics is not None:
        labels = _frequent_topics(tables[0], row.topics)
        tables = [_single_topic(table, labels) for table in tables]
    tables = [_numbered(row, table, labels) for table in tables]
    if not row.has_split:
        tables = _shuffle_and_cut(tables[0])
    return labels, tables[0], tables[1]


def _read_split(row: PaperTask, split: Dataset) -> pd.DataFrame:
    """The columns memloc needs; `label` still holds class names (or lists of topics)."""
    absent = [name for name in [*row.columns.values(), row.label] if name not in split.column_names]
    if absent:
        raise DataError(
            f"{row.hub} has no column {absent[0]!r} (but: {', '.join(split.column_names)})",
            setting="data.data_dir",
            remedy="give a folder with a local copy",
        )
    names = getattr(split.features[row.label], "names", row.labels)
    cells = split[row.label][:]
    table = pd.DataFrame({"example": np.arange(len(cells), dtype=np.int64)})
    for name in INPUT_COLUMNS:
        if name in row.columns:
            table[name] = pd.Series(split[row.columns[name]][:], dtype=object)
    table["label"] = pd.Series([_class_name(cell, names) for cell in cells], dtype=object)
    return table


def _class_name(cell: Any, names: Sequence[str]) -> Any:
    if isinstance(cell, bool):
        return str(cell)
    if isinstance(cell, int):
        return names[cell] if 0 <= cell < len(names) else str(cell)
    return cell


def _frequent_topics(train: pd.DataFrame, n: int) -> tuple[str, ...]:
    counts = Counter(topics[0] for topics in train["label"] if len(topics) == 1)
    by_frequency = sorted(counts, key=lambda topic: (-counts[topic], topic))
    return tuple(sorted(by_frequency[:n]))


def _single_topic(table: pd.DataFrame, topics: tuple[str, ...]) -> pd.DataFrame:
    fits = np.array([len(cell) == 1 and cell[0] in topics for cell in table["label"]], dtype=bool)
    # Some articles have a title only, and so no text.
    has_text = np.array([bool(text and text.strip()) for text in table["text"]], dtype=bool)
    first = ~table["text"].duplicated().to_numpy()
    table = table[fits & has_text & first].reset_index(drop=True)
    return table.assign(label=pd.Series([cell[0] for cell in table["label"]], dtype=object))


def _numbered(row: PaperTask, table: pd.DataFrame, labels: tuple[str, ...]) -> pd.DataFrame:
    if row.drop_others:
        table = table[table["label"].isin(labels).to_numpy()].reset_index(drop=True)
    checked = {name: as_texts(table[name], row.hub) for name in INPUT_COLUMNS if name in table}
    return pd.DataFrame(
        {
            "example": table["example"],
            **checked,
            "label": label_ids(as_labels(table["label"], row.hub), labels, row.hub),
        }
    )


def _shuffle_and_cut(table: pd.DataFrame) -> list[pd.DataFrame]:
    order = np.random.default_rng(SPLIT_SEED).permutation(len(table))
    cut = int(TRAIN_SHARE * len(table))
    return [table.iloc[np.sort(part)].reset_index(drop=True) for part in (order[:cut], order[cut:])]
