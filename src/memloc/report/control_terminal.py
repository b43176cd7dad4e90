"""The result of the control benchmark in a terminal of 80 columns; readable without colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memloc.report.terminal import section

BAR = 11
Rows = Sequence[dict[str, Any]]
POST_PROCESSING = (
    (False, False, "none"),
    (False, True, "divide by frozen"),
    (True, False, "subtract clean"),
    (True, True, "both"),
)


def show_control(summary: dict[str, Any], console: Console) -> None:
    """Print everything `memloc control` has to say."""
    models = ", ".join(f"{one['model']} ({one['n_layers']} layers)" for one in summary["models"])
    console.print()
    console.print(
        Text.assemble(
            ("memloc control", "bold"),
            f"  {models}: {summary['control_models']} control models, memorisation of "
            f"{', '.join(summary['tasks'])} hidden in layers {', '.join(summary['hidden'])}; "
            f"auxiliary task {summary['auxiliary']}",
        )
    )
    _show_trainings(summary["trainings"], console)
    chance = summary["chance"]
    console.print(section("Do techniques find the hidden layers?"))
    _show_scores(summary["by_technique"], "technique", console)
    if chance is not None:
        known = any(row["low"] is not None for row in summary["by_technique"])
        brackets = "; in brackets 95% intervals" if known else ""
        console.print(f"  by chance {chance:.2f}{brackets}", style="dim")
    for part, what in (("by_task", "task"), ("by_model", "model")):
        scores = summary[part]
        title = f"By {what} (mean of {', '.join(scores['techniques'])})"
        console.print(section(title))
        _show_scores(scores["scores"], what, console)
    if summary["gradient_choices"]:
        where = f" on {', '.join(summary['held_back'])}" if summary["held_back"] else ""
        console.print(section(f"Post-processing of gradients: accuracy@2{where}"))
        console.print(Padding(_choices(summary["gradient_choices"]), (0, 0, 0, 2), expand=False))
    console.print()
    if summary["interpretation"]:
        console.print(Text(summary["interpretation"], style="bold"))
    for caveat in summary["caveats"]:
        console.print(Text(f"Caution: {caveat}", style="yellow"))


def _show_trainings(trainings: dict[str, Any], console: Console) -> None:
    repeated = trainings["repeated"]
    again = f", {repeated} of them repeated at a higher rate" if repeated else ""
    console.print(
        f"  {trainings['trained']} trainings of the main task{again}: accuracy at least "
        f"{trainings['lowest_accuracy']:.3f}; auxiliary task {trainings['auxiliary_accuracy']:.2f}",
        style="dim",
    )


def _show_scores(rows: Rows, name: str, console: Console) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True, max_width=20)
    for k in (1, 2):
        table.add_column(f"accuracy@{k}", no_wrap=True)
        table.add_column("", no_wrap=True)
    for value in dict.fromkeys(row[name] for row in rows):
        cells: list[str | Text] = []
        for k in (1, 2):
            row = next(r for r in rows if r[name] == value and r["k"] == k)
            interval = "" if row["low"] is None else f"[{row['low']:.2f}, {row['high']:.2f}]"
            cells += [Text(f"{row['accuracy']:.2f} {interval}"), _bar(row)]
        table.add_row(str(value), *cells)
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _bar(row: dict[str, Any]) -> Text:
    """A bar with a mark where chance would end."""
    filled = round(row["accuracy"] * BAR)
    mark = min(BAR - 1, round(row["chance"] * BAR))
    cells = ["█" if place < filled else " " for place in range(BAR)]
    cells[mark] = "▓" if mark < filled else "┊"
    return Text("".join(cells), style="cyan")


def _choices(rows: Rows) -> Table:
    models = list(dict.fromkeys(row["model"] for row in rows))
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for model in models:
        for norm in ("L1", "L2"):
            table.add_column(f"{model} {norm}" if len(models) > 1 else norm, justify="right")
    found = {
        (row["model"], row["norm"], row["subtract_clean"], row["divide_by_frozen"]): row["accuracy"]
        for row in rows
    }
    best = max(found.values())
    for subtract, divide, words in POST_PROCESSING:
        cells = []
        for model in models:
            for norm in ("L1", "L2"):
                value = found.get((model, norm, subtract, divide))
                style = "bold" if value == best else ""
                cells.append(Text("-" if value is None else f"{value:.2f}", style=style))
        table.add_row(words, *cells)
    return table
