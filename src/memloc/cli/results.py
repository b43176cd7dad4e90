"""`memloc claims`, `agreement`, `figures`, `report` and `status`: what there is, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import Field

from memloc.cli.options import option
from memloc.cli.output import Json, Open, make_console, open_report, print_json
from memloc.config import Settings
from memloc.errors import MemlocError

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="Folder with the results of `memloc run` (its --runs), or of one run.",
    ),
]
GroupOption = Annotated[
    int | None,
    option("--group", "Which runs, if their settings differ (default: the largest group)."),
]
MeanProfile = Annotated[
    bool,
    option("--mean-profile", "M-CoG of the weights averaged over seeds, as the authors take it."),
]


ModelsOption = Annotated[
    str | None,
    option(
        "--models",
        "Only these, put together whatever their depth (default: all of the commonest depth).",
    ),
]


class Chosen(Settings):
    """A list that `memloc claims` and `memloc agreement` take as a text with commas."""

    models: tuple[str, ...] | None = Field(None, min_length=1)


class Drawing(Settings):
    """Lists that `memloc figures` takes as texts with commas."""

    format: tuple[Literal["pdf", "svg", "png"], ...] = Field(min_length=1)
    only: tuple[str, ...] | None = Field(None, min_length=1)


def claims_command(
    folder: Folder = Path("runs"),
    group: GroupOption = None,
    mean_profile: MeanProfile = False,
    models: ModelsOption = None,
    as_json: Json = False,
    markdown: Annotated[bool, option("--markdown", "Print the result as Markdown.")] = False,
) -> None:
    """Which claims of the paper hold in these runs? A scorecard.

    Every claim has a rule, and a verdict: `holds`, `does not hold`, or `not enough data`.

    Only runs with the same settings are put together.
    """
    if as_json and markdown:
        raise MemlocError("--json and --markdown exclude each other; give one of them")
    chosen = Chosen(models=models).models
    from memloc.paper.claims import check_claims
    from memloc.paper.measures import gather
    from memloc.paper.scorecard import scorecard_data, scorecard_markdown, show_scorecard
    from memloc.results.grid import read_grid

    evidence = gather(read_grid(folder, group, mean_profile), chosen)
    grid, findings = evidence.grid, check_claims(evidence)
    if as_json:
        print_json(scorecard_data(grid, findings))
    elif markdown:
        print(scorecard_markdown(grid, findings), end="")
    else:
        show_scorecard(grid, findings, make_console())


def agreement_command(
    folder: Folder = Path("runs"),
    group: GroupOption = None,
    mean_profile: MeanProfile = False,
    models: ModelsOption = None,
    as_json: Json = False,
) -> None:
    """Do techniques agree with each other, and models? Spearman's ρ and Pearson's r.

    On centres of gravity and on layer weights; also events, and what goes with generalisation.

    Only runs with the same settings are put together. Those with --binarise are compared with
    those of the same tasks without it.
    """
    from memloc.paper.binarised import binarised_data, compare_twins, show_binarised
    from memloc.report.many_runs import show_agreement

    chosen = Chosen(models=models).models
    from memloc.results.agreement import agreement_table, choose_models
    from memloc.results.grid import grid_data, read_grid, records

    found = read_grid(folder, group, mean_profile)
    together, grid = choose_models(found, chosen)
    table, binarised = agreement_table(found, chosen), compare_twins(together)
    if as_json:
        compared = {} if binarised is None else {"binarised": binarised_data(binarised)}
        print_json({**grid_data(grid), "agreement": records(table), **compared})
        return
    console = make_console()
    show_agreement(grid, table, console)
    if binarised is not None:
        show_binarised(binarised, console)


def figures_command(
    folder: Folder = Path("runs"),
    out: Annotated[Path, option("--out", "Folder for the files.")] = Path("figures"),
    formats: Annotated[str, option("--format", "Of figures: pdf, svg, png, or several.")] = "pdf",
    only: Annotated[
        str | None, option("--only", "Only these, such as fig3,fig7,table2 (default: all).")
    ] = None,
    group: GroupOption = None,
    mean_profile: MeanProfile = False,
    listed: Annotated[bool, option("--list", "List all figures and what they need.")] = False,
    as_json: Json = False,
) -> None:
    """Draw the paper's figures and tables from whatever results there are.

    Figures whose data are missing are skipped, with the reason. Tables are written as LaTeX and
    Markdown; captions.md says what each figure shows.

    Only runs with the same settings are put together.
    """
    wanted = Drawing(format=formats, only=only)
    from memloc.report.figures.registry import choose_figures, figures, write_figures
    from memloc.report.many_runs import figure_list, show_figure_list, show_written

    if listed:
        if as_json:
            print_json(figure_list(figures()))
        else:
            show_figure_list(figures(), make_console())
        return
    entries = choose_figures(wanted.only)
    from memloc.report.figures.registry import read_figure_data
    from memloc.results.folders import check_folder

    check_folder(out)
    data = read_figure_data(folder, group, mean_profile)
    done = write_figures(data, entries, out, wanted.format)
    if as_json:
        notes: list[str] = [] if data.grid is None else list(data.grid.notes)
        found: list[dict[str, Any]] = [
            {"figure": one.entry.name, "files": list(one.files), "skipped": one.reason or None}
            for one in done
        ]
        print_json({"folder": str(folder), "out": str(out), "notes": notes, "figures": found})
    else:
        show_written(data, done, out, make_console())


def report_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Results of `memloc run` or `memloc localise`, or a folder of such.",
        ),
    ] = Path("runs"),
    out: Annotated[
        Path | None,
        option("--out", "File to write (default: DIR/report.html).", show_default=False),
    ] = None,
    open_it: Open = False,
) -> None:
    """Write the results as one interactive HTML page that needs no network.

    Several runs in one folder also get a part that compares them.
    """
    from memloc.paper.scorecard import page_claims
    from memloc.report.page import write_report

    place = write_report(folder, out, page_claims)
    print(f"Report: {place}")
    if open_it:
        open_report(place)
    else:
        print("  open it in a browser, or let --open do so")


def status_command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The --runs folder, or runs/sweeps/NAME.")
    ] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Show how far sweeps and runs are: what is done, runs and failed, and the time left.

    Only reads files, so it works in another terminal, or on any machine that sees the folder.
    """
    from memloc.engine.views import find_status, read_status
    from memloc.report.progress_view import show_status

    found = [read_status(path) for path in find_status(folder)]
    if as_json:
        print_json({"status": found})
        return
    console = make_console()
    for one in found:
        show_status(one, console)
