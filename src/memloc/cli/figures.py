"""`memloc figures`: the paper's figures and tables from results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from memloc.cli.claims import Folder, GroupOption
from memloc.cli.options import Json, option
from memloc.cli.output import make_console, print_json
from memloc.errors import MemlocError, suggest


def figures_command(
    folder: Folder = Path("runs"),
    out: Annotated[Path, option("--out", "Folder for the files.")] = Path("figures"),
    formats: Annotated[str, option("--format", "Of figures: pdf, svg, png, or several.")] = "pdf",
    only: Annotated[
        str | None, option("--only", "Only these, such as fig3,fig7,table2 (default: all).")
    ] = None,
    group: GroupOption = None,
    listed: Annotated[bool, option("--list", "List all figures and what they need.")] = False,
    as_json: Json = False,
) -> None:
    """Draw the paper's figures and tables from whatever results there are.

    Figures whose data are missing are skipped, with the reason. Tables are written as LaTeX and
    Markdown; captions.md says what each figure shows.

    Only runs with the same settings are put together.
    """
    kinds = _parse_formats(formats)
    try:
        from memloc.report.figures.registry import FIGURES, choose_figures
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise MemlocError(
            "figures need matplotlib, which is not installed; install it with `pip install "
            "matplotlib`"
        ) from None
    from memloc.report.figures_view import figure_list, show_figure_list, show_written

    if listed:
        if as_json:
            print_json(figure_list(FIGURES))
        else:
            show_figure_list(FIGURES, make_console())
        return
    entries = choose_figures(_parse_only(only))
    from memloc.report.figures.data import read_figure_data
    from memloc.report.figures.write import write_figures
    from memloc.results.folder import check_folder

    check_folder(out)
    data = read_figure_data(folder, group)
    done = write_figures(data, entries, out, kinds)
    if as_json:
        notes: list[str] = [] if data.grid is None else list(data.grid.notes)
        found: list[dict[str, Any]] = [
            {"figure": one.entry.name, "files": list(one.files), "skipped": one.reason or None}
            for one in done
        ]
        print_json({"folder": str(folder), "out": str(out), "notes": notes, "figures": found})
    else:
        show_written(data, done, out, make_console())


def _parse_formats(text: str) -> tuple[str, ...]:
    known = ("pdf", "svg", "png")
    kinds = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    for kind in kinds:
        if kind not in known:
            raise MemlocError(f"--format {kind!r} is not possible{suggest(kind, known)}")
    if not kinds:
        raise MemlocError("--format is empty; give pdf, svg, png, or several, such as pdf,png")
    return kinds


def _parse_only(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise MemlocError("--only is empty; name at least one figure, such as fig3")
    return names
