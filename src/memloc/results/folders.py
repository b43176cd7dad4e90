"""Result folders: writing them, finding them, and reading them back.

A finished run is a folder with `settings.json`, `summary.json` and tables. What other commands
wrote has other settings. Results of `memloc localise`, whose models were given, not trained here,
can be looked at (`find_results`), but are passed over where runs are compared (`find_runs`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

import memloc
from memloc.errors import MemlocError, StoreError
from memloc.tables import ARTEFACTS, REPORT
from memloc.techniques import all_tables

SUMMARY_KEYS = {"model": str, "layers": int, "techniques": dict}
"""What every summary has, and of which type."""
SUMMARY_KEYS_OF_RUNS = {"task": str, **SUMMARY_KEYS}
"""What that of `memloc run` has."""


class ResultsError(MemlocError):
    """Results are missing, damaged, or do not belong together."""


@dataclass(frozen=True)
class ResultFolder:
    """What a command left: settings, a summary and tables.

    Attributes:
        path: The folder.
        settings: What was asked for.
        summary: What was found.
        written: When, in seconds.
        tables: What was found, if it is in memory; otherwise it is read from the folder.
    """

    path: Path
    settings: dict[str, Any]
    summary: dict[str, Any]
    written: float = 0.0
    tables: Mapping[str, pd.DataFrame] | None = field(default=None, repr=False, compare=False)

    command: ClassVar[str] = "run"

    def table(
        self,
        name: str,
        columns: Mapping[str, str] | Sequence[str],
        optional: Sequence[str] = (),
        examples: Sequence[int] | None = None,
    ) -> pd.DataFrame | None:
        """Some columns of a table; None if there is no such table.

        Args:
            name: Of the table.
            columns: Their names; with their types, if they are not to be those of the schema.
            optional: Columns that are left out if they do not exist.
            examples: Only the rows of these examples.

        Raises:
            ResultsError: If the file cannot be read or lacks a column.
        """
        path = self.path / f"{name}.parquet"
        if not self.has(name):
            return None
        if not isinstance(columns, Mapping):
            columns = self.dtypes(name, columns)
        table = self._rows(name, examples)
        there = {c: kind for c, kind in columns.items() if c in table.columns or c not in optional}
        absent = [column for column in there if column not in table.columns]
        if absent:
            raise damaged(path, f"it has no column {absent[0]!r}", self.command)
        try:
            return table[list(there)].astype(there)
        except (TypeError, ValueError) as error:
            raise damaged(path, str(error), self.command) from None

    def dtypes(self, name: str, columns: Sequence[str]) -> dict[str, str]:
        """The declared types of some columns of a table."""
        return all_tables()[name].dtypes(columns, "control" if self.command == "control" else "run")

    def has(self, name: str) -> bool:
        """Whether there is a table of that name."""
        if self.tables is not None:
            return name in self.tables
        return (self.path / f"{name}.parquet").exists()

    def _rows(self, name: str, examples: Sequence[int] | None) -> pd.DataFrame:
        if self.tables is not None:
            table = self.tables[name]
            return table if examples is None else table[table["example"].isin(examples)]
        path = self.path / f"{name}.parquet"
        try:
            chosen = None if examples is None else [("example", "in", list(examples))]
            return pd.read_parquet(path, filters=chosen)
        # Arrow has many kinds of errors, and a file that cannot be read is one case for the user.
        except Exception as error:
            raise damaged(path, str(error), self.command) from None


@dataclass(frozen=True)
class ControlFolder(ResultFolder):
    """One finished control benchmark."""

    command: ClassVar[str] = "control"

    @property
    def whole_layers(self) -> bool:
        """Whether its techniques looked at whole layers, as in the paper."""
        return unit_of(self.settings["control"]) == "layer"


@dataclass(frozen=True)
class RunFolder(ResultFolder):
    """One finished run."""

    @property
    def trained(self) -> bool:
        """Whether it is of `memloc run`, whose tables have a column `seed`."""
        return _of_a_run(self.settings)

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
        classes = self.summary.get("classes")
        return len(classes) if isinstance(classes, list) else 0

    @property
    def n_seeds(self) -> int:
        """Model seeds."""
        return len(self.settings["seeds"])

    @property
    def explained(self) -> bool:
        """Whether noisy examples were followed through the layers."""
        return self.has("events")

    @property
    def has_generalisation(self) -> bool:
        """Whether models of half-splits were trained."""
        return self.has("memorisation_map")


@dataclass(frozen=True)
class Found:
    """What is in a folder of results."""

    runs: tuple[RunFolder, ...]
    unfinished: tuple[Path, ...]
    """Folders with settings but no summary."""
    localised: tuple[Path, ...]
    """Results of `memloc localise`."""
    controls: tuple[ControlFolder, ...]
    """Results of `memloc control`."""
    others: tuple[Path, ...]
    """Settings of something else, which cannot be compared with runs either."""


def unit_of(settings: Mapping[str, Any]) -> str:
    """What of the layers the techniques of a run looked at; older runs know whole layers alone."""
    windows = settings.get("windows")
    return str(windows.get("unit", "layer")) if isinstance(windows, dict) else "layer"


def find_runs(folder: Path) -> Found:
    """All finished runs: the folder itself, or the folders in it.

    Raises:
        ResultsError: If there are none, or if a file is damaged.
    """
    found = look_through(folder)
    if not found.runs:
        raise ResultsError(_nothing(folder, found))
    return found


def find_results(folder: Path) -> tuple[RunFolder, ...]:
    """All finished results, of `memloc run` and of `memloc localise`.

    Raises:
        ResultsError: If there are none, or if a file is damaged.
    """
    found = look_through(folder)
    finished = [path for path in found.localised if (path / "summary.json").is_file()]
    localised = [
        _read_run(path, _read_json(path / "settings.json"), SUMMARY_KEYS) for path in finished
    ]
    if not found.runs and not localised:
        unfinished = (*found.unfinished, *found.localised)
        raise ResultsError(_nothing(folder, replace(found, unfinished=unfinished, localised=())))
    return (*found.runs, *localised)


def look_through(folder: Path) -> Found:
    """All results, perhaps none: the folder itself, or the folders in it.

    Raises:
        ResultsError: If there is no such folder, or if a file is damaged.
    """
    if not folder.exists():
        raise ResultsError(
            f"there is no folder {str(folder)!r}; give the folder with the results of `memloc run`"
        )
    if not folder.is_dir():
        raise ResultsError(
            f"{str(folder)!r} is a file; give the folder with the results of `memloc run`"
        )
    runs, unfinished, localised, controls, others = [], [], [], [], []
    for place in _places(folder):
        settings = _read_json(place / "settings.json")
        if _of_localise(settings):
            localised.append(place)
        elif isinstance(settings.get("control"), dict):
            summary = place / "summary.json"
            if summary.is_file():
                found, written = _read_summary(summary), summary.stat().st_mtime
                controls.append(ControlFolder(place, settings, found, written))
            else:
                unfinished.append(place)
        elif not _of_a_run(settings):
            others.append(place)
        elif not (place / "summary.json").is_file():
            unfinished.append(place)
        else:
            runs.append(_read_run(place, settings, SUMMARY_KEYS_OF_RUNS))
    return Found(tuple(runs), tuple(unfinished), tuple(localised), tuple(controls), tuple(others))


def _places(folder: Path) -> list[Path]:
    if (folder / "settings.json").is_file():
        return [folder]
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    return [path for path in inside if (path / "settings.json").is_file()]


def _of_a_run(settings: dict[str, Any]) -> bool:
    data = settings.get("data")
    one_task = isinstance(data, dict) and isinstance(data.get("task"), str)
    return one_task and isinstance(settings.get("seeds"), list)


def _of_localise(settings: dict[str, Any]) -> bool:
    return "memorised" in settings and "data" in settings


def _read_run(place: Path, settings: dict[str, Any], keys: Mapping[str, type]) -> RunFolder:
    path = place / "summary.json"
    summary = _read_summary(path)
    if "methods" in summary:
        raise ResultsError(
            f"{place} was written by memloc 0.1",
            remedy="run the same command again; trained models are not trained again",
        )
    for key, kind in keys.items():
        if not isinstance(summary.get(key), kind):
            raise damaged(path, f"{key!r} is missing or not what it should be")
    if summary["layers"] < 1 or not all(
        isinstance(m, dict) for m in summary["techniques"].values()
    ):
        raise damaged(path, "it does not describe layers and techniques")
    return RunFolder(place, settings, summary, path.stat().st_mtime)


def _read_summary(path: Path) -> dict[str, Any]:
    """Results of a newer memloc may mean something else; oldest ones do not name theirs.

    Raises:
        ResultsError: If they are newer, or damaged.
    """
    summary = _read_json(path)
    written_by = summary.get("memloc")
    if isinstance(written_by, str) and _numbers(written_by) > _numbers(memloc.__version__):
        raise ResultsError(
            f"{str(path)!r} was written by memloc {written_by[:40]}, which is newer than this one "
            f"({memloc.__version__}); update memloc to read it"
        )
    return summary


def _numbers(version: str) -> list[int]:
    """`1.2.0rc1` as [1, 2, 0]."""
    first = re.match(r"\d+(\.\d+)*", version)
    return [int(part) for part in first[0].split(".")] if first else []


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from None
    if not isinstance(value, dict):
        raise damaged(path, "it is not a JSON object")
    return value


def damaged(path: Path, reason: str, command: str = "run") -> ResultsError:
    """The error for a file that is not what it should be."""
    first = reason.strip().splitlines()[0][:150] if reason.strip() else "no reason given"
    return ResultsError(
        f"{str(path)!r} cannot be read ({first}); move its folder away, or compute it again with "
        f"`memloc {command}`"
    )


def _nothing(folder: Path, found: Found) -> str:
    kinds = {
        "unfinished": found.unfinished,
        "of `memloc localise`, whose models were not trained here": found.localised,
        "of `memloc control`": found.controls,
        "of other commands": found.others,
    }
    others = [f"{len(folders)} {words}" for words, folders in kinds.items() if folders]
    there = f" (only {' and '.join(others)})" if others else ""
    return (
        f"no finished run in {str(folder)!r}{there}; compute some with `memloc run`, or give the "
        "folder that holds their results"
    )


def write_results(
    folder: Path,
    tables: dict[str, pd.DataFrame],
    summary: dict[str, Any],
    settings: dict[str, Any],
    artefacts: Sequence[tuple[str, str]] | None = None,
) -> None:
    """Write the tables, `summary.json` and `settings.json`; old files stay if anything fails.

    A report of what was there before is removed.

    Args:
        folder: Where to.
        tables: By name.
        summary: What was found.
        settings: What was asked for.
        artefacts: What the result was made from (kinds and keys), if it is in a store.

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
        for file in sorted(aside.iterdir()):
            os.replace(file, folder / file.name)
        # What another call left here would pass for a result of this one.
        for name in set(all_tables()) - set(tables):
            (folder / f"{name}.parquet").unlink(missing_ok=True)
        if artefacts is None:
            (folder / ARTEFACTS).unlink(missing_ok=True)
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
