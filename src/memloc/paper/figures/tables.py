"""Tables 1 to 4 of the paper from the results at hand, as LaTeX (booktabs) and Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from memloc.analysis.correlation import FEWEST, Points, mean_correlation
from memloc.report.figures.data import CannotDraw, FigureData, PrintedTable
from memloc.report.figures.looks import CATEGORIES, category, short_name
from memloc.report.figures.registry import figure
from memloc.results.agreement import (
    ALL_MODELS,
    DEPTHS,
    IN_PRINT,
    SCORES,
    mean_centres,
    score_pairs,
)

SIZES = {
    "BERT": (768, "85M"),
    "OPT": (768, "85M"),
    "GPT-N": (768, "85M"),
    "Pythia": (768, "85M"),
    "OPT-1.3B": (2048, "1.2B"),
    "minilm": (384, "11M"),
}
"""Width and non-embedding parameters of known models (those of the paper: its Table 3)."""
SIGNIFICANT = 0.05
MISSING = "–"
_LATEX = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "≫": r"$\gg$",
    "ρ": r"$\rho$",
    "θ": r"$\theta$",
    "×": r"$\times$",
    "−": "$-$",
    "–": "--",
    "₁": r"$_1$",
    "₂": r"$_2$",
    "✓": r"\checkmark{}",
    "÷": r"$\div$",
    "…": r"\ldots{}",
    "’": "'",
    "\u200a": "",
}


@figure("table1", "tasks, sizes, classes", "memloc run", (1,))
def draw_tasks(data: FigureData) -> PrintedTable:
    """Table 1: tasks with their sizes and classes."""
    data.need_runs()
    sections = []
    for name, printed in CATEGORIES.items():
        rows = [_task_row(data, task) for task in _run_tasks(data) if category(task) == name]
        if rows:
            sections.append(Section(printed, rows))
    caption = "Tasks: training examples, of these with a perturbed label, and classes."
    header = ("Task", "Examples", "Noisy", "Classes")
    return print_table("tasks", header, sections, caption, 1)


def _run_tasks(data: FigureData) -> list[str]:
    with_runs = {task for task, _ in data.runs}
    return [task for task in data.tasks if task in with_runs]


def _task_row(data: FigureData, task: str) -> list[str]:
    """Numbers of all runs of the task; a range, if models were given different subsets."""
    summaries = [run.summary for (name, _), run in data.runs.items() if name == task]
    classes = [len(s["classes"]) for s in summaries if isinstance(s.get("classes"), list)]
    counts = [[s[key] for s in summaries if _is_count(s.get(key))] for key in _COUNTS]
    return [data.task_names[task], *(_range(values) for values in (*counts, classes))]


_COUNTS = ("examples", "noisy_examples")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _range(values: Sequence[int]) -> str:
    if not values:
        return MISSING
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


@figure("table2", "depth and generalisation", "memloc run", (2,))
def draw_scores(data: FigureData) -> PrintedTable:
    """Table 2: how deep tasks are memorised against how well models generalise."""
    grid = data.need_runs()
    pairs = score_pairs(grid)
    scopes = [ALL_MODELS, *(data.run_models if len(data.run_models) > 1 else [])]
    sections = []
    for score in SCORES:
        rows = []
        for depth in DEPTHS:
            points = {p.scope: p.points for p in pairs if (p.one, p.other) == (depth, score)}
            rows.append([IN_PRINT[depth], *(_correlation(points[scope]) for scope in scopes)])
        sections.append(Section(IN_PRINT[score].capitalize(), rows))
    if all(cell == MISSING for section in sections for row in section.rows for cell in row[1:]):
        raise CannotDraw(
            f"no depth and score have {FEWEST} runs in common; compute more tasks (and "
            "--generalisation)"
        )
    header = ["", "all", *(data.model_names[model] for model in scopes[1:])]
    _, techniques = mean_centres(grid)
    caption = (
        "Spearman’s ρ between the depth of memorisation and generalisation, over runs. "
        f"*: p > {SIGNIFICANT}. M-CoG: mean over {', '.join(techniques)}."
    )
    return print_table("generalisation", header, sections, caption, 1)


def _correlation(points: Points) -> str:
    """ρ, with a star if it may be chance."""
    found = mean_correlation([points], resamples=0)
    if found.spearman is None:
        return MISSING
    one, other, _ = points.complete()
    chance = float(spearmanr(one, other).pvalue)
    words = f"{found.spearman:.2f}".replace("-", "−")
    return words + ("*" if chance > SIGNIFICANT else "")


@figure("table3", "models", "memloc run", (3,))
def draw_models(data: FigureData) -> PrintedTable:
    """Table 3: models, and how they were trained."""
    data.need_runs()
    rows = []
    for model in data.run_models:
        runs = [run for (_, name), run in data.runs.items() if name == model]
        training = runs[0].settings.get("training")
        training = training if isinstance(training, dict) else {}
        seeds = sorted({run.n_seeds for run in runs})
        known = SIZES.get(short_name(model) or model)
        width, parameters = known or (runs[0].summary.get("width"), None)
        rows.append(
            [
                data.model_names[model],
                str(data.depths[model]),
                MISSING if width is None else f"{width:,}",
                parameters or MISSING,
                str(len(runs)),
                "–".join(str(count) for count in sorted({seeds[0], seeds[-1]})),
                *(_setting(training.get(key)) for key in ("epochs", "learning_rate", "batch_size")),
            ]
        )
    header = (
        *("Model", "Layers", "Width", "Parameters", "Tasks", "Seeds", "Epochs"),
        *("Learning rate", "Batch"),
    )
    caption = (
        "Models: layers, width, non-embedding parameters as far as they are known, and how they "
        "were fine-tuned."
    )
    return print_table("models", header, [Section("", rows)], caption, 1)


def _setting(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else MISSING


@figure("table4", "gradient post-processing", "memloc control", (4,))
def draw_gradient_choices(data: FigureData) -> PrintedTable:
    """Table 4: which post-processing of gradients finds the hidden layers?"""
    table = data.control.get("gradient_choices")
    if table is None or table.empty:
        raise CannotDraw("there are no gradients of `memloc control`")
    k = int(table["k"].max())
    table = table[table["k"] == k]
    models = [model for model in data.models if model in set(table["model"])]
    norms = sorted(table["norm"].unique())
    means = table.groupby(["subtract_clean", "divide_by_frozen", "model", "norm"])[
        "accuracy"
    ].mean()
    rows = []
    for subtract in (False, True):
        for divide in (False, True):
            values = [
                means.get((subtract, divide, model, norm), math.nan)
                for model in models
                for norm in norms
            ]
            cells = [MISSING if np.isnan(value) else f"{value:.2f}" for value in values]
            rows.append(["✓" if subtract else "×", "✓" if divide else "×", *cells])
    names = {model: data.model_names[model] for model in models}
    subscripts = {"L1": "L₁", "L2": "L₂"}
    columns = [f"{names[m]} {subscripts.get(n, n)}" for m in models for n in norms]
    header = ["− clean", "÷ frozen", *columns]
    tasks = pd.unique(table["task"])
    shown = [data.task_names[task] for task in data.tasks if task in set(tasks)]
    caption = (
        f"Post-processing of gradients in the control setup: accuracy@{k}, mean over "
        f"{', '.join(shown)}. − clean: the gradient of clean examples is subtracted; ÷ frozen: "
        "norms are divided by those in the frozen model."
    )
    return print_table("gradients", header, [Section("", rows)], caption, 2)


@dataclass(frozen=True)
class Section:
    """Rows of a table below a heading of their own (empty: none)."""

    heading: str
    rows: Sequence[Sequence[str]]


def print_table(
    name: str, header: Sequence[str], sections: Sequence[Section], caption: str, numbers_from: int
) -> PrintedTable:
    r"""A table in both languages.

    Args:
        name: For `\label`.
        header: Names of the columns.
        sections: The rows.
        caption: What the table shows.
        numbers_from: The first column that is aligned at the right.
    """
    return PrintedTable(
        _latex(name, header, sections, caption, numbers_from),
        _markdown(header, sections, caption, numbers_from),
        caption,
    )


def latex_text(text: str) -> str:
    """With everything escaped that LaTeX would take for a command."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def markdown_text(text: str) -> str:
    """With everything escaped that would end a cell or begin something else."""
    for letter in "\\`*_[]<>|":
        text = text.replace(letter, f"\\{letter}")
    return text


def _latex(
    name: str, header: Sequence[str], sections: Sequence[Section], caption: str, numbers_from: int
) -> str:
    columns = "l" * numbers_from + "r" * (len(header) - numbers_from)
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        r"\small",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _latex_row(header),
        r"\midrule",
    ]
    for place, section in enumerate(sections):
        if place:
            lines.append(r"\midrule")
        if section.heading:
            words = rf"\emph{{{latex_text(section.heading)}}}"
            lines.append(rf"\multicolumn{{{len(header)}}}{{l}}{{{words}}} \\")
        lines += [_latex_row(row) for row in section.rows]
    lines += [
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{latex_text(caption)}}}",
        rf"\label{{tab:{name}}}",
        r"\end{table}",
    ]
    if any("\\checkmark" in line for line in lines):
        lines[0] += r" and \usepackage{amssymb}"
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(latex_text(cell) for cell in cells) + r" \\"


def _markdown(
    header: Sequence[str], sections: Sequence[Section], caption: str, numbers_from: int
) -> str:
    lines = [_markdown_row(header)]
    ends = ["---"] * numbers_from + ["---:"] * (len(header) - numbers_from)
    lines.append(f"| {' | '.join(ends)} |")
    for section in sections:
        if section.heading:
            rest = [""] * (len(header) - 1)
            lines.append(f"| *{markdown_text(section.heading)}* | {' | '.join(rest)} |")
        lines += [_markdown_row(row) for row in section.rows]
    return "\n".join([*lines, "", caption]) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(markdown_text(cell) for cell in cells)} |"
