"""Labelled examples as Python users have them: data frames, datasets, lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from memloc.data.files import ORIGINAL_LABEL_COLUMN, labelled_examples, read_table
from memloc.errors import DataError, suggest

if TYPE_CHECKING:
    from datasets import Dataset

Rows: TypeAlias = "Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]"
Data: TypeAlias = "pd.DataFrame | Dataset | Rows | str | Path"
"""A data frame, a `datasets.Dataset`, lists by column name, a list of rows, or a file."""
Values: TypeAlias = "str | Sequence[Any] | np.ndarray | pd.Series[Any]"
"""The name of a column, or its values."""


def as_frame(data: Any, what: str = "data") -> pd.DataFrame:
    """Cells as Python objects, and None where there is nothing; as `read_table` reads a file.

    Args:
        data: In any of the forms of `Data`.
        what: What to call it in messages.

    Raises:
        DataError: If it is something else, or has no rows.
    """
    if isinstance(data, str | Path):
        return read_table(data)
    if isinstance(data, pd.DataFrame):
        frame = data
    elif hasattr(data, "to_pandas") and hasattr(data, "column_names"):  # datasets.Dataset
        frame = _named_classes(data)
    elif isinstance(data, Mapping):
        frame = _from_columns(data, what)
    elif isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
        names = dict.fromkeys(name for row in data for name in row)
        # Column by column, as integers beside missing values would become floats.
        frame = pd.DataFrame({name: _cells([row.get(name) for row in data]) for name in names})
    else:
        raise DataError(
            f"{what} is of type {type(data).__name__}; give a pandas.DataFrame, a datasets.Dataset,"
            " a dict of lists, a list of dicts, or the path of a file"
        )
    if not len(frame):
        raise DataError(f"{what} has no rows; give at least two examples of every class")
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise DataError(f"{what} has more than one column {str(repeated[0])!r}; rename all but one")
    return pd.DataFrame({str(name): _cells(frame[name]) for name in frame.columns})


def _from_columns(data: Mapping[str, Any], what: str) -> pd.DataFrame:
    splits = [name for name, column in data.items() if hasattr(column, "column_names")]
    if splits:
        raise DataError(
            f"{what} has several parts ({', '.join(map(str, data))}); give one of them, such as "
            f"{what}[{splits[0]!r}]"
        )
    lengths = {}
    for name, column in data.items():
        if isinstance(column, str) or not hasattr(column, "__len__"):
            raise DataError(f"column {name!r} of {what} is {column!r:.40}; give a list of values")
        lengths[name] = len(column)
    check_lengths(lengths)
    return pd.DataFrame({name: _cells(column) for name, column in data.items()})


def check_lengths(lengths: Mapping[str, int]) -> None:
    """One value per example in every list.

    Raises:
        DataError: Naming the first two that differ.
    """
    first = next(iter(lengths), None)
    for name, length in lengths.items():
        if first is not None and length != lengths[first]:
            raise DataError(
                f"{name!r} has {length} values but {first!r} has {lengths[first]}; give one of "
                "each per example"
            )


def _named_classes(dataset: Any) -> pd.DataFrame:
    """A dataset; names of classes stand beside their numbers."""
    frame: pd.DataFrame = dataset.to_pandas()
    feature = dataset.features.get("label")
    names = getattr(feature, "names", None)
    if names and "label_name" not in frame.columns and frame["label"].between(0, 2**31).all():
        frame = frame.assign(label_name=[names[number] for number in frame["label"]])
    return frame


def _cells(column: Any) -> pd.Series[Any]:
    return pd.Series([_cell(value) for value in column], dtype=object)


def listed(values: Any, role: str) -> list[Any]:
    """Values, one per example.

    Raises:
        DataError: If it is something else.
    """
    if isinstance(values, str | Mapping | pd.DataFrame) or not isinstance(values, Iterable):
        raise DataError(
            f"{role} is of type {type(values).__name__}; give one value per example, such as a "
            "list or a column of a data frame"
        )
    return _cells(values).tolist()


def _cell(value: Any) -> Any:
    if isinstance(value, np.generic) or getattr(value, "numel", lambda: 0)() == 1:  # of torch
        value = value.item()
    missing = pd.isna(value) if pd.api.types.is_scalar(value) else False
    return None if missing else value


def run_table(data: Any, columns: Sequence[str | None], what: str = "task") -> pd.DataFrame:
    """Examples of a task to be trained on, checked, with the usual column names.

    Args:
        data: In any of the forms of `Data`.
        columns: Of text, second text, label and original label; None where it is to be guessed.
        what: What to call the data in messages.

    Raises:
        DataError: If a column is absent or an example is unusable.
    """
    examples = labelled_examples(as_frame(data, what), what, *columns)
    return examples.drop(columns="example")


def _check_order(data: Any, values: Any, role: str) -> None:
    """Values are taken in their order, so an index that says otherwise must not be overlooked.

    Raises:
        DataError: If rows of `values` have other labels than those of `data`.
    """
    both = isinstance(data, pd.DataFrame) and isinstance(values, pd.Series)
    if both and len(data) == len(values) and not data.index.equals(values.index):
        raise DataError(
            f"{role} has another index than data, and its values would be taken in their order; "
            "give a column of data, or .to_numpy() if the order is right"
        )


def given_examples(
    data: Any,
    text: Any,
    pair: Any,
    label: Any,
    original_label: Any,
    suspects: Any,
) -> pd.DataFrame:
    """Examples of a trained model: example, text, text_pair, label, and original_label or noisy.

    Every argument but `data` is the name of a column, or values. Labels are texts or whole numbers.

    Raises:
        DataError: If a column is absent, an example is unusable, or nobody or everybody is
            suspected.
    """
    if suspects is not None and original_label is not None:
        raise DataError(
            "original_label and suspects both say which labels are wrong; give one of them"
        )
    frame = pd.DataFrame() if data is None else as_frame(data)
    if data is not None and isinstance(suspects, str) and suspects not in frame.columns:
        raise DataError(f"data has no column {suspects!r}{suggest(suspects, frame.columns)}")
    lengths = {} if data is None else {"data": len(frame)}
    given = {"text": text, "pair": pair, "label": label, "original_label": original_label}
    columns: dict[str, str | None] = {}
    for role, values in {**given, "suspects": suspects}.items():
        if values is not None and not isinstance(values, str):
            _check_order(data, values, role)
            cells = pd.Series(listed(values, role), dtype=object)
            lengths[role] = len(cells)
            check_lengths(lengths)
            columns[role] = role if role not in frame.columns else f"the given {role}"
            frame[columns[role]] = cells
        elif values is not None and data is None:
            raise DataError(
                f"there is no data to take the column {values!r} from; give data, or the values "
                f"themselves as {role}"
            )
        else:
            columns[role] = values
    if suspects is not None:  # then a column that happens to have this name does not count
        unasked = set(frame.columns) - set(columns.values())
        frame = frame.drop(columns=[c for c in unasked if c.lower() == ORIGINAL_LABEL_COLUMN])
    named = (columns[role] for role in given)
    examples = labelled_examples(frame, "data", *named, numbers=True)
    if suspects is not None:
        examples["noisy"] = _flags(frame[str(columns["suspects"])])
    elif "original_label" not in examples.columns:
        raise DataError(
            "nothing says which labels are wrong; name the column of correct labels with "
            "original_label, or mark labels that may be wrong with suspects"
        )
    return examples


FLAGS = {"true": True, "false": False, "1": True, "0": False}
"""As files without types have them."""


def _flags(cells: pd.Series[Any]) -> np.ndarray:
    cells = cells.map(lambda cell: FLAGS.get(cell.lower(), cell) if isinstance(cell, str) else cell)
    for row, cell in enumerate(cells):
        if cell not in (True, False):  # 1 and 0 are, too
            raise DataError(
                f"suspects is {cell!r:.40} in row {row} (rows count from 0); give True or False for"
                " every example"
            )
    flags = np.array([bool(cell) for cell in cells])
    if not flags.any():
        raise DataError(
            f"suspects is False for all {len(flags)} examples, so there is nothing to localise; "
            "mark the labels that may be wrong with True"
        )
    if flags.all():
        raise DataError(
            f"suspects is True for all {len(flags)} examples; clean ones are needed to compare with"
        )
    return flags
