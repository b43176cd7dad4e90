"""Do techniques agree, do models agree, and what goes with deep memorisation?

Figures 8 and 9 (techniques × techniques, models × models; M-CoG and layer weights), correlations of
events in section 5, and Table 2. How correlations are computed: `memloc.analysis.correlation`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.correlation import Correlation, Interval, Points, mean_correlation
from memloc.config import DEFAULT_TECHNIQUES
from memloc.results.grid import VALIDATION_SCORES, Grid, relative_depth

M_COG, LAYER_WEIGHTS = "m_cog", "layer_weights"
ALL_MODELS = "all models"
EVENT_PAIRS = (("crossing", "mem_gen"), ("initiation", "f1_90"))
"""An event seen in centroids, and the one of probes it should go with."""
DEPTHS = ("crossing", "mem_gen", M_COG)
SCORES = ("generalisation_score", *VALIDATION_SCORES)
"""Rows and headings of Table 2."""
IN_PRINT = {
    M_COG: "M-CoG",
    LAYER_WEIGHTS: "layer weights",
    "crossing": "crossing",
    "mem_gen": "mem≫gen",
    "initiation": "initiation",
    "f1_90": "90% F1",
    "generalisation_score": "generalisation score",
    **{
        name: f"validation score ({'θ_O' if state == 'original' else 'θ_M'}, {guess})"
        for name in VALIDATION_SCORES
        for _, state, guess in [name.split("_")]
    },
}
"""What is correlated, as it is called in print."""


NAMES = ("kind", "quantity", "one", "other", "scope", "unit")
COEFFICIENTS = ("spearman", "pearson", "within")


@dataclass(frozen=True, eq=False)
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
    n, units, and spearman, pearson and within (`within_models`), each also with _low and _high.
    """
    rows = [agreement_row(pair, grid.runs) for pair in pairs_of(grid)]
    numbers = [f"{name}{end}" for name in COEFFICIENTS for end in ("", "_low", "_high")]
    return pd.DataFrame(rows, columns=[*NAMES, "n", "units", *numbers])


def pairs_of(grid: Grid) -> list[Pair]:
    """Everything that is correlated."""
    return [
        *technique_pairs(grid, M_COG),
        *technique_pairs(grid, LAYER_WEIGHTS),
        *model_pairs(grid, M_COG),
        *model_pairs(grid, LAYER_WEIGHTS),
        *event_pairs(grid),
        *score_pairs(grid),
    ]


def agreement_row(pair: Pair, runs: pd.DataFrame) -> dict[str, Any]:
    """A row of `agreement_table`; `runs` are those of the grid."""
    found = mean_correlation([pair.points])
    pooled = pair.unit == "runs" and pair.scope == ALL_MODELS
    within = within_models(pair.points, runs) if pooled else None
    alone = (None, None) if within is None else (within.spearman, within.spearman_interval)
    return {
        **{name: getattr(pair, name) for name in NAMES},
        **{"n": found.n, "units": found.units},
        **with_ends("spearman", found.spearman, found.spearman_interval),
        **with_ends("pearson", found.pearson, found.pearson_interval),
        **with_ends("within", *alone),
    }


def within_models(points: Points, runs: pd.DataFrame) -> Correlation | None:
    """Spearman's ρ in single models, averaged; None if fewer than two models have points.

    Where runs of several models are put together, things that differ between models seem to go
    together even if within each model they do not.
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


def with_ends(name: str, value: float | None, interval: Interval | None) -> dict[str, float]:
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
    places = relative_depth(np.arange(1, depth + 1), max(1, depth))
    parts = []
    for (task, technique, model), rows in weights.groupby(["task", "technique", "model"]):
        ordered = rows.sort_values("layer")
        own = relative_depth(ordered["layer"], ordered["layers"])
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
