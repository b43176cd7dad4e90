"""The figures of one result, drawn as those of `memloc figures`; each is a matplotlib figure."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from memloc.api.result import NO_OLD_CLASS, Result
from memloc.errors import MemlocError, suggest
from memloc.report.figures.data import CannotDraw, PrintedTable, read_figure_data
from memloc.report.figures.looks import technique_looks
from memloc.report.figures.panels import (
    SINGLE,
    handles,
    layer_axis,
    legend_below,
    memloc_style,
    new_figure,
    outer_labels,
    panel_rows,
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

T = TypeVar("T")


@dataclass(frozen=True)
class Plots:
    """What can be drawn of a result."""

    result: Result

    def heatmap(self, technique: str | None = None) -> Figure:
        """Error by window size and layer (Figure 3), of one technique or of all with windows.

        Raises:
            MemlocError: If no technique changed windows of layers.
        """
        self.result._check_models("a heat map")
        found = {
            name: np.array(values["error_by_size_and_layer"], dtype=float)
            for name, values in self.result.summary["techniques"].items()
            if "error_by_size_and_layer" in values
        }
        if not found:
            raise MemlocError("there is no heat map, as no technique changed windows of layers")
        chosen = found if technique is None else {technique: _pick(found, technique)}
        with memloc_style():
            figure = new_figure(SINGLE * len(chosen), SINGLE * 0.85)
            panels = figure.subplots(1, len(chosen), squeeze=False)[0]
            for panel, (name, matrix) in zip(panels, chosen.items(), strict=True):
                image = draw_matrix(panel, matrix)
                panel.set(title=name, xlabel="layer")
            panels[0].set_ylabel("window size")
            bar = figure.colorbar(image, ax=list(panels), shrink=0.8, aspect=25, pad=0.02)
            bar.set_label("memorisation error (relative)")
            return _shown(figure)

    def layers(self, *techniques: str) -> Figure:
        """Layer weights, each technique divided by its sum; bands: one deviation over seeds.

        Raises:
            MemlocError: If a technique has no result.
        """
        self.result._check_models("layer weights of one model")
        weights = _with_seed(self.result.layers)
        total = weights.groupby(["technique", "seed"])["weight"].transform("sum")
        weights = weights.assign(weight=weights["weight"] / total.where(total > 0))
        known = {name: weights[weights["technique"] == name] for name in self.result.techniques}
        chosen = {name: _pick(known, name) for name in techniques or known}
        looks = technique_looks(known)
        with memloc_style():
            figure, panels, _ = panel_rows(1, 4, 1.6, list(chosen))
            n_layers = int(self.result.layers["layer"].max())
            for name, rows in chosen.items():
                draw_curve(panels[0], rows, "weight", curve_style(looks[name], n_layers))
            layer_axis(panels[0], n_layers)
            panels[0].set_ylim(bottom=0)
            panels[0].set_ylabel("share of weight")
            legend_below(figure, handles(looks, {name: name for name in chosen}, line=True))
            return _shown(figure)

    def centroids(self) -> Figure:
        """Noisy examples on their way from the old class to the new one (Figure 10).

        Raises:
            MemlocError: If they were not followed.
        """
        if "centroids" not in self.result.tables:
            raise MemlocError(f"examples were not followed through the layers{self._why()}")
        rows = self.result.table("centroids")
        events = self.result.table("events")
        with memloc_style():
            entries = way_legend(events=True)
            figure, panels, columns = panel_rows(
                1, 4, 1.6, [str(entry.get_label()) for entry in entries]
            )
            own = events[(events["model"] == "memorised") & events["layer"].notna()]
            when = own.groupby("event")["layer"].mean().astype(float).to_dict()
            draw_way(
                panels[0], rows[rows["model"] == "memorised"], {str(k): v for k, v in when.items()}
            )
            layer_axis(panels[0], int(rows["layer"].max()), label=False)
            way_limits(panels)
            outer_labels(panels, columns, "layer", "position")
            legend_below(figure, entries)
            return _shown(figure)

    def figure(self, name: str) -> Figure:
        """A figure of the paper by its name in `memloc figures`, such as 'fig5'.

        They are of runs, not of models that were given.

        Raises:
            MemlocError: If there is none, or if it needs what this result does not have.
        """
        (entry,) = choose_figures([str(name)])
        if isinstance(self.result.settings.get("data"), str):
            raise MemlocError(
                f"{name!r} compares runs, and here models were given; use heatmap(), layers() or "
                "centroids()"
            )
        with memloc_style(), self._folder() as folder:
            try:
                drawn = entry.draw(read_figure_data(folder))
            except CannotDraw as reason:
                raise MemlocError(f"{name!r} cannot be drawn: {reason}") from None
            if isinstance(drawn, PrintedTable):
                raise MemlocError(f"{name!r} is a table; write it with `memloc figures`")
            return _shown(drawn[0].figure)

    def _why(self) -> str:
        """Why there are no centroids, or how to get them."""
        if self.result.suspected:
            return f", as {NO_OLD_CLASS}"
        left_out = (self.result.summary.get("explanation") or {}).get("left_out")
        return f", as {left_out[0]}" if left_out else "; compute again with explain=True"

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as aside:
            yield self.result.save(Path(aside) / "result")


def _pick(found: dict[str, T], name: str) -> T:
    if name not in found:
        raise MemlocError(f"there is nothing to draw of {name!r}{suggest(name, found)}")
    return found[name]


def _with_seed(table: pd.DataFrame) -> pd.DataFrame:
    return table if "seed" in table.columns else table.assign(seed=0)


class _Shown(Figure):
    """A figure that notebooks show without any magic."""

    def _repr_png_(self) -> bytes:
        with memloc_style():
            return rendered(self, "png")


def _shown(figure: Figure) -> Figure:
    figure.__class__ = _Shown
    return figure
