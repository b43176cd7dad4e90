"""What it cost, and what the paper's own grid would cost on a GPU.

The model: a job is so many floating-point operations (`memloc.engine.plan`), and a machine does
a share of what it does in a plain matrix product. That share is measured here per step; that a GPU
reaches the same share is an assumption, and so the page also shows a third of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from memloc.engine.dry_run import A100_PEAK
from reproduction.markdown import duration, number, table

GPUS = {
    "A100 (FP32)": A100_PEAK["float32"],
    "A100 (TF32)": A100_PEAK["tf32"],
    "H100 (FP32)": 67e12,
    "H100 (TF32)": 494e12,
}
"""Operations per second in dense matrix products, by the maker's data sheets."""
CAUTION = 3
"""A GPU that is fed small batches may reach so many times less of its peak."""
COUNTED = ("θ_O", "θ_M", "retrained windows", "half-splits")
"""Steps whose operations the cost model counts; those of others it only guesses."""
STEPS = {
    "train": ["θ_O", "θ_M"],
    "control": ["θ_O", "θ_M"],
    "window": ["retrained windows"],
    "split": ["half-splits"],
    "states": ["states of all layers"],
}
"""Measured steps a kind of jobs of the grid is calibrated by; others by all techniques together."""

OTHER_STEPS = {"frozen model", *(step for steps in STEPS.values() for step in steps)}


def cost_values(tables: Path) -> dict[str, str]:
    """Tables and numbers on costs, by the name the page uses."""
    jobs = pd.read_parquet(tables / "jobs.parquet")
    peak = json.loads((tables / "machine.json").read_text(encoding="utf-8"))["matmul_peak"]
    grid = json.loads((tables / "paper-grid.json").read_text(encoding="utf-8"))
    hours = {gpu: gpu_hours(grid, jobs, peak, top) for gpu, top in GPUS.items()}
    trained = jobs[jobs["step"].isin(COUNTED)]
    whole = trained["flops"].sum() / trained["seconds"].sum() / peak
    return {
        "peak": f"{peak / 1e9:.0f}",
        "jobs": f"{len(jobs):,}",
        "hours": number(jobs["seconds"].sum() / 3600, 1),
        "share of peak": f"{whole:.0%}",
        "steps": steps(jobs, peak),
        "tasks": tasks(jobs),
        "grid jobs": f"{grid['jobs']:,}",
        "grid operations": f"{grid['flops'] / 1e18:,.0f}",
        "grid": grid_table(grid, hours),
        "caution": str(CAUTION),
    }


def shares(jobs: pd.DataFrame, peak: float) -> pd.DataFrame:
    """jobs, seconds, flops and share of peak of each step, longest first."""
    found = jobs.groupby("step").agg(
        jobs=("seconds", "size"), seconds=("seconds", "sum"), flops=("flops", "sum")
    )
    found["share"] = found["flops"] / found["seconds"] / peak
    return found.sort_values("seconds", ascending=False)


def steps(jobs: pd.DataFrame, peak: float) -> str:
    """Time per step."""
    found = shares(jobs, peak)
    total = found["seconds"].sum()
    rows = [
        [
            str(step),
            f"{row['jobs']:,.0f}",
            duration(row["seconds"]),
            f"{row['seconds'] / total:.0%}",
            f"{row['seconds'] / row['jobs']:.1f} s",
            f"{row['share']:.0%}" if step in COUNTED else "",
        ]
        for step, row in found.iterrows()
    ]
    return table(["step", "jobs", "time", "of all", "each", "of peak"], rows)


def tasks(jobs: pd.DataFrame) -> str:
    """Minutes per task and model."""
    wide = jobs.pivot_table(index="task", columns="model", values="seconds", aggfunc="sum")
    rows = [[str(task), *(number(value / 60, 1) for value in row)] for task, row in wide.iterrows()]
    rows.append(["together", *(number(value / 60, 1) for value in wide.sum())])
    return table(["task", *(f"`{model}`" for model in wide.columns)], rows)


def gpu_hours(
    grid: dict[str, Any], jobs: pd.DataFrame, peak: float, top: float
) -> dict[str, float]:
    """Hours per kind of jobs of the grid on a GPU that reaches the share of peak measured here."""
    found = shares(jobs, peak)
    techniques = [step for step in found.index if step not in OTHER_STEPS]
    hours = {}
    for row in grid["kinds"]:
        wanted = [s for s in STEPS.get(row["kind"], techniques) if s in found.index]
        like = found.loc[wanted or ["θ_O", "θ_M"]]  # not measured: as trainings
        rate = like["flops"].sum() / like["seconds"].sum() / peak
        hours[row["kind"]] = row["flops"] / (rate * top) / 3600
    return hours


def grid_table(grid: dict[str, Any], hours: dict[str, dict[str, float]]) -> str:
    """The paper's grid on a GPU, by kind of jobs."""
    rows = []
    for row in grid["kinds"]:
        cells = [f"{hours[gpu][row['kind']]:,.0f}" for gpu in hours]
        rows.append([row["name"], f"{row['jobs']:,}", f"{row['flops'] / 1e18:,.1f}", *cells])
    totals = [f"{sum(of_gpu.values()):,.0f}" for of_gpu in hours.values()]
    rows.append(["together", f"{grid['jobs']:,}", f"{grid['flops'] / 1e18:,.1f}", *totals])
    head = ["jobs", "number", "10¹⁸ operations", *(f"hours on one {gpu}" for gpu in hours)]
    return table(head, rows)
