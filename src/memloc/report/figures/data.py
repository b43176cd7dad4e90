"""What figures are drawn from: the runs of one group, control experiments, and their looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from memloc.report.figures.looks import Look, model_looks, only, task_looks, technique_looks
from memloc.results.folders import RunFolder, find_results
from memloc.results.grid import Grid, read_controls, read_grid, read_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


@dataclass(frozen=True)
class PrintedTable:
    """One table, as text to be pasted into a paper."""

    latex: str
    markdown: str
    caption: str


@dataclass(frozen=True)
class FigureData:
    """Results of which figures are made.

    Attributes:
        folder: Where they were found.
        grid: The runs that are compared; None if there are only control experiments.
        control: Tables of `memloc control`, by name; empty if there are none.
    """

    folder: Path
    grid: Grid | None
    control: Mapping[str, pd.DataFrame]
    _tables: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False)

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

    def table(self, name: str, columns: Sequence[str], missing: str) -> pd.DataFrame:
        """Columns of a table, of all runs that have it, with task, model and layers.

        A column `model` of the table itself (which state of the model) is called `state`.

        Raises:
            CannotDraw: With the words `missing`, if no run has such a table.
            ResultsError: If one is damaged.
        """
        self.need_runs()
        if name not in self._tables:
            self._tables[name] = read_tables(self.runs, name, columns)
        table = self._tables[name]
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

    @cached_property
    def depths(self) -> dict[str, int]:
        """Layers of each model, also of those of control experiments."""
        found: dict[str, int] = {model: run.n_layers for (_, model), run in self.runs.items()}
        if "accuracy" in self.control:
            of_control = self.control["accuracy"].groupby("model")["n_layers"].max()
            found = {str(model): int(n) for model, n in of_control.items()} | found
        return found

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
        if "accuracy" in self.control:
            names = [*names, *self.control["accuracy"]["technique"].unique()]
        return technique_looks(names)

    @property
    def same_depth(self) -> bool:
        """Whether all models with runs have as many layers, so that layers can be compared."""
        return len({self.depths[model] for model in self.run_models}) == 1

    def seeds_words(self, bars: str = "Error bars") -> str:
        """What error bars over seeds mean, if there are several seeds."""
        if self.grid is None or self.grid.runs["seeds"].max() < 2:
            return ""
        return f" {bars}: standard deviation over seeds."


def read_figure_data(folder: Path, group: int | None = None) -> FigureData:
    """Read what is needed to draw; tables of single examples are read when they are drawn.

    Args:
        folder: Results of `memloc run` and `memloc control`.
        group: Which group of comparable runs; by default the largest.

    Raises:
        ResultsError: If there are no results, a file is damaged or was written by a newer memloc.
    """
    found = find_results(folder, "run", "control")
    grid = read_grid(folder, group) if any(one.trained for one in found) else None
    return FigureData(folder, grid, read_controls(found))
