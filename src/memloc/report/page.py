"""The interactive page: data, scripts and styles in one HTML file that needs nothing else.

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
from pathlib import Path
from typing import Any

from memloc.report.page_data import page_data
from memloc.report.page_grid import Check
from memloc.results.folders import ResultsError
from memloc.tables import REPORT

PARTS = Path(__file__).parent / "page"
SCRIPTS = (
    *("base.js", "charts.js", "tooltip.js", "state.js", "headline.js", "curves.js", "heatmaps.js"),
    *(
        "profiles.js",
        "overtime.js",
        "trajectories.js",
        "examples.js",
        "selection.js",
        "grid.js",
        "agreement.js",
    ),
    "made.js",
    "main.js",
)
"""In the order in which they are joined; what a file uses at once stands in an earlier one."""
UNSAFE_IN_SCRIPT = {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029\ufeff"}


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
    text = render(page_data(folder, check=check))
    aside = place.with_name(f".{place.name[:40]}-{uuid.uuid4().hex[:6]}")
    try:
        aside.write_text(text, encoding="utf-8", errors="replace")
        os.replace(aside, place)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise ResultsError(
            f"cannot write {str(place)!r}: {error.strerror or error}; give another file"
        ) from None
    return place


def _check_place(out: Path) -> None:
    if out.is_dir():
        raise ResultsError(
            "it is a folder",
            setting="out",
            value=str(out),
            remedy="give a file, such as report.html",
        )
    if not out.absolute().parent.is_dir():
        raise ResultsError(
            f"there is no folder {str(out.parent)!r}",
            setting="out",
            value=str(out),
            remedy="create it first",
        )


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
