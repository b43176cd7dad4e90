"""Made-up checkpoints whose answers are known: the centre falls, and in seed 2 starts later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from memloc.analysis.over_time import (
    Examined,
    checkpoint_layer_table,
    checkpoint_table,
    checkpoint_window_table,
)
from memloc.results.summary import summarise_checkpoints
from tests.report.folders import change_summary

EPOCHS = (2, 4, 6)
MEMORISED = {1: (0.1, 0.6, 1.0), 2: (0.1, 0.2, 1.0)}
"""Of the flipped labels, by seed; a tenth of the labels stays with any layers."""
BESIDES = 0.1

WEIGHTED = ("swapping", "probing")


def examined(seed: int, epoch: int, memorised: float, layers: int = 4) -> Examined:
    """All weight in one layer: the last at first, one below it later."""
    layer = np.arange(1, layers + 1)
    peak = layers if epoch < EPOCHS[-1] else layers - 1
    weights = (layer == peak).astype(float)
    table = pd.concat(
        pd.DataFrame({"technique": name, "layer": layer, "weight": weights * most})
        for name, most in (("swapping", 1.0), ("probing", 0.25))
    )
    windows = pd.DataFrame(
        {
            **{"technique": "swapping", "first_layer": [1, 1], "last_layer": [1, layers]},
            **{"size": [1, layers], "noisy_error": [0.1, 1 - BESIDES], "clean_error": [0.0, 0.02]},
        }
    )
    positions = 1 - memorised * layer / layers
    centroids = pd.DataFrame(
        {"model": "memorised", "group": "noisy", "layer": layer, "mean": positions}
    )
    crossed = np.flatnonzero(positions < 0.5)
    events = pd.DataFrame(
        {
            **{"model": "memorised", "event": ["crossing", "initiation"]},
            "layer": pd.array([crossed[0] + 1 if len(crossed) else None, 2], dtype="Int64"),
        }
    )
    accuracy = {"noisy": memorised + BESIDES * (1 - memorised), "clean": 0.98, "validation": 0.9}
    return Examined(seed, epoch, accuracy, table, windows, centroids, events)


def made_up(seeds: Sequence[int] = (1, 2), layers: int = 4) -> list[Examined]:
    """Three checkpoints of each seed."""
    return [
        examined(seed, epoch, share, layers)
        for seed in seeds
        for epoch, share in zip(EPOCHS, MEMORISED[seed], strict=True)
    ]


def tables_of(found: list[Examined]) -> dict[str, pd.DataFrame]:
    return {
        "checkpoints": checkpoint_table(found, WEIGHTED),
        "checkpoint_layers": checkpoint_layer_table(found, WEIGHTED),
        "checkpoint_windows": checkpoint_window_table(found),
    }


def add_checkpoints(folder: Path, seeds: Sequence[int] = (1, 2), layers: int = 4) -> Path:
    """To a result folder, as if it had been made with them."""
    tables = tables_of(made_up(seeds, layers))
    for name, table in tables.items():
        table.to_parquet(folder / f"{name}.parquet", index=False)
    change_summary(folder, over_time=summarise_checkpoints(tables, layers))
    path = folder / "settings.json"
    settings = {**json.loads(path.read_text(encoding="utf-8")), "checkpoints": len(EPOCHS)}
    path.write_text(json.dumps(settings), encoding="utf-8")
    return folder
