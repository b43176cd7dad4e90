"""What all views of several runs say first: which runs they are."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from memloc.results.binarised import Binarised
from memloc.results.grid import Grid
from memloc.text import counted


def grid_title(grid: Grid) -> str:
    """How many runs, tasks and models."""
    runs, tasks = len(grid.runs), grid.runs["task"].nunique()
    seeds = sorted(set(grid.runs["seeds"]))
    each = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return (
        f"{counted(runs, 'run')}: {counted(tasks, 'task')}, {counted(len(grid.models), 'model')}, "
        f"{counted(len(grid.techniques), 'technique')}, "
        f"{each} seed{'s' if each != '1' else ''} each"
    )


def grid_data(grid: Grid) -> dict[str, Any]:
    """Which runs, and which were left out, as JSON data."""
    used = grid.groups[grid.chosen - 1]
    return {
        "folder": str(grid.folder),
        "group": grid.chosen,
        "groups": [
            {
                "group": number,
                "runs": [run.path.name for run in group.runs.values()],
                "left_out": [run.path.name for run in group.left_out],
                "differences": group.differences(used),
            }
            for number, group in enumerate(grid.groups, start=1)
        ],
        "notes": list(grid.notes),
        "runs": records(grid.runs.drop(columns="run")),
    }


def binarised_data(found: Binarised) -> dict[str, Any]:
    """Tasks with all their classes against the same with two, as JSON data."""
    return {
        "pairs": records(found.pairs),
        "comparison": records(found.comparison),
        "notes": list(found.notes),
    }


def records(table: Any) -> list[dict[str, Any]]:
    """Rows as JSON data; a missing number is null."""
    return [
        {str(key): _plain(value) for key, value in row.items()} for row in table.to_dict("records")
    ]


def _plain(value: Any) -> Any:
    unknown = value is pd.NA or (isinstance(value, float) and not math.isfinite(value))
    return None if unknown else value
