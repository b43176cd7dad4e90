"""Is it the number of classes? Tasks with all their classes against the same with two (appendix C).

A multi-class run and the run of the same task and model that differs in `binarise` alone are twins.
They are compared seed by seed, as in the paper. Shifts are fractions of the depth, which can be
pooled across models of different depth: a shift of one layer is 1/L.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from memloc.analysis.correlation import correlate, interval_of_mean, means_of_units
from memloc.report.many_runs import show_notes, with_interval
from memloc.report.terminal import columns, indented, section
from memloc.results.agreement import IN_PRINT, M_COG, with_ends
from memloc.results.folders import RunFolder
from memloc.results.grid import Grid, centres_of, read_events, read_weights, records, relative_depth
from memloc.results.groups import Name
from memloc.tables import MEMORISED
from memloc.text import counted

TECHNIQUE = "swapping"
"""Whose M-CoG is compared."""
QUANTITIES = (M_COG, "crossing", "initiation")
SHIFTS = ("shift", "absolute")
"""Mean of binary − multi, and of its absolute value."""
SIDES = ["multi", "binary"]
POINT = ["run", "quantity", "model", "task", "layers"]


@dataclass(frozen=True)
class Binarised:
    """Tasks with all their classes (multi) against the same tasks with two (binary).

    Attributes:
        pairs: model, task, layers (of the model), seed, quantity (M-CoG of swapping, crossing,
            initiation), multi, binary (layers; NaN if it never happens).
        points: The same for each model and task, over the seeds in which both sides are known:
            quantity, model, task, layers, multi, binary, shift (binary − multi), absolute (the
            mean over seeds of the absolute shift).
        comparison: For each quantity: n (points), units (tasks), missing (points of which a
            side is unknown), spearman, shift and absolute (as fractions of the depth), each with
            _low and _high.
        notes: What a reader must know about the choice of runs, in sentences.
    """

    pairs: pd.DataFrame
    points: pd.DataFrame
    comparison: pd.DataFrame
    notes: tuple[str, ...]


def compare_twins(grid: Grid) -> Binarised | None:
    """Compare the runs of a grid with their twins; None if there are none.

    Raises:
        ResultsError: If a file is damaged.
    """
    own, twins = grid.group.runs, grid.twins
    multi, binary = (twins, own) if grid.group.binarised else (own, twins)
    # A task that has two classes anyway is no pair; nor are models of one name that differ.
    several = {name: run for name, run in multi.items() if run.n_classes > 2}
    names = [
        name
        for name, run in several.items()
        if name in binary and run.n_layers == binary[name].n_layers
    ]
    if not names:
        return None
    pairs = _layers({name: multi[name] for name in names}).merge(
        _layers({name: binary[name] for name in names}), on=[*POINT, "seed"], suffixes=("", "_two")
    )
    pairs = pairs.rename(columns={"layer": "multi", "layer_two": "binary"})
    points = _mean_points(pairs)
    where = "without" if grid.group.binarised else "with"
    shares = {name: twins[name].summary.get("memorised_share") for name in names}
    paired = set(zip(pairs["task"], pairs["model"], strict=True))
    notes = {
        "Only without binarising": [name for name in several if name not in binary],
        "Only with binarising": [name for name in binary if name not in multi],
        f"Less than {MEMORISED:.0%} of the noisy labels were memorised {where} binarising": [
            name for name, share in shares.items() if share is not None and share < MEMORISED
        ],
        "Not compared, as no seed is in both runs": [name for name in names if name not in paired],
    }
    words = [
        f"{what}: {', '.join(f'{task} {model}' for task, model in which)}."
        for what, which in notes.items()
        if which
    ]
    shown = pairs[["model", "task", "layers", "seed", "quantity", *SIDES]]
    return Binarised(shown, points, _comparison(points), tuple(words))


def _layers(runs: Mapping[Name, RunFolder]) -> pd.DataFrame:
    """By task, model, quantity and seed, the layer; NaN where it was looked for and not found."""
    weights = read_weights(runs)
    centres = centres_of(weights[weights["technique"] == TECHNIQUE])
    centres = centres.rename(columns={"m_cog": "layer"}).assign(quantity=M_COG)
    events = read_events(runs).rename(columns={"event": "quantity"})
    found = pd.concat([table[[*POINT, "seed", "layer"]] for table in (centres, events)])
    found = found[found["quantity"].isin(QUANTITIES)]
    order = found["quantity"].map(QUANTITIES.index)
    ordered = found.assign(order=order).sort_values(["run", "order", "seed"], kind="stable")
    return ordered.drop(columns="order")


def _mean_points(pairs: pd.DataFrame) -> pd.DataFrame:
    """One row per quantity, model and task; a seed of which one side is unknown does not count."""
    rows = pairs.assign(shift=pairs["binary"] - pairs["multi"])
    rows = rows.assign(absolute=rows["shift"].abs())
    # The shift is unknown where a side is, and a mean over seeds leaves out what is unknown.
    rows.loc[rows["shift"].isna(), SIDES] = math.nan
    return rows.groupby(POINT[1:], sort=False, as_index=False)[[*SIDES, *SHIFTS]].mean()


def _comparison(points: pd.DataFrame) -> pd.DataFrame:
    """ρ and mean shifts over tasks; all models of a task belong together."""
    rows = []
    for quantity, of_quantity in points.groupby("quantity", sort=False):
        known = of_quantity.dropna(subset="shift")
        tasks = known["task"].tolist()
        multi, binary = (relative_depth(known[side], known["layers"]) for side in SIDES)
        found = correlate(multi, binary, tasks)
        row = {
            "quantity": quantity,
            "n": len(known),
            "units": known["task"].nunique(),
            "missing": len(of_quantity) - len(known),
            **with_ends("spearman", found.spearman, found.spearman_interval),
        }
        for name in SHIFTS:
            means = means_of_units((known[name] / known["layers"]).to_numpy(), tasks)
            mean = float(means.mean()) if len(means) else None
            ends = interval_of_mean(means)
            if ends and name == "absolute":  # Student's interval does not know that none is below 0
                ends = (max(0.0, ends[0]), ends[1])
            row |= with_ends(name, mean, ends)
        rows.append(row)
    return pd.DataFrame(rows)


def binarised_data(found: Binarised) -> dict[str, Any]:
    """Everything as JSON data."""
    return {
        "pairs": records(found.pairs),
        "comparison": records(found.comparison),
        "notes": list(found.notes),
    }


def show_binarised(found: Binarised, console: Console) -> None:
    """Print how tasks change when they are cut to two classes."""
    console.print(section("Is it the same with two classes? (App. C)", "n: models × tasks"))
    show_notes(found.notes, console)
    if found.comparison.empty:
        words = "Nothing to compare: needs swapping or the centroid analysis in both runs."
        console.print(Text(words, style="dim"))
        return
    console.print(Text("Shift: two classes − all classes, as share of the depth.", style="dim"))
    rows = found.comparison.to_dict("records")
    lines = [
        (
            IN_PRINT[row["quantity"]],
            with_interval(row, "spearman"),
            *(with_interval(row, name, 100, 1, "%") for name in SHIFTS),
            str(row["n"]),
        )
        for row in rows
    ]
    heads = ("", "ρ", "mean shift", "mean |shift|", "n")
    console.print(indented(columns(heads, lines, 1, left=range(4))))
    for row in rows:
        if row["missing"]:
            pairs = counted(row["missing"], "pair")
            words = f"  {IN_PRINT[row['quantity']]}: missing on one side of {pairs}, left out"
            console.print(Text(words, style="dim"))
