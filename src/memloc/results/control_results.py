"""Results of `memloc control` on disk, read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from memloc.results.run_folders import ControlFolder, ResultsError

CELL = {"model": "object", "n_layers": "int64", "task": "object", "hidden": "object"}
CELL |= {"seed": "int64"}
NAMES: dict[str, dict[str, str]] = {
    "accuracy": {"technique": "object", "k": "int64"},
    "layers": {"technique": "object", "layer": "int64"},
    "gradient_choices": {
        **{"norm": "object", "subtract_clean": "bool", "divide_by_frozen": "bool", "k": "int64"},
    },
    "gradients": {"state": "object", "gradient": "object", "kind": "object", "layer": "int64"},
}
"""Per table, the columns that say what a row is about, beside those of the cell."""
VALUES: dict[str, dict[str, str]] = {
    "accuracy": {"accuracy": "float64", "chance": "float64"},
    "layers": {"weight": "float64"},
    "gradient_choices": {"accuracy": "float64"},
    "gradients": {"norm": "float64"},
}
OPTIONAL = ("gradient_choices", "gradients")
"""There only if gradients were among the techniques."""


@dataclass(frozen=True)
class ControlResults:
    """All control benchmarks of a folder together.

    Attributes:
        accuracy: See `memloc.analysis.control.accuracy_table`.
        layers: Layer weights.
        gradient_choices: See `memloc.analysis.control.gradient_choices`; perhaps empty.
        gradients: Norms of gradients; perhaps empty.
    """

    accuracy: pd.DataFrame
    layers: pd.DataFrame
    gradient_choices: pd.DataFrame
    gradients: pd.DataFrame


def read_controls(folders: Sequence[ControlFolder]) -> ControlResults | None:
    """Read them, None if there are none; what was computed twice counts once, as the newest has it.

    Those of parts of layers are passed over: their scores are not of the same techniques.

    Raises:
        ResultsError: If a table is damaged or missing.
    """
    folders = [folder for folder in folders if folder.whole_layers]
    if not folders:
        return None
    newest_first = sorted(folders, key=lambda folder: folder.written, reverse=True)
    tables = {}
    for name, names in NAMES.items():
        joined = pd.concat([_table(folder, name) for folder in newest_first], ignore_index=True)
        tables[name] = joined.drop_duplicates([*CELL, *names], ignore_index=True)
    return ControlResults(**tables)


def _table(folder: ControlFolder, name: str) -> pd.DataFrame:
    columns = CELL | NAMES[name] | VALUES[name]
    table = folder.table(name, columns)
    if table is None and name in OPTIONAL:
        table = pd.DataFrame({column: [] for column in columns}).astype(columns)
    if table is None:
        raise ResultsError(
            f"'{folder.path / name}.parquet' is missing; move its folder away, or compute it again "
            "with `memloc control`"
        )
    # Tasks that were held back chose the post-processing of gradients, so they do not score it.
    held_back = folder.settings["control"].get("held_back") or []
    if name == "accuracy":
        return table[~table["task"].isin(held_back)]
    if name == "gradient_choices" and held_back:
        return table[table["task"].isin(held_back)]
    return table
