"""The numbered figures of the paper, drawn from the results at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from memloc.analysis.control import parse_hidden, score
from memloc.analysis.correlation import FEWEST
from memloc.analysis.probes import fitted_means
from memloc.config import DEFAULT_TECHNIQUES
from memloc.paper.binarised import compare_twins
from memloc.report.figures.looks import (
    CATEGORIES,
    CLASS_A,
    CLASS_B,
    GREY,
    Look,
    category,
    lighter,
    only,
)
from memloc.report.figures.panels import (
    DOUBLE,
    SINGLE,
    TALLEST,
    colour_bar,
    diagonal,
    dot,
    handles,
    in_rows,
    layer_axis,
    layer_ticks,
    marks,
    name_ticks,
    panel_grid,
    write_in,
)
from memloc.report.figures.registry import CannotDraw, FigureData, Picture, figure
from memloc.report.figures.results import (
    ABOUT_POSITIONS,
    EVENT,
    centroids_table,
    curve_style,
    draw_centroids,
    draw_curve,
    draw_heat_maps,
    draw_way,
    events_of,
    way_legend,
    way_limits,
)
from memloc.results.agreement import (
    IN_PRINT,
    LAYER_WEIGHTS,
    M_COG,
    Pair,
    choose_models,
    model_pairs,
    technique_pairs,
)
from memloc.techniques import names as technique_names

MODIFYING = ("swapping", "retraining")
WEAK = ("gradients", "probing")
"""Techniques by which the paper tells models apart; the others find nearly all layers."""
CHANCE: dict[str, Any] = {"color": "black", "linewidth": 0.8, "linestyle": (0, (3, 2))}
MODEL_COLOUR = "#444444"
EXPLAINED = "memloc run (centroid analysis)"
ONE_MODEL = "there is only one model, and the figure compares models"

figure(
    *("fig3", "error by window size and layer (E)", "memloc run, swapping or retraining", (3, 16))
)(draw_heat_maps)
figure("fig10", "noisy examples on their way, by task", EXPLAINED, (10,))(draw_centroids)


@figure("fig2", "accuracy@1 and @2 in the control setup", "memloc control", (2,))
def draw_control(data: FigureData) -> list[Picture]:
    """Do techniques find the layers in which memorisation was hidden?"""
    table = data.control.get("accuracy")
    if table is None or table.empty:
        raise CannotDraw("there are no results of `memloc control`")
    known = [*technique_names(), *sorted(set(table["technique"]))]
    order = [name for name in dict.fromkeys(known) if name in set(table["technique"])]
    # Which techniques are averaged, as in the summary of `memloc control`.
    usual = [name for name in DEFAULT_TECHNIQUES if name in order] or order
    weak = [name for name in WEAK if name in order]
    bars = {
        "technique": (order, {name: data.techniques[name] for name in order}),
        "task": (usual, only(data.tasks, table["task"])),
        "model": (weak or order, only(data.models, table["model"])),
    }

    def draw(panel: Axes, column: str) -> None:
        techniques, looks = bars[column]
        _draw_bars(panel, score(table, column, techniques), column, looks)
        panel.set_xlim(-0.6, max(len(looks), 2.5) - 0.4)
        panel.set_xlabel(of_what.strip() if column == "model" else "", fontsize=6)

    of_what = f" ({' and '.join(weak)})" if weak else ""
    drawn, panels = panel_grid(
        [list(bars)],
        draw,
        2.1,
        title=lambda column: f"by {column}",
        y=lambda _: "accuracy",
        legend=[
            Patch(color=lighter(MODEL_COLOUR), label="accuracy@1"),
            Patch(color=MODEL_COLOUR, label="accuracy@2"),
            Line2D([], [], label="chance", **CHANCE),
        ],
        sharex="none",
        width_ratios=[max(2.5, len(looks)) + 0.8 for _, looks in bars.values()],
    )
    panels[0].set_ylim(0, 1.03)
    caption = (
        "Control setup: share of the highest-weighted layer (accuracy@1, light) and of the two "
        "highest (accuracy@2, dark) that are among those in which memorisation was hidden, by "
        f"technique, by task (mean of {', '.join(usual)}) and by model{of_what}; dashed: chance. "
        "Error bars: 95% bootstrap intervals over control models."
    )
    return [Picture("", drawn, caption)]


def _draw_bars(panel: Axes, rows: pd.DataFrame, column: str, looks: Mapping[str, Look]) -> None:
    """Two bars for each name, accuracy@1 and @2, and a line at chance."""
    for place, (name, look) in enumerate(looks.items()):
        colour = MODEL_COLOUR if column == "model" else look.colour
        for row in rows[rows[column] == name].to_dict("records"):
            mean, low, high = row["accuracy"], row["low"], row["high"]
            ends = None if np.isnan(low) else [[mean - low], [high - mean]]
            across = place - 0.2 if row["k"] == 1 else place + 0.2
            shade = lighter(colour) if row["k"] == 1 else colour
            panel.bar(across, mean, 0.4, color=shade, yerr=ends, error_kw={"elinewidth": 0.6})
            # Models of different depth have different chances.
            panel.plot([place - 0.5, place + 0.5], [row["chance"]] * 2, **CHANCE)
    name_ticks(panel, [look.name for look in looks.values()])


@figure(
    *("fig4", "largest error when one layer is modified", "memloc run, swapping or retraining"),
    (4,),
)
def draw_single_layers(data: FigureData) -> list[Picture]:
    """Models side by side, tasks as dots; one panel per technique."""
    errors = data.need_runs().windows.rename(columns={"single_layer": "value"})
    errors = errors[errors["technique"].isin(MODIFYING)].dropna(subset="value")
    if errors.empty:
        raise CannotDraw("no run has modified single layers by swapping or retraining")
    techniques = [name for name in MODIFYING if name in set(errors["technique"])]
    drawn, panels = _draw_models(data, errors, techniques, "largest error, one layer", 0.35)
    panels[0].set_ylim(bottom=0)
    panels[0].yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    caption = (
        "Largest memorisation error over the layers when one layer is modified, relative to "
        f"modifying all layers, by {' and '.join(techniques)}. Dots are tasks, means over seeds."
    )
    return [Picture("", drawn, caption)]


def _draw_models(
    data: FigureData,
    rows: pd.DataFrame,
    techniques: Sequence[str],
    label: str,
    end: float,
    joined: bool = False,
) -> tuple[Figure, list[Axes]]:
    """Models side by side, tasks as dots (perhaps joined by lines); a panel per technique."""
    models, tasks = only(data.models, rows["model"]), only(data.tasks, rows["task"])

    def draw(panel: Axes, technique: str) -> None:
        own = rows[rows["technique"] == technique]
        _draw_series(panel, own, "task", tasks, "model", list(models), end, joined=joined)
        name_ticks(panel, [look.name for look in models.values()])

    return panel_grid(
        [techniques],
        draw,
        2.0,
        title=str,
        y=lambda _: label,
        legend=handles(tasks.values(), line=joined),
        width=DOUBLE if len(techniques) * len(models) > 4 else SINGLE,
    )


def _draw_series(
    panel: Axes,
    rows: pd.DataFrame,
    by: str,
    looks: Mapping[str, Look],
    along: str,
    names: list[str],
    end: float,
    sideways: bool = False,
    joined: bool = False,
) -> None:
    """Means of `value` with deviations for the names in the column `along`, at 0, 1 and so on.

    The series (values of the column `by`) stand side by side, up to `end` from the middle.
    """
    places = np.linspace(-end, end, len(looks)) if len(looks) > 1 else np.zeros(1)
    for offset, (name, look) in zip(places, looks.items(), strict=True):
        found = rows[rows[by] == name].groupby(along)["value"].agg(["mean", "std"]).reindex(names)
        at = np.arange(len(names))
        if sideways:
            dot(panel, found["mean"], at - offset, look, across=found["std"])
        else:
            dot(panel, at + offset, found["mean"], look, up=found["std"])
        if joined:
            panel.plot(at + offset, found["mean"], color=look.colour, alpha=0.55, linewidth=0.7)


LEAST_SPAN = 0.25
"""Share of the depth that an axis of M-CoG covers at least."""
ROWS = {
    "swapping": "swapping\nmean error",
    "retraining": "retraining\nmean error",
    "gradients": "gradients\nrelative norm",
    "probing": "probing\nF₁ of noisy class",
}
"""Labels of the rows of Figure 5."""


@figure("fig5", "layer weights by technique and task", "memloc run", (5, 13, 18))
def draw_weights_by_category(data: FigureData) -> list[Picture]:
    """One figure per model: techniques below each other, categories of tasks side by side."""
    curves = data.need_runs().seed_weights
    curves = curves[["task", "model", "technique", "seed", "layer", "weight"]]
    curves = curves[(curves["technique"] != "probing") & curves["technique"].isin(list(ROWS))]
    curves = pd.concat([curves, _probing(data)], ignore_index=True)
    curves = curves[curves.groupby(["model", "technique"])["weight"].transform("count") > 0]
    if curves.empty:
        raise CannotDraw("no run has swapping, retraining, gradients or probing")

    def draw_model(model: str, rows: pd.DataFrame) -> tuple[Figure, str]:
        tasks = only(data.tasks, rows["task"])
        categories = [name for name in CATEGORIES if name in map(category, tasks)]
        techniques = [name for name in ROWS if name in set(rows["technique"])]

        def draw(panel: Axes, key: tuple[str, str]) -> None:
            of_technique = rows[rows["technique"] == key[0]]
            for task, look in tasks.items():
                if category(task) == key[1]:
                    style = curve_style(look, data.depths[model])
                    draw_curve(panel, of_technique[of_technique["task"] == task], "weight", style)
            layer_axis(panel, data.depths[model])

        drawn, _ = panel_grid(
            [[(technique, name) for name in categories] for technique in techniques],
            draw,
            1.05,
            title=lambda key: CATEGORIES[key[1]],
            x="layer",
            y=lambda key: ROWS[key[0]],
            legend=handles(tasks.values(), line=True),
            width=SINGLE if len(categories) == 1 else DOUBLE,
            sharey="row",
        )
        drawn.align_ylabels()
        caption = (
            f"Layer weights of {', '.join(techniques)} for {data.models[model].name}; for probing, "
            "F₁ by layer, whose increase is the weight." + data.seeds_words("Bands")
        )
        return drawn, caption

    return data.per_model(curves, draw_model)


def _probing(data: FigureData) -> pd.DataFrame:
    """F1 by layer, which is what the figure shows of probing."""
    try:
        probes = data.table("probes", "no run has probing")
    except CannotDraw:
        return pd.DataFrame()
    rows = probes[(probes["probe"] == "mlp") & (probes["state"] == "memorised")]
    by = ["task", "model", "technique", "seed", "layer"]
    means = fitted_means(rows[rows["layer"] >= 1], by, ["f1"])
    return means.rename(columns={"f1": "weight"}).reset_index()


@figure("fig6", "M-CoG of retraining, model by model", "memloc run, two models or more", (6,))
def draw_centres_of_models(data: FigureData) -> list[Picture]:
    """M-CoG of retraining (of swapping, if there is none), a line per task through the models."""
    centres, unit = _centres(data)
    if len(data.run_models) < 2:
        raise CannotDraw(ONE_MODEL)
    known = set(centres["technique"])
    technique = next((name for name in ("retraining", "swapping") if name in known), None)
    if technique is None:
        raise CannotDraw("no run has retraining or swapping")
    centres = centres[centres["technique"] == technique]
    drawn, panels = _draw_models(data, centres, [technique], unit, 0.12, joined=True)
    for panel in panels:  # so that a small difference looks small
        low, high = panel.get_ylim()
        least = LEAST_SPAN * (int(centres["layers"].max()) if data.same_depth else 1)
        more = max(0.0, least - (high - low)) / 2
        panel.set_ylim(low - more, high + more)
    caption = f"M-CoG of {technique}: whether lower or higher layers matter more for memorisation."
    spread = "" if data.need_runs().mean_profile else data.seeds_words()
    return [Picture("", drawn, caption + spread)]


@figure("fig7", "M-CoG by task", "memloc run", (7,))
def draw_centres_of_tasks(data: FigureData) -> list[Picture]:
    """M-CoG by task: left by technique, over models; right by model, over techniques."""
    centres, unit = _centres(data)
    tasks = list(only(data.tasks, centres["task"]))[::-1]
    if not tasks:
        raise CannotDraw("no layer has any weight, so there is no centre of gravity")
    techniques = only(data.techniques, centres["technique"])
    models = only(data.models, centres["model"])
    averaged = [name for name in DEFAULT_TECHNIQUES if name in techniques] or list(techniques)
    means = centres.groupby(["task", "model", "technique"])["value"].mean().reset_index()
    of_models = means[means["technique"].isin(averaged)]
    overall = of_models.groupby("task")["value"].mean().reindex(tasks)
    sides = {
        "technique": (techniques, means if len(models) > 1 else centres),
        "model": (models, of_models),
    }
    mean_line: dict[str, Any] = {"color": GREY, "linewidth": 1.2}

    def draw(panel: Axes, side: str) -> None:
        looks, rows = sides[side]
        _draw_series(panel, rows, side, looks, "task", tasks, 0.28, sideways=True)
        places = np.arange(len(tasks))
        if side == "model":
            panel.vlines(overall, places - 0.38, places + 0.38, zorder=1, **mean_line)
        panel.set_yticks(places, [data.tasks[task].name for task in tasks])

    in_a_row = max(len(techniques), len(models))
    drawn, _ = panel_grid(
        [list(sides)],
        draw,
        len(tasks) * max(0.2, 0.045 * in_a_row) + 0.6,
        title=lambda side: "by technique" if side == "technique" else "by model, over techniques",
        x=unit,
        legend=[
            *handles((*techniques.values(), *models.values()), line=False),
            Line2D([], [], label="mean", **mean_line),
        ],
        width=DOUBLE,
    )
    over_models = "models" if len(models) > 1 else "seeds"
    caption = (
        f"M-CoG by task: left by technique, mean over {over_models}, right by model, mean over "
        f"{', '.join(averaged)}. Error bars: standard deviation over {over_models} (left) and "
        "over techniques (right). Grey: mean of all."
    )
    return [Picture("", drawn, caption)]


def _centres(data: FigureData) -> tuple[pd.DataFrame, str]:
    """Centres (`value`; of every seed, unless weights are averaged first), and an axis label."""
    grid = data.need_runs()
    centres = grid.centres if grid.mean_profile else grid.seed_centres
    if data.same_depth:
        return centres.assign(value=centres["m_cog"]), "M-CoG (layer)"
    return centres.assign(value=centres["depth"]), "M-CoG (share of depth)"


def draw_agreement(quantity: str, words: str, data: FigureData) -> list[Picture]:
    """ρ and r between techniques, and between models."""
    grid = data.need_runs()
    together, _ = choose_models(grid)
    compared = {
        "techniques": (
            only(data.techniques, together.techniques),
            technique_pairs(together, quantity),
        ),
        "models": (data.run_models, model_pairs(grid, quantity)),
    }
    sides = {
        kind: (looks, _correlations(list(looks), pairs))
        for kind, (looks, pairs) in compared.items()
        if len(looks) > 1
    }
    if not sides:
        raise CannotDraw("there is one technique and one model, so nothing to compare")
    if all(np.isnan(matrix).all() for _, matrix in sides.values()):
        raise CannotDraw(f"there are fewer than {FEWEST} points to correlate; compute more runs")
    images: list[Any] = []

    def draw(panel: Axes, kind: str) -> None:
        looks, matrix = sides[kind]
        images.append(_draw_correlations(panel, matrix, [look.name for look in looks.values()]))

    width = DOUBLE if len(sides) == 2 else SINGLE
    drawn, panels = panel_grid(
        [list(sides)], draw, 2.9, title=str, width=width, sharex="none", sharey="none"
    )
    colour_bar(drawn, images[0], panels, "ρ (below the diagonal), r (above)")
    caption = (
        f"Correlation of {words} between {' and between '.join(sides)}: Spearman’s ρ below the "
        f"diagonal, Pearson’s r above it. –: fewer than {FEWEST} points, or no variation."
    )
    return [Picture("", drawn, caption)]


figure("fig8", "agreement of techniques and models: M-CoG", "memloc run", (8,))(
    partial(draw_agreement, M_COG, "M-CoG")
)
figure("fig9", "agreement of both: layer weights", "memloc run", (9,))(
    partial(draw_agreement, LAYER_WEIGHTS, "layer weights")
)


def _correlations(names: Sequence[str], pairs: Sequence[Pair]) -> np.ndarray:
    """Below the diagonal ρ, above it r; NaN where they are not known."""
    matrix = np.full((len(names), len(names)), np.nan)
    for pair in pairs:
        found = pair.correlation(resamples=0)
        above, below = sorted((names.index(pair.one), names.index(pair.other)))
        matrix[below, above] = np.nan if found.spearman is None else found.spearman
        matrix[above, below] = np.nan if found.pearson is None else found.pearson
    return matrix


def _draw_correlations(panel: Axes, matrix: np.ndarray, names: list[str]) -> Any:
    # Red for −1, blue for 1: also told apart by people who cannot tell red from green.
    image = panel.imshow(matrix, cmap="RdBu", vmin=-1, vmax=1)
    for row, column in np.argwhere(~np.eye(len(names), dtype=bool)):
        value = matrix[row, column]
        words = "–" if np.isnan(value) else f"{value:.2f}".replace("-", "−").replace("0.", ".", 1)
        colour = "white" if abs(value) > 0.6 else "black"
        panel.annotate(words, (column, row), color=colour, fontsize=6, ha="center", va="center")
    name_ticks(panel, names)
    panel.set_yticks(range(len(names)), names)
    panel.tick_params(length=0)
    panel.grid(False)
    return image


STATES = {
    "memorised": "unmodified",
    "bottom_swapped": "bottom half swapped",
    "top_swapped": "top half swapped",
}


@figure("fig11", "the same with a half swapped", EXPLAINED, (11,))
def draw_swapped(data: FigureData) -> list[Picture]:
    """One figure per model, tasks in rows, columns with a half swapped."""
    table = centroids_table(data)
    swapped = table[table["state"] != "memorised"]
    if swapped.empty:
        raise CannotDraw("no run has followed examples with half of the layers swapped")

    def draw(model: str, rows: pd.DataFrame) -> tuple[Figure, str]:
        layout = [[(task, model, one) for one in STATES] for task in only(data.tasks, rows["task"])]
        drawn = _draw_ways(data, table, layout, lambda key: STATES[key[2]], events=False)
        caption = (
            f"{ABOUT_POSITIONS} {data.models[model].name} as it is, and with the bottom or the top "
            "half of its layers from θ_O."
        )
        return drawn, caption

    return data.per_model(swapped, draw)


@figure(
    *("fig15", "noisy examples on their way, tasks × models", "as fig10, two models or more"), (15,)
)
def draw_ways_of_models(data: FigureData) -> list[Picture]:
    """Tasks in rows, models in columns."""
    table = centroids_table(data)
    models = only(data.models, table["model"])
    if len(models) < 2:
        raise CannotDraw(ONE_MODEL)
    tasks = only(data.tasks, table["task"])
    layout = [[(task, model, "memorised") for model in models] for task in tasks]
    drawn = _draw_ways(data, table, layout, lambda key: models[key[1]].name, events=True)
    return [Picture("", drawn, f"{ABOUT_POSITIONS} Crossing and initiation as lines.")]


def _draw_ways(
    data: FigureData,
    table: pd.DataFrame,
    layout: Sequence[Sequence[tuple[str, str, str]]],
    title: Callable[[tuple[str, str, str]], str],
    events: bool,
) -> Figure:
    """Panels of task, model and state, tasks below each other."""

    def draw(panel: Axes, key: tuple[str, str, str]) -> None:
        task, model, state = key
        rows = table[(table["task"] == task) & (table["model"] == model)]
        rows = rows[rows["state"] == state]
        if rows.empty:
            write_in(panel, "no run")
        draw_way(panel, rows, events_of(data, rows) if events else {})
        layer_axis(panel, data.depths[model], 4)

    drawn, panels = panel_grid(
        layout,
        draw,
        min(1.1, (TALLEST - 0.6) / len(layout)),
        title=title,
        x="layer",
        y=lambda key: data.tasks[key[0]].name,
        legend=way_legend(events),
        width=DOUBLE,
        sharex="col",
    )
    way_limits(panels)
    return drawn


PROBES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "noisy examples, perturbed label": ("noisy_f1", "perturbed", {"color": CLASS_A}),
    "noisy examples, original label": (
        *("noisy_f1", "original", {"color": CLASS_B, "linestyle": (0, (3, 1.5))}),
    ),
    "clean examples": ("clean_f1", "original", {"color": GREY, "linestyle": (0, (1, 1.5))}),
}
"""What class probes are tested on: the column, the labels they were trained on, and the line."""
MEM_GEN: dict[str, Any] = {"color": EVENT, "linewidth": 0.8}


@figure("fig14", "class probes on noisy examples", "memloc run (class probes)", (14,))
def draw_class_probes(data: FigureData) -> list[Picture]:
    """Which label do class probes find for noisy examples? A panel per task, means over models."""
    table = data.table("class_probes", "no run has class probes")
    table = table[table.groupby("layers")["fitted"].transform("any")]
    if table.empty:
        raise CannotDraw("no class probe fits its own training data")
    depths = table["layers"].nunique()
    return [
        _draw_probes(data, rows, f"{depth}-layers" if depths > 1 else "")
        for depth, rows in table.groupby("layers")
    ]


def _draw_probes(data: FigureData, rows: pd.DataFrame, suffix: str) -> Picture:
    """Of all models of the same depth."""
    models = only(data.models, rows["model"])
    panel_of = ["task", "labels", "layer"]
    found = fitted_means(rows, [*panel_of, "model", "seed"], ["noisy_f1", "clean_f1"])
    means = found.groupby([*panel_of, "model"]).mean()
    means = means.groupby(panel_of).mean().reset_index().assign(seed=0)  # a mean has no band
    events = data.need_runs().events
    events = events[(events["event"] == "mem_gen") & events["model"].isin(list(models))]
    happens = events.groupby("task")["layer"].mean().dropna()

    def draw(panel: Axes, task: str) -> None:
        own = means[means["task"] == task]
        for value, labels, style in PROBES.values():
            draw_curve(panel, own[own["labels"] == labels], value, style)
        if task in happens:
            panel.axvline(happens[task], **MEM_GEN)
        layer_axis(panel, int(rows["layers"].iloc[0]))

    drawn, panels = panel_grid(
        in_rows(only(data.tasks, rows["task"]), 4),
        draw,
        1.25,
        title=lambda task: data.tasks[task].name,
        x="layer",
        y=lambda _: "macro F₁",
        legend=[
            *(Line2D([], [], label=words, **style) for words, (*_, style) in PROBES.items()),
            Line2D([], [], label=IN_PRINT["mem_gen"], **MEM_GEN),
        ],
    )
    panels[0].set_ylim(0, 1.02)
    names = ", ".join(look.name for look in models.values())
    caption = (
        "Class probes, trained on perturbed or on original labels: F₁ by layer, mean over models "
        f"and seeds ({names}). Gaps: too few probes of the layer fit their own training data."
    )
    return Picture(suffix, drawn, caption)


PAIRS = {
    "centroid analysis": ("crossing", "initiation"),
    "class probes": ("mem_gen", "f1_90"),
}
"""What shows the events: the one of memorisation (from left to right), and of classification."""
SIDE_BY_SIDE = " Tasks at the same place are drawn side by side."
AXES = {
    "initiation": "classification initiation (layer)",
    "crossing": "crossing (layer)",
    "mem_gen": "memorisation ≫ generalisation, noisy (layer)",
    "f1_90": "90% F₁, clean (layer)",
}


@figure("fig12", "events: crossing, initiation, …", EXPLAINED, (12, 17))
def draw_events(data: FigureData) -> list[Picture]:
    """When memorisation and classification set in: one figure for models of the same depth."""
    caption = (
        "When memorisation (right) and classification (up) set in, mean over models and seeds "
        "({models}). Error bars: standard deviation over models, if there are several."
    )
    pictures = _event_figures(data, data.need_runs().events, tuple(PAIRS), caption)
    if not pictures:
        raise CannotDraw("no run has the two events of a panel (crossing and initiation)")
    return pictures


def _event_figures(
    data: FigureData,
    events: pd.DataFrame,
    names: Sequence[str],
    caption: str,
    value: str = "layer",
    before: str | None = None,
) -> list[Picture]:
    """A figure for each depth, with a panel for each of these pairs; arrows begin at `before`."""
    pictures = []
    for depth, rows in events.groupby("layers"):
        sides = {name: _event_points(rows, PAIRS[name], value) for name in names}
        sides = {name: found for name, found in sides.items() if found.notna().any().all()}
        if sides:
            start = None if before is None else _event_points(rows, PAIRS[names[0]], before)
            drawn, missing = _draw_event_pairs(data, sides, int(rows["layers"].iloc[0]), start)
            models = ", ".join(look.name for look in only(data.models, rows["model"]).values())
            suffix = f"{depth}-layers" if events["layers"].nunique() > 1 else ""
            pictures.append(
                Picture(suffix, drawn, caption.format(models=models) + SIDE_BY_SIDE + missing)
            )
    return pictures


def _event_points(rows: pd.DataFrame, pair: tuple[str, str], value: str) -> pd.DataFrame:
    """The layers of two events as x and y, by task and model."""
    wide = rows.pivot(index=["task", "model"], columns="event", values=value)
    points = wide.reindex(columns=list(pair)).astype("float64")
    return points.set_axis(["x", "y"], axis="columns")


def _draw_tasks(
    panel: Axes, points: pd.DataFrame, tasks: Mapping[str, Look], width: float
) -> pd.DataFrame:
    """One dot per task, the mean over models with its deviation; those without one are left out.

    Dots at the same place are spread along the diagonal, so that none is hidden and all stay on
    their side of it. `width` is that of the panel.

    Returns:
        Where the dots are.
    """
    mean, spread = points.groupby("task").mean().dropna(), points.groupby("task").std()
    cells = (50 * mean / width).round()
    together = mean.groupby([cells[column] for column in cells]).cumcount()
    others = together.groupby([cells[column] for column in cells]).transform("max")
    mean = mean.add((together - others / 2) * width / 40, axis=0)
    for task, look in only(tasks, mean.index).items():
        (x, y), (across, up) = mean.loc[task].to_numpy(), spread.loc[task].to_numpy()
        dot(panel, x, y, look, across, up, size=5)
    return mean


def _draw_event_pairs(
    data: FigureData,
    sides: Mapping[str, pd.DataFrame],
    depth: int,
    before: pd.DataFrame | None = None,
) -> tuple[Figure, str]:
    """A panel for each pair of events, perhaps with arrows from points before, and what lacks."""
    names = [str(task) for found in sides.values() for task, _ in found.index]
    tasks = only(data.tasks, names)
    arrow = {"linewidth": 0.6, "alpha": 0.6, "arrowstyle": "->"}

    def draw(panel: Axes, side: str) -> None:
        ends = _draw_tasks(panel, sides[side], tasks, depth)
        if before is not None:
            both = before.groupby("task").mean().add_suffix("_before").join(ends).dropna()
            for task, (*start, x, y) in zip(both.index, both.to_numpy(), strict=True):
                style = {"color": tasks[str(task)].colour, **arrow}
                panel.annotate("", (x, y), (start[0], start[1]), arrowprops=style)
        diagonal(panel, 0.5, depth + 0.5)
        ticks = layer_ticks(depth)
        panel.set(xticks=ticks, yticks=ticks)
        panel.set(xlabel=AXES[PAIRS[side][0]], ylabel=AXES[PAIRS[side][1]])

    drawn, _ = panel_grid(
        [list(sides)],
        draw,
        2.85,
        title=lambda side: side if len(sides) > 1 else "",
        legend=handles(tasks.values(), line=False),
        width=DOUBLE if len(sides) > 1 else SINGLE,
        sharex="none",
        sharey="none",
    )
    missing = [
        f"{tasks[str(task)].name} ({IN_PRINT[event]})"
        for side, found in sides.items()
        for event, layers in zip(PAIRS[side], ("x", "y"), strict=True)
        for task in found[found[layers].groupby("task").transform("count") == 0]
        .index.get_level_values("task")
        .unique()
    ]
    return drawn, f" Not shown, as an event never happens: {', '.join(missing)}." if missing else ""


TWINS = "memloc run with all classes and with two (binarise)"
NO_TWINS = "no task was run both with all its classes and with two"


@figure("fig19", "M-CoG with all classes and with two", TWINS, (19,))
def draw_binarised_centres(data: FigureData) -> list[Picture]:
    """M-CoG of swapping with all classes against that with two (appendix C)."""
    rows = _twins(data)
    rows = rows[rows["quantity"] == "m_cog"].dropna(subset=["multi", "binary"])
    if rows.empty:
        raise CannotDraw(f"{NO_TWINS}, with swapping")
    points = rows.set_index(["task", "model"])[["multi", "binary"]].astype("float64")
    unit = "layer"
    if rows["layers"].nunique() > 1:
        points, unit = (points - 0.5).div(rows["layers"].to_numpy(), axis=0), "share of depth"
    tasks = only(data.tasks, rows["task"])
    low, high = points.to_numpy().min(), points.to_numpy().max()
    margin = max(0.08 * (high - low), 0.05)

    def draw(panel: Axes, _: str) -> None:
        _draw_tasks(panel, points, tasks, high - low + 2 * margin)
        diagonal(panel, low - margin, high + margin)

    drawn, _ = panel_grid(
        [["m_cog"]],
        draw,
        2.75,
        x=f"M-CoG, all classes ({unit})",
        y=lambda _: f"M-CoG, two classes ({unit})",
        legend=handles(tasks.values(), line=False),
    )
    caption = (
        "M-CoG of swapping with all classes and with the two most frequent ones. Error bars: "
        "standard deviation over models, if there are several." + SIDE_BY_SIDE
    )
    return [Picture("", drawn, caption)]


@figure("fig20", "events of binarised tasks", TWINS, (20,))
def draw_binarised_events(data: FigureData) -> list[Picture]:
    """Events of tasks with two classes, and where they were with all classes."""
    events = _twins(data).rename(columns={"quantity": "event"})
    caption = (
        "When memorisation (right) and classification (up) set in, for tasks with their two most "
        "frequent classes, mean over models ({models}). Arrows begin where the task with all "
        "classes is."
    )
    names = ("centroid analysis",)
    events = events[events["event"].isin(PAIRS[names[0]])]
    pictures = _event_figures(data, events, names, caption, "binary", before="multi")
    if not pictures:
        raise CannotDraw(f"{NO_TWINS}, with crossing and initiation")
    return pictures


def _twins(data: FigureData) -> pd.DataFrame:
    found = compare_twins(data.need_runs())
    if found is None:
        raise CannotDraw(NO_TWINS)
    return found.points


PANELS = {
    "(a) frozen,\nnoisy": ("frozen", "noisy", None),
    "(b) $\\theta_{M_1}$,\nclean": ("near_ceiling", "clean", None),
    "(c) $\\theta_{M_1}$,\nnoisy": ("near_ceiling", "noisy", None),
    "(d) weights,\nas they are": ("near_ceiling", "noisy", ""),
    "(e) weights,\n÷ frozen": ("near_ceiling", "noisy", "noisy"),
    "(f) weights,\n− clean": ("near_ceiling", "difference", ""),
    "(g) weights,\nboth": ("near_ceiling", "difference", "difference"),
}
"""By title: state and gradient; and, for weights that sum to 1, by which gradient of the frozen
model they are divided (empty: by none)."""
ALL = "all"


@figure(
    *("fig21", "gradient norms and their post-processing"),
    *("memloc control, or memloc run with gradients", (21,)),
)
def draw_gradients(data: FigureData) -> list[Picture]:
    """One figure per model: norms and weights in columns, hidden layers in rows (appendix E)."""

    def draw_model(model: str, rows: pd.DataFrame) -> tuple[Figure, str]:
        tasks = only(data.tasks, rows["task"])
        setups = sorted(rows["hidden"].unique(), key=_hidden_layers)

        def draw(panel: Axes, key: tuple[str, str]) -> None:
            hidden, title = key
            for layer in _hidden_layers(hidden):
                panel.axvspan(layer - 0.5, layer + 0.5, color="#DDDDDD", linewidth=0, zorder=0)
            for task, look in tasks.items():
                own = rows[(rows["hidden"] == hidden) & (rows["task"] == task)]
                curve = _gradient_curve(own, *PANELS[title])
                style = {"linewidth": 0.8, "markevery": max(1, len(curve) // 6), **marks(look, 2.6)}
                panel.plot(curve.index, curve, **style)
            layer_axis(panel, data.depths[model], 3)
            panel.yaxis.set_major_locator(MaxNLocator(3))
            panel.tick_params(labelsize=5.5, pad=1)

        drawn, panels = panel_grid(
            [[(hidden, title) for title in PANELS] for hidden in setups],
            draw,
            1.05,
            title=lambda key: key[1],
            x="layer",
            y=lambda key: "" if key[0] == ALL else f"layers {key[0].replace('+', ', ')}",
            legend=handles(tasks.values(), line=True),
            sharey="none",
        )
        _share_scales(panels)
        caption = (
            f"Forgetting gradients of {data.models[model].name} by layer, L1 norms: (a) in the "
            "frozen model, (b) for clean and (c) for noisy examples at θ_M1, and layer weights "
            "that sum to 1 (d) without post-processing, (e) divided by the norm in the frozen "
            "model, (f) with the gradient of clean examples subtracted, (g) with both."
        )
        if setups != [ALL]:
            caption += " Rows: the layers in which memorisation was hidden (grey)."
        return drawn, caption

    return data.per_model(_norms(data), draw_model)


def _norms(data: FigureData) -> pd.DataFrame:
    """L1 norms of control experiments, or else of runs."""
    table = data.control.get("gradients")
    if table is None or table.empty:
        table = data.table("gradients", "no run has gradients").assign(hidden=ALL)
    return table[table["kind"] == "L1"]


def _share_scales(panels: Sequence[Axes]) -> None:
    """In each row the two panels at θ_M1 have one scale, and the four of weights."""
    for row in in_rows(panels, len(PANELS)):
        for together in (row[:1], row[1:3], row[3:]):
            high = max(panel.dataLim.y1 for panel in together)
            for panel in together:
                panel.set_ylim(0, high * 1.05 if np.isfinite(high) and high > 0 else 1)
                panel.tick_params(labelleft=panel is together[0])


def _hidden_layers(hidden: object) -> tuple[int, ...]:
    return () if hidden == ALL else parse_hidden(str(hidden))


def _gradient_curve(
    rows: pd.DataFrame, state: str, gradient: str, divisor: str | None
) -> pd.Series[float]:
    """Mean over seeds, by layer; empty if the norms are not there."""
    own = rows[(rows["state"] == state) & (rows["gradient"] == gradient)]
    values = own.pivot_table(index="seed", columns="layer", values="norm").dropna()
    if divisor:  # the frozen model was trained with one seed: it serves all of them
        frozen = rows[(rows["state"] == "frozen") & (rows["gradient"] == divisor)]
        values = values / frozen.groupby("layer")["norm"].mean()
    if divisor is not None:
        values = values.div(values.sum(axis=1), axis=0)
    return values.mean().dropna()
