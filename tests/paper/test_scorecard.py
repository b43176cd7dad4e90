"""The scorecard and the matrices as people read them: 80 columns, no colour needed, no false n."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import spearmanr

from memloc.paper.claims import CLAIMS, check_claims
from memloc.paper.scorecard import (
    scorecard_data,
    scorecard_markdown,
    show_scorecard,
    shown_value,
    summary_line,
)
from memloc.paper.verdicts import Claim, Finding, Measured, above
from memloc.report.many_runs import show_agreement, show_binarised
from memloc.results.agreement import agreement_table, binarised_data
from memloc.results.grid import Grid, grid_data, grid_title, read_grid, records
from tests.result_folders import compare_binarised, straight, write_run, write_twins

TASKS = ("one", "two", "three", "four", "five")


def console() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False)


def text(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def scorecard(grid: Grid) -> str:
    screen = console()
    show_scorecard(grid, check_claims(grid), screen)
    return text(screen)


def agreement(grid: Grid) -> str:
    screen = console()
    show_agreement(grid, agreement_table(grid), screen)
    return text(screen)


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    for model, layers in (("minilm", 6), ("a-model-with-a-rather-long-name", 12)):
        for place, task in enumerate(TASKS):
            weights = {
                "swapping": [straight(layers, 0.36 + 0.03 * place)],
                "retraining": [straight(layers, 0.40 + 0.02 * place)],
                "probing": [straight(layers, 0.60 - 0.02 * place)],
            }
            events = {"crossing": [place + 1], "mem_gen": [place + 1]}
            write_run(tmp_path, task, model, layers, weights=weights, events=events,
                      single_layer=0.05, clean_error=0.02, generalisation=place / 10)  # fmt: skip
    return read_grid(tmp_path)


def finding(value: float | None, style: str, interval: tuple[float, float] | None) -> Finding:
    claim = Claim("id", "s", "f", "x", "1", above(0, ""), lambda _: Measured(), format=style)  # type: ignore[arg-type]
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


def test_the_scorecard_has_every_claim_in_80_columns(grid: Grid) -> None:
    shown = scorecard(grid)
    assert max(map(len, shown.splitlines())) <= 80
    assert "10 runs: 5 tasks, 2 models, 3 techniques, 1 seed each" in shown
    words = " ".join(shown.split())
    assert words.count(" holds if ") == len(CLAIMS)
    for verdict in ("holds ", "does not hold ", "not enough data "):
        assert f"\n{verdict}" in shown
    # A correlation that is near the paper's, with its interval and its n.
    line = next(line for line in shown.splitlines() if "M-CoG: swapping and" in line)
    assert line.startswith("holds")
    assert line.split()[-4:] == ["1.00", "[1.00,", "1.00]", "10"]
    assert shown.rstrip().splitlines()[-1] == summary_line(check_claims(grid))


def test_the_last_line_counts_the_verdicts(grid: Grid) -> None:
    found = check_claims(grid)
    line = summary_line(found)
    assert line.startswith(f"Of {len(CLAIMS)} claims: ")
    assert [int(word) for word in line.replace(",", "").split() if word.isdecimal()][1:] == [
        sum(one.verdict == verdict for one in found)
        for verdict in ("holds", "does not hold", "not enough data")
    ]
    alone = [one for one in found if one.verdict == "holds"][:1]
    assert summary_line(alone) == "Of 1 claims: 1 holds, 0 do not, 0 without enough data."


def test_notes_on_the_choice_of_runs_come_first(grid: Grid, tmp_path: Path) -> None:
    write_run(tmp_path, "other", settings={"data.noise": 0.4})
    shown = " ".join(scorecard(read_grid(tmp_path)).split())
    assert "Note: Group 2 (1 run): data.noise is 0.4 instead of 0.15." in shown
    assert shown.index("Note:") < shown.index("Which layers?")


def test_markdown_has_one_row_per_claim_and_no_broken_cells(grid: Grid) -> None:
    page = scorecard_markdown(grid, check_claims(grid))
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    claims = [row for row in rows if not row.startswith(("| verdict", "| ---"))]
    assert len(claims) == len(CLAIMS)
    assert {row.count(" | ") for row in rows} == {6}
    assert "| holds | M-CoG: swapping and retraining | Fig. 8 | 0.97 | 1.00 [1.00, 1.00]" in page


def test_words_cannot_break_a_markdown_table(grid: Grid) -> None:
    claim = Claim("id", "s", "f", "p(a | b)\n<i>", "1", above(0, ""), lambda _: Measured())
    page = scorecard_markdown(grid, [Finding(claim, Measured(), "not enough data")])
    assert "p(a \\| b) &lt;i>" in page.splitlines()[-1]


def test_json_has_the_numbers_the_rule_and_which_runs(grid: Grid) -> None:
    data = json.loads(json.dumps(scorecard_data(grid, check_claims(grid)), allow_nan=False))
    assert sum(data["verdicts"].values()) == len(data["claims"]) == len(CLAIMS)
    claim = next(one for one in data["claims"] if one["id"] == "fig8-swapping-probing")
    assert claim["verdict"] == "does not hold"
    assert claim["value"] == pytest.approx(-1)
    assert (claim["low"], claim["high"]) == pytest.approx((-1, -1))
    assert (claim["n"], claim["paper"]) == (10, "0.55")
    assert claim["rule"] == "ρ >= 0.35, or 0.55 is in the interval"
    open_one = next(one for one in data["claims"] if one["id"] == "control-swapping")
    assert (open_one["value"], open_one["n"]) == (None, 0)
    assert len(data["runs"]) == 10
    assert data["runs"][0]["validation_score"] is None
    assert data["groups"][0]["differences"] == []


def test_matrices_show_both_coefficients_with_n_in_80_columns(grid: Grid) -> None:
    shown = agreement(grid)
    assert max(map(len, shown.splitlines())) <= 80
    first = shown.split("Do techniques agree? By M-CoG")[1].splitlines()
    swapping = next(line for line in first if line.startswith("  swapping"))
    assert swapping.split() == ["swapping", "·", "1.00", "n", "10", "-1.00", "n", "10"]
    assert "a-model-with-…" in shown
    assert "tasks × techniques × layers" in shown


def test_the_matrix_has_spearman_below_and_pearson_above_the_diagonal(tmp_path: Path) -> None:
    centres = [(0.36, 0.40), (0.37, 0.41), (0.38, 0.42), (0.39, 0.43), (0.60, 0.44)]
    for task, (one, other) in zip(TASKS, centres, strict=True):
        weights = {"swapping": [straight(6, one)], "retraining": [straight(6, other)]}
        write_run(tmp_path, task, weights=weights)
    table = agreement_table(read_grid(tmp_path))
    pearson = table.iloc[0]["pearson"]
    assert pearson < 0.9
    lines = agreement(read_grid(tmp_path)).splitlines()
    start = next(i for i, line in enumerate(lines) if "By M-CoG" in line)
    above, below = (
        next(line for line in lines[start:] if line.startswith(f"  {name} "))
        for name in ("swapping", "retraining")
    )
    assert f"{pearson:.2f} n 5" in above
    assert "1.00 n 5" in below


def test_what_is_left_within_models_stands_in_the_matrix_and_in_the_list(tmp_path: Path) -> None:
    for techniques in (("swapping", "gradients"), ("swapping", "gradients", *"vwxyz")):
        runs = tmp_path / str(len(techniques))
        for model, middle in (("early", 0.4), ("late", 0.6)):
            for place, task in enumerate(TASKS):
                step = 0.01 * place
                weights = {name: [straight(6, middle - step)] for name in techniques}
                weights["swapping"] = [straight(6, middle + step)]
                write_run(runs, task, model, weights=weights)
        shown = agreement(read_grid(runs))
        assert max(map(len, shown.splitlines())) <= 80
        assert "Within models: ρ of each model alone" in shown
        lines = shown[shown.index("By M-CoG") : shown.index("By layer weights")].splitlines()
        if len(techniques) == 2:
            assert any(line.split() == ["within", "-1.00"] for line in lines)
        else:
            assert lines[1].split()[:2] == ["within", "models"]
            pair = next(line for line in lines if line.startswith("  swapping ~ gradients"))
            assert pair.split()[3] == "-1.00"


def test_no_correlation_is_printed_for_three_runs(tmp_path: Path) -> None:
    for place, task in enumerate(TASKS[:3]):
        weights = {"swapping": [straight(6, 0.4 + place / 50)]}
        weights["retraining"] = weights["swapping"]
        write_run(tmp_path, task, weights=weights, events={"crossing": [place + 1]},
                  validation=place / 10)  # fmt: skip
    shown = agreement(read_grid(tmp_path))
    section = shown.split("By M-CoG")[1].split("By layer weights")[0]
    assert "- n 3" in section
    assert "1.00" not in section
    line = next(line for line in shown.splitlines() if "crossing ~ validation" in line)
    assert line.split() == ["crossing", "~", "validation", "score", "all", "models", "-", "-", "3"]


def test_many_models_become_a_list(tmp_path: Path) -> None:
    for model in range(7):
        for place, task in enumerate(TASKS):
            weights = {"swapping": [straight(6, 0.4 + place / 50)]}
            write_run(tmp_path, task, f"model-number-{model}", weights=weights)
    shown = agreement(read_grid(tmp_path))
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("model-number-0 ~ model-number-6") == 2


def test_one_model_or_one_technique_has_nobody_to_agree_with(tmp_path: Path) -> None:
    write_run(tmp_path, weights={"swapping": [straight(6, 0.4)]})
    shown = agreement(read_grid(tmp_path))
    assert "Do techniques agree?  (there is only one: swapping)" in shown
    assert "Do models agree?  (there is only one: minilm)" in shown


def test_the_title_counts_runs_tasks_models_and_seeds(tmp_path: Path) -> None:
    write_run(tmp_path, "one", seeds=(1,))
    assert grid_title(read_grid(tmp_path)) == "1 run: 1 task, 1 model, 4 techniques, 1 seed each"
    write_run(tmp_path, "two", seeds=(1, 2, 3))
    title = grid_title(read_grid(tmp_path))
    assert title == "2 runs: 2 tasks, 1 model, 4 techniques, 1 to 3 seeds each"


def test_data_of_the_grid_name_what_was_left_out(tmp_path: Path) -> None:
    write_run(tmp_path, "one", name="new", written=2e9)
    write_run(tmp_path, "one", name="old", written=1e9)
    data = grid_data(read_grid(tmp_path))
    assert data["groups"] == [{"group": 1, "runs": ["new"], "left_out": ["old"], "differences": []}]
    assert records(agreement_table(read_grid(tmp_path)))[0]["spearman"] is None


def two_classes(runs: Path) -> str:
    found = compare_binarised(runs)
    assert found is not None
    json.dumps(binarised_data(found), allow_nan=False)
    screen = console()
    show_binarised(found, screen)
    shown = text(screen)
    assert max(map(len, shown.splitlines())) <= 80
    return shown


def test_two_classes_are_shown_by_shares_of_the_depth_and_by_layers(tmp_path: Path) -> None:
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
    ends = ["-1.00", "[-1.00,", "-1.00]", "1.00", "[1.00,", "1.00]", "5"]
    assert lines[start + 1 : start + 3] == [["6", "layers", *ends], ["24", "layers", *ends]]
    assert ["initiation", "-", "-", "-", "0"] in lines
    assert "initiation: missing on one side of 10 pairs, left out" in two_classes(tmp_path)


def test_notes_on_the_pairs_are_shown_and_nothing_has_a_minus_that_is_zero(tmp_path: Path) -> None:
    write_twins(tmp_path, "one", multi={"weights": {"swapping": [straight(6, 0.4)]}},
                binary={"weights": {"swapping": [straight(6, 0.4 - 1e-6)]}})  # fmt: skip
    write_run(tmp_path, "two")
    shown = two_classes(tmp_path)
    assert "Note: Only without binarising: two minilm." in shown
    line = next(line for line in shown.splitlines() if line.startswith("  M-CoG"))
    assert line.split() == ["M-CoG", "-", "0.0%", "0.0%", "1"]


def test_pairs_without_anything_to_compare_are_said_to_be_so(tmp_path: Path) -> None:
    write_twins(tmp_path, weights={"retraining": [straight(6, 0.4)]})
    assert "Nothing to compare: needs swapping or the centroid analysis" in two_classes(tmp_path)
