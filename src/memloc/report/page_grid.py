"""Several runs together on the page: JSON data for the part "across tasks and models"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from memloc.report.page_examples import visible
from memloc.report.page_tables import rounded
from memloc.results.grid import Grid, read_grid
from memloc.results.grid_agreement import IN_PRINT, agreement_table
from memloc.results.grid_words import grid_title, records

OTHER_GROUP = "--group K takes another"
EVENTS = ("crossing", "mem_gen", "initiation", "f1_90")


Check = Callable[[Grid], tuple[str, list[dict[str, Any]]]]
"""Checks claims in a grid of runs: a sentence on all of them, and each as JSON data with `section`,
`statement`, `paper`, `here`, `n`, `verdict` and `explanation`."""


def grid_page_data(folder: Path, check: Check | None = None) -> dict[str, Any]:
    """All that the page shows of runs that may be compared.

    Args:
        folder: A folder of results.
        check: Checks claims; without it, the page has none.

    Raises:
        ResultsError: If a file is damaged.
    """
    grid = read_grid(folder)
    line, claims = ("", []) if check is None else check(grid)
    data = rounded(
        {
            "title": grid_title(grid),
            "notes": [_note(note) for note in grid.notes],
            "techniques": grid.techniques,
            "models": grid.models,
            "tasks": sorted(grid.runs["task"].unique()),
            "runs": records(grid.runs),
            "centres": _centres(grid),
            "events": records(grid.events[grid.events["event"].isin(EVENTS)]),
            "agreement": records(agreement_table(grid)),
            "in_print": IN_PRINT,
            "claims": claims,
            "claims_line": line,
        }
    )
    shown: dict[str, Any] = _visible(data)
    return shown


def _centres(grid: Grid) -> list[dict[str, Any]]:
    """M-CoG per run and technique, with those of the single seeds."""
    seeds = grid.seed_centres.groupby(["run", "technique"])["depth"].agg(list)
    return [
        {
            "run": row["run"],
            "technique": row["technique"],
            "m_cog": row["m_cog"],
            "depth": row["depth"],
            "seeds": seeds[row["run"], row["technique"]],
        }
        for row in grid.centres.to_dict("records")
    ]


def _note(note: str) -> str:
    """Other groups are the business of another command."""
    return note.replace(OTHER_GROUP, "`memloc claims --group K` shows another")


def _visible(value: Any) -> Any:
    """Names of tasks and models come from files: no control characters."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {key: _visible(one) for key, one in value.items()}
    return [_visible(one) for one in value] if isinstance(value, list) else value
