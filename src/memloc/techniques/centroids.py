"""Centroid analysis of θ_M2, and of θ_M2 with its bottom or top half swapped for θ_O's."""

from __future__ import annotations

from memloc.errors import DataError
from memloc.models.names import SWAPPED_HALVES, StatesOf
from memloc.tables import EVENTS, EXAMPLE, LABEL, LAYER, ORIGINAL, STATE, Column, Table
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
    tables = (
        Table(
            "centroids",
            "where noisy examples and both classes are between the two class means",
            {
                "model": STATE,
                "layer": LAYER,
                "group": Column("str", "noisy, class_a (the new class) or class_b (the old one)"),
                "count": Column("int64", "examples in the group"),
                "mean": Column("float64", "mean position: 0 is the new class, 1 the old one"),
                "low": Column("float64", "lower end of the middle 75%"),
                "high": Column("float64", "upper end of the middle 75%"),
            },
        ),
        Table(
            "trajectories",
            "the way of every noisy example through the layers",
            {
                "model": STATE,
                "example": EXAMPLE,
                "layer": LAYER,
                "position": Column("float64", "0 is the new class, 1 the old one"),
            },
        ),
        EVENTS,
        Table(
            "crossings",
            "where every noisy example changes sides",
            {
                "example": EXAMPLE,
                "crossing": Column("Int64", "from this layer on it is nearer to the new class"),
                "largest_step_layer": Column("Int64", "the layer of its largest step"),
                "largest_step": Column("float64", "that step, as a share of its way"),
            },
        ),
        Table(
            "pairs",
            "every ordered pair of classes",
            {
                "label": LABEL,
                "original_label": ORIGINAL,
                "noisy": Column("int64", "noisy examples"),
                "used": Column("bool", "whether there are enough examples to use them"),
            },
        ),
    )

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
