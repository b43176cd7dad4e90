"""All figures and tables: which there are, choosing among them, and writing them to files.

A module brings a figure with the decorator `figure`. Packages make such modules known with

    [project.entry-points."memloc.figures"]
    my-figures = "my_package.figures"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from itertools import chain, count
from pathlib import Path

from memloc import techniques
from memloc.errors import MemlocError, StoreError, nearest
from memloc.report.figures.data import CannotDraw, FigureData, Picture, PrintedTable
from memloc.report.figures.panels import memloc_style, rendered

GROUP = "memloc.figures"
OWN_FIGURES = (
    EntryPoint("results", "memloc.report.figures.results", GROUP),
    EntryPoint("paper", "memloc.paper.figures", GROUP),
    EntryPoint("tables", "memloc.paper.printed_tables", GROUP),
)
"""Those that come with memloc, also where no metadata of it are installed."""

Drawn = Sequence[Picture] | PrintedTable
"""Several pictures, such as one per model, or one table."""
Draw = Callable[[FigureData], Drawn]


@dataclass(frozen=True)
class FigureEntry:
    """A figure or a table.

    Attributes:
        name: What it is called on the command line and in file names.
        numbers: Its numbers in the paper; empty if it is not in the paper.
        shows: What it shows, in one line.
        needs: Which results it is drawn from.
        draw: Makes it, or raises `CannotDraw` with the reason.
    """

    name: str
    numbers: tuple[str, ...]
    shows: str
    needs: str
    draw: Draw

    @property
    def is_table(self) -> bool:
        """Whether it is a table."""
        return self.name.startswith("table")

    @property
    def names(self) -> tuple[str, ...]:
        """All names on the command line: `fig16` is `fig3` of a deeper model."""
        if self.is_table:
            return (self.name,)
        return tuple(dict.fromkeys((self.name, *(f"fig{number}" for number in self.numbers))))


_ENTRIES: dict[str, FigureEntry] = {}


def figure(name: str, shows: str, needs: str, numbers: tuple[int, ...] = ()) -> Callable[..., Draw]:
    """Decorator of a function that draws a figure; the arguments are those of `FigureEntry`."""

    def add(draw: Draw) -> Draw:
        _ENTRIES[name] = FigureEntry(name, tuple(map(str, numbers)), shows, needs, draw)
        return draw

    return add


def figures() -> tuple[FigureEntry, ...]:
    """All of them: those of the paper by number, then others, then tables.

    Raises:
        MemlocError: If the figures of a package cannot be had.
    """
    from memloc.report.figures.results import draw_declared

    for point in (*OWN_FIGURES, *entry_points(group=GROUP)):
        try:
            point.load()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "matplotlib":
                raise
            raise MemlocError(
                f"the figures {point.name!r} of {point.value} need {error.name}"
            ) from None

    for technique in techniques.names():
        known = techniques.installed(technique)
        if known is not None and known.figure is not None:
            words = f"{known.figure.label} by layer", f"memloc run, {technique}"
            figure(technique, *words)(partial(draw_declared, technique, known.figure))

    def place(entry: FigureEntry) -> tuple[bool, int]:
        return entry.is_table, int(entry.numbers[0]) if entry.numbers else 1000

    return tuple(sorted(_ENTRIES.values(), key=place))


def choose_figures(names: Sequence[str] | None) -> tuple[FigureEntry, ...]:
    """The figures of these names, in the order of the paper; all if there are no names.

    Raises:
        MemlocError: If there is no figure of such a name.
    """
    everything = figures()
    if names is None:
        return everything
    known = {name: entry for entry in everything for name in entry.names}
    for name in names:
        if name.lower() not in known:
            all_of_them = f"choose one of: {', '.join(entry.name for entry in everything)}"
            remedy = nearest(name, known) or all_of_them
            raise MemlocError(f"there is no figure {name!r}", remedy=remedy)
    wanted = {known[name.lower()].name for name in names}
    return tuple(entry for entry in everything if entry.name in wanted)


@dataclass(frozen=True)
class Written:
    """What became of one figure.

    Attributes:
        entry: Which figure.
        files: Written, without their folder.
        reason: Why it was skipped; empty if it was not.
    """

    entry: FigureEntry
    files: tuple[str, ...]
    reason: str = ""


def write_figures(
    data: FigureData, entries: Sequence[FigureEntry], out: Path, formats: Sequence[str]
) -> list[Written]:
    """Draw the figures and write them to a folder, with a file of captions.

    Raises:
        StoreError: If the folder cannot be written.
        ResultsError: If a table is damaged.
    """
    done, captions = [], []
    with memloc_style():
        for entry in entries:
            try:
                drawn = entry.draw(data)
            except CannotDraw as reason:
                done.append(Written(entry, (), str(reason)))
                continue
            files: dict[str, bytes] = {}
            taken: set[str] = set()
            if isinstance(drawn, PrintedTable):
                files[f"{entry.name}.tex"] = drawn.latex.encode()
                files[f"{entry.name}.md"] = drawn.markdown.encode()
                captions.append(f"**{entry.name}**: {drawn.caption}\n")
                drawn = ()
            for picture in drawn:
                suffix = re.sub(r"[^A-Za-z0-9._-]+", "-", picture.suffix).strip("-.")
                plain = f"{entry.name}-{suffix}" if suffix else entry.name
                # Models `a b` and `a-b` have files of their own, also where case does not matter.
                stems = chain((plain,), (f"{plain}-{number}" for number in count(2)))
                stem = next(one for one in stems if one.lower() not in taken)
                taken.add(stem.lower())
                files |= {f"{stem}.{kind}": rendered(picture.figure, kind) for kind in formats}
                captions.append(f"**{stem}**: {picture.caption}\n")
            _write(out, files)
            done.append(Written(entry, tuple(files)))
    if captions:
        part = None if data.grid is None else data.grid.part
        about = f"Of all runs: only the {part} of layers were looked at.\n" if part else None
        lines = filter(None, ("# Captions\n", about, *captions))
        _write(out, {"captions.md": "\n".join(lines).encode()})
    return done


def _write(out: Path, files: dict[str, bytes]) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (out / name).write_bytes(content)
    except OSError as error:
        raise StoreError(
            f"cannot write figures to {str(out)!r}: {error.strerror or error}",
            remedy="free some space or choose another folder",
        ) from None
