"""Small stores with real artefacts, made without any model."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pandas as pd
import torch

from memloc.data.task import Task
from memloc.engine.job import write_task
from memloc.engine.store.store import Store, key_of
from memloc.results.folders import write_results

HOURS_AGO = 2 * 3600


def write_data(store: Store, name: str = "mine", rows: int = 3) -> tuple[str, str]:
    """A data set, as `memloc run` stores it."""
    table = pd.DataFrame(
        {"example": range(rows), "text": [f"{name} é {i}" for i in range(rows)], "label": 0}
    )
    return write_task(store, Task(name, "own", ("a", "b"), table, table.iloc[:1]))


def write_training(store: Store, seed: int, data: tuple[str, str]) -> tuple[str, str]:
    """Weights, a table and a value under the right key."""
    inputs = {"state": "original", "seed": seed, "needs": {"data": data[1]}}
    key = key_of("train", inputs)
    with store.write("train", key, inputs, {"seconds": 83.0}) as draft:
        draft.tensors("final.safetensors", {"w": torch.arange(6.0) + seed})
        draft.table("history.parquet", pd.DataFrame({"epoch": [1], "loss": [0.5]}))
        draft.json("outcome.json", {"steps": 4})
    return "train", key


def write_window(store: Store, seed: int, data: tuple[str, str]) -> tuple[str, str]:
    """A table alone."""
    inputs = {"technique": "swapping", "window": [2, 2], "seed": seed, "needs": {"data": data[1]}}
    key = key_of("window", inputs)
    with store.write("window", key, inputs, {"seconds": 1.0}) as draft:
        draft.table("losses.parquet", pd.DataFrame({"x": [1.0], "name": ["ü"]}))
    return "window", key


def write_result(
    runs: Path, name: str, artefacts: list[tuple[str, str]] | None, **settings: object
) -> Path:
    """A folder of results that refers to artefacts."""
    tables = {"layers": pd.DataFrame({"layer": [1, 2], "weight": [0.25, 0.75]})}
    write_results(runs / name, tables, {"layers": 2}, {"seeds": [1], **settings}, artefacts)
    return runs / name


def make_older(store: Store, seconds: float = HOURS_AGO) -> None:
    """As if everything had been written some time ago."""
    then = time.time() - seconds
    for path in store.root.rglob("*"):
        os.utime(path, (then, then))
