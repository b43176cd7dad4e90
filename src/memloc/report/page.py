"""The interactive page: data, scripts and styles in one HTML file that needs nothing else.

One result or several: of several, all that fits; the largest ones give up details first.

A Content-Security-Policy allows this one script and this one style sheet, by their hashes, and
nothing from elsewhere; texts of data sets are data for the script, which never reads them as HTML.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import memloc
from memloc.report.figures.looks import technique_looks
from memloc.report.page_examples import DETAILS, visible
from memloc.report.page_result import result_data, rounded
from memloc.results.agreement import IN_PRINT, agreement_table
from memloc.results.folders import ResultsError, RunFolder, find_results
from memloc.results.grid import Grid, grid_title, read_grid, records
from memloc.tables import REPORT

PARTS = Path(__file__).parent / "page"
SCRIPTS = tuple(
    f"{name}.js"
    for name in (
        *("base", "charts", "tooltip", "state", "headline", "curves", "heatmaps", "profiles"),
        *("overtime", "trajectories", "examples", "selection", "grid", "agreement", "made", "main"),
    )
)
"""In the order in which they are joined; what a file uses at once stands in an earlier one."""
UNSAFE_IN_SCRIPT = {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029\ufeff"}
LARGEST = 7_500_000
"""Bytes of data; with scripts and styles the page stays below 8 MB."""
EVENTS = ("crossing", "mem_gen", "initiation", "f1_90")

Check = Callable[[Grid], tuple[str, list[dict[str, Any]]]]
"""Checks claims in a grid of runs: a sentence on all of them, and each as JSON data with `section`,
`statement`, `paper`, `here`, `n`, `verdict` and `explanation`."""


def write_report(folder: Path, out: Path | None = None, check: Check | None = None) -> Path:
    """Write the page of a result, or of a folder of results; returns where it is.

    Args:
        folder: One result of `memloc run` or `memloc localise`, or a folder of such.
        out: The file to write; by default `report.html` in the folder.
        check: Checks claims where there are several runs; without it, the page has none.

    Raises:
        ResultsError: If there are no results, if a file is damaged, or if the page cannot be
            written.
    """
    place = folder / REPORT if out is None else out
    if out is not None:
        _check_place(out)
    return _write(place, page_data(folder, check=check))


def write_result(result: RunFolder, out: Path) -> Path:
    """Write the page of one result, which may be in memory; returns where it is.

    Raises:
        ResultsError: If the page cannot be written.
    """
    _check_place(out)
    return _write(out, results_data([result], result.path.absolute().name))


def _write(place: Path, data: dict[str, Any]) -> Path:
    text = render(data)
    aside = place.with_name(f".{place.name[:40]}-{uuid.uuid4().hex[:6]}")
    try:
        aside.write_text(text, encoding="utf-8", errors="replace")
        os.replace(aside, place)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise ResultsError(
            f"cannot write {str(place)!r}: {error.strerror or error}", remedy="give another file"
        ) from None
    return place


def _check_place(out: Path) -> None:
    if out.is_dir():
        remedy = "give a file, such as report.html"
        raise ResultsError("it is a folder", setting="out", value=str(out), remedy=remedy)
    if not out.absolute().parent.is_dir():
        problem = f"there is no folder {str(out.parent)!r}"
        raise ResultsError(problem, setting="out", value=str(out), remedy="create it first")


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
    grid = grid_data(folder, check) if sum(run.trained for run in found) > 1 else None
    several = not (folder / "settings.json").is_file()
    return results_data(found, folder.absolute().name, several, grid, largest)


def results_data(
    results: Sequence[RunFolder],
    name: str,
    several: bool = False,
    grid: dict[str, Any] | None = None,
    largest: int = LARGEST,
) -> dict[str, Any]:
    """The data of the page of these results, with as many details as fit.

    Raises:
        ResultsError: If a table is damaged.
    """
    left = largest - size_of(grid)
    levels = [0] * len(results)
    runs = [result_data(result) for result in results]
    sizes = [size_of(run) for run in runs]
    while sum(sizes) > left and min(levels) < len(DETAILS) - 1:
        can = [index for index, level in enumerate(levels) if level < len(DETAILS) - 1]
        index = max(can, key=sizes.__getitem__)
        levels[index] += 1
        runs[index] = result_data(results[index], DETAILS[levels[index]])
        sizes[index] = size_of(runs[index])
    looks = technique_looks(name for result in results for name in result.techniques)
    return {
        "memloc": memloc.__version__,
        "several": several,
        "folder": name,
        "colours": {visible(name): look.colour for name, look in looks.items()},
        "runs": runs,
        "grid": grid,
    }


def size_of(data: Any) -> int:
    """Bytes as JSON."""
    return len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8"))


def grid_data(folder: Path, check: Check | None = None) -> dict[str, Any]:
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
            "notes": list(grid.notes),
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


def _visible(value: Any) -> Any:
    """Names of tasks and models come from files: no control characters."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {key: _visible(one) for key, one in value.items()}
    return [_visible(one) for one in value] if isinstance(value, list) else value


def render(data: dict[str, Any]) -> str:
    """The page as text."""
    script = "(() => {\n'use strict';\n" + "\n".join(map(_part, SCRIPTS)) + "\n})();\n"
    style = _part("page.css")
    filled = {
        "POLICY": policy(script, style),
        "TITLE": html.escape(title(data)),
        "STYLE": style,
        "DATA": json_for_script(data),
        "SCRIPT": script,
    }
    page = _part("page.html")
    # From the end, so that nothing that was put in is searched for further places.
    for name in ("SCRIPT", "DATA", "STYLE", "TITLE", "POLICY"):
        before, _, after = page.partition(f"@{name}@")
        page = before + filled[name] + after
    return page


def title(data: dict[str, Any]) -> str:
    """What the tab of the browser says."""
    if data["several"]:
        return f"memloc: {len(data['runs'])} results in {data['folder']}"
    run = data["runs"][0]
    return f"memloc: {run['model']} on {run['task']}" if run["task"] else f"memloc: {run['model']}"


def policy(script: str, style: str) -> str:
    """Only this script and this style sheet, and nothing from anywhere else."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")


def json_for_script(data: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escaped in UNSAFE_IN_SCRIPT.items():
        text = text.replace(character, escaped)
    return text


def _part(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")
