"""A result folder as the data of the page: only what it shows, and small enough to be opened.

One run or several: of several, all that fits; the largest ones give up details first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import memloc
from memloc.report.figures.looks import technique_looks
from memloc.report.page_examples import DETAILS
from memloc.report.page_grid import Check, grid_page_data
from memloc.report.page_run import run_data
from memloc.results.folders import RunFolder, find_results

LARGEST = 7_500_000
"""Bytes of data; with scripts and styles the page stays below 8 MB."""


def page_data(folder: Path, largest: int = LARGEST, check: Check | None = None) -> dict[str, Any]:
    """All data of the page, as JSON data.

    Args:
        folder: One result of `memloc run` or `memloc localise`, or a folder of such.
        largest: Bytes of JSON.
        check: Checks claims where there are several runs.

    Raises:
        ResultsError: If there are no results, or if a file is damaged.
    """
    found = find_results(folder)
    several = not (folder / "settings.json").is_file()
    grid = grid_page_data(folder, check) if sum(run.trained for run in found) > 1 else None
    left = largest - size_of(grid)
    names = {name for run in found for name in run.techniques}
    return {
        "memloc": memloc.__version__,
        "several": several,
        "folder": folder.absolute().name,
        "runs": _within(found, left),
        "grid": grid,
        "colours": {name: look.colour for name, look in technique_looks(names).items()},
    }


def _within(found: tuple[RunFolder, ...], largest: int) -> list[dict[str, Any]]:
    """All runs, with as many details as fit."""
    levels = [0] * len(found)
    runs = [run_data(run) for run in found]
    sizes = [size_of(run) for run in runs]
    while sum(sizes) > largest and any(level < len(DETAILS) - 1 for level in levels):
        can = [index for index, level in enumerate(levels) if level < len(DETAILS) - 1]
        index = max(can, key=sizes.__getitem__)
        levels[index] += 1
        runs[index] = run_data(found[index], DETAILS[levels[index]])
        sizes[index] = size_of(runs[index])
    return runs


def size_of(data: Any) -> int:
    """Bytes as JSON."""
    return len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8"))
