"""The figures of results, one by one: a figure per model, with a panel per task."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from memloc.report.figures.data import CannotDraw, FigureData, Picture
from memloc.report.figures.looks import CLASS_A, CLASS_B, GREY, NOISY, Look
from memloc.report.figures.panels import (
    DOUBLE,
    SINGLE,
    colour_bar,
    diagonal,
    draw_cells,
    fitting,
    handles,
    layer_axis,
    layer_ticks,
    legend_below,
    marks,
    mean_and_spread,
    name_panel,
    new_figure,
    outer_labels,
    panel_rows,
)
from memloc.report.figures.registry import figure
from memloc.results.summary import CENTRES
from memloc.tables import NEARLY_ALL
from memloc.techniques.base import LayerCurves

SIDE_BY_SIDE = 6
LINE = "#D55E00"
EVENT = "#CC3311"
LIMITS = (-0.75, 1.75)
"""Where two centroids nearly coincide, positions are far out and say nothing."""
MANY = 2000
"""From this many dots on, they are kept as one picture in PDF and SVG files."""
FEW = 5
"""Curves up to which their bands can be told apart."""


def by_task(
    data: FigureData,
    table: pd.DataFrame,
    draw: Callable[[Axes, pd.DataFrame], None],
    entries: Sequence[Line2D],
    caption: str,
    labels: tuple[str, str],
    height: float = 1.25,
    finish: Callable[[list[Axes]], None] | None = None,
    aspect: float | None = None,
) -> list[Picture]:
    """One figure per model, a panel per task.

    Args:
        data: The results.
        table: What to draw, with the columns task, model and layers.
        draw: Draws the rows of one task and model.
        entries: Of the legend.
        caption: With {model} for the name of the model.
        labels: Of the axes, across and up.
        height: Of a row of panels, in inches.
        finish: Called with all panels of a figure.
        aspect: Height of a panel for its width, if it does not have layers from left to right.
    """
    pictures = []
    for model in data.run_models:
        rows = table[table["model"] == model]
        tasks = [task for task in data.tasks_of(model) if task in set(rows["task"])]
        if not tasks:
            continue
        words = [str(entry.get_label()) for entry in entries]
        figure, panels, columns = panel_rows(len(tasks), 4, height, words, aspect)
        for panel, task in zip(panels, tasks, strict=True):
            draw(panel, rows[rows["task"] == task])
            name_panel(panel, data.task_names[task], columns)
            if aspect is None:
                layer_axis(panel, data.depths[model], label=False)
        if finish is not None:
            finish(panels)
        outer_labels(panels, columns, *labels)
        legend_below(figure, entries)
        words_of_model = caption.format(model=data.model_names[model])
        pictures.append(Picture(data.file_names[model], figure, words_of_model))
    return pictures


def in_blocks(
    data: FigureData,
    tasks: Sequence[str],
    techniques: Sequence[str],
    draw: Callable[[Axes, str, str, float], None],
    labels: tuple[str, str],
    room: tuple[float, float, float, float],
    share: bool,
) -> tuple[Figure, list[Axes]]:
    """Tasks side by side, in blocks if they are many, techniques below each other.

    Args:
        data: The results.
        tasks: Their names.
        techniques: Their names.
        draw: Draws a task and a technique in a panel of so many inches.
        labels: Of the axes, across and up.
        room: In inches: beside the panels, height of a panel at most, above blocks, at the bottom.
        share: Whether all panels have the same numbers from left to right.
    """
    beside, tallest, above, bottom = room
    blocks = math.ceil(len(tasks) / SIDE_BY_SIDE)
    columns = math.ceil(len(tasks) / blocks)
    width = SINGLE if columns <= 2 else DOUBLE
    side = (width - beside) / columns - 0.1
    rows = blocks * len(techniques)
    figure = new_figure(width, rows * (min(side, tallest) + 0.09) + blocks * above + bottom)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=True)
    for place in range(blocks * columns):
        block, column = divmod(place, columns)
        for line, technique in enumerate(techniques):
            panel = grid[block * len(techniques) + line, column]
            if place >= len(tasks):
                panel.remove()
                continue
            draw(panel, tasks[place], technique, side)
            if line == 0:
                name = data.task_names[tasks[place]]
                panel.set_title(name, fontsize=fitting(name, side + 0.05, 7.5))
            if column == 0:
                panel.set_ylabel(f"{technique}\n{labels[1]}")
            lowest = line == len(techniques) - 1
            lowest = lowest and (not share or place + columns >= len(tasks))
            panel.tick_params(labelbottom=lowest)
            if lowest:
                panel.set_xlabel(labels[0])
    return figure, list(grid.flat)


def draw_heat_maps(data: FigureData) -> list[Picture]:
    """Memorisation error by window size and layer."""
    techniques = data.need_runs().techniques
    pictures = []
    for model in data.run_models:
        found = {
            (task, technique): matrix
            for task in data.tasks_of(model)
            for technique in techniques
            if (matrix := _error_matrix(data, task, model, technique)) is not None
        }
        if found:
            pictures.append(_heat_maps_of(data, model, found))
    if not pictures:
        raise CannotDraw("no run has changed windows of layers")
    return pictures


def _error_matrix(data: FigureData, task: str, model: str, technique: str) -> np.ndarray | None:
    """E; None if there is none."""
    found = data.runs[task, model].summary["techniques"].get(technique, {})
    values = np.array(found.get("error_by_size_and_layer"), dtype=float)  # None becomes NaN
    is_square = values.ndim == 2 and values.shape[0] == values.shape[1]
    return values if is_square and np.isfinite(values).any() else None


def _heat_maps_of(
    data: FigureData, model: str, matrices: dict[tuple[str, str], np.ndarray]
) -> Picture:
    tasks = list(dict.fromkeys(task for task, _ in matrices))
    known = {technique for _, technique in matrices}
    techniques = [name for name in data.need_runs().techniques if name in known]
    images: list[Any] = []

    def draw(panel: Axes, task: str, technique: str, _: float) -> None:
        if (task, technique) in matrices:
            images.append(draw_matrix(panel, matrices[task, technique]))
        else:
            panel.text(0.5, 0.5, "none", transform=panel.transAxes, ha="center", color="grey")

    room = (1.0, 1.6, 0.18, 0.3)
    drawn, panels = in_blocks(data, tasks, techniques, draw, ("layer", "window size"), room, True)
    form = {"shrink": 0.6, "aspect": 25, "pad": 0.015}
    colour_bar(drawn, images[-1], panels, "memorisation error (relative)", **form)
    caption = (
        f"Memorisation error of {' and '.join(techniques)} for {data.model_names[model]}: mean "
        "over all windows of a size (row) that contain a layer (column), relative to modifying all "
        f"layers, mean over seeds. Orange lines: where {NEARLY_ALL:.0%} are reached."
    )
    return Picture(data.file_names[model], drawn, caption)


def draw_matrix(panel: Axes, matrix: np.ndarray) -> Any:
    """E as colours; lines where nearly all memorisation is undone."""
    n = len(matrix)
    image = draw_cells(panel, matrix, 1)
    _outline(panel, matrix >= NEARLY_ALL)
    panel.set(xlim=(0.5, n + 0.5), ylim=(n + 0.5, 0.5))
    panel.set_xticks(layer_ticks(n, 4 if n > 6 else 6))
    panel.set_yticks(layer_ticks(n, 4 if n > 6 else 6))
    return image


def _outline(panel: Axes, inside: np.ndarray) -> None:
    """A line between the cells inside and those outside."""
    xs: list[float] = []
    ys: list[float] = []
    for row, column in np.ndindex(*inside.shape):
        if row and inside[row, column] != inside[row - 1, column]:
            xs += [column + 0.5, column + 1.5, np.nan]
            ys += [row + 0.5, row + 0.5, np.nan]
        if column and inside[row, column] != inside[row, column - 1]:
            xs += [column + 0.5, column + 0.5, np.nan]
            ys += [row + 0.5, row + 1.5, np.nan]
    panel.plot(xs, ys, color=LINE, linewidth=0.8, solid_capstyle="projecting")


def draw_curve(
    panel: Axes, rows: pd.DataFrame, value: str, style: dict[str, Any], band: bool = True
) -> None:
    """Mean over seeds by layer, with a band of one standard deviation."""
    wide = rows.pivot_table(index="seed", columns="layer", values=value).dropna()
    if wide.empty:
        return
    layers = wide.columns.to_numpy(dtype=float)
    mean, spread = mean_and_spread(wide.to_numpy())
    panel.plot(layers, mean, **style)
    if band and np.isfinite(spread).all():
        low, high = mean - spread, mean + spread
        panel.fill_between(layers, low, high, color=style["color"], alpha=0.15, linewidth=0)


def curve_style(look: Look, n_layers: int) -> dict[str, Any]:
    """Of a curve with some markers on it."""
    return {"markevery": max(1, round(n_layers / 8)), **marks(look)}


@figure("profiles", "all techniques on one axis, by task", "memloc run")
def draw_profiles(data: FigureData) -> list[Picture]:
    """All techniques on one axis, weights sum to 1."""
    grid = data.need_runs()
    weights = grid.seed_weights
    total = weights.groupby(["run", "technique", "seed"])["weight"].transform("sum")
    weights = weights.assign(weight=weights["weight"] / total.where(total > 0)).dropna()
    if weights.empty:
        raise CannotDraw("no layer has any weight")
    names = {name: name for name in grid.techniques if name in set(weights["technique"])}

    def draw(panel: Axes, rows: pd.DataFrame) -> None:
        for technique in names:
            style = curve_style(data.technique_looks[technique], rows["layers"].iloc[0])
            draw_curve(panel, rows[rows["technique"] == technique], "weight", style)

    caption = "Layer weights of all techniques for {model}, each divided by their sum."
    return by_task(
        *(data, weights, draw, handles(data.technique_looks, names, line=True)),
        *(caption + data.seeds_words("Bands"), ("layer", "share of weight")),
        finish=lambda panels: panels[0].set_ylim(bottom=0) and None,
    )


CENTROIDS = {
    **{"seed": "int64", "model": "object", "layer": "int64", "group": "object"},
    **{"mean": "float64", "low": "float64", "high": "float64"},
}
GROUPS = {
    "class_a": (CLASS_A, "clean, new class"),
    "class_b": (CLASS_B, "clean, old class"),
    "noisy": (NOISY, "noisy"),
}
EVENTS: dict[str, dict[str, Any]] = {
    "crossing": {"color": EVENT, "linewidth": 0.9},
    # Its dashes lie on the line of the crossing, if both are in the same layer.
    "initiation": {"color": "#009E73", "linewidth": 0.9, "linestyle": (0, (3, 2)), "zorder": 3},
}
ABOUT_POSITIONS = (
    "Positions between the centroids of the new class (0) and the old class (1) by layer: means, "
    "and the middle 75% as bands; means over seeds."
)


def draw_centroids(data: FigureData) -> list[Picture]:
    """Noisy examples on their way from the old class to the new one."""
    table = centroids_table(data)
    events = events_by_run(data)

    def draw(panel: Axes, rows: pd.DataFrame) -> None:
        draw_way(panel, rows, events.get((rows["task"].iloc[0], rows["model"].iloc[0]), {}))

    caption = ABOUT_POSITIONS + " {model}; crossing and initiation as lines."
    return by_task(
        *(data, table[table["state"] == "memorised"], draw, way_legend(events=True)),
        *(caption, ("layer", "position")),
        finish=way_limits,
    )


def centroids_table(data: FigureData) -> pd.DataFrame:
    """Positions of groups of examples, in all states of the models."""
    return data.table("centroids", CENTROIDS, "no run has a centroid analysis")


def events_by_run(data: FigureData) -> dict[tuple[str, str], dict[str, float]]:
    """Layers of the events that happen, by task and model."""
    events = data.need_runs().events.dropna(subset="layer")
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in events.to_dict("records"):
        found.setdefault((row["task"], row["model"]), {})[row["event"]] = row["layer"]
    return found


def draw_way(panel: Axes, rows: pd.DataFrame, events: dict[str, float]) -> None:
    """Means and middle 75% of the three groups by layer, and lines at events."""
    means = rows.groupby(["group", "layer"])[["mean", "low", "high"]].mean()
    for group, (colour, _) in GROUPS.items():
        if group not in means.index.get_level_values("group"):
            continue
        of_group = means.loc[group].sort_index()
        layers = of_group.index.to_numpy(dtype=float)
        low, high = of_group["low"], of_group["high"]
        opacity, width = (0.22, 1.3) if group == "noisy" else (0.3, 1)
        panel.fill_between(layers, low, high, color=colour, alpha=opacity, linewidth=0)
        panel.plot(layers, of_group["mean"], color=colour, linewidth=width)
    panel.axhline(0.5, color=GREY, linewidth=0.5, linestyle=(0, (1, 1.5)), zorder=1)
    for event, style in EVENTS.items():
        if event in events:
            panel.axvline(events[event], **style)


def way_limits(panels: Sequence[Axes]) -> None:
    """The same positions in all panels that `draw_way` drew."""
    low = min(panel.dataLim.y0 for panel in panels if np.isfinite(panel.dataLim.y0))
    high = max(panel.dataLim.y1 for panel in panels if np.isfinite(panel.dataLim.y1))
    for panel in panels:
        panel.set_ylim(max(low - 0.05, LIMITS[0]), min(high + 0.05, LIMITS[1]))
        panel.set_yticks([0, 0.5, 1], ["0", "½", "1"])


def way_legend(events: bool) -> list[Line2D]:
    """Entries of the legend for `draw_way`."""
    entries = [
        Line2D([], [], color=colour, linewidth=1.3, label=words)
        for colour, words in GROUPS.values()
    ]
    if events:
        entries += [Line2D([], [], label=event, **style) for event, style in EVENTS.items()]
    return entries


CLASS_PROBES = {
    **{"seed": "int64", "labels": "object", "layer": "int64"},
    **{"noisy_f1": "float64", "clean_f1": "float64"},
}
PROBE_CURVES: tuple[tuple[str, str, str, Any, str], ...] = (
    ("perturbed", "noisy_f1", CLASS_A, "-", "noisy examples, perturbed label"),
    ("original", "noisy_f1", CLASS_B, (0, (4, 1.5)), "noisy examples, original label"),
    ("original", "clean_f1", GREY, (0, (1, 1.2)), "clean examples"),
)
"""Labels that probes were trained on, what they are tested on, and how it is drawn."""


def draw_class_probes(data: FigureData) -> list[Picture]:
    """Which label do class probes find for noisy examples, the old or the new one?"""
    table = data.table("class_probes", CLASS_PROBES, "no run has class probes")
    events = events_by_run(data)

    def draw(panel: Axes, rows: pd.DataFrame) -> None:
        for labels, column, colour, style, _ in PROBE_CURVES:
            form = {"color": colour, "linestyle": style}
            draw_curve(panel, rows[rows["labels"] == labels], column, form)
        layer = events.get((rows["task"].iloc[0], rows["model"].iloc[0]), {}).get("mem_gen")
        if layer is not None:
            panel.axvline(layer, color=EVENT, linewidth=0.8)
        panel.set_ylim(0, 1.02)

    entries = [
        Line2D([], [], color=colour, linestyle=style, label=words)
        for _, _, colour, style, words in PROBE_CURVES
    ]
    entries.append(Line2D([], [], color=EVENT, linewidth=0.8, label="mem≫gen"))
    caption = (
        "Class probes on the states of {model}: trained on perturbed labels (solid, noisy "
        "examples), or on original labels (dashed: noisy, dotted: clean examples)."
    ) + data.seeds_words("Bands")
    return by_task(data, table, draw, entries, caption, ("layer", "macro F₁"), 1.2)


MAP = {
    **{"noisy": "bool", "training_memorisation": "float64"},
    "generalisation_score": "float64",
}


@figure("map", "memorisation map", "memloc run --generalisation")
def draw_memorisation_map(data: FigureData) -> list[Picture]:
    """What each example owes to being in the training data: a dot per example."""
    table = data.table("memorisation_map", MAP, "no run has generalisation scores")
    looks = {False: (GREY, 2.5, 0.35, "clean examples"), True: (LINE, 4, 0.6, "noisy examples")}

    def draw(panel: Axes, rows: pd.DataFrame) -> None:
        for noisy, (colour, size, opacity, _) in looks.items():
            group = rows[rows["noisy"] == noisy]
            across, up = group["generalisation_score"], group["training_memorisation"]
            style: dict[str, Any] = {"color": colour, "alpha": opacity, "linewidth": 0}
            panel.scatter(across, up, s=size, rasterized=len(rows) > MANY, **style)
        diagonal(panel, 0, 1)
        panel.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        panel.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
        panel.set_yticks([0, 0.5, 1], ["0", ".5", "1"])

    entries = [
        Line2D([], [], color=colour, marker="o", linestyle="", markersize=3, label=words)
        for colour, _, _, words in looks.values()
    ]
    caption = (
        "Memorisation map of {model}: mean probability of an example's label in models that saw it "
        "(up) and in models that did not (right). The height above the diagonal is its "
        "counterfactual memorisation."
    )
    labels = ("p(label), held out", "p(label), trained on")
    return by_task(data, table, draw, entries, caption, labels, 0, aspect=1.0)


OVER_TIME = {
    **{"seed": "int64", "epoch": "int64", "technique": "object", "layer": "int64"},
    "value": "float64",
}
CENTRES_OVER_TIME = {
    **{"seed": "int64", "epoch": "int64"},
    **dict.fromkeys(CENTRES.values(), "Float64"),
}


@figure("time", "layers over training time", "memloc run --checkpoints")
def draw_over_time(data: FigureData) -> list[Picture]:
    """Layer weights and positions over training time, and the line of their centre."""
    missing = "no run has checkpoints"
    values = data.table("checkpoint_layers", OVER_TIME, missing)
    lines = data.table("checkpoints", CENTRES_OVER_TIME, missing)
    pictures = []
    for model in [model for model in data.run_models if model in set(values["model"])]:
        own, centres = (table[table["model"] == model] for table in (values, lines))
        tasks = [task for task in data.tasks_of(model) if task in set(own["task"])]
        techniques = [name for name in CENTRES if name in set(own["technique"])]

        def draw(
            panel: Axes,
            task: str,
            technique: str,
            side: float,
            own: pd.DataFrame = own,
            centres: pd.DataFrame = centres,
            n_layers: int = data.depths[model],
        ) -> None:
            cells = own[(own["task"] == task) & (own["technique"] == technique)]
            of_task = centres[centres["task"] == task]
            numbers = max(2, int(side / 0.3))
            _epochs_of(panel, technique, cells, of_task, n_layers, numbers)

        room = (0.6, 1.2, 0.3, 0.2)
        drawn, _ = in_blocks(data, tasks, techniques, draw, ("epoch", "layer"), room, False)
        caption = (
            f"Memorisation over training time in {data.model_names[model]}, mean over seeds. "
            "Swapping and probing: layer weights relative to the largest of each panel; lines: "
            "M-CoG. Centroids: mean position of noisy examples, dark at their new class; lines: "
            "crossing. Grey, and not yet: epochs with too little memorisation to localise."
        )
        pictures.append(Picture(data.file_names[model], drawn, caption))
    return pictures


def _epochs_of(
    panel: Axes,
    technique: str,
    values: pd.DataFrame,
    centres: pd.DataFrame,
    n_layers: int,
    numbers: int,
) -> None:
    """Layers upwards, epochs to the right; there is room for so many numbers of epochs."""
    epochs = sorted(centres["epoch"].unique().tolist())
    means = values.groupby(["epoch", "layer"])["value"].mean().unstack("layer").reindex(epochs)
    shown = means.to_numpy(dtype=float).T
    most = np.nanmax(shown, initial=0.0)
    shown = 1 - shown if technique == "centroids" else shown / (most or 1.0)
    draw_cells(panel, shown if shown.size else np.full((n_layers, len(epochs)), np.nan), 0)
    if not np.isfinite(shown).any():
        words = "not yet" if len(values) else "not possible"
        style: dict[str, Any] = {"ha": "center", "va": "center", "color": "#555555", "fontsize": 7}
        panel.text(0.5, 0.5, words, transform=panel.transAxes, **style)
    line = centres.groupby("epoch")[CENTRES[technique]].mean().reindex(epochs).astype("float64")
    size = 2 if len(epochs) < 15 else 0
    panel.plot(range(len(epochs)), line, color=LINE, linewidth=1.0, marker="o", markersize=size)
    panel.set(xlim=(-0.5, len(epochs) - 0.5), ylim=(0.5, n_layers + 0.5))
    ticks = np.linspace(0, len(epochs) - 1, min(len(epochs), numbers)).round().astype(int)
    panel.set_xticks(ticks, [str(epochs[tick]) for tick in ticks])
    panel.set_yticks(layer_ticks(n_layers, 4))


LINES = (Look(CLASS_A, "o"), Look(LINE, "s"), Look("#009E73", "D"), Look("#CC79A7", "^"))
"""Looks of the lines that a technique declares."""


def draw_declared(name: str, curves: LayerCurves, data: FigureData) -> list[Picture]:
    """What a technique declares as its figure: by task if it declares lines, else by model."""
    columns = {"seed": "int64", "layer": "int64", curves.value: "float64"}
    if curves.by is None:
        table = data.table(curves.table, columns, f"no run has {name}")
        return [_tasks_by_model(data, table, curves)]
    by = curves.by
    table = data.table(curves.table, {**columns, by: "object"}, f"no run has {name}")
    looks = dict(zip(curves.lines, LINES, strict=False))

    def draw(panel: Axes, rows: pd.DataFrame) -> None:
        for line, look in looks.items():
            style = curve_style(look, rows["layers"].iloc[0])
            draw_curve(panel, rows[rows[by] == line], curves.value, style)
        if curves.shares:
            panel.set_ylim(0, 1.02)

    entries = [Line2D([], [], label=curves.lines[x], **marks(look)) for x, look in looks.items()]
    caption = curves.caption + data.seeds_words("Bands")
    return by_task(data, table, draw, entries, caption, ("layer", curves.label), 1.2)


def _tasks_by_model(data: FigureData, table: pd.DataFrame, curves: LayerCurves) -> Picture:
    """A panel per model, a line per task."""
    models = [model for model in data.run_models if model in set(table["model"])]
    names = {task: data.task_names[task] for task in data.tasks if task in set(table["task"])}
    few = len(names) <= FEW
    words = list(names.values())
    drawn, panels, columns = panel_rows(len(models), 3, 1.6, words, share=data.same_depth)
    for panel, model in zip(panels, models, strict=True):
        of_model = table[table["model"] == model]
        for task in names:
            style = curve_style(data.task_looks[task], data.depths[model])
            draw_curve(panel, of_model[of_model["task"] == task], curves.value, style, few)
        panel.axhline(0, color="#999999", linewidth=0.6, zorder=1)
        layer_axis(panel, data.depths[model], label=False)
        if len(models) > 1:
            name_panel(panel, data.model_names[model], columns)
    outer_labels(panels, columns, "layer", curves.label)
    legend_below(drawn, handles(data.task_looks, names, line=True))
    printed = ", ".join(data.model_names[model] for model in models)
    caption = curves.caption.format(model=printed)
    return Picture("", drawn, caption + (data.seeds_words("Bands") if few else ""))
