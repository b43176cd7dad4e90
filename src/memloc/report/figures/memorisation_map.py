"""The memorisation map: what each example owes to being in the training data."""

from __future__ import annotations

from matplotlib.lines import Line2D

from memloc.report.figures.data import FigureData, Picture
from memloc.report.figures.palette import GREY
from memloc.report.figures.panels import legend_below, name_panel, outer_labels, panel_rows

COLUMNS = {
    "noisy": "bool",
    "training_memorisation": "float64",
    "generalisation_score": "float64",
}
NOISY = "#D55E00"
MANY = 2000
"""From this many dots on, they are kept as one picture in PDF and SVG files."""


def draw(data: FigureData) -> list[Picture]:
    """One figure per model, a panel per task, a dot per example."""
    table = data.table("memorisation_map", COLUMNS, "no run was made with --generalisation")
    pictures = []
    for model in data.run_models:
        rows = table[table["model"] == model]
        tasks = [task for task in data.tasks_of(model) if task in set(rows["task"])]
        if not tasks:
            continue
        figure, panels, columns = panel_rows(len(tasks), 4, 0, ["clean examples"], aspect=1.0)
        for panel, task in zip(panels, tasks, strict=True):
            of_task = rows[rows["task"] == task]
            for noisy, colour in ((False, GREY), (True, NOISY)):
                group = of_task[of_task["noisy"] == noisy]
                panel.scatter(
                    group["generalisation_score"],
                    group["training_memorisation"],
                    s=4 if noisy else 2.5,
                    color=colour,
                    alpha=0.6 if noisy else 0.35,
                    linewidth=0,
                    rasterized=len(of_task) > MANY,
                )
            panel.plot([0, 1], [0, 1], color="#BBBBBB", linewidth=0.6, zorder=1)
            panel.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
            panel.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
            panel.set_yticks([0, 0.5, 1], ["0", ".5", "1"])
            name_panel(panel, data.task_names[task], columns)
        outer_labels(panels, columns, "p(label), held out", "p(label), trained on")
        entries = [
            Line2D([], [], color=colour, marker="o", linestyle="", markersize=3, label=words)
            for colour, words in ((GREY, "clean examples"), (NOISY, "noisy examples"))
        ]
        legend_below(figure, entries)
        caption = (
            f"Memorisation map of {data.model_names[model]}: mean probability of an example's "
            "label in models that saw it (up) and in models that did not (right). The height above "
            "the diagonal is its counterfactual memorisation."
        )
        pictures.append(Picture(data.file_names[model], figure, caption))
    return pictures
