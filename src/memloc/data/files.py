"""Labelled examples from a user's own file: reading it, its columns, classes and validation set.

Cells keep the type the file gives them (a CSV file only has strings), so that the text ``"NA"`` can
be told from a missing one and the label ``1`` from ``1.0``. Every way in which a file can be broken
is one sentence that says where.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import gzip
import io
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from memloc.config import Data
from memloc.data.noise import LEAST_PER_CLASS, allocate
from memloc.data.task import Task, input_columns
from memloc.errors import DataError, nearest

SEPARATED = (".csv", ".tsv")
SUFFIXES = (*SEPARATED, ".jsonl", ".ndjson", ".json", ".parquet")
"""Endings of the files that can be read; the text formats may also be compressed (``.gz``)."""
SEPARATORS = ",\t;|"
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
LABEL_NAME_COLUMN = "label_name"

JSON_EXAMPLE = 'write one object per line, such as {"text": "…", "label": "…"}'

SPLIT_SEED = 1
"""Seed of every split memloc makes: the data seed only decides who is noisy and who is kept."""
VALIDATION_SHARE = 0.2

_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_INTEGER = re.compile(r"[+-]?\d+")
_INTEGER_AS_FLOAT = re.compile(r"([+-]?\d+)(\.0+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")


# --- tables --------------------------------------------------------------------------------------


def read_table(path: Path | str) -> pd.DataFrame:
    """Read a CSV, TSV, JSON Lines or Parquet file as it stands.

    Args:
        path: The file; its ending says what it is.

    Returns:
        One row per record, columns of dtype object, absent cells ``None``.

    Raises:
        DataError: If the file is absent, malformed, empty or of another kind.
    """
    path = Path(path)
    suffix = data_suffix(path)
    _check_is_file(path)
    if suffix not in SUFFIXES or (suffix == ".parquet" and path.suffix.lower() == ".gz"):
        raise DataError(
            f"{path} has an ending memloc does not read",
            remedy=f"save it as one of: {', '.join(SUFFIXES)}",
        )
    if suffix == ".parquet":
        table = _read_parquet(path)
    elif suffix in SEPARATED:
        table = _read_csv(_read_text(path), path, "\t" if suffix == ".tsv" else ",")
    else:
        table = _read_json(_read_text(path), path, suffix)
    if table.empty:
        raise DataError(f"{path} has no rows; add at least two examples of every class")
    return table


def data_suffix(path: Path) -> str:
    """The ending that tells the format, in lower case, ignoring a final ``.gz``."""
    endings = [ending.lower() for ending in path.suffixes]
    if endings and endings[-1] == ".gz":
        endings.pop()
    return endings[-1] if endings else ""


def _check_is_file(path: Path) -> None:
    if path.is_dir():
        raise DataError(
            f"{path} is a folder; name one file in it, for example {path / 'train.csv'}"
        )
    if path.is_file():
        return
    if path.exists():
        raise DataError(f"{path} is not a regular file; save its content to one")
    siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    # Only near names: a folder may hold thousands of others, not worth listing.
    near = difflib.get_close_matches(path.name, siblings, n=1, cutoff=0.6)
    remedy = nearest(path.name, near) if near else "check the path"
    raise DataError(f"there is no file {path}", remedy=remedy)


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if path.suffix.lower() == ".gz":
            content = gzip.decompress(content)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataError(f"{path} is not a valid gzip file; compress it again") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"{path} cannot be read ({reason}); check its permissions") from None
    encoding = next((name for bom, name in _BOMS.items() if content.startswith(bom)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(
            f"{path} is not {encoding.removesuffix('-sig').upper()} text (byte "
            f"0x{content[error.start]:02x} at position {error.start}, line {line}); "
            f"save it as UTF-8, for example with: iconv -f latin1 -t utf-8"
        ) from None
    if not text.strip():
        raise DataError(f"{path} is empty; it needs a text and a label per example")
    return text


def _read_csv(text: str, path: Path, separator: str) -> pd.DataFrame:
    header = text.lstrip().splitlines()[0]
    if separator not in header:  # a file with another separator than its ending says
        separator = max(SEPARATORS, key=header.count)
    # The csv module's own limit of 128 KiB per field is too small for whole documents; it is one
    # for all of the program, so it is set back.
    before = csv.field_size_limit(2**31 - 1)
    try:
        (_, first), *rows = _csv_rows(text, path, separator)
    finally:
        csv.field_size_limit(before)
    names = [name.strip() or f"column {i}" for i, name in enumerate(first, start=1)]
    _check_unique(names, path)
    for line, row in rows:
        if len(row) != len(names):
            raise DataError(
                f"{path} has {len(row)} fields in line {line} but {len(names)} in its header",
                remedy=f"put double quotes around texts that contain {separator!r}",
            )
    return _objects({name: [row[i] for _, row in rows] for i, name in enumerate(names)})


def _csv_rows(text: str, path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each record that is not blank with the line on which it starts."""
    # `strict`, as a quotation mark gone astray would silently swallow the rows after it.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    line = 1
    try:
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{path} has a misplaced quotation mark in the record from line {line} on ({error}); "
            f'write "" for a quotation mark inside a quoted text'
        ) from None


def _read_json(text: str, path: Path, suffix: str) -> pd.DataFrame:
    if suffix == ".json" and text.lstrip().startswith("["):
        items = enumerate(_parsed(text, path))
        records = {f"item {number}": item for number, item in items}
    else:
        # Not `splitlines`: JSON strings may hold other line separators, such as U+2028.
        lines = enumerate(text.split("\n"), start=1)
        records = {f"line {n}": _parsed(line, path, n) for n, line in lines if line.strip()}
    for where, record in records.items():
        if not isinstance(record, dict):
            raise DataError(
                f"{path} has {record!r:.40} in {where} instead of an object", remedy=JSON_EXAMPLE
            )
    names = list(dict.fromkeys(name for record in records.values() for name in record))
    return _objects({name: [record.get(name) for record in records.values()] for name in names})


def _parsed(text: str, path: Path, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line, reason = line or error.lineno, error.msg
    except RecursionError:
        line, reason = line or 1, "nested too deeply"
    raise DataError(f"{path} has broken JSON in line {line} ({reason})", remedy=JSON_EXAMPLE)


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        # Not `read_table`, which would take part of the path (``label=1/``) for a column.
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError):
        raise DataError(f"{path} is not a valid Parquet file; write it again") from None
    _check_unique(table.column_names, path)
    # Python values rather than pandas': integers beside missing values would become floats.
    return _objects({name: table.column(name).to_pylist() for name in table.column_names})


def _check_unique(names: list[str], path: Path) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{path} has more than one column {repeated[0]!r}; rename all but one")


def _objects(columns: dict[str, list[Any]]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in columns.items()})


# --- columns -------------------------------------------------------------------------------------


def choose_columns(
    table: pd.DataFrame,
    path: Path | str,
    text: str | None,
    pair: str | None,
    label: str | None,
    original: str | None,
) -> dict[str, str]:
    """Find the columns that are named, and guess the others, whatever their case.

    Returns:
        The column of each role that the file has: text, pair, label, original_label.

    Raises:
        DataError: If a column is absent, cannot be guessed, or would serve twice.
    """
    names = [str(name) for name in table.columns]
    given = {"text": text, "pair": pair, "label": label, "original_label": original}
    chosen = {role: _named(role, wanted, names, path) for role, wanted in given.items()}
    text_name = chosen["text"] or _guessed("text", TEXT_COLUMNS, names, path)
    label_name = chosen["label"] or _guessed("label", LABEL_COLUMNS, names, path)
    chosen |= {"text": text_name, "label": label_name}
    if pair is None and text is None:
        # Who names the text without its partner means the text alone.
        chosen["pair"] = _first(PAIR_COLUMNS.get(text_name.lower(), ""), names)
    if original is None and label_name.lower() != ORIGINAL_LABEL_COLUMN:
        chosen["original_label"] = _first(ORIGINAL_LABEL_COLUMN, names)
    found: dict[str, str] = {}
    for role, name in chosen.items():
        if name is None:
            continue
        if name in found.values():
            other = next(other for other, taken in found.items() if taken == name)
            raise DataError(
                f"the column {name!r} of {path} cannot be both the {_words(other)} and the "
                f"{_words(role)}",
                setting=f"data.{role}_column",
                remedy="name another column",
            )
        found[role] = name
    return found


def _words(role: str) -> str:
    return role.replace("_", " ")


def _named(role: str, wanted: str | None, names: list[str], path: Path | str) -> str | None:
    if wanted is None or wanted in names:
        return wanted
    columns = f"columns: {', '.join(names)}"
    setting = f"data.{role}_column"
    if not isinstance(wanted, str):
        raise DataError(
            f"the name of a column of {path} is a text ({columns})", setting=setting, value=wanted
        )
    same = [name for name in names if name.lower() == wanted.lower()]
    if len(same) == 1:
        return same[0]
    raise DataError(
        f"{path} has no column {wanted!r} ({columns})",
        setting=setting,
        remedy=nearest(wanted, names),
    )


def _first(guess: str, names: list[str]) -> str | None:
    return next((name for name in names if name.lower() == guess), None)


def _guessed(role: str, guesses: Iterable[str], names: list[str], path: Path | str) -> str:
    for guess in guesses:
        if (found := _first(guess, names)) is not None:
            return found
    raise DataError(
        f"{path} has no column that looks like the {role} (columns: {', '.join(names)})",
        setting=f"data.{role}_column",
        remedy="say which it is",
    )


# --- examples ------------------------------------------------------------------------------------


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
    for role, name in {"text": "text", "pair": "text_pair"}.items():
        if role in columns:
            examples[name] = as_texts(table[columns[role]], path)
    for role in ("label", "original_label"):
        if role in columns:
            cells = table[columns[role]]
            labels = as_labels(cells, path)
            examples[role] = _numbers_kept(cells, labels) if numbers else labels
    if not numbers and columns["label"] != LABEL_NAME_COLUMN and LABEL_NAME_COLUMN in table.columns:
        names = table[LABEL_NAME_COLUMN]
        if _names_fit(examples["label"], names):
            examples["label_name"] = [name.strip() for name in names]
    return examples


def load_file(config: Data) -> Task:
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
                "the labels of the task",
                remedy=nearest(value, labels),
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
            f"the class {rare.index[0]!r}{others} has a single example in {path}, and every class "
            f"needs {LEAST_PER_CLASS}",
            remedy="add more, remove it or name another column for the labels",
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


def _read_validation(config: Data, path: Path, train: pd.DataFrame) -> pd.DataFrame:
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
            f"{one} has one text per example but {other} has two",
            setting="data.pair_column",
            remedy="name the second text in both",
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
            f"{path} has too few examples ({len(table)}) to set some aside for validation",
            remedy="add examples or give a file of them for validation",
        )
    train = table[~held_out].reset_index(drop=True)
    return train, table[held_out].reset_index(drop=True)
