"""The figures of results, one by one: a figure per model, with a panel per task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from memloc.report.figures.looks import CLASS_A, CLASS_B, GREY, NOISY, Look, only
from memloc.report.figures.panels import (
    Share,
    colour_bar,
    diagonal,
    draw_cells,
    handles,
    in_rows,
    layer_axis,
    layer_ticks,
    marks,
    panel_grid,
    write_in,
)
from memloc.report.figures.registry import CannotDraw, FigureData, Picture, figure
from memloc.results.summary import CENTRES
from memloc.tables import NEARLY_ALL
from memloc.techniques.base import LayerCurves

LINE = "#D55E00"
EVENT = "#CC3311"
LIMITS = (-0.75, 1.75)
"""Where two centroids nearly coincide, positions are far out and say nothing."""
MANY = 2000
"""From this many dots on, they are kept as one picture in PDF and SVG files."""


def by_task(
    data: FigureData,
    table: pd.DataFrame,
    draw: Callable[[Axes, pd.DataFrame], None],
    caption: str,
    labels: tuple[str, str],
    *,
    legend: Sequence[Line2D] = (),
    techniques: Sequence[str] = (),
    height: float | None = 1.25,
    sharex: Share = "all",
    finish: Callable[[Figure, list[Axes]], object] = lambda drawn, panels: None,
) -> list[Picture]:
    """One figure per model, tasks side by side, and perhaps techniques below each other.

    Args:
        data: The results.
        table: What to draw, with the columns task, model and layers.
        draw: Draws the rows of one model and task (and technique), which may be none.
        caption: With {model} for the name of the model and {techniques} for those of its rows.
        labels: Of the axes, across and up.
        legend: Its entries.
        techniques: Those that have rows of panels of their own; without any, all are in one.
        height: Of a row of panels, in inches; None for square ones.
        sharex: Which panels have the same numbers across.
        finish: Called with a figure and all its panels.
    """

    def draw_model(model: str, rows: pd.DataFrame) -> tuple[Figure, str]:
        known = [name for name in techniques if name in set(rows["technique"])]

        def draw_task(panel: Axes, key: tuple[str, str]) -> None:
            own = rows[rows["task"] == key[0]]
            draw(panel, own[own["technique"] == key[1]] if known else own)

        tasks = in_rows(only(data.tasks, rows["task"]), 6 if known else 4)
        drawn, panels = panel_grid(
            [[(task, name) for task in row] for name in known or [""] for row in tasks],
            draw_task,
            height,
            title=lambda key: data.tasks[key[0]].name,
            x=labels[0],
            y=lambda key: f"{key[1]}\n{labels[1]}".strip(),
            legend=legend,
            sharex=sharex,
        )
        finish(drawn, panels)
        words = {"model": data.models[model].name, "techniques": " and ".join(known)}
        return drawn, caption.format(**words)

    return data.per_model(table, draw_model)


def draw_heat_maps(data: FigureData) -> list[Picture]:
    """Memorisation error by window size and layer."""
    rows = []
    for (task, model), run in data.runs.items():
        for technique, found in run.summary["techniques"].items():
            matrix = np.array(found.get("error_by_size_and_layer"), dtype=float)  # None: NaN
            if matrix.ndim == 2 and np.isfinite(matrix).any():
                tried = found.get("sizes_tried", range(1, len(matrix) + 1))
                rows.append((task, model, technique, matrix, tried))
    data.need_runs()
    if not rows:
        raise CannotDraw("no run has changed windows of layers")
    table = pd.DataFrame(rows, columns=["task", "model", "technique", "matrix", "tried"])
    between = any(len(tried) < len(matrix) for *_, matrix, tried in rows)

    images: list[Any] = []

    def draw(panel: Axes, found: pd.DataFrame) -> None:
        if len(found):
            images.append(draw_matrix(panel, found["matrix"].iloc[0], found["tried"].iloc[0]))
        else:
            write_in(panel, "none")

    def finish(drawn: Figure, panels: list[Axes]) -> None:
        colour_bar(drawn, images[-1], panels, "memorisation error (relative)")

    caption = (
        "Memorisation error of {techniques} for {model}: mean over all windows of a size (row) "
        "that contain a layer (column), relative to modifying all layers, mean over seeds. "
        f"Orange lines: where {NEARLY_ALL:.0%} are reached."
        + (" Hatched rows: interpolated between the sizes that were tried." if between else "")
    )
    names, labels = list(data.techniques), ("layer", "window size")
    return by_task(data, table, draw, caption, labels, techniques=names, height=1.45, finish=finish)


def draw_matrix(panel: Axes, matrix: np.ndarray, tried: Collection[int]) -> Any:
    """E as colours; a line where nearly all memorisation is undone. Sizes not tried are hatched."""
    n = len(matrix)
    image = draw_cells(panel, matrix, 1)
    for size in {*range(1, n + 1)} - {*tried}:
        panel.axhspan(
            size - 0.5, size + 0.5, facecolor="none", edgecolor="white", hatch="////", linewidth=0
        )
    # Each cell as 10 × 10 points, so that the contour follows the borders of the cells.
    inside = np.kron(matrix >= NEARLY_ALL, np.ones((10, 10)))
    fine = np.linspace(0.55, n + 0.45, 10 * n)
    if 0 < inside.mean() < 1:
        panel.contour(fine, fine, inside, [0.5], colors=LINE, linewidths=0.8)
    panel.set(xlim=(0.5, n + 0.5), ylim=(n + 0.5, 0.5))
    panel.set_xticks(layer_ticks(n, 4 if n > 6 else 6))
    panel.set_yticks(layer_ticks(n, 4 if n > 6 else 6))
    return image


def draw_curve(panel: Axes, rows: pd.DataFrame, value: str, style: dict[str, Any]) -> None:
    """Mean over seeds by layer, with a band of one standard deviation; gaps where none is known."""
    by_seed = rows.groupby(["seed", "layer"])[value].mean()
    found = by_seed.groupby("layer").agg(["mean", "std"]).astype("float64")
    if found["mean"].isna().any():  # a layer between two gaps would have neither line nor marker
        style = {**style, "markevery": 1}
    panel.plot(found.index, found["mean"], **style)
    low, high = found["mean"] - found["std"], found["mean"] + found["std"]
    panel.fill_between(found.index, low, high, color=style["color"], alpha=0.15, linewidth=0)


def curve_style(look: Look, n_layers: int) -> dict[str, Any]:
    """Of a curve with some markers on it."""
    return {"markevery": max(1, round(n_layers / 8)), **marks(look)}


class Curve(NamedTuple):
    """A line in a figure of values by layer: a column of a table, in the rows with some value."""

    look: Look
    value: str
    rows: tuple[str, Any] | None = None


def draw_curves(
    data: FigureData,
    table: pd.DataFrame,
    curves: Sequence[Curve],
    caption: str,
    label: str,
    *,
    shares: bool = False,
    below: Callable[[Axes, pd.DataFrame], None] | None = None,
) -> list[Picture]:
    """One figure per model with a panel per task: the same lines in each, by layer.

    Args:
        data: The results.
        table: With the columns seed, layer, task, model and layers.
        curves: The lines.
        caption: With {model} for the name of the model.
        label: Of the axis up.
        shares: Whether values are shares, from 0 to 1.
        below: Draws in the lowest `STRIP` of a panel, which is left free then.
    """

    def draw(panel: Axes, rows: pd.DataFrame) -> None:
        n_layers = rows["layers"].iloc[0]
        for look, value, of in curves:
            own = rows if of is None else rows[rows[of[0]] == of[1]]
            draw_curve(panel, own, value, curve_style(look, n_layers))
        layer_axis(panel, n_layers)
        if below is not None:
            below(panel, rows)

    def finish(_: Figure, panels: list[Axes]) -> None:
        low, high = panels[0].get_ylim()
        free = 0 if below is None else -STRIP / (1 - STRIP) * high
        panels[0].set_ylim(min(free, low), 1.02 if shares else None)

    entries = handles((one.look for one in curves), line=True) if len(curves) > 1 else []
    caption += data.seeds_words("Bands")
    return by_task(data, table, draw, caption, ("layer", label), legend=entries, finish=finish)


@figure("profiles", "all techniques on one axis, by task", "memloc run")
def draw_profiles(data: FigureData) -> list[Picture]:
    """All techniques on one axis, weights sum to 1."""
    weights = data.need_runs().seed_weights
    total = weights.groupby(["run", "technique", "seed"])["weight"].transform("sum")
    weights = weights.assign(weight=weights["weight"] / total.where(total > 0))
    if weights["weight"].isna().all():
        raise CannotDraw("no layer has any weight")
    looks = only(data.techniques, weights["technique"])
    curves = [Curve(look, "weight", ("technique", name)) for name, look in looks.items()]

    def draw_centres(panel: Axes, rows: pd.DataFrame) -> None:
        run = data.runs[rows["task"].iloc[0], rows["model"].iloc[0]]
        for row, (name, look) in enumerate(looks.items()):
            found = run.summary["techniques"].get(name, {})
            if found.get("m_cog") is None:
                continue
            height = [STRIP * (1 - (row + 0.5) / len(looks))] * 2
            style: dict[str, Any] = {"transform": panel.get_xaxis_transform(), "alpha": 0.5}
            for ends, width in (("m_cog_range", 0.6), ("m_cog_interval", 2)):
                if found.get(ends):
                    panel.plot(found[ends], height, color=look.colour, linewidth=width, **style)
            panel.plot(found["m_cog"], height[0], **style | {"alpha": 1}, **marks(look, 2.6))

    caption = (
        "Layer weights of all techniques for {model}, each divided by their sum. Below: M-CoG, its "
        "95% interval (thick) and the range in which it can lie (thin)."
    )
    return draw_curves(data, weights, curves, caption, "share of weight", below=draw_centres)


STRIP = 0.25
"""Share of a panel's height."""
LINES = ((CLASS_A, "o"), (CLASS_B, "s"), ("#009E73", "D"), ("#CC79A7", "^"))
"""Colours and markers of other lines."""


def draw_declared(name: str, figure: LayerCurves, data: FigureData) -> list[Picture]:
    """What a technique declares as its figure."""
    table = data.table(figure.table, f"no run has {name}")
    lines = figure.lines if figure.by is not None else {"": figure.label}
    curves = [
        Curve(Look(words, *how), figure.value, None if figure.by is None else (figure.by, line))
        for (line, words), how in zip(lines.items(), LINES, strict=False)
    ]
    return draw_curves(data, table, curves, figure.caption, figure.label, shares=figure.shares)


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

    def draw(panel: Axes, rows: pd.DataFrame) -> None:
        draw_way(panel, rows, events_of(data, rows))
        layer_axis(panel, rows["layers"].iloc[0])

    return by_task(
        data,
        table[table["state"] == "memorised"],
        draw,
        ABOUT_POSITIONS + " {model}; crossing and initiation as lines.",
        ("layer", "position"),
        legend=way_legend(events=True),
        finish=lambda _, panels: way_limits(panels),
    )


def centroids_table(data: FigureData) -> pd.DataFrame:
    """Positions of groups of examples, in all states of the models."""
    return data.table("centroids", "no run has a centroid analysis")


def events_of(data: FigureData, rows: pd.DataFrame) -> dict[str, float]:
    """Layers of the events that happen in the one run that these rows are of."""
    events = data.need_runs().events.dropna(subset="layer")
    own = rows[["task", "model"]].head(1).merge(events, on=["task", "model"])
    return dict(zip(own["event"], own["layer"].astype(float), strict=True))


def draw_way(panel: Axes, rows: pd.DataFrame, events: Mapping[str, float]) -> None:
    """Means and middle 75% of the three groups by layer, and lines at events."""
    means = rows.groupby(["group", "layer"])[["mean", "low", "high"]].mean()
    for group, (colour, _) in GROUPS.items():
        of_group = means[means.index.get_level_values("group") == group].droplevel("group")
        opacity, width = (0.22, 1.3) if group == "noisy" else (0.3, 1)
        band: dict[str, Any] = {"color": colour, "alpha": opacity, "linewidth": 0}
        panel.fill_between(of_group.index, of_group["low"], of_group["high"], **band)
        panel.plot(of_group.index, of_group["mean"], color=colour, linewidth=width)
    panel.axhline(0.5, color=GREY, linewidth=0.5, linestyle=(0, (1, 1.5)), zorder=1)
    for event, style in EVENTS.items():
        if event in events:
            panel.axvline(events[event], **style)


def way_limits(panels: Sequence[Axes]) -> None:
    """The same positions in all panels that `draw_way` drew."""
    limits = np.array([panel.dataLim.intervaly for panel in panels])
    limits[~np.isfinite(limits)] = 0.5
    for panel in panels:
        low, high = limits.min() - 0.05, limits.max() + 0.05
        panel.set_ylim(max(low, LIMITS[0]), min(high, LIMITS[1]))
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


@figure("map", "memorisation map", "memloc run, generalisation")
def draw_memorisation_map(data: FigureData) -> list[Picture]:
    """What each example owes to being in the training data: a dot per example."""
    table = data.table("memorisation_map", "no run has generalisation scores")
    caption = (
        "Memorisation map of {model}: mean probability of an example's label in models that saw it "
        "(up) and in models that did not (right). The height above the diagonal is its "
        "counterfactual memorisation."
    )
    places = {
        "generalisation_score": "p(label), held out",
        "training_memorisation": "p(label), trained on",
    }
    return _dots(data, table, places, caption, lambda panel: diagonal(panel, -0.03, 1.03))


@figure("data-map", "how each label was learned", "memloc run")
def draw_data_map(data: FigureData) -> list[Picture]:
    """Training dynamics: a dot per example."""
    table = data.table("dynamics", "no run has kept how labels were learned")
    caption = (
        "Data map of {model}: mean probability of an example's label over the epochs (up), and its "
        "standard deviation (right). Labels at the bottom were learned late. All seeds are shown."
    )
    places = {"variability": "variability", "confidence": "confidence"}

    def half_as_wide(panel: Axes) -> None:
        panel.set_xticks([0, 0.25, 0.5], ["0", ".25", ".5"])
        panel.set_xlim(-0.02, 0.52)

    return _dots(data, table, places, caption, half_as_wide)


def _dots(
    data: FigureData,
    table: pd.DataFrame,
    places: Mapping[str, str],
    caption: str,
    finish: Callable[[Axes], object],
) -> list[Picture]:
    """A dot per example, noisy ones in colour.

    Args:
        data: The results.
        table: What to draw.
        places: The columns across and up, with what they are called.
        caption: Of the figures.
        finish: Called with every panel.
    """
    across, up = places
    looks = {False: (GREY, 2.5, 0.35, "clean examples"), True: (LINE, 4, 0.6, "noisy examples")}

    def draw(panel: Axes, rows: pd.DataFrame) -> None:
        for noisy, (colour, size, opacity, _) in looks.items():
            group = rows[rows["noisy"] == noisy]
            style: dict[str, Any] = {"color": colour, "alpha": opacity, "linewidth": 0}
            panel.scatter(group[across], group[up], s=size, rasterized=len(rows) > MANY, **style)
        panel.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
        panel.set_yticks([0, 0.5, 1], ["0", ".5", "1"])
        finish(panel)

    entries = [
        Line2D([], [], color=colour, marker="o", linestyle="", markersize=3, label=words)
        for colour, _, _, words in looks.values()
    ]
    labels = (places[across], places[up])
    return by_task(data, table, draw, caption, labels, legend=entries, height=None)


@figure("time", "layers over training time", "memloc run, checkpoints")
def draw_over_time(data: FigureData) -> list[Picture]:
    """Layer weights and positions over training time, and the line of their centre."""
    values = data.table("checkpoint_layers", "no run has checkpoints")
    lines = data.table("checkpoints", "no run has checkpoints")

    def draw(panel: Axes, rows: pd.DataFrame) -> None:
        if rows.empty:
            write_in(panel, "not possible")
        else:
            own = rows[["task", "model"]].head(1).merge(lines, on=["task", "model"])
            _draw_epochs(panel, rows["technique"].iloc[0], rows, own, rows["layers"].iloc[0])

    caption = (
        "Memorisation over training time in {model}, mean over seeds. Swapping and probing: layer "
        "weights relative to the largest of each panel; lines: M-CoG. Centroids: mean position of "
        "noisy examples, dark at their new class; lines: crossing. Grey, and not yet: epochs with "
        "too little memorisation to localise."
    )
    names, labels = list(CENTRES), ("epoch", "layer")
    return by_task(data, values, draw, caption, labels, techniques=names, sharex="none")


def _draw_epochs(
    panel: Axes, technique: str, values: pd.DataFrame, centres: pd.DataFrame, n_layers: int
) -> None:
    """Layers upwards, epochs to the right."""
    means = values.groupby(["layer", "epoch"])["value"].mean().unstack("epoch")
    shown = means.to_numpy(dtype=float)
    most = np.nanmax(shown, initial=0.0)
    draw_cells(panel, 1 - shown if technique == "centroids" else shown / (most or 1.0), 0)
    if not np.isfinite(shown).any():
        write_in(panel, "not yet")
    epochs = means.columns
    line = centres.groupby("epoch")[CENTRES[technique]].mean().reindex(epochs).astype("float64")
    size = 2 if len(epochs) < 15 else 0
    panel.plot(range(len(epochs)), line, color=LINE, linewidth=1.0, marker="o", markersize=size)
    panel.set(xlim=(-0.5, len(epochs) - 0.5), ylim=(0.5, n_layers + 0.5))
    ticks = np.linspace(0, len(epochs) - 1, min(len(epochs), 3)).round().astype(int)
    panel.set_xticks(ticks, [str(epochs[tick]) for tick in ticks])
    panel.set_yticks(layer_ticks(n_layers, 4))
