"""Measuring the claims of section 4: where memorisation is, by the techniques."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.correlation import (
    correlate,
    interval_of,
    interval_of_mean,
    mean_correlation,
)
from memloc.paper.numbers import (
    LAYERS_TO_REVERT,
    PAPER_LAYERS,
    SINGLE_LAYER_ERROR,
    TASK_M_COG,
    of_pair,
)
from memloc.paper.verdicts import Evidence, Measured, of_correlation
from memloc.results.agreement import (
    ALL_MODELS,
    M_COG,
    Pair,
    mean_centres,
    model_pairs,
)

MODIFYING = ("swapping", "retraining")
"""Techniques that change layers and see what becomes of the flipped labels."""
HALF = 0.5
SHALLOW = 4
"""Models with fewer layers say nothing about whether layers share the work."""

Measure = Callable[[Evidence], Measured]


def over_runs(values: pd.Series[float], words: str = "") -> Measured:
    """The mean of one value per run."""
    known = values.dropna().to_numpy(dtype=float)
    value = float(known.mean()) if len(known) else None
    return Measured(value, len(known), len(known), "runs", interval_of_mean(known), words=words)


def single_layers_matter_little(evidence: Evidence) -> Measured:
    """Share of model-task pairs that keep most of what they memorised, whichever layer is modified.

    A layer of a model with fewer layers is a larger part of it, so errors count per twelfth of
    the depth.
    """
    rows = _modified(evidence).dropna(subset="single_layer")
    errors = rows["single_layer"] * rows["layers"] / PAPER_LAYERS
    few = (errors < SINGLE_LAYER_ERROR).astype(float).groupby(rows["run"]).mean()
    return over_runs(few, f"largest error per twelfth {errors.mean():.2f}" if len(rows) else "")


def layers_to_revert(evidence: Evidence) -> Measured:
    """Size from which on windows around some layer undo nearly everything, as share of depth."""
    rows = _modified(evidence).dropna(subset="layers_to_revert")
    found = over_runs((rows["layers_to_revert"] / rows["layers"]).groupby(rows["run"]).mean())
    if not len(rows):
        return found
    half_a_layer = float((HALF / rows.groupby("run")["layers"].first()).mean())
    low, high = LAYERS_TO_REVERT[0] - half_a_layer, LAYERS_TO_REVERT[1] + half_a_layer
    return replace(found, bounds=(low, high), words=f"agrees from {low:.2f} to {high:.2f}")


def clean_error(evidence: Evidence) -> Measured:
    """Clean examples lost while swapping, mean over all windows."""
    rows = evidence.grid.windows
    return over_runs(rows[rows["technique"] == "swapping"]["clean_error"])


def early_layers(evidence: Evidence) -> Measured:
    """Relative M-CoG of swapping and retraining; .5 is the middle."""
    rows = evidence.grid.centres
    rows = rows[rows["technique"].isin(MODIFYING)]
    depths = rows.groupby("run")["depth"].mean()
    early = int((depths < HALF).sum())
    return over_runs(depths, f"below the middle in {early} of {len(depths)}" if len(depths) else "")


def centres_depend_on_task(evidence: Evidence) -> Measured:
    """Share of the variance of M-CoG that lies between tasks, not between seeds."""
    rows = evidence.grid.seed_centres
    return _between_tasks(rows[rows["technique"].isin(MODIFYING)], ["depth"])


def probing_depends_on_task(evidence: Evidence) -> Measured:
    """The same for the course of probing: which share of the increase is in which layer."""
    rows = evidence.grid.seed_weights
    rows = rows[rows["technique"] == "probing"]
    total = rows.groupby(["run", "seed"])["weight"].transform("sum")
    rows = rows.assign(share=(rows["weight"] / total.where(total > 0)))
    wide = rows.pivot(
        index=["run", "task", "model", "technique", "seed"], columns="layer", values="share"
    )
    layers = list(wide.columns)
    return _between_tasks(wide.reset_index(), layers)


def probing_is_not_local(evidence: Evidence) -> Measured:
    """Share of the runs in which no layer has more than half of the probing weight."""
    rows = evidence.grid.weights
    rows = rows[rows["technique"] == "probing"]
    by_run = rows.groupby("run")["weight"]
    total, largest = by_run.sum(), by_run.max()
    shares = (largest / total)[total > 0]
    words = f"largest layer has {shares.mean():.0%} on average" if len(shares) else ""
    return over_runs((shares <= HALF).astype(float), words)


def models_order_tasks_alike(evidence: Evidence) -> Measured:
    """Mean over pairs of models: ρ of the M-CoG of retraining over tasks."""
    return _mean_of_pairs(model_pairs(evidence.grid, M_COG, ["retraining"]), {})


def models_agree(quantity: str, paper: dict[tuple[str, str], float]) -> Measure:
    """Mean over pairs of models, with the pairs in the details."""
    return lambda evidence: _mean_of_pairs(model_pairs(evidence.grid, quantity), paper)


def deeper_models_agree(evidence: Evidence) -> Measured:
    """The same for the M-CoG of swapping in models of different depth."""
    depths = evidence.grid.runs.groupby("model")["layers"].first()
    pairs = model_pairs(evidence.grid, M_COG, ["swapping"])
    pairs = [pair for pair in pairs if depths[pair.one] != depths[pair.other]]
    if not pairs:
        return Measured(unit="tasks", missing="needs models of different depth")
    return _mean_of_pairs(pairs, {})


def techniques_agree(quantity: str, one: str, other: str) -> Measure:
    """ρ of two techniques, from the table of correlations."""
    return lambda evidence: from_table(evidence, "techniques", {one, other}, quantity)


def from_table(
    evidence: Evidence, kind: str, names: set[str], quantity: str, scope: str = ALL_MODELS
) -> Measured:
    """One row of the table of correlations."""
    table = evidence.agreement
    rows = table[(table["kind"] == kind) & (table["quantity"] == quantity)]
    for row in rows[rows["scope"] == scope].to_dict("records"):
        if {row["one"], row["other"]} == names:
            value = None if math.isnan(row["spearman"]) else row["spearman"]
            low, high = row["spearman_low"], row["spearman_high"]
            interval = None if math.isnan(low) else (low, high)
            found = Measured(value, row["n"], row["units"], row["unit"], interval)
            return _with_single_models(found, row)
    return Measured()


def _with_single_models(found: Measured, row: dict[Any, Any]) -> Measured:
    """With what is left of a correlation over models when each is looked at alone."""
    value, low, high = (row[f"within{end}"] for end in ("", "_low", "_high"))
    if math.isnan(value):
        return found
    words = f"within models {value:.2f}"
    if not math.isnan(low):
        words += f" [{low:.2f}, {high:.2f}]"
    return replace(found, within=(value, value if math.isnan(high) else high), words=words)


def tasks_are_ordered_as_in_the_paper(evidence: Evidence) -> Measured:
    """ρ between the paper's M-CoG of a task and ours, over the tasks we have in common.

    Models put their centres at different depths, so a mean over other models is another quantity:
    only tasks that all models have are compared.
    """
    depths, _ = mean_centres(evidence.grid)
    runs = evidence.grid.runs.set_index("run").loc[depths.index]
    wide = runs.assign(depth=depths).pivot_table(index="task", columns="model", values="depth")
    ours = wide.dropna().mean(axis=1)
    shared = [task for task in TASK_M_COG if task in ours.index]
    theirs = [TASK_M_COG[task] for task in shared]
    details = tuple(
        {"task": task, "depth": float(ours[task]), "paper_m_cog": TASK_M_COG[task]}
        for task in shared
    )
    found = correlate(theirs, [float(ours[task]) for task in shared])
    return of_correlation(found, "tasks of the paper", details=details)


def _modified(evidence: Evidence) -> pd.DataFrame:
    rows = evidence.grid.windows
    return rows[rows["technique"].isin(MODIFYING) & (rows["layers"] >= SHALLOW)]


def _mean_of_pairs(pairs: Sequence[Pair], paper: dict[tuple[str, str], float]) -> Measured:
    if not pairs:
        return Measured(unit="tasks", missing="needs at least two models")
    details = []
    for pair in pairs:
        single = mean_correlation([pair.points], resamples=0)
        detail = {"models": [pair.one, pair.other], "spearman": single.spearman, "n": single.n}
        theirs = of_pair(paper, pair.one, pair.other)
        details.append(detail | ({} if theirs is None else {"paper": theirs}))
    found = mean_correlation([pair.points for pair in pairs])
    known = [detail["spearman"] for detail in details if detail["spearman"] is not None]
    words = f"{len(known)} of {len(pairs)} pairs of models" if len(pairs) > 1 else ""
    return of_correlation(found, "tasks", words=words, details=tuple(details))


def _between_tasks(rows: pd.DataFrame, columns: list[str]) -> Measured:
    """Share of the variance between tasks among that between tasks and between seeds.

    Per model and technique, from the runs with several seeds; variances are added up. What seeds
    alone would make of the means of tasks is subtracted.
    """
    cells, runs, tasks = [], set(), set()
    for _, cell in rows.groupby(["model", "technique"]):
        # Layers a shallower model does not have are no observations.
        values = cell[["run", "task", *columns]].dropna(axis=1, how="all").dropna()
        by_run = values.groupby(["run", "task"])
        counts = by_run.size()
        counts = counts[counts > 1]
        if len(counts) < 2 or values.shape[1] < 3:
            continue
        means, variances = by_run.mean().loc[counts.index], by_run.var(ddof=1).loc[counts.index]
        names = list(counts.index.get_level_values("task"))
        cells.append((names, means.to_numpy(), variances.to_numpy(), 1 / counts.to_numpy()))
        runs |= set(counts.index.get_level_values("run"))
        tasks |= set(names)
    if not runs:
        return Measured(missing="needs four tasks with at least two --seeds each")
    order = sorted(tasks)

    def shares(drawn: np.ndarray) -> np.ndarray:
        """Of each sample of tasks, [samples, tasks]: how often each is drawn."""
        between = within = np.zeros(len(drawn))
        for names, means, variances, inverse in cells:
            weights = drawn[:, [order.index(name) for name in names]]
            n = np.maximum(weights.sum(axis=1, keepdims=True), 1)
            centred = means[None] - (weights @ means / n)[:, None]
            spread = (weights[:, :, None] * centred**2).sum(axis=1) / np.maximum(n - 1, 1)
            of_seeds = weights @ variances / n
            by_chance = of_seeds * (weights @ inverse[:, None] / n)
            between = between + (spread - by_chance).sum(axis=1)
            within = within + of_seeds.sum(axis=1)
        between = np.maximum(between, 0)
        with np.errstate(invalid="ignore"):
            return np.asarray(between / (between + within))

    found = float(shares(np.ones((1, len(order))))[0])
    return Measured(
        None if math.isnan(found) else found,
        len(runs),
        len(runs),
        interval=interval_of(shares, len(order)),
        words="share of the variance",
    )
