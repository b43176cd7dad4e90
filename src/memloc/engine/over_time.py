"""Memorisation over training time: which techniques look at checkpoints, and what they found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd

from memloc import text
from memloc.analysis.over_time import (
    Examined,
    checkpoint_layer_table,
    checkpoint_table,
    checkpoint_window_table,
)
from memloc.config import TechniqueSettings
from memloc.engine.job import Job
from memloc.engine.plan import RunPlan
from memloc.tables import CHECKPOINT_LAYERS, CHECKPOINT_WINDOWS, checkpoints_of
from memloc.techniques import Circumstances, Technique, at_checkpoints, make, possible_explanations

if TYPE_CHECKING:
    from memloc.engine.store.store import Store

NOTEWORTHY = 1.0
"""Work of the checkpoints, as a share of all other, from which on the user is told beforehand."""


def possible_at_checkpoints(
    there: Circumstances, settings: TechniqueSettings
) -> tuple[tuple[list[Technique], list[Technique]], list[str]]:
    """Techniques and explanations that can look at checkpoints.

    Args:
        there: Models and examples.
        settings: Of techniques, by name.

    Returns:
        Techniques and explanations, and a sentence on each technique that is not possible.
    """
    possible, reasons = [], []
    for name in at_checkpoints():
        technique = make(name, settings.get(name))
        reason = technique.obstacle(there)
        if reason is None:
            possible.append(technique)
        else:
            reasons.append(f"{name} does not look at checkpoints: {reason}")
    explanations, _ = possible_explanations(None, there, settings)
    return (possible, [one for one in explanations if one.at_checkpoints]), reasons


def checkpoint_jobs(plan: RunPlan) -> list[Job]:
    """The jobs that there would not be without checkpoints."""
    usual = {
        job.key
        for s in plan.seeds
        for job in (
            *s.trainings.values(),
            *s.parts,
            *s.techniques.values(),
            *s.explanations.values(),
        )
    }
    if plan.frozen is not None:
        usual.add(plan.frozen.key)
    return [job for job in plan.jobs if job.key not in usual]


def cost_words(
    plan: RunPlan, facts: dict[str, Any], done: Callable[[tuple[str, str]], bool]
) -> str | None:
    """What checkpoints cost, if that is much compared with the rest; None if it is not.

    Args:
        plan: Of a run with checkpoints.
        facts: On the model, as the job `model` finds them.
        done: Whether an artefact is in the store already.
    """
    more = checkpoint_jobs(plan)
    if all(done(job.artefact) for job in more):
        return None
    keys = {job.key for job in more}
    rest = sum(job.cost for job in plan.jobs if job.key not in keys)
    times = sum(job.cost for job in more) / rest if rest else 0.0
    if times < NOTEWORTHY:
        return None
    work = "as much work as" if times < 1.5 else f"{times:.0f} times the work of"
    epochs = len(plan.seeds[0].checkpoints)
    kept = sum(len(job.identity["snapshots"]) for s in plan.seeds for job in s.snapshots)
    weights = 4 * facts["trained_parameters"] * kept
    return (
        f"{epochs} checkpoints are about {work} the rest of this run, and their weights take about "
        f"{text.size(weights)}; fewer checkpoints cost less"
    )


def collect_checkpoints(
    plan: RunPlan, store: Store, history: pd.DataFrame | None
) -> dict[str, pd.DataFrame]:
    """The tables of all checkpoints whose jobs are in the store; empty without checkpoints."""
    found = []
    for jobs in plan.seeds:
        for epoch, at in jobs.checkpoints.items():
            accuracy = _accuracy(history, jobs.seed, epoch)
            if not accuracy:
                continue  # its training failed
            tables: dict[str, list[pd.DataFrame]] = {}
            for job in (*at.techniques.values(), *at.explanations.values()):
                if store.has(*job.artefact):
                    artefact = store.open(*job.artefact)
                    for name in ("layers", "windows", "centroids", "events"):
                        if f"{name}.parquet" in artefact.manifest["files"]:
                            tables.setdefault(name, []).append(artefact.table(f"{name}.parquet"))
            joined = {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}
            found.append(Examined(jobs.seed, epoch, accuracy, **joined))
    if not found:
        return {}
    weighted = at_checkpoints()
    made = (
        (checkpoints_of(weighted), checkpoint_table(found, weighted)),
        (CHECKPOINT_LAYERS, checkpoint_layer_table(found, weighted)),
        (CHECKPOINT_WINDOWS, checkpoint_window_table(found)),
    )
    return {schema.name: schema.frame(table, "run") for schema, table in made}


def checkpoint_costs(plan: RunPlan, store: Store) -> list[tuple[int, dict[str, float]]]:
    """By seed: what its checkpoints cost in all, beside the trainings and what a run has anyway."""
    own = {job.key for job in checkpoint_jobs(plan)}
    found = []
    for jobs in plan.seeds:
        spent = [
            store.open(*job.artefact).manifest["costs"]
            for at in jobs.checkpoints.values()
            for job in at.all
            if job.key in own and store.has(*job.artefact)
        ]
        if spent:
            sums = {k: sum(cost.get(k) or 0 for cost in spent) for k in ("seconds", "block_passes")}
            peak = max(cost.get("peak_memory_bytes") or 0 for cost in spent)
            found.append((jobs.seed, {**sums, "peak_memory_bytes": peak}))
    return found


def _accuracy(history: pd.DataFrame | None, seed: int, epoch: int) -> dict[str, float]:
    if history is None:
        return {}
    rows = history[
        (history["state"] == "memorised") & (history["seed"] == seed) & (history["epoch"] == epoch)
    ]
    return {str(k): float(v) for k, v in zip(rows["split"], rows["accuracy"], strict=True)}
