"""`memloc tasks`, `techniques`, `settings` and `models`: what there is to choose from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memloc.cli import experiments
from memloc.cli.options import option
from memloc.cli.output import Json, make_console, print_json
from memloc.config import DEFAULT_TECHNIQUES, Model, Setting, Training, settings_in, write_value
from memloc.errors import MISSING

models_app = typer.Typer(help="Models: which names are known, and what memloc sees in one.")
_SOURCES = {
    "built-in": "Built-in: generated, no download",
    "paper": "The paper's: from the Hugging Face hub, or --data-dir",
}


def tasks_command(as_json: Json = False) -> None:
    """List the built-in tasks and those of the paper."""
    from memloc.data.load import named_tasks

    tasks = list(named_tasks().values())
    if as_json:
        print_json([task.facts() for task in tasks])
        return
    console = make_console()
    for source, title in _SOURCES.items():
        console.print(f"\n{title}", style="bold")
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


def techniques_command(
    name: Annotated[
        str | None, typer.Argument(help="A technique, to see its settings.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """List the techniques, also those that other packages bring, or the settings of one."""
    from memloc.techniques import find

    console = make_console()
    if name is None:
        _list_techniques(console, as_json)
        return
    technique = find(name)
    if not as_json:
        console.print(f"{technique.name}: {technique.about()}\n", markup=False)
    _list_settings(settings_in(technique.Config, name), console, as_json)


def _list_techniques(console: Console, as_json: bool) -> None:
    """Name, package and purpose of every technique; those that cannot be imported say why."""
    from memloc.techniques import PluginFailed, find, names, origin

    found: list[dict[str, Any]] = []
    for name in names():
        try:
            about, problem = find(name).about(), None
        except PluginFailed as error:
            about, problem = "", str(error)
        package = origin(name) or "memloc"
        found.append({"name": name, "from": package, "about": about, "problem": problem})
    if as_json:
        print_json(found)
        return
    table = _table("technique", "from", "what")
    for row in found:
        table.add_row(row["name"], row["from"], row["about"] or "cannot be imported")
    console.print(table)
    console.print(f"\nDefault: {', '.join(DEFAULT_TECHNIQUES)}.")
    for row in found:
        if row["problem"]:
            console.print(f"Caution: {row['problem']}", style="yellow", markup=False)


def settings_command(
    command: Annotated[
        Literal["run", "audit", "localise", "control"], typer.Argument(help="Of which command.")
    ] = "run",
    as_json: Json = False,
) -> None:
    """List all settings of a command: type, default, and short option if there is one.

    Every setting is an option (`--training.warmup 0.2`), a key in a YAML file
    (`training: {warmup: 0.2}`) and an argument in Python (`training=Training(warmup=0.2)`).
    """
    from memloc.techniques import names

    options = {
        "run": experiments.RUN,
        "audit": experiments.AUDIT,
        "localise": experiments.LOCALISE,
        "control": experiments.CONTROL,
    }
    console = make_console()
    _list_settings(options[command].settings.values(), console, as_json)
    if not as_json:
        techniques = ", ".join((*names(), *names("explanation")))
        console.print(f"\nOf techniques: `memloc techniques NAME` ({techniques}).")


def _list_settings(settings: Iterable[Setting], console: Console, as_json: bool) -> None:
    """Two lines each: name, type, default and short option, then what it is for."""
    rows = [
        {
            "setting": one.path,
            "type": one.type_words,
            "default": None if one.default is MISSING else write_value(one.default),
            "required": one.default is MISSING,
            "option": one.option,
            "help": one.help,
        }
        for one in settings
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        default = "required" if row["required"] else f"default {row['default']}"
        short = f", {row['option']}" if row["option"] else ""
        name = (f"--{row['setting']}", "bold")
        line = Text.assemble(name, f" {row['type']}", (f"  ({default}{short})", "dim"))
        console.print(line, soft_wrap=True)
        console.print(Padding(Text(str(row["help"])), (0, 0, 0, 4)))
    if not rows:
        console.print("It has no settings.")


@models_app.command("list")
def models_list_command() -> None:
    """List the models that have a short name."""
    from memloc.models.names import KNOWN_MODELS

    table = _table("name", "what", "epochs>", "rate>", "batch>")
    for name, known in KNOWN_MODELS.items():
        settings = Training(**known.training)
        recipe = (settings.epochs, f"{settings.learning_rate:.0e}", settings.batch_size)
        what = Text.assemble(f"{known.note}\n", (known.hub, "dim"))
        table.add_row(name, what, *map(str, recipe))
    console = make_console()
    console.print(table)
    console.print("\nOr any sequence classifier: a hub name, or a directory with its tokeniser.")


@models_app.command("check")
def models_check_command(
    name: Annotated[str, typer.Argument(help="A known name, a hub name or a directory.")],
    blocks: Annotated[
        str | None, option("--blocks", str(Model.model_fields["blocks"].description))
    ] = None,
    trust_remote_code: Annotated[
        bool,
        option("--trust-remote-code", str(Model.model_fields["trust_remote_code"].description)),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what memloc finds in a model: its layers, its parameters, which short cuts are valid."""
    from memloc.models.load import check_model, show_check

    found = check_model(Model(name=name, blocks=blocks, trust_remote_code=trust_remote_code))
    if as_json:
        print_json(found)
    else:
        show_check(found, make_console())


def _table(*columns: str) -> Table:
    """A plain table; a name that ends in > is a column of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        number = name.endswith(">")
        table.add_column(
            name.rstrip(">"), justify="right" if number else "left", no_wrap=name != "what"
        )
    return table
