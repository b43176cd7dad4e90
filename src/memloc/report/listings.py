"""What there is to choose from: tasks, models and techniques, as tables of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memloc.config import DEFAULT_TECHNIQUES, Setting, Training, write_value
from memloc.data.task import NamedTask
from memloc.errors import MISSING
from memloc.models.names import KNOWN_MODELS
from memloc.techniques import PluginFailed, Technique, find, names, origin

SOURCES = {
    "built-in": "Built-in: generated, no download",
    "paper": "The paper's: from the Hugging Face hub, or --data-dir",
}


def show_tasks(tasks: Sequence[NamedTask], console: Console) -> None:
    """Print the tasks, by source."""
    for source, title in SOURCES.items():
        console.print(f"\n[bold]{title}[/bold]")
        table = _table("task", "category", "classes>", "examples>", "what")
        for task in tasks:
            if task.source == source:
                size = f"{task.train_size:,}" if task.train_size else "any"
                table.add_row(task.name, task.category, str(task.classes), size, task.description)
        console.print(table)
    console.print(
        "\nBuilt-in tasks have any size: --limit N. Or any file with a text and a label column:\n"
        "--task FILE.csv (.tsv, .jsonl, .parquet)."
    )


def show_models(console: Console) -> None:
    """Print the models that have a short name, with their training settings."""
    table = _table("name", "what", "epochs>", "rate>", "batch>")
    for name, known in KNOWN_MODELS.items():
        settings = Training(**known.training)
        recipe = (settings.epochs, f"{settings.learning_rate:.0e}", settings.batch_size)
        table.add_row(name, f"{known.note}\n[dim]{known.hub}[/dim]", *map(str, recipe))
    console.print(table)
    console.print("\nOr any sequence classifier: a hub name, or a directory with its tokeniser.")


def _table(*columns: str) -> Table:
    """A plain table; a name that ends in > is a column of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        number = name.endswith(">")
        table.add_column(
            name.rstrip(">"), justify="right" if number else "left", no_wrap=name != "what"
        )
    return table


def list_settings(settings: Iterable[Setting]) -> list[dict[str, Any]]:
    """What the fields declare, as JSON data."""
    return [
        {
            "setting": one.path,
            "type": one.type_words,
            "default": None if one.default is MISSING else write_value(one.default),
            "required": one.default is MISSING,
            "option": one.flag and one.flag.name,
            "help": one.help,
        }
        for one in settings
    ]


def show_settings(settings: list[dict[str, Any]], console: Console) -> None:
    """Two lines each: name, type, default and short option, then what it is for."""
    for row in settings:
        default = "required" if row["required"] else f"default {row['default']}"
        short = f", {row['option']}" if row["option"] else ""
        line = Text.assemble(
            (f"--{row['setting']}", "bold"), f" {row['type']}", (f"  ({default}{short})", "dim")
        )
        console.print(line, soft_wrap=True)
        console.print(Padding(Text(row["help"]), (0, 0, 0, 4)))
    if not settings:
        console.print("It has no settings.")


def show_technique(technique: type[Technique], console: Console) -> None:
    """What it does."""
    console.print(f"[bold]{technique.name}[/bold]: {escape(technique.about())}\n")


def list_techniques() -> list[dict[str, Any]]:
    """Name, package and purpose of every technique; those that cannot be imported say why."""
    found: list[dict[str, Any]] = []
    for name in names():
        try:
            about, problem = find(name).about(), None
        except PluginFailed as error:
            about, problem = "", str(error)
        package = origin(name) or "memloc"
        found.append({"name": name, "from": package, "about": about, "problem": problem})
    return found


def show_techniques(techniques: list[dict[str, Any]], console: Console) -> None:
    """A line each; defaults first."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("technique", "from", "what it does"):
        table.add_column(column)
    for row in techniques:
        about = "cannot be imported" if row["problem"] else row["about"]
        table.add_row(row["name"], row["from"], about)
    console.print(table)
    console.print(f"\nDefault: {', '.join(DEFAULT_TECHNIQUES)}.", highlight=False)
    for row in techniques:
        if row["problem"]:
            console.print(f"Caution: {row['problem']}", style="yellow", markup=False)
