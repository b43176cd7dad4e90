"""Centroid analysis of θ_M2, and of θ_M2 with its bottom or top half swapped for θ_O's."""

from __future__ import annotations

from memloc.errors import DataError
from memloc.models.names import SWAPPED_HALVES, StatesOf
from memloc.techniques.base import (
    Circumstances,
    Context,
    Explanation,
    Report,
    Tables,
)


class Centroids(Explanation):
    """Where noisy examples are between their two classes, layer by layer."""

    name = "centroids"
    needs = ("states:memorised", "states:bottom_swapped", "states:top_swapped")
    at_checkpoints = True
    tables = ("centroids", "trajectories", "events", "crossings", "pairs")

    def obstacle(self, there: Circumstances) -> str | None:
        """There must be clean examples of both classes of noisy ones."""
        from memloc.analysis.centroids import pick_classes

        reason = super().obstacle(there)
        if reason is not None or there.examples is None:
            return reason
        labels, original, noisy = (
            there.examples[c].to_numpy() for c in ("label", "original_label", "noisy")
        )
        try:
            pick_classes(labels, original, noisy, int(max(labels.max(), original.max())) + 1)
        except DataError as error:
            return str(error)
        return None

    def cost(self, n_layers: int) -> float:
        """States are there already."""
        return 0.1

    def explain(self, context: Context, report: Report = lambda _: None) -> Tables:
        """Tables: centroids, trajectories, events, crossings, pairs."""
        import pandas as pd

        from memloc.analysis.centroids import (
            centroid_events,
            crossing_table,
            pair_table,
            pick_classes,
            positions,
            summary_table,
            trajectory_table,
        )
        from memloc.analysis.events import event_table

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
