"""The findings of a run in numbers and one sentence; what the terminal and `--json` show."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

import memloc
from memloc.analysis.windows import centre_of_gravity, error_matrix
from memloc.config import RunConfig
from memloc.data.task import Task

NEARLY_ALL = 0.95
"""Share of the memorisation that counts as undone."""
MEMORISED = 0.95
"""Accuracy on noisy examples from which on the model has memorised them."""

BALANCED = 0.01
"""A centre of gravity this near to the middle, as a share of the depth, leans to neither side."""


def summarise_run(
    config: RunConfig, model: str, task: Task, tables: dict[str, pd.DataFrame]
) -> dict[str, Any]:
    """Everything a reader asks first, as JSON data."""
    noisy = task.train["noisy"]
    summary: dict[str, Any] = {
        "memloc": memloc.__version__,
        "model": model,
        "task": task.name,
        "classes": list(task.labels),
        "examples": len(task.train),
        "noisy_examples": int(noisy.sum()),
        "seeds": list(config.seeds),
        "training": summarise_training(tables["history"], tables["costs"]),
        "methods": summarise_methods(tables["windows"], tables["examples"]),
    }
    summary["layers"] = next(iter(summary["methods"].values()))["layers"]
    summary["interpretation"] = interpret(summary)
    return summary


def summarise_training(history: pd.DataFrame, costs: pd.DataFrame) -> dict[str, Any]:
    """Final accuracies, averaged over seeds."""
    last = history[history["epoch"] == history["epoch"].max()]

    def accuracy(state: str, split: str) -> float:
        rows = last[(last["state"] == state) & (last["split"] == split)]
        return float(rows["accuracy"].mean())

    epochs = costs.loc[costs["job"] == "memorised", "memorised_epoch"]
    return {
        "epochs": int(history["epoch"].max()),
        "near_ceiling_epoch": [None if pd.isna(epoch) else int(epoch) for epoch in epochs],
        "noisy_accuracy": accuracy("memorised", "noisy"),
        "clean_accuracy": accuracy("memorised", "clean"),
        "validation_accuracy": accuracy("memorised", "validation"),
        "original_accuracy": accuracy("original", "train"),
        "original_validation_accuracy": accuracy("original", "validation"),
        "frozen_noisy_accuracy": accuracy("frozen", "noisy"),
    }


def summarise_methods(windows: pd.DataFrame, examples: pd.DataFrame) -> dict[str, Any]:
    """Per technique: E, layer weights, M-CoG and the extremes. Several seeds are averaged."""
    return {
        str(technique): _summarise_windows(table, examples[examples["technique"] == technique])
        for technique, table in windows.groupby("technique", sort=False)
    }


def _summarise_windows(windows: pd.DataFrame, examples: pd.DataFrame) -> dict[str, Any]:
    if "seed" not in windows.columns:
        windows = windows.assign(seed=0)
    n_layers = int(windows["last_layer"].max())
    matrices = [error_matrix(table) for _, table in windows.groupby("seed")]
    matrix = np.mean(matrices, axis=0)
    centres = [centre_of_gravity(one.mean(axis=0)) for one in matrices]
    known = [centre for centre in centres if centre is not None]
    single = windows[windows["size"] == 1].groupby("first_layer")["noisy_error"].mean()
    full = windows.loc[windows["size"] == n_layers, "noisy_error"].mean()
    memorised = examples[examples["memorised"]]
    return {
        "layers": n_layers,
        "m_cog": float(np.mean(known)) if known else None,
        "m_cog_per_seed": centres,
        "layer_weights": _numbers(matrix.mean(axis=0)),
        "error_by_size_and_layer": [_numbers(row) for row in matrix],
        "full_error": float(full),
        "clean_error": _number(windows["clean_error"].mean()),
        "strongest_single_layer": {
            "layer": int(single.to_numpy().argmax()) + 1,
            "undoes": _number(single.max() / full if full > 0 else math.nan),
        },
        "layers_to_undo": _layers_to_undo(windows, n_layers, full),
        "examples_undone_by_one_layer": _number(
            memorised["smallest_window"].eq(1).fillna(False).mean() if len(memorised) else math.nan
        ),
    }


def _layers_to_undo(windows: pd.DataFrame, n_layers: int, full: float) -> int | None:
    """The smallest window size of which some window undoes nearly all memorisation."""
    if not full > 0:
        return None
    errors = windows.groupby(["size", "first_layer"])["noisy_error"].mean()
    best = errors.groupby("size").max() / full
    return next((size for size in range(1, n_layers + 1) if best[size] >= NEARLY_ALL), n_layers)


def interpret(summary: dict[str, Any]) -> str:
    """One plain sentence, from the numbers alone."""
    training = summary.get("training")
    if training and training["noisy_accuracy"] < MEMORISED:
        return (
            f"The model has memorised only {training['noisy_accuracy']:.0%} of the noisy labels, "
            "so read the layer profile with care; train for more --epochs or with a higher "
            "--learning-rate."
        )
    name, result = next(iter(summary["methods"].items()))
    if result["m_cog"] is None:
        return (
            f"Nothing to localise: even {name} all layers leaves every noisy label in place, "
            "so what was memorised is not in the layers."
        )
    n, best = result["layers"], result["strongest_single_layer"]
    needed = result["layers_to_undo"]
    if needed == 1:
        where = f"Memorisation sits in layer {best['layer']}: changing it alone undoes"
    else:
        spread = "is spread over the layers" if best["undoes"] < 0.5 else "leans on one layer"
        where = f"Memorisation {spread}: changing layer {best['layer']} alone undoes"
    middle = (n + 1) / 2
    shift = (result["m_cog"] - middle) / n
    heavier = "lower" if shift < -BALANCED else "upper"
    tilt = "all parts matter alike" if abs(shift) <= BALANCED else f"{heavier} layers matter more"
    wide = f", it takes {needed} adjacent layers to undo 95%" if needed and needed > 1 else ""
    return (
        f"{where} {best['undoes']:.0%} of it{wide}; {tilt} "
        f"(centre of gravity {result['m_cog']:.2f}, the middle would be {middle:g})."
    )


def _number(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _numbers(values: np.ndarray) -> list[float | None]:
    return [_number(value) for value in values]
