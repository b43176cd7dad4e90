"""Centroid analysis of θ_M2, and of θ_M2 with its bottom or top half swapped for θ_O's."""

from __future__ import annotations

import numpy as np
import pandas as pd

from memloc.analysis.centroids import (
    Classes,
    Positions,
    pick_classes,
    positions,
    summary_table,
    trajectory_table,
)
from memloc.analysis.events import (
    crossing,
    crossings_for_good,
    event_table,
    first_crossing,
    initiation,
    largest_steps,
)
from memloc.models.names import SWAPPED_HALVES, StatesOf
from memloc.techniques.base import Context, Report, Tables


def explain(context: Context, report: Report) -> Tables:
    """Tables: centroids, trajectories, events, crossings, pairs."""
    labels, original, noisy, examples = (
        context.examples[c].to_numpy() for c in ("label", "original_label", "noisy", "example")
    )
    n_classes = int(max(labels.max(), original.max())) + 1
    classes = pick_classes(labels, original, noisy, n_classes)
    moved = examples[classes.moved]
    centroids, trajectories, events, crossings = [], [], [], pd.DataFrame()
    n_layers = len(context.pooled_states("memorised")) - 1
    halves = SWAPPED_HALVES if n_layers > 1 and context.has_original else ()
    models: tuple[StatesOf, ...] = ("memorised", *halves)
    for index, model in enumerate(models):
        found = positions(context.pooled_states(model)[1:], classes)
        table = summary_table(model, found)
        centroids.append(table)
        trajectories.append(trajectory_table(model, found, moved))
        events.append(event_table(model, centroid_events(table)))
        if model == "memorised":
            crossings = crossing_table(found, moved)
        report((index + 1) / len(models))
    return {
        "centroids": pd.concat(centroids, ignore_index=True),
        "trajectories": pd.concat(trajectories, ignore_index=True),
        "events": pd.concat(events, ignore_index=True),
        "crossings": crossings,
        "pairs": pair_table(classes, n_classes),
    }


def centroid_events(centroids: pd.DataFrame) -> dict[str, int | None]:
    """Crossing and classification initiation from a table of one model."""
    rows = {group: part.sort_values("layer") for group, part in centroids.groupby("group")}
    means = rows["noisy"]["mean"].to_numpy()
    return {
        "crossing": crossing(means),
        "first_crossing": first_crossing(means),
        "initiation": initiation(
            rows["class_a"]["high"].to_numpy(), rows["class_b"]["low"].to_numpy()
        ),
    }


def crossing_table(found: Positions, examples: np.ndarray) -> pd.DataFrame:
    """Per noisy example: where it crosses for good, and how much of its way one layer makes."""
    layers, shares = largest_steps(found.noisy)
    return pd.DataFrame(
        {
            "example": examples,
            "crossing": pd.array(crossings_for_good(found.noisy), dtype="Int64"),
            "largest_step_layer": pd.array(
                [layer or None for layer in layers.tolist()], dtype="Int64"
            ),
            "largest_step": shares,
        }
    )


def pair_table(classes: Classes, n_classes: int) -> pd.DataFrame:
    """All ordered pairs of classes, with the number of noisy examples and whether they count."""
    used = {(a, b) for a, b in classes.pairs.tolist()}
    pairs = [(a, b) for a in range(n_classes) for b in range(n_classes) if a != b]
    moved = list(
        zip(
            classes.labels[classes.noisy].tolist(),
            classes.original[classes.noisy].tolist(),
            strict=True,
        )
    )
    return pd.DataFrame(
        {
            "label": [a for a, _ in pairs],
            "original_label": [b for _, b in pairs],
            "noisy": [moved.count(pair) for pair in pairs],
            "used": [pair in used for pair in pairs],
        }
    )
