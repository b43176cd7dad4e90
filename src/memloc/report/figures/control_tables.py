"""The results of `memloc control`: techniques where the answer is known (section 3.2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from memloc.analysis.run_folders import damaged

_SETUP = {"model": "object", "task": "object", "hidden": "object", "seed": "int64"}
COLUMNS: dict[str, dict[str, str]] = {
    "accuracy": {
        **_SETUP,
        **{"n_layers": "int64", "technique": "object", "k": "int64"},
        **{"accuracy": "float64", "chance": "float64"},
    },
    "layers": {**_SETUP, "technique": "object", "layer": "int64", "weight": "float64"},
    "gradient_choices": {
        **_SETUP,
        **{"norm": "object", "subtract_clean": "bool", "divide_by_frozen": "bool"},
        **{"k": "int64", "accuracy": "float64"},
    },
    "gradients": {
        **_SETUP,
        **{"state": "object", "gradient": "object", "kind": "object"},
        **{"layer": "int64", "norm": "float64"},
    },
}
"""What is read of each table."""


def read_control(folder: Path) -> Mapping[str, pd.DataFrame]:
    """The tables of all control experiments in a folder, by name; empty if there are none.

    Raises:
        ResultsError: If a table cannot be read or lacks a column.
    """
    parts: dict[str, list[pd.DataFrame]] = {}
    for place in _places(folder):
        for name, columns in COLUMNS.items():
            path = place / f"{name}.parquet"
            if path.is_file():
                parts.setdefault(name, []).append(_read(path, columns))
    return {name: pd.concat(tables, ignore_index=True) for name, tables in parts.items()}


def hidden_layers(hidden: str) -> tuple[int, ...]:
    """`1+2` as layers."""
    return tuple(int(layer) for layer in hidden.split("+"))


def _places(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    candidates = [folder] if (folder / "settings.json").is_file() else sorted(folder.iterdir())
    return [place for place in candidates if _is_control(place)]


def _is_control(place: Path) -> bool:
    if not (place / "settings.json").is_file() or not (place / "summary.json").is_file():
        return False
    try:
        settings = json.loads((place / "settings.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False  # looking for runs finds it, and complains
    return isinstance(settings, dict) and "control" in settings


def _read(path: Path, columns: dict[str, str]) -> pd.DataFrame:
    try:
        table = pd.read_parquet(path)
    except Exception as error:  # Arrow has many kinds of errors
        raise damaged(path, str(error)) from None
    absent = [column for column in columns if column not in table.columns]
    if absent:
        raise damaged(path, f"it has no column {absent[0]!r}")
    try:
        return table[list(columns)].astype(columns)
    except (TypeError, ValueError) as error:
        raise damaged(path, str(error)) from None
