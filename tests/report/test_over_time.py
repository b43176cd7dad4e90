"""Memorisation over training time: the sentences, the terminal, the page and its command."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from memloc.report.figures.registry import read_figure_data
from memloc.report.figures.results import draw_over_time
from memloc.report.page import page_data
from memloc.report.terminal import show_over_time
from memloc.results.summary import summarise_checkpoints
from tests.report.folders import write_full_run
from tests.report.over_time_folders import EPOCHS, add_checkpoints, examined, made_up, tables_of


def summary(found: list[Any], layers: int = 4) -> dict[str, Any]:
    made = summarise_checkpoints(tables_of(found), layers)
    assert made is not None
    return made


def test_the_words_say_when_memorisation_starts_and_how_far_it_moves() -> None:
    assert summary(made_up(seeds=(1,)))["words"] == [
        "Memorisation starts between epochs 2 and 4 of 6.",
        "By swapping, its centre of gravity is 4.00 at epoch 4 and 3.00 at the end: it moves down "
        "by 1.00 of 4 layers.",
        "By probing, its centre of gravity is 4.00 at epoch 4 and 3.00 at the end: it moves down "
        "by 1.00 of 4 layers.",
    ]


def test_seeds_that_start_at_other_epochs_are_told_apart() -> None:
    found = summary(made_up())
    assert [start["epoch"] for start in found["starts"]] == [4, 6]
    assert found["words"][0] == "Memorisation starts between epochs 2 and 6 of 6."
    never = [examined(3, epoch, 0.0) for epoch in EPOCHS]
    words = summary([*made_up(), *never])["words"]
    assert words[0] == "Memorisation starts between epochs 2 and 6 of 6 (in 2 of 3 seeds)."


def printed(found: dict[str, Any]) -> list[str]:
    stream = io.StringIO()
    show_over_time({"over_time": found}, Console(file=stream, width=80))
    return stream.getvalue().splitlines()


def test_the_terminal_has_a_line_per_checkpoint_within_80_columns() -> None:
    lines = printed(summary(made_up(seeds=(1,))))
    assert lines[1] == "When? Memorisation over training time"
    assert [line.split() for line in lines[4:]] == [
        ["2", "19%", "9%", "98%", "90%", "not", "yet", "not", "yet", "-"],
        ["4", "64%", "54%", "98%", "90%", "4.00", "4.00", "4"],
        ["6", "100%", "90%", "98%", "90%", "3.00", "3.00", "3"],
    ]
    many = [examined(1, epoch, 1.0) for epoch in range(1, 51)]
    lines = printed(summary(many))
    assert max(map(len, lines)) <= 80
    assert len(lines) == 4 + 12
    assert [line.split()[0] for line in lines[4:]][::11] == ["1", "50"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read only."""
    return add_checkpoints(write_full_run(tmp_path_factory.mktemp("runs"), seeds=(1, 2)))


def test_the_page_has_the_checkpoints_of_all_seeds_and_of_each(folder: Path) -> None:
    run = page_data(folder)["runs"][0]
    views = {view["key"]: view["over_time"] for view in run["views"]}
    assert views.keys() == {"all", "1", "2"}
    swapping, probing, centroids = views["1"]["techniques"]
    assert [one["technique"] for one in (swapping, probing, centroids)] == [
        *("swapping", "probing", "centroids")
    ]
    assert swapping["values"] == [[None] * 4, [0, 0, 0, 1], [0, 0, 1, 0]]
    assert swapping["centres"] == [None, 4, 3]
    assert centroids["values"][2] == [0.75, 0.5, 0.25, 0]
    assert centroids["centres"] == [None, 4, 3]
    # Of both seeds only the first has something to localise at epoch 4... and the mean is of it.
    assert views["2"]["techniques"][0]["centres"] == [None, None, 3]
    assert views["all"]["techniques"][0]["centres"] == [None, 4, 3]
    assert [one["seeds_with_enough"] for one in views["all"]["epochs"]] == [0, 1, 2]
    assert "--checkpoints 3" in run["made"]["command"]


def test_a_panel_without_weights_says_so(tmp_path: Path) -> None:
    """Nothing memorised at any checkpoint: an empty panel would look like a fault."""
    folder = add_checkpoints(write_full_run(tmp_path, seeds=(1, 2)))
    nothing = tables_of([examined(seed, epoch, 0.0) for seed in (1, 2) for epoch in EPOCHS])
    for name, table in nothing.items():
        table.to_parquet(folder / f"{name}.parquet", index=False)
    (picture,) = draw_over_time(read_figure_data(tmp_path))
    words = [[text.get_text() for text in panel.texts] for panel in picture.figure.axes]
    assert words == [
        ["not yet"],
        ["not yet"],
        [],
    ]  # positions of centroids are known from the start
