"""Centroid analysis of θ_M2, and of θ_M2 with its bottom or top half swapped for θ_O's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memloc.errors import DataError
from memloc.models.names import SWAPPED_HALVES, StatesOf
from memloc.tables import (
    EVENTS,
    EXAMPLE,
    LABEL,
    LAYER,
    ORIGINAL,
    STATE,
    Column,
    Table,
    number,
    numbers,
)
from memloc.techniques.base import Circumstances, Context, Explanation, Report, Tables

if TYPE_CHECKING:
    import pandas as pd


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

    @classmethod
    def summarise(cls, tables: Tables) -> dict[str, Any]:
        """Positions by model, group and layer; pairs of classes; and single examples."""
        if "centroids" not in tables:
            return {}
        found: dict[str, Any] = {"centroids": {}}
        for (model, group), rows in tables["centroids"].groupby(["model", "group"], sort=False):
            means = rows.groupby("layer")[["mean", "low", "high"]].mean()
            of_model = found["centroids"].setdefault(model, {})
            of_model[group] = {name: numbers(values) for name, values in means.items()}
        if "pairs" in tables:
            pairs = tables["pairs"].drop_duplicates(["label", "original_label"])
            used = int(pairs["used"].sum())
            found["pairs"] = {"used": used, "skipped": len(pairs) - used}
        if "crossings" in tables:
            n_layers = int(tables["centroids"]["layer"].max())
            found["examples"] = single_examples(tables["crossings"], n_layers)
        if "events" in tables:
            found["overlapping_crossings"] = overlapping_crossings(**tables)
        return found

    @classmethod
    def sentences(cls, found: dict[str, Any]) -> list[str]:
        """When noisy examples change sides, what prevents it, one layer or many."""
        if "centroids" not in found:
            return []
        examples = _example_words(found["examples"])
        return [_crossing_words(found), *([examples] if examples else [])]

    @classmethod
    def line(cls) -> str:
        """Where noisy examples cross."""
        return "crossing"

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

    def localise(self, context: Context, report: Report = lambda _: None) -> Tables:
        """Tables: centroids, trajectories, events, crossings, pairs."""
        import pandas as pd

        from memloc.analysis import centroids as of

        columns = ("label", "original_label", "noisy", "example")
        labels, original, noisy, examples = context.columns(*columns)
        n_classes = int(max(labels.max(), original.max())) + 1
        classes = of.pick_classes(labels, original, noisy, n_classes)
        moved = examples[classes.moved]
        n_layers = len(context.pooled_states("memorised")) - 1
        halves = SWAPPED_HALVES if n_layers > 1 and context.has_original else ()
        models: tuple[StatesOf, ...] = ("memorised", *halves)
        found = {}
        for model in models:
            found[model] = of.positions(context.pooled_states(model)[1:], classes)
            report(len(found) / len(models))
        summaries = {model: of.summary_table(model, where) for model, where in found.items()}
        paths = [of.trajectory_table(model, where, moved) for model, where in found.items()]
        events = [
            of.event_table(model, of.centroid_events(table)) for model, table in summaries.items()
        ]
        return {
            "centroids": pd.concat(summaries.values(), ignore_index=True),
            "trajectories": pd.concat(paths, ignore_index=True),
            "events": pd.concat(events, ignore_index=True),
            "crossings": of.crossing_table(found["memorised"], moved),
            "pairs": of.pair_table(classes),
        }


def overlapping_crossings(
    centroids: pd.DataFrame, events: pd.DataFrame, **_: pd.DataFrame
) -> dict[str, int]:
    """By model, in how many seeds the middle 75% of both classes overlap where examples cross."""
    place = [name for name in ("seed", "model", "layer") if name in centroids]
    rows = events[events["event"] == "crossing"].dropna(subset="layer").astype({"layer": "int64"})
    for group, end in (("class_a", "high"), ("class_b", "low")):
        ends = centroids[centroids["group"] == group].set_index(place)[end].rename(group)
        rows = rows.join(ends, on=place)
    overlap = ~(rows["class_a"] < rows["class_b"])
    return {str(model): int(some.sum()) for model, some in overlap.groupby(rows["model"])}


def single_examples(crossings: pd.DataFrame, n_layers: int) -> dict[str, Any]:
    """Are single examples memorised in one layer? Over all noisy examples of all seeds."""
    import numpy as np

    from memloc.analysis.centroids import LOCAL

    shares = crossings["crossing"].value_counts() / len(crossings)
    steps = crossings["largest_step"].dropna().to_numpy()
    quartiles = np.percentile(steps, [25, 50, 75]) if len(steps) else np.full(3, np.nan)
    return {
        "count": len(crossings),
        "crossing_shares": [float(shares.get(layer, 0.0)) for layer in range(1, n_layers + 1)],
        "never_cross": float(crossings["crossing"].isna().mean()),
        "largest_step_quartiles": numbers(quartiles),
        "local_share": number((steps > LOCAL).mean()) if len(steps) else None,
        "even_share": 1 / (n_layers - 1) if n_layers > 1 else None,
    }


def _crossing_words(found: dict[str, Any]) -> str:
    from memloc.analysis.centroids import HALFWAY

    events, centroids = found["events"]["memorised"], found["centroids"]
    crosses, apart = _layer(events["crossing"]), _layer(events["initiation"])
    how = "come nearer to their new class than to the old one"
    first = f"Noisy examples {how} in {crosses}" if crosses else f"Noisy examples never {how}"
    overlapping = found.get("overlapping_crossings", {}).get("memorised", 0)
    if overlapping:
        known = len(events["crossing"]["per_seed"]) - events["crossing"]["missing"]
        seeds = "" if overlapping == known else f" in {overlapping} of {known} seeds"
        first += f", where classes still overlap{seeds}"
    first += f"; classes are apart from {apart} on." if apart else "; classes never come apart."
    ends = {model: of["noisy"]["mean"][-1] for model, of in centroids.items()}
    known = {
        model.removesuffix("_swapped"): ends[model]
        for model in SWAPPED_HALVES
        if ends.get(model) is not None
    }
    if not crosses or not known or ends["memorised"] is None:
        return first
    if ends["memorised"] >= HALFWAY:
        return f"{first} But they do not stay there."
    stops = [half for half, end in known.items() if end >= HALFWAY]
    others = [half for half in known if half not in stops]
    if not others:
        return f"{first} Swapping either half of the layers prevents it."
    if not stops:
        return f"{first} Swapping half of the layers, bottom or top, does not prevent it."
    return (
        f"{first} Swapping the {stops[0]} half prevents it, swapping the {others[0]} half does not."
    )


def _example_words(examples: dict[str, Any]) -> str:
    middle, even = examples["largest_step_quartiles"][1], examples["even_share"]
    if middle is None or even is None or even == 1:  # a way of one step has no largest one
        return ""
    return (
        f"Single examples: the largest step of a typical one is {middle:.0%} of its way (evenly "
        f"spread it would be {even:.0%}); {examples['local_share']:.0%} go more than half of it in "
        "one layer."
    )


def _layer(event: dict[str, Any]) -> str | None:
    """`layer 4`, or the mean over seeds, as `layer 4.3 (missing in 1 of 3 seeds)`."""
    if event["layer"] is None:
        return None
    words = f"layer {event['layer']:.1f}".removesuffix(".0")
    if event["missing"]:
        words += f" (missing in {event['missing']} of {len(event['per_seed'])} seeds)"
    return words
