"""Sizes, the style file, and files that are the same byte for byte whenever they are written."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files

import matplotlib
import matplotlib.style
from matplotlib.figure import Figure

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
