"""Shapley values of layers, and what patching a layer's state flips."""

from __future__ import annotations

import pandas as pd
from matplotlib.lines import Line2D

from memloc.report.figures.data import FigureData, Picture
from memloc.report.figures.layer_profiles import draw_curve
from memloc.report.figures.palette import TECHNIQUES, Look
from memloc.report.figures.panels import (
    handles,
    layer_axis,
    legend_below,
    marks,
    name_panel,
    outer_labels,
    panel_rows,
)

FEW = 5
"""Curves up to which their bands can be told apart."""
SHAPLEY = {"seed": "int64", "layer": "int64", "value": "float64"}
PATCHING = {"seed": "int64", "direction": "object", "layer": "int64", "flipped": "float64"}
DIRECTIONS = {
    "restore": Look(TECHNIQUES["swapping"], "o"),
    "implant": Look(TECHNIQUES["retraining"], "s"),
}
DIRECTION_WORDS = {
    "restore": "restore: state of the original model",
    "implant": "implant: state of the memorising model",
}


def draw_shapley(data: FigureData) -> list[Picture]:
    """A panel per model, a line per task."""
    table = data.table("shapley", SHAPLEY, "no run has Shapley values (--methods shapley)")
    table = table.rename(columns={"value": "weight"})
    models = [model for model in data.run_models if model in set(table["model"])]
    tasks = [task for task in data.tasks if task in set(table["task"])]
    names = {task: data.task_names[task] for task in tasks}
    printed = list(names.values())
    figure, panels, columns = panel_rows(len(models), 3, 1.6, printed, share=data.same_depth)
    for panel, model in zip(panels, models, strict=True):
        of_model = table[table["model"] == model]
        for task in tasks:
            rows = of_model[of_model["task"] == task]
            draw_curve(panel, rows, data.task_looks[task], data.depths[model], len(tasks) <= FEW)
        panel.axhline(0, color="#999999", linewidth=0.6, zorder=1)
        layer_axis(panel, data.depths[model], label=False)
        if len(models) > 1:
            name_panel(panel, data.model_names[model], columns)
    outer_labels(panels, columns, "layer", "Shapley value")
    legend_below(figure, handles(data.task_looks, names, line=True))
    caption = (
        "Shapley values of layers: the share of noisy examples undone when a layer of θ_M2 is "
        "replaced by that of θ_O, averaged over all orders."
        + (data.seeds_words("Bands") if len(tasks) <= FEW else "")
    )
    return [Picture("", figure, caption)]


def draw_patching(data: FigureData) -> list[Picture]:
    """One figure per model, a panel per task, both directions."""
    table = data.table("patching", PATCHING, "no run has patching (--methods patching)")
    table = table.rename(columns={"flipped": "weight"})
    pictures = []
    for model in data.run_models:
        rows = table[table["model"] == model]
        tasks = [task for task in data.tasks_of(model) if task in set(rows["task"])]
        if not tasks:
            continue
        figure, panels, columns = panel_rows(len(tasks), 4, 1.2, list(DIRECTION_WORDS.values()))
        for panel, task in zip(panels, tasks, strict=True):
            of_task: pd.DataFrame = rows[rows["task"] == task]
            for direction, look in DIRECTIONS.items():
                curve = of_task[of_task["direction"] == direction]
                draw_curve(panel, curve, look, data.depths[model])
            name_panel(panel, data.task_names[task], columns)
            panel.set_ylim(0, 1.02)
            layer_axis(panel, data.depths[model], label=False)
        outer_labels(panels, columns, "patched layer", "share flipped")
        legend_below(
            figure,
            [
                Line2D([], [], label=DIRECTION_WORDS[name], **marks(look))
                for name, look in DIRECTIONS.items()
            ],
        )
        caption = (
            f"Activation patching in {data.model_names[model]}: share of noisy examples whose "
            "prediction flips when the state after a layer is that of the other model: to the "
            "original label (restore), or to the perturbed one (implant)."
            + data.seeds_words("Bands")
        )
        pictures.append(Picture(data.file_names[model], figure, caption))
    return pictures
