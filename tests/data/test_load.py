"""The front door: the order of the steps, and which kind of task a name stands for."""

import numpy as np
import pytest

from memloc.config import Data
from memloc.data.builtin import BUILTIN_TASKS
from memloc.data.load import load_task
from memloc.errors import DataError
from memloc.paper.tasks import PAPER_TASKS

BUILTIN = next(iter(BUILTIN_TASKS))


def write_csv(path, rows, header="text,label"):
    path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n")
    return path


def rows_of(**counts):
    return [(f"{label} text {i}", label) for label, n in counts.items() for i in range(n)]


def refusal(**settings):
    with pytest.raises(DataError) as caught:
        load_task(Data(**settings))
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", BUILTIN_TASKS)
def test_a_built_in_task_has_400_examples_and_15_percent_noise(name):
    task = load_task(Data(task=name))
    assert task.name == name
    assert len(task.train) == 400
    assert len(task.validation) == 200
    counts = np.bincount(task.train.original_label)
    assert task.train.noisy.sum() == sum(n * 15 // 100 for n in counts)


@pytest.mark.parametrize("name", BUILTIN_TASKS)
def test_a_binarised_built_in_task_has_its_full_size_too(name):
    task = load_task(Data(task=name, binarise=True, limit=120))
    assert len(task.labels) == 2
    assert len(task.train) == 120


def test_the_data_seed_changes_the_noise_but_not_the_texts_of_built_in_tasks():
    first, second = (load_task(Data(task=BUILTIN, seed=seed)).train for seed in (1, 2))
    assert first.text.equals(second.text)
    assert first.original_label.equals(second.original_label)
    assert not first.noisy.equals(second.noisy)


def test_a_file_called_like_a_known_task_keeps_its_ending(tmp_path):
    for name in (BUILTIN, next(iter(PAPER_TASKS))):
        path = write_csv(tmp_path / f"{name}.csv", rows_of(a=20, b=20))
        task = load_task(Data(task=str(path)))
        assert (task.name, task.category) == (f"{name}.csv", "file")
    path = write_csv(tmp_path / "mine.csv", rows_of(a=20, b=20))
    assert load_task(Data(task=str(path))).name == "mine"


def test_a_file_is_binarised_then_limited_then_made_noisy(tmp_path):
    path = write_csv(tmp_path / "a.csv", rows_of(rare=20, some=100, most=300))
    config = Data(task=str(path), binarise=True, limit=80, noise=0.1)
    task = load_task(config)
    assert task.labels == ("most", "some")
    assert np.bincount(task.train.original_label).tolist() == [60, 20]
    assert task.train.groupby("original_label").noisy.sum().tolist() == [6, 2]
    lines = path.read_text().splitlines()[1:]
    for record in task.train.to_dict("records"):
        label = task.labels[record["original_label"]]
        assert lines[record["example"]] == f"{record['text']},{label}"


def test_known_noise_is_taken_as_it_is(tmp_path):
    rows = [(text, label, label) for text, label in rows_of(a=20, b=20)]
    rows[3] = ("flipped 1", "b", "a")
    rows[30] = ("flipped 2", "a", "b")
    path = write_csv(tmp_path / "a.csv", rows, "text,label,gold")
    held = write_csv(tmp_path / "v.csv", rows_of(a=5, b=5))
    config = Data(task=str(path), validation=held, original_label_column="gold")
    train = load_task(config).train
    assert list(train[train.noisy].example) == [3, 30]
    assert list(train[train.noisy].label) == [1, 0]


def test_an_unknown_task_gets_a_suggestion_or_the_whole_choice():
    message = refusal(task="stormfron")
    assert message.startswith("data.task 'stormfron' is not possible: there is no such task")
    assert message.endswith("did you mean 'stormfront'?")
    message = refusal(task="zzzz")
    assert all(name in message for name in [*BUILTIN_TASKS, *PAPER_TASKS])
    assert "no such file (.csv, .tsv, .jsonl, .ndjson, .json, .parquet)" in message


def test_what_looks_like_a_path_is_taken_for_a_file(tmp_path):
    assert "there is no file missing.csv" in refusal(task="missing.csv")
    assert "there is no file some/where" in refusal(task="some/where")
    assert "is a folder" in refusal(task=str(tmp_path))


@pytest.mark.parametrize("setting", ["text_column", "validation"])
def test_settings_for_files_are_refused_elsewhere(setting):
    message = refusal(task="rte", **{setting: "x"})
    assert message.startswith(f"data.{setting} ")
    assert "it has no meaning for the task 'rte'; leave it out" in message
