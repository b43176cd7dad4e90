"""The scorecard and the matrices as people read them: 80 columns, no colour needed, no false n."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import spearmanr

from memloc.paper.binarised import binarised_data, compare_twins, show_binarised
from memloc.paper.claims import CLAIMS, Claim, Finding, check_claims
from memloc.paper.measures import Measured, gather
from memloc.paper.scorecard import (
    scorecard_data,
    scorecard_markdown,
    show_scorecard,
    shown_value,
    summary_line,
)
from memloc.report.many_runs import show_agreement
from memloc.results.agreement import agreement_table
from memloc.results.grid import Grid, read_grid
from tests.result_folders import straight, write_run, write_twins

TASKS = ("one", "two", "three", "four", "five")


def console() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False)


def text(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def scorecard(grid: Grid, found: list[Finding]) -> str:
    screen = console()
    show_scorecard(grid, found, screen)
    return text(screen)


def agreement(grid: Grid) -> str:
    screen = console()
    show_agreement(grid, agreement_table(grid), screen)
    return text(screen)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    for model, layers in (("minilm", 6), ("a-model-with-a-rather-long-name", 6)):
        for place, task in enumerate((*TASKS, "six", "seven")):
            weights = {
                "swapping": [straight(layers, 0.36 + 0.02 * place)],
                "retraining": [straight(layers, 0.40 + 0.02 * place)],
                "probing": [straight(layers, 0.60 - 0.02 * place)],
            }
            events = {"crossing": [place + 1], "mem_gen": [place + 1]}
            write_run(runs, task, model, layers, weights=weights, events=events,
                      single_layer=0.05, clean_error=0.02, generalisation=place / 10)  # fmt: skip
    return runs


@pytest.fixture(scope="module")
def grid(folder: Path) -> Grid:
    return read_grid(folder)


@pytest.fixture(scope="module")
def found(grid: Grid) -> list[Finding]:
    return check_claims(gather(grid))


def finding(value: float | None, style: str, interval: tuple[float, float] | None) -> Finding:
    claim = Claim("id", "s", "f", "x", "1", "m", "above", "", format=style)  # type: ignore[arg-type]
    return Finding(claim, Measured(value, 9, 9, interval=interval), "holds")


@pytest.mark.parametrize(
    ("value", "style", "interval", "shown"),
    [
        (0.854, "number", (-0.2, 1), "0.85 [-0.20, 1.00]"),
        (-0.001, "number", None, "0.00"),
        (0.875, "percent", (0.5, 1), "88% [50%, 100%]"),
        (0.0031, "small", None, "0.0031"),
        (1.25, "hours", (1, 2), "1.2 h [1.0, 2.0]"),
        (None, "number", None, "-"),
    ],
)
def test_values_are_shown_with_their_interval(
    value: float | None, style: str, interval: tuple[float, float] | None, shown: str
) -> None:
    assert shown_value(finding(value, style, interval)) == shown


def test_the_scorecard_has_every_claim_in_80_columns(grid: Grid, found: list[Finding]) -> None:
    shown = scorecard(grid, found)
    assert max(map(len, shown.splitlines())) <= 80
    assert "14 runs: 7 tasks, 2 models, 3 techniques, 1 seed each" in shown
    words = " ".join(shown.split())
    assert words.count(" holds if ") == len(CLAIMS)
    for verdict in ("holds ", "does not hold ", "not enough data "):
        assert f"\n{verdict}" in shown
    # A correlation that is near the paper's, with its interval and its n.
    line = next(line for line in shown.splitlines() if "M-CoG: swapping and" in line)
    assert line.startswith("holds")
    assert line.split()[-4:] == ["1.00", "[1.00,", "1.00]", "14"]
    assert words.endswith(summary_line(found))
    assert "at 5% each" in words


def test_notes_on_the_choice_of_runs_come_first(tmp_path: Path) -> None:
    write_run(tmp_path, "one")
    write_run(tmp_path, "two")
    write_run(tmp_path, "other", settings={"data.noise": 0.4})
    shown = " ".join(scorecard(read_grid(tmp_path), []).split())
    assert "Note: Group 2 (1 run): data.noise is 0.4 instead of 0.15." in shown
    assert shown.index("Note:") < shown.index("Of 0 claims")


def test_markdown_has_one_row_per_claim_and_no_broken_cells(
    grid: Grid, found: list[Finding]
) -> None:
    page = scorecard_markdown(grid, found)
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    claims = [row for row in rows if not row.startswith(("| verdict", "| ---"))]
    assert len(claims) == len(CLAIMS)
    assert {row.count(" | ") for row in rows} == {6}
    assert "| holds | M-CoG: swapping and retraining | Fig. 8 | 0.97 | 1.00 [1.00, 1.00]" in page


def test_json_has_the_numbers_the_rule_and_which_runs(grid: Grid, found: list[Finding]) -> None:
    data = json.loads(json.dumps(scorecard_data(grid, found), allow_nan=False))
    assert sum(data["verdicts"].values()) == len(data["claims"]) == len(CLAIMS)
    claim = next(one for one in data["claims"] if one["id"] == "fig8-swapping-probing")
    assert claim["verdict"] == "does not hold"
    assert claim["value"] == pytest.approx(-1)
    assert (claim["low"], claim["high"]) == pytest.approx((-1, -1))
    assert (claim["n"], claim["tasks"], claim["paper"]) == (14, 7, "0.55")
    assert claim["rule"] == "the interval is above 0, and reaches 0.55 or ρ >= 0.35"
    open_one = next(one for one in data["claims"] if one["id"] == "control-swapping")
    assert (open_one["value"], open_one["n"]) == (None, 0)
    assert len(data["runs"]) == 14
    decided = len(CLAIMS) - data["verdicts"]["not enough data"]
    assert data["false_by_chance"] == pytest.approx(0.05 * decided)
    assert data["runs"][0]["validation_original_uniform"] is None
    assert data["groups"][0]["differences"] == []


def test_matrices_show_both_coefficients_with_n_in_80_columns(grid: Grid) -> None:
    shown = agreement(grid)
    assert max(map(len, shown.splitlines())) <= 80
    first = shown.split("Do techniques agree? By M-CoG")[1].splitlines()
    swapping = next(line for line in first if line.startswith("  swapping"))
    assert swapping.split()[:4] == ["swapping", "~", "retraining", "1.00"]
    assert "a-model-with-a-rather-long-name ~ minilm" in shown
    assert "n: tasks × layers" in shown


def test_no_correlation_is_printed_for_three_runs(tmp_path: Path) -> None:
    for place, task in enumerate(TASKS[:3]):
        weights = {"swapping": [straight(6, 0.4 + place / 50)]}
        weights["retraining"] = weights["swapping"]
        write_run(tmp_path, task, weights=weights, events={"crossing": [place + 1]},
                  validation=place / 10)  # fmt: skip
    shown = agreement(read_grid(tmp_path))
    section = shown.split("By M-CoG")[1].split("By layer weights")[0]
    assert "all models - - 3" in section
    assert "1.00" not in section
    line = next(line for line in shown.splitlines() if "crossing ~ validation" in line)
    assert line.split() == ["crossing", "~", "validation", "score", "all", "models", "-", "-", "3"]


def two_classes(runs: Path) -> str:
    found = compare_twins(read_grid(runs))
    assert found is not None
    json.dumps(binarised_data(found), allow_nan=False)
    screen = console()
    show_binarised(found, screen)
    shown = text(screen)
    assert max(map(len, shown.splitlines())) <= 80
    return shown


def test_two_classes_are_shown_by_shares_of_the_depth(tmp_path: Path) -> None:
    for model, layers in (("a", 6), ("b", 24)):
        for place, task in enumerate(TASKS):
            multi = {"events": {"crossing": [place + 2], "initiation": [None]}}
            binary = {"events": {"crossing": [place + 1], "initiation": [3]}}
            write_twins(tmp_path, task, model, layers, multi, binary)
    lines = [line.split() for line in two_classes(tmp_path).splitlines()]
    start = next(place for place, words in enumerate(lines) if words[:1] == ["crossing"])
    depths = np.array([[(place + side - 0.5) / layers for layers in (6, 24) for place in range(5)]
                       for side in (2, 1)])  # fmt: skip
    assert lines[start][1] == f"{spearmanr(*depths).statistic:.2f}"
    assert lines[start][-7:] == ["-10.4%", "[-10.4,", "-10.4]", "10.4%", "[10.4,", "10.4]", "10"]
    assert ["initiation", "-", "-", "-", "0"] in lines
    assert "initiation: missing on one side of 10 pairs, left out" in two_classes(tmp_path)
