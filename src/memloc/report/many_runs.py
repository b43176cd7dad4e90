"""What many runs say together, in a terminal of 80 columns: correlations, and figures written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from memloc.analysis.correlation import FEWEST
from memloc.report.terminal import columns, decimal, indented, section
from memloc.results.agreement import ALL_MODELS, IN_PRINT, LAYER_WEIGHTS, M_COG
from memloc.results.grid import VALIDATION_SCORES, Grid, grid_title
from memloc.text import counted, shortened

if TYPE_CHECKING:
    from memloc.report.figures.registry import FigureData, FigureEntry, Written

TITLES = {
    "techniques": ("Do techniques agree?", "runs", "layers of runs"),
    "models": ("Do models agree?", "tasks", "tasks × layers"),
}
"""Heading, and what the points are for M-CoG and for layer weights."""
CAUTIONS = 5
"""So many are printed."""


def show_title(command: str, title: str, notes: Sequence[str], console: Console) -> None:
    """The heading of a command, and what a reader must know about the choice of runs."""
    console.print()
    console.print(Text.assemble((f"memloc {command}", "bold"), f"  {title}"))
    show_notes(notes, console)


def show_notes(notes: Sequence[str], console: Console) -> None:
    """What a reader must know about the choice of runs."""
    for note in notes:
        console.print(Text(f"Note: {note}", style="yellow"))


def show_cautions(grid: Grid, console: Console) -> None:
    """What keeps single runs from meaning what they seem to mean: the most frequent cautions."""
    cautions = sorted(grid.cautions.items(), key=lambda one: -len(one[1]))
    for sentence, runs in cautions[:CAUTIONS]:
        named = ", ".join(runs[:CAUTIONS]) + (", …" if len(runs) > CAUTIONS else "")
        where = f"{counted(len(runs), 'run')}, {named}" if len(runs) > 1 else named
        console.print(Text(f"Caution ({where}): {sentence}", style="yellow"))
    if len(cautions) > CAUTIONS:
        left = counted(len(cautions) - CAUTIONS, "more caution")
        console.print(Text(f"{left}: see --json.", style="yellow"))


def show_agreement(grid: Grid, table: pd.DataFrame, console: Console) -> None:
    """Print all correlations."""
    show_title("agreement", grid_title(grid), grid.notes, console)
    words = (
        "Spearman's ρ with a 95% interval from resamples of tasks, and Pearson's r. Fewer than "
        f"{FEWEST} points have no correlation (-). Models are compared technique by technique; "
        "what is shown is the mean."
    )
    if table["within"].notna().any():
        words += (
            " Within models: ρ of each model alone, averaged: models that differ do not make it "
            "larger."
        )
    console.print(Text(words, style="dim"))
    for kind, names in (("techniques", grid.techniques), ("models", grid.models)):
        title, *points = TITLES[kind]
        if len(names) < 2:
            console.print(section(title, f"there is only one: {names[0]}" if names else "none"))
            continue
        for quantity, of_what in zip((M_COG, LAYER_WEIGHTS), points, strict=True):
            rows = table[(table["kind"] == kind) & (table["quantity"] == quantity)]
            console.print(section(f"{title} By {IN_PRINT[quantity]}", f"n: {of_what}"))
            console.print(indented(_correlations(rows)))
    for kind, title in (
        ("events", "Do centroids and probes see the same events?"),
        ("generalisation", "Is it deeper where it generalises better? (Table 2)"),
    ):
        console.print(section(title, "n: runs"))
        rows = table[table["kind"] == kind]
        shown = rows[~rows["other"].isin(VALIDATION_SCORES[1:]) | (rows["scope"] == ALL_MODELS)]
        console.print(indented(_correlations(shown)))
    console.print()
    show_cautions(grid, console)


def _correlations(rows: pd.DataFrame) -> Table:
    """One line per correlation; what is repeated from the line above is left out."""
    within = rows["within"].notna().any() and (rows["scope"] == ALL_MODELS).all()
    scoped = not within and (rows["scope"] != "").any() and (rows["kind"] != "models").any()
    lines = []
    above = ""
    for row in rows.to_dict("records"):
        one, other = (IN_PRINT.get(row[key], row[key]) for key in ("one", "other"))
        pair = fill(f"{one} ~ {other}", 32 if within or scoped else 44)
        second = decimal(row["within"], 2) if within else shortened(row["scope"], 13)
        line = ["" if pair == above else pair, *([second] if within or scoped else [])]
        line += [with_interval(row, "spearman"), decimal(row["pearson"], 2), str(row["n"])]
        lines.append(line)
        above = pair
    extra = ["within models" if within else ""] if within or scoped else []
    return columns(("", *extra, "ρ", "r", "n"), lines, 1, left=range(2 + len(extra)))


def with_interval(row: Any, name: str, scale: float = 1, digits: int = 2, unit: str = "") -> str:
    """A number and its interval, as far as they are known."""
    value, low, high = (
        decimal(scale * row[f"{name}{end}"], digits) for end in ("", "_low", "_high")
    )
    number = value if value == "-" else value + unit
    return number if "-" in (value, low) else f"{number} [{low}, {high}]"


def figure_list(entries: Sequence[FigureEntry]) -> list[dict[str, Any]]:
    """All figures as JSON data."""
    return [
        {"name": e.name, "numbers": list(e.numbers), "shows": e.shows, "needs": e.needs}
        for e in entries
    ]


def show_figure_list(entries: Sequence[FigureEntry], console: Console) -> None:
    """All figures, what they show and what they need."""
    table = Table("name", "paper", "shows", "needs", box=None, pad_edge=False, header_style="dim")
    for entry in entries:
        kind = "Tab." if entry.is_table else "Fig."
        number = f"{kind} {'/'.join(entry.numbers)}" if entry.numbers else ""
        table.add_row(Text(entry.name, style="bold"), number, entry.shows, entry.needs)
    console.print(table)


def show_written(data: FigureData, done: Sequence[Written], out: Path, console: Console) -> None:
    """Which files there are now, and which figures could not be drawn."""
    title = "control experiments" if data.grid is None else grid_title(data.grid)
    show_title("figures", title, () if data.grid is None else data.grid.notes, console)
    count = sum(len(one.files) for one in done)
    written = {one.entry.name: ", ".join(one.files) for one in done if one.files}
    skipped = {one.entry.name: one.reason for one in done if not one.files}
    for heading, rows in (
        (f"Written to {out}/ ({count} files and captions.md)", written),
        ("Skipped", skipped),
    ):
        if rows:
            table = Table.grid(padding=(0, 2, 0, 0))
            for name, words in rows.items():
                table.add_row(name, Text(words))
            console.print(section(heading))
            console.print(indented(table))
