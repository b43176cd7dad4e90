"""What the jobs of sweeps took, and how many floating-point operations they were.

Operations are those of memloc's cost model (`memloc.engine.plan`), as plans have them, with one
correction: it guesses the number of tokens from that of words, and here they are counted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from memloc.engine.dry_run import speed_job
from memloc.engine.job import Job, read_plan
from memloc.engine.local import LocalExecutor
from memloc.engine.progress import Progress
from memloc.engine.store.store import MANIFEST, Store

STATES = {"original": "θ_O", "memorised": "θ_M", "frozen": "frozen model"}
NAMES = {
    "states": "states of all layers",
    "window": "retrained windows",
    "split": "half-splits",
}
"""What jobs of a kind are called; others by their technique."""


def jobs_of(runs: Path, sweep: str) -> pd.DataFrame:
    """One row per job of a sweep that is done: task, model, step, seconds, flops.

    A sweep that was computed in parts (`--only`) has several plans.

    Args:
        runs: Folder with the store and the sweeps.
        sweep: Name of the sweep.
    """
    store = Store(runs / "store")
    folder = runs / "sweeps" / sweep
    plans = [read_plan(path) for path in sorted(folder.glob("plan*.json.gz"))]
    jobs = list({job.artefact: job for plan in plans for job in plan}.values())
    longer = _lengths(jobs, store)
    rows = []
    for job in jobs:
        manifest = store.root / job.kind / job.key / MANIFEST
        if not manifest.exists() or any(role.startswith("window:") for role in job.needs):
            continue  # what puts windows together has their time as its own
        seconds = json.loads(manifest.read_text(encoding="utf-8"))["costs"]["seconds"]
        task, model = job.title.rsplit("(", 1)[1].rstrip(")").split(", ")[:2]
        flops = job.cost * longer[_model(job)][job.needs["data"][1]]
        rows.append((task, Path(model).name, step_of(job), seconds, flops))
    return pd.DataFrame(rows, columns=["task", "model", "step", "seconds", "flops"])


def step_of(job: Job) -> str:
    """What a job is part of, for people."""
    if job.kind == "train":
        return STATES[job.identity["state"]]
    return NAMES.get(job.kind) or str(job.identity["technique"]).replace("_", " ")


def _lengths(jobs: list[Job], store: Store) -> dict[str, dict[str, float]]:
    """Operations of real texts as a multiple of what was guessed, by model and data."""
    found: dict[str, Any] = {}
    for model in dict.fromkeys(map(_model, jobs)):
        mine = [job for job in jobs if _model(job) == model]
        job = speed_job(mine[0], [job.needs["data"] for job in mine])
        with LocalExecutor(store, 1) as executor:
            executor.execute([job], Progress())
        found[model] = store.open(*job.artefact).json("speed.json")["longer"]
    return found


def _model(job: Job) -> str:
    return str(job.identity["model"]["fingerprint"])
