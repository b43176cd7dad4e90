"""Result folders: writing them, finding them, and reading them back.

A finished run is a folder with `settings.json`, `summary.json` and tables. Results of `memloc
localise`, whose models were given, not trained here, can be looked at, but are passed over where
runs are compared.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import pandas as pd
from pyarrow.parquet import read_schema

import memloc
from memloc.engine.store.admin import changed_file
from memloc.engine.store.store import sha256_of
from memloc.errors import MemlocError, StoreError
from memloc.tables import ARTEFACTS, CHECKSUMS, REPORT, Column, Experiment
from memloc.techniques import Technique, all_tables, classes
from memloc.text import listed, parse_json

FOUND = {
    "layers": ("technique", "weight"),
    "accuracy": ("technique", "accuracy"),
    "events": ("event", "layer"),
}
"""What techniques and explanations found: the table, the column that says who, and the value."""

MOST_LAYERS = 10_000
"""No model is that deep."""


class ResultsError(MemlocError):
    """Results are missing, damaged, or do not belong together."""


@dataclass(frozen=True)
class RunFolder:
    """What a command left: settings, a summary and tables.

    Attributes:
        path: The folder.
        settings: What was asked for.
        summary: What was found; empty if the command did not finish.
        written: When, in seconds.
        tables: What was found, if it is in memory; otherwise it is read from the folder.
    """

    path: Path
    settings: dict[str, Any]
    summary: dict[str, Any]
    written: float = 0.0
    tables: Mapping[str, pd.DataFrame] | None = field(default=None, repr=False, compare=False)

    @property
    def kind(self) -> Experiment | None:
        """The command that wrote it; None if it was none of memloc's."""
        for kind in ("control", "audit"):
            if isinstance(self.settings.get(kind), dict):
                return kind
        if "memorised" in self.settings and "data" in self.settings:
            return "localise"
        data = self.settings.get("data")
        one_task = isinstance(data, dict) and isinstance(data.get("task"), str)
        return "run" if one_task and isinstance(self.settings.get("seeds"), list) else None

    @property
    def trained(self) -> bool:
        """Whether it is of `memloc run`, whose tables have a column `seed`."""
        return self.kind == "run"

    @property
    def n_layers(self) -> int:
        """Depth of the model."""
        return int(self.summary["layers"])

    @property
    def techniques(self) -> tuple[str, ...]:
        """Those with results, whatever was asked for."""
        return tuple(self.summary["techniques"])

    @property
    def n_classes(self) -> int:
        """Classes the model tells apart; 0 if the summary does not say."""
        return len(self.summary.get("classes") or ())

    @property
    def n_seeds(self) -> int:
        """Model seeds."""
        return len(self.settings["seeds"])

    def has(self, name: str) -> bool:
        """Whether there is a table of that name."""
        if self.tables is not None:
            return name in self.tables
        return (self.path / f"{name}.parquet").exists()

    @cached_property
    def outdated(self) -> tuple[type[Technique], ...]:
        """Techniques and explanations of an earlier version, which recorded less than it takes now.

        What they found is read as missing.
        """
        return tuple(
            one
            for one in classes().values()
            if any(
                self.has(table.name) and not self._has_columns(table.name, added)
                for table in one.tables
                if (added := {name for name, column in table.columns.items() if column.added})
            )
        )

    def _has_columns(self, name: str, columns: set[str]) -> bool:
        if self.tables is not None:
            return columns <= set(self.tables[name])
        try:
            return columns <= set(read_schema(self.path / f"{name}.parquet").names)
        except (OSError, ValueError):
            return True  # reading the table says what is wrong with it

    @property
    def outdated_words(self) -> str:
        """A sentence about `outdated`; empty if there are none."""
        if not self.outdated:
            return ""
        names = listed([one.name for one in self.outdated]).capitalize()
        return (
            f"{names} ran with an earlier version, which did not record all that it "
            "takes to trust them, so what they found counts as missing; run again."
        )

    def table(
        self,
        name: str,
        columns: Iterable[str] | None = None,
        examples: Sequence[int] | None = None,
    ) -> pd.DataFrame | None:
        """A table with the types of its schema; None if there is no such table.

        Args:
            name: Of the table.
            columns: Which ones; by default all, those that are optional if they are there.
            examples: Only the rows of these examples.

        Raises:
            ResultsError: If the file cannot be read or lacks a column.
        """
        if not self.has(name):
            return None
        path = self.path / f"{name}.parquet"
        schema = all_tables()[name].columns_in(self.kind or "run")
        chosen = None if examples is None else [("example", "in", list(examples))]
        try:
            if self.tables is None:
                table = pd.read_parquet(path, filters=chosen)
            else:
                table = self.tables[name]
                table = table if examples is None else table[table["example"].isin(examples)]
            if self.outdated:
                table = self._without_outdated(name, table, schema)
            wanted = [c for c in columns or schema if c in table or not schema[c].optional]
            absent = [column for column in wanted if column not in table]
            if absent:
                raise ValueError(f"it has no column {absent[0]!r}")
            return table[wanted].astype({column: schema[column].dtype for column in wanted})
        # Arrow has many kinds of errors, and a file that cannot be read is one case for the user.
        except Exception as error:
            raise damaged(path, str(error), self.kind) from None

    def _without_outdated(
        self, name: str, table: pd.DataFrame, schema: Mapping[str, Column]
    ) -> pd.DataFrame:
        """The table without what `outdated` ones found, and with the columns that they lack."""
        table = table.assign(
            **{
                column: False if about.dtype == "bool" else math.nan
                for column, about in schema.items()
                if about.added and column not in table
            }
        )
        if name in FOUND:
            who, value = FOUND[name]
            names = {name for one in self.outdated for name in (one.name, *one.events)}
            table[value] = table[value].mask(table[who].isin(names))
        return table


def unit_of(settings: Mapping[str, Any]) -> str:
    """What of the layers the techniques of a run looked at."""
    return str((settings.get("windows") or {}).get("unit", "layer"))


def find_results(folder: Path, *kinds: Experiment) -> tuple[RunFolder, ...]:
    """All finished results of these commands: the folder itself, or the folders in it.

    Raises:
        ResultsError: If there are none, or if a file is damaged.
    """
    return need_results(look_through(folder), folder, *kinds)


def need_results(
    found: Sequence[RunFolder], folder: Path, *kinds: Experiment
) -> tuple[RunFolder, ...]:
    """The finished results of these commands, in their order, among those found in a folder.

    Raises:
        ResultsError: If there are none.
    """
    chosen = tuple(r for kind in kinds for r in found if r.summary and r.kind == kind)
    if chosen:
        return chosen
    commands = {
        None: "of something else",
        **{kind: f"of `memloc {kind}`" for kind in get_args(Experiment)},
    }
    others = Counter(commands[one.kind] if one.summary else "unfinished" for one in found)
    there = " and ".join(f"{n} {words}" for words, n in others.items())
    raise ResultsError(
        f"no finished run in {str(folder)!r}{there and f' (only {there})'}; compute some with "
        "`memloc run`, or give the folder that holds their results"
    )


def look_through(folder: Path) -> tuple[RunFolder, ...]:
    """All results, finished or not, perhaps none: the folder itself, or the folders in it.

    Raises:
        ResultsError: If there is no such folder, or if a file is damaged.
    """
    if not folder.is_dir():
        name = str(folder)
        problem = f"{name!r} is a file" if folder.exists() else f"there is no folder {name!r}"
        raise ResultsError(f"{problem}; give the folder with the results of `memloc run`")
    places = [folder]
    if not (folder / "settings.json").is_file():
        places = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    return tuple(_read(place) for place in places if (place / "settings.json").is_file())


def _read(place: Path) -> RunFolder:
    path, settings = place / "summary.json", _read_json(place / "settings.json")
    if not path.is_file():
        return RunFolder(place, settings, {})
    found = RunFolder(place, settings, _read_json(path), path.stat().st_mtime)
    written_by = str(found.summary.get("memloc", ""))[:40]
    if _numbers(written_by) > _numbers(memloc.__version__):
        raise ResultsError(
            f"{str(path)!r} was written by memloc {written_by}, which is newer than this one "
            f"({memloc.__version__}); update memloc to read it"
        )
    if found.kind in ("run", "localise"):
        needed = {"model": str, "layers": int, "techniques": dict}
        if found.summary.get("layers", 1) not in range(1, MOST_LAYERS):
            raise damaged(path, "'layers' is not the depth of a model", found.kind)
        for key, kind in (needed | ({"task": str} if found.trained else {})).items():
            if not isinstance(found.summary.get(key), kind):
                raise damaged(path, f"{key!r} is missing or not what it should be", found.kind)
    return found


def _numbers(version: str) -> list[int]:
    """`1.2.0` as [1, 2, 0]."""
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from None
    if not isinstance(value, dict):
        raise damaged(path, "it is not a JSON object")
    return value


def check_files(folder: Path) -> None:
    """All files of a result are as they were written.

    Raises:
        ResultsError: If one has changed since.
    """
    try:
        changed = changed_file(folder)
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(folder / CHECKSUMS, str(error)) from None
    if changed is not None:
        raise damaged(changed, "it differs from its checksum")


def damaged(path: Path, reason: str, command: str | None = None) -> ResultsError:
    """The error for a file that is not what it should be."""
    first = (reason.strip() or "no reason given").splitlines()[0][:150]
    return ResultsError(
        f"{str(path)!r} cannot be read ({first}); move its folder away, or compute it again with "
        f"`memloc {command or 'run'}`"
    )


def write_results(
    folder: Path,
    tables: dict[str, pd.DataFrame],
    summary: dict[str, Any],
    settings: dict[str, Any],
    artefacts: Sequence[tuple[str, str]] | None = None,
    page_follows: bool = False,
) -> None:
    """Write the tables, `summary.json` and `settings.json`; old files stay if anything fails.

    A report of what was there before is removed.

    Args:
        folder: Where to.
        tables: By name.
        summary: What was found.
        settings: What was asked for.
        artefacts: What the result was made from (kinds and keys), if it is in a store.
        page_follows: Whether the caller writes the report next. It is not removed then, as a
            browser that shows it could not load it again.

    Raises:
        StoreError: If the folder cannot be written.
    """
    texts = {
        f"{name}.json": json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
        for name, value in {"summary": summary, "settings": settings}.items()
    }
    if artefacts is not None:
        texts[ARTEFACTS] = json.dumps(list(artefacts), indent=0)
    aside = folder / f".writing-{uuid.uuid4().hex[:6]}"
    try:
        aside.mkdir(parents=True)
        for name, table in tables.items():
            table.to_parquet(aside / f"{name}.parquet", index=False)
        for name, text in texts.items():
            (aside / name).write_text(text, encoding="utf-8", errors="backslashreplace")
        checksums = {file.name: sha256_of(file) for file in sorted(aside.iterdir())}
        (aside / CHECKSUMS).write_text(json.dumps(checksums, indent=0), encoding="utf-8")
        for file in sorted(aside.iterdir()):
            os.replace(file, folder / file.name)
        # What another call left here would pass for a result of this one.
        for name in set(all_tables()) - set(tables):
            (folder / f"{name}.parquet").unlink(missing_ok=True)
        if artefacts is None:
            (folder / ARTEFACTS).unlink(missing_ok=True)
        if not page_follows:
            (folder / REPORT).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot write results to {str(folder)!r}: {error.strerror or error}; "
            "free some space or choose another folder"
        ) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_folder(folder: Path) -> None:
    """Fail before any work if results could not be written to `folder`.

    Raises:
        StoreError: If it is a file, or cannot be created or written.
    """
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{str(folder)!r} is a file; give a folder for the results")
    parent = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise StoreError(f"cannot write to {str(parent)!r}; choose another folder")
