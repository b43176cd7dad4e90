"""All figures and tables: what they are drawn from, which there are, and writing them to files.

A module brings a figure with the decorator `figure`. Packages make such modules known with

    [project.entry-points."memloc.figures"]
    my-figures = "my_package.figures"
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import entry_points
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from memloc import techniques
from memloc.errors import MemlocError, StoreError, nearest
from memloc.report.figures.looks import Look, model_looks, only, task_looks, technique_looks
from memloc.report.figures.panels import memloc_style, rendered
from memloc.results.folders import RunFolder, find_results
from memloc.results.grid import Grid, read_controls, read_grid, read_tables
from memloc.tables import ACCURACY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODULES = ("memloc.report.figures.results", "memloc.paper.figures", "memloc.paper.printed_tables")
"""What brings figures, by name: those of the paper are in a room above this one."""


class CannotDraw(Exception):
    """There is no data for a figure; the message says what is missing."""


@dataclass(frozen=True)
class Picture:
    """One figure.

    Attributes:
        suffix: Tells figures of one kind apart in file names; empty if there is one.
        figure: The drawing.
        caption: What it shows, and what error bars mean, in sentences.
    """

    suffix: str
    figure: Figure
    caption: str

    def files(self, formats: Sequence[str]) -> dict[str, bytes]:
        """Contents of files by their ending."""
        return {kind: rendered(self.figure, kind) for kind in formats}


@dataclass(frozen=True)
class PrintedTable:
    """One table, as text to be pasted into a paper."""

    latex: str
    markdown: str
    caption: str
    suffix: str = ""

    def files(self, formats: Sequence[str]) -> dict[str, bytes]:
        """Both, whatever formats pictures have."""
        return {"tex": self.latex.encode(), "md": self.markdown.encode()}


@dataclass(frozen=True)
class FigureData:
    """Results of which figures are made: runs that are compared, and tables of `memloc control`."""

    folder: Path
    grid: Grid | None
    control: Mapping[str, pd.DataFrame]

    @property
    def runs(self) -> dict[tuple[str, str], RunFolder]:
        """By task and model."""
        return {} if self.grid is None else self.grid.group.runs

    def need_runs(self) -> Grid:
        """The grid of runs.

        Raises:
            CannotDraw: If there are none.
        """
        if self.grid is None:
            raise CannotDraw("there are no results of `memloc run`")
        return self.grid

    def table(self, name: str, missing: str) -> pd.DataFrame:
        """A table of all runs that have it, with task, model and layers.

        A column `model` of the table itself (which state of the model) is called `state`.

        Raises:
            CannotDraw: With the words `missing`, if no run has such a table.
            ResultsError: If one is damaged.
        """
        self.need_runs()
        table = read_tables(self.runs, name)
        if table.empty:
            raise CannotDraw(missing)
        return table

    def per_model(
        self, table: pd.DataFrame, draw: Callable[[str, pd.DataFrame], tuple[Figure, str]]
    ) -> list[Picture]:
        """A picture of each model in the table, drawn with a caption from its rows."""
        return [
            Picture(model, *draw(model, table[table["model"] == model]))
            for model in only(self.models, table["model"])
        ]

    @property
    def _accuracy(self) -> pd.DataFrame:
        return self.control.get("accuracy", ACCURACY.frame([], "control"))

    @cached_property
    def depths(self) -> dict[str, int]:
        """Layers of each model, also of those of control experiments."""
        control = self._accuracy
        found = dict(zip(control["model"], control["n_layers"].tolist(), strict=True))
        return found | {model: run.n_layers for (_, model), run in self.runs.items()}

    @cached_property
    def models(self) -> dict[str, Look]:
        """Models of runs and of control experiments, in the order in which they are shown."""
        return model_looks(self.depths)

    @property
    def run_models(self) -> dict[str, Look]:
        """Models with runs."""
        return only(self.models, (model for _, model in self.runs))

    @cached_property
    def tasks(self) -> dict[str, Look]:
        """Tasks of runs and of control experiments, in the order in which they are shown."""
        names = {task for task, _ in self.runs}
        return task_looks(names.union(*(table["task"] for table in self.control.values())))

    @cached_property
    def techniques(self) -> dict[str, Look]:
        """Techniques of runs and of control experiments."""
        names = [] if self.grid is None else self.grid.techniques
        return technique_looks([*names, *self._accuracy["technique"].unique()])

    @property
    def same_depth(self) -> bool:
        """Whether all models with runs have as many layers, so that layers can be compared."""
        return len({self.depths[model] for model in self.run_models}) == 1

    def seeds_words(self, bars: str = "Error bars") -> str:
        """What error bars over seeds mean, if there are several seeds."""
        if self.grid is None or self.grid.runs["seeds"].max() < 2:
            return ""
        return f" {bars}: standard deviation over seeds."


def read_figure_data(
    folder: Path, group: int | None = None, mean_profile: bool = False
) -> FigureData:
    """Read what is needed to draw; tables of single examples are read when they are drawn.

    Raises:
        ResultsError: If there are no results, a file is damaged or was written by a newer memloc.
    """
    found = find_results(folder, "run", "control")
    trained = any(one.trained for one in found)
    grid = read_grid(folder, group, mean_profile) if trained else None
    return FigureData(folder, grid, read_controls(found))


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
    """All of them: those of the paper by number, then others, then tables."""
    from memloc.report.figures.results import draw_declared

    for module in (*MODULES, *(point.module for point in entry_points(group="memloc.figures"))):
        importlib.import_module(module)
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
    """What became of one figure: its files, without their folder, or why it was skipped."""

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
            for one in [drawn] if isinstance(drawn, PrintedTable) else drawn:
                suffix = re.sub(r"[^A-Za-z0-9._-]+", "-", one.suffix).strip("-.")
                plain = f"{entry.name}-{suffix}" if suffix else entry.name
                # Models `a b` and `a-b` have files of their own, also where case does not matter.
                stems = chain((plain,), (f"{plain}-{number}" for number in count(2)))
                stem = next(stem for stem in stems if stem.lower() not in taken)
                taken.add(stem.lower())
                files |= {f"{stem}.{end}": text for end, text in one.files(formats).items()}
                captions.append(f"**{stem}**: {one.caption}\n")
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
