"""The style of all figures, and what they are made of: panels in rows, axes for layers, legends.

Files are the same byte for byte whenever they are written.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import Any

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
FORMATS = ("pdf", "svg", "png")
_METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"Creator": "memloc", "Producer": None, "CreationDate": None},
    "svg": {"Creator": "memloc", "Date": None},
    "png": {"Software": "memloc"},
}
"""Without dates, and without the version of matplotlib."""
LINE = 0.135
"""Height of a line of a legend, in inches."""
SCALES = {"*": 1.7, "X": 1.2, "P": 1.2, "d": 1.2, "D": 0.85, "s": 0.9, "p": 1.15, "h": 1.1}
"""Markers of the same size look differently large."""
LETTER = 0.052
"""Width of a letter of a legend, in inches."""


@contextmanager
def memloc_style() -> Iterator[None]:
    """Draw in the style of memloc; afterwards all is as it was, whatever a user has set."""
    with as_file(files(__package__) / "memloc.mplstyle") as path, warnings.catch_warnings():
        # A task may be named in a script that the font lacks; boxes are shown then.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        with matplotlib.rc_context():
            matplotlib.style.use(["default", path])
            yield


def new_figure(width: float, height: float) -> Figure:
    """A figure of exactly this size whose parts are placed so that nothing overlaps."""
    return Figure(figsize=(width, min(height, TALLEST)), layout="constrained")


def rendered(figure: Figure, kind: str) -> bytes:
    """The content of a file with this figure."""
    if figure.get_layout_engine() is not None:
        # Parts are placed once, so that they are at the same place in all files.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, metadata=_METADATA[kind])
    return stream.getvalue()


def panel_rows(
    count: int,
    most: int,
    height: float,
    legend: Sequence[str] = (),
    aspect: float | None = None,
    share: bool = True,
) -> tuple[Figure, list[Axes], int]:
    """As many panels as asked for, side by side and below each other.

    Args:
        count: Panels.
        most: Side by side in the width of two columns; half as many fit one column.
        height: Of a row, in inches.
        legend: What stands in the legend below the panels.
        aspect: If set, the height of a panel for its width, instead of `height`.
        share: Whether all panels have the same axes.

    Returns:
        The figure, its panels, and how many are side by side.
    """
    width = SINGLE if count <= math.ceil(most / 2) and count <= 2 else DOUBLE
    columns = min(count, most if width == DOUBLE else max(1, most // 2))
    rows = math.ceil(count / columns)
    if rows > 1:  # as even as possible
        columns = math.ceil(count / rows)
    if aspect is not None:
        height = (width - 0.5) / columns * aspect + 0.22
    if rows == 1 and count <= 2:
        height *= 1.2  # a panel that is alone may be larger
    figure = new_figure(width, rows * height + legend_height(legend, width) + 0.15)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share)
    panels = list(grid.flat)
    for unused in panels[count:]:
        unused.remove()
    if share:  # the lowest panel of a column has the numbers, also above a gap
        for place in range(count):
            if place + columns >= count:
                panels[place].tick_params(labelbottom=True)
    return figure, panels[:count], columns


def name_panel(panel: Axes, name: str, columns: int) -> None:
    """A title that is not wider than its panel."""
    figure = panel.get_figure(root=True)
    assert figure is not None
    inches = (figure.get_figwidth() - 0.5) / columns - 0.08
    panel.set_title(name, fontsize=fitting(name, inches, 7.5))


def slant(panel: Axes, names: Sequence[str], inches: float) -> None:
    """Names below an axis at 0, 1, …; at an angle if they would not fit side by side."""
    panel.set_xticks(range(len(names)), list(names))
    if max(len(name) for name in names) * 0.06 > inches / len(names):
        for label in panel.get_xticklabels():
            label.set(rotation=20, ha="right", rotation_mode="anchor")


def layer_ticks(n_layers: int, most: int = 6) -> list[int]:
    """Some layers: the first, the last, and round numbers between them."""
    even = [step for step in range(1, n_layers // 2 + 1) if n_layers % step == 0]
    for step in (*even, *range(2, n_layers)):
        ticks = sorted({1, *range(step, n_layers - step // 2, step), n_layers})
        if len(ticks) <= most:
            return ticks
    return sorted({1, n_layers})


def layer_axis(panel: Axes, n_layers: int, most: int = 6, label: bool = True) -> None:
    """Layers 1..L from left to right."""
    panel.set_xticks(layer_ticks(n_layers, most))
    panel.set_xlim(1 - 0.03 * n_layers, n_layers + 0.03 * n_layers)
    if label:
        panel.set_xlabel("layer")


def outer_labels(panels: Sequence[Axes], columns: int, x: str | None, y: str | None) -> None:
    """Labels of axes where they are not repeated: at the left and at the bottom."""
    for place, panel in enumerate(panels):
        if x is not None and place + columns >= len(panels):
            panel.set_xlabel(x)
        if y is not None and place % columns == 0:
            panel.set_ylabel(y)


def handles(looks: Mapping[str, Look], names: Mapping[str, str], line: bool) -> list[Line2D]:
    """Entries of a legend, in the order of `names`."""
    return [
        Line2D([], [], linestyle="-" if line else "", label=printed, **marks(looks[name], 4))
        for name, printed in names.items()
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


def fitting(text: str, inches: float, size: float = 7.0) -> float:
    """The size of letters with which a text is not longer than this."""
    return max(4.0, min(size, inches * 72 / (0.62 * max(len(text), 1))))


def legend_columns(labels: Iterable[str], width: float, handle: float = 0.38) -> int:
    """How many entries fit side by side."""
    widest = max((len(label) for label in labels), default=1) * LETTER + handle
    return max(1, int(width / widest))


def legend_height(labels: Sequence[str], width: float) -> float:
    """What a legend below the panels takes, in inches."""
    return (
        0.0 if not labels else (math.ceil(len(labels) / legend_columns(labels, width)) + 0.5) * LINE
    )


def legend_below(figure: Figure, entries: Sequence[Any]) -> None:
    """A legend of all panels below them."""
    figure.legend(loc="outside lower center", **in_rows(entries, figure.get_figwidth()))


def in_rows(entries: Sequence[Any], width: float) -> dict[str, Any]:
    """Entries of a legend of this width, as even as possible and read from left to right."""
    labels = [str(entry.get_label()) for entry in entries]
    columns = min(len(entries), legend_columns(labels, width))
    columns = math.ceil(len(entries) / math.ceil(len(entries) / columns))
    ordered = [entries[place] for place in _by_rows(len(entries), columns)]
    return {"handles": ordered, "ncols": columns}


def _by_rows(count: int, columns: int) -> list[int]:
    """The order in which matplotlib, which fills columns, is to be given entries to fill rows."""
    rows = math.ceil(count / columns)
    full = count - (rows - 1) * columns  # columns that have an entry in the last row
    return [
        row * columns + column
        for column in range(columns)
        for row in range(rows if column < full else rows - 1)
    ]


def mean_and_spread(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the first axis and standard deviation; NaN if there are fewer than two."""
    values = np.asarray(values, dtype=float)
    mean = values.mean(axis=0)
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(mean.shape, np.nan)
    return mean, spread


def letters(panels: Sequence[Axes], titles: Sequence[str]) -> None:
    """Titles with (a), (b), …, so that a caption can refer to panels."""
    for letter, panel, title in zip("abcdefghijkl", panels, titles, strict=False):
        panel.set_title(f"({letter}) {title}", loc="left", parse_math="$" in title)


def dot(
    panel: Axes,
    across: Any,
    up: Any,
    look: Look,
    size: float = 4,
    spread: tuple[Any, Any] = (None, None),
    bar: float = 0.5,
) -> None:
    """One marker, or several, with error bars across and up (None, or all NaN: without)."""
    bars = [None if _unknown(one) else np.nan_to_num(one) for one in spread]
    panel.errorbar(
        *(across, up), xerr=bars[0], yerr=bars[1], linestyle="", elinewidth=bar, **marks(look, size)
    )


def _unknown(spread: Any) -> bool:
    return spread is None or bool(np.isnan(spread).all())


def deviation(values: np.ndarray) -> float | None:
    """The standard deviation; None if there are fewer than two."""
    return float(values.std(ddof=1)) if len(values) > 1 else None


def diagonal(panel: Axes, low: float, high: float) -> None:
    """The same range on both axes, and a line where both are equal."""
    panel.plot([low, high], [low, high], color="#BBBBBB", linewidth=0.6, zorder=1)
    panel.set(xlim=(low, high), ylim=(low, high), aspect="equal")


def draw_cells(panel: Axes, values: np.ndarray, first: float) -> Any:
    """Values between 0 and 1 as colours, [rows, columns]; grey where there is none.

    Args:
        panel: Where to draw.
        values: Numbers; the cell of the first one is centred at `first` across and at 1 up.
        first: See `values`.
    """
    panel.set_facecolor("#EEEEEE")
    across = np.arange(values.shape[1] + 1) + first - 0.5
    up = np.arange(values.shape[0] + 1) + 0.5
    cells = np.ma.masked_invalid(values)
    image = panel.pcolormesh(across, up, cells, cmap="YlGnBu", vmin=0, vmax=1)
    image.set_edgecolor("face")  # no hairlines between cells in viewers of PDF files
    image.set_linewidth(0.1)
    panel.grid(False)
    for spine in panel.spines.values():
        spine.set_visible(True)
    return image


def colour_bar(figure: Figure, image: Any, panels: Iterable[Axes], words: str, **form: Any) -> None:
    """What colours mean, at the right."""
    bar = figure.colorbar(image, ax=list(panels), **form)
    bar.set_label(words)
    bar.outline.set_visible(False)
