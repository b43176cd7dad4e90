"""The explanations of a run in a terminal of 80 columns."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memloc.results.explained import SWAPPED

WIDTH = 41
LOWEST, HIGHEST = -0.25, 1.25
MOST_COLUMNS = 12
EVENTS = {
    "crossing": "crossing: flipped examples nearer to the new class",
    "initiation": "classification initiation: classes apart",
    "mem_gen": "mem≫gen: probes find the flipped label better",
    "f1_90": "90% F1: probes nearly as good as they get",
}


def show_explanation(summary: dict[str, Any], console: Console) -> None:
    """Print what the explanations found, if there are any."""
    found = summary["explanation"]
    if "centroids" in found:
        console.print(
            Text("\nHow? Flipped examples between their two classes, by layer", style="bold cyan")
        )
        console.print(_indented(trajectory(found["centroids"])))
    if "events" in found:
        console.print(_indented(event_lines(found["events"]["memorised"]), top=1))
    if "examples" in found:
        console.print(_indented(crossing_lines(found["examples"]), top=1))


def show_generalisation(summary: dict[str, Any], console: Console) -> None:
    """Print what the half-splits found, if there were any."""
    found = summary.get("generalisation")
    if not found:
        return
    title = f"\nHeld-out training examples ({found['splits']} half-splits)"
    console.print(Text(title, style="bold cyan"))
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for column in ("probability of the label", "flipped labels", "clean labels"):
        table.add_column(column, justify="left" if not table.columns else "right")
    for name, title in (
        ("training_memorisation", "if the example was seen"),
        ("generalisation_score", "if it was held out"),
        ("counterfactual_memorisation", "difference (counterfactual memorisation)"),
    ):
        cells = [_decimal(found["means"][kind][name]) for kind in ("noisy", "clean")]
        table.add_row(title, *cells)
    console.print(_indented(table))
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for column in ("finding the flipped labels by", "ROC-AUC", "average precision"):
        table.add_column(column, justify="left" if not table.columns else "right")
    for name, title in (
        ("counterfactual_memorisation", "counterfactual memorisation"),
        ("self_confidence", "self-confidence (held out)"),
    ):
        found_by = found["detection"][name]
        table.add_row(title, *map(_decimal, (found_by["roc_auc"], found_by["average_precision"])))
    table.add_row("guessing", _decimal(0.5), _decimal(found["share_noisy"]))
    console.print(_indented(table, top=1))
    score, error = _decimal(found["score"]), _decimal(found["standard_error"])
    console.print(f"  generalisation score {score} ± {error}", highlight=False)


def trajectory(centroids: dict[str, Any]) -> Table:
    """Per layer: where both classes and the noisy mean are; beside it the numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("\nlayer", justify="right", style="dim")
    axis = list(" " * WIDTH)
    for position, words in ((0.0, "new class"), (1.0, "old class")):
        start = _column(position) - len(words) // 2
        axis[start : start + len(words)] = words
    ticks = list(" " * WIDTH)
    for position, mark in ((0.0, "0"), (0.5, "½"), (1.0, "1")):
        ticks[_column(position)] = mark
    table.add_column("".join(axis) + "\n" + "".join(ticks))
    table.add_column("\nmean", justify="right")
    swapped = {model: name for model, name in SWAPPED.items() if model in centroids}
    for index, name in enumerate(swapped.values()):
        table.add_column(("swapped:" if not index else "") + f"\n{name}", justify="right")
    own = centroids["memorised"]
    for layer, mean in enumerate(own["noisy"]["mean"]):
        others = [centroids[model]["noisy"]["mean"][layer] for model in swapped]
        table.add_row(
            str(layer + 1), _strip(own, layer), _decimal(mean, 2), *(_decimal(o, 2) for o in others)
        )
    table.add_row("", Text("● flipped examples  ░ ▒ middle 75% of the classes", style="dim"))
    return table


def _strip(groups: dict[str, Any], layer: int) -> Text:
    cells = [" "] * WIDTH
    for group, mark in (("class_a", "░"), ("class_b", "▒")):
        low, high = (groups[group][end][layer] for end in ("low", "high"))
        if low is None or high is None:
            continue
        for column in range(_column(low), _column(high) + 1):
            cells[column] = "▓" if cells[column] != " " else mark
    mean = groups["noisy"]["mean"][layer]
    line = Text("".join(cells), style="dim")
    if mean is None:
        return line
    column = _column(mean)
    return Text.assemble(line[:column], ("●", "bold magenta"), line[column + 1 :])


def _column(position: float) -> int:
    """Where a position is in the strip; those outside are at its ends."""
    share = (min(max(position, LOWEST), HIGHEST) - LOWEST) / (HIGHEST - LOWEST)
    return round(share * (WIDTH - 1))


def event_lines(events: dict[str, Any]) -> Table:
    """The layers of the events; missing ones say so."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    for event, title in EVENTS.items():
        if event not in events:
            continue
        found = events[event]
        layer = "missing" if found["layer"] is None else f"layer {found['layer']:.1f}"
        note = f" ({found['missing']} missing)" if found["missing"] and found["layer"] else ""
        table.add_row(title, layer.removesuffix(".0") + note)
    return table


def crossing_lines(examples: dict[str, Any]) -> Group:
    """How many single examples change sides for good in which layer."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("layer", style="dim", no_wrap=True)
    shown = list(enumerate(examples["crossing_shares"], start=1))
    if len(shown) > MOST_COLUMNS:  # as many columns as fit: in groups of layers
        width = -(-len(shown) // (MOST_COLUMNS - 4))
        groups = [shown[i : i + width] for i in range(0, len(shown), width)]
        columns = [(f"{g[0][0]}-{g[-1][0]}", sum(s for _, s in g)) for g in groups]
    else:
        columns = [(str(layer), share) for layer, share in shown]
    for title, _ in (*columns, ("never", 0.0)):
        table.add_column(title, justify="right", no_wrap=True)
    cells = [f"{share:.0%}" for _, share in columns]
    table.add_row("", *cells, f"{examples['never_cross']:.0%}")
    return Group(Text("single examples that cross for good, by layer"), table)


def _indented(what: Any, top: int = 0) -> Padding:
    return Padding(what, (top, 0, 0, 2), expand=False)


def _decimal(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
