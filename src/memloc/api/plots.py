"""The figures of one result, drawn as those of `memloc figures`; each is a matplotlib figure."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from memloc.api.result import Result
from memloc.errors import MemlocError, nearest
from memloc.report.figures.data import CannotDraw, PrintedTable, read_figure_data
from memloc.report.figures.looks import technique_looks
from memloc.report.figures.panels import (
    SINGLE,
    colour_bar,
    handles,
    layer_axis,
    memloc_style,
    panel_grid,
    rendered,
)
from memloc.report.figures.registry import choose_figures
from memloc.report.figures.results import (
    curve_style,
    draw_curve,
    draw_matrix,
    draw_way,
    way_legend,
    way_limits,
)
from memloc.techniques.base import NO_OLD_CLASS

T = TypeVar("T")


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
        found = {
            name: np.array(values["error_by_size_and_layer"], dtype=float)
            for name, values in self.result.summary["techniques"].items()
            if "error_by_size_and_layer" in values
        }
        if not found:
            raise MemlocError("there is no heat map, as no technique changed windows of layers")
        chosen = found if technique is None else {technique: _pick(found, technique)}
        with memloc_style():
            images = []
            figure, panels = panel_grid(
                [list(chosen)],
                lambda panel, name: images.append(draw_matrix(panel, chosen[name])),
                SINGLE * 0.85,
                title=str,
                x="layer",
                y=lambda _: "window size",
                width=SINGLE * len(chosen),
            )
            colour_bar(figure, images[-1], panels, "memorisation error (relative)")
            return _shown(figure)

    def layers(self, *techniques: str) -> Shown:
        """Layer weights, each technique divided by its sum; bands: one deviation over seeds.

        Raises:
            MemlocError: If a technique has no result.
        """
        self.result.check_models("layer weights of one model")
        weights = self.result.layers
        if "seed" not in weights.columns:
            weights = weights.assign(seed=0)
        total = weights.groupby(["technique", "seed"])["weight"].transform("sum")
        weights = weights.assign(weight=weights["weight"] / total.where(total > 0))
        known = {name: weights[weights["technique"] == name] for name in self.result.techniques}
        chosen = {name: _pick(known, name) for name in techniques or known}
        looks, n_layers = technique_looks(known), int(weights["layer"].max())
        with memloc_style():

            def draw(panel: Axes, _: str) -> None:
                for name, rows in chosen.items():
                    draw_curve(panel, rows, "weight", curve_style(looks[name], n_layers))
                layer_axis(panel, n_layers)
                panel.set_ylim(bottom=0)

            legend = handles((looks[name] for name in chosen), line=True)
            y = "share of weight"
            figure, _ = panel_grid([[y]], draw, 1.9, x="layer", y=str, legend=legend)
            return _shown(figure)

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
        rows, events = self.result.table("centroids"), self.result.table("events")
        with memloc_style():
            own = events[(events["model"] == "memorised") & events["layer"].notna()]
            means = own.groupby("event")["layer"].mean()
            when = {str(event): float(layer) for event, layer in means.items()}

            def draw(panel: Axes, _: str) -> None:
                draw_way(panel, rows[rows["model"] == "memorised"], when)
                layer_axis(panel, int(rows["layer"].max()))

            legend = way_legend(events=True)
            figure, panels = panel_grid([["position"]], draw, 1.9, x="layer", y=str, legend=legend)
            way_limits(panels)
            return _shown(figure)

    def figure(self, name: str) -> Shown:
        """A figure of the paper by its name in `memloc figures`, such as 'fig5'.

        They are of runs, not of models that were given.

        Raises:
            MemlocError: If there is none, or if it needs what this result does not have.
        """
        (entry,) = choose_figures([str(name)])
        if "memorised" in self.result.settings:
            raise MemlocError(
                f"{name!r} compares runs, and here models were given; use heatmap(), layers() or "
                "centroids()"
            )
        with memloc_style(), tempfile.TemporaryDirectory() as aside:
            try:
                drawn = entry.draw(read_figure_data(self.result.save(Path(aside) / "result")))
            except CannotDraw as reason:
                raise MemlocError(f"{name!r} cannot be drawn: {reason}") from None
            if isinstance(drawn, PrintedTable):
                raise MemlocError(f"{name!r} is a table; write it with `memloc figures`")
            return _shown(drawn[0].figure)


def _pick(found: dict[str, T], name: str) -> T:
    if name not in found:
        raise MemlocError(f"there is nothing to draw of {name!r}", remedy=nearest(name, found))
    return found[name]


def _shown(figure: Figure) -> Shown:
    figure.__class__ = Shown
    assert isinstance(figure, Shown)
    return figure
