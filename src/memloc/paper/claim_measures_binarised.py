"""Measuring the claims of appendix C: tasks with all their classes against the same with two."""

from __future__ import annotations

import math
from typing import Any

from memloc.paper.claim_measures import Measure
from memloc.paper.numbers import PAPER_LAYERS
from memloc.paper.verdicts import Evidence, Measured
from memloc.results.agreement import ALL_MODELS, M_COG, TECHNIQUE, Binarised


def order_is_kept(quantity: str) -> Measure:
    """ρ between where it is with all classes and where it is with two, over models × tasks."""
    return lambda evidence: _from_comparison(evidence, quantity, "spearman", 1)


def shift(quantity: str) -> Measure:
    """Mean of binary − multi, in layers of the paper's 12."""
    return lambda evidence: _from_comparison(evidence, quantity, "depth_shift", PAPER_LAYERS)


def absolute_shift(quantity: str) -> Measure:
    """Mean of the absolute value of binary − multi, in layers of the paper's 12."""
    return lambda evidence: _from_comparison(evidence, quantity, "depth_absolute", PAPER_LAYERS)


def _from_comparison(evidence: Evidence, quantity: str, column: str, times: int) -> Measured:
    """One number of the comparison of all models, in another unit."""
    found = evidence.binarised
    if found is None:
        return Measured(unit="tasks", missing=_what_is_missing(evidence))
    for row in found.comparison.to_dict("records"):
        if (row["quantity"], row["scope"]) == (quantity, ALL_MODELS):
            value, low, high = (row[f"{column}{end}"] * times for end in ("", "_low", "_high"))
            unknown = f"missing in {row['missing']} of {row['n'] + row['missing']} pairs"
            return Measured(
                None if math.isnan(value) else value,
                row["n"],
                row["tasks"],
                "tasks",
                interval=None if math.isnan(low) else (low, high),
                words=unknown if row["missing"] else "",
                details=_details(found, quantity),
            )
    lacking = f"results of {TECHNIQUE}" if quantity == M_COG else f"the event {quantity}"
    return Measured(unit="tasks", missing=f"needs {lacking} with all classes and with two")


def _what_is_missing(evidence: Evidence) -> str:
    used = evidence.grid.groups[evidence.grid.chosen - 1]
    if used.binarised:
        return "needs runs of the same tasks without --binarise, otherwise with the same settings"
    if all(0 < run.n_classes <= 2 for run in used.runs.values()):
        return "needs tasks with more than two classes"
    return "needs runs of the same tasks with --binarise, otherwise with the same settings"


def _details(found: Binarised, quantity: str) -> tuple[dict[str, Any], ...]:
    rows = found.points[found.points["quantity"] == quantity]
    names = ["model", "task", "layers", "multi", "binary"]
    return tuple(
        {
            str(key): None if isinstance(value, float) and math.isnan(value) else value
            for key, value in row.items()
        }
        for row in rows[names].to_dict("records")
    )
