"""Labelled examples from a user's own file: reading it, its columns, classes and validation set.

Cells keep the type the file gives them (a CSV file only has strings), so that the text ``"NA"`` can
be told from a missing one and the label ``1`` from ``1.0``.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import math
import re
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from memloc.config import AUTO, Data
from memloc.data.noise import LEAST_PER_CLASS, allocate, draw
from memloc.data.task import Task, input_columns
from memloc.errors import DataError, nearest
from memloc.text import listed

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
"""Endings of the files that can be read; the text formats may also be compressed (``.gz``)."""
TEXT_COLUMNS = (
    *("text", "sentence", "sentence1", "premise", "question1", "question", "text1", "text_a"),
    *("review", "content", "document", "tweet", "comment", "post", "message", "body"),
    *("utterance", "headline", "title", "query", "input"),
)
PAIR_COLUMNS = {
    "text": "text_pair",
    "sentence1": "sentence2",
    "premise": "hypothesis",
    "question1": "question2",
    "question": "passage",
    "text1": "text2",
    "text_a": "text_b",
}
LABEL_COLUMNS = (
    *("label", "labels", "class", "category", "target", "y", "sentiment", "emotion", "topic"),
    *("intent", "label_name"),
)
ORIGINAL_LABEL_COLUMN = "original_label"
SUGGESTED_LABEL_COLUMN = "suggested_label"
LABEL_NAME_COLUMN = "label_name"
SPLIT_SEED = 1
"""Seed of every split memloc makes: the data seed only decides who is noisy and who is kept."""
VALIDATION_SHARE = 0.2

FLAGS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
"""Files without types have them as texts."""
LARGEST = 10**18
"""Whole numbers from here on are no classes."""
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_INTEGER_AS_FLOAT = re.compile(r"([+-]?\d+)(\.0+)?")


# --- tables --------------------------------------------------------------------------------------


def read_table(path: Path | str) -> pd.DataFrame:
    """Read a CSV, TSV, JSON Lines or Parquet file as it stands; its ending says what it is.

    Returns:
        One row per record, columns of dtype object, absent cells ``None``.

    Raises:
        DataError: If the file is absent, malformed, empty or of another kind.
    """
    path = Path(path)
    suffix = data_suffix(path)
    if path.is_dir():
        raise DataError(
            f"{path} is a folder", remedy=f"name one file in it, such as {path / 'train.csv'}"
        )
    if path.is_symlink() and not path.exists():
        raise DataError(f"{path} is a link to a file that does not exist", remedy="check the link")
    if not path.is_file():
        raise DataError(f"there is no file {path}", remedy="check the path")
    if not path.stat().st_size:
        raise DataError(f"{path} is empty", remedy="it needs a text and a label per example")
    if suffix not in SUFFIXES:
        raise DataError(
            f"{path} has an ending memloc does not read",
            remedy=f"save it as one of: {', '.join(SUFFIXES)}",
        )
    try:
        if suffix == ".parquet":
            remedy = "write it again"
            # Python values rather than pandas': integers beside missing ones would become floats.
            columns = pq.ParquetFile(path).read().to_pydict()
            table = pd.DataFrame(columns, dtype=object)
        elif suffix in (".csv", ".tsv"):
            remedy = (
                "write the names of the columns in the first line, put quotation marks around "
                'texts, and write "" for one inside a text'
            )
            table = _read_csv(_read_text(path), "\t" if suffix == ".tsv" else ",")
        else:
            remedy = 'write one object per line, such as {"text": "…", "label": "…"}'
            table = _read_json(_read_text(path))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error})", remedy="save it as UTF-8") from None
    except (OSError, EOFError, zlib.error, ValueError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} cannot be read ({reason})", remedy=remedy) from None
    if table.empty:
        raise DataError(f"{path} has no rows; add at least two examples of every class")
    return table


def data_suffix(path: Path) -> str:
    """The ending that tells the format, in lower case, ignoring a final ``.gz``."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def _read_text(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix.lower() == ".gz":
        content = gzip.decompress(content)
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return content.decode("utf-16" if content.startswith(marks) else "utf-8-sig")


def _read_csv(text: str, separator: str) -> pd.DataFrame:
    header = re.sub('"[^"]*"', "", text.lstrip().partition("\n")[0])
    # A file may have another separator than its ending says: the one that its header has most of.
    separator = max((separator, *",\t;|"), key=header.count)
    try:
        table = pd.read_csv(io.StringIO(text), sep=separator, dtype=object, na_filter=False)
        if not isinstance(table.index, pd.RangeIndex):  # pandas took the first field for a name
            raise ValueError("rows have more fields than the header")
    except ValueError as error:
        name = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}[separator]
        raise ValueError(f"by its header, fields are separated by {name}: {error}") from None
    return table.rename(columns=str.strip)


def _read_json(text: str) -> pd.DataFrame:
    if text.lstrip().startswith("["):
        records = dict(enumerate(json.loads(text)))
    else:
        records = {}
        # Not `splitlines`: JSON strings may hold other line separators, such as U+2028.
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                try:
                    records[number] = json.loads(line)
                except json.JSONDecodeError as error:
                    raise ValueError(f"broken JSON in line {number}: {error.msg}") from None
    for number, record in records.items():
        if not isinstance(record, dict):
            raise ValueError(f"record {number} is {record!r:.40}, not an object")
    table = pd.DataFrame(list(records.values()), dtype=object)
    return table.where(table.notna(), None)


# --- columns -------------------------------------------------------------------------------------


def choose_columns(table: pd.DataFrame, path: Path | str, **wanted: str | None) -> dict[str, str]:
    """Find the columns that are named, and guess the others, whatever their case.

    Args:
        table: The table.
        path: Where it is from.
        wanted: The column of each role (text, pair, label, original_label), or None.

    Returns:
        The column of each role that the file has.

    Raises:
        DataError: If a column is absent, cannot be guessed, or would serve twice.
    """
    names = [str(name) for name in table.columns]
    lowered = {name.lower(): name for name in reversed(names)}
    columns = f"columns: {', '.join(names)}"
    chosen: dict[str, str] = {}
    for role, name in wanted.items():
        if name is not None:
            if name not in names and str(name).lower() not in lowered:
                raise DataError(
                    f"{path} has no column {name!r} ({columns})",
                    setting="data.suspects" if role == "suspects" else f"data.{role}_column",
                    remedy=nearest(str(name), names),
                )
            chosen[role] = name if name in names else lowered[str(name).lower()]
    for role, usual in {"text": TEXT_COLUMNS, "label": LABEL_COLUMNS}.items():
        known = [name for name in usual if name in lowered]
        if role not in chosen and not known:
            raise DataError(
                f"{path} has no column that looks like the {role} ({columns})",
                setting=f"data.{role}_column",
                remedy="say which it is",
            )
        if role not in chosen:
            chosen[role] = lowered[known[0]]
    suspected = wanted.get("suspects") is not None  # then nobody knows the correct labels
    guesses = {"original_label": SUGGESTED_LABEL_COLUMN if suspected else ORIGINAL_LABEL_COLUMN}
    if wanted.get("text") is None:  # who names the text without its partner means the text alone
        guesses["pair"] = PAIR_COLUMNS.get(chosen["text"].lower(), "")
    for role, name in guesses.items():
        if role not in chosen and name in lowered and lowered[name] != chosen["label"]:
            chosen[role] = lowered[name]
    roles = {column: role for role, column in chosen.items()}
    for role, column in chosen.items():
        if roles[column] != role:
            raise DataError(
                f"the column {column!r} of {path} cannot be both the {role} and the "
                f"{roles[column]}".replace("_", " "),
                setting="data.suspects" if role == "suspects" else f"data.{role}_column",
                remedy="name another column",
            )
    return chosen


# --- examples ------------------------------------------------------------------------------------


def labelled_examples(
    table: pd.DataFrame,
    path: Path | str,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    original_label_column: str | None = None,
    suspects: str | None = None,
    *,
    numbers: bool = False,
) -> pd.DataFrame:
    """Labelled examples from a table with cells as `read_table` leaves them, every one checked.

    Args:
        table: The table.
        path: Where it is from.
        text_column: The column with the text; this and others are guessed if they are not given.
        pair_column: The column with the second text of a pair.
        label_column: The column with the label.
        original_label_column: The column with the correct label, where that is known.
        suspects: The column that marks labels which may be wrong. The column with the correct
            label, if it is named too, or one with suggested labels then says what they may be.
        numbers: Leave labels that are whole numbers as they are, for models that number their
            classes; names for them are then of no use.

    Returns:
        A table with `example` (the row, from 0), `text`, `label` (as a string) and, where there are
        such columns, `text_pair`, `original_label`, `noisy` (suspects) and `label_name` (a name for
        each integer).

    Raises:
        DataError: If a column is absent or an example is unusable.
    """
    columns = choose_columns(
        table,
        path,
        text=text_column,
        pair=pair_column,
        label=label_column,
        original_label=original_label_column,
        suspects=suspects,
    )
    examples = pd.DataFrame({"example": np.arange(len(table), dtype=np.int64)})
    for role, name in {"text": "text", "pair": "text_pair"}.items():
        if role in columns:
            examples[name] = as_texts(table[columns[role]], path)
    flags = None
    if "suspects" in columns:
        flags = as_flags(table[columns["suspects"]].tolist(), columns["suspects"])
        examples["noisy"] = flags
    for role in ("label", "original_label"):
        if role in columns:
            cells = table[columns[role]]
            if role == "original_label" and flags is not None:
                # Suggestions for labels that nobody suspects do not count, and may be missing.
                cells = cells.where(flags, table[columns["label"]])
            labels = as_labels(cells, path)
            examples[role] = _numbers_kept(cells, labels) if numbers else labels
    if not numbers and columns["label"] != LABEL_NAME_COLUMN and LABEL_NAME_COLUMN in table:
        names = table[LABEL_NAME_COLUMN]
        if _names_fit(examples["label"], names):
            examples["label_name"] = [name.strip() for name in names]
    return examples


def as_texts(cells: pd.Series[Any], path: Path | str, what: str = "text") -> list[str]:
    """The cells as texts, every one of them checked.

    Raises:
        DataError: If a cell holds none; `path` says where it was read, and `what` it should be.
    """
    for row, cell in enumerate(cells):
        fault = None
        if cell is None or (isinstance(cell, float) and math.isnan(cell)):
            fault = "is missing"
        elif not isinstance(cell, str):
            fault = f"is {cell!r:.40}, which is not a {what}"
        elif not cell.strip():
            fault = "is empty"
        elif not cell.isascii() and any("\ud800" <= letter <= "\udfff" for letter in cell):
            fault = "holds half a character (a lone surrogate)"
        if fault:
            raise DataError(
                f"{cells.name!r} in row {row} of {path} (rows count from 0) {fault}",
                remedy=f"give every example a {what} or remove the row",
            )
    return list(cells)


def as_labels(cells: pd.Series[Any], path: Path | str) -> list[str]:
    """The cells as class names, every one of them checked: strings, whole numbers, booleans."""

    def name(cell: Any) -> Any:
        if isinstance(cell, float) and cell.is_integer():
            return str(int(cell))
        if isinstance(cell, int) and abs(cell) >= LARGEST:  # Python does not even print them all
            raise DataError(
                f"{cells.name!r} of {path} holds a whole number of more than 18 digits",
                remedy="write labels as texts or as smaller numbers",
            )
        return str(cell) if isinstance(cell, int) else cell

    named = pd.Series([name(cell) for cell in cells], dtype=object, name=cells.name)
    labels = [label.strip() for label in as_texts(named, path, "class")]
    # Integers that passed through a column of floats are integers still.
    matches = [_INTEGER_AS_FLOAT.fullmatch(label) for label in labels]
    return [match[1] for match in matches if match] if all(matches) else labels


def as_flags(cells: Sequence[Any], what: str) -> np.ndarray:
    """Cells that say yes or no, as booleans.

    Raises:
        DataError: If one says neither, or all say the same; `what` is what to call them.
    """
    flags = [FLAGS.get(str(cell).lower()) for cell in cells]
    if None in flags:
        row = flags.index(None)
        raise DataError(
            f"{what} is {cells[row]!r:.40} in row {row} (rows count from 0); give True or False "
            "for every example"
        )
    if len(set(flags)) == 1:
        raise DataError(
            f"{what} is {flags[0]} for all {len(flags)} examples; mark the labels that may be "
            "wrong with True, and all others with False"
        )
    return np.array(flags, dtype=bool)


def _numbers_kept(cells: pd.Series[Any], labels: list[str]) -> pd.Series[Any]:
    """The labels, but those that are numbers, not texts, as numbers."""
    kept = [
        int(label) if isinstance(cell, int | float) and not isinstance(cell, bool) else label
        for cell, label in zip(cells, labels, strict=True)
    ]
    return pd.Series(kept, dtype=object)


def _names_fit(label: pd.Series[str], names: pd.Series[Any]) -> bool:
    """Whether there is one name for every integer label, and one label for every name."""
    if not all(isinstance(name, str) and name.strip() for name in names):
        return False
    pairs = {(value, name.strip()) for value, name in zip(label, names, strict=True)}
    values, called = zip(*pairs, strict=True)
    return all(map(_INTEGER.fullmatch, values)) and (
        len(pairs) == len(set(values)) == len(set(called))
    )


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
                "the labels of the task",
                remedy=nearest(value, labels),
            )
        ids.append(position[value])
    return np.array(ids, dtype=np.int64)


# --- tasks ---------------------------------------------------------------------------------------


def load_file(config: Data, hold_out: bool = True) -> Task:
    """Load the file `config.task`, with its validation file or a split of 80% and 20%.

    Without `hold_out` it is not split.

    Validation is always by correct labels: where original labels are known, these are taken, and
    suspects are left out.
    """
    path = Path(config.task)
    columns = (config.text_column, config.pair_column, config.label_column)
    suspects = None if config.suspects == AUTO else config.suspects
    original = config.original_label_column
    train = labelled_examples(read_table(path), path, *columns, original, suspects)
    _check_classes(train["label"], path)
    values = set(train["label"])
    integers = all(map(_INTEGER.fullmatch, values))
    raw = sorted(values, key=lambda value: (int(value), value)) if integers else sorted(values)
    names = dict(zip(train["label"], train.get(LABEL_NAME_COLUMN, train["label"]), strict=True))
    train = _numbered(train, raw, path)
    if config.validation is None:
        train, validation = _split(train, path) if hold_out else (train, train.iloc[:0])
    else:
        table = read_table(config.validation)
        if original is not None and original.lower() not in map(str.lower, table.columns):
            original = None
        if suspects in table:
            table = table[[not FLAGS.get(str(cell).lower()) for cell in table[suspects]]]
        validation = labelled_examples(table, config.validation, *columns, original)
        validation = _numbered(validation, raw, config.validation)
        if input_columns(validation) != input_columns(train):
            raise DataError(
                f"only one of {path} and {config.validation} has two texts per example",
                setting="data.pair_column",
                remedy="name the second text in both",
            )
    if "noisy" in validation.columns:
        validation = validation[~validation["noisy"]].drop(columns="noisy").reset_index(drop=True)
        validation = validation.drop(columns="original_label", errors="ignore")
    if "original_label" in validation.columns:
        correct = validation["original_label"]
        validation = validation.assign(label=correct).drop(columns="original_label")
    # Both endings of a compressed file go, dots elsewhere in its name stay.
    name = Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem
    labels = tuple(names[value] for value in raw)
    return Task(name, "file", labels, train, validation, notes=_look_alikes(labels, path))


def _look_alikes(labels: Sequence[str], path: Path) -> tuple[str, ...]:
    """A sentence if classes differ only in case, in leading zeros or in how letters are encoded."""
    alike: dict[str, list[str]] = {}
    for label in labels:
        plain = unicodedata.normalize("NFKC", label).casefold()
        alike.setdefault(plain.lstrip("0") or "0" if plain.isdecimal() else plain, []).append(label)
    pairs = [
        f"{one!a} and {other!a}"
        for one, other, *_ in (found for found in alike.values() if len(found) > 1)
    ]
    if not pairs:
        return ()
    return (
        f"{path} has labels that look alike and count as different classes: {listed(pairs)}; "
        "if they mean the same, write them the same way",
    )


def _check_classes(label: pd.Series[str], path: Path) -> None:
    counts = label.value_counts().sort_index()
    if len(counts) < 2:
        raise DataError(
            f"{path} has one class only, {counts.index[0]!r}; classification needs two or more"
        )
    rare = counts[counts < LEAST_PER_CLASS]
    if len(rare):
        raise DataError(
            f"the class {rare.index[0]!r} has a single example in {path}, and every class needs "
            f"{LEAST_PER_CLASS} (there are {len(rare)} such classes)",
            remedy="add more, remove it or name another column for the labels",
        )


def _numbered(examples: pd.DataFrame, raw: list[str], path: Path) -> pd.DataFrame:
    """`example`, the input columns, and every label as its position in `raw`."""
    table = examples[["example", *input_columns(examples)]].copy()
    for column in ("label", "original_label"):
        if column in examples.columns:
            table[column] = label_ids(examples[column], raw, path, column.replace("_", " "))
    return table.assign(noisy=examples["noisy"]) if "noisy" in examples.columns else table


def _split(table: pd.DataFrame, path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Set a stratified 20% aside, leaving every class at least two examples."""
    label = table["label"].to_numpy()
    counts = np.bincount(label)
    wanted = allocate(counts.tolist(), max(1, round(VALIDATION_SHARE * len(table))), 1)
    sizes = np.clip(np.minimum(wanted, counts - LEAST_PER_CLASS), 0, None)
    held_out = np.isin(
        np.arange(len(table)), draw(label, sizes.tolist(), np.random.default_rng(SPLIT_SEED))
    )
    if not held_out.any():
        raise DataError(
            f"{path} has too few examples ({len(table)}) to set some aside for validation",
            remedy="add examples or give a file of them for validation",
        )
    train = table[~held_out].reset_index(drop=True)
    return train, table[held_out].reset_index(drop=True)
