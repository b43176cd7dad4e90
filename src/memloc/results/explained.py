"""The explanations of a run in numbers and in words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.events import HALFWAY, LOCAL
from memloc.analysis.generalisation import validation_scores
from memloc.data.task import Task

SWAPPED = {"bottom_swapped": "bottom", "top_swapped": "top"}


def summarise_explanation(tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """What the explanations found, averaged over seeds; empty if there are none."""
    found: dict[str, Any] = {}
    if "events" in tables:
        events = tables["events"]
        found["events"] = {
            str(model): {
                str(event): _event(rows) for event, rows in of.groupby("event", sort=False)
            }
            for model, of in events.groupby("model", sort=False)
        }
    if "centroids" in tables:
        found["centroids"] = {
            str(model): {
                str(group): {
                    name: _numbers(rows.groupby("layer")[name].mean())
                    for name in ("mean", "low", "high")
                }
                for group, rows in of.groupby("group", sort=False)
            }
            for model, of in tables["centroids"].groupby("model", sort=False)
        }
        pairs = tables["pairs"].drop_duplicates(["label", "original_label"])
        used = int(pairs["used"].sum())
        found["pairs"] = {"used": used, "skipped": len(pairs) - used}
    if "crossings" in tables:
        n_layers = len(found["centroids"]["memorised"]["noisy"]["mean"])
        found["examples"] = _single_examples(tables["crossings"], n_layers)
    if "class_probes" in tables:
        found["class_probes"] = {
            str(labels): {
                name: _numbers(rows.groupby("layer")[f"{name}_f1"].mean())
                for name in ("noisy", "clean")
            }
            for labels, rows in tables["class_probes"].groupby("labels", sort=False)
        }
    return found


def summarise_scores(
    training: dict[str, Any], generalisation: dict[str, Any] | None, task: Task
) -> dict[str, Any]:
    """The scores of Table 2: of the validation data, and of held-out training examples."""
    return {
        "validation_score": validation_scores(
            training["original_validation_accuracy"],
            task.validation["label"].to_numpy(),
            len(task.labels),
        ),
        "generalisation_score": generalisation and generalisation["score"],
    }


def _event(rows: pd.DataFrame) -> dict[str, Any]:
    """Mean layer of the seeds in which it happens, and in how many it does not."""
    layers = [None if pd.isna(layer) else int(layer) for layer in rows["layer"]]
    known = [layer for layer in layers if layer is not None]
    return {
        "layer": float(np.mean(known)) if known else None,
        "per_seed": layers,
        "missing": len(layers) - len(known),
    }


def _single_examples(crossings: pd.DataFrame, n_layers: int) -> dict[str, Any]:
    """Are single examples memorised in one layer? Over all noisy examples of all seeds."""
    counts = crossings["crossing"].value_counts()
    steps = crossings["largest_step"].dropna().to_numpy()
    quartiles = np.percentile(steps, [25, 50, 75]) if len(steps) else np.full(3, np.nan)
    return {
        "count": len(crossings),
        "crossing_shares": [
            float(counts.get(layer, 0) / len(crossings)) for layer in range(1, n_layers + 1)
        ],
        "never_cross": float(crossings["crossing"].isna().mean()),
        "largest_step_quartiles": [_number(value) for value in quartiles],
        "local_share": float((steps > LOCAL).mean()) if len(steps) else None,
        "even_share": 1 / (n_layers - 1) if n_layers > 1 else None,
    }


def explain_words(summary: dict[str, Any]) -> list[str]:
    """Plain sentences: when flipped examples change sides, what prevents it, one layer or many."""
    found = summary["explanation"]
    sentences = []
    if "centroids" in found:
        sentences += [_crossing_words(found), _example_words(found["examples"])]
    return [sentence for sentence in sentences if sentence]


def _crossing_words(found: dict[str, Any]) -> str:
    events = found["events"]["memorised"]
    crosses = _layer(events["crossing"])
    apart = _layer(events["initiation"])
    first = (
        f"Flipped examples come nearer to their new class than to the old one in {crosses}"
        if crosses
        else "Flipped examples never come nearer to their new class than to the old one"
    )
    first += f"; classes are apart from {apart} on" if apart else "; classes never come apart"
    prevented = {
        name: found["centroids"][model]["noisy"]["mean"][-1]
        for model, name in SWAPPED.items()
        if model in found["centroids"]
    }
    known = {name: end for name, end in prevented.items() if end is not None}
    own_end = found["centroids"]["memorised"]["noisy"]["mean"][-1]
    if not crosses or not known or own_end is None:
        return f"{first}."
    if own_end >= HALFWAY:
        return f"{first}. But they do not stay there."
    return f"{first}. {_prevention(known)}"


def _prevention(ends: dict[str, float]) -> str:
    stops = [name for name, end in ends.items() if end >= HALFWAY]
    not_stops = [name for name in ends if name not in stops]
    if not not_stops:
        return "Swapping either half of the layers prevents it."
    if not stops:
        return "Swapping half of the layers, bottom or top, does not prevent it."
    return f"Swapping the {stops[0]} half prevents it, swapping the {not_stops[0]} half does not."


def _example_words(examples: dict[str, Any]) -> str:
    middle, local, even = (
        examples["largest_step_quartiles"][1],
        examples["local_share"],
        examples["even_share"],
    )
    if middle is None or even is None or even == 1:  # a way of one step has no largest one
        return ""
    return (
        f"Single examples: the largest step of a typical one is {middle:.0%} of its way (evenly "
        f"spread it would be {even:.0%}); {local:.0%} go more than half of it in one layer."
    )


def _layer(event: dict[str, Any]) -> str | None:
    """`layer 4`, or the mean over seeds, as `layer 4.3 (missing in 1 of 3 seeds)`."""
    if event["layer"] is None:
        return None
    words = f"layer {event['layer']:.1f}".removesuffix(".0")
    if event["missing"]:
        words += f" (missing in {event['missing']} of {len(event['per_seed'])} seeds)"
    return words


def _number(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _numbers(values: pd.Series) -> list[float | None]:
    return [_number(value) for value in values]
