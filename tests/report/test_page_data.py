"""From result folders to the data of the page: against the tables, and for every kind of damage."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from memloc.analysis.windows import all_windows
from memloc.paper.scorecard import page_claims
from memloc.report.page import page_data, size_of
from memloc.report.page_data import LONGEST, LOWEST, STEPS
from memloc.results.folders import ResultsError
from tests.report.folders import (
    HOSTILE,
    NEAR_CEILING,
    change_summary,
    undoing,
    write_full_localised,
    write_full_run,
)
from tests.result_folders import write_run

LAYERS, NOISY, SEEDS = 4, 14, (1, 2, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read only."""
    return write_full_run(tmp_path_factory.mktemp("runs"), seeds=SEEDS)


@pytest.fixture(scope="module")
def run(folder: Path) -> dict:
    return page_data(folder)["runs"][0]


def view(run: dict, key: str) -> dict:
    return next(one for one in run["views"] if one["key"] == key)


def bits(found: dict, examples: int) -> np.ndarray:
    """[windows, examples], decoded one bit at a time."""
    raw, stride = base64.b64decode(found["bits"]), -(-examples // 8)
    return np.array(
        [
            [bool(raw[w * stride + e // 8] >> (e % 8) & 1) for e in range(examples)]
            for w in range(len(found["windows"]))
        ]
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("technique", "needed"), [("swapping", 1), ("retraining", 2)])
def test_windows_undo_the_examples_that_they_undo_in_the_predictions(
    run: dict, folder: Path, seed: int, technique: str, needed: int
) -> None:
    found = view(run, str(seed))["undone"][technique]
    expected = undoing(NOISY, LAYERS, seed, needed)
    expected[:, 0] = False  # never memorised, so nothing to undo
    np.testing.assert_array_equal(bits(found, NOISY), expected)
    assert found["windows"] == [[w.first, w.last] for w in all_windows(LAYERS)]
    table = pd.read_parquet(folder / "examples.parquet")
    rows = table[(table["seed"] == seed) & (table["technique"] == technique)]
    for place, (_, row) in enumerate(rows.sort_values("example").iterrows()):
        smallest = found["smallest"][place]
        if pd.isna(row["first_layer"]):
            assert smallest == -1
        else:
            assert found["windows"][smallest] == [row["first_layer"], row["last_layer"]]


def test_all_seeds_together_is_what_holds_in_more_than_half_of_them(run: dict) -> None:
    each = [bits(view(run, str(seed))["undone"]["swapping"], NOISY) for seed in SEEDS]
    found = bits(view(run, "all")["undone"]["swapping"], NOISY)
    np.testing.assert_array_equal(found, sum(one.astype(int) for one in each) >= 2)
    assert any((one != found).any() for one in each)


def test_matrix_and_centres_of_all_seeds_are_those_of_the_summary(run: dict, folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())["techniques"]
    together = view(run, "all")
    for found in together["maps"]:
        np.testing.assert_allclose(
            found["matrix"], summary[found["technique"]]["undone_by_size_and_layer"], atol=1e-4
        )
    for found in together["techniques"]:
        assert found["m_cog"] == pytest.approx(summary[found["name"]]["m_cog"], abs=1e-4)
        assert len(found["m_cog_per_seed"]) == 3


def test_positions_of_single_examples_are_kept_to_a_hundredth(run: dict, folder: Path) -> None:
    table = pd.read_parquet(folder / "trajectories.parquet")
    for key, seeds in (("2", [2]), ("all", list(SEEDS))):
        for model, text in view(run, key)["ways"]["positions"].items():
            steps = np.frombuffer(base64.b64decode(text), dtype=np.uint8).reshape(NOISY, LAYERS)
            rows = table[(table["model"] == model) & table["seed"].isin(seeds)]
            means = rows.pivot_table(index="example", columns="layer", values="position")
            np.testing.assert_allclose(LOWEST + steps / STEPS * 3, means, atol=0.007)


def test_crossing_of_all_seeds_is_the_median(run: dict, folder: Path) -> None:
    table = pd.read_parquet(folder / "crossings.parquet").sort_values(["example", "seed"])
    layers = table["crossing"].fillna(99).to_numpy(dtype=int).reshape(NOISY, len(SEEDS))
    expected = [None if m == 99 else m for m in np.sort(layers, axis=1)[:, 1].tolist()]
    assert view(run, "all")["ways"]["crossing"] == expected


def test_learning_curves_have_the_epochs_of_both_models(run: dict) -> None:
    curves = view(run, "all")["curves"]
    assert curves["near_ceiling"] == [NEAR_CEILING] * 3
    assert curves["end"] == 6
    lines = {(line["state"], line["split"]): line for line in curves["lines"]}
    assert lines["memorised", "noisy"]["accuracy"][-1] == 1
    assert lines["frozen", "noisy"]["accuracy"][-1] == 0.25
    assert lines["memorised", "noisy"]["range"] is not None
    assert view(run, "1")["curves"]["lines"][0]["range"] is None


def test_texts_labels_and_counterfactual_memorisation_stand_beside_each_other(
    run: dict, folder: Path
) -> None:
    scores = pd.read_parquet(folder / "memorisation_map.parquet").set_index("example")
    found = run["examples"]
    assert found["example"] == [3 * i for i in range(NOISY)]
    assert found["text"][2] == "The oak and the river, number 2"
    assert (found["original_label"][1], found["label"][1]) == ("plants", "stones")
    for number, value in zip(found["example"], found["counterfactual"], strict=True):
        expected = scores.loc[number, "counterfactual_memorisation"]
        assert value == pytest.approx(expected, abs=1e-4)


def test_the_memorisation_map_has_every_example_that_was_seen_and_held_out(
    run: dict, folder: Path
) -> None:
    table = pd.read_parquet(folder / "memorisation_map.parquet")
    assert run["map"]["total"] == run["map"]["shown"] == len(table)
    for group, rows in (("noisy", table[table["noisy"]]), ("clean", table[~table["noisy"]])):
        found = run["map"][group]
        assert found["seen"] == pytest.approx(rows["training_memorisation"].tolist(), abs=1e-3)
        assert found["held_out"] == pytest.approx(rows["generalisation_score"].tolist(), abs=1e-3)
        assert found["seen_mean"] == pytest.approx(rows["training_memorisation"].mean(), abs=1e-4)


def test_results_of_localise_have_no_seeds_and_no_curves(tmp_path: Path) -> None:
    data = page_data(write_full_localised(tmp_path))
    found = data["runs"][0]
    assert (found["task"], found["trained"], len(found["views"])) == (None, False, 1)
    assert found["views"][0]["curves"] is None
    assert found["views"][0]["undone"].keys() == {"swapping", "retraining"}
    assert found["made"]["command"].startswith("memloc localise --memorised a --original b")


def test_a_folder_of_runs_has_all_of_them_and_what_they_say_together(tmp_path: Path) -> None:
    for task in ("one", "two"):
        write_full_run(tmp_path, task)
    write_full_localised(tmp_path)
    data = page_data(tmp_path, check=page_claims)
    assert [one["task"] for one in data["runs"]] == ["one", "two", None]
    assert data["grid"]["tasks"] == ["one", "two"]
    assert len(data["grid"]["centres"]) == 2 * 4
    assert {row["kind"] for row in data["grid"]["agreement"]} >= {"techniques", "generalisation"}
    assert len(data["grid"]["claims"]) > 10
    assert page_data(tmp_path / "one-minilm")["grid"] is None


def test_results_with_few_tables_have_a_page_too(tmp_path: Path) -> None:
    write_run(tmp_path, "one")
    write_run(tmp_path, "two", events={"crossing": [2], "mem_gen": [None]}, positions={
        "memorised": [0.9, 0.8, 0.6, 0.4, 0.2, 0.1]}, steps=[0.5, float("nan")])  # fmt: skip
    one, two = page_data(tmp_path)["runs"]
    assert one["examples"] is None
    assert two["examples"] == {"example": [0, 1]}
    assert two["views"][0]["explanation"]["events"]["memorised"]["mem_gen"]["layer"] is None


def test_control_characters_become_visible_and_long_texts_are_cut(tmp_path: Path) -> None:
    found = page_data(write_full_run(tmp_path, texts=HOSTILE))["runs"][0]["examples"]
    assert found["text"][6] == "control ␀␁␇␈␋␌␛[31m␡\ufffd characters"
    assert found["text"][0] == HOSTILE[0]
    assert len(found["text"][8]) == LONGEST
    assert found["cut"] == {"8": 10_000, "9": 11_000}


def test_what_is_too_large_is_thinned_out_until_it_fits(folder: Path, run: dict) -> None:
    assert not run["left_out"]
    fewer = page_data(folder, size_of(run))["runs"][0]
    assert size_of(fewer) < size_of(run)
    assert len(fewer["examples"]["example"]) == NOISY // 2
    assert "Only the first 7 of 14" in fewer["left_out"][0]
    least = page_data(folder, 1)["runs"][0]
    assert least["examples"] is None
    assert "None of 14 noisy examples" in least["left_out"][0]


@pytest.mark.parametrize("table", ["windows", "predictions", "memorisation_map"])
def test_a_damaged_table_is_named(tmp_path: Path, table: str) -> None:
    folder = write_full_run(tmp_path)
    file = folder / f"{table}.parquet"
    rows = pd.read_parquet(file)
    column = rows.columns[-1]
    rows.drop(columns=column).to_parquet(file, index=False)
    with pytest.raises(ResultsError, match=rf"{table}\.parquet.*no column '{column}'"):
        page_data(folder)
    file.write_bytes(file.read_bytes()[:60])
    with pytest.raises(ResultsError, match=rf"{table}\.parquet.*cannot be read"):
        page_data(folder)


def test_a_summary_that_contradicts_itself_is_damage_too(tmp_path: Path) -> None:
    folder = write_full_run(tmp_path)
    change_summary(folder, techniques={"swapping": {"m_cog": "3"}})
    with pytest.raises(ResultsError, match=r"topics-minilm' cannot be read"):
        page_data(folder)
