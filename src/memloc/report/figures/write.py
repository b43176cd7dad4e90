"""From results to files: draws what can be drawn, and says what cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memloc.errors import StoreError
from memloc.report.figures.data import CannotDraw, FigureData, Picture, PrintedTable
from memloc.report.figures.registry import FigureEntry
from memloc.report.figures.style import memloc_style, rendered

CAPTIONS = "captions.md"


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
    done, captions = [], ["# Captions\n"]
    part = None if data.grid is None else data.grid.part
    if part:
        captions[0] += f"\nOf all runs: only the {part} of layers were looked at (--unit).\n"
    with memloc_style():
        for entry in entries:
            try:
                drawn = entry.draw(data)
            except CannotDraw as reason:
                done.append(Written(entry, (), str(reason)))
                continue
            files: dict[str, bytes] = {}
            if isinstance(drawn, PrintedTable):
                files |= {f"{entry.name}.tex": drawn.latex.encode()}
                files |= {f"{entry.name}.md": drawn.markdown.encode()}
                captions.append(f"**{entry.name}**: {drawn.caption}\n")
            else:
                for picture in drawn:
                    stem = _stem(entry, picture)
                    files |= {f"{stem}.{kind}": rendered(picture.figure, kind) for kind in formats}
                    captions.append(f"**{stem}**: {picture.caption}\n")
            _write(out, files)
            done.append(Written(entry, tuple(files)))
    if len(captions) > 1:
        _write(out, {CAPTIONS: "\n".join(captions).encode()})
    return done


def _stem(entry: FigureEntry, picture: Picture) -> str:
    return f"{entry.name}-{picture.suffix}" if picture.suffix else entry.name


def _write(out: Path, files: dict[str, bytes]) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (out / name).write_bytes(content)
    except OSError as error:
        raise StoreError(
            f"cannot write figures to {str(out)!r}: {error.strerror or error}; free some space or "
            "choose another folder with --out"
        ) from None
