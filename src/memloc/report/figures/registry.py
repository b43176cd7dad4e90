"""All figures and tables, and what they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memloc.errors import MemlocError, suggest
from memloc.report.figures import (
    agreement,
    binarised,
    centres,
    centroids,
    class_probes,
    control,
    events,
    gradients,
    heat_maps,
    layer_profiles,
    memorisation_map,
    mixing,
    over_time,
    single_layer,
    tables,
)
from memloc.report.figures.data import FigureData, Picture, PrintedTable

Drawn = Sequence[Picture] | PrintedTable
"""Several pictures, such as one per model, or one table."""


@dataclass(frozen=True)
class FigureEntry:
    """A figure or a table.

    Attributes:
        name: What it is called on the command line and in file names.
        numbers: Its numbers in the paper; empty if it is not in the paper.
        shows: What it shows, in one line.
        needs: Which results it is drawn from.
        draw: Makes it, or raises `CannotDraw` with the reason.
    """

    name: str
    numbers: tuple[str, ...]
    shows: str
    needs: str
    draw: Callable[[FigureData], Drawn]

    @property
    def names(self) -> tuple[str, ...]:
        """All names on the command line: `fig16` is `fig3` of a deeper model."""
        if self.name.startswith("table"):
            return (self.name,)
        return tuple(dict.fromkeys((self.name, *(f"fig{number}" for number in self.numbers))))


RUNS = "memloc run"
CONTROL = "memloc control"
EXPLAINED = "memloc run (centroid analysis)"
PROBED = "memloc run (class probes)"
TWINS = "memloc run with and without --binarise"
TWO_MODELS = "memloc run, two models or more"

FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry("fig2", ("2",), "accuracy@1 and @2 in the control setup", CONTROL, control.draw),
    FigureEntry(
        "fig3",
        ("3", "16"),
        "error by window size and layer (E)",
        "memloc run, swapping or retraining",
        heat_maps.draw,
    ),
    FigureEntry(
        "fig4",
        ("4",),
        "largest error when one layer is modified",
        "memloc run, swapping or retraining",
        single_layer.draw,
    ),
    FigureEntry(
        "fig5", ("5", "13", "18"), "layer weights by technique and task", RUNS, layer_profiles.draw
    ),
    FigureEntry(
        "fig6", ("6",), "M-CoG of retraining, model by model", TWO_MODELS, centres.draw_models
    ),
    FigureEntry("fig7", ("7",), "M-CoG by task", RUNS, centres.draw_tasks),
    FigureEntry(
        "fig8", ("8",), "agreement of techniques and models: M-CoG", RUNS, agreement.draw_centres
    ),
    FigureEntry("fig9", ("9",), "agreement of both: layer weights", RUNS, agreement.draw_weights),
    FigureEntry(
        "fig10", ("10",), "noisy examples on their way, by task", EXPLAINED, centroids.draw_tasks
    ),
    FigureEntry(
        "fig11", ("11",), "the same with a half swapped", EXPLAINED, centroids.draw_swapped
    ),
    FigureEntry("fig12", ("12", "17"), "events: crossing, initiation, …", EXPLAINED, events.draw),
    FigureEntry("fig14", ("14",), "class probes on noisy examples", PROBED, class_probes.draw),
    FigureEntry(
        "fig15",
        ("15",),
        "noisy examples on their way, tasks × models",
        "as fig10, two models or more",
        centroids.draw_models,
    ),
    FigureEntry(
        "fig19", ("19",), "M-CoG with all classes and with two", TWINS, binarised.draw_centres
    ),
    FigureEntry("fig20", ("20",), "events of binarised tasks", TWINS, binarised.draw_events),
    FigureEntry(
        "fig21",
        ("21",),
        "gradient norms and their post-processing",
        "memloc control, or memloc run with gradients",
        gradients.draw,
    ),
    FigureEntry(
        "profiles", (), "all techniques on one axis, by task", RUNS, layer_profiles.draw_together
    ),
    FigureEntry("shapley", (), "Shapley values by layer", "--methods shapley", mixing.draw_shapley),
    FigureEntry(
        "patching", (), "flips by patched layer", "--methods patching", mixing.draw_patching
    ),
    FigureEntry(
        "map", (), "memorisation map", "memloc run --generalisation", memorisation_map.draw
    ),
    FigureEntry(
        "time", (), "layers over training time", "memloc run --checkpoints", over_time.draw
    ),
    FigureEntry("table1", ("1",), "tasks, sizes, classes", RUNS, tables.draw_tasks),
    FigureEntry("table2", ("2",), "depth and generalisation", RUNS, tables.draw_scores),
    FigureEntry("table3", ("3",), "models", RUNS, tables.draw_models),
    FigureEntry(
        "table4", ("4",), "gradient post-processing", CONTROL, tables.draw_gradient_choices
    ),
)


def choose_figures(names: Sequence[str] | None) -> tuple[FigureEntry, ...]:
    """The figures of these names, in the order of the paper; all if there are no names.

    Raises:
        MemlocError: If there is no figure of such a name.
    """
    if names is None:
        return FIGURES
    known = {name: entry for entry in FIGURES for name in entry.names}
    for name in names:
        if name.lower() not in known:
            raise MemlocError(f"--only {name!r} is no figure{suggest(name, known)}")
    wanted = {known[name.lower()].name for name in names}
    return tuple(entry for entry in FIGURES if entry.name in wanted)
