"""Which runs are put together, and what is said about those that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from memloc.results.folders import ResultsError
from memloc.results.grid import read_grid
from tests.result_folders import straight, write_run, write_twins

SWAPPING = {"swapping": [straight(6, 0.4)]}


def tasks(folder: Path, number: int | None = None) -> list[str]:
    return list(read_grid(folder, number).runs["task"])


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("data.noise", 0.3),
        ("data.seed", 2),
        ("data.binarise", True),
        ("data.limit", 100),
        ("techniques.retraining.epochs", 9),
        ("windows.sizes", [1, 2]),
        ("windows.unit", "mlp"),
    ],
)
def test_runs_with_other_settings_are_another_group(
    tmp_path: Path, setting: str, value: object
) -> None:
    write_run(tmp_path, "one")
    write_run(tmp_path, "two")
    write_run(tmp_path, "three", settings={setting: value}, written=2e9)
    assert tasks(tmp_path) == tasks(tmp_path, 1) == ["one", "two"]
    assert tasks(tmp_path, 2) == ["three"]
    first, second = read_grid(tmp_path).notes
    assert "group 1 of 2 is used (2 runs)" in first
    assert second.startswith(f"Group 2 (1 run): {setting} is ")
    assert " instead of " in second
    assert "Group 1 (2 runs)" in read_grid(tmp_path, 2).notes[1]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("data.data_dir", "copies"),
        ("data.label_column", "gold"),
        ("model.trust_remote_code", True),
        ("training.micro_batch_size", 2),
        ("techniques.gradients.per_example", True),
        ("techniques.new_technique.strength", 3),
        ("device", "cuda"),
        ("seeds", [1, 2]),
        ("explain", False),
    ],
)
def test_settings_that_do_not_matter_do_not_part_runs(
    tmp_path: Path, setting: str, value: object
) -> None:
    write_run(tmp_path, "one")
    write_run(tmp_path, "two", settings={setting: value})
    assert tasks(tmp_path) == ["one", "two"]
    assert read_grid(tmp_path).notes == ()


def test_a_technique_that_others_lack_parts_only_runs_that_have_it(tmp_path: Path) -> None:
    write_run(tmp_path, "one", settings={"techniques.retraining.epochs": 9})
    write_run(tmp_path, "two", weights=SWAPPING)
    assert tasks(tmp_path) == ["one", "two"]
    write_run(tmp_path, "three", written=2e9)
    assert tasks(tmp_path) == ["three", "two"]
    assert tasks(tmp_path, 2) == ["one", "two"]


@pytest.mark.parametrize("number", [0, 2, -1])
def test_a_group_that_does_not_exist_is_an_error(tmp_path: Path, number: int) -> None:
    write_run(tmp_path)
    with pytest.raises(ResultsError, match=rf"group {number} is not possible: .*only group 1"):
        read_grid(tmp_path, number)


def test_parts_of_layers_are_said_and_do_not_come_first_because_they_are_newer(
    tmp_path: Path,
) -> None:
    write_run(tmp_path, "one", settings={"windows.unit": "mlp"}, name="parts", written=2e9)
    assert read_grid(tmp_path).notes == ("Only the MLP parts of layers were looked at.",)
    assert read_grid(tmp_path).part == "MLP parts"
    write_run(tmp_path, "one", name="whole", written=1e9)
    assert list(read_grid(tmp_path).runs["folder"]) == ["whole"]
    assert read_grid(tmp_path).part is None
    assert read_grid(tmp_path).notes[1] == (
        "Group 2 (1 run): windows.unit is mlp instead of layer."
    )


def test_training_must_be_the_same_for_one_model(tmp_path: Path) -> None:
    for task in ("one", "two"):
        write_run(tmp_path, task, "small", settings={"training.epochs": 15})
        write_run(tmp_path, task, "large")
    write_run(tmp_path, "three", "small", settings={"training.epochs": 30})
    grid = read_grid(tmp_path)
    assert len(grid.runs) == 4
    assert "three" not in set(grid.runs["task"])
    assert grid.notes[1] == "Group 2 (3 runs): training.epochs for small is 30 instead of 15."
    # The other model was trained in one way only, so it is there to compare with.
    other = read_grid(tmp_path, 2).runs
    assert sorted(zip(other["task"], other["model"], strict=True)) == [
        *(("one", "large"), ("three", "small"), ("two", "large")),
    ]


def test_a_setting_of_a_technique_that_depends_on_the_model_is_the_same_for_one_model(
    tmp_path: Path,
) -> None:
    rate = "techniques.retraining.learning_rate"
    write_run(tmp_path, "one", "small", settings={rate: 3e-4})
    write_run(tmp_path, "one", "large", settings={rate: 3e-5})
    assert len(read_grid(tmp_path).runs) == 2
    write_run(tmp_path, "two", "large", settings={rate: 1e-5})
    assert f"{rate} for large is " in read_grid(tmp_path).notes[1]


def test_of_two_runs_of_a_task_the_one_with_more_techniques_seeds_or_the_newer_counts(
    tmp_path: Path,
) -> None:
    write_run(tmp_path, name="fewer-techniques", weights=SWAPPING, written=9e9)
    write_run(tmp_path, name="fewer-seeds", written=8e9)
    write_run(tmp_path, name="older", seeds=(1, 2), written=1e9)
    write_run(tmp_path, name="best", seeds=(1, 2), written=2e9)
    grid = read_grid(tmp_path)
    assert list(grid.runs["folder"]) == ["best"]
    (note,) = grid.notes
    assert note.endswith("fewer-seeds, fewer-techniques, older.")


def test_files_of_the_same_name_in_different_folders_are_different_tasks(tmp_path: Path) -> None:
    for path in ("a/train.csv", "b/train.csv"):
        write_run(tmp_path, "train", settings={"data.task": path}, name=path[0])
    assert tasks(tmp_path) == ["train (a/train.csv)", "train (b/train.csv)"]


def test_binarised_runs_do_not_come_first_because_they_are_newer_or_more(tmp_path: Path) -> None:
    write_twins(tmp_path, "one", multi={"written": 1e9}, binary={"written": 2e9})
    assert list(read_grid(tmp_path).runs["folder"]) == ["one-minilm-multi"]
    assert list(read_grid(tmp_path, 2).runs["folder"]) == ["one-minilm-binary"]
    write_run(tmp_path, "two", settings={"data.binarise": True})
    assert list(read_grid(tmp_path).runs["folder"]) == ["one-minilm-multi"]


def test_a_twin_is_one_of_the_same_training(tmp_path: Path) -> None:
    for task in ("one", "two"):
        write_run(tmp_path, task)
    write_run(tmp_path, "one", settings={"training.epochs": 9}, name="longer")
    settings = {"training.epochs": 9, "data.binarise": True}
    write_run(tmp_path, "one", settings=settings, name="longer-binary")
    first, second, third = (read_grid(tmp_path, number) for number in (1, 2, 3))
    assert first.twins == {}
    assert [run.path.name for run in second.twins.values()] == ["longer-binary"]
    assert [run.path.name for run in third.twins.values()] == ["longer"]
    assert "compared" not in " ".join(first.notes)
    assert "compared" in second.notes[2]
