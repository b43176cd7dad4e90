"""`memloc store`: what is in the store, whether it is sound, and how to share it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memloc.cli.options import option
from memloc.cli.output import Json, interruptible, make_console, print_json
from memloc.config import parse_bytes
from memloc.errors import MemlocError

store_app = typer.Typer(help="The store of finished work: list, verify, clean up, share.")
Runs = Annotated[Path, option("--runs", "Folder with the results; the store is in it.")]


@store_app.command("list")
def list_command(
    runs: Runs = Path("runs"),
    kind: Annotated[str | None, option("--kind", "List the artefacts of one kind.")] = None,
    as_json: Json = False,
) -> None:
    """What is in the store: how many artefacts of which kind, and their size."""
    from memloc.engine.store.inventory import entries, open_store, set_aside
    from memloc.report.store_view import artefact_rows, kind_rows, show_artefacts, show_kinds

    store = open_store(runs)
    found = entries(store, kind)
    if kind is None:
        rows = kind_rows(found)
        if as_json:
            print_json({"kinds": rows, "set_aside": [str(path) for path in set_aside(store)]})
        else:
            show_kinds(rows, len(set_aside(store)), make_console())
        return
    artefacts = artefact_rows(store, found)
    if as_json:
        print_json(artefacts)
    else:
        show_artefacts(artefacts, make_console())


@store_app.command("verify")
def verify_command(runs: Runs = Path("runs"), as_json: Json = False) -> None:
    """Check every artefact: manifest, key, files, checksums.

    Damaged ones are set aside and computed anew by the next run; exit code 1 if any.
    """
    from memloc import text
    from memloc.engine.store.inventory import Damage, entries, open_store, verify
    from memloc.report.store_view import reading

    def say(damage: Damage) -> None:
        if not as_json:
            print(damage.words, flush=True)

    store = open_store(runs)
    found = entries(store)
    with (
        interruptible("what was found until then was set aside, the rest was not checked"),
        reading(sum(entry.size for entry in found)) as advance,
    ):
        damaged = verify(store, found, advance, say)
    if as_json:
        print_json(
            {
                "artefacts": len(found),
                "damaged": [
                    {
                        "kind": each.entry.kind,
                        "key": each.entry.key,
                        "problem": each.problem,
                        "set_aside": str(each.aside),
                    }
                    for each in damaged
                ],
            }
        )
    else:
        total = text.size(sum(entry.size for entry in found))
        verdict = f"{len(damaged)} damaged" if damaged else "all sound"
        print(f"{len(found)} artefacts ({total}) checked: {verdict}.")
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
    from memloc.engine.store.garbage import find_garbage, remove_garbage
    from memloc.engine.store.inventory import open_store
    from memloc.report.store_view import garbage_data, show_garbage

    store = open_store(runs)
    garbage = find_garbage(store, runs)
    if not dry_run:
        with interruptible("the rest is still there, the same command goes on"):
            remove_garbage(store, garbage, unreferenced)
    if as_json:
        print_json(garbage_data(garbage, unreferenced, dry_run))
    else:
        show_garbage(garbage, unreferenced, dry_run, make_console())


@store_app.command("export")
def export_command(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RESULTS...", help="Folders of results.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write: NAME.tar.gz or NAME.tar.")
    ],
    runs: Runs = Path("runs"),
    without_weights: Annotated[
        bool,
        option("--without-weights", "Leave out trained weights and states: tables alone."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Pack results and all they were made from, for a colleague."""
    from memloc import text
    from memloc.engine.store.archive import export_results

    with interruptible("no file was written"):
        done = export_results(folders, runs, out, without_weights=without_weights)
    if as_json:
        print_json({**vars(done), "file": str(done.file)})
        return
    left = f" ({done.left_out} with weights or states left out)" if done.left_out else ""
    print(f"{out}: {text.size(done.size)}, results: {done.results}, artefacts: {done.artefacts}")
    if left:
        print(f"  {left.strip()}")
    print(f"  bring it in elsewhere with: memloc store import {out.name}")


@store_app.command("import")
def import_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="From `memloc store export`.")],
    runs: Runs = Path("runs"),
    max_size: Annotated[str, option("--max-size", "Refuse what unfolds to more.")] = "20GB",
    as_json: Json = False,
) -> None:
    """Check all that a colleague exported, and bring it in; nothing in it is run.

    If anything is wrong nothing is imported. What is here already is kept.
    """
    from memloc.engine.store.archive import import_archive

    try:
        limit = parse_bytes(max_size)
    except ValueError as error:
        raise MemlocError(str(error), setting="max-size", value=max_size) from None
    with interruptible("nothing was imported"):
        done = import_archive(file, runs, limit)
    if as_json:
        paths = {"results": done.results, "kept_results": done.kept_results}
        print_json({**vars(done), **{name: [str(p) for p in ps] for name, ps in paths.items()}})
        return
    for folder in done.results:
        print(f"Imported {folder}")
    for folder in done.kept_results:
        print(f"Kept {folder}, which was here already")
    print(f"Artefacts: {done.artefacts} new, {done.kept_artefacts} here already and kept.")
    if done.left_out:
        print(f"  {done.left_out} with weights or states were not sent; a run computes them again")
    for folder in done.results[:1]:
        print(f"  look at it with: memloc report {folder}")
