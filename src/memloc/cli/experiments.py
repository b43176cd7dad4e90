"""`memloc run`, `localise` and `control`, one experiment each; `repair`; and `sweep`, many runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memloc.cli.options import Options, option
from memloc.cli.output import (
    Json,
    Open,
    interruptible,
    make_console,
    open_report,
    print_json,
    report_failures,
    write_beside,
    write_first,
)
from memloc.config import (
    Audit,
    Columns,
    ControlRun,
    Engine,
    Execution,
    Localisation,
    Model,
    Repair,
    Run,
    TrackerName,
    Training,
    Workers,
    merge,
)
from memloc.errors import MemlocError
from memloc.tables import REPORT

if TYPE_CHECKING:
    from memloc.api.result import Result

KEPT = "finished jobs are kept, the same command goes on"
_OF_FILES = ("task", "validation", *Columns.model_fields)
"""What only a single task can have."""
_NOT_AUDITED = (
    *("task", "noise", "seed", "suspects", "twin", "binarise", "validation"),
    "original_label_column",
)
"""What says which labels are wrong, or makes some so; and examples that are not looked at."""
RUN = Options(Run)
AUDIT = Options(
    Audit,
    without=("engine.runs", *(f"data.{name}" for name in _NOT_AUDITED)),
    part="audit",
)
LOCALISE = Options(Localisation, without=("engine.runs",))
CONTROL = Options(
    ControlRun,
    also={"model": Model, "training": Training},
    without=("models", "all_techniques", *(f"data.{name}" for name in _OF_FILES)),
    part="control",
)
REPAIR = Options(Repair, without=("engine.runs", "engine.low_memory"), files=False)
SWEEP = Options(Execution, without=[f"engine.{name}" for name in Workers.model_fields], files=False)


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
    _carry_out(settings, engine, as_json, open_it)


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
    _carry_out(settings, engine, as_json, open_it, out)


def control_command(settings: ControlRun, engine: Engine, as_json: Json = False) -> None:
    """Hide memorisation in known layers, then see which techniques find it.

    The main task may change two layers only, an auxiliary task changes all of them.

    Without options: `minilm`, the built-in tasks, the first, middle and last two layers.
    `--model` may name several models, separated by commas. `memloc settings control` lists all
    settings.

    What was computed before is reused; after Ctrl-C, the same command goes on.
    """
    _carry_out(settings, engine, as_json)


def audit_command(
    settings: Audit,
    engine: Engine,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Texts and labels: CSV, TSV, JSONL or Parquet.")
    ],
    out: Annotated[Path, option("--out", "Folder for the tables, the corrected file, the page.")],
    open_it: Open = False,
    as_json: Json = False,
) -> None:
    """Rank the labels of a file by how likely they are wrong.

    Trains a model on the labels as they are, and two on halves of them. Writes labels.parquet,
    corrected.csv and a page to go through the labels.

    No label is flipped, and FILE is not changed.

    `memloc settings audit` lists all settings. After Ctrl-C, the same command goes on.
    """
    from memloc.api.audit import CORRECTED, carry_out
    from memloc.report.audit_terminal import show_audit
    from memloc.report.progress_view import make_progress

    settings = settings.replace(data=settings.data.replace(task=file))
    with interruptible(KEPT):
        result = carry_out(settings, engine, make_progress(make_console(stderr=True)), out)
    if as_json:
        print_json(result.summary)
    else:
        console = make_console()
        show_audit(result.labels, result.summary, console)
        console.print(f"Table: {out / 'labels.parquet'}", soft_wrap=True)
        console.print(f"Corrected file: {out / CORRECTED}", soft_wrap=True)
        console.print(f"Page to go through the labels: {out / REPORT}", soft_wrap=True)
    if open_it:
        open_report(out / REPORT)


def repair_command(
    settings: Repair,
    engine: Engine,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RESULT", help="Folder of a result of `memloc run` or `memloc localise`."
        ),
    ],
    out: Annotated[Path, option("--out", "New folder for the model, its card and its exam.")],
    as_json: Json = False,
) -> None:
    """Make models that no longer hold the wrong labels, examine all, and write the best.

    Each has the same exam: are the labels gone, or only hidden? docs/repair.md says how.

    What was computed before is reused; after Ctrl-C, the same command goes on.
    """
    from memloc.api.repair import repair_result
    from memloc.report.progress_view import make_progress
    from memloc.report.repair import show_repair

    with interruptible(KEPT):
        progress = make_progress(make_console(stderr=True))
        found = repair_result(folder, out, settings, engine, progress)
    if as_json:
        print_json(found.summary)
    else:
        show_repair(found.summary, make_console())
    report_failures(found.summary["failures"], 2)


def _carry_out(
    settings: Run | Localisation | ControlRun,
    engine: Engine,
    as_json: bool,
    open_it: bool = False,
    out: Path | None = None,
) -> None:
    """Compute, print what was found and where it is; exit code 2 if parts of it failed."""
    from memloc.api.experiments import run
    from memloc.engine.progress import time_left
    from memloc.report import terminal
    from memloc.report.progress_view import make_progress

    beside = make_console(stderr=True)
    progress = make_progress(beside)

    def first(found: Result, pending: Sequence[str]) -> None:
        page = write_first(found, pending)
        if not as_json:
            left = time_left(progress.left())
            terminal.show_first(found.summary, pending, left, str(page or ""), beside)

    one_model = not isinstance(settings, ControlRun)
    with interruptible(KEPT):
        result = run(settings, engine, progress, out, first if one_model else None)
        report = write_beside(result) if one_model else None
    if as_json:
        print_json({**result.summary, "report": report and str(report)})
    else:
        show: dict[type[Any], Any] = {
            Run: terminal.show_result,
            Localisation: terminal.show_result,
            ControlRun: terminal.show_control,
        }
        console, found = make_console(), result.summary
        show[type(settings)](found, console)
        terminal.show_files(str(result.folder), console, found["jobs"], found["seconds"])
        if report is not None:
            console.print(f"Report: {report}", soft_wrap=True, markup=False)
            if not open_it:
                console.print("  open it in a browser, or add --open", style="dim")
    if report is not None and open_it:
        open_report(report)
    report_failures(result.summary["failures"], 2)


def sweep_command(
    settings: dict[str, Any],
    engine: Engine,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="EXPERIMENT", help="A YAML file, or a preset; without it, presets are listed."
        ),
    ] = None,
    dry_run: Annotated[
        bool, option("--dry-run", "Show what there is to compute, and what it will cost.")
    ] = False,
    only: Annotated[
        str | None, option("--only", "Only cells whose task-model fits, such as 'rte-*'.")
    ] = None,
    data_dir: Annotated[
        Path | None, option("--data-dir", "Folder with local copies of the paper's tasks.")
    ] = None,
    track: Annotated[
        TrackerName | None, option("--track", "Tell trackio or Weights & Biases how far it is.")
    ] = None,
    show: Annotated[bool, option("--show", "Print the file of a preset, to copy it.")] = False,
    as_json: Json = False,
) -> None:
    """Models × tasks × seeds × techniques from one file, in one go.

    Every artefact is computed once, however many sweeps share it. After Ctrl-C, or if jobs failed,
    the same command goes on where it stopped.

    Exit code 1: some jobs failed, all others are done. See docs/sweeps.md for the files. Options
    win over what they say on their execution; there are more, such as `--slurm.minutes 60`.
    """
    from memloc.paper.presets import preset_names, preset_text, read_experiment

    if name is None:
        _list_presets(as_json)
        return
    if show:
        if name not in preset_names() and Path(name).is_file():
            raise MemlocError(f"only presets are printed, and {name!r} is a file of yours already")
        print(preset_text(name), end="")
        return
    sweep = read_experiment(name, data_dir)
    sweep = replace(sweep, execution=Execution(**merge(sweep.execution.model_dump(), settings)))
    runs = engine.runs
    from memloc.engine.dry_run import dry_run as count
    from memloc.engine.store.store import Store
    from memloc.engine.sweep import select
    from memloc.engine.views import Tracker, check_tracker
    from memloc.report.progress_view import make_progress, show_dry_run, show_sweep

    if only is not None:
        sweep = select(sweep, only)
    progress = make_progress()
    if dry_run:
        with interruptible("nothing was computed"):
            found = count(sweep, runs, progress)
        if as_json:
            print_json(found)
        else:
            show_dry_run(found, make_console())
        return
    from memloc.api.experiments import sweep as run_sweep  # brings torch

    if track is not None:
        check_tracker(track)
        progress.views.append(Tracker(track, sweep.name, Store(runs / "store")))
    with interruptible(KEPT):
        summary = run_sweep(sweep, runs, progress)
    if as_json:
        print_json(summary)
    else:
        show_sweep(summary, runs, make_console())
    report_failures(summary["failures"], 1)


def _list_presets(as_json: bool) -> None:
    from memloc.paper.presets import preset_names, preset_text

    # The first line of a file says what it is.
    about = {name: preset_text(name).split("\n")[0].lstrip("# ") for name in preset_names()}
    if as_json:
        print_json(about)
        return
    for name, words in about.items():
        print(f"{name:<12}{words}")
    print("\n`memloc sweep NAME --show` prints the file, to be copied and changed.")
