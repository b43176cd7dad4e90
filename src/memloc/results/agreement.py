"""Do techniques agree, do models agree, and what goes with deep memorisation?

Figures 8 and 9 (techniques × techniques, models × models; M-CoG and layer weights), correlations of
events in section 5, and Table 2. How correlations are computed: `memloc.analysis.correlation`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.correlation import RESAMPLES, Correlation, Interval, Points, mean_correlation
from memloc.config import DEFAULT_TECHNIQUES
from memloc.results.folders import ResultsError
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


NAMES = ("kind", "quantity", "one", "other", "scope")
COEFFICIENTS = ("spearman", "pearson", "within")


@dataclass(frozen=True, eq=False)
class Pair:
    """Two things that are compared, and the points to compare them by.

    Attributes:
        kind: techniques, models, events or generalisation.
        quantity: What they are compared by.
        one: One of them.
        other: The other.
        scope: Which runs.
        parts: The points, whose units are tasks; models have one part per technique, and
            correlations of the parts are averaged.
        models: Where runs of several models are put together, the model of every point.
    """

    kind: str
    quantity: str
    one: str
    other: str
    scope: str
    parts: tuple[Points, ...]
    models: Sequence[str] = ()

    def correlation(self, resamples: int = RESAMPLES) -> Correlation:
        """The mean over the parts."""
        return mean_correlation(self.parts, resamples)

    def of_single_models(self) -> list[Points]:
        """The points of each model; none if there are fewer than two models.

        Where runs of several models are put together, things that differ between models seem to go
        together even if within each model they do not.
        """
        if not self.models:
            return []
        points, models = self.parts[0], np.array(self.models)
        one, other, tasks = (np.asarray(side) for side in (points.one, points.other, points.units))
        known = np.isfinite(one) & np.isfinite(other)
        mine = [known & (models == name) for name in sorted(set(models[known]))]
        parts = [Points(one[own], other[own], tasks[own].tolist()) for own in mine]
        return parts if len(parts) > 1 else []


def choose_models(grid: Grid, models: Sequence[str] | None = None) -> tuple[Grid, Grid]:
    """The runs that are put together, and the same with models of another depth.

    Args:
        grid: The results.
        models: Only these, put together whatever their depth. By default those of the depth that
            most runs have (of the shallower models, if it is a tie); others are only compared with
            them.

    Raises:
        ResultsError: If one of them has no run.
    """
    runs, names = grid.runs, grid.group.runs
    if models is not None:
        absent = [name for name in models if name not in grid.models]
        if absent:
            raise ResultsError(
                "no run has this model",
                setting="models",
                value=", ".join(absent),
                remedy=f"there are {', '.join(grid.models)}",
            )
        named = grid.with_runs(name for name in names if name[1] in models)
        return named, named
    most = runs["layers"].value_counts().sort_index().idxmax()
    others = runs[runs["layers"] != most].groupby("model")["layers"].first()
    if others.empty:
        return grid, grid
    listed = ", ".join(f"{name} ({depth} layers)" for name, depth in others.items())
    remark = f"Not put together with the others, as they have another depth: {listed}."
    together = grid.with_runs((name for name in names if name[1] not in others.index), remark)
    return together, grid.with_runs(names, remark)


def agreement_table(grid: Grid, models: Sequence[str] | None = None) -> pd.DataFrame:
    """All correlations, one row each; NaN where there are fewer than four points.

    Columns: kind (techniques, models, events, generalisation), quantity, one, other, scope, n,
    units (tasks), and spearman, pearson and within (the mean of single models), each also with _low
    and _high. Models are compared by pairs, whatever their depth; all else is over the models that
    `choose_models` puts together.
    """
    rows = [agreement_row(pair) for pair in pairs_of(*choose_models(grid, models))]
    numbers = [f"{name}{end}" for name in COEFFICIENTS for end in ("", "_low", "_high")]
    return pd.DataFrame(rows, columns=[*NAMES, "n", "units", *numbers])


def pairs_of(grid: Grid, of_all_depths: Grid) -> list[Pair]:
    """Everything that is correlated; models also with those of another depth."""
    return [
        *technique_pairs(grid, M_COG),
        *technique_pairs(grid, LAYER_WEIGHTS),
        *model_pairs(of_all_depths, M_COG),
        *model_pairs(of_all_depths, LAYER_WEIGHTS),
        *event_pairs(grid),
        *score_pairs(grid),
    ]


def agreement_row(pair: Pair) -> dict[str, Any]:
    """A row of `agreement_table`."""
    found, alone = pair.correlation(), mean_correlation(pair.of_single_models())
    return {
        **{name: getattr(pair, name) for name in NAMES},
        **{"n": found.n, "units": found.units},
        **with_ends("spearman", found.spearman, found.spearman_interval),
        **with_ends("pearson", found.pearson, found.pearson_interval),
        **with_ends("within", alone.spearman, alone.spearman_interval),
    }


def with_ends(name: str, value: float | None, interval: Interval | None) -> dict[str, float]:
    """A number with the ends of its interval; NaN is what is not known."""
    low, high = interval or (math.nan, math.nan)
    return {name: math.nan if value is None else value, f"{name}_low": low, f"{name}_high": high}


def technique_pairs(grid: Grid, quantity: str) -> list[Pair]:
    """Every pair of techniques; points are runs, or layers of runs.

    M-CoG is relative to the depth. Weights are min-max normalised per technique among the models
    of the same depth, as those of some techniques sum to 1 and are smaller the more layers.
    """
    place = ["run", "task", "model"]
    if quantity == M_COG:
        wide = grid.centres.pivot(index=place, columns="technique", values="depth")
    else:
        weights = grid.weights.assign(weight=_min_max(grid.weights, ["technique", "layers"]))
        wide = weights.pivot(index=[*place, "layer"], columns="technique", values="weight")
    return [
        _pair("techniques", quantity, one, other, wide)
        for one, other in combinations([t for t in grid.techniques if t in wide], 2)
    ]


def model_pairs(grid: Grid, quantity: str, techniques: Sequence[str] | None = None) -> list[Pair]:
    """Every pair of models; points are tasks (× layers) that both have, technique by technique.

    Techniques put their weight at different depths. If their points were put together, this alone
    would make models agree.

    Args:
        grid: The results.
        quantity: `M_COG` or `LAYER_WEIGHTS`; these are min-max normalised per model and technique,
            and those of the deeper model are interpolated at the relative depths of the other's
            layers.
        techniques: Only these; by default those of the paper, or all if there are none of these.
    """
    found = []
    for one, other in combinations(grid.models, 2):
        if quantity == M_COG:
            wide = grid.centres.pivot(index=["task", "technique"], columns="model", values="depth")
        else:
            wide = _profiles(grid.weights, one, other)
        parts = [
            _points(rows, one, other)
            for technique, rows in wide.groupby("technique")
            if technique in (techniques or _usual(grid.techniques))
        ]
        found.append(Pair("models", quantity, one, other, "shared tasks", tuple(parts)))
    return found


def event_pairs(grid: Grid) -> list[Pair]:
    """Events of centroids against events of probes; points are runs."""
    depths = _per_run(grid)
    return [_pair("events", "depth", one, other, depths) for one, other in EVENT_PAIRS]


def score_pairs(grid: Grid) -> list[Pair]:
    """Table 2: how deep a task is memorised against how well it is generalised."""
    table = _per_run(grid)
    scopes = {ALL_MODELS: table}
    if len(grid.models) > 1:
        models = table.index.get_level_values("model")
        scopes |= {model: table[models == model] for model in grid.models}
    return [
        _pair("generalisation", "depth", depth, score, rows, scope)
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
    names = _usual([technique for technique in grid.techniques if technique in wide])
    choices = [choice for size in range(len(names), 0, -1) for choice in combinations(names, size)]
    if not choices:
        return pd.Series(dtype="float64"), ()
    best = max(choices, key=lambda choice: len(wide[list(choice)].dropna()) * len(choice))
    return wide[list(best)].dropna().mean(axis=1), best


def _usual(techniques: Sequence[str]) -> list[str]:
    """The techniques of the paper among these, or all of them if there are none."""
    return [name for name in techniques if name in DEFAULT_TECHNIQUES] or list(techniques)


def _per_run(grid: Grid) -> pd.DataFrame:
    """Depth of the events and of M-CoG, and the scores, by run, task and model."""
    events = grid.events.pivot(index="run", columns="event", values="depth")
    scores = grid.runs.set_index("run")[list(SCORES)]
    table = pd.concat([scores, events, mean_centres(grid)[0].rename(M_COG)], axis=1).sort_index()
    wanted = {name for pair in EVENT_PAIRS for name in pair} | {*DEPTHS, *SCORES}
    table = table.reindex(columns=sorted(wanted)).astype("float64")
    named = grid.runs.set_index("run")[["task", "model"]]
    return table.join(named).set_index(["task", "model"], append=True)


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


def _pair(
    kind: str, quantity: str, one: str, other: str, wide: pd.DataFrame, scope: str = ALL_MODELS
) -> Pair:
    """Two columns of a table with one row per run, or per layer of a run."""
    models = wide.index.get_level_values("model").tolist() if scope == ALL_MODELS else ()
    return Pair(kind, quantity, one, other, scope, (_points(wide, one, other),), models)


def _points(wide: pd.DataFrame, one: str, other: str) -> Points:
    """Two columns of a table; a column that does not exist is missing throughout."""
    both = wide.reindex(columns=[one, other]).to_numpy(dtype=float)
    return Points(both[:, 0], both[:, 1], wide.index.get_level_values("task").tolist())
