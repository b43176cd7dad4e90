"""What the claims are decided by: one function per kind of measurement.

Every function takes the evidence and the arguments that `claims.yaml` gives it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.centroids import HALFWAY, LOCAL, largest_steps
from memloc.analysis.correlation import (
    FEWEST,
    Correlation,
    Interval,
    Points,
    compare_correlations,
    correlate,
    interval_of,
    interval_of_difference,
    interval_of_mean,
    interval_of_share,
    mean_correlation,
    means_of_units,
)
from memloc.analysis.generalisation import GUESSES
from memloc.paper.binarised import TECHNIQUE, Binarised, compare_twins
from memloc.paper.tasks import PAPER_TASKS
from memloc.results.agreement import (
    ALL_MODELS,
    DEPTHS,
    IN_PRINT,
    LAYER_WEIGHTS,
    M_COG,
    SCORES,
    Pair,
    agreement_row,
    choose_models,
    mean_centres,
    model_pairs,
    pairs_of,
)
from memloc.results.grid import UNMODIFIED, VALIDATION_SCORES, Grid
from memloc.text import counted, listed

FEWEST_NOISY = 15
"""A run with fewer noisy examples moves in steps too large for a verdict."""
PAPER_LAYERS = 12
"""Depth of the paper's four main models."""
MODIFYING = ["swapping", "retraining"]
"""Techniques that change layers and see what becomes of the flipped labels."""
OTHERS = ["gradients", "probing"]
HALF = 0.5
SHALLOW = 4
"""Models with fewer layers say nothing about whether layers share the work."""
HOUR = 3600
STATES = {"original": "θ_O", "memorised": "θ_M"}
"""Whose validation score it is."""
NO_CENTROIDS = "needs the centroid analysis of `memloc run`"
CONTROL_MODEL = ["model", "task", "hidden"]


class CannotMeasure(Exception):
    """What a measurement needs is not there; the message says what."""


@dataclass(frozen=True)
class Evidence:
    """What claims are measured by: the runs, and what follows from them.

    Attributes:
        grid: The runs that are put together.
        of_all_depths: The same, and those of models of another depth.
        models: Only these models, of whatever depth; None takes those of one depth.
        enough_noisy: Whether the runs have enough noisy examples for a verdict.
    """

    grid: Grid
    of_all_depths: Grid
    models: tuple[str, ...] | None = None
    enough_noisy: bool = True

    @cached_property
    def pairs(self) -> dict[tuple[str, str, frozenset[str]], Pair]:
        """What is correlated over all models, by kind, quantity and the two names."""
        return {
            (pair.kind, pair.quantity, frozenset((pair.one, pair.other))): pair
            for pair in pairs_of(self.grid, self.grid)
            if pair.scope == ALL_MODELS
        }

    @cached_property
    def binarised(self) -> Binarised | None:
        """The same tasks with all their classes and with two; None if there are no such runs."""
        return compare_twins(self.grid)

    def tasks(self, runs: pd.Index) -> list[str]:
        """The task of each run."""
        return [str(task) for task in self.grid.runs.set_index("run").loc[runs, "task"]]

    def control(self, name: str, missing: str, k: int) -> pd.DataFrame:
        """The rows of a table of the control benchmarks in the same folder, at a k."""
        if not self.grid.control:
            raise CannotMeasure("needs results of `memloc control`")
        if name not in self.grid.control:
            raise CannotMeasure(missing)
        rows = self.grid.control[name]
        if self.models is None:
            depths = rows["n_layers"]
            rows = rows[depths == depths.value_counts().sort_index().idxmax()]
        else:
            rows = rows[rows["model"].isin(self.models)]
        return rows[rows["k"] == k].dropna(subset="accuracy")


def gather(grid: Grid, models: Sequence[str] | None = None) -> Evidence:
    """The evidence in some runs, perhaps of these models alone (`choose_models`).

    Runs with too few noisy examples do not count; if all have too few, there is no verdict.

    Raises:
        ResultsError: If a model has no run.
    """
    few = [
        name
        for name, run in grid.group.runs.items()
        if run.summary.get("noisy_examples", FEWEST_NOISY) < FEWEST_NOISY
    ]
    kept = set(grid.group.runs) - set(few)
    if few and kept:
        names = ", ".join(" ".join(name) for name in few)
        remark = f"Left out, as they have fewer than {FEWEST_NOISY} noisy examples: {names}."
        grid = grid.with_runs(kept, remark)
    chosen = None if models is None else tuple(models)
    return Evidence(*choose_models(grid, models), chosen, enough_noisy=bool(kept))


@dataclass(frozen=True)
class Measured:
    """What was found here.

    Attributes:
        value: None if it cannot be measured.
        n: How many observations are behind it.
        tasks: How many tasks these are of. Tasks are what is independent.
        unit: What the observations are.
        interval: 95%, with tasks as units.
        within: A correlation in single models, averaged, if there are several.
        choices: Where the paper leaves open what it measured: the same for each choice.
        bounds: Values that agree with the paper, where this depends on the depth of the models; of
            control models, chance and 1.
        words: What else to know, in a few words.
    """

    value: float | None = None
    n: int = 0
    tasks: int = 0
    unit: str = "runs"
    interval: Interval | None = None
    within: Measured | None = None
    choices: Mapping[str, Measured] = field(default_factory=dict)
    bounds: Interval | None = None
    words: str = ""


def _mean(
    values: pd.Series[float], tasks: Sequence[str], words: str = "", unit: str = "runs"
) -> Measured:
    """The mean over tasks of one value per run (or another observation)."""
    known = values.notna().to_numpy()
    names = [task for task, is_known in zip(tasks, known, strict=True) if is_known]
    means = means_of_units(values.to_numpy(dtype=float)[known], names)
    value = float(means.mean()) if len(means) else None
    return Measured(value, len(names), len(means), unit, interval_of_mean(means), words=words)


def _share(
    values: pd.Series[float], tasks: Sequence[str], words: str = "", unit: str = "runs"
) -> Measured:
    """The share of the tasks in which something is so; a task counts by the share of its runs."""
    found = _mean(values, tasks, words, unit)
    return replace(found, interval=interval_of_share(means_of_units(values.to_numpy(), tasks)))


def _of_correlation(found: Correlation, unit: str, words: str = "") -> Measured:
    """Spearman's ρ."""
    interval = found.spearman_interval
    return Measured(found.spearman, found.n, found.units, unit, interval, words=words)


def _of_row(row: Mapping[Any, Any], column: str, unit: str, scale: float = 1) -> Measured:
    """A number of a table that also has the ends of its interval, n and the number of tasks."""
    value, low, high = (row[f"{column}{end}"] * scale for end in ("", "_low", "_high"))
    interval = None if math.isnan(low) else (low, high)
    known = None if math.isnan(value) else value
    return Measured(known, row["n"], row["units"], unit, interval)


# Control models (section 3.2)


def control_accuracy(evidence: Evidence, technique: str) -> Measured:
    """accuracy@1 of a technique; the lower bound is chance."""
    rows = evidence.control("accuracy", "", 1)
    rows = rows[rows["technique"] == technique]
    if rows.empty:
        raise CannotMeasure(f"needs {technique} in `memloc control`")
    cells = rows.groupby(CONTROL_MODEL)[["accuracy", "chance"]].mean()
    chance = float(cells["chance"].mean())
    tasks = cells.index.get_level_values("task").tolist()
    found = _share(cells["accuracy"], tasks, f"by chance {chance:.2f}", "control models")
    return replace(found, bounds=(chance, 1.0))


def surer_than_others(evidence: Evidence) -> Measured:
    """accuracy@1 of swapping and retraining minus that of gradients and probing."""
    wide = evidence.control("accuracy", "", 1).pivot_table(
        index=CONTROL_MODEL, columns="technique", values="accuracy"
    )
    if not {*MODIFYING, *OTHERS} <= set(wide.columns):
        raise CannotMeasure("needs all four techniques in `memloc control`")
    gap = wide[MODIFYING].mean(axis=1) - wide[OTHERS].mean(axis=1)
    return _mean(gap, gap.index.get_level_values("task").tolist(), unit="control models")


def best_post_processing(evidence: Evidence) -> Measured:
    """accuracy@2 of gradients by L1 with both corrections, minus that of the best other choice."""
    missing = "needs gradients, divided by the frozen model, in `memloc control`"
    rows = evidence.control("gradient_choices", missing, 2)
    choice = ["norm", "subtract_clean", "divide_by_frozen"]
    wide = rows.pivot_table(index=CONTROL_MODEL, columns=choice, values="accuracy")
    chosen = ("L1", True, True)
    if chosen not in wide.columns:
        raise CannotMeasure(missing)
    means = wide.mean()
    best: Any = means.drop(index=[chosen]).idxmax()
    done = zip(best, (best[0], "clean subtracted", "divided by frozen"), strict=True)
    how = ", ".join(words for is_done, words in done if is_done)
    words = f"accuracy@2 {means[chosen]:.2f}; best other {means[best]:.2f}: {how}"
    tasks = wide.index.get_level_values("task").tolist()
    return _mean(wide[chosen] - wide[best], tasks, words, "control models")


# Layers (section 4)


def _modified(evidence: Evidence, column: str) -> pd.DataFrame:
    rows = evidence.grid.windows
    return rows[rows["technique"].isin(MODIFYING) & (rows["layers"] >= SHALLOW)].dropna(
        subset=column
    )


def single_layers_matter_little(evidence: Evidence, error: float) -> Measured:
    """Share of model-task pairs that keep most of what they memorised, whichever layer is modified.

    A layer of a model with fewer layers is a larger part of it, so errors count per twelfth of
    the depth.
    """
    rows = _modified(evidence, "single_layer")
    errors = rows["single_layer"] * rows["layers"] / PAPER_LAYERS
    few = (errors < error).astype(float).groupby(rows["run"]).mean()
    words = f"largest error per twelfth {errors.mean():.2f}" if len(rows) else ""
    return _share(few, evidence.tasks(few.index), words)


def layers_to_revert(evidence: Evidence, fewest: int, most: int) -> Measured:
    """Size from which on windows around some layer undo nearly everything, as share of depth."""
    rows = _modified(evidence, "layers_to_revert")
    sizes = (rows["layers_to_revert"] / rows["layers"]).groupby(rows["run"]).mean()
    found = _mean(sizes, evidence.tasks(sizes.index))
    if not len(rows):
        return found
    half_a_layer = float((HALF / rows.groupby("run")["layers"].first()).mean())
    low, high = fewest / PAPER_LAYERS - half_a_layer, most / PAPER_LAYERS + half_a_layer
    return replace(found, bounds=(low, high), words=f"agrees from {low:.2f} to {high:.2f}")


def clean_error(evidence: Evidence) -> Measured:
    """Clean examples lost while swapping, mean over all windows."""
    rows = evidence.grid.windows
    rows = rows[rows["technique"] == "swapping"]
    return _mean(rows["clean_error"], rows["task"].tolist())


def early_layers(evidence: Evidence) -> Measured:
    """Relative M-CoG of swapping and retraining; .5 is the middle."""
    rows = evidence.grid.centres
    depths = rows[rows["technique"].isin(MODIFYING)].groupby("run")["depth"].mean()
    early = int((depths < HALF).sum())
    words = f"below the middle in {early} of {len(depths)}" if len(depths) else ""
    return _mean(depths, evidence.tasks(depths.index), words)


def tasks_are_ordered_as_in_the_paper(evidence: Evidence, paper: Mapping[str, float]) -> Measured:
    """ρ between the paper's M-CoG of a task and ours, over the tasks we have in common.

    Models put their centres at different depths, so a mean over other models is another quantity:
    only tasks that all models have are compared.
    """
    depths, _ = mean_centres(evidence.grid)
    runs = evidence.grid.runs.set_index("run").loc[depths.index]
    wide = runs.assign(depth=depths).pivot_table(index="task", columns="model", values="depth")
    ours = wide.dropna().mean(axis=1)
    shared = [task for task in paper if task in ours.index]
    found = correlate([paper[task] for task in shared], ours[shared].to_numpy())
    return _of_correlation(found, "tasks of the paper")


def category_differs(evidence: Evidence, category: str, quantity: str) -> Measured:
    """By how many layers of 12 an event or M-CoG of a category's tasks is deeper than of others.

    Depths count from the mean of their model, so a task that some model lacks is not moved by it.
    """
    if quantity == M_COG:
        rows = mean_centres(evidence.grid)[0].rename("depth")
    else:
        events = evidence.grid.events
        rows = events[events["event"] == quantity].set_index("run")["depth"]
    runs = evidence.grid.runs.set_index("run")[["task", "model"]].join(rows.dropna(), how="inner")
    runs = runs[runs["task"].isin(PAPER_TASKS)]
    own = runs["depth"] - runs.groupby("model")["depth"].transform("mean")
    means = PAPER_LAYERS * own.groupby(runs["task"]).mean()
    mine = np.array([PAPER_TASKS[task].category == category for task in means.index], dtype=bool)
    if mine.sum() < 2 or (~mine).sum() < 2:
        raise CannotMeasure(f"needs two {category} tasks of the paper and two others")
    one, other = means[mine].to_numpy(), means[~mine].to_numpy()
    words = f"{len(one)} tasks against {len(other)}"
    interval = interval_of_difference(one, other)
    value = float(one.mean() - other.mean())
    return Measured(value, len(runs), len(means), interval=interval, words=words)


def probing_is_not_local(evidence: Evidence) -> Measured:
    """Share of the runs in which no layer has more than half of the probing weight."""
    rows = evidence.grid.weights
    by_run = rows[rows["technique"] == "probing"].groupby("run")["weight"]
    total, largest = by_run.sum(skipna=False), by_run.max()
    shares = (largest / total)[total > 0]
    words = f"largest layer has {shares.mean():.0%} on average" if len(shares) else ""
    return _share((shares <= HALF).astype(float), evidence.tasks(shares.index), words)


def probing_is_deeper(evidence: Evidence) -> Measured:
    """Relative M-CoG of probing minus that of swapping and retraining, in layers of 12."""
    wide = evidence.grid.centres.pivot(index="run", columns="technique", values="depth")
    others = [name for name in MODIFYING if name in wide]
    if "probing" not in wide or not others:
        raise CannotMeasure("needs probing, and swapping or retraining")
    gap = PAPER_LAYERS * (wide["probing"] - wide[others].mean(axis=1)).dropna()
    return _mean(gap, evidence.tasks(gap.index))


def middle_layers_matter_most(evidence: Evidence, layers: int) -> Measured:
    """Mean error of the middle third of the layers minus that of the outer third with more of it.

    By swapping windows of up to half of the layers, in models with at least so many layers.
    """
    gaps, tasks = [], []
    for (task, _), run in evidence.of_all_depths.group.runs.items():
        matrix = run.summary["techniques"].get("swapping", {}).get("error_by_size_and_layer")
        if run.n_layers >= layers and matrix is not None:
            small = np.array(matrix[: run.n_layers // 2], dtype=float)
            thirds = np.array_split(small.mean(axis=0), 3)
            lower, middle, upper = (float(third.mean()) for third in thirds)
            gaps.append(middle - max(lower, upper))
            tasks.append(task)
    if not gaps:
        raise CannotMeasure(f"needs swapping in a model of {layers} layers or more")
    return _mean(pd.Series(gaps), tasks)


def centres_depend_on_task(evidence: Evidence) -> Measured:
    """Share of the variance of M-CoG that lies between tasks, not between seeds."""
    rows = evidence.grid.seed_centres
    return _between_tasks(rows[rows["technique"].isin(MODIFYING)], ["depth"])


def probing_depends_on_task(evidence: Evidence) -> Measured:
    """The same for the course of probing: which share of the increase is in which layer."""
    rows = evidence.grid.seed_weights
    rows = rows[rows["technique"] == "probing"]
    total = rows.groupby(["run", "seed"])["weight"].transform("sum", skipna=False)
    rows = rows.assign(share=rows["weight"] / total.where(total > 0))
    identity = ["run", "task", "model", "technique", "seed"]
    wide = rows.pivot(index=identity, columns="layer", values="share")
    return _between_tasks(wide.reset_index(), list(wide.columns))


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
        raise CannotMeasure("needs four tasks with at least two seeds each")
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

    value = float(shares(np.ones((1, len(order))))[0])
    known, interval = None if math.isnan(value) else value, interval_of(shares, len(order))
    return Measured(known, len(runs), len(order), interval=interval, words="share of the variance")


# Correlations (sections 4 and 5, appendix B)


def correlation(
    evidence: Evidence, kind: str, one: str, other: str, quantity: str = "depth"
) -> Measured:
    """ρ of two things (`memloc.results.agreement`), and what is left of it in single models.

    The paper does not say which validation score it takes, so all of them are choices.
    """
    for score in SCORES:
        if score in (one, other) and evidence.grid.runs[score].isna().all():
            raise CannotMeasure(f"no run has a {IN_PRINT[score]}")
    found = _correlation(evidence, kind, one, other, quantity)
    if kind == "techniques":
        return found
    if other in VALIDATION_SCORES:
        found = _with_choices(
            evidence, found, lambda name: _correlation(evidence, kind, one, name, quantity)
        )
    # Events that no run has, or that some runs do not have, which drops these runs.
    events = evidence.grid.events
    names = {one, other} - {M_COG, *SCORES}
    absent = sorted(names - set(events.dropna(subset="depth")["event"]))
    if absent and not found.n:
        raise CannotMeasure(f"no run has the event {' and '.join(absent)}")
    without = events[events["event"].isin(names) & events["depth"].isna()]["run"].nunique()
    missing = f"missing in {counted(without, 'run')}" if without else ""
    return replace(found, words="; ".join(filter(None, (found.words, missing))))


def _with_choices(
    evidence: Evidence, found: Measured, measure: Callable[[str], Measured]
) -> Measured:
    """With what is measured by each validation score, and these values in words."""
    known = [name for name in VALIDATION_SCORES if evidence.grid.runs[name].notna().any()]
    choices = {name: measure(name) for name in known}
    values = {
        state: [
            "-" if choice.value is None else f"{choice.value:.2f}"
            for name, choice in choices.items()
            if f"_{state}_" in name
        ]
        for state in STATES
    }
    words = found.words
    if len({value for of_state in values.values() for value in of_state}) > 1:
        shown = " and ".join(
            f"{STATES[state]} {', '.join(of_state)}"
            for state, of_state in values.items()
            if of_state
        )
        words = f"{words}; {shown} by {listed(GUESSES)} guessing".lstrip("; ")
    return replace(found, choices=choices, words=words)


def _correlation(evidence: Evidence, kind: str, one: str, other: str, quantity: str) -> Measured:
    pair = evidence.pairs.get((kind, quantity, frozenset((one, other))))
    return Measured() if pair is None else of_pair(pair)


def of_pair(pair: Pair) -> Measured:
    """ρ of the points of all models, and within models; Pearson's r in words (Figures 8, 9)."""
    row = agreement_row(pair)
    unit = "layers of runs" if pair.quantity == LAYER_WEIGHTS else "runs"
    found, within = _of_row(row, "spearman", unit), _of_row(row, "within", unit)
    words = []
    if pair.kind == "techniques" and not math.isnan(row["pearson"]):
        words.append(f"Pearson's r {row['pearson']:.2f}")
    if within.value is None:
        return replace(found, words="; ".join(words))
    ends = "" if within.interval is None else " [{:.2f}, {:.2f}]".format(*within.interval)
    words.append(f"within models {within.value:.2f}{ends}")
    return replace(found, within=within, words="; ".join(words))


def models_agree(
    evidence: Evidence,
    quantity: str,
    technique: str | None = None,
    of_different_depth: bool = False,
) -> Measured:
    """Mean ρ over pairs of models, perhaps only those of different depth."""
    grid = evidence.of_all_depths if of_different_depth else evidence.grid
    depths = grid.runs.groupby("model")["layers"].first()
    pairs = model_pairs(grid, quantity, None if technique is None else [technique])
    if of_different_depth:
        pairs = [pair for pair in pairs if depths[pair.one] != depths[pair.other]]
    if not pairs:
        needed = "models of different depth" if of_different_depth else "at least two models"
        raise CannotMeasure(f"needs {needed}")
    known = sum(pair.correlation(resamples=0).spearman is not None for pair in pairs)
    found = mean_correlation([points for pair in pairs for points in pair.parts])
    words = [] if found.pearson is None else [f"Pearson's r {found.pearson:.2f}"]
    words += [f"{known} of {len(pairs)} pairs of models"] if len(pairs) > 1 else []
    unit = "tasks" if quantity == M_COG else "layers of tasks"
    return _of_correlation(found, unit, "; ".join(words))


def one_model_agrees_less(evidence: Evidence, model: str, quantity: str) -> Measured:
    """Mean ρ of a model with the others minus that of the others with each other."""
    pairs = model_pairs(evidence.grid, quantity)
    sides: dict[bool, list[Points]] = {True: [], False: []}
    for pair in pairs:
        sides[model in f"{pair.one} {pair.other}".lower()].extend(pair.parts)
    if not all(sides.values()):
        raise CannotMeasure(f"needs {model} and two other models of its depth")
    return _of_correlation(compare_correlations(sides[True], sides[False]), "tasks")


def deeper_models_event(evidence: Evidence, event: str) -> Measured:
    """ρ over tasks: an event in the deepest models against its mean in the others."""
    rows = evidence.of_all_depths.events
    rows = rows[rows["event"] == event].dropna(subset="depth")
    deepest = rows["layers"].max()
    deep = rows[rows["layers"] == deepest].groupby("task")["depth"].mean()
    others = rows[rows["layers"] < deepest].groupby("task")["depth"].mean()
    if others.empty:
        raise CannotMeasure(f"needs {event} in models of different depth")
    both = pd.concat([deep, others], axis=1, join="inner")
    return _of_correlation(correlate(both.iloc[:, 0], both.iloc[:, 1]), "tasks")


def _table_two(evidence: Evidence, validation: str) -> list[Pair]:
    """Every depth against both scores, over all models; one of the validation scores."""
    found = {
        (score, depth): evidence.pairs[("generalisation", "depth", frozenset((depth, score)))]
        for score in (SCORES[0], validation)
        for depth in DEPTHS
    }
    known = [pair for pair in found.values() if pair.correlation(resamples=0).spearman is not None]
    if len(known) < len(found):
        most = max(pair.correlation(resamples=0).n for pair in found.values())
        raise CannotMeasure(
            f"{len(known)} of {len(found)} are known; takes {FEWEST} runs with both "
            f"scores and all depths, there are at most {most}"
        )
    return known


def deeper_with_generalisation(evidence: Evidence) -> Measured:
    """The correlation of Table 2 whose interval reaches lowest, if all can be measured."""

    def lowest(validation: str) -> Measured:
        found = {pair: of_pair(pair) for pair in _table_two(evidence, validation)}
        pair = min(found, key=lambda one: (found[one].interval or (-1.0,))[0])
        return replace(
            found[pair],
            n=min(one.n for one in found.values()),
            tasks=min(one.tasks for one in found.values()),
            within=None,
            words=f"lowest: {IN_PRINT[pair.one]}, {IN_PRINT[pair.other]}",
        )

    return _with_choices(evidence, lowest(VALIDATION_SCORES[0]), lowest)


def stronger_per_model(evidence: Evidence) -> Measured:
    """Mean ρ of Table 2 in single models minus that over all models."""

    def gap(validation: str) -> Measured:
        pairs = _table_two(evidence, validation)
        alone = [points for pair in pairs for points in pair.of_single_models()]
        if not alone:
            raise CannotMeasure("needs at least two models")
        together = [points for pair in pairs for points in pair.parts]
        return _of_correlation(compare_correlations(alone, together), "tasks")

    return _with_choices(evidence, gap(VALIDATION_SCORES[0]), gap)


# Movement of examples (section 5), costs, single examples


def movement_is_gradual(evidence: Evidence) -> Measured:
    """Share of the runs in which no layer makes more than half of the noisy mean's way."""
    rows = evidence.grid.positions
    deep = rows[(rows["state"] == UNMODIFIED) & (rows["layers"] >= SHALLOW)].sort_values("layer")
    shares = {
        run: float(largest_steps(course["mean"].to_numpy()[:, None])[1][0])
        for run, course in deep.groupby("run")
    }
    known = pd.Series(shares, dtype="float64").dropna()
    if known.empty:
        raise CannotMeasure(NO_CENTROIDS)
    words = f"largest step {known.mean():.0%} of the way on average"
    return _share((known <= LOCAL).astype(float), evidence.tasks(known.index), words)


def swap_prevents_crossing(evidence: Evidence, half: str) -> Measured:
    """Share of the runs whose noisy mean stays with the original class after swapping a half.

    Among those in which it does not stay there by itself.
    """
    rows = evidence.grid.positions
    last = rows[rows["layer"] == rows["layers"]].pivot(index="run", columns="state", values="mean")
    swapped = f"{half}_swapped"
    if swapped not in last or UNMODIFIED not in last:
        raise CannotMeasure(NO_CENTROIDS)
    moved = last[last[UNMODIFIED] < HALFWAY].dropna(subset=swapped)
    return _share((moved[swapped] >= HALFWAY).astype(float), evidence.tasks(moved.index))


def examples_take_several_layers(evidence: Evidence) -> Measured:
    """Share of the single examples of which no layer makes more than half of the way."""
    rows = evidence.grid.examples.dropna(subset="largest_step")
    if rows.empty:
        raise CannotMeasure(NO_CENTROIDS)
    gradual = (rows["largest_step"] <= LOCAL).astype(float).groupby(rows["run"]).mean()
    return _mean(gradual, evidence.tasks(gradual.index), f"{len(rows)} examples")


def hours_per_pair(evidence: Evidence) -> Measured:
    """Computing time per model-task pair, all seeds and techniques together."""
    runs = evidence.grid.runs
    if runs["seconds"].isna().all():
        raise CannotMeasure("no run has a table of costs")
    few, many = runs["seeds"].agg(["min", "max"])
    seeds = f"{few}" if few == many else f"{few} to {many}"
    return _mean(runs["seconds"] / HOUR, runs["task"].tolist(), f"seeds: {seeds}")


# Tasks with all their classes against the same with two (appendix C)


def with_two_classes(evidence: Evidence, quantity: str, column: str, unit: int = 1) -> Measured:
    """One column of `Binarised.comparison`; shares of the depth times `unit`."""
    found = evidence.binarised
    if found is None:
        raise CannotMeasure(_needed_for_twins(evidence.grid))
    rows = {row["quantity"]: row for row in found.comparison.to_dict("records")}
    if quantity not in rows:
        lacking = f"results of {TECHNIQUE}" if quantity == M_COG else f"the event {quantity}"
        raise CannotMeasure(f"needs {lacking} with all classes and with two")
    row = rows[quantity]
    unknown = f"missing in {row['missing']} of {row['n'] + row['missing']} pairs"
    words = unknown if row["missing"] else ""
    return replace(_of_row(row, column, "pairs of runs", unit), words=words)


def _needed_for_twins(grid: Grid) -> str:
    used = grid.group
    if not used.binarised and all(0 < run.n_classes <= 2 for run in used.runs.values()):
        return "needs tasks with more than two classes"
    how = "without" if used.binarised else "with"
    return f"needs runs of the same tasks {how} binarising, otherwise with the same settings"
