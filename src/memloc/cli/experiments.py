"""`memloc run`, `memloc localise` and `memloc control`: one experiment each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from memloc.cli.options import option, with_settings
from memloc.cli.output import (
    Json,
    Open,
    interruptible,
    make_console,
    open_report,
    print_json,
    report_failures,
    tell_report,
    write_beside,
)
from memloc.config import Columns, ControlRun, Engine, Localisation, Model, Run, Training
from memloc.errors import DataError

_OF_FILES = ("task", "validation", *Columns.model_fields)
"""What only a single task can have."""


def _complete_run(given: dict[str, Any]) -> Run:
    from memloc.engine.complete import complete_run

    return complete_run(given)


def _complete_localisation(given: dict[str, Any]) -> Localisation:
    from memloc.engine.complete import complete_localisation

    return complete_localisation(given)


def _complete_control(given: dict[str, Any]) -> ControlRun:
    from memloc.engine.complete import complete_control

    return complete_control(given)


@with_settings(Run, _complete_run)
def run_command(
    settings: Run, engine: Engine, open_it: Open = False, as_json: Json = False
) -> None:
    """Flip labels, fine-tune, and find the layers that hold the flipped labels.

    Without options: the embedded model `minilm` on the built-in task `questions`.
    Training settings default to what suits the model, see `memloc models list`.

    More settings: `--training.warmup 0.2`, `--retraining.epochs 3`; `memloc settings` and
    `memloc techniques NAME` list them.

    What was computed before is reused; after Ctrl-C, the same command goes on.
    """
    from memloc.api.experiments import run
    from memloc.report.progress_view import make_progress
    from memloc.report.terminal import show_files, show_run

    with interruptible("finished jobs are kept, the same command goes on"):
        result = run(settings, engine, make_progress(Console(stderr=True)))
        report = write_beside(result)
    if report and open_it:
        open_report(report)
    if as_json:
        print_json({**result.summary, "report": report and str(report)})
    else:
        console = make_console()
        show_run(result.summary, console)
        show_files(str(result.folder), console, result.summary["jobs"], result.summary["seconds"])
        tell_report(report, console, open_it)
    report_failures(result.summary)


@with_settings(Localisation, _complete_localisation, without=("engine.runs",))
def localise_command(
    settings: Localisation,
    engine: Engine,
    out: Annotated[Path, option("--out", "Folder for the result tables.")],
    open_it: Open = False,
    as_json: Json = False,
) -> None:
    """Analyse models that are already fine-tuned: which layers hold the wrong labels?

    Writes layers, windows, predictions, examples (.parquet) and more, and summary.json.

    Settings of training are for retraining windows, and for the head that is put on the
    pre-trained model. `memloc settings localise` lists all settings.

    Finished parts are kept in OUT/store; after Ctrl-C, the same command goes on.
    """
    from memloc.api.experiments import localise_folders
    from memloc.report.progress_view import make_progress
    from memloc.report.terminal import show_files, show_localisation

    if not settings.data.file.exists():
        raise DataError("there is no such file", setting="data.file", value=settings.data.file)
    with interruptible("finished parts are kept, the same command goes on"):
        result = localise_folders(settings, out, engine, make_progress(Console(stderr=True)))
        report = write_beside(result)
    if report and open_it:
        open_report(report)
    if as_json:
        print_json({**result.summary, "report": report and str(report)})
    else:
        console = make_console()
        show_localisation(result.summary, console)
        show_files(str(out), console, None, result.summary["seconds"])
        tell_report(report, console, open_it)
    report_failures(result.summary)


@with_settings(
    ControlRun,
    _complete_control,
    also={"model": Model, "training": Training},
    without=("models", "all_techniques", *(f"data.{name}" for name in _OF_FILES)),
    part="control",
)
def control_command(settings: ControlRun, engine: Engine, as_json: Json = False) -> None:
    """Hide memorisation in known layers, then see which techniques find it.

    The main task may change two layers only, an auxiliary task changes all of them.

    Without options: `minilm`, the built-in tasks, the first, middle and last two layers.
    `--model` may name several models, separated by commas. `memloc settings control` lists all
    settings.

    What was computed before is reused; after Ctrl-C, the same command goes on.
    """
    from memloc.api.experiments import run_control
    from memloc.report.control_terminal import show_control
    from memloc.report.progress_view import make_progress
    from memloc.report.terminal import show_jobs

    with interruptible("finished jobs are kept, the same command goes on"):
        result = run_control(settings, engine, make_progress(Console(stderr=True)))
    if as_json:
        print_json(result.summary)
    else:
        console = make_console()
        show_control(result.summary, console)
        show_jobs(result.summary["jobs"], result.summary["seconds"], console)
        console.print(f"Results: {result.folder}/", soft_wrap=True, highlight=False, markup=False)
        console.print(
            "  summary.json, accuracy, layers, gradient_choices, attempts (.parquet) and more",
            style="dim",
            highlight=False,
        )
    report_failures(result.summary)


def add_experiments(app: typer.Typer) -> None:
    """Add the three commands."""
    for name, (function, kind) in {
        "run": run_command,
        "localise": localise_command,
        "control": control_command,
    }.items():
        app.command(name, cls=kind)(function)
