"""Finding the results of `memloc run` on disk, and reading them back.

A finished run is a folder with `settings.json`, `summary.json` and tables. What `memloc localise`
wrote has other settings (its models were given, not trained here) and is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from memloc.errors import MemlocError

SUMMARY_KEYS = {"task": str, "model": str, "layers": int, "methods": dict}
"""What every summary has, and of which type."""


class ResultsError(MemlocError):
    """Results are missing, damaged, or do not belong together."""


@dataclass(frozen=True)
class RunFolder:
    """One finished run."""

    path: Path
    settings: dict[str, Any]
    summary: dict[str, Any]
    written: float

    @property
    def n_layers(self) -> int:
        """Depth of the model."""
        return int(self.summary["layers"])

    @property
    def techniques(self) -> tuple[str, ...]:
        """Those with results, whatever was asked for."""
        return tuple(self.summary["methods"])

    @property
    def n_seeds(self) -> int:
        """Model seeds."""
        return len(self.settings["seeds"])

    @property
    def explained(self) -> bool:
        """Whether noisy examples were followed through the layers."""
        return (self.path / "events.parquet").exists()

    @property
    def has_generalisation(self) -> bool:
        """Whether models of half-splits were trained."""
        return (self.path / "memorisation_map.parquet").exists()

    def table(self, name: str, columns: Mapping[str, str]) -> pd.DataFrame | None:
        """The given columns of a table, as the given types; None if the run has no such table.

        Raises:
            ResultsError: If the file cannot be read or lacks a column.
        """
        path = self.path / f"{name}.parquet"
        if not path.exists():
            return None
        try:
            table = pd.read_parquet(path)
        # Arrow has many kinds of errors, and a file that cannot be read is one case for the user.
        except Exception as error:
            raise damaged(path, str(error)) from None
        absent = [column for column in columns if column not in table.columns]
        if absent:
            raise damaged(path, f"it has no column {absent[0]!r}")
        try:
            return table[list(columns)].astype(dict(columns))
        except (TypeError, ValueError) as error:
            raise damaged(path, str(error)) from None


@dataclass(frozen=True)
class Found:
    """What is in a folder of results."""

    runs: tuple[RunFolder, ...]
    unfinished: tuple[Path, ...]
    """Folders with settings but no summary."""
    localised: tuple[Path, ...]
    """Results of `memloc localise`."""


def find_runs(folder: Path) -> Found:
    """All finished runs: the folder itself, or the folders in it.

    Raises:
        ResultsError: If there are none, or if a file is damaged.
    """
    if not folder.exists():
        raise ResultsError(
            f"there is no folder {str(folder)!r}; give the folder with the results of `memloc run`"
        )
    if not folder.is_dir():
        raise ResultsError(
            f"{str(folder)!r} is a file; give the folder with the results of `memloc run`"
        )
    runs, unfinished, localised = [], [], []
    for place in _places(folder):
        settings = _read_json(place / "settings.json")
        if "control" in settings:
            continue  # of `memloc control`, which are about techniques, not about tasks
        if not _of_a_run(settings):
            localised.append(place)
        elif not (place / "summary.json").is_file():
            unfinished.append(place)
        else:
            runs.append(_read_run(place, settings))
    if not runs:
        raise ResultsError(_nothing(folder, len(unfinished), len(localised)))
    return Found(tuple(runs), tuple(unfinished), tuple(localised))


def _places(folder: Path) -> list[Path]:
    if (folder / "settings.json").is_file():
        return [folder]
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    return [path for path in inside if (path / "settings.json").is_file()]


def _of_a_run(settings: dict[str, Any]) -> bool:
    return isinstance(settings.get("data"), dict) and isinstance(settings.get("seeds"), list)


def _read_run(place: Path, settings: dict[str, Any]) -> RunFolder:
    path = place / "summary.json"
    summary = _read_json(path)
    for key, kind in SUMMARY_KEYS.items():
        if not isinstance(summary.get(key), kind):
            raise damaged(path, f"{key!r} is missing or not what it should be")
    if summary["layers"] < 1 or not all(isinstance(m, dict) for m in summary["methods"].values()):
        raise damaged(path, "it does not describe layers and techniques")
    return RunFolder(place, settings, summary, path.stat().st_mtime)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from None
    if not isinstance(value, dict):
        raise damaged(path, "it is not a JSON object")
    return value


def damaged(path: Path, reason: str) -> ResultsError:
    """The error for a file that is not what it should be."""
    first = reason.strip().splitlines()[0][:150] if reason.strip() else "no reason given"
    return ResultsError(
        f"{str(path)!r} cannot be read ({first}); move its folder away, or compute it again with "
        "`memloc run`"
    )


def _nothing(folder: Path, unfinished: int, localised: int) -> str:
    others = []
    if unfinished:
        others.append(f"{unfinished} unfinished")
    if localised:
        others.append(f"{localised} of `memloc localise`, whose models were not trained here")
    there = f" (only {' and '.join(others)})" if others else ""
    return (
        f"no finished run in {str(folder)!r}{there}; compute some with `memloc run`, or give the "
        "folder that holds their results"
    )
