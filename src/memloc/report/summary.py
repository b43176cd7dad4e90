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
LEARNED = 0.9
"""Training accuracy from which on the model of the original labels has learned them."""
CLEAN_LOSS = 0.05
"""Clean examples that may be lost, on average over the windows."""
FEW = 20
"""Fewer noisy examples than this make coarse numbers."""

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
    summary["memorised_share"] = summary["training"]["noisy_accuracy"]
    finish(summary, tables["examples"])
    return summary


def finish(summary: dict[str, Any], examples: pd.DataFrame) -> None:
    """Add the words: the sentence, its caveats, and a few examples."""
    summary["interpretation"] = interpret(summary)
    summary["caveats"] = caveats(summary)
    first = examples[examples["technique"] == next(iter(summary["methods"]))]
    summary["sample_examples"] = sample_examples(first)


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
        "original_accuracy": accuracy("original", "clean"),
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
    matrices = [error_matrix(table) for _, table in windows.groupby("seed", sort=False)]
    # A seed in which swapping all layers undoes nothing has no profile; the others are averaged.
    defined = [one for one in matrices if np.isfinite(one).all()]
    matrix = np.mean(defined, axis=0) if defined else np.full((n_layers, n_layers), np.nan)
    centres = [centre_of_gravity(one.mean(axis=0)) for one in matrices]
    known = [centre for centre in centres if centre is not None]
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
            "layer": int(matrix[0].argmax()) + 1,
            "undoes": _number(matrix[0].max()),
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
    name, result = next(iter(summary["methods"].items()))
    if result["m_cog"] is None:
        return (
            f"Nothing to localise: even {name} all layers leaves every noisy label in place, "
            "so what was memorised is not in the layers, or both models have the same ones."
        )
    if summary["memorised_share"] < 0.5:
        return "Too little was memorised to say where it is stored."
    n, best = result["layers"], result["strongest_single_layer"]
    needed = result["layers_to_undo"]
    if needed == 1:
        return (
            f"Memorisation sits in layer {best['layer']}: changing it alone undoes "
            f"{best['undoes']:.0%} of it (centre of gravity {result['m_cog']:.2f} of {n})."
        )
    spread = "is spread over the layers" if best["undoes"] < 0.5 else "leans on one layer"
    middle = (n + 1) / 2
    shift = (result["m_cog"] - middle) / n
    heavier = "lower" if shift < -BALANCED else "upper"
    tilt = "all parts matter alike" if abs(shift) <= BALANCED else f"{heavier} layers matter more"
    return (
        f"Memorisation {spread}: changing layer {best['layer']} alone undoes {best['undoes']:.0%} "
        f"of it, it takes {needed} adjacent layers to undo 95%; {tilt} "
        f"(centre of gravity {result['m_cog']:.2f}, the middle would be {middle:g})."
    )


def caveats(summary: dict[str, Any]) -> list[str]:
    """What keeps the numbers from meaning what they seem to mean, each with a remedy."""
    found = []
    training = summary.get("training")
    memorised = summary["memorised_share"]
    if memorised < MEMORISED:
        remedy = (
            "train for more --epochs or with a higher --learning-rate"
            if training
            else "were --memorised and --original exchanged?"
        )
        found.append(f"Only {memorised:.0%} of the noisy labels are memorised; {remedy}.")
    if training and training["original_accuracy"] < LEARNED:
        found.append(
            f"The model of the original labels knows only {training['original_accuracy']:.0%} of "
            "them; train for more --epochs."
        )
    lost = max((r["clean_error"] or 0.0 for r in summary["methods"].values()), default=0.0)
    if lost > CLEAN_LOSS:
        found.append(
            f"Changing layers also loses {lost:.0%} of the clean labels, so it breaks more than "
            "memorisation; compare models that were trained alike and long enough."
        )
    if summary["noisy_examples"] < FEW:
        found.append(
            f"There are only {summary['noisy_examples']} noisy examples, so errors move in large "
            "steps; use more examples."
        )
    return found


def sample_examples(examples: pd.DataFrame, n: int = 4) -> list[dict[str, Any]]:
    """A few memorised examples, from the easiest to undo to the hardest."""
    known = examples[examples["memorised"] & examples["smallest_window"].notna()]
    known = known.drop_duplicates("example").sort_values(
        ["smallest_window", "example"], kind="stable"
    )
    places = np.unique(np.linspace(0, len(known) - 1, min(n, len(known))).round().astype(int))
    rows: list[dict[Any, Any]] = known.iloc[places].to_dict("records")
    return [
        {
            "example": int(row["example"]),
            "text": str(row["text"]),
            "label": str(row["label_name"]),
            "original_label": str(row["original_label_name"]),
            "first_layer": int(row["first_layer"]),
            "last_layer": int(row["last_layer"]),
        }
        for row in rows
    ]


def _number(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _numbers(values: np.ndarray) -> list[float | None]:
    return [_number(value) for value in values]
