"""`memloc tasks`, `techniques`, `settings` and `models`: what there is to choose from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from memloc.cli.options import option
from memloc.cli.output import Json, make_console, print_json
from memloc.config import ControlRun, Engine, Localisation, Model, Run, Settings, settings_in

models_app = typer.Typer(help="Models: which names are known, and what memloc sees in one.")
_GROUPS: dict[str, type[Settings]] = {
    "run": Run,
    "localise": Localisation,
    "control": ControlRun,
}


def tasks_command(as_json: Json = False) -> None:
    """List the built-in tasks and those of the paper."""
    from memloc.data.load import named_tasks
    from memloc.report.listings import show_tasks

    tasks = list(named_tasks().values())
    if as_json:
        print_json([task.facts() for task in tasks])
        return
    show_tasks(tasks, make_console())


def techniques_command(
    name: Annotated[
        str | None, typer.Argument(help="A technique, to see its settings.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """List the techniques, also those that other packages bring, or the settings of one."""
    from memloc.report.listings import (
        list_settings,
        list_techniques,
        show_settings,
        show_technique,
        show_techniques,
    )
    from memloc.techniques import find

    if name is None:
        techniques = list_techniques()
        if as_json:
            print_json(techniques)
        else:
            show_techniques(techniques, make_console())
        return
    settings = list_settings(settings_in(find(name).Config, name))
    if as_json:
        print_json(settings)
    else:
        console = make_console()
        show_technique(find(name), console)
        show_settings(settings, console)


def settings_command(
    command: Annotated[
        Literal["run", "localise", "control"], typer.Argument(help="Of which command.")
    ] = "run",
    as_json: Json = False,
) -> None:
    """List all settings of a command: type, default, and short option if there is one.

    Every setting is an option (`--training.warmup 0.2`), a key in a YAML file
    (`training: {warmup: 0.2}`) and an argument in Python (`training=Training(warmup=0.2)`).
    """
    from memloc.report.listings import list_settings, show_settings
    from memloc.techniques import names

    found = [*settings_in(_GROUPS[command]), *settings_in(Engine, "engine")]
    settings = list_settings(found)
    if as_json:
        print_json(settings)
        return
    console = make_console()
    show_settings(settings, console)
    techniques = ", ".join((*names(), *names("explanation")))
    console.print(f"\nOf techniques: `memloc techniques NAME` ({techniques}).", highlight=False)


@models_app.command("list")
def models_list_command() -> None:
    """List the models that have a short name."""
    from memloc.report.listings import show_models

    show_models(make_console())


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
    from memloc.models.check import check_model, show_check

    found: dict[str, Any] = check_model(
        Model(name=name, blocks=blocks, trust_remote_code=trust_remote_code)
    )
    if as_json:
        print_json(found)
    else:
        show_check(found, make_console())


def add_listings(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("tasks")(tasks_command)
    app.command("techniques")(techniques_command)
    app.command("settings")(settings_command)
    app.add_typer(models_app, name="models", no_args_is_help=True)
