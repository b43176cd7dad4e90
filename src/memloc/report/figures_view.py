"""What `memloc figures` prints: which files were written, what was skipped and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memloc.results.grid_words import grid_title

if TYPE_CHECKING:
    from memloc.report.figures.data import FigureData
    from memloc.report.figures.registry import FigureEntry, Written


def figure_list(entries: Sequence[FigureEntry]) -> list[dict[str, Any]]:
    """All figures as JSON data."""
    return [
        {"name": e.name, "numbers": list(e.numbers), "shows": e.shows, "needs": e.needs}
        for e in entries
    ]


def show_figure_list(entries: Sequence[FigureEntry], console: Console) -> None:
    """All figures, what they show and what they need."""
    table = _grid((9, 8, 34))
    table.add_row(*(Text(word, style="dim") for word in ("name", "paper", "shows", "needs")))
    for entry in entries:
        kind = "Tab." if entry.name.startswith("table") else "Fig."
        number = f"{kind} {'/'.join(entry.numbers)}" if entry.numbers else ""
        table.add_row(Text(entry.name, style="bold"), number, entry.shows, entry.needs)
    console.print(table)


def show_written(data: FigureData, done: Sequence[Written], out: Path, console: Console) -> None:
    """Which files there are now, and which figures could not be drawn."""
    title = "control experiments" if data.grid is None else grid_title(data.grid)
    console.print()
    console.print(Text.assemble(("memloc figures", "bold"), f"  {title}"))
    for note in () if data.grid is None else data.grid.notes:
        console.print(Text(f"Note: {note}", style="yellow"))
    written = [one for one in done if one.files]
    skipped = [one for one in done if not one.files]
    if written:
        count = sum(len(one.files) for one in written)
        console.print(Text(f"\nWritten to {out}/ ({count} files and captions.md)", style="bold"))
        table = _grid((9,))
        for one in written:
            table.add_row(Text(one.entry.name), Text(", ".join(_folded(one.files))))
        console.print(Padding(table, (0, 0, 0, 2)))
    if skipped:
        console.print(Text("\nSkipped", style="bold"))
        table = _grid((9,))
        for one in skipped:
            table.add_row(Text(one.entry.name), Text(one.reason))
        console.print(Padding(table, (0, 0, 0, 2)))


def _folded(files: Sequence[str]) -> list[str]:
    """`a.pdf`, `a.png` as `a.pdf/png`."""
    kinds: dict[str, list[str]] = {}
    for file in files:
        stem, _, kind = file.rpartition(".")
        kinds.setdefault(stem, []).append(kind)
    return [f"{stem}.{'/'.join(of_stem)}" for stem, of_stem in kinds.items()]


def _grid(widths: Sequence[int]) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    for width in widths:
        table.add_column(width=width)
    table.add_column()
    return table
