"""The store, for people: tables of 80 columns, sizes and ages in words."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from memloc import text
from memloc.engine.store.garbage import Garbage
from memloc.engine.store.inventory import Describer, Entry
from memloc.engine.store.store import Store


def kind_rows(found: Sequence[Entry]) -> list[dict[str, Any]]:
    """Number, size and newest of every kind."""
    return [
        {
            "kind": kind,
            "number": len(of_kind),
            "bytes": sum(entry.size for entry in of_kind),
            "newest": _time(max(entry.written for entry in of_kind)),
        }
        for kind in dict.fromkeys(entry.kind for entry in found)
        for of_kind in [[entry for entry in found if entry.kind == kind]]
    ]


def show_kinds(rows: Sequence[dict[str, Any]], aside: int, console: Console) -> None:
    """One line per kind."""
    table = _table("kind", "number>", "size>", "newest")
    for row in rows:
        newest = datetime.fromisoformat(row["newest"]).astimezone()
        table.add_row(
            row["kind"], f"{row['number']:,}", text.size(row["bytes"]), f"{newest:%Y-%m-%d %H:%M}"
        )
    number, size = (sum(row[name] for row in rows) for name in ("number", "bytes"))
    table.add_row("all", f"{number:,}", text.size(size), "", style="bold")
    console.print(table)
    if aside:
        console.print(f"\n{aside} set aside as damaged; `memloc store gc` removes them.")


def artefact_rows(store: Store, found: Sequence[Entry]) -> list[dict[str, Any]]:
    """What each artefact is, newest first."""
    describer = Describer(store)
    return [
        {
            "kind": entry.kind,
            "key": entry.key,
            "bytes": entry.size,
            "written": _time(entry.written),
            "seconds": entry.seconds,
            "what": describer.words(entry),
        }
        for entry in sorted(found, key=lambda entry: (-entry.written, entry.key))
    ]


def show_artefacts(rows: Sequence[dict[str, Any]], console: Console) -> None:
    """One line per artefact, if the words allow it."""
    table = _table("key", "size>", "age>", "took>", "what")
    now = time.time()
    for row in rows:
        took = "" if row["seconds"] is None else text.roughly(row["seconds"])
        age = text.roughly(now - datetime.fromisoformat(row["written"]).timestamp())
        table.add_row(row["key"][:12], text.size(row["bytes"]), age, took, Text(row["what"]))
    console.print(table)


def garbage_data(garbage: Garbage, unreferenced: bool, dry_run: bool) -> dict[str, Any]:
    """What goes and what stays, as JSON data."""
    going = [
        {"what": what, "number": len(items), "bytes": sum(size for _, size in items)}
        for what, items in garbage.rubbish.items()
    ]
    other = {
        "what": "artefacts that no result refers to",
        "number": len(garbage.unreferenced),
        "bytes": sum(entry.size for entry in garbage.unreferenced),
    }
    other_too = garbage.all_goes(unreferenced)
    removed = [*going, *([other] if other_too else [])]
    return {
        "dry_run": dry_run,
        "removed": removed,
        "freed_bytes": sum(row["bytes"] for row in removed),
        "kept": [] if other_too else [other],
        "in_use": garbage.in_use,
        "results_without_list": [str(folder) for folder in garbage.unlisted],
    }


def show_garbage(garbage: Garbage, unreferenced: bool, dry_run: bool, console: Console) -> None:
    """What goes, how much space that frees, and what could go besides."""
    data = garbage_data(garbage, unreferenced, dry_run)
    would, freed = ("would go", "would free") if dry_run else ("removed", "freed")
    for row in data["removed"]:
        if row["number"]:
            console.print(f"{row['number']:>6,}  {row['what']} {would}: {text.size(row['bytes'])}")
    if data["freed_bytes"] or any(row["number"] for row in data["removed"]):
        console.print(f"This {freed} {text.size(data['freed_bytes'])}.")
    else:
        console.print("There is nothing to remove.")
    for row in data["kept"]:
        if row["number"]:
            words = f"{row['number']:,} artefacts ({text.size(row['bytes'])}) are of no result"
            if unreferenced:
                words += (
                    " and were kept, because somebody is computing (there are locks in the store)."
                )
            else:
                words += (
                    " and were kept: an interrupted run may need them. --unreferenced removes them."
                )
            console.print(words, style="dim")
    if garbage.unlisted and garbage.unreferenced:
        names = ", ".join(folder.name for folder in garbage.unlisted[:3])
        more = ", …" if len(garbage.unlisted) > 3 else ""
        words = f"Results of an older memloc do not say what they were made from: {names}{more}."
        if dry_run or not garbage.all_goes(unreferenced):
            words += " Run them again before --unreferenced, so that they do; it computes nothing."
        console.print(words, style="dim", markup=False)


@contextlib.contextmanager
def reading(total: int) -> Iterator[Callable[[int], None]]:
    """Show how far reading so many bytes is, in a terminal; gives what to tell the bytes to."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bars:
        task = bars.add_task("checked", total=max(total, 1))
        yield lambda size: bars.advance(task, size)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _table(*columns: str) -> Table:
    """A plain table; a name that ends in > is a column of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        right = name.endswith(">")
        table.add_column(
            name.rstrip(">"), justify="right" if right else "left", no_wrap=name != "what"
        )
    return table
