"""Reading a table from a file: every format memloc takes, and every way in which it can be broken.

Cells keep the type the file gives them (a CSV file only has strings), so that whoever checks the
table can tell the text ``"NA"`` from a missing one and the label ``1`` from ``1.0``.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from memloc.errors import DataError, suggest

SEPARATORS = {".csv": ",", ".tsv": "\t"}
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
SUFFIXES = (*SEPARATORS, *JSON_SUFFIXES, ".parquet")
"""Endings of the files that can be read; the text formats may also be compressed (``.gz``)."""

_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


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
            f"{path} has an ending memloc does not read; save it as one of: {', '.join(SUFFIXES)}"
        )
    if suffix == ".parquet":
        table = _read_parquet(path)
    elif suffix in SEPARATORS:
        table = _read_csv(_read_text(path), path, SEPARATORS[suffix])
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
    hint = suggest(path.name, near) if near else "; check the path"
    raise DataError(f"there is no file {path}{hint}")


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
    # The csv module's own limit of 128 KiB per field is too small for whole documents; it is one
    # for all of the program, so it is set back.
    before = csv.field_size_limit(2**31 - 1)
    try:
        (_, header), *rows = _csv_rows(text, path, separator)
    finally:
        csv.field_size_limit(before)
    names = [name.strip() or f"column {i}" for i, name in enumerate(header, start=1)]
    for other, word in {";": "semicolons", "\t": "tabs", ",": "commas"}.items():
        if len(names) == 1 and other in names[0]:
            ending = "rename it to .tsv" if other == "\t" else "save it with commas"
            raise DataError(
                f"{path} seems to be separated by {word} (its header is {names[0]!r}); {ending}"
            )
    _check_unique(names, path)
    cells: list[list[str]] = []
    for line, row in rows:
        if len(row) != len(names):
            raise DataError(
                f"{path} has {len(row)} fields in line {line} but {len(names)} in its header; "
                f"put double quotes around texts with a {'tab' if separator == chr(9) else 'comma'}"
            )
        cells.append(row)
    return _objects({name: [row[i] for row in cells] for i, name in enumerate(names)})


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
        records = _json_array(text, path)
    else:
        records = _json_lines(text, path)
    names = list(dict.fromkeys(name for record in records for name in record))
    return _objects({name: [record.get(name) for record in records] for name in names})


def _json_lines(text: str, path: Path) -> list[dict[str, Any]]:
    records = []
    # Not `splitlines`: JSON strings may hold other line separators, such as U+2028, as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
            raise DataError(
                f"{path} has broken JSON in line {number} ({reason}); "
                f'write one object per line, such as {{"text": "…", "label": "…"}}'
            ) from None
        records.append(_checked_record(record, f"line {number}", path))
    return records


def _json_array(text: str, path: Path) -> list[dict[str, Any]]:
    try:
        items = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        line = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(f"{path} has broken JSON{line}; repair it or save it as .csv") from None
    return [_checked_record(item, f"item {i}", path) for i, item in enumerate(items)]


def _checked_record(record: Any, where: str, path: Path) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise DataError(
            f"{path} has {_shorten(record)} in {where} instead of an object; "
            f'write one object per line, such as {{"text": "…", "label": "…"}}'
        )
    return record


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


def _shorten(value: Any, width: int = 40) -> str:
    shown = repr(value)
    return shown if len(shown) <= width else shown[: width - 1] + "…"
