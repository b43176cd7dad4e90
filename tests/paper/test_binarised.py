"""Tasks with all their classes against the same with two, in folders whose answers are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr, ttest_1samp

from memloc.analysis.correlation import RESAMPLES
from memloc.paper.binarised import Binarised, compare_twins
from memloc.results.grid import read_grid
from tests.oracles.correlation import bootstrap
from tests.result_folders import straight, write_run, write_twins

TASKS = ("sst5", "emotion", "implicithate", "trec", "reuters")


def crossing(*layers: int | None) -> dict[str, Any]:
    """What a run gets whose event is in these layers, one per seed."""
    return {"events": {"crossing": list(layers)}}


def compared(runs: Path, number: int | None = None) -> Binarised:
    found = compare_twins(read_grid(runs, number))
    assert found is not None
    return found


def row_of(found: Binarised, quantity: str) -> pd.Series:
    return found.comparison.set_index("quantity").loc[quantity]


def test_a_pair_is_a_row_per_quantity_and_seed_in_layers(tmp_path: Path) -> None:
    multi = {"weights": {"swapping": [straight(12, 0.45)]}}
    multi |= {"events": {"crossing": [7], "initiation": [3], "mem_gen": [5]}}
    binary = {"weights": {"swapping": [straight(12, 0.40)]}}
    binary |= {"events": {"crossing": [6], "initiation": [4], "mem_gen": [5]}}
    write_twins(tmp_path, "topics", "minilm", 12, multi, binary, seeds=(3,))
    found = compared(tmp_path)
    assert found.pairs.to_dict("list") == {
        "model": ["minilm"] * 3,
        "task": ["topics"] * 3,
        "layers": [12] * 3,
        "seed": [3] * 3,
        "quantity": ["m_cog", "crossing", "initiation"],
        "multi": pytest.approx([0.45 * 12 + 0.5, 7, 3]),
        "binary": pytest.approx([0.40 * 12 + 0.5, 6, 4]),
    }
    assert found.points["shift"].tolist() == pytest.approx([-0.6, -1, 1])
    assert found.comparison["absolute"].tolist() == pytest.approx([0.05, 1 / 12, 1 / 12])
    assert found.notes == ()


def models_and_tasks(runs: Path, depths: dict[str, int]) -> list[dict[str, Any]]:
    """Twins of all tasks in all models, with two seeds, and what is in them."""
    random = np.random.default_rng(7)
    written = []
    for model, layers in depths.items():
        for task in TASKS:
            multi, binary = random.integers(1, layers + 1, (2, 2)).tolist()
            write_twins(
                runs, task, model, layers, crossing(*multi), crossing(*binary), seeds=(1, 2)
            )
            written.append({"task": task, "layers": layers, "multi": multi, "binary": binary})
    return written


@pytest.mark.parametrize("depths", [{"one": 12, "two": 12}, {"one": 12, "two": 6, "three": 6}])
def test_correlation_and_shifts_are_those_computed_by_hand(
    tmp_path: Path, depths: dict[str, int]
) -> None:
    written = models_and_tasks(tmp_path, depths)
    tasks = [cell["task"] for cell in written]
    multi, binary, shifts, absolute = [], [], [], []
    for cell in written:
        layers = cell["layers"]
        multi.append((np.mean(cell["multi"]) - 0.5) / layers)
        binary.append((np.mean(cell["binary"]) - 0.5) / layers)
        differences = [b - m for m, b in zip(cell["multi"], cell["binary"], strict=True)]
        shifts.append(np.mean(differences) / layers)
        absolute.append(np.mean([abs(difference) for difference in differences]) / layers)
    row = row_of(compared(tmp_path), "crossing")
    assert (row["n"], row["units"], row["missing"]) == (len(written), len(TASKS), 0)
    assert row["spearman"] == pytest.approx(spearmanr(multi, binary).statistic)
    slow = bootstrap(np.array(multi), np.array(binary), tasks, RESAMPLES)["spearman"]
    assert row[["spearman_low", "spearman_high"]].tolist() == pytest.approx(slow, abs=1e-9)
    for name, values in (("shift", shifts), ("absolute", absolute)):
        assert row[name] == pytest.approx(np.mean(values))
        of_task = [np.mean([v for v, t in zip(values, tasks, strict=True) if t == one])
                   for one in TASKS]  # fmt: skip
        ends = ttest_1samp(of_task, 0).confidence_interval()
        assert row[[f"{name}_low", f"{name}_high"]].tolist() == pytest.approx(ends, abs=1e-9)


def test_an_absolute_shift_is_not_below_0(tmp_path: Path) -> None:
    for place in range(5):
        binary = crossing(11 if place == 0 else 4)
        write_twins(tmp_path, f"task{place}", layers=12, multi=crossing(4), binary=binary)
    row = row_of(compared(tmp_path), "crossing")
    assert row["shift_low"] < 0
    assert row["absolute_low"] == 0
    assert row["absolute_high"] == pytest.approx(row["shift_high"])


def test_only_seeds_that_both_runs_have_are_compared(tmp_path: Path) -> None:
    multi = {"seeds": (1, 2, 3), **crossing(5, 1, 6)}
    binary = {"seeds": (3, 1, 9), **crossing(4, 4, 12)}
    write_twins(tmp_path, layers=12, multi=multi, binary=binary)
    found = compared(tmp_path)
    rows = found.pairs[found.pairs["quantity"] == "crossing"]
    assert rows[["seed", "multi", "binary"]].to_numpy().tolist() == [[1, 5, 4], [3, 6, 4]]
    assert row_of(found, "crossing")["shift"] == pytest.approx(-1.5 / 12)
    assert found.notes == ()


def test_runs_without_a_common_seed_are_named_and_not_compared(tmp_path: Path) -> None:
    write_twins(tmp_path, "alike")
    write_twins(tmp_path, "topics", multi={"seeds": (1, 2)}, binary={"seeds": (3, 4)})
    found = compared(tmp_path)
    assert set(found.pairs["task"]) == {"alike"}
    assert found.notes == ("Not compared, as no seed is in both runs: topics minilm.",)


def test_an_event_that_never_happens_is_missing_and_never_a_number(tmp_path: Path) -> None:
    write_twins(tmp_path, "a", multi=crossing(4), binary=crossing(None))
    write_twins(tmp_path, "b", multi=crossing(None), binary=crossing(None))
    write_twins(tmp_path, "c", multi=crossing(4), binary=crossing(2))
    found = compared(tmp_path)
    rows = found.pairs[found.pairs["quantity"] == "crossing"].set_index("task")
    assert rows.loc["a", "multi"] == 4
    assert rows["binary"].isna().tolist() == [True, True, False]
    row = row_of(found, "crossing")
    assert (row["n"], row["units"], row["missing"], row["shift"]) == (1, 1, 2, -2 / 6)
    assert "initiation" not in set(found.comparison["quantity"])  # nobody looked for it


def test_a_seed_of_which_one_side_is_missing_counts_on_neither_side(tmp_path: Path) -> None:
    multi, binary = crossing(1, 6), crossing(None, 4)
    write_twins(tmp_path, multi=multi, binary=binary, seeds=(1, 2))
    found = compared(tmp_path)
    (point,) = found.points[found.points["quantity"] == "crossing"].to_dict("records")
    assert (point["multi"], point["binary"], point["shift"], point["absolute"]) == (6, 4, -2, 2)


def test_tasks_with_two_classes_anyway_are_no_pairs(tmp_path: Path) -> None:
    write_twins(tmp_path, "reviews", classes=2)
    assert compare_twins(read_grid(tmp_path)) is None
    write_twins(tmp_path, "topics", classes=3)
    assert set(compared(tmp_path).pairs["task"]) == {"topics"}
    assert compared(tmp_path).notes == ()


def test_tasks_that_have_only_one_of_both_are_named(tmp_path: Path) -> None:
    write_twins(tmp_path, "topics")
    write_run(tmp_path, "questions")
    write_run(tmp_path, "reviews", classes=2)  # has nothing to be cut to two
    write_run(tmp_path, "emotion", "another", settings={"data.binarise": True})
    found = compared(tmp_path)
    assert set(found.pairs["task"]) == {"topics"}
    assert found.notes == (
        "Only without binarising: questions minilm.",
        "Only with binarising: emotion another.",
    )
