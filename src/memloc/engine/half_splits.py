"""Generalisation scores of a run: as many half-splits as are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.generalisation import (
    Splits,
    detection,
    memorisation_map,
    standard_error,
    task_score,
)
from memloc.config import Generalisation
from memloc.data.task import Task
from memloc.engine.job import Job
from memloc.engine.loop import Executor, Outcome
from memloc.engine.plan import each_once
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.tables import COSTS, MEMORISATION_MAP

FIRST_ROUND, NEXT_ROUND = 10, 5
"""Splits before it is asked whether they are enough, and between two such questions."""


@dataclass
class HalfSplits:
    """The half-splits of a run, of which perhaps not all are needed.

    Attributes:
        jobs: All that could be.
        config: How many are enough.
        task: The examples.
    """

    jobs: Sequence[Job]
    config: Generalisation
    task: Task
    used: int = field(init=False)
    enough: bool = False

    def __post_init__(self) -> None:
        """Some are needed in any case."""
        self.used = len(self.jobs)
        if self.config.standard_error is not None:
            self.used = min(self.used, FIRST_ROUND)

    @property
    def counted(self) -> Sequence[Job]:
        """Those that count."""
        return self.jobs[: self.used]

    def following(self, store: Store, progress: Progress) -> Sequence[Job]:
        """The next ones, or none if the standard error is small enough."""
        limit = self.config.standard_error
        if self.used == len(self.jobs) or limit is None or self.enough:
            return ()
        error = standard_error(read_splits(store, self.counted, self.task))
        if error < limit:
            self.enough = True
            enough = f"{self.used} half-splits of {self.task.name} are enough"
            progress.note(f"{enough}: standard error {error:.4f}")
            return ()
        following = self.jobs[self.used : self.used + NEXT_ROUND]
        self.used += len(following)
        return following


def further_rounds(executor: Executor, halves: Sequence[HalfSplits], progress: Progress) -> Outcome:
    """Compute splits until the standard error of all runs is small enough, or all are there.

    How many it takes depends on the first so many splits alone, in their order, not on how fast
    they are or which are in the store already.
    """
    found = Outcome()
    while jobs := [job for one in halves for job in one.following(executor.store, progress)]:
        found += executor.execute(each_once(jobs), progress)
    return found


def read_splits(store: Store, jobs: Sequence[Job], task: Task) -> Splits:
    """What was found for the splits that are in the store."""
    inside, target = [], []
    for job in jobs:
        if store.has(*job.artefact):
            found = store.open(*job.artefact).table("answers.parquet")
            inside.append(found["inside"].to_numpy())
            target.append(found["probability"].to_numpy())
    shape = (len(inside), len(task.train))
    return Splits(
        np.array(inside, dtype=bool).reshape(shape), np.reshape(target, shape), len(task.labels)
    )


def collect_splits(
    halves: HalfSplits, store: Store, tables: dict[str, pd.DataFrame]
) -> dict[str, Any] | None:
    """Add the memorisation map and its costs to the tables; return a summary, if there is one."""
    jobs, task = halves.counted, halves.task
    splits = read_splits(store, jobs, task)
    if not len(splits.inside):
        return None
    known = [name for name in MEMORISATION_MAP.columns if name in task.train]
    table = pd.concat([task.train[known], memorisation_map(splits)], axis=1)
    tables[MEMORISATION_MAP.name] = table = MEMORISATION_MAP.frame(table)
    spent = [store.open(*j.artefact).manifest["costs"] for j in jobs if store.has(*j.artefact)]
    row = {
        "seed": jobs[0].identity["seed"],
        "job": "generalisation",
        "seconds": round(sum(cost["seconds"] for cost in spent), 3),
        "peak_memory_bytes": max(cost["peak_memory_bytes"] for cost in spent),
    }
    costs = pd.concat([tables["costs"], pd.DataFrame([row])], ignore_index=True)
    tables["costs"] = COSTS.frame(costs, "run")
    return summarise(splits, table)


def summarise(splits: Splits, table: pd.DataFrame) -> dict[str, Any]:
    """Task score with its standard error, and how well wrong labels are found."""
    noisy = table["noisy"].to_numpy()
    # Of the same examples, so that the third is the difference of the first two.
    both = table["counterfactual_memorisation"].notna().to_numpy()
    scores = ("training_memorisation", "generalisation_score", "counterfactual_memorisation")
    return {
        "splits": len(splits.inside),
        "score": _finite(task_score(splits)),
        "standard_error": _finite(standard_error(splits)),
        "never_held_out": int((table["times_out"] == 0).sum()),
        "means": {
            kind: {name: _finite(float(table.loc[rows, name].mean())) for name in scores}
            for kind, rows in (("noisy", noisy & both), ("clean", ~noisy & both))
        },
        "share_noisy": float(noisy.mean()),
        "detection": detection(table, noisy),
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
