"""Is it the number of classes? Tasks with all their classes against the same with two (appendix C).

A multi-class run and the run of the same task and model that differs in `--binarise` alone are a
pair. They are compared seed by seed, as in the paper; if they have no seed in common, by their
means over seeds. Models of different depth are put together by relative depth alone: a shift of one
layer is 1/L of the depth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.correlation import correlate, interval_of_mean
from memloc.analysis.windows import centre_of_gravity
from memloc.results.folders import RunFolder, find_runs
from memloc.results.grid import WELL_MEMORISED, relative_depth, seed_events, seed_weights
from memloc.results.grid_agreement import ALL_MODELS, M_COG
from memloc.results.grouping import Group, choose_group, group_runs

TECHNIQUE = "swapping"
"""Whose M-CoG is compared."""
QUANTITIES = (M_COG, "crossing", "initiation")
SHIFTS = ("shift", "absolute")
"""Mean of binary − multi, and of its absolute value."""

PAIR_COLUMNS = {
    **{"model": "object", "task": "object", "layers": "int64", "seed": "Int64"},
    **{"quantity": "object", "multi": "float64", "binary": "float64"},
}

Name = tuple[str, str]
"""Task and model."""


@dataclass(frozen=True)
class Binarised:
    """Tasks with all their classes (multi) against the same tasks with two (binary).

    Attributes:
        pairs: model, task, layers (of the model), seed (missing if the runs share none, so that
            means are compared), quantity (M-CoG of swapping, crossing, initiation), multi, binary
            (layers; NaN if it never happens).
        points: The same for each model and task, over the seeds in which both sides are known:
            quantity, model, task, layers, multi, binary, shift (binary − multi), absolute (the
            mean over seeds of the absolute shift).
        comparison: For each quantity and scope (all models; each depth, if there are several):
            layers (missing for several depths), n (points), tasks, missing (points of which a side
            is unknown), spearman, shift and absolute in layers (NaN for several depths),
            depth_shift and depth_absolute as shares of the depth; all with _low and _high.
        notes: What a reader must know about the choice of runs, in sentences.
    """

    pairs: pd.DataFrame
    points: pd.DataFrame
    comparison: pd.DataFrame
    notes: tuple[str, ...]


def compare_binarised(folder: Path, number: int | None = None) -> Binarised | None:
    """Compare the runs of a folder with their twins; None if there are no pairs.

    Args:
        folder: A folder of runs.
        number: Which group of comparable runs, by default the largest; its twin is found, be it
            that with all classes or that with two.

    Raises:
        ResultsError: If there is no finished run or no such group, or a file is damaged.
    """
    groups = group_runs(find_runs(folder).runs)
    return compare_twins(groups, choose_group(groups, number))


def compare_twins(groups: Sequence[Group], chosen: int) -> Binarised | None:
    """Compare a group, by its number from 1, with its twin; None if there are no pairs.

    Raises:
        ResultsError: If a file is damaged.
    """
    multi, binary = _sides(groups, groups[chosen - 1])
    names = [name for name in multi if name in binary and _comparable(multi[name], binary[name])]
    if not names:
        return None
    rows = [row for name in names for row in _compare_runs(name, multi[name], binary[name])]
    pairs = pd.DataFrame(rows, columns=list(PAIR_COLUMNS)).astype(PAIR_COLUMNS)
    points = _points(pairs)
    chosen_binary = groups[chosen - 1].binarised
    partners, where = (multi, "without") if chosen_binary else (binary, "with")
    notes = [
        *_alone({name: run for name, run in multi.items() if run.n_classes > 2}, binary, "without"),
        *_alone(binary, multi, "with"),
        *_weak({name: partners[name] for name in names}, where),
        *_without_common_seed(pairs),
    ]
    return Binarised(pairs, points, _comparison(points), tuple(notes))


def _sides(
    groups: Sequence[Group], chosen: Group
) -> tuple[dict[Name, RunFolder], dict[Name, RunFolder]]:
    """The runs of the group and those of its twin: first with all classes, then with two."""
    twins: dict[Name, RunFolder] = {}
    for group in groups:
        twins = chosen.twins(group) | twins
    return (twins, chosen.runs) if chosen.binarised else (chosen.runs, twins)


def _comparable(multi: RunFolder, binary: RunFolder) -> bool:
    """A task that has two classes anyway is no pair; nor are models of one name that differ."""
    return multi.n_classes > 2 and multi.n_layers == binary.n_layers


def _compare_runs(name: Name, multi: RunFolder, binary: RunFolder) -> list[dict[str, Any]]:
    task, model = name
    rows = []
    both = _layers_by_seed(multi), _layers_by_seed(binary)
    for quantity in QUANTITIES:
        one, other = (side.get(quantity, {}) for side in both)
        shared = sorted(one.keys() & other.keys())
        found: list[tuple[Any, float, float]] = [(at, one[at], other[at]) for at in shared]
        if one and other and not shared:
            found = [(pd.NA, _mean(one.values()), _mean(other.values()))]
        identity = {"model": model, "task": task, "layers": multi.n_layers}
        rows += [
            {**identity, "seed": seed, "quantity": quantity, "multi": full, "binary": two}
            for seed, full, two in found
        ]
    return rows


def _layers_by_seed(run: RunFolder) -> dict[str, dict[int, float]]:
    """By quantity and seed, the layer; NaN where it was looked for and not found."""
    found: dict[str, dict[int, float]] = {}
    weights = seed_weights(run)
    weights = weights[weights["technique"] == TECHNIQUE]
    for seed in weights["seed"].unique().tolist():
        centre = centre_of_gravity(weights[weights["seed"] == seed]["weight"].to_numpy())
        found.setdefault(M_COG, {})[seed] = math.nan if centre is None else centre
    events = seed_events(run)
    layers = events["layer"].to_numpy(dtype=float, na_value=math.nan)
    for event, seed, layer in zip(events["event"], events["seed"], layers, strict=True):
        found.setdefault(event, {})[int(seed)] = float(layer)
    return found


def _mean(values: Iterable[float]) -> float:
    """Over the seeds in which it happens."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def _points(pairs: pd.DataFrame) -> pd.DataFrame:
    """One row per quantity, model and task; a seed of which one side is unknown does not count."""
    rows = pairs.assign(shift=pairs["binary"] - pairs["multi"])
    rows = rows.assign(absolute=rows["shift"].abs())
    values = ["multi", "binary", *SHIFTS]
    # The shift is unknown where a side is, and a mean over seeds leaves out what is unknown.
    rows.loc[rows["shift"].isna(), ["multi", "binary"]] = math.nan
    by = ["quantity", "model", "task", "layers"]
    return rows.groupby(by, sort=False, as_index=False)[values].mean()


def _comparison(points: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for quantity in [one for one in QUANTITIES if one in set(points["quantity"])]:
        of_quantity = points[points["quantity"] == quantity]
        depths = sorted(of_quantity["layers"].unique())
        scopes = {ALL_MODELS: of_quantity}
        if len(depths) > 1:
            scopes |= {f"{n} layers": of_quantity[of_quantity["layers"] == n] for n in depths}
        for scope, of_scope in scopes.items():
            rows.append({"quantity": quantity, "scope": scope, **_compare_points(of_scope)})
    columns = ["quantity", "scope", *_compare_points(points.iloc[:0])]
    return pd.DataFrame(rows, columns=columns).astype({"layers": "Int64"})


def _compare_points(points: pd.DataFrame) -> dict[str, Any]:
    """ρ and mean shifts; what is drawn for their intervals are tasks, with all their models."""
    known = points.dropna(subset="shift")
    layers, tasks = known["layers"], known["task"].tolist()
    one_depth = points["layers"].nunique() == 1
    multi, binary = (
        [relative_depth(at, n) for at, n in zip(known[side], layers, strict=True)]
        for side in ("multi", "binary")
    )
    found = correlate(multi, binary, tasks)
    row: dict[str, Any] = {
        "layers": int(points["layers"].iloc[0]) if one_depth else pd.NA,
        "n": len(known),
        "tasks": known["task"].nunique(),
        "missing": len(points) - len(known),
        **_with_ends("spearman", found.spearman, found.spearman_interval),
    }
    for name in SHIFTS:
        in_layers = known[name] if one_depth else known[name].iloc[:0]
        row |= _mean_with_ends(name, in_layers, tasks)
        row |= _mean_with_ends(f"depth_{name}", known[name] / layers, tasks)
    return row


def _mean_with_ends(name: str, values: pd.Series[float], units: list[str]) -> dict[str, float]:
    if values.empty:
        return _with_ends(name, None, None)
    numbers = values.to_numpy(dtype=float)
    return _with_ends(name, float(numbers.mean()), interval_of_mean(numbers, units))


def _with_ends(
    name: str, value: float | None, interval: tuple[float, float] | None
) -> dict[str, float]:
    low, high = interval or (math.nan, math.nan)
    return {
        name: math.nan if value is None else value,
        f"{name}_low": low,
        f"{name}_high": high,
    }


def _alone(
    runs: dict[Name, RunFolder], others: dict[Name, RunFolder], with_or_without: str
) -> list[str]:
    """Which of these runs have no twin among the others."""
    alone = [name for name in runs if name not in others]
    return [f"Only {with_or_without} binarising: {_listed(alone)}."] if alone else []


def _weak(partners: dict[Name, RunFolder], with_or_without: str) -> list[str]:
    """Which twins of the chosen runs memorised little; on those themselves the grid has a note."""
    weak = []
    for name, run in partners.items():
        share = run.summary.get("memorised_share")
        if isinstance(share, int | float) and share < WELL_MEMORISED:
            weak.append(name)
    words = f"Less than {WELL_MEMORISED:.0%} of the noisy labels were memorised {with_or_without}"
    return [f"{words} binarising: {_listed(weak)}."] if weak else []


def _without_common_seed(pairs: pd.DataFrame) -> list[str]:
    rows = pairs[pairs["seed"].isna()]
    names = list(dict.fromkeys(zip(rows["task"], rows["model"], strict=True)))
    return [f"Means over seeds, as none is in both runs: {_listed(names)}."] if names else []


def _listed(names: Sequence[Name]) -> str:
    return ", ".join(f"{task} {model}" for task, model in names)
