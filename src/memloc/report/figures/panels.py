"""The style of all figures, and what they are made of: panels in rows, axes for layers, legends.

Files are the same byte for byte whenever they are written.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import Any, Literal, TypeVar

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from memloc.report.figures.looks import Look

SINGLE, DOUBLE = 3.25, 6.75
"""Widths of one and of two columns, in inches."""
TALLEST = 9.0
"""Height of a page's text, in inches."""
_METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"Creator": "memloc", "Producer": None, "CreationDate": None},
    "svg": {"Creator": "memloc", "Date": None},
    "png": {"Software": "memloc"},
}
"""Without dates, and without the version of matplotlib."""
LINE, LETTER = 0.14, 0.055
"""Height of a line of a legend, and width of a letter, in inches."""
SCALES = {"*": 1.7, "X": 1.2, "P": 1.2, "d": 1.2, "D": 0.85, "s": 0.9, "p": 1.15, "h": 1.1}
"""Markers of the same size look differently large."""

Key = TypeVar("Key")
Share = Literal["none", "all", "row", "col"]


@contextmanager
def memloc_style() -> Iterator[None]:
    """Draw in the style of memloc; afterwards all is as it was, whatever a user has set."""
    with as_file(files(__package__) / "memloc.mplstyle") as path, warnings.catch_warnings():
        # A task may be named in a script that the font lacks; boxes are shown then.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        with matplotlib.rc_context():
            matplotlib.style.use(["default", path])
            yield


def rendered(figure: Figure, kind: str) -> bytes:
    """The content of a file with this figure."""
    if figure.get_layout_engine() is not None:
        # Parts are placed once, so that they are at the same place in all files.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, metadata=_METADATA[kind])
    return stream.getvalue()


def panel_grid(
    layout: Sequence[Sequence[Key]],
    draw: Callable[[Axes, Key], None],
    height: float | None,
    *,
    title: Callable[[Key], str] = lambda _: "",
    x: str = "",
    y: Callable[[Key], str] = lambda _: "",
    legend: Sequence[Any] = (),
    width: float | None = None,
    sharex: Share = "all",
    sharey: Share = "all",
    width_ratios: Sequence[float] | None = None,
) -> tuple[Figure, list[Axes]]:
    """A figure of panels in rows, with a legend of all of them below.

    Args:
        layout: The keys of the panels, row by row; the last row may be shorter.
        draw: Draws the panel of a key.
        height: Of a row, in inches; None for square panels.
        title: Of the panel of a key; left out where the panel above has the same.
        x: Label of the axes across, at the lowest panels.
        y: Label of the axes up, by the first key of a row.
        legend: Its entries.
        width: Of the figure, in inches; by default one column for one or two panels.
        sharex: Which panels have the same numbers across.
        sharey: Which panels have the same numbers up.
        width_ratios: Of the panels of a row.

    Returns:
        The figure and its panels, row by row.
    """
    columns = max(map(len, layout))
    width = width or (SINGLE if columns <= 2 else DOUBLE)
    height = height or (width - 0.5) / columns + 0.25
    words = [str(entry.get_label()) for entry in legend]
    beside = max(1, int(width / (max(map(len, words), default=0) * LETTER + 0.42)))
    below = LINE * (math.ceil(len(words) / beside) + 0.5) if words else 0.0
    tall = min(TALLEST, len(layout) * height + below + 0.15)
    figure = Figure(figsize=(width, tall), layout="constrained")
    grid = figure.subplots(
        len(layout), columns, squeeze=False, sharex=sharex, sharey=sharey, width_ratios=width_ratios
    )
    longest = max(len(line) for row in layout for key in row for line in title(key).split("\n"))
    size = max(4.0, min(7.5, 115 * (width - 0.5) / columns / max(longest, 1)))
    for number, row in enumerate(layout):
        for unused in grid[number, len(row) :]:
            unused.remove()
        for column, key in enumerate(row):
            panel = grid[number, column]
            draw(panel, key)
            if not number or title(layout[number - 1][column]) != title(key):
                panel.set_title(title(key), fontsize=size, parse_math="$" in title(key))
            if column == 0 and y(key):
                letters = max(map(len, y(key).split("\n")))
                panel.set_ylabel(y(key), fontsize=min(7.0, 105 * tall / len(layout) / letters))
            if number + 1 == len(layout) or column >= len(layout[number + 1]):
                panel.tick_params(labelbottom=True)
                if x:
                    panel.set_xlabel(x)
    if legend:
        figure.legend(handles=legend, loc="outside lower center", ncols=min(beside, len(legend)))
    return figure, [grid[i, j] for i, row in enumerate(layout) for j in range(len(row))]


def in_rows(keys: Iterable[Key], most: int) -> list[list[Key]]:
    """Keys in rows of at most so many, as even as possible."""
    keys = list(keys)
    side_by_side = math.ceil(len(keys) / math.ceil(len(keys) / most))
    return [keys[start : start + side_by_side] for start in range(0, len(keys), side_by_side)]


def layer_ticks(n_layers: int, most: int = 6) -> list[int]:
    """The first layer, and further ones at even steps."""
    step = math.ceil(n_layers / most)
    return sorted({1, *range(step, n_layers + 1, step)})


def layer_axis(panel: Axes, n_layers: int, most: int = 6) -> None:
    """Layers 1..L from left to right."""
    panel.set_xticks(layer_ticks(n_layers, most))
    panel.set_xlim(1 - 0.03 * n_layers, n_layers + 0.03 * n_layers)


def name_ticks(panel: Axes, names: Sequence[str]) -> None:
    """Names below an axis, at 0, 1 and so on."""
    panel.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
    panel.set_xlim(-0.6, len(names) - 0.4)
    panel.grid(False, axis="x")


def handles(looks: Iterable[Look], line: bool) -> list[Line2D]:
    """Entries of a legend."""
    return [
        Line2D([], [], linestyle="-" if line else "", label=look.name, **marks(look, 4))
        for look in looks
    ]


def marks(look: Look, size: float = 3.4) -> dict[str, Any]:
    """Colour and marker; a thin white line keeps markers that overlap apart."""
    return {
        "color": look.colour,
        "marker": look.marker,
        "markersize": size * SCALES.get(look.marker, 1.0),
        "markeredgecolor": "white",
        "markeredgewidth": 0.3,
    }


def dot(
    panel: Axes, x: Any, y: Any, look: Look, across: Any = np.nan, up: Any = np.nan, size: float = 4
) -> None:
    """One marker, or several, with error bars across and up (NaN: without)."""
    bars = {"xerr": np.nan_to_num(across), "yerr": np.nan_to_num(up)}
    panel.errorbar(x, y, **bars, linestyle="", elinewidth=0.6, **marks(look, size))


def diagonal(panel: Axes, low: float, high: float) -> None:
    """The same range on both axes, and a line where both are equal."""
    panel.plot([low, high], [low, high], color="#BBBBBB", linewidth=0.6, zorder=1)
    panel.set(xlim=(low, high), ylim=(low, high), aspect="equal")


def draw_cells(panel: Axes, values: np.ndarray, first: float) -> Any:
    """Values between 0 and 1 as colours, [rows, columns]; grey where there is none.

    The cell of the first one is centred at `first` across and at 1 up.
    """
    panel.set_facecolor("#EEEEEE")
    across = np.arange(values.shape[1] + 1) + first - 0.5
    up = np.arange(values.shape[0] + 1) + 0.5
    cells = np.ma.masked_invalid(values)
    image = panel.pcolormesh(across, up, cells, cmap="YlGnBu", vmin=0, vmax=1)
    image.set(edgecolor="face", linewidth=0.1)  # no hairlines between cells in viewers of PDF files
    panel.grid(False)
    return image


def write_in(panel: Axes, words: str) -> None:
    """Words in the middle of a panel that has nothing to show."""
    style: dict[str, Any] = {"ha": "center", "va": "center", "color": "#555555"}
    panel.text(0.5, 0.5, words, transform=panel.transAxes, **style)


def colour_bar(figure: Figure, image: Any, panels: Iterable[Axes], words: str) -> None:
    """What colours mean, at the right."""
    bar = figure.colorbar(image, ax=list(panels), shrink=0.7, aspect=25, pad=0.015)
    bar.set_label(words)
    bar.outline.set_visible(False)
