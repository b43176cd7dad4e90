"""The figures of one result, drawn as those of `memloc figures`; each is a matplotlib figure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from memloc.api.result import Result
from memloc.errors import MemlocError, nearest
from memloc.report.figures.panels import memloc_style, rendered
from memloc.report.figures.registry import (
    CannotDraw,
    Draw,
    FigureData,
    PrintedTable,
    choose_figures,
)
from memloc.report.figures.results import draw_centroids, draw_heat_maps, draw_profiles
from memloc.results.folders import RunFolder
from memloc.results.grid import Grid, read_controls
from memloc.results.groups import Group
from memloc.techniques.base import NO_OLD_CLASS


class Shown(Figure):
    """A figure that notebooks show without any magic."""

    def _repr_png_(self) -> bytes:
        with memloc_style():
            return rendered(self, "png")


@dataclass(frozen=True)
class Plots:
    """What can be drawn of a result."""

    result: Result

    def heatmap(self, technique: str | None = None) -> Shown:
        """Error by window size and layer (Figure 3), of one technique or of all with windows.

        Raises:
            MemlocError: If no technique changed windows of layers.
        """
        self.result.check_models("a heat map")
        found = self.result.summary["techniques"]
        changed = [name for name, values in found.items() if "error_by_size_and_layer" in values]
        return self._draw(draw_heat_maps, _chosen([technique] if technique else [], changed))

    def layers(self, *techniques: str) -> Shown:
        """Layer weights, each technique divided by its sum; bands: one deviation over seeds.

        Raises:
            MemlocError: If a technique has no result.
        """
        self.result.check_models("layer weights of one model")
        return self._draw(draw_profiles, _chosen(techniques, self.result.techniques))

    def centroids(self) -> Shown:
        """Noisy examples on their way from the old class to the new one (Figure 10).

        Raises:
            MemlocError: If they were not followed.
        """
        if "centroids" not in self.result.tables:
            left_out = (self.result.summary.get("explanation") or {}).get("left_out") or []
            left_out += [NO_OLD_CLASS] if self.result.suspected else []
            why = f", as {left_out[0]}" if left_out else "; compute again with explain=True"
            raise MemlocError(f"examples were not followed through the layers{why}")
        return self._draw(draw_centroids)

    def figure(self, name: str) -> Shown:
        """A figure of the paper by its name in `memloc figures`, such as 'fig5'.

        Raises:
            MemlocError: If there is none, or if it needs what this result does not have.
        """
        (entry,) = choose_figures([str(name)])
        return self._draw(entry.draw)

    def _draw(self, draw: Draw, techniques: Collection[str] | None = None) -> Shown:
        """Draw a figure of many runs of this one alone, perhaps of some techniques only."""
        with memloc_style():
            try:
                drawn = draw(_figure_data(self.result, techniques))
            except CannotDraw as reason:
                raise MemlocError(f"this cannot be drawn: {reason}") from None
        if isinstance(drawn, PrintedTable):
            raise MemlocError("this is a table; write it with `memloc figures`")
        figure = drawn[0].figure
        figure.__class__ = Shown
        assert isinstance(figure, Shown)
        return figure


def _chosen(names: Collection[str], known: Collection[str]) -> Collection[str]:
    for name in names:
        if name not in known:
            raise MemlocError(f"there is nothing to draw of {name!r}", remedy=nearest(name, known))
    return names or known


def _figure_data(result: Result, techniques: Collection[str] | None) -> FigureData:
    """A result as one that figures are drawn from; with given models, as a run of one seed."""
    folder = result.folder or Path("result")
    if result.of_control:
        of_control = RunFolder(
            folder, result.settings, result.summary, result.written, result.tables
        )
        return FigureData(folder, None, read_controls([of_control]))
    name = str(result.summary.get("task") or "data"), str(result.summary["model"])
    settings, tables, summary = result.settings, result.tables, result.summary
    if "memorised" in settings:
        settings = {"data": {"task": name[0]}, "seeds": [1]}
        tables = {key: table.assign(seed=1) for key, table in tables.items()}
    if techniques is not None:
        layers = tables["layers"]
        tables = {**tables, "layers": layers[layers["technique"].isin(list(techniques))]}
        found = {one: of_it for one, of_it in summary["techniques"].items() if one in techniques}
        summary = {**summary, "techniques": found}
    run = RunFolder(folder, settings, summary, result.written, tables)
    group = Group({name: run}, (), {})
    return FigureData(folder, Grid(folder, (run,), (group,), 1), {})
