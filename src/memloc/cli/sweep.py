"""`memloc sweep`: many experiments from one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from memloc.cli.options import option
from memloc.cli.output import Json, interruptible, make_console, print_json
from memloc.config import Device, ExecutorName, TrackerName
from memloc.errors import MemlocError


def sweep_command(
    name: Annotated[
        str | None, typer.Argument(metavar="EXPERIMENT", help="A YAML file, or a preset.")
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
    runs: Annotated[Path, option("--runs", "Folder for the store and the results.")] = Path("runs"),
    executor: Annotated[
        ExecutorName | None, option("--executor", "Where jobs run, whatever the file says.")
    ] = None,
    workers: Annotated[
        int | None, option("--workers", "Of `local`: processes; of `ray`: workers at most.")
    ] = None,
    device: Annotated[Device | None, option("--device", "Where to compute.")] = None,
    save_every: Annotated[
        float | None, option("--save-every", "Minutes between two saved states of a training.")
    ] = None,
    track: Annotated[
        TrackerName | None, option("--track", "Tell trackio or Weights & Biases how far it is.")
    ] = None,
    list_presets: Annotated[bool, option("--list", "List the presets.")] = False,
    show: Annotated[bool, option("--show", "Print the file of a preset, to copy it.")] = False,
    as_json: Json = False,
) -> None:
    """Models × tasks × seeds × techniques from one file, in one go.

    Every artefact is computed once, however many sweeps share it. After Ctrl-C, or if jobs failed,
    the same command goes on where it stopped.

    Exit code 1: some jobs failed, all others are done. See docs/sweeps.md for the files.
    """
    from memloc.paper.presets import preset_names, preset_text, read_experiment

    if list_presets:
        _list_presets(as_json)
        return
    if name is None:
        presets = ", ".join(preset_names())
        raise MemlocError(f"name an experiment: a YAML file, or one of the presets: {presets}")
    if show:
        if name not in preset_names() and Path(name).is_file():
            raise MemlocError(f"only presets are printed, and {name!r} is a file of yours already")
        print(preset_text(name), end="")
        return
    sweep = read_experiment(name, data_dir)
    sweep = sweep.replace_execution(
        executor=executor, workers=workers, device=device, save_every=save_every
    )
    from memloc.api.experiments import sweep as run_sweep
    from memloc.engine.dry_run import dry_run as count
    from memloc.engine.store.store import Store
    from memloc.engine.sweep import select
    from memloc.engine.tracking import Tracker, check_tracker
    from memloc.report.progress_view import make_progress
    from memloc.report.sweep_terminal import show_dry_run, show_sweep

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
    if track is not None:
        check_tracker(track)
        progress.views.append(Tracker(track, sweep.name, Store(runs / "store")))
    with interruptible("finished jobs are kept, the same command goes on"):
        summary = run_sweep(sweep, runs, progress)
    if as_json:
        print_json(summary)
    else:
        show_sweep(summary, runs, make_console())
    for sentence in summary["failures"]:
        print(f"memloc: {sentence}", file=sys.stderr)
    if summary["failures"]:
        raise typer.Exit(1)


def _list_presets(as_json: bool) -> None:
    from memloc.paper.presets import preset_names, preset_text

    # The first line of a file says what it is.
    about = {name: preset_text(name).split("\n")[0].lstrip("# ") for name in preset_names()}
    if as_json:
        print_json(about)
        return
    console = make_console()
    for name, words in about.items():
        console.print(f"{name:<12}{words}", markup=False)
    console.print("\n`memloc sweep NAME --show` prints the file, to be copied and changed.")
