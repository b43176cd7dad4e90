"""`memloc claims` and `memloc agreement`: what many runs say together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memloc.cli.options import Json, option
from memloc.cli.output import make_console, print_json
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


def claims_command(
    folder: Folder = Path("runs"),
    group: GroupOption = None,
    as_json: Json = False,
    markdown: Annotated[bool, option("--markdown", "Print the result as Markdown.")] = False,
) -> None:
    """Which claims of the paper hold in these runs? A scorecard.

    Every claim has a rule, and a verdict: `holds`, `does not hold`, or `not enough data`.

    Only runs with the same settings are put together.
    """
    if as_json and markdown:
        raise MemlocError("--json and --markdown exclude each other; give one of them")
    from memloc.paper.claims import check_claims
    from memloc.paper.scorecard import scorecard_data, scorecard_markdown, show_scorecard
    from memloc.results.grid import read_grid

    grid = read_grid(folder, group)
    findings = check_claims(grid)
    if as_json:
        print_json(scorecard_data(grid, findings))
    elif markdown:
        print(scorecard_markdown(grid, findings), end="")
    else:
        show_scorecard(grid, findings, make_console())


def agreement_command(
    folder: Folder = Path("runs"), group: GroupOption = None, as_json: Json = False
) -> None:
    """Do techniques agree with each other, and models? Spearman's ρ and Pearson's r.

    On centres of gravity and on layer weights; also events, and what goes with generalisation.

    Only runs with the same settings are put together. Those with --binarise are compared with
    those of the same tasks without it.
    """
    from memloc.report.agreement_view import show_agreement, show_binarised
    from memloc.results.binarised import compare_twins
    from memloc.results.grid import read_grid
    from memloc.results.grid_agreement import agreement_table
    from memloc.results.grid_words import binarised_data, grid_data, records

    grid = read_grid(folder, group)
    table, binarised = agreement_table(grid), compare_twins(grid.groups, grid.chosen)
    if as_json:
        compared = {} if binarised is None else {"binarised": binarised_data(binarised)}
        print_json({**grid_data(grid), "agreement": records(table), **compared})
        return
    console = make_console()
    show_agreement(grid, table, console)
    if binarised is not None:
        show_binarised(binarised, console)
