"""`memloc store`: what is in the store, whether it is sound, and how to share it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from memloc import text
from memloc.cli.options import option
from memloc.cli.output import Json, interruptible, make_console, print_json

store_app = typer.Typer(help="The store of finished work: list, verify, clean up, share.")
Runs = Annotated[Path, option("--runs", "Folder with the results; the store is in it.")]


@store_app.command("list")
def list_command(runs: Runs = Path("runs"), as_json: Json = False) -> None:
    """What is in the store: how many artefacts of which kind, and their size.

    With --json one row per artefact.
    """
    from memloc.engine.store.admin import inventory
    from memloc.report.terminal import columns

    found = inventory(runs)
    if as_json:
        print(found.drop(columns="path").to_json(orient="records", indent=1))
        return
    rows = []
    for (kind, damaged), those in found.groupby(["kind", "damaged"]):
        newest = time.strftime("%Y-%m-%d %H:%M", time.localtime(those["written"].max()))
        size = text.size(those["bytes"].sum())
        rows.append([f"{kind}{' (damaged)' if damaged else ''}", f"{len(those):,}", size, newest])
    make_console().print(columns(("kind", "number", "size", "newest"), rows))
    print(f"All: {text.size(found['bytes'].sum())}.")


@store_app.command("verify")
def verify_command(runs: Runs = Path("runs"), as_json: Json = False) -> None:
    """Check every artefact: manifest, files, checksums.

    Damaged ones are set aside and computed anew by the next run; exit code 1 if any.
    """
    from rich.console import Console
    from rich.progress import track

    from memloc.engine.store.admin import inventory, verify
    from memloc.engine.store.store import Store

    found = inventory(runs)
    found = found[~found["damaged"]]
    checks = track(
        verify(Store(runs / "store"), found),
        *("checking", len(found)),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    damaged = []
    with interruptible("what was found until then was set aside, the rest was not checked"):
        for problem in checks:
            if problem is not None:
                damaged.append(problem)
                if not as_json:
                    print(problem, flush=True)
    if as_json:
        print_json({"artefacts": len(found), "damaged": damaged})
    else:
        verdict = f"{len(damaged)} damaged" if damaged else "all sound"
        print(f"{len(found)} artefacts ({text.size(found['bytes'].sum())}) checked: {verdict}.")
        if damaged:
            print("Run the commands again that need them; `memloc store gc` removes the damaged.")
    if damaged:
        raise typer.Exit(1)


@store_app.command("gc")
def gc_command(
    runs: Runs = Path("runs"),
    unreferenced: Annotated[
        bool,
        option("--unreferenced", "Also artefacts that no result and no sweep refers to."),
    ] = False,
    dry_run: Annotated[bool, option("--dry-run", "Only say what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Remove what nothing needs.

    Always: leftovers of killed processes, what is damaged, states of finished trainings.

    With --unreferenced also artefacts of no result and no sweep.

    An interrupted run is no result yet: what it has finished would go too.

    But never what is younger than an hour, and not while somebody is computing.
    """
    from memloc.engine.store.admin import find_garbage, size_of
    from memloc.engine.store.store import Store

    garbage = {what: paths for what, paths in find_garbage(runs, unreferenced).items() if paths}
    sizes = {what: sum(map(size_of, paths)) for what, paths in garbage.items()}
    if not dry_run:
        store = Store(runs / "store")
        with interruptible("the rest is still there, the same command goes on"):
            for path in (path for paths in garbage.values() for path in paths):
                store.remove(path.parent.name, path.name)
            store.sweep_leftovers()
    total = sum(sizes.values())
    if as_json:
        rows = [
            {"what": what, "number": len(garbage[what]), "bytes": sizes[what]} for what in sizes
        ]
        print_json({"dry_run": dry_run, "removed": rows, "freed_bytes": total})
        return
    would, frees = ("would go", "would free") if dry_run else ("removed", "freed")
    for what, size in sizes.items():
        print(f"{len(garbage[what]):>6,}  {what} {would}: {text.size(size)}")
    print(f"This {frees} {text.size(total)}." if sizes else "There is nothing to remove.")
    if not unreferenced:
        print("Artefacts that no result refers to stay; --unreferenced removes them, too.")


@store_app.command("export")
def export_command(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RESULTS...", help="Folders of results.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write: NAME.tar.gz.")],
    runs: Runs = Path("runs"),
    without_weights: Annotated[
        bool,
        option("--without-weights", "Leave out trained weights and states: tables alone."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Pack results and all they were made from, for a colleague."""
    from memloc.engine.store.admin import export_results

    with interruptible("no file was written"):
        done = export_results(folders, runs, out, without_weights=without_weights)
    if as_json:
        print_json({"file": str(out), **done})
        return
    size = text.size(done["bytes"])
    print(f"{out}: {size}, results: {done['results']}, artefacts: {done['artefacts']}")
    if done["left_out"]:
        print(f"  ({done['left_out']} with weights or states left out)")
    print(f"  bring it in elsewhere with: memloc store import {out.name}")


@store_app.command("import")
def import_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="From `memloc store export`.")],
    runs: Runs = Path("runs"),
    as_json: Json = False,
) -> None:
    """Check all that a colleague exported, and bring it in; nothing in it is run.

    If anything is wrong nothing is imported. What is here already is kept.
    """
    from memloc.engine.store.admin import import_archive

    with interruptible("nothing was imported"):
        done = import_archive(file, runs)
    if as_json:
        print_json(done)
        return
    for folder in done["results"]:
        print(f"Imported {folder}; look at it with: memloc report {folder}")
    for folder in done["kept_results"]:
        print(f"Kept {folder}, which was here already")
    print(f"Artefacts: {done['artefacts']} new, {done['kept_artefacts']} here already and kept.")
    if done["left_out"]:
        print(
            f"  {done['left_out']} with weights or states were not sent; a run computes them again"
        )
