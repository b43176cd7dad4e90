"""Do techniques agree, do models agree, and what goes with deep memorisation?

Figures 8 and 9 (techniques × techniques, models × models; M-CoG and layer weights), correlations of
events in section 5, and Table 2. How correlations are computed: `memloc.analysis.correlation`.

Is it the number of classes? Tasks with all their classes against the same with two (appendix C): a
multi-class run and the run of the same task and model that differs in `binarise` alone are a pair.
They are compared seed by seed, as in the paper; if they have no seed in common, by their means over
seeds. Models of different depth are put together by relative depth alone: a shift of one layer is
1/L of the depth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.correlation import (
    Correlation,
    Interval,
    Points,
    correlate,
    interval_of_mean,
    mean_correlation,
)
from memloc.analysis.windows import centre_of_gravity
from memloc.config import DEFAULT_TECHNIQUES
from memloc.results.folders import RunFolder
from memloc.results.grid import (
    Grid,
    records,
    relative_depth,
    seed_events,
    seed_weights,
)
from memloc.results.groups import Group
from memloc.tables import MEMORISED

M_COG, LAYER_WEIGHTS = "m_cog", "layer_weights"
ALL_MODELS = "all models"
EVENT_PAIRS = (("crossing", "mem_gen"), ("initiation", "f1_90"))
"""An event seen in centroids, and the one of probes it should go with."""
DEPTHS = ("crossing", "mem_gen", M_COG)
SCORES = ("generalisation_score", "validation_score")
"""Rows and headings of Table 2."""
IN_PRINT = {
    M_COG: "M-CoG",
    LAYER_WEIGHTS: "layer weights",
    "crossing": "crossing",
    "mem_gen": "mem≫gen",
    "initiation": "initiation",
    "f1_90": "90% F1",
    "generalisation_score": "generalisation score",
    "validation_score": "validation score",
}
"""What is correlated, as it is called in print."""


@dataclass(frozen=True)
class Pair:
    """Two things that are compared, and the points to compare them by."""

    kind: str
    quantity: str
    one: str
    other: str
    scope: str
    points: Points
    unit: str = "runs"


def agreement_table(grid: Grid) -> pd.DataFrame:
    """All correlations, one row each; NaN where there are fewer than four points.

    Columns: kind (techniques, models, events, generalisation), quantity, one, other, scope, unit,
    spearman, spearman_low, spearman_high, pearson, pearson_low, pearson_high, within, within_low,
    within_high (`within_models`), n, units.
    """
    pairs = [
        *technique_pairs(grid, M_COG),
        *technique_pairs(grid, LAYER_WEIGHTS),
        *model_pairs(grid, M_COG),
        *model_pairs(grid, LAYER_WEIGHTS),
        *event_pairs(grid),
        *score_pairs(grid),
    ]
    names = ("kind", "quantity", "one", "other", "scope", "unit", "n", "units")
    columns = ("spearman", "pearson", "within")
    numbers = [f"{column}{end}" for column in columns for end in ("", "_low", "_high")]
    rows = [_row(pair, grid.runs) for pair in pairs]
    table = pd.DataFrame(rows, columns=[*names, *numbers])
    return table.astype(dict.fromkeys(numbers, "float64"))


def within_models(points: Points, runs: pd.DataFrame) -> Correlation | None:
    """Spearman's ρ in single models, averaged; None if fewer than two models have points.

    Where runs of several models are put together, things that differ between models seem to go
    together even if within each model they do not.

    Args:
        points: Their units are runs.
        runs: Of the grid.
    """
    one, other, units = points.complete()
    of_unit = runs.set_index("run").loc[units]
    models = of_unit["model"].to_numpy()
    if len(set(models)) < 2:
        return None
    parts = [
        Points(one[mine], other[mine], of_unit["task"].to_numpy()[mine].tolist())
        for mine in (models == model for model in sorted(set(models)))
    ]
    return mean_correlation(parts)


def _row(pair: Pair, runs: pd.DataFrame) -> dict[str, Any]:
    found = mean_correlation([pair.points])
    pooled = pair.unit == "runs" and pair.scope == ALL_MODELS
    within = within_models(pair.points, runs) if pooled else None
    row = {name: getattr(pair, name) for name in ("kind", "quantity", "one", "other", "scope")}
    row |= {"unit": pair.unit, "n": found.n, "units": found.units}
    row |= _with_ends("spearman", found.spearman, found.spearman_interval)
    row |= _with_ends("pearson", found.pearson, found.pearson_interval)
    if within is not None:
        row |= _with_ends("within", within.spearman, within.spearman_interval)
    return row


def _with_ends(name: str, value: float | None, interval: Interval | None) -> dict[str, float]:
    """A number with the ends of its interval; NaN is what is not known."""
    low, high = interval or (math.nan, math.nan)
    return {name: math.nan if value is None else value, f"{name}_low": low, f"{name}_high": high}


def technique_pairs(grid: Grid, quantity: str) -> list[Pair]:
    """Every pair of techniques; points are runs, or layers of runs.

    M-CoG is relative to the depth. Weights are min-max normalised per technique among the models
    of the same depth, as those of some techniques sum to 1 and are smaller the more layers.
    """
    if quantity == M_COG:
        wide = grid.centres.pivot(index="run", columns="technique", values="depth")
    else:
        weights = grid.weights.assign(weight=_min_max(grid.weights, ["technique", "layers"]))
        wide = weights.pivot(index=["run", "layer"], columns="technique", values="weight")
    runs = wide.index.get_level_values("run").tolist()
    return [
        Pair("techniques", quantity, one, other, ALL_MODELS, _points(wide, one, other, runs))
        for one, other in combinations([t for t in grid.techniques if t in wide], 2)
    ]


def model_pairs(grid: Grid, quantity: str, techniques: Sequence[str] | None = None) -> list[Pair]:
    """Every pair of models; points are tasks × techniques (× layers) that both have.

    Args:
        grid: The results.
        quantity: `M_COG` or `LAYER_WEIGHTS`; these are min-max normalised per model and technique,
            and those of the deeper model are interpolated at the relative depths of the other's
            layers.
        techniques: Only these.
    """
    found = []
    for one, other in combinations(grid.models, 2):
        if quantity == M_COG:
            wide = _of(grid.centres, techniques).pivot(
                index=["task", "technique"], columns="model", values="depth"
            )
        else:
            wide = _profiles(_of(grid.weights, techniques), one, other)
        tasks = wide.index.get_level_values("task").tolist()
        points = _points(wide, one, other, tasks)
        found.append(Pair("models", quantity, one, other, "shared tasks", points, "tasks"))
    return found


def event_pairs(grid: Grid) -> list[Pair]:
    """Events of centroids against events of probes; points are runs."""
    depths = _per_run(grid)
    return [
        Pair("events", "depth", one, other, ALL_MODELS, _points(depths, one, other, depths.index))
        for one, other in EVENT_PAIRS
    ]


def score_pairs(grid: Grid) -> list[Pair]:
    """Table 2: how deep a task is memorised against how well it is generalised."""
    table = _per_run(grid)
    models = grid.runs.set_index("run")["model"]
    scopes = {ALL_MODELS: table}
    if len(grid.models) > 1:
        scopes |= {model: table[models[table.index] == model] for model in grid.models}
    return [
        Pair(
            "generalisation", "depth", depth, score, scope, _points(rows, depth, score, rows.index)
        )
        for score in SCORES
        for depth in DEPTHS
        for scope, rows in scopes.items()
    ]


def mean_centres(grid: Grid) -> tuple[pd.Series[float], tuple[str, ...]]:
    """Relative M-CoG per run, averaged over techniques, and over which.

    Those of the paper if there are any: baselines, for two, would add nothing but noise.
    Techniques put the centre at different depths, so a mean over other techniques is another
    quantity: only techniques that all of these runs have are averaged, chosen so that as much of
    the grid as possible is used.
    """
    wide = grid.centres.pivot(index="run", columns="technique", values="depth")
    found = [technique for technique in grid.techniques if technique in wide]
    names = [technique for technique in found if technique in DEFAULT_TECHNIQUES] or found
    choices = [choice for size in range(len(names), 0, -1) for choice in combinations(names, size)]
    if not choices:
        return pd.Series(dtype="float64"), ()
    best = max(choices, key=lambda choice: len(wide[list(choice)].dropna()) * len(choice))
    return wide[list(best)].dropna().mean(axis=1), best


def _per_run(grid: Grid) -> pd.DataFrame:
    """Depth of the events and of M-CoG, and the scores, by run."""
    events = grid.events.pivot(index="run", columns="event", values="depth")
    scores = grid.runs.set_index("run")[list(SCORES)]
    table = pd.concat([scores, events, mean_centres(grid)[0].rename(M_COG)], axis=1).sort_index()
    wanted = {name for pair in EVENT_PAIRS for name in pair} | {*DEPTHS, *SCORES}
    return table.reindex(columns=sorted(wanted)).astype("float64")


def _profiles(weights: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    """Weights of two models at the relative depths of the shallower one's layers."""
    weights = weights[weights["model"].isin([one, other])]
    weights = weights.assign(weight=_min_max(weights, ["model", "technique"]))
    depth = int(weights["layers"].min()) if len(weights) else 0
    places = (np.arange(1, depth + 1) - 0.5) / max(1, depth)
    parts = []
    for (task, technique, model), rows in weights.groupby(["task", "technique", "model"]):
        ordered = rows.sort_values("layer")
        own = (ordered["layer"] - 0.5) / ordered["layers"]
        values = np.interp(places, own, ordered["weight"])
        parts += [(task, technique, layer, model, value) for layer, value in enumerate(values, 1)]
    table = pd.DataFrame(parts, columns=["task", "technique", "layer", "model", "weight"])
    return table.pivot(index=["task", "technique", "layer"], columns="model", values="weight")


def _min_max(weights: pd.DataFrame, by: list[str]) -> pd.Series[float]:
    """Weights between 0 and 1 among those that share the given columns; NaN if all are alike."""
    grouped = weights.groupby(by)["weight"]
    low, high = grouped.transform("min"), grouped.transform("max")
    spread = (high - low).where(high > low)
    return (weights["weight"] - low) / spread


def _of(table: pd.DataFrame, techniques: Sequence[str] | None) -> pd.DataFrame:
    return table if techniques is None else table[table["technique"].isin(list(techniques))]


def _points(wide: pd.DataFrame, one: str, other: str, units: Iterable[Any]) -> Points:
    """Two columns of a table; a column that does not exist is missing throughout."""
    both = wide.reindex(columns=[one, other]).to_numpy(dtype=float)
    return Points(both[:, 0], both[:, 1], list(units))


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
    points = _mean_points(pairs)
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


def _mean_points(pairs: pd.DataFrame) -> pd.DataFrame:
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
            rows.append({"quantity": quantity, "scope": scope, **_compare_mean_points(of_scope)})
    columns = ["quantity", "scope", *_compare_mean_points(points.iloc[:0])]
    return pd.DataFrame(rows, columns=columns).astype({"layers": "Int64"})


def _compare_mean_points(points: pd.DataFrame) -> dict[str, Any]:
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
        if isinstance(share, int | float) and share < MEMORISED:
            weak.append(name)
    words = f"Less than {MEMORISED:.0%} of the noisy labels were memorised {with_or_without}"
    return [f"{words} binarising: {_listed(weak)}."] if weak else []


def _without_common_seed(pairs: pd.DataFrame) -> list[str]:
    rows = pairs[pairs["seed"].isna()]
    names = list(dict.fromkeys(zip(rows["task"], rows["model"], strict=True)))
    return [f"Means over seeds, as none is in both runs: {_listed(names)}."] if names else []


def _listed(names: Sequence[Name]) -> str:
    return ", ".join(f"{task} {model}" for task, model in names)


def binarised_data(found: Binarised) -> dict[str, Any]:
    """Tasks with all their classes against the same with two, as JSON data."""
    return {
        "pairs": records(found.pairs),
        "comparison": records(found.comparison),
        "notes": list(found.notes),
    }
