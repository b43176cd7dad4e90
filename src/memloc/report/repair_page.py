"""The page of a repair: what was found, the exam of all candidates as a table and as a figure."""

from __future__ import annotations

from typing import Any

from memloc.report.html import one_file
from memloc.report.page_data import json_ready
from memloc.report.repair import LEGEND, MADE_OF, known_measures, on_one_line, rows_of
from memloc.results.repair import TRACES

STYLES = ("page.css", "repair.css")
SCRIPTS = ("base.js", "charts.js", "tooltip.js", "theme.js", "repair.js")


def repair_page(summary: dict[str, Any]) -> str:
    """The page as text; the summary is what `repair.json` has."""
    title = f"memloc: {summary['model']} on {summary['task']}, repaired"
    return one_file(title, STYLES, SCRIPTS, page_data(summary))


def page_data(summary: dict[str, Any]) -> dict[str, Any]:
    """All data of the page, as JSON data."""
    heads, rows = rows_of(summary)
    measures = known_measures(summary)
    names = [on_one_line(head) for head in heads]
    about = ("memloc", "model", "task", "suspects", "kept", "seed", "candidate", "best", "findings")
    candidates = [
        {
            **{key: one[key] for key in ("candidate", "repairs", "passes", "traces")},
            "cells": cells,
            "shares": [
                {**{key: one[name][key] for key in ("value", "low", "high")},
                 "interval": _interval(one[name])}
                for name in measures
            ],
        }
        for one, cells in zip(summary["candidates"], rows, strict=True)
    ]  # fmt: skip
    found: dict[str, Any] = json_ready(
        {
            **{key: summary[key] for key in about},
            "commands": [summary["made_by"], summary["command"]],
            "heads": names,
            "measures": measures,
            "panels": [name for name in TRACES if name in measures],
            "legend": list(LEGEND.items()),
            "made_of": [(one["candidate"], MADE_OF[one["candidate"]]) for one in candidates],
            "candidates": candidates,
        }
    )
    return found


def _interval(found: dict[str, float | None]) -> str | None:
    """Low and high in print; None if there is no interval."""
    low, high = found["low"], found["high"]
    return None if low is None or high is None else f"{100 * low:.0f}–{high:.0%}"
