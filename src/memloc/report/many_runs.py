"""What many runs say together, in a terminal of 80 columns: correlations, and figures written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memloc.analysis.correlation import FEWEST
from memloc.results.agreement import ALL_MODELS, IN_PRINT, LAYER_WEIGHTS, M_COG, SHIFTS, Binarised
from memloc.results.grid import Grid, grid_title

if TYPE_CHECKING:
    from memloc.report.figures.data import FigureData
    from memloc.report.figures.registry import FigureEntry, Written

WIDTH = 80
CELL = 14
"""Room for [-0.97, -0.55]."""
BINARISED_WIDTHS = (12, 20, 21, 18, 3)
"""With single spaces between them, and two in front, 80."""
WITHIN = "within models"
"""Heading of the column."""
TITLES = {
    "techniques": ("Do techniques agree?", "runs", "layers of runs"),
    "models": ("Do models agree?", "tasks × techniques", "tasks × techniques × layers"),
}
"""Heading, and what the points are for M-CoG and for layer weights."""


def show_agreement(grid: Grid, table: pd.DataFrame, console: Console) -> None:
    """Print all correlations."""
    console.print()
    console.print(Text.assemble(("memloc agreement", "bold"), f"  {grid_title(grid)}"))
    for note in grid.notes:
        console.print(Text(f"Note: {note}", style="yellow"))
    console.print(
        Text(
            "Below the diagonal Spearman's ρ, above it Pearson's r, each with n and a 95% "
            f"bootstrap interval. Fewer than {FEWEST} points have no correlation (-).",
            style="dim",
        )
    )
    if table["within"].notna().any():
        words = "ρ of each model alone, averaged: models that differ do not make it larger."
        console.print(Text(f"{WITHIN.capitalize()}: {words}", style="dim"))
    for kind, names in (("techniques", grid.techniques), ("models", grid.models)):
        title, *points = TITLES[kind]
        if len(names) < 2:
            console.print(_section(title, f"there is only one: {names[0]}" if names else "none"))
            continue
        for quantity, of_what in zip((M_COG, LAYER_WEIGHTS), points, strict=True):
            rows = table[(table["kind"] == kind) & (table["quantity"] == quantity)]
            console.print(_section(f"{title} By {IN_PRINT[quantity]}", f"n: {of_what}"))
            console.print(Padding(_matrix(names, rows), (0, 0, 0, 2), expand=False))
    events = table[table["kind"] == "events"]
    console.print(_section("Do centroids and probes see the same events?", "n: runs"))
    console.print(Padding(_list(events), (0, 0, 0, 2), expand=False))
    console.print(_section("Is it deeper where it generalises better? (Table 2)", "n: runs"))
    scores = table[table["kind"] == "generalisation"]
    console.print(Padding(_list(scores), (0, 0, 0, 2), expand=False))


def show_binarised(found: Binarised, console: Console) -> None:
    """Print how tasks change when they are cut to two classes: once per depth in layers."""
    console.print(_section("Is it the same with two classes? (App. C)", "n: models × tasks"))
    for note in found.notes:
        console.print(Text(f"Note: {note}", style="yellow"))
    if found.comparison.empty:
        words = "Nothing to compare: needs swapping or the centroid analysis in both runs."
        console.print(Text(words, style="dim"))
        return
    console.print(
        Text("Shift: two classes − all classes, as share of the depth and in layers.", style="dim")
    )
    table = _grid(BINARISED_WIDTHS[0])
    for width in BINARISED_WIDTHS[1:-1]:
        table.add_column(width=width)
    table.add_column(width=BINARISED_WIDTHS[-1], justify="right")
    headings = ("", "ρ", "mean shift", "mean |shift|", "n")
    table.add_row(*(Text(word, style="dim") for word in headings))
    for _, rows in found.comparison.groupby("quantity", sort=False):
        for line in _lines_of_quantity(rows):
            table.add_row(*line)
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    missing = found.comparison.groupby("quantity", sort=False)["missing"].first()
    for quantity, number in missing[missing > 0].items():
        pairs = "1 pair" if number == 1 else f"{number} pairs"
        words = f"  {IN_PRINT[str(quantity)]}: missing on one side of {pairs}, left out"
        console.print(Text(words, style="dim"))


def _lines_of_quantity(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """All models as shares of the depth, then each depth in layers."""
    everything = rows.iloc[0]
    rho = f"{_number(everything['spearman'])} {_interval(everything, 'spearman')}".rstrip()
    shares = [_share(everything, f"depth_{name}") for name in SHIFTS]
    lines = [(IN_PRINT[everything["quantity"]], rho, *shares, str(everything["n"]))]
    for _, row in rows.dropna(subset="layers").iterrows():
        shifts = [f"{_number(row[name])} {_interval(row, name)}".rstrip() for name in SHIFTS]
        lines.append((f"  {row['layers']} layers", "", *shifts, str(row["n"])))
    return lines


def _share(row: pd.Series[float], name: str) -> str:
    value, low, high = (_number(100 * row[f"{name}{end}"], 1) for end in ("", "_low", "_high"))
    if "-" in (value, low):
        return value if value == "-" else f"{value}%"
    return f"{value}% [{low}, {high}]"


def _section(title: str, points: str) -> Group:
    return Group("", Text.assemble((title, "bold"), (f"  ({points})", "dim")))


def _matrix(names: Sequence[str], rows: pd.DataFrame) -> Table:
    """Names × names; too many for the width become a list."""
    first = min(max(map(len, names)), CELL + 3)
    if first + len(names) * (CELL + 1) > WIDTH - 2:
        return _list(rows)
    table = _grid(first)
    for _ in names:
        table.add_column(width=CELL, justify="right")
    table.add_row("", *(Text(_short(name, CELL), style="dim") for name in names))
    for line, name in enumerate(names):
        cells = [
            _cell(rows, name, other, "spearman" if column < line else "pearson")
            if name != other
            else Text("·", style="dim")
            for column, other in enumerate(names)
        ]
        table.add_row(Text(_short(name, first), style="dim"), *cells)
    return table


def _cell(rows: pd.DataFrame, one: str, other: str, coefficient: str) -> Text:
    for _, row in rows.iterrows():
        if {row["one"], row["other"]} == {one, other}:
            return Text("\n").join(line for line in _lines(row, coefficient) if line)
    return Text("-")


def _lines(row: pd.Series[float], coefficient: str) -> list[Text]:
    """The coefficient with n, its interval below, and for ρ what is left within models."""
    value, n = float(row[coefficient]), int(row["n"])
    words = Text(_number(value), style="bold" if abs(value) >= 0.5 else "")
    lines = [words.append(f" n {n}", style="dim"), Text(_interval(row, coefficient), style="dim")]
    if coefficient == "spearman" and not math.isnan(row["within"]):
        lines.append(Text(f"within {_number(row['within'])}", style="dim"))
    return lines


def _list(rows: pd.DataFrame) -> Table:
    """One line per correlation; what is repeated from the line above is left out."""
    within = rows["within"].notna().any() and (rows["scope"] == ALL_MODELS).all()
    scoped = (rows["kind"] != "models").any()
    widths = (32, 13) if scoped else (46, 0)
    table = _grid(widths[0])
    for width in (widths[1], 20, 5):
        table.add_column(width=width)
    table.add_column(width=4, justify="right")
    second = WITHIN if within else ""
    table.add_row(*(Text(word, style="dim") for word in ("", second, "ρ", "r", "n")))
    above = ""
    for _, row in rows.iterrows():
        one, other = (IN_PRINT.get(row[k], row[k]) for k in ("one", "other"))
        pair = _short(f"{one} ~ {other}", widths[0])
        rho = f"{_number(row['spearman'])} {_interval(row, 'spearman')}"
        scope = _short(row["scope"], widths[1]) if scoped else ""
        scope = _number(row["within"]) if within else scope
        cells = (rho.rstrip(), _number(row["pearson"]), str(row["n"]))
        table.add_row("" if pair == above else pair, scope, *cells)
        above = pair
    return table


def _grid(*widths: int) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    for width in widths:
        table.add_column(width=width)
    return table


def _number(value: float, digits: int = 2) -> str:
    """A number, or a dash; what is 0 when rounded has no sign."""
    if math.isnan(value):
        return "-"
    text = f"{value:.{digits}f}"
    return text if float(text) else text.lstrip("-")


def _interval(row: pd.Series[float], coefficient: str) -> str:
    low, high = float(row[f"{coefficient}_low"]), float(row[f"{coefficient}_high"])
    return "" if math.isnan(low) else f"[{_number(low)}, {_number(high)}]"


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def figure_list(entries: Sequence[FigureEntry]) -> list[dict[str, Any]]:
    """All figures as JSON data."""
    return [
        {"name": e.name, "numbers": list(e.numbers), "shows": e.shows, "needs": e.needs}
        for e in entries
    ]


def show_figure_list(entries: Sequence[FigureEntry], console: Console) -> None:
    """All figures, what they show and what they need."""
    table = _grid(9, 8, 34)
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
        table = _grid(9)
        for one in written:
            table.add_row(Text(one.entry.name), Text(", ".join(_folded(one.files))))
        console.print(Padding(table, (0, 0, 0, 2)))
    if skipped:
        console.print(Text("\nSkipped", style="bold"))
        table = _grid(9)
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
