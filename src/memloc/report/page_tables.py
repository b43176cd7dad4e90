"""The tables of one result, as the page needs them: checked, and by view.

A *view* is what the page shows at a time: one seed, or all of them together (means, and for single
examples what holds in more than half of the seeds).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from memloc.results.folders import RunFolder, damaged

ALL = "all"
"""Key of the view of all seeds."""
NO_SEED = 0
"""Seed of results of `memloc localise`, which have none."""
SMALLEST, LARGEST = -(2**31), 2**31
"""Numbers of layers, epochs and examples beyond these are damage, not data."""

COLUMNS: dict[str, dict[str, str]] = {
    "layers": {"technique": "str", "layer": "int64", "weight": "float64", "spread": "float64"},
    "windows": {
        **{"technique": "str", "first_layer": "int64", "last_layer": "int64", "size": "int64"},
        **{"noisy_error": "float64", "clean_error": "float64"},
    },
    "examples": {
        **{"technique": "str", "example": "int64", "memorised": "bool"},
        **{"smallest_window": "Int64", "first_layer": "Int64", "last_layer": "Int64"},
        **{"word": "object", "text": "object", "text_pair": "object"},
        **{"label": "int64", "original_label": "int64"},
        **{"label_name": "str", "original_label_name": "str"},
    },
    "probes": {
        **{"technique": "str", "probe": "str", "model": "str", "layer": "int64"},
        "f1": "float64",
    },
    "history": {"state": "str", "epoch": "int64", "split": "str", "accuracy": "float64"},
    "costs": {
        **{"job": "str", "memorised_epoch": "float64", "seconds": "float64"},
        **{"peak_memory_bytes": "float64", "block_passes": "float64"},
    },
    "centroids": {
        **{"model": "str", "layer": "int64", "group": "str"},
        **{"mean": "float64", "low": "float64", "high": "float64"},
    },
    "trajectories": {"model": "str", "example": "int64", "layer": "int64", "position": "float64"},
    "events": {"model": "str", "event": "str", "layer": "Float64"},
    "crossings": {"example": "int64", "crossing": "Int64", "largest_step": "float64"},
    "pairs": {"label": "int64", "original_label": "int64", "used": "bool"},
    "checkpoints": {
        **{"epoch": "int64", "memorised": "float64", "in_layers": "float64", "enough": "bool"},
        **{"clean_accuracy": "float64", "validation_accuracy": "float64"},
        **{"clean_error": "float64", "swapping_m_cog": "Float64", "probing_m_cog": "Float64"},
        "crossing": "Int64",
    },
    "checkpoint_layers": {
        **{"epoch": "int64", "technique": "str", "layer": "int64", "measure": "str"},
        "value": "float64",
    },
    "class_probes": {
        **{"labels": "str", "layer": "int64", "noisy_f1": "float64", "clean_f1": "float64"},
    },
}
"""The columns the page reads, by table."""
OPTIONAL = {
    "examples": ("word", "text_pair", "original_label", "original_label_name"),
    "costs": ("seed", "job", "memorised_epoch", "peak_memory_bytes", "block_passes"),
}


@dataclass(frozen=True)
class View:
    """One seed, or all of them."""

    key: str
    label: str
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Result:
    """One result with its tables, which all have a seed."""

    run: RunFolder
    tables: dict[str, pd.DataFrame]
    views: tuple[View, ...]

    def of(self, view: View) -> dict[str, pd.DataFrame]:
        """The tables of a view."""
        return {
            name: table[table["seed"].isin(view.seeds)]
            for name, table in self.tables.items()
            if len(table) and table["seed"].isin(view.seeds).any()
        }

    def path(self, table: str) -> Path:
        """Where a table is, to be named if it is damaged."""
        return self.run.path / f"{table}.parquet"


def read_result(run: RunFolder) -> Result:
    """Read and check all tables but the predictions, which may be long.

    Raises:
        ResultsError: If a table is damaged.
    """
    tables = {}
    for name, columns in COLUMNS.items():
        table = read_table(run, name, columns, OPTIONAL.get(name, ()))
        if table is not None:
            _check_layers(run, name, table)
            tables[name] = table
    seeds = _seeds(run, tables)
    views = [View(str(seed), f"seed {seed}", (seed,)) for seed in seeds]
    if len(seeds) > 1:
        views.insert(0, View(ALL, f"all {len(seeds)} seeds", seeds))
    return Result(run, tables, tuple(views))


def read_table(
    run: RunFolder,
    name: str,
    columns: dict[str, str],
    optional: Sequence[str] = (),
    examples: Sequence[int] | None = None,
) -> pd.DataFrame | None:
    """A table with a seed in front, whoever wrote it."""
    front = {"seed": "int64"} if run.trained else {}
    table = run.table(name, front | columns, optional, examples)
    if table is not None and "seed" not in table:
        table.insert(0, "seed", NO_SEED)
    return table


def _seeds(run: RunFolder, tables: dict[str, pd.DataFrame]) -> tuple[int, ...]:
    if not run.trained:
        return (NO_SEED,)
    # The frozen model has a seed of its own, which is not one of the run.
    found = tables.get("layers")
    seeds = [] if found is None else found["seed"].unique().tolist()
    return tuple(seeds) or (NO_SEED,)


def _check_layers(run: RunFolder, name: str, table: pd.DataFrame) -> None:
    lowest = 0 if name == "probes" else 1  # probes also look at what enters layer 1
    for column in ("layer", "first_layer", "last_layer", "size"):
        if column in table and not table[column].dropna().between(lowest, run.n_layers).all():
            raise damaged(
                run.path / f"{name}.parquet", f"{column} is not among the {run.n_layers} layers"
            )
    for column in ("example", "epoch", "label", "original_label", "seed"):
        if column in table and not table[column].between(SMALLEST, LARGEST).all():
            raise damaged(run.path / f"{name}.parquet", f"{column} is out of all range")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """What goes wrong inside comes from this file: say so.

    Tables have been checked for columns and types, so this is for contents that contradict each
    other, in whichever way they do.

    Raises:
        ResultsError: Naming the file.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from None


def rounded(value: Any, digits: int = 4) -> Any:
    """JSON data with short numbers; what is not finite is null."""
    if isinstance(value, dict):
        return {str(key): rounded(one, digits) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one, digits) for one in value]
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return None
        short = round(value, digits)
        return int(short) if short.is_integer() else short
    return value
