"""Tasks with all their classes against the same with two, in folders whose answers are known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from memloc.analysis.correlation import RESAMPLES
from memloc.results.agreement import Binarised
from memloc.results.folders import ResultsError
from tests.oracles.correlation import bootstrap, bootstrap_mean
from tests.result_folders import compare_binarised, straight, write_run, write_twins

TASKS = ("sst5", "emotion", "implicithate", "trec", "reuters")


def crossing(*layers: int | None) -> dict[str, Any]:
    """What a run gets whose event is in these layers, one per seed."""
    return {"events": {"crossing": list(layers)}}


def compared(runs: Path, number: int | None = None) -> Binarised:
    found = compare_binarised(runs, number)
    assert found is not None
    return found


def row_of(found: Binarised, quantity: str, scope: str = "all models") -> pd.Series:
    table = found.comparison
    (row,) = [row for _, row in table.iterrows() if (row.quantity, row.scope) == (quantity, scope)]
    return row


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
    assert found.comparison["shift"].tolist() == pytest.approx([-0.6, -1, 1])
    assert found.comparison["depth_absolute"].tolist() == pytest.approx([0.05, 1 / 12, 1 / 12])
    assert found.notes == ()


def test_other_techniques_have_no_part_in_it(tmp_path: Path) -> None:
    one, other = ({"retraining": [straight(6, c)]} for c in (0.4, 0.5))
    write_twins(tmp_path, multi={"weights": one}, binary={"weights": other})
    found = compared(tmp_path)  # there is a pair, but nothing to compare it by
    assert found.pairs.empty
    assert found.comparison.empty
    assert "spearman_low" in found.comparison


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
    assert (row["n"], row["tasks"], row["missing"]) == (len(written), len(TASKS), 0)
    assert row["spearman"] == pytest.approx(spearmanr(multi, binary).statistic)
    slow = bootstrap(np.array(multi), np.array(binary), tasks, RESAMPLES)["spearman"]
    assert row[["spearman_low", "spearman_high"]].tolist() == pytest.approx(slow, abs=1e-9)
    for name, values in (("depth_shift", shifts), ("depth_absolute", absolute)):
        assert row[name] == pytest.approx(np.mean(values))
        ends = bootstrap_mean(np.array(values), tasks, RESAMPLES)
        assert row[[f"{name}_low", f"{name}_high"]].tolist() == pytest.approx(ends, abs=1e-9)


def test_models_of_one_depth_are_also_compared_in_layers(tmp_path: Path) -> None:
    models_and_tasks(tmp_path, {"one": 12, "two": 12})
    (row,) = (
        row for _, row in compared(tmp_path).comparison.iterrows() if row["quantity"] != "m_cog"
    )
    assert row["layers"] == 12
    for name in ("shift", "absolute"):
        for end in ("", "_low", "_high"):
            assert row[f"{name}{end}"] == pytest.approx(12 * row[f"depth_{name}{end}"])


def test_models_of_different_depth_are_put_together_by_relative_depth_alone(tmp_path: Path) -> None:
    for task in TASKS:
        write_twins(tmp_path, task, "six", 6, crossing(4), crossing(3))
        write_twins(tmp_path, task, "twelve", 12, crossing(8), crossing(5))
    found = compared(tmp_path)
    together = row_of(found, "crossing")
    assert together["depth_shift"] == pytest.approx(-(1 / 6 + 3 / 12) / 2)
    assert together[["shift", "shift_low", "absolute", "absolute_high"]].isna().all()
    assert pd.isna(together["layers"])
    for scope, layers, shift in (("6 layers", 6, -1), ("12 layers", 12, -3)):
        row = row_of(found, "crossing", scope)
        assert (row["layers"], row["n"], row["shift"]) == (layers, 5, shift)
        assert (row["shift_low"], row["absolute_high"]) == (shift, -shift)


def test_the_same_place_in_models_of_other_depth_is_the_same_rank(tmp_path: Path) -> None:
    # Layer 2 of 6 is deeper than layer 3 of 12, with all classes; with two, 3 of 6 than 2 of 12.
    for model, layers, multi, binary in (
        *(("six", 6, 5, 6), ("six-too", 6, 2, 3)),
        *(("twelve", 12, 3, 2), ("twelve-too", 12, 7, 8)),
    ):
        write_twins(tmp_path, "topics", model, layers, crossing(multi), crossing(binary))
    row = row_of(compared(tmp_path), "crossing")
    assert row["spearman"] == pytest.approx(1)
    assert math.isnan(row["spearman_low"])  # one task alone has no interval


def test_only_seeds_that_both_runs_have_are_compared(tmp_path: Path) -> None:
    multi = {"seeds": (1, 2, 3), **crossing(5, 1, 6)}
    binary = {"seeds": (3, 1, 9), **crossing(4, 4, 12)}
    write_twins(tmp_path, layers=12, multi=multi, binary=binary)
    found = compared(tmp_path)
    rows = found.pairs[found.pairs["quantity"] == "crossing"]
    assert rows[["seed", "multi", "binary"]].to_numpy().tolist() == [[1, 5, 4], [3, 6, 4]]
    assert row_of(found, "crossing")["shift"] == pytest.approx(-1.5)
    assert found.notes == ()


def test_runs_without_a_common_seed_are_compared_by_their_means(tmp_path: Path) -> None:
    multi = {"seeds": (1, 2), **crossing(5, 6)}
    binary = {"seeds": (3, 4), **crossing(4, None)}
    write_twins(tmp_path, layers=12, multi=multi, binary=binary)
    found = compared(tmp_path)
    (row,) = found.pairs[found.pairs["quantity"] == "crossing"].to_dict("records")
    assert pd.isna(row["seed"])
    assert (row["multi"], row["binary"]) == (5.5, 4)
    assert found.notes == ("Means over seeds, as none is in both runs: topics minilm.",)


def test_shifts_of_single_seeds_do_not_cancel_in_the_absolute_shift(tmp_path: Path) -> None:
    multi, binary = crossing(5, 5), crossing(3, 7)
    write_twins(tmp_path, layers=12, multi=multi, binary=binary, seeds=(1, 2))
    row = row_of(compared(tmp_path), "crossing")
    assert (row["shift"], row["absolute"]) == (0, 2)


def test_an_event_that_never_happens_is_missing_and_never_a_number(tmp_path: Path) -> None:
    write_twins(tmp_path, "a", multi=crossing(4), binary=crossing(None))
    write_twins(tmp_path, "b", multi=crossing(None), binary=crossing(None))
    write_twins(tmp_path, "c", multi=crossing(4), binary=crossing(2))
    found = compared(tmp_path)
    rows = found.pairs[found.pairs["quantity"] == "crossing"].set_index("task")
    assert rows.loc["a", "multi"] == 4
    assert rows["binary"].isna().tolist() == [True, True, False]
    row = row_of(found, "crossing")
    assert (row["n"], row["tasks"], row["missing"], row["shift"]) == (1, 1, 2, -2)
    assert "initiation" not in set(found.comparison["quantity"])  # nobody looked for it


def test_a_seed_of_which_one_side_is_missing_counts_on_neither_side(tmp_path: Path) -> None:
    multi, binary = crossing(1, 6), crossing(None, 4)
    write_twins(tmp_path, multi=multi, binary=binary, seeds=(1, 2))
    found = compared(tmp_path)
    (point,) = found.points[found.points["quantity"] == "crossing"].to_dict("records")
    assert (point["multi"], point["binary"], point["shift"], point["absolute"]) == (6, 4, -2, 2)


def test_weights_that_are_all_zero_have_no_centre(tmp_path: Path) -> None:
    nothing = {"weights": {"swapping": [[0.0] * 6]}}
    write_twins(tmp_path, binary=nothing)
    found = compared(tmp_path)
    assert math.isnan(found.pairs["binary"].item())
    row = row_of(found, "m_cog")
    assert (row["n"], row["missing"]) == (0, 1)
    assert math.isnan(row["shift"])


def test_tasks_with_two_classes_anyway_are_no_pairs(tmp_path: Path) -> None:
    write_twins(tmp_path, "reviews", classes=2)
    assert compare_binarised(tmp_path) is None
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


def test_there_is_nothing_to_compare_without_binarised_runs(tmp_path: Path) -> None:
    write_run(tmp_path, "topics")
    write_run(tmp_path, "questions")
    assert compare_binarised(tmp_path) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"data.noise": 0.3},
        {"data.limit": 100},
        {"training.epochs": 9},
        {"model.pair_format": "native"},
    ],
)
def test_runs_that_differ_in_more_than_the_number_of_classes_are_no_pair(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    write_run(tmp_path, name="multi")
    write_run(tmp_path, name="binary", settings={**settings, "data.binarise": True})
    assert compare_binarised(tmp_path) is None
    write_run(tmp_path, name="other-multi", settings=settings)
    found = [compare_binarised(tmp_path, number) for number in (1, 2, 3)]
    assert [len(one.pairs) for one in found if one is not None] == [1, 1]  # from either side


def test_each_group_is_compared_with_its_own_twin(tmp_path: Path) -> None:
    for noise, layer in ((0.15, 2), (0.3, 4)):
        for task in ("a", "b") if noise == 0.15 else ("a",):
            for binarise in (False, True):
                settings = {"data.noise": noise, "data.binarise": binarise}
                name = f"{task}-{noise}-{binarise}"
                write_run(tmp_path, task, settings=settings, name=name,
                          **crossing(layer + 1 - binarise))  # fmt: skip
    by_group = {number: compared(tmp_path, number) for number in (1, 2, 3, 4)}
    layers = {n: found.pairs.query("quantity == 'crossing'") for n, found in by_group.items()}
    assert layers[1]["multi"].tolist() == [3, 3]
    # A group and its twin give the same comparison, whichever is asked for.
    twin = next(n for n in (2, 3, 4) if len(layers[n]) == 2)
    pd.testing.assert_frame_equal(by_group[1].pairs, by_group[twin].pairs)
    others = [n for n in (2, 3, 4) if n != twin]
    assert [layers[n]["multi"].tolist() for n in others] == [[5], [5]]
    with pytest.raises(ResultsError, match="group 5 is not possible"):
        compare_binarised(tmp_path, 5)


def test_a_twin_that_memorised_little_is_named(tmp_path: Path) -> None:
    write_twins(tmp_path, "topics", binary={"memorised": 0.5})
    words = "Less than 95% of the noisy labels were memorised {} binarising: topics minilm."
    assert compared(tmp_path).notes == (words.format("with"),)
    assert compared(tmp_path, 2).notes == ()  # then it is the grid that names it
    write_twins(tmp_path, "questions", multi={"memorised": 0.5})
    assert compared(tmp_path, 2).notes == (words.format("without").replace("topics", "questions"),)


def test_runs_whose_summary_does_not_say_how_many_classes_are_no_pair(tmp_path: Path) -> None:
    multi, _ = write_twins(tmp_path)
    file = multi / "summary.json"
    file.write_text(file.read_text().replace('"classes"', '"before"'))
    assert compare_binarised(tmp_path) is None


def test_a_damaged_file_of_the_twin_is_named(tmp_path: Path) -> None:
    _, binary = write_twins(tmp_path, multi=crossing(1), binary=crossing(1))
    (binary / "events.parquet").write_bytes(b"PAR1")
    with pytest.raises(ResultsError, match="cannot be read") as caught:
        compare_binarised(tmp_path)
    assert str(binary / "events.parquet") in str(caught.value)
