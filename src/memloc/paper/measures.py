"""What the claims are decided by: one function per kind of measurement.

Control models (section 3.2), layers (section 4), movement of examples (section 5), and tasks with
all their classes against the same with two (appendix C).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.correlation import (
    FEWEST,
    correlate,
    interval_of,
    interval_of_mean,
    mean_correlation,
)
from memloc.analysis.events import HALFWAY, LOCAL, largest_steps
from memloc.paper.numbers import (
    LAYERS_TO_REVERT,
    PAPER_LAYERS,
    SINGLE_LAYER_ERROR,
    TABLE_2,
    TASK_M_COG,
    of_pair,
)
from memloc.paper.verdicts import Evidence, Measured, of_correlation
from memloc.report.figures.looks import short_name
from memloc.results.agreement import (
    ALL_MODELS,
    DEPTHS,
    IN_PRINT,
    M_COG,
    SCORES,
    TECHNIQUE,
    Binarised,
    Pair,
    mean_centres,
    model_pairs,
)
from memloc.results.grid import UNMODIFIED

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


SURE, UNSURE = ("swapping", "retraining"), ("gradients", "probing")
NO_CONTROL = "needs results of `memloc control`"
UNIT = "control models"


def control_accuracy(technique: str) -> Measure:
    """accuracy@1 of a technique; the lower bound is chance."""

    def measure(evidence: Evidence) -> Measured:
        if evidence.control is None:
            return Measured(missing=NO_CONTROL)
        rows = evidence.control.accuracy
        rows = rows[(rows["technique"] == technique) & (rows["k"] == 1)].dropna(subset="accuracy")
        if rows.empty:
            return Measured(missing=f"needs {technique} in `memloc control`")
        cells = rows.groupby(["model", "task", "hidden"])[["accuracy", "chance"]].mean()
        chance = float(cells["chance"].mean())
        return Measured(
            float(cells["accuracy"].mean()),
            len(rows),
            len(cells),
            UNIT,
            interval_of_mean(cells["accuracy"].to_numpy()),
            bounds=(chance, 1.0),
            words=f"by chance {chance:.2f}",
        )

    return measure


def surer_than_others(evidence: Evidence) -> Measured:
    """accuracy@1 of swapping and retraining minus that of gradients and probing."""
    if evidence.control is None:
        return Measured(missing=NO_CONTROL)
    rows = evidence.control.accuracy
    rows = rows[rows["k"] == 1].dropna(subset="accuracy")
    wide = rows.pivot_table(
        index=["model", "task", "hidden"], columns="technique", values="accuracy"
    )
    if not {*SURE, *UNSURE} <= set(wide.columns):
        return Measured(missing="needs all four techniques in `memloc control`")
    gap = (wide[list(SURE)].mean(axis=1) - wide[list(UNSURE)].mean(axis=1)).dropna().to_numpy()
    value = float(gap.mean()) if len(gap) else None
    return Measured(value, len(gap), len(gap), UNIT, interval_of_mean(gap))


def best_post_processing(evidence: Evidence) -> Measured:
    """accuracy@2 of gradients by L1 with both corrections, minus that of the best other choice."""
    if evidence.control is None:
        return Measured(missing=NO_CONTROL)
    rows = evidence.control.gradient_choices
    wide = rows[rows["k"] == 2].pivot_table(
        index=["model", "task", "hidden"],
        columns=["norm", "subtract_clean", "divide_by_frozen"],
        values="accuracy",
    )
    chosen = ("L1", True, True)
    if chosen not in wide.columns:
        return Measured(missing="needs gradients, divided by the frozen model, in `memloc control`")
    means = wide.mean()
    best: Any = means.drop(index=[chosen]).idxmax()
    gap = (wide[chosen] - wide[best]).dropna().to_numpy()
    done = zip(best, (best[0], "clean subtracted", "divided by frozen"), strict=True)
    parts = [words for is_done, words in done if is_done]
    return Measured(
        float(gap.mean()) if len(gap) else None,
        len(gap),
        len(gap),
        UNIT,
        interval_of_mean(gap),
        words=f"accuracy@2 {means[chosen]:.2f}; best other {means[best]:.2f}: {', '.join(parts)}",
    )


NO_CENTROIDS = "needs the centroid analysis of `memloc run`"
HOUR = 3600


def movement_is_gradual(evidence: Evidence) -> Measured:
    """Share of the runs in which no layer makes more than half of the noisy mean's way."""
    rows = evidence.grid.positions
    shares = {}
    deep = rows[(rows["state"] == UNMODIFIED) & (rows["layers"] >= SHALLOW)]
    for run, course in deep.groupby("run"):
        means = course.sort_values("layer")["mean"].to_numpy()
        shares[run] = float(largest_steps(means[:, None])[1][0])
    known = pd.Series(shares, dtype="float64").dropna()
    if known.empty:
        return Measured(missing=NO_CENTROIDS)
    words = f"largest step {known.mean():.0%} of the way on average"
    return over_runs((known <= LOCAL).astype(float), words)


def swap_prevents_crossing(half: str) -> Measure:
    """Share of the runs whose noisy mean stays with the original class after swapping a half.

    Among those in which it does not stay there by itself.
    """

    def measure(evidence: Evidence) -> Measured:
        rows = evidence.grid.positions
        last = rows[rows["layer"] == rows["layers"]].pivot(
            index="run", columns="state", values="mean"
        )
        if f"{half}_swapped" not in last or UNMODIFIED not in last:
            return Measured(missing=NO_CENTROIDS)
        moved = last[last[UNMODIFIED] < HALFWAY].dropna(subset=f"{half}_swapped")
        return over_runs((moved[f"{half}_swapped"] >= HALFWAY).astype(float))

    return measure


def events_agree(one: str, other: str) -> Measure:
    """ρ of the depths of two events."""

    def measure(evidence: Evidence) -> Measured:
        found = from_table(evidence, "events", {one, other}, "depth")
        return _say_what_is_missing(evidence, {one, other}, found)

    return measure


def depth_goes_with(depth: str, score: str) -> Measure:
    """One line of Table 2: all models together, and each of them in the details."""

    def measure(evidence: Evidence) -> Measured:
        found = from_table(evidence, "generalisation", {depth, score}, "depth")
        details = []
        for model in evidence.grid.models if len(evidence.grid.models) > 1 else []:
            own = from_table(evidence, "generalisation", {depth, score}, "depth", model)
            theirs = TABLE_2[depth, score].get(short_name(model) or "")
            detail = {"model": model, "spearman": own.value, "n": own.n}
            details.append(detail | ({} if theirs is None else {"paper": theirs}))
        if evidence.grid.runs[score].isna().all():
            return Measured(missing=f"no run has a {IN_PRINT[score]}")
        found = replace(found, details=tuple(details))
        return _say_what_is_missing(evidence, {depth}, found)

    return measure


def deeper_with_generalisation(evidence: Evidence) -> Measured:
    """The lowest of the correlations of Table 2, if all can be measured."""
    table = evidence.agreement
    rows = table[(table["kind"] == "generalisation") & (table["scope"] == ALL_MODELS)]
    known = rows.dropna(subset="spearman")
    all_of_them = len(DEPTHS) * len(SCORES)
    if len(known) < all_of_them:
        most = int(rows["n"].max()) if len(rows) else 0
        return Measured(
            missing=f"{len(known)} of {all_of_them} are known; takes {FEWEST} runs with both "
            f"scores and all depths, there are at most {most}"
        )
    lowest = known.sort_values("spearman").iloc[0]
    low, high = float(lowest["spearman_low"]), float(lowest["spearman_high"])
    interval = None if pd.isna(low) else (low, high)
    return Measured(
        float(lowest["spearman"]),
        int(known["n"].min()),
        int(known["units"].min()),
        interval=interval,
        words=f"lowest: {IN_PRINT[lowest['one']]}, {IN_PRINT[lowest['other']]}",
    )


def deeper_models_event(event: str) -> Measure:
    """ρ over tasks: an event in the deepest models against its mean in the others."""

    def measure(evidence: Evidence) -> Measured:
        rows = evidence.grid.events
        rows = rows[rows["event"] == event].dropna(subset="depth")
        deepest = rows["layers"].max()
        deep = rows[rows["layers"] == deepest].groupby("task")["depth"].mean()
        others = rows[rows["layers"] < deepest].groupby("task")["depth"].mean()
        if others.empty:
            return Measured(unit="tasks", missing=f"needs {event} in models of different depth")
        both = pd.concat([deep, others], axis=1, join="inner")
        return of_correlation(correlate(both.iloc[:, 0], both.iloc[:, 1]), "tasks")

    return measure


def examples_take_several_layers(evidence: Evidence) -> Measured:
    """Share of the single examples of which no layer makes more than half of the way."""
    rows = evidence.grid.examples.dropna(subset="largest_step")
    if rows.empty:
        return Measured(missing=NO_CENTROIDS)
    gradual = (rows["largest_step"] <= LOCAL).astype(float).groupby(rows["run"]).mean()
    return over_runs(gradual, f"{len(rows)} examples")


def hours_per_pair(evidence: Evidence) -> Measured:
    """Computing time per model-task pair, all seeds and techniques together."""
    seconds = evidence.grid.runs["seconds"]
    if seconds.isna().all():
        return Measured(missing="no run has a table of costs")
    few, many = evidence.grid.runs["seeds"].agg(["min", "max"])
    seeds = f"{few}" if few == many else f"{few} to {many}"
    return over_runs(seconds / HOUR, f"seeds: {seeds}")


def _say_what_is_missing(evidence: Evidence, names: set[str], found: Measured) -> Measured:
    """Events that no run has, or that never happen in some runs, which drops these runs."""
    rows = evidence.grid.events
    names = names - {M_COG}
    absent = sorted(names - set(rows.dropna(subset="depth")["event"]))
    if absent and not found.n:
        return Measured(missing=f"no run has the event {' and '.join(absent)}")
    never = rows[rows["event"].isin(names) & rows["depth"].isna()]["run"].nunique()
    runs = "1 run" if never == 1 else f"{never} runs"
    words = (found.words, f"never happens in {runs}" if never else "")
    return replace(found, words="; ".join(part for part in words if part))


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
