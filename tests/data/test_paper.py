"""The tasks of the paper, from local copies and (by way of folders of its form) from the hub."""

import json
from dataclasses import replace
from pathlib import Path

import datasets
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from memloc.errors import DataError
from memloc.paper.tasks import PAPER_TASKS, load_paper

COPIES = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_copies = pytest.mark.skipif(not COPIES.is_dir(), reason="no local copies of the data sets")

CLASSES = dict(zip(PAPER_TASKS, (2, 2, 2, 2, 2, 2, 5, 6, 7, 2, 8, 6), strict=True))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Keep what `datasets` prepares out of the user's cache."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


# --- local copies


@needs_copies
@pytest.mark.parametrize("name", PAPER_TASKS)
def test_local_copies_have_the_sizes_and_classes_of_the_paper(name):
    row = PAPER_TASKS[name]
    task = load_paper(row, COPIES)
    assert len(task.train) == row.train_size
    assert len(task.labels) == CLASSES[name]
    assert set(task.train.label) == set(range(CLASSES[name]))
    assert ("text_pair" in task.train) == (name in {"wic", "rte", "mrpc", "boolq"})
    assert ("word" in task.train) == (name == "wic")
    assert list(task.train.example) == list(range(row.train_size))
    evaluation = COPIES / name / "validation.jsonl"
    if not evaluation.exists():
        evaluation = COPIES / name / "test.jsonl"
    lines = [json.loads(line) for line in evaluation.read_text().split("\n") if line]
    assert len(task.validation) == len(lines) // 2
    for record in task.validation.head(20).to_dict("records"):
        source = lines[record["example"]]
        assert record["text"] == source["text"]
        assert task.labels[record["label"]] == source["label_name"]
        assert record["label"] == source["label"]


def write_copy(folder, split, records):
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / f"{split}.jsonl").write_text(text)


def cola_records(n):
    names = PAPER_TASKS["cola"].labels
    return [{"id": i, "text": f"text {i}", "label_name": names[i % 2]} for i in range(n)]


def refusal(row, data_dir=None):
    with pytest.raises(DataError) as caught:
        load_paper(row, data_dir)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_half_kept_for_validation_is_random_but_always_the_same(tmp_path):
    write_copy(tmp_path / "cola", "train", cola_records(10))
    write_copy(tmp_path / "cola", "test", cola_records(40))
    first, again = (load_paper(PAPER_TASKS["cola"], tmp_path).validation for _ in range(2))
    assert first.equals(again)
    assert len(first) == 20
    assert list(first.example) == sorted(first.example)
    assert list(first.example) != list(range(20))


def test_what_is_missing_from_the_folder_is_named(tmp_path):
    row = PAPER_TASKS["cola"]
    assert f"there is no folder {tmp_path}/x" in refusal(row, tmp_path / "x")
    assert f"there is no folder {tmp_path}/cola" in refusal(row, tmp_path)
    write_copy(tmp_path / "cola", "train", cola_records(4))
    assert f"neither {tmp_path}/cola/validation.jsonl nor" in refusal(row, tmp_path)
    write_copy(tmp_path / "cola", "validation", cola_records(4))
    (tmp_path / "cola" / "train.jsonl").unlink()
    assert f"there is no file {tmp_path}/cola/train.jsonl" in refusal(row, tmp_path)


# --- the hub


def on_hub(name, folder):
    """The row of a task, its hub name pointing at a folder of the form of a hub repository."""
    return replace(PAPER_TASKS[name], hub=str(folder))


def write_converted(folder, configuration, split, columns, features=None):
    """Write a split as the hub's Parquet branch has it."""
    place = folder / configuration / split
    place.mkdir(parents=True)
    Dataset.from_dict(columns, features=features).to_parquet(place / "0000.parquet")


def test_class_labels_and_the_word_of_wic_come_from_parquet_copies(tmp_path):
    features = Features(
        {
            "word": Value("string"),
            "sentence1": Value("string"),
            "sentence2": Value("string"),
            "label": ClassLabel(names=["False", "True"]),
        }
    )
    for split, n in [("train", 6), ("validation", 4), ("test", 4)]:
        columns = {
            "word": [f"word {i}" for i in range(n)],
            "sentence1": [f"{split} one {i}" for i in range(n)],
            "sentence2": [f"{split} two {i}" for i in range(n)],
            "label": [i % 2 if split != "test" else -1 for i in range(n)],
        }
        write_converted(tmp_path, "wic", split, columns, features)
    # A sibling configuration, which must not be mixed in.
    write_converted(tmp_path, "boolq", "train", {"question": ["q"]})
    task = load_paper(on_hub("wic", tmp_path))
    assert task.labels == ("False", "True")
    assert list(task.train.columns) == ["example", "word", "text", "text_pair", "label"]
    assert task.train.iloc[1].to_dict() == {
        "example": 1,
        "word": "word 1",
        "text": "train one 1",
        "text_pair": "train two 1",
        "label": 1,
    }
    assert len(task.validation) == 2
    assert task.validation.text.str.startswith("validation").all()


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_string_labels_without_a_split_are_cut_by_a_seeded_shuffle(tmp_path):
    names = PAPER_TASKS["implicithate"].labels
    records = [{"post": f"post {i}", "implicit_class": names[i % 7]} for i in range(100)]
    lines = [f"{r['post']},{r['implicit_class']}" for r in records]
    (tmp_path / "implicit_hate.csv").write_text("\n".join(["post,implicit_class", *lines]) + "\n")
    task = load_paper(on_hub("implicithate", tmp_path))
    assert len(task.train) == 80
    assert len(task.validation) == 10  # half of the other 20
    assert not set(task.train.example) & set(task.validation.example)
    assert list(task.train.example) != list(range(80))
    for table in (task.train, task.validation):
        assert list(table.text) == [f"post {i}" for i in table.example]
        assert list(table.label) == [i % 7 for i in table.example]
    assert load_paper(on_hub("implicithate", tmp_path)).train.equals(task.train)


def test_stormfront_keeps_hate_and_no_hate_only(tmp_path):
    names = ["noHate", "hate", "idk/skip", "relation"]
    features = Features({"text": Value("string"), "label": ClassLabel(names=names)})
    columns = {"text": [f"text {i}" for i in range(40)], "label": [i % 4 for i in range(40)]}
    write_converted(tmp_path, "default", "train", columns, features)
    task = load_paper(on_hub("stormfront", tmp_path))
    assert task.labels == ("noHate", "hate")
    assert len(task.train) == 16  # 80% of the 20 that remain
    assert list(task.train.label) == [i % 4 for i in task.train.example]


def test_reuters_keeps_frequent_single_topics_and_drops_repeats(tmp_path):
    letters = "abcdefgh"
    topics = [[letter] for letter in letters for _ in range(3)]
    texts = [f"article {i}" for i in range(24)]
    topics += [["i"], ["i"], ["a", "b"], [], ["b"], ["b"]]
    texts += ["rare 1", "rare 2", "two topics", "no topic", "article 0", " "]
    features = Features({"text": Value("string"), "topics": List(Value("string"))})
    columns = {"text": texts, "topics": topics}
    write_converted(tmp_path, "ModApte", "train", columns, features)
    held = {"text": ["x", "x", "y", "z", "w"], "topics": [["a"], ["a"], ["h"], ["i"], ["b"]]}
    write_converted(tmp_path, "ModApte", "test", held, features)
    write_converted(tmp_path, "ModApte", "unused", held, features)
    task = load_paper(on_hub("reuters", tmp_path))
    assert task.labels == tuple(letters)
    assert list(task.train.example) == list(range(24))
    assert list(task.train.label) == [i // 3 for i in range(24)]
    assert len(task.validation) == 1  # half of the three that remain
    assert task.validation.text[0] in {"x", "y", "w"}


def test_a_hub_set_with_other_columns_or_splits_is_refused(tmp_path):
    write_lines(tmp_path / "train.jsonl", [{"sentence": "a", "label": 0}])
    assert "has no 'test' split (but: train)" in refusal(on_hub("sst5", tmp_path))
    write_lines(tmp_path / "test.jsonl", [{"sentence": "a", "label": 0}])
    assert "has no column 'text' (but: sentence, label)" in refusal(on_hub("sst5", tmp_path))


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """Work offline with an empty cache, as users can; returns the folder of the cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["rte", "wic"])
def test_without_a_connection_or_a_cache_the_folder_option_is_named(name, no_hub):
    row = PAPER_TASKS[name]
    assert refusal(row) == (
        f"data.data_dir: the data set {row.hub} ({name}) cannot be loaded from the Hugging Face "
        "hub (the hub cannot be reached and nothing is cached); "
        "give a folder with a local copy"
    )


def test_parquet_copies_in_the_cache_are_found_without_a_connection(no_hub):
    repository, commit = no_hub / "datasets--CogComp--trec", "0" * 40
    reference = repository / "refs" / "refs" / "convert" / "parquet"
    reference.parent.mkdir(parents=True)
    reference.write_text(commit)
    names = list(PAPER_TASKS["trec"].labels)
    features = Features({"text": Value("string"), "coarse_label": ClassLabel(names=names)})
    for split in ("train", "test"):
        columns = {"text": [f"{split} {i}" for i in range(6)], "coarse_label": list(range(6))}
        write_converted(repository / "snapshots" / commit, "default", split, columns, features)
    task = load_paper(PAPER_TASKS["trec"])
    assert (len(task.train), len(task.validation)) == (6, 3)  # half of test
    assert task.validation.text.str.startswith("test").all()
