"""Measuring the claims of section 5: how examples move through layers, and what goes with it."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from memloc.analysis.correlation import FEWEST, correlate
from memloc.analysis.events import HALFWAY, LOCAL, largest_steps
from memloc.paper.claim_measures import SHALLOW, Measure, from_table, over_runs
from memloc.paper.numbers import TABLE_2
from memloc.paper.verdicts import Evidence, Measured, of_correlation
from memloc.report.figures.looks import short_name
from memloc.results.agreement import ALL_MODELS, DEPTHS, IN_PRINT, M_COG, SCORES
from memloc.results.grid import UNMODIFIED

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
