"""Tables 1 to 4 of the paper from the results at hand, as LaTeX (booktabs) and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.correlation import FEWEST, Points, mean_correlation
from memloc.data.load import named_tasks
from memloc.paper.tasks import PAPER_TASKS
from memloc.report.figures.looks import CATEGORIES, category, only, short_name
from memloc.report.figures.registry import CannotDraw, FigureData, PrintedTable, figure
from memloc.results.agreement import (
    ALL_MODELS,
    DEPTHS,
    IN_PRINT,
    SCORES,
    choose_models,
    mean_centres,
    score_pairs,
)

MISSING = "–"
OPT_CORPUS = "BookCorpus, CC-Stories, The Pile, Reddit, CCNewsV2"
PRE_TRAINING = {
    "BERT": ("BooksCorpus, Wikipedia", "3.3B", "1M"),
    "Pythia": ("The Pile", "300B", "143k"),
    "GPT-N": ("The Pile", "300B", "572k"),
    "OPT": (OPT_CORPUS, "180B", MISSING),
    "OPT-1.3B": (OPT_CORPUS, "180B", MISSING),
}
"""Corpus, tokens and steps of the paper's models (its Table 3)."""


@figure("table1", "tasks, sizes, classes", "memloc run", (1,))
def draw_tasks(data: FigureData) -> PrintedTable:
    """Table 1: tasks with their sizes and classes."""
    data.need_runs()
    rows: list[list[str]] = []
    tasks = only(data.tasks, (task for task, _ in data.runs))
    for task, look in tasks.items():
        found = [run for (one, _), run in data.runs.items() if one == task]
        examples = _range([run.summary.get("examples") for run in found])
        noisy = _range([run.summary.get("noisy_examples") for run in found])
        classes = _range([run.n_classes for run in found])
        named, paper = named_tasks().get(task), PAPER_TASKS.get(task)
        rows.append(
            [
                *(CATEGORIES[category(task)], look.name, paper.domain if paper else MISSING),
                *(_range([named.train_size if named else None]), examples, noisy, classes),
            ]
        )
    caption = (
        "Tasks: domain and training examples of the whole data set, as far as they are known; "
        "examples used, of these with a perturbed label, and classes."
    )
    header = ("Category", "Task", "Domain", "Size", "Used", "Noisy", "Classes")
    return print_table("tasks", header, rows, caption, words=3)


def _range(values: Sequence[int | None]) -> str:
    """Of all runs of a task: models may have been given different subsets."""
    known = sorted({value for value in values if value})
    return MISSING if not known else "–".join(f"{end:,}" for end in sorted({known[0], known[-1]}))


@figure("table2", "depth and generalisation", "memloc run", (2,))
def draw_scores(data: FigureData) -> PrintedTable:
    """Table 2: how deep tasks are memorised against how well models generalise."""
    grid, _ = choose_models(data.need_runs())
    found = {(p.one, p.other, p.scope): p.parts[0] for p in score_pairs(grid)}
    scopes = {ALL_MODELS: "all"}
    if len(grid.models) > 1:
        scopes |= {model: look.name for model, look in only(data.run_models, grid.models).items()}
    rows = [
        [
            IN_PRINT[score][0].upper() + IN_PRINT[score][1:],
            IN_PRINT[depth],
            *(_correlation(found[depth, score, scope]) for scope in scopes),
        ]
        for score in SCORES
        for depth in DEPTHS
    ]
    if all(cell == MISSING for row in rows for cell in row[2:]):
        raise CannotDraw(
            f"no depth and score have {FEWEST} runs in common; compute more tasks, with "
            "generalisation scores"
        )
    _, techniques = mean_centres(grid)
    caption = (
        "Spearman’s ρ between the depth of memorisation and generalisation, over runs. "
        "*: the 95% interval over tasks has 0 in it. M-CoG: mean over "
        f"{', '.join(techniques)}. Validation score: validation accuracy of the model, rescaled by "
        "the guessing in brackets; the paper names neither."
    )
    return print_table("generalisation", ("Score", "Depth", *scopes.values()), rows, caption, 2)


def _correlation(points: Points) -> str:
    """ρ, with a star if it may be chance."""
    found = mean_correlation([points])
    if found.spearman is None:
        return MISSING
    low, high = found.spearman_interval or (-1.0, 1.0)
    words = f"{found.spearman:.2f}".replace("-", "−")
    return words + ("*" if low <= 0 <= high else "")


@figure("table3", "models", "memloc run", (3,))
def draw_models(data: FigureData) -> PrintedTable:
    """Table 3: models, and how they were trained."""
    data.need_runs()
    rows = []
    for model, look in data.run_models.items():
        runs = [run for (_, name), run in data.runs.items() if name == model]
        training: dict[str, Any] = runs[0].settings.get("training") or {}
        about = runs[0].summary
        rows.append(
            [
                look.name,
                *PRE_TRAINING.get(short_name(model) or "", (MISSING,) * 3),
                *(_millions(about.get("layer_parameters")), str(data.depths[model])),
                *(_range([about.get("width")]), str(len(runs))),
                _range([run.n_seeds for run in runs]),
                *(
                    f"{training[key]:g}" if key in training else MISSING
                    for key in ("epochs", "learning_rate", "batch_size")
                ),
            ]
        )
    header = (
        *("Model", "Corpus", "Tokens", "Steps", "Parameters", "Layers", "Width"),
        *("Tasks", "Seeds", "Epochs", "Learning rate", "Batch"),
    )
    caption = (
        "Models: pre-training corpus, its tokens and steps as far as they are known, parameters of "
        "the layers, layers, width, and how the models were fine-tuned."
    )
    return print_table("models", header, rows, caption, words=2)


def _millions(parameters: int | None) -> str:
    if parameters is None:
        return MISSING
    if parameters >= 1e9:
        return f"{parameters / 1e9:.1f}B"
    return f"{parameters / 1e6:.{0 if parameters >= 1e7 else 1}f}M"


@figure("table4", "gradient post-processing", "memloc control", (4,))
def draw_gradient_choices(data: FigureData) -> PrintedTable:
    """Table 4: which post-processing of gradients finds the hidden layers?"""
    table = data.control.get("gradient_choices")
    if table is None or table.empty:
        raise CannotDraw("there are no gradients of `memloc control`")
    k = int(table["k"].max())
    table = table[table["k"] == k]
    models = only(data.models, table["model"])
    columns = [(model, norm) for model in models for norm in sorted(table["norm"].unique())]
    means = table.pivot_table(
        index=["subtract_clean", "divide_by_frozen"], columns=["model", "norm"], values="accuracy"
    ).reindex(columns=columns)
    rows = [
        [
            *("✓" if done else "×" for done in choice),
            *(MISSING if np.isnan(value) else f"{value:.2f}" for value in values),
        ]
        for choice, values in zip(means.index, means.to_numpy(), strict=True)
    ]
    norms = {"L1": "L₁", "L2": "L₂"}
    header = [f"{models[model].name} {norms.get(norm, norm)}" for model, norm in columns]
    shown = [look.name for look in only(data.tasks, table["task"]).values()]
    caption = (
        f"Post-processing of gradients in the control setup: accuracy@{k}, mean over "
        f"{', '.join(shown)}. − clean: the gradient of clean examples is subtracted; ÷ frozen: "
        "norms are divided by those in the frozen model."
    )
    return print_table("gradients", ["− clean", "÷ frozen", *header], rows, caption, words=2)


def print_table(
    name: str, header: Sequence[str], rows: Sequence[Sequence[str]], caption: str, words: int = 1
) -> PrintedTable:
    """A table in both languages; so many columns of words come first, aligned at the left."""
    cells = [[latex_text(cell) for cell in row] for row in rows]
    latex = pd.DataFrame(cells, columns=list(map(latex_text, header))).to_latex(
        index=False,
        column_format="l" * words + "r" * (len(header) - words),
        caption=latex_text(caption),
        label=f"tab:{name}",
    )
    latex = latex.replace("\\begin{table}", "\\begin{table}\\centering\\small", 1)
    lines = [header, ["---"] * words + ["---:"] * (len(header) - words)]
    markdown = [f"| {' | '.join(map(markdown_text, line))} |" for line in [*lines, *rows]]
    comment = "% needs \\usepackage{booktabs,amssymb}\n"
    return PrintedTable(comment + latex, "\n".join([*markdown, "", caption, ""]), caption)


_LATEX = {
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "≫": r"$\gg$", "ρ": r"$\rho$"},
    **{"θ": r"$\theta$", "×": r"$\times$", "−": "$-$", "–": "--", "÷": r"$\div$"},
    **{"₁": r"$_1$", "₂": r"$_2$", "✓": r"\checkmark{}", "…": r"\ldots{}", "’": "'"},
}


def latex_text(text: str) -> str:
    """With everything escaped that LaTeX would take for a command."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def markdown_text(text: str) -> str:
    """With everything escaped that would end a cell or begin something else."""
    for letter in "\\`*_[]<>|":
        text = text.replace(letter, f"\\{letter}")
    return text
