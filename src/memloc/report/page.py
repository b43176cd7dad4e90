"""The interactive page of one result or several.

Of several, all that fits; the largest ones give up single examples first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import memloc
from memloc.report.figures.looks import technique_looks
from memloc.report.html import one_file, write_page
from memloc.report.page_data import json_ready, result_data
from memloc.results.agreement import IN_PRINT, agreement_table
from memloc.results.folders import RunFolder, find_results
from memloc.results.grid import Grid, grid_title, read_grid, records
from memloc.tables import REPORT

SCRIPTS = tuple(
    f"{name}.js"
    for name in (
        *("base", "charts", "tooltip", "pager", "theme", "state", "headline", "curves"),
        *("heatmaps", "profiles", "overtime", "trajectories", "examples", "selection", "grid"),
        *("agreement", "made", "main"),
    )
)
"""In the order in which they are joined; what a file uses at once stands in an earlier one."""
MOST_EXAMPLES = 20_000
LARGEST = 7_500_000
"""Bytes of data; with scripts and styles the page stays below 8 MB."""
EVENTS = ("crossing", "mem_gen", "initiation", "f1_90")

Check = Callable[[Grid], tuple[str, list[dict[str, Any]]]]
"""Checks claims in a grid of runs: a sentence on all of them, and each as JSON data with `section`,
`statement`, `paper`, `here`, `n`, `verdict` and `explanation`."""


def write_report(
    source: Path | RunFolder,
    out: Path | None = None,
    check: Check | None = None,
    pending: Sequence[str] = (),
) -> Path:
    """Write the page of a result, or of a folder of results; returns where it is.

    Args:
        source: A result of `memloc run` or `memloc localise`, its folder, or a folder of such.
        out: The file to write; by default `report.html` in the folder.
        check: Checks claims where there are several runs; without it, the page has none.
        pending: What is still being computed. The page says so, and loads itself again.

    Raises:
        ResultsError: If there are no results, if a file is damaged, or if the page cannot be
            written.
    """
    place = out or (source.path if isinstance(source, RunFolder) else source) / REPORT
    return write_page(place, render(page_data(source, check=check, pending=pending)))


def page_data(
    source: Path | RunFolder,
    largest: int = LARGEST,
    check: Check | None = None,
    pending: Sequence[str] = (),
) -> dict[str, Any]:
    """All data of the page, as JSON data; with as many single examples as fit.

    Args:
        source: As of `write_report`.
        largest: Bytes of JSON.
        check: As of `write_report`.
        pending: As of `write_report`.

    Raises:
        ResultsError: If there are no results, or if a file is damaged.
    """
    folder = source.path if isinstance(source, RunFolder) else source
    results = (
        (source,) if isinstance(source, RunFolder) else find_results(source, "run", "localise")
    )
    grid = None
    if sum(result.trained for result in results) > 1:
        grid = _grid_data(read_grid(folder), check)
    runs = [result_data(result, MOST_EXAMPLES) for result in results]
    while size_of(runs) + size_of(grid) > largest and (shown := max(map(_examples, runs))):
        runs = [result_data(result, shown // 2) for result in results]
    looks = technique_looks(name for result in results for name in result.techniques)
    return {
        "memloc": memloc.__version__,
        "several": results[0].path != folder,
        "folder": folder.absolute().name,
        "colours": json_ready({name: look.colour for name, look in looks.items()}),
        "runs": runs,
        "grid": grid,
        "pending": list(pending),
    }


def _examples(run: dict[str, Any]) -> int:
    """How many single examples are on the page."""
    return len(run["examples"]["example"]) if run["examples"] else 0


def size_of(data: Any) -> int:
    """Bytes as JSON."""
    return len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8"))


def _grid_data(grid: Grid, check: Check | None) -> dict[str, Any]:
    """All that the page shows of runs that may be compared."""
    line, claims = ("", []) if check is None else check(grid)
    seeds = grid.seed_centres.groupby(["run", "technique"])["depth"].agg(list)
    centres = grid.centres[["run", "technique", "m_cog", "depth"]].to_dict("records")
    data: dict[str, Any] = json_ready(
        {
            "title": grid_title(grid),
            "notes": list(grid.notes),
            "techniques": grid.techniques,
            "models": grid.models,
            "tasks": sorted(grid.runs["task"].unique()),
            "runs": records(grid.runs),
            "centres": [{**one, "seeds": seeds[one["run"], one["technique"]]} for one in centres],
            "events": records(grid.events[grid.events["event"].isin(EVENTS)]),
            "agreement": records(agreement_table(grid)),
            "in_print": IN_PRINT,
            "claims": claims,
            "claims_line": line,
        }
    )
    return data


def render(data: dict[str, Any]) -> str:
    """The page as text."""
    return one_file(title(data), ("page.css",), SCRIPTS, data)


def title(data: dict[str, Any]) -> str:
    """What the tab of the browser says."""
    if data["several"]:
        return f"memloc: {len(data['runs'])} results in {data['folder']}"
    run = data["runs"][0]
    words = f"memloc: {run['model']} on {run['task']}" if run["task"] else f"memloc: {run['model']}"
    return f"{words} (still computing)" if data["pending"] else words
