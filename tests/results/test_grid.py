"""Reading many runs: tidy tables, what is left out, and one sentence for all bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from memloc.analysis.windows import centre_of_gravity
from memloc.results.folders import ResultsError
from memloc.results.grid import VALIDATION_SCORES, read_grid
from tests.result_folders import write_localised, write_run


def test_a_folder_of_runs_and_a_single_run_are_both_read(tmp_path: Path) -> None:
    one = write_run(tmp_path, "topics")
    write_run(tmp_path, "reviews")
    (tmp_path / "store").mkdir()
    (tmp_path / "notes.txt").write_text("not a run")
    both, alone = read_grid(tmp_path), read_grid(one)
    assert list(both.runs["task"]) == ["reviews", "topics"]
    assert list(alone.runs["task"]) == ["topics"]
    assert both.models == ["minilm"]
    assert both.techniques == ["swapping", "retraining", "gradients", "probing"]
    assert both.notes == ()


def test_centres_and_weights_are_means_over_seeds_and_depth_is_a_share(tmp_path: Path) -> None:
    profiles = [[4.0, 2, 1, 1], [1.0, 1, 1, 1], [0.0, 0, 0, 0]]  # the last has no centre
    write_run(tmp_path, layers=4, seeds=(1, 2, 3), weights={"swapping": profiles})
    grid = read_grid(tmp_path)
    by_seed = [centre_of_gravity(pd.Series(p).to_numpy()) for p in profiles[:2]]
    assert grid.seed_centres["m_cog"].tolist() == pytest.approx(by_seed)
    centre = sum(by_seed) / 2
    assert grid.centres["m_cog"].item() == pytest.approx(centre)
    assert grid.centres["depth"].item() == pytest.approx((centre - 0.5) / 4)
    weights = [5 / 3, 1, 2 / 3, 2 / 3]
    assert grid.weights["weight"].tolist() == pytest.approx(weights)
    other = read_grid(tmp_path, mean_profile=True)
    assert other.centres["m_cog"].item() == pytest.approx(1 + (1 + 4 / 3 + 2) / 4)
    assert other.centres["m_cog"].item() != pytest.approx(centre)
    assert other.seed_centres["m_cog"].tolist() == pytest.approx(by_seed)
    assert other.notes == ("M-CoG is that of the layer weights averaged over seeds.",)
    assert grid.weights["layer"].tolist() == [1, 2, 3, 4]


def test_events_are_means_over_the_seeds_in_which_they_happen(tmp_path: Path) -> None:
    events = {"crossing": [3, None, 5], "mem_gen": [None, None, None]}
    write_run(tmp_path, layers=12, seeds=(1, 2, 3), events=events)
    rows = read_grid(tmp_path).events.set_index("event")
    assert rows.loc["crossing", "layer"] == 4
    assert rows.loc["crossing", "depth"] == pytest.approx(3.5 / 12)
    assert rows.loc["crossing", ["seeds", "missing"]].tolist() == [3, 1]
    assert pd.isna(rows.loc["mem_gen", "depth"])
    assert rows.loc["mem_gen", "missing"] == 3


def test_techniques_of_an_earlier_version_that_recorded_less_are_missing(tmp_path: Path) -> None:
    weights = {"swapping": [[4.0, 2, 1, 1]], "probing": [[1.0, 1, 1, 1]]}
    events = {"crossing": [3], "mem_gen": [2], "f1_90": [1]}
    new = write_run(tmp_path, "topics", layers=4, weights=weights, events=events)
    old = write_run(tmp_path, "reviews", layers=4, weights=weights, events=events)
    found = {"probes": {"f1": [0.5]}, "class_probes": {"noisy_f1": [0.5]}}
    for name, columns in found.items():
        table = pd.DataFrame(columns)
        table.to_parquet(old / f"{name}.parquet")
        table.assign(train_f1=1.0, fitted=True).to_parquet(new / f"{name}.parquet")
    grid = read_grid(tmp_path)
    centres = grid.centres.set_index(["task", "technique"])["m_cog"]
    assert ("topics", "probing") in centres
    assert ("reviews", "probing") not in centres
    assert ("reviews", "swapping") in centres
    known = grid.events.dropna(subset="layer").groupby("task")["event"].agg(set)
    assert known["topics"] == {"crossing", "mem_gen", "f1_90"}
    assert known["reviews"] == {"crossing"}
    [note] = grid.notes
    assert note.startswith(f"In {old.name}: Probing and class_probes ran with an earlier version")
    assert note.endswith("counts as missing; run again.")
    pd.DataFrame(found["probes"]).to_parquet(new / "probes.parquet")
    pd.DataFrame(found["class_probes"]).to_parquet(new / "class_probes.parquet")
    [note] = read_grid(tmp_path).notes
    assert note.startswith("In all runs: Probing and class_probes ran")


def test_runs_with_layers_of_which_nothing_is_known_are_named(tmp_path: Path) -> None:
    profiles = [[1.0, float("nan"), float("nan"), 1], [1.0, 2, 3, 4]]
    write_run(tmp_path, layers=4, seeds=(1, 2), weights={"probing": profiles})
    grid = read_grid(tmp_path)
    assert len(grid.seed_centres) == 1
    task, model = grid.runs.loc[0, ["task", "model"]]
    assert grid.notes == (f"Some layers have no weight by probing, nor a centre: {task} {model}.",)


def test_scores_positions_and_examples_are_read_where_there_are_some(tmp_path: Path) -> None:
    scores = {name: 0.1 * place for place, name in enumerate(VALIDATION_SCORES)}
    write_run(tmp_path, "with", validation=scores, generalisation=0.6, seconds=90,
              positions={"memorised": [1, 0.6, 0.1]}, layers=3,
              steps=[0.2, float("nan"), 0.7])  # fmt: skip
    write_run(tmp_path, "without", layers=3)
    grid = read_grid(tmp_path)
    runs = grid.runs.set_index("task")
    assert runs.loc["with", list(scores)].to_dict() == scores
    assert list(scores)[::5] == ["validation_original_uniform", "validation_memorised_majority"]
    assert runs.loc["with", "generalisation_score"] == 0.6
    assert runs.loc["without", [*scores, "generalisation_score"]].isna().all()
    assert runs.loc["with", "seconds"] == 90
    assert grid.positions["mean"].tolist() == [1, 0.6, 0.1]
    assert set(grid.positions["state"]) == {"memorised"}
    assert grid.examples["largest_step"].tolist() == [0.2, 0.7]  # one never crossed
    assert set(grid.examples["task"]) == {"with"}


def test_results_of_localise_are_passed_over(tmp_path: Path) -> None:
    write_run(tmp_path)
    folder = write_localised(tmp_path)
    grid = read_grid(tmp_path)
    assert list(grid.runs["folder"]) == ["topics-minilm"]
    with pytest.raises(ResultsError, match=r"no finished run .* of `memloc localise`"):
        read_grid(folder)


def test_folders_of_something_else_are_passed_over_and_named(tmp_path: Path) -> None:
    write_run(tmp_path)
    folder = write_run(tmp_path, name="bench")
    settings = {"data": {"tasks": ["topics"]}, "seeds": [1], "layers": [[1, 2]]}
    (folder / "settings.json").write_text(json.dumps(settings))
    (tmp_path / "report.html").write_text("a page beside the runs")
    grid = read_grid(tmp_path)
    assert list(grid.runs["folder"]) == ["topics-minilm"]
    assert grid.notes == ("Left out, as they are not results of `memloc run`: bench.",)
    with pytest.raises(ResultsError, match=r"no finished run .*only 1 of something else"):
        read_grid(folder)


def test_a_run_that_is_not_finished_is_left_out_and_named(tmp_path: Path) -> None:
    write_run(tmp_path)
    broken = write_run(tmp_path, "reviews")
    (broken / "summary.json").unlink()
    grid = read_grid(tmp_path)
    assert list(grid.runs["task"]) == ["topics"]
    assert "not finished: reviews-minilm." in grid.notes[-1]
    with pytest.raises(ResultsError, match=r"no finished run in .*only 1 unfinished"):
        read_grid(broken)


@pytest.mark.parametrize("what", ["missing", "a file", "empty", "only a store"])
def test_a_folder_without_runs_is_an_error_in_words(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "runs"
    if what == "a file":
        folder.write_text("x")
    elif what != "missing":
        (folder / "store" if what == "only a store" else folder).mkdir(parents=True)
    words = {"missing": "there is no folder", "a file": "is a file"}
    with pytest.raises(ResultsError, match=words.get(what, "no finished run in")) as caught:
        read_grid(folder)
    assert repr(str(folder)) in str(caught.value)


def read_all(runs: Path) -> None:
    """Tables are read when somebody looks at them."""
    grid = read_grid(runs)
    assert len(grid.runs) + len(grid.weights) + len(grid.events)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("layers.parquet", b"PAR1 and then nothing"),
        ("settings.json", b'{"data": {'),
        ("summary.json", b"[1, 2]"),
        ("summary.json", b'{"task": "topics", "model": "minilm", "techniques": {}}'),
    ],
)
def test_a_damaged_file_is_named_in_one_sentence(tmp_path: Path, file: str, content: bytes) -> None:
    folder = write_run(tmp_path, events={"crossing": [3]})
    write_run(tmp_path, "reviews")
    (folder / file).write_bytes(content)
    with pytest.raises(ResultsError, match="cannot be read") as caught:
        read_all(tmp_path)
    assert str(folder / file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_without_its_columns_or_with_words_for_numbers_is_damaged(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    table = pd.read_parquet(folder / "layers.parquet")
    table.drop(columns="weight").to_parquet(folder / "layers.parquet")
    with pytest.raises(ResultsError, match=r"layers\.parquet.*no column 'weight'"):
        read_all(tmp_path)
    table.assign(weight="much").to_parquet(folder / "layers.parquet")
    with pytest.raises(ResultsError, match=r"layers\.parquet"):
        read_all(tmp_path)
    (folder / "layers.parquet").unlink()
    with pytest.raises(ResultsError, match=r"layers\.parquet.* is missing"):
        read_all(tmp_path)
