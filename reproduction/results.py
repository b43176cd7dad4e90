"""What was found, as tables of the page."""

from __future__ import annotations

from typing import Any

import pandas as pd

from memloc.analysis.correlation import correlate
from memloc.paper.binarised import QUANTITIES, compare_twins
from memloc.paper.claims import CLAIMS, check_claims
from memloc.paper.measures import PAPER_LAYERS, gather
from memloc.paper.scorecard import scorecard_markdown
from memloc.results.agreement import (
    IN_PRINT,
    LAYER_WEIGHTS,
    M_COG,
    agreement_table,
    mean_centres,
)
from memloc.results.grid import VALIDATION_SCORES, Grid, read_tables
from memloc.tables import MEMORISED
from reproduction.markdown import NOTHING, number, table, with_interval

MODELS = ("minilm", "gte-small", "stories15m")
"""In the order of columns."""
TASK_M_COG: dict[str, float] = CLAIMS["order-of-tasks"].arguments["paper"]
"""Figure 7: the paper's M-CoG per task."""
EVENTS = ("crossing", "initiation")
"""Of centroids; those of class probes are no evidence."""


def result_values(grid: Grid, runs: dict[str, Any]) -> dict[str, str]:
    """Every table and number on results, by the name the page uses."""
    memorised = grid.runs[grid.runs["memorised_share"] >= MEMORISED]
    compared = [runs[folder] for folder in grid.runs["folder"]]
    return {
        **_common(compared),
        "settings": settings(compared),
        "averaged": _depths(grid)[1],
        "enough": number(MEMORISED),
        "memorised": training(grid, runs),
        **{f"memorised {m}": str((memorised["model"] == m).sum()) for m in MODELS},
        **{f"tasks of {m}": str((grid.runs["model"] == m).sum()) for m in MODELS},
        **ranges(grid),
        **probes(grid),
        **deeper_with_better(grid),
        "scorecard": scorecard(grid),
        "centres": centres(grid),
        "order": order(grid),
        "order of all": _with_paper(paper_depths(), _depths(grid)[0].mean(axis=1, skipna=False))[0],
        "techniques": techniques(grid),
        "models": models(grid),
        "events": events(grid),
        "generalisation": generalisation(grid),
        "binarised": binarised(grid),
        "control": control(runs),
    }


def probes(grid: Grid) -> dict[str, str]:
    """How many probes there are for flipped labels, and the share that finds none of them."""
    found = read_tables(grid.group.runs, "probes", ["probe", "f1"])
    f1 = found.loc[found["probe"] == "mlp", "f1"]
    return {"probes": f"{len(f1):,}", "probes at 0": f"{(f1 == 0).mean():.0%}"}


def ranges(grid: Grid) -> dict[str, str]:
    """Values over tasks that the text speaks about: ranges, and means."""
    swapping = _of_technique(grid, "minilm", "swapping")
    windows = grid.windows[grid.windows["technique"] == "swapping"]
    single = windows.groupby("model")["single_layer"].mean()
    return {
        **{f"single {model}": f"{single[model]:.0%}" for model in MODELS},
        "swapping": f"{number(swapping.min())} to {number(swapping.max())}",
        "paper": f"{number(paper_depths().min())} to {number(paper_depths().max())}",
    }


def _common(runs: list[Any]) -> dict[str, str]:
    """What is the same for all runs, and must be."""
    found = [run["settings"] for run in runs]
    places = {
        "examples": ("data", "limit"),
        "tokens": ("training", "max_tokens"),
        "batch": ("training", "batch_size"),
    }
    values = {name: {one[a][b] for one in found} for name, (a, b) in places.items()}
    if any(len(value) != 1 for value in values.values()):
        raise ValueError(f"the runs differ in their settings: {values}")
    return {name: str(value.pop()) for name, value in values.items()}


def settings(runs: list[Any]) -> str:
    """How each model was trained, and what was done with it."""
    rows = []
    for model in MODELS:
        of_model = [run for run in runs if run["summary"]["model"] == model]
        training = of_model[0]["settings"]["training"]
        splits = [(run["settings"].get("generalisation") or {}).get("splits") for run in of_model]
        rows.append(
            (
                f"`{model}`",
                str(of_model[0]["summary"]["layers"]),
                str(training["epochs"]),
                f"{training['learning_rate']:g}",
                _by_tasks([run["settings"]["seeds"] for run in of_model]),
                _by_tasks([run["summary"]["techniques"] for run in of_model]),
                _by_tasks([[count] if count else [] for count in splits]),
            )
        )
    head = ("model", "layers", "epochs", "learning rate", "seeds", "techniques", "half-splits")
    return table(head, rows)


def _by_tasks(lists: list[list[Any]]) -> str:
    """Everything in some of the lists, and in how many if not in all."""
    parts = []
    for item in dict.fromkeys(item for one in lists for item in one):
        count = sum(item in one for one in lists)
        parts.append(f"{item} ({count} tasks)" if count < len(lists) else str(item))
    return ", ".join(parts) or NOTHING


def training(grid: Grid, runs: dict[str, Any]) -> str:
    """Noisy accuracy of θ_M and validation accuracy of θ_O, by task and model."""
    rows = []
    for task in TASK_M_COG:
        cells = [task]
        for model in MODELS:
            found = _one(grid, task, model)
            if found is None:
                cells += [NOTHING, NOTHING]
                continue
            outcome = runs[found]["summary"]["training"]
            noisy = number(outcome["noisy_accuracy"])
            weak = outcome["noisy_accuracy"] < MEMORISED
            cells += [f"**{noisy}**" if weak else noisy]
            cells += [number(outcome["original_validation_accuracy"])]
        rows.append(cells)
    head = [part for m in MODELS for part in (f"`{m}`: noisy", "validation")]
    return table(["task", *head], rows)


def _one(grid: Grid, task: str, model: str) -> str | None:
    rows = grid.runs[(grid.runs["task"] == task) & (grid.runs["model"] == model)]
    return None if rows.empty else str(rows["folder"].iloc[0])


def scorecard(grid: Grid) -> str:
    """`memloc claims --markdown`, with its headings two levels down and without the title."""
    evidence = gather(grid)
    lines = scorecard_markdown(evidence.grid, check_claims(evidence)).splitlines()[2:]
    return "\n".join(f"##{line}" if line.startswith("#") else line for line in lines)


def _depths(grid: Grid) -> tuple[pd.DataFrame, str]:
    """Relative M-CoG, mean over techniques that all have: a row per task, a column per model."""
    depths, names = mean_centres(grid)
    rows = grid.runs.set_index("run").assign(depth=depths)
    wide = rows.pivot(index="task", columns="model", values="depth")
    return wide.reindex(index=list(TASK_M_COG), columns=list(MODELS)), ", ".join(names)


def _of_technique(grid: Grid, model: str, technique: str) -> pd.Series[float]:
    rows = grid.centres[(grid.centres["model"] == model) & (grid.centres["technique"] == technique)]
    return rows.set_index("task")["depth"].reindex(list(TASK_M_COG))


def paper_depths() -> pd.Series[float]:
    """The paper's M-CoG per task as shares of the depth."""
    return (pd.Series(TASK_M_COG) - 0.5) / PAPER_LAYERS


def centres(grid: Grid) -> str:
    """Relative M-CoG per task: the paper's, ours by model, ours by technique."""
    (depths, _), paper = _depths(grid), paper_depths()
    shown = [t for t in grid.techniques if not _of_technique(grid, "minilm", t).dropna().empty]
    single = {t: _of_technique(grid, "minilm", t) for t in shown}
    rows = [
        [
            task,
            number(paper[task]),
            *(number(depths[m][task]) for m in MODELS),
            *(number(single[t][task]) for t in shown),
        ]
        for task in TASK_M_COG
    ]
    head = ["task", "paper", *(f"`{m}`" for m in MODELS), *(f"`minilm` {t}" for t in shown)]
    return table(head, rows)


def order(grid: Grid) -> str:
    """ρ with the paper's order of tasks, by model and technique, with intervals."""
    (depths, names), paper = _depths(grid), paper_depths()
    rows = []
    together = depths.mean(axis=1, skipna=False)  # of the same models for all tasks
    for name, ours in [
        ("all models", together),
        *((f"`{m}`", depths[m]) for m in MODELS),
    ]:
        rows.append([name, f"mean of {names}", *_with_paper(paper, ours)])
    for model in MODELS:
        for technique in grid.techniques:
            ours = _of_technique(grid, model, technique)
            if ours.notna().sum() >= len(TASK_M_COG) / 2:
                rows.append([f"`{model}`", technique, *_with_paper(paper, ours)])
    return table(["model", "technique", "ρ with the paper's order", "tasks"], rows)


def _with_paper(paper: pd.Series[float], ours: pd.Series[float]) -> tuple[str, str]:
    found = correlate(paper.tolist(), ours.reindex(paper.index).tolist())
    return with_interval(found.spearman, found.spearman_interval), str(found.n)


def techniques(grid: Grid) -> str:
    """Figures 8 and 9, left, as numbers, and M-CoG within models, whose depths differ."""
    head = [
        *("techniques", "M-CoG: paper", "all runs", "n", "within models"),
        *("layer weights: paper", "all runs", "n"),
    ]
    rows = []
    found = agreement_table(grid)
    found = found[found["kind"] == "techniques"]
    for one, other in dict.fromkeys(zip(found["one"], found["other"], strict=True)):
        cells = [f"{one} and {other}"]
        for quantity, figure in ((M_COG, "fig8"), (LAYER_WEIGHTS, "fig9")):
            claim = CLAIMS.get(f"{figure}-{one}-{other}") or CLAIMS.get(f"{figure}-{other}-{one}")
            cells += [
                number(None if claim is None else claim.number),
                *_row_of(found, one, other, quantity),
            ]
            if quantity == M_COG:
                cells.append(_row_of(found, one, other, quantity, "within")[0])
        rows.append(cells)
    return table(head, rows)


def models(grid: Grid) -> str:
    """Figures 8 and 9, right, as numbers."""
    found = agreement_table(grid)
    found = found[found["kind"] == "models"]
    rows = []
    for one, other in dict.fromkeys(zip(found["one"], found["other"], strict=True)):
        cells = [f"`{one}` and `{other}`"]
        for quantity in (M_COG, LAYER_WEIGHTS):
            cells += _row_of(found, one, other, quantity)
        rows.append(cells)
    paper = [number(CLAIMS["fig8-models"].number), "", number(CLAIMS["fig9-models"].number), ""]
    rows.append(["paper, mean over pairs", *paper])
    return table(["models", "M-CoG", "n", "layer weights", "n"], rows)


def _row_of(
    found: pd.DataFrame, one: str, other: str, quantity: str, column: str = "spearman"
) -> list[str]:
    rows = found[(found["one"] == one) & (found["other"] == other)]
    for row in rows[rows["quantity"] == quantity].to_dict("records"):
        ends = row[f"{column}_low"], row[f"{column}_high"]
        interval = None if pd.isna(ends[0]) else (float(ends[0]), float(ends[1]))
        return [with_interval(row[column], interval), str(row["n"])]
    return [NOTHING, NOTHING]


def events(grid: Grid) -> str:
    """The events of centroids per task and model, in layers; a dash where one never happens."""
    rows = []
    for task in TASK_M_COG:
        cells = [task]
        for model in MODELS:
            mine = grid.events[(grid.events["task"] == task) & (grid.events["model"] == model)]
            layers = mine.set_index("event")["layer"]
            cells += [_layer(layers.get(event)) for event in EVENTS]
        rows.append(cells)
    head = [f"`{m}`: {IN_PRINT[e]}" for m in MODELS for e in EVENTS]
    return table(["task", *head], rows)


def _layer(value: float | None) -> str:
    """A mean over seeds need not be a whole number."""
    return number(value, 0 if value is None or float(value).is_integer() else 1)


def generalisation(grid: Grid) -> str:
    """Scores and depths of `minilm`, the model with half-splits, by task."""
    scores = grid.runs[grid.runs["model"] == "minilm"].set_index("task")
    depths = grid.events[grid.events["model"] == "minilm"].pivot(
        index="task", columns="event", values="depth"
    )
    columns = {
        "generalisation score": scores["generalisation_score"],
        "validation score": scores[VALIDATION_SCORES[0]],
        "crossing": depths["crossing"],
    }
    rows = [[task, *(number(float(c[task])) for c in columns.values())] for task in TASK_M_COG]
    return table(["task", *columns], rows)


def binarised(grid: Grid) -> str:
    """Tasks of many classes and the same with two, in layers."""
    found = compare_twins(grid)
    assert found is not None, "there are no runs with --binarise"
    rows = []
    for task in (task for task in TASK_M_COG if task in set(found.points["task"])):
        own = found.points[found.points["task"] == task].set_index("quantity")
        cells = [own[side][quantity] for quantity in QUANTITIES for side in ("multi", "binary")]
        rows.append([task, *(number(float(cell), 1) for cell in cells)])
    head = [f"{IN_PRINT[q]}: {side}" for q in QUANTITIES for side in ("all classes", "two")]
    return table(["task", *head], rows)


def deeper_with_better(grid: Grid) -> dict[str, str]:
    """ρ of crossing and scores, from runs that memorised alone: do the others make it?"""
    runs = grid.runs[grid.runs["memorised_share"] >= MEMORISED].set_index("run")
    crossing = grid.events[grid.events["event"] == "crossing"].set_index("run")["depth"]
    found = {}
    for score in ("generalisation_score", VALIDATION_SCORES[0]):
        one = correlate(crossing.reindex(runs.index).tolist(), runs[score].tolist())
        words = with_interval(one.spearman, one.spearman_interval)
        found[f"memorised crossing, {score}"] = f"{words}, n = {one.n}"
    return found


def control(runs: dict[str, Any]) -> str:
    """Accuracy@1 and @2 in the control setup, by technique."""
    found = [run["summary"] for run in runs.values() if "by_technique" in run["summary"]]
    scores = pd.DataFrame([row for one in found for row in one["by_technique"]])
    rows = []
    for technique, of_k in scores.groupby("technique", sort=False):
        cells = [str(technique)]
        for row in of_k.sort_values("k").to_dict("records"):
            cells.append(with_interval(row["accuracy"], (row["low"], row["high"])))
        rows.append([*cells, str(of_k["n"].iloc[0])])
    chance = number(scores["chance"].iloc[0])
    rows.append(["chance", chance, chance, ""])
    return table(["technique", "accuracy@1", "accuracy@2", "models"], rows)
