"""Labelled examples from a user's own file: which columns, which classes, which validation set."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memloc.config import DataConfig
from memloc.data.columns import choose_columns
from memloc.data.subset import LEAST_PER_CLASS, allocate
from memloc.data.tables import read_table
from memloc.data.task import Task, input_columns
from memloc.errors import DataError, suggest

__all__ = ["as_labels", "as_texts", "label_ids", "load_file", "read_labelled_file", "read_table"]

SPLIT_SEED = 1
"""Seed of every split memloc makes: the data seed only decides who is noisy and who is kept."""

VALIDATION_SHARE = 0.2

LABEL_NAME_COLUMN = "label_name"

_INTEGER = re.compile(r"[+-]?\d+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_INTEGER_AS_FLOAT = re.compile(r"([+-]?\d+)(\.0+)?")


def read_labelled_file(
    path: Path | str,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    original_label_column: str | None = None,
) -> pd.DataFrame:
    """Read labelled examples from a file and check every one of them.

    Columns that are not given are guessed from their names.

    Args:
        path: A file that `read_table` reads.
        text_column: The column with the text.
        pair_column: The column with the second text of a pair.
        label_column: The column with the label.
        original_label_column: The column with the correct label, where that is known.

    Returns:
        A table with `example` (the row in the file, from 0), `text`, `label` (the value in the
        file as a string) and, where the file has them, `text_pair`, `original_label` (likewise) and
        `label_name` (a name for each integer label).

    Raises:
        DataError: If the file cannot be read, a column is absent or an example is unusable.
    """
    path = Path(path)
    return labelled_examples(
        read_table(path), path, text_column, pair_column, label_column, original_label_column
    )


def labelled_examples(
    table: pd.DataFrame,
    path: Path | str,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    original_label_column: str | None = None,
    *,
    numbers: bool = False,
) -> pd.DataFrame:
    """The same from a table with cells as `read_table` leaves them; `path` says where it is from.

    With `numbers`, labels that are whole numbers stay numbers, for models that number their
    classes; names for them are then of no use.

    Raises:
        DataError: If a column is absent or an example is unusable.
    """
    columns = choose_columns(
        table, path, text_column, pair_column, label_column, original_label_column
    )
    examples = pd.DataFrame({"example": np.arange(len(table), dtype=np.int64)})
    examples["text"] = as_texts(table[columns.text], path)
    if columns.pair is not None:
        examples["text_pair"] = as_texts(table[columns.pair], path)
    label_columns = {"label": columns.label, "original_label": columns.original}
    for role, column in label_columns.items():
        if column is not None:
            labels = as_labels(table[column], path)
            examples[role] = _numbers_kept(table[column], labels) if numbers else labels
    if not numbers and columns.label != LABEL_NAME_COLUMN and LABEL_NAME_COLUMN in table.columns:
        names = table[LABEL_NAME_COLUMN]
        if _names_fit(examples["label"], names):
            examples["label_name"] = [name.strip() for name in names]
    return examples


def load_file(config: DataConfig) -> Task:
    """Load the file `config.task`, with its validation file or a split of 80% and 20%.

    Validation is always by correct labels: where original labels are known, these are taken.
    """
    path = Path(config.task)
    train = read_labelled_file(
        path,
        config.text_column,
        config.pair_column,
        config.label_column,
        config.original_label_column,
    )
    _check_classes(train["label"], path)
    raw, labels = _label_names(train)
    train = _numbered(train, raw, path)
    if config.validation is None:
        train, validation = _split(train, path)
    else:
        validation = _read_validation(config, config.validation, train)
        validation = _numbered(validation, raw, config.validation)
    if "original_label" in validation.columns:
        correct = validation["original_label"]
        validation = validation.assign(label=correct).drop(columns="original_label")
    # Both endings of a compressed file go, dots elsewhere in its name stay.
    name = Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem
    return Task(name, "file", tuple(labels), train, validation)


def label_ids(
    values: Iterable[str], labels: Sequence[str], path: Path | str, what: str = "label"
) -> np.ndarray:
    """The position of each value among `labels`.

    Raises:
        DataError: If a value is none of them; `path` says where it was read, and `what` it is.
    """
    position = {label: i for i, label in enumerate(labels)}
    ids = []
    for row, value in enumerate(values):
        if value not in position:
            raise DataError(
                f"the {what} {value!r} in row {row} of {path} (rows count from 0) is not among "
                f"the labels of the task{suggest(value, labels)}"
            )
        ids.append(position[value])
    return np.array(ids, dtype=np.int64)


def as_texts(cells: pd.Series[Any], path: Path | str) -> list[str]:
    """The cells as texts, every one of them checked."""
    for row, cell in enumerate(cells):
        fault = _text_fault(cell)
        if fault:
            raise DataError(
                f"{cells.name!r} in row {row} of {path} (rows count from 0) {fault}; "
                f"give every example a text or remove the row"
            )
    return list(cells)


def _text_fault(cell: Any) -> str | None:
    if cell is None:
        return "is missing"
    if not isinstance(cell, str):
        return f"is {cell!r:.40}, which is not a text"
    if not cell.strip():
        return "is empty"
    if _SURROGATE.search(cell):
        return "holds half a character (a lone surrogate)"
    return None


def as_labels(cells: pd.Series[Any], path: Path | str) -> list[str]:
    """The cells as class names, every one of them checked."""
    labels = [_as_label(cell, row, str(cells.name), path) for row, cell in enumerate(cells)]
    # Integers that passed through a column of floats are integers still.
    matches = [_INTEGER_AS_FLOAT.fullmatch(label) for label in labels]
    if all(matches):
        return [match[1] for match in matches if match]
    return labels


def _numbers_kept(cells: pd.Series[Any], labels: list[str]) -> pd.Series[Any]:
    """The labels, but those that are numbers, not texts, as numbers."""
    kept = [
        int(label) if isinstance(cell, int | float) and not isinstance(cell, bool) else label
        for cell, label in zip(cells, labels, strict=True)
    ]
    return pd.Series(kept, dtype=object)


def _as_label(cell: Any, row: int, column: str, path: Path | str) -> str:
    where = f"{column!r} in row {row} of {path} (rows count from 0)"
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        raise DataError(f"{where} is missing; give every example a label or remove the row")
    if isinstance(cell, str):
        if not cell.strip():
            raise DataError(f"{where} is empty; give every example a label or remove the row")
        if _text_fault(cell):
            raise DataError(f"{where} {_text_fault(cell)}; write the label in whole characters")
        return cell.strip()
    if isinstance(cell, int) or (isinstance(cell, float) and cell.is_integer()):
        return str(cell) if isinstance(cell, int) else str(int(cell))
    raise DataError(
        f"{where} is {cell!r:.40}, which is not a class; labels are strings, integers or booleans"
    )


def _check_classes(label: pd.Series[str], path: Path) -> None:
    counts = label.value_counts().sort_index()
    if len(counts) < 2:
        raise DataError(
            f"{path} has one class only, {counts.index[0]!r}; classification needs two or more"
        )
    rare = counts[counts < LEAST_PER_CLASS]
    if len(rare):
        others = f" (one of {len(rare)} such classes)" if len(rare) > 1 else ""
        raise DataError(
            f"the class {rare.index[0]!r}{others} has a single example in {path}; add more, remove "
            f"it or name another --label-column, as every class needs {LEAST_PER_CLASS}"
        )


def _names_fit(label: pd.Series[str], names: pd.Series[Any]) -> bool:
    if any(_text_fault(name) for name in names):
        return False
    if not all(_INTEGER.fullmatch(value) for value in label):
        return False
    pairs = {(value, name.strip()) for value, name in zip(label, names, strict=True)}
    return len(pairs) == len({value for value, _ in pairs}) == len({name for _, name in pairs})


def _label_names(train: pd.DataFrame) -> tuple[list[str], list[str]]:
    """The labels as they stand in the file, in a stable order, and what to call them."""
    values = set(train["label"])
    integers = all(_INTEGER.fullmatch(value) for value in values)
    raw = sorted(values, key=lambda value: (int(value), value)) if integers else sorted(values)
    if LABEL_NAME_COLUMN not in train.columns:
        return raw, raw
    names = dict(zip(train["label"], train[LABEL_NAME_COLUMN], strict=True))
    return raw, [names[value] for value in raw]


def _numbered(examples: pd.DataFrame, raw: list[str], path: Path) -> pd.DataFrame:
    """`example`, the input columns, and every label as its position in `raw`."""
    table = examples[["example", *input_columns(examples)]].copy()
    for column in ("label", "original_label"):
        if column in examples.columns:
            table[column] = label_ids(examples[column], raw, path, column.replace("_", " "))
    return table


def _read_validation(config: DataConfig, path: Path, train: pd.DataFrame) -> pd.DataFrame:
    original = config.original_label_column
    if original is not None:
        names = {str(name).lower() for name in read_table(path).columns}
        original = original if original.lower() in names else None
    validation = read_labelled_file(
        path, config.text_column, config.pair_column, config.label_column, original
    )
    if input_columns(validation) != input_columns(train):
        one, other = (path, config.task) if "text_pair" in train else (config.task, path)
        raise DataError(
            f"{one} has one text per example but {other} has two; "
            f"name the second text in both with --pair-column"
        )
    return validation


def _split(table: pd.DataFrame, path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Set a stratified 20% aside, leaving every class at least two examples."""
    label = table["label"].to_numpy()
    random = np.random.default_rng(SPLIT_SEED)
    spare = np.bincount(label)
    wanted = allocate(spare.tolist(), max(1, round(VALIDATION_SHARE * len(table))), 1)
    aside: list[np.ndarray] = []
    for number, size in enumerate(wanted):
        rows = random.permutation(np.flatnonzero(label == number))
        aside.append(rows[: max(0, min(size, len(rows) - LEAST_PER_CLASS))])
    held_out = np.zeros(len(table), dtype=bool)
    held_out[np.concatenate(aside)] = True
    if not held_out.any():
        raise DataError(
            f"{path} has too few examples ({len(table)}) to set some aside for validation; "
            f"add examples or give a file of them with --validation"
        )
    train = table[~held_out].reset_index(drop=True)
    return train, table[held_out].reset_index(drop=True)
