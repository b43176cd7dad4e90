"""Figures 2 to 9 and 21: which layers matter, and who agrees on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator

from memloc.analysis.control import parse_hidden, score
from memloc.analysis.correlation import FEWEST, mean_correlation
from memloc.config import DEFAULT_TECHNIQUES
from memloc.report.figures.data import CannotDraw, FigureData, Picture
from memloc.report.figures.looks import CATEGORIES, GREY, Look, category, lighter
from memloc.report.figures.panels import (
    DOUBLE,
    SINGLE,
    colour_bar,
    dot,
    handles,
    in_rows,
    layer_axis,
    legend_below,
    legend_height,
    letters,
    marks,
    new_figure,
    slant,
)
from memloc.report.figures.registry import figure
from memloc.report.figures.results import curve_style, draw_curve, draw_heat_maps
from memloc.results.agreement import LAYER_WEIGHTS, M_COG, Pair, model_pairs, technique_pairs
from memloc.techniques import names as technique_names

MODIFYING = ("swapping", "retraining")
WEAK = ("gradients", "probing")
"""Techniques by which the paper tells models apart; the others find nearly all layers."""
CHANCE: dict[str, Any] = {"color": "black", "linewidth": 0.8, "linestyle": (0, (3, 2))}
MODEL_COLOUR = "#444444"

figure(
    *("fig3", "error by window size and layer (E)", "memloc run, swapping or retraining", (3, 16))
)(draw_heat_maps)


@figure("fig2", "accuracy@1 and @2 in the control setup", "memloc control", (2,))
def draw_control(data: FigureData) -> list[Picture]:
    """Do techniques find the layers in which memorisation was hidden?"""
    table = data.control.get("accuracy")
    if table is None or table.empty:
        raise CannotDraw("there are no results of `memloc control`")
    order = [name for name in technique_names() if name in set(table["technique"])]
    order += sorted(set(table["technique"]) - set(order))
    # Which techniques are averaged, as in the summary of `memloc control`.
    usual = [name for name in DEFAULT_TECHNIQUES if name in order] or order
    weak = [name for name in WEAK if name in order] or order
    of_what = " and ".join(weak) if set(weak) <= set(WEAK) else ""
    tasks = [task for task in data.tasks if task in set(table["task"])]
    models = [model for model in data.models if model in set(table["model"])]
    shown: dict[str, tuple[list[str], dict[str, tuple[str, str]]]] = {
        "technique": (order, {t: (t, data.technique_looks[t].colour) for t in order}),
        "task": (usual, {t: (data.task_names[t], data.task_looks[t].colour) for t in tasks}),
        "model": (weak, {m: (data.model_names[m], MODEL_COLOUR) for m in models}),
    }
    widths = [max(2.5, len(names)) + 0.8 for _, names in shown.values()]
    drawn = new_figure(DOUBLE, 2.1)
    panels = drawn.subplots(1, 3, sharey=True, width_ratios=widths)
    for panel, (column, (techniques, names)) in zip(panels, shown.items(), strict=True):
        _bars(panel, score(table, column, techniques), column, names)
        panel.set_title(f"by {column}")
    if of_what:
        panels[2].set_xlabel(f"({of_what})")
    panels[0].set_ylim(0, 1.03)
    panels[0].set_ylabel("accuracy")
    entries = [
        Patch(color=lighter(MODEL_COLOUR), label="accuracy@1"),
        Patch(color=MODEL_COLOUR, label="accuracy@2"),
        Line2D([], [], label="chance", **CHANCE),
    ]
    drawn.legend(handles=entries, loc="outside lower center", ncols=3)
    caption = (
        "Control setup: share of the highest-weighted layer (accuracy@1, light) and of the two "
        "highest (accuracy@2, dark) that are among those in which memorisation was hidden, by "
        f"technique, by task (mean of {', '.join(usual)}) and by model"
        f"{of_what and f' ({of_what} alone)'}; dashed: chance. Error bars: 95% bootstrap intervals "
        "over control models."
    )
    return [Picture("", drawn, caption)]


def _bars(
    panel: Axes, rows: pd.DataFrame, column: str, names: Mapping[str, tuple[str, str]]
) -> None:
    """Two bars for each name, accuracy@1 and @2, and a line at chance."""
    width = 0.4
    scores = rows.set_index([column, "k"])
    for place, (name, (_, colour)) in enumerate(names.items()):
        for k, offset, shade in ((1, -width / 2, lighter(colour)), (2, width / 2, colour)):
            if (name, k) not in scores.index:
                continue
            mean, low, high = scores.loc[(name, k), ["accuracy", "low", "high"]].to_numpy(float)
            ends = None if np.isnan(low) else [[mean - low], [high - mean]]
            form = {"elinewidth": 0.6, "ecolor": "black"}
            panel.bar(place + offset, mean, width, color=shade, yerr=ends, error_kw=form)
    # Models of different depth have different chances.
    chances = rows.groupby(column)["chance"].mean()
    if chances.nunique() == 1:
        panel.axhline(float(chances.iloc[0]), **CHANCE)
    for place, name in enumerate(names if chances.nunique() > 1 else ()):
        panel.plot([place - 0.5, place + 0.5], [float(chances[name])] * 2, **CHANCE)
    printed = [words for words, _ in names.values()]
    panel.set_xticks(range(len(names)), printed, rotation=40, ha="right", rotation_mode="anchor")
    panel.tick_params(axis="x", length=0)
    panel.set_xlim(-0.6, max(len(names), 2.5) - 0.4)
    panel.grid(False, axis="x")
    panel.spines["bottom"].set_color(GREY)


WINDOWS = {
    **{"technique": "object", "seed": "int64", "first_layer": "int64", "last_layer": "int64"},
    **{"size": "int64", "noisy_error": "float64"},
}


@figure(
    *("fig4", "largest error when one layer is modified", "memloc run, swapping or retraining"),
    (4,),
)
def draw_single_layers(data: FigureData) -> list[Picture]:
    """Models side by side, tasks as dots; one panel per technique."""
    windows = data.table("windows", WINDOWS, "no run has windows of swapping or retraining")
    errors = largest_errors(windows[windows["technique"].isin(MODIFYING)])
    if errors.empty:
        raise CannotDraw("no run has modified single layers")
    techniques = [name for name in MODIFYING if name in set(errors["technique"])]
    models = [model for model in data.run_models if model in set(errors["model"])]
    names = {task: data.task_names[task] for task in data.tasks if task in set(errors["task"])}
    width = DOUBLE if len(techniques) * len(models) > 3 else SINGLE
    drawn = new_figure(width, 1.75 + legend_height(list(names.values()), width))
    panels = drawn.subplots(1, len(techniques), squeeze=False, sharey=True)[0]
    offsets = dict(zip(names, _offsets(0.35, len(names)), strict=True))
    for panel, technique in zip(panels, techniques, strict=True):
        for row in errors[errors["technique"] == technique].to_dict("records"):
            place = models.index(row["model"]) + offsets[row["task"]]
            look = data.task_looks[row["task"]]
            dot(panel, place, row["error"], look, spread=(None, row["spread"]), bar=0.6)
        slant(panel, [data.model_names[m] for m in models], (width - 0.5) / len(techniques))
        panel.set_xlim(-0.5, len(models) - 0.5)
        panel.grid(False, axis="x")
        for border in range(1, len(models)):
            panel.axvline(border - 0.5, color="#DDDDDD", linewidth=0.5)
        panel.set_title(technique)
    panels[0].set_ylabel("largest error, one layer")
    panels[0].set_ylim(0, 1.1 * (errors["error"] + errors["spread"].fillna(0)).max())
    panels[0].yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    legend_below(drawn, handles(data.task_looks, names, line=False))
    caption = (
        "Largest memorisation error over the layers when one layer is modified, relative to "
        f"modifying all layers, by {' and '.join(techniques)}. Dots are tasks." + data.seeds_words()
    )
    return [Picture("", drawn, caption)]


def largest_errors(windows: pd.DataFrame) -> pd.DataFrame:
    """Per technique, model and task: error (of the layer with the largest mean) and its spread."""
    by = ["technique", "model", "task"]
    full = windows[windows["size"] == windows["layers"]]
    scale = full.groupby([*by, "seed"])["noisy_error"].mean().rename("full")
    single = windows[windows["size"] == 1].merge(scale.reset_index(), on=[*by, "seed"])
    single = single[single["full"] > 0]
    single = single.assign(error=single["noisy_error"] / single["full"])
    layers = single.groupby([*by, "first_layer"])["error"].agg(["mean", "std"]).reset_index()
    largest = layers.loc[layers.groupby(by)["mean"].idxmax().to_numpy()]
    return largest.rename(columns={"mean": "error", "std": "spread"}).reset_index(drop=True)


def _offsets(end: float, count: int) -> np.ndarray:
    """Places beside each other, around 0."""
    return np.linspace(-end, end, count) if count > 1 else np.zeros(1)


PROBES = {
    **{"technique": "object", "seed": "int64", "probe": "object", "model": "object"},
    **{"layer": "int64", "f1": "float64"},
}
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
    if curves.empty:
        raise CannotDraw("no run has swapping, retraining, gradients or probing")
    models = [model for model in data.run_models if model in set(curves["model"])]
    return [_weights_of(data, model, curves[curves["model"] == model]) for model in models]


def _probing(data: FigureData) -> pd.DataFrame:
    """F1 by layer, which is what the figure shows of probing."""
    try:
        probes = data.table("probes", PROBES, "")
    except CannotDraw:
        return pd.DataFrame()
    rows = probes[(probes["probe"] == "mlp") & (probes["state"] == "memorised")]
    rows = rows[rows["layer"] >= 1]
    by = ["task", "model", "technique", "seed", "layer"]
    return rows.groupby(by)["f1"].mean().rename("weight").reset_index()


def _weights_of(data: FigureData, model: str, curves: pd.DataFrame) -> Picture:
    techniques = [name for name in ROWS if name in set(curves["technique"])]
    tasks = [task for task in data.tasks_of(model) if task in set(curves["task"])]
    groups = {
        name: {t: data.task_names[t] for t in tasks if category(t) == name} for name in CATEGORIES
    }
    groups = {name: members for name, members in groups.items() if members}
    width = SINGLE if len(groups) == 1 else DOUBLE
    beside = width / len(groups) - 0.2
    legend = max(legend_height(list(members.values()), beside) for members in groups.values())
    drawn = new_figure(width, len(techniques) * 1.02 + 0.35 + legend)
    panels = drawn.subplots(len(techniques), len(groups), squeeze=False, sharex=True, sharey="row")
    n_layers = data.depths[model]
    for line, technique in enumerate(techniques):
        rows = curves[curves["technique"] == technique]
        for column, (name, members) in enumerate(groups.items()):
            panel, lowest = panels[line, column], line == len(techniques) - 1
            for task in members:
                style = curve_style(data.task_looks[task], n_layers)
                draw_curve(panel, rows[rows["task"] == task], "weight", style)
            layer_axis(panel, n_layers, label=lowest)
            if line == 0:
                panel.set_title(CATEGORIES[name])
            if column == 0:
                panel.set_ylabel(ROWS[technique])
            if lowest:
                entries = in_rows(handles(data.task_looks, members, line=True), beside)
                panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.34), **entries)
    drawn.align_ylabels()
    caption = (
        f"Layer weights of {', '.join(techniques)} for {data.model_names[model]}; for probing, F₁ "
        "by layer, whose increase is the weight." + data.seeds_words("Bands")
    )
    return Picture(data.file_names[model], drawn, caption)


@figure("fig6", "M-CoG of retraining, model by model", "memloc run, two models or more", (6,))
def draw_centres_of_models(data: FigureData) -> list[Picture]:
    """M-CoG of retraining (of swapping, if there is none), a line per task through the models."""
    centres = _with_height(data)
    if len(data.run_models) < 2:
        raise CannotDraw("there is only one model, and the figure compares models")
    known = set(centres["technique"])
    technique = next((name for name in ("retraining", "swapping") if name in known), None)
    if technique is None:
        raise CannotDraw("no run has retraining or swapping")
    rows = centres[centres["technique"] == technique]
    models = [model for model in data.run_models if model in set(rows["model"])]
    names = {task: data.task_names[task] for task in data.tasks if task in set(rows["task"])}
    width = SINGLE if len(models) <= 4 else DOUBLE
    drawn = new_figure(width, 2.3 + legend_height(list(names.values()), width))
    panel = drawn.subplots()
    for offset, task in zip(_offsets(0.12, len(names)), names, strict=True):
        look = data.task_looks[task]
        of_task = rows[rows["task"] == task].groupby("model")["height"].agg(["mean", "std"])
        of_task = of_task.reindex(models)
        places, mean = np.arange(len(models)) + offset, of_task["mean"].to_numpy()
        panel.plot(places, mean, color=look.colour, alpha=0.55, linewidth=0.7)
        dot(panel, places, mean, look, spread=(None, of_task["std"].to_numpy()))
    slant(panel, [data.model_names[model] for model in models], width - 0.5)
    panel.set_xlim(-0.35, len(models) - 0.65)
    panel.set_ylabel(data.height_words)
    legend_below(drawn, handles(data.task_looks, names, line=True))
    caption = f"M-CoG of {technique}: whether lower or higher layers matter more for memorisation."
    return [Picture("", drawn, caption + data.seeds_words())]


@figure("fig7", "M-CoG by task", "memloc run", (7,))
def draw_centres_of_tasks(data: FigureData) -> list[Picture]:
    """M-CoG by task: left by technique, over models; right by model, over techniques."""
    centres = _with_height(data)
    tasks = [task for task in data.tasks if task in set(centres["task"])][::-1]
    if not tasks:
        raise CannotDraw("no layer has any weight, so there is no centre of gravity")
    techniques = [name for name in data.need_runs().techniques if name in set(centres["technique"])]
    models = [model for model in data.run_models if model in set(centres["model"])]
    in_a_row = max(len(techniques), len(models))
    drawn = new_figure(DOUBLE, len(tasks) * max(0.2, 0.045 * in_a_row) + 0.85)
    panels = drawn.subplots(1, 2, sharey=True, sharex=True)
    over_models = "models" if len(models) > 1 else "seeds"
    means = centres.groupby(["task", "model", "technique"])["height"].mean().reset_index()
    averaged = [name for name in DEFAULT_TECHNIQUES if name in techniques] or techniques
    of_models = means[means["technique"].isin(averaged)]
    observed = means if len(models) > 1 else centres
    _dots(panels[0], tasks, observed, "technique", data.technique_looks, techniques)
    _dots(panels[1], tasks, of_models, "model", data.model_looks, models)
    overall = of_models.groupby("task")["height"].mean().reindex(tasks)
    mean_line: dict[str, Any] = {"color": GREY, "linewidth": 1.2}
    for place, task in enumerate(tasks):
        ends = [place - 0.38, place + 0.38]
        panels[1].plot([overall[task]] * 2, ends, zorder=1, **mean_line)
    panels[0].set_title("by technique")
    panels[1].set_title("by model, mean over techniques")
    _task_rows(data, panels, tasks)
    left = handles(data.technique_looks, {name: name for name in techniques}, line=False)
    right = handles(data.model_looks, {m: data.model_names[m] for m in models}, line=False)
    right.append(Line2D([], [], label="mean", **mean_line))
    drawn.legend(loc="outside lower left", **in_rows(left, DOUBLE / 2 - 0.1))
    drawn.legend(loc="outside lower right", **in_rows(right, DOUBLE / 2 - 0.1))
    caption = (
        f"M-CoG by task: left by technique, mean over {over_models}, right by model, mean over "
        f"{', '.join(averaged)}. Error bars: standard deviation over {over_models} (left) and "
        "over techniques (right). Grey: mean of all."
    )
    return [Picture("", drawn, caption)]


def _with_height(data: FigureData) -> pd.DataFrame:
    """Centres of all seeds, on an axis for all models."""
    centres = data.need_runs().seed_centres
    return centres.assign(height=centres["m_cog" if data.same_depth else "depth"])


def _dots(
    panel: Axes,
    tasks: list[str],
    rows: pd.DataFrame,
    column: str,
    looks: dict[str, Look],
    names: list[str],
) -> None:
    for offset, name in zip(_offsets(0.28, len(names))[::-1], names, strict=True):
        of_name = rows[rows[column] == name].groupby("task")["height"].agg(["mean", "std"])
        of_name = of_name.reindex(tasks)
        across, up = of_name["mean"].to_numpy(), np.arange(len(tasks)) + offset
        dot(panel, across, up, looks[name], 3.8, (of_name["std"].to_numpy(), None), 0.6)


def _task_rows(data: FigureData, panels: np.ndarray, tasks: list[str]) -> None:
    """Names of tasks, bands between them, and lines between categories."""
    panels[0].set_yticks(range(len(tasks)), [data.task_names[task] for task in tasks])
    panels[0].set_ylim(-0.55, len(tasks) - 0.45)
    for panel in panels:
        panel.set_xlabel(data.height_words)
        panel.grid(False, axis="y")
        panel.tick_params(axis="y", length=0)
        for place in range(0, len(tasks), 2):
            panel.axhspan(place - 0.5, place + 0.5, color="#F5F5F5", linewidth=0, zorder=0)
        for place in range(1, len(tasks)):
            if category(tasks[place]) != category(tasks[place - 1]):
                panel.axhline(place - 0.5, color="#AAAAAA", linewidth=0.6)


@figure("fig8", "agreement of techniques and models: M-CoG", "memloc run", (8,))
def draw_agreement_of_centres(data: FigureData) -> list[Picture]:
    """ρ of centres of gravity."""
    return _draw_agreement(data, M_COG, "M-CoG")


@figure("fig9", "agreement of both: layer weights", "memloc run", (9,))
def draw_agreement_of_weights(data: FigureData) -> list[Picture]:
    """ρ of layer weights."""
    return _draw_agreement(data, LAYER_WEIGHTS, "layer weights")


def _draw_agreement(data: FigureData, quantity: str, words: str) -> list[Picture]:
    grid = data.need_runs()
    sides: dict[str, tuple[dict[str, str], list[Pair]]] = {}
    if len(grid.techniques) > 1:
        names = {name: name for name in grid.techniques}
        sides["techniques"] = names, technique_pairs(grid, quantity)
    if len(data.run_models) > 1:
        names = {model: data.model_names[model] for model in data.run_models}
        sides["models"] = names, model_pairs(grid, quantity)
    if not sides:
        raise CannotDraw("there is one technique and one model, so nothing to compare")
    matrices = [_matrix(list(names), pairs) for names, pairs in sides.values()]
    if all(np.isnan(matrix).all() for matrix in matrices):
        raise CannotDraw(f"there are fewer than {FEWEST} points to correlate; compute more runs")
    width = DOUBLE if len(sides) == 2 else SINGLE
    # Names at the left, and below at an angle, take as much room as the longest of them.
    longest = max(len(name) for names, _ in sides.values() for name in names.values())
    height = (width - 0.4) / len(sides) - longest * 0.05 + longest * 0.042
    drawn = new_figure(width, min(height, 3.4))
    panels = drawn.subplots(1, len(sides), squeeze=False)[0]
    images = []
    for panel, kind, matrix in zip(panels, sides, matrices, strict=True):
        images.append(_draw_correlations(panel, matrix, list(sides[kind][0].values())))
        panel.set_title(kind)
    colour_bar(drawn, images[0], panels, "Spearman’s ρ", shrink=0.7, aspect=22, pad=0.02)
    caption = (
        f"Spearman’s ρ of {words} between {' and between '.join(sides)}. "
        f"Hatched: fewer than {FEWEST} points, or no variation."
    )
    return [Picture("", drawn, caption)]


def _matrix(names: Sequence[str], pairs: Sequence[Pair]) -> np.ndarray:
    """Below the diagonal ρ; NaN everywhere else."""
    matrix = np.full((len(names), len(names)), np.nan)
    for pair in pairs:
        found = mean_correlation([pair.points], resamples=0).spearman
        places = sorted((names.index(pair.one), names.index(pair.other)), reverse=True)
        matrix[places[0], places[1]] = np.nan if found is None else found
    return matrix


def _draw_correlations(panel: Axes, matrix: np.ndarray, names: list[str]) -> AxesImage:
    n = len(names)
    shown = matrix[1:, :-1]  # the first row and the last column have nothing below the diagonal
    # Red for −1, blue for 1: also told apart by people who cannot tell red from green.
    image = panel.imshow(shown, cmap="RdBu", vmin=-1, vmax=1, aspect="equal")
    for row in range(n - 1):
        for column in range(row + 1):
            value = shown[row, column]
            if np.isnan(value):
                across = [column - 0.5, column + 0.5]
                form: dict[str, Any] = {"facecolor": "#F4F4F4", "hatch": "////", "linewidth": 0}
                panel.fill_between(across, row - 0.5, row + 0.5, **form)
                continue
            words = f"{value:.2f}".replace("-", "−").replace("0.", ".", 1)
            colour, size = "white" if abs(value) > 0.6 else "black", 6.5 if n <= 6 else 5.5
            panel.text(column, row, words, color=colour, fontsize=size, ha="center", va="center")
    panel.set_xticks(range(n - 1), names[:-1], rotation=35, ha="right", rotation_mode="anchor")
    panel.set_yticks(range(n - 1), names[1:])
    panel.tick_params(length=0)
    panel.grid(False)
    for spine in panel.spines.values():
        spine.set_visible(False)
    return image


GRADIENTS = {
    **{"seed": "int64", "model": "object", "gradient": "object"},
    **{"layer": "int64", "norm": "float64"},
}
PANELS = (
    ("frozen,\nnoisy", ("frozen", "noisy"), None),
    (r"$\theta_{M_1}$," + "\nclean", ("near_ceiling", "clean"), None),
    (r"$\theta_{M_1}$," + "\nnoisy", ("near_ceiling", "noisy"), None),
    ("weights,\nas they are", ("near_ceiling", "noisy"), ""),
    ("weights,\n÷ frozen", ("near_ceiling", "noisy"), "noisy"),
    ("weights,\n− clean", ("near_ceiling", "difference"), ""),
    ("weights,\nboth", ("near_ceiling", "difference"), "difference"),
)
"""Title; state and gradient; and, for weights that sum to 1, by which gradient of the frozen model
they are divided (empty: by none)."""
SCALES = ((0,), (1, 2), (3, 4, 5, 6))
"""Panels that share a scale."""
ALL = "all"


@figure(
    *("fig21", "gradient norms and their post-processing"),
    *("memloc control, or memloc run with gradients", (21,)),
)
def draw_gradients(data: FigureData) -> list[Picture]:
    """One figure per model: norms and weights in columns, hidden layers in rows (appendix E)."""
    norms, kind = _norms(data)
    models = [model for model in data.models if model in set(norms["model"])]
    return [_gradients_of(data, model, norms[norms["model"] == model], kind) for model in models]


def _norms(data: FigureData) -> tuple[pd.DataFrame, str]:
    """Norms of control experiments, or else of runs; and of which kind."""
    table = data.control.get("gradients")
    if table is not None and len(table):
        kind = "L1" if "L1" in set(table["kind"]) else str(table["kind"].iloc[0])
        return table[table["kind"] == kind], kind
    if data.grid is None:
        raise CannotDraw("`memloc control` has recorded no gradients, and there are no runs")
    table = data.table("gradients", GRADIENTS, "no run has gradients")
    settings = next(iter(data.runs.values())).settings.get("techniques", {})
    return table.assign(hidden=ALL), str(settings.get("gradients", {}).get("norm", "L1"))


def _gradients_of(data: FigureData, model: str, norms: pd.DataFrame, kind: str) -> Picture:
    setups = sorted(norms["hidden"].unique(), key=_hidden_layers)
    names = {task: data.task_names[task] for task in data.tasks if task in set(norms["task"])}
    legend = legend_height(list(names.values()), DOUBLE)
    drawn = new_figure(DOUBLE, 1.0 * len(setups) + 0.55 + legend)
    grid = drawn.subplots(len(setups), len(PANELS), squeeze=False, sharex=True)
    for line, hidden in enumerate(setups):
        of_setup = norms[norms["hidden"] == hidden]
        for panel, (_, which, divisor) in zip(grid[line], PANELS, strict=True):
            for layer in _hidden_layers(hidden):
                panel.axvspan(layer - 0.5, layer + 0.5, color="#DDDDDD", linewidth=0, zorder=0)
            for task in names:
                curve = _curve(of_setup[of_setup["task"] == task], which, divisor)
                if len(curve):
                    style = {"linewidth": 0.8, "markevery": max(1, len(curve) // 6)}
                    style |= marks(data.task_looks[task], 2.6)
                    panel.plot(curve.index.to_numpy(), curve.to_numpy(), **style)
            layer_axis(panel, data.depths[model], 3, label=line == len(setups) - 1)
        _share_scales(grid[line])
        if hidden != ALL:
            grid[line, 0].set_ylabel("layers " + str(hidden).replace("+", ", "))
    letters(list(grid[0]), [title for title, *_ in PANELS])
    legend_below(drawn, handles(data.task_looks, names, line=True))
    caption = (
        f"Forgetting gradients of {data.model_names[model]} by layer, {kind} norms: (a) in the "
        "frozen model, (b) for clean and (c) for noisy examples at θ_M1, and layer weights that "
        "sum to 1 (d) without post-processing, (e) divided by the norm in the frozen model, (f) "
        "with the gradient of clean examples subtracted, (g) with both."
    )
    if setups != [ALL]:
        caption += " Rows: the layers in which memorisation was hidden (grey)."
    return Picture(data.file_names[model], drawn, caption)


def _share_scales(panels: Sequence[Axes]) -> None:
    """Numbers at the first of the panels that share a scale."""
    for together in SCALES:
        high = max(panels[place].dataLim.y1 for place in together)
        for place in together:
            panels[place].set_ylim(0, high * 1.05 if np.isfinite(high) and high > 0 else 1)
            panels[place].yaxis.set_major_locator(MaxNLocator(3))
            panels[place].yaxis.set_major_formatter(_short_number)
            panels[place].tick_params(labelleft=place == together[0], labelsize=5.5, pad=1)


def _short_number(value: float, _: object = None) -> str:
    """`1.5k` for large numbers, which have no room here otherwise."""
    return EngFormatter(sep="")(value) if abs(value) >= 1000 else f"{value:g}"


def _hidden_layers(hidden: object) -> tuple[int, ...]:
    return () if hidden == ALL else parse_hidden(str(hidden))


def _curve(rows: pd.DataFrame, which: tuple[str, str], divisor: str | None) -> pd.Series[float]:
    """Mean over seeds, by layer; empty if the norms are not there."""
    wide = rows.pivot_table(index=["seed", "layer"], columns=["state", "gradient"], values="norm")
    # The frozen model was trained with one seed: it serves all of them.
    frozen = rows[rows["state"] == "frozen"].groupby(["gradient", "layer"])["norm"].mean()
    if which[0] == "frozen":
        return frozen[frozen.index.get_level_values(0) == which[1]].droplevel(0)
    if which not in wide:
        return pd.Series(dtype=float)
    values = wide[which].unstack("layer").dropna()
    if divisor is None:
        return values.mean()
    if divisor:
        if divisor not in frozen.index.get_level_values("gradient"):
            return pd.Series(dtype=float)
        values = values / frozen[divisor]
    return values.div(values.sum(axis=1), axis=0).mean()
