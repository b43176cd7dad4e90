"""The built-in tasks: well formed, reproducible, balanced, and as hard as they claim."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
import sys

import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from memloc.data.builtin import BUILTIN_TASKS, generate
from memloc.data.task import Task, input_columns
from memloc.errors import DataError

NAMES = tuple(BUILTIN_TASKS)
every_task = pytest.mark.parametrize("name", NAMES)


@functools.cache
def _task(name: str, n_train: int = 1200, n_validation: int = 600, seed: int = 1) -> Task:
    return generate(name, n_train, n_validation, seed)


def _inputs(table: pd.DataFrame) -> list[tuple[str, ...]]:
    return list(table[input_columns(table)].itertuples(index=False, name=None))


def _joined(table: pd.DataFrame) -> list[str]:
    return [" ".join(parts) for parts in _inputs(table)]


def _fingerprint(task: Task) -> str:
    csv = task.train.to_csv(index=False) + task.validation.to_csv(index=False)
    return hashlib.sha256(csv.encode()).hexdigest()


def _bag_of_words_accuracy(task: Task) -> float:
    vectoriser = TfidfVectorizer()
    model = LogisticRegression(max_iter=1000)
    model.fit(vectoriser.fit_transform(_joined(task.train)), task.train["label"])
    features = vectoriser.transform(_joined(task.validation))
    return float(model.score(features, task.validation["label"]))


def test_there_are_five_tasks_with_the_promised_categories() -> None:
    assert {name: task.category for name, task in BUILTIN_TASKS.items()} == {
        "questions": "topic",
        "reviews": "sentiment",
        "topics": "topic",
        "entailment": "NLU",
        "acceptability": "NLU",
    }
    assert [name for name, task in BUILTIN_TASKS.items() if task.pair] == ["entailment"]


@every_task
def test_the_tables_have_the_promised_columns_types_and_sizes(name: str) -> None:
    task = _task(name)
    expected = ["example", "text", *(["text_pair"] if BUILTIN_TASKS[name].pair else []), "label"]
    for table, size in ((task.train, 1200), (task.validation, 600)):
        assert list(table.columns) == expected
        assert table["example"].tolist() == list(range(size))
        assert table["example"].dtype == table["label"].dtype == "int64"
        assert all(type(text) is str for text in table["text"])
    assert task.name == name
    assert task.labels == BUILTIN_TASKS[name].labels
    assert not task.has_noise


@every_task
def test_sizes_default_to_600_and_300(name: str) -> None:
    task = generate(name)
    assert (len(task.train), len(task.validation)) == (600, 300)


@every_task
@pytest.mark.parametrize(("n_train", "n_validation"), [(1200, 600), (7, 3), (1, 0), (101, 50)])
def test_classes_are_balanced_at_any_size(name: str, n_train: int, n_validation: int) -> None:
    task = _task(name, n_train, n_validation)
    for table, size in ((task.train, n_train), (task.validation, n_validation)):
        assert len(table) == size
        counts = table["label"].value_counts().reindex(range(len(task.labels)), fill_value=0)
        assert counts.sum() == size
        assert counts.max() - counts.min() <= 1


@every_task
def test_every_class_occurs_and_rows_are_not_sorted_by_class(name: str) -> None:
    task = _task(name)
    for table in (task.train, task.validation):
        assert set(table["label"]) == set(range(len(task.labels)))
        assert not table["label"].is_monotonic_increasing
        assert set(table["label"].head(60)) == set(range(len(task.labels)))


@every_task
def test_no_input_occurs_twice_within_or_across_the_tables(name: str) -> None:
    task = _task(name)
    inputs = _inputs(task.train) + _inputs(task.validation)
    assert len(set(inputs)) == len(inputs)


@every_task
def test_the_same_arguments_give_the_same_task(name: str) -> None:
    assert _fingerprint(generate(name, 50, 20, 3)) == _fingerprint(generate(name, 50, 20, 3))


@every_task
def test_another_seed_gives_other_examples(name: str) -> None:
    first, second = _task(name, 600, 300, 1), _task(name, 600, 300, 2)
    assert len(set(_inputs(first.train)) & set(_inputs(second.train))) < 60


def test_a_fresh_process_with_another_hash_seed_gives_the_same_tasks() -> None:
    script = (
        "import hashlib\n"
        "from memloc.data.builtin import BUILTIN_TASKS, generate\n"
        "for name in BUILTIN_TASKS:\n"
        "    task = generate(name, 50, 20, 3)\n"
        "    csv = task.train.to_csv(index=False) + task.validation.to_csv(index=False)\n"
        "    print(hashlib.sha256(csv.encode()).hexdigest())\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == [_fingerprint(generate(name, 50, 20, 3)) for name in NAMES]


@every_task
def test_the_text_is_clean(name: str) -> None:
    task = _task(name, 20_000, 300)
    train = task.train
    if name == "acceptability":
        train = train[train["label"] == 1]  # the others have such flaws on purpose
    texts = [part for row in _inputs(train) for part in row]
    flaws = {
        "does not start with a capital": r"^[^A-Z]",
        "does not end with punctuation": r"[^.?!]$",
        "has doubled spaces or spaces at the ends": r"\s\s|^\s|\s$",
        "has doubled punctuation": r"[.,;:?!][.,;:?!]",
        "has a space before punctuation": r"\s[.,;:?!]",
        "has an unfilled slot or alternative": r"[{}\[\]|_]",
        "has a where an belongs": r"\b[Aa] (?!uni|us[aeu]|eu|one\b|once\b)[aeio]",
        "has an where a belongs": r"\b[Aa]n (?!hour|honest|hono|heir)[^aeiouAEIOU\W]",
        "repeats a word": r"\b(\w+) \1\b",
        "starts a sentence with a small letter": r"[.?!] [a-z]",
    }
    for flaw, pattern in flaws.items():
        found = [text for text in texts if re.search(pattern, text)]
        assert not found, f"{flaw}: {found[:3]}"


@every_task
def test_lengths_vary_within_reason(name: str) -> None:
    lengths = [len(text.split()) for text in _joined(_task(name).train)]
    assert 3 <= min(lengths) < 10
    assert 12 < max(lengths) <= 40


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("questions", 1200),
        ("reviews", 800),
        ("topics", 1200),
        ("entailment", 800),
        ("acceptability", 800),
    ],
)
def test_the_vocabulary_is_large(name: str, least: int) -> None:
    texts = _joined(_task(name, 3000, 0).train)
    assert len({word for text in texts for word in re.findall(r"[a-z]+", text.lower())}) >= least


@every_task
def test_twenty_thousand_training_examples_can_be_had(name: str) -> None:
    task = _task(name, 20_000, 300)
    inputs = _inputs(task.train) + _inputs(task.validation)
    assert len(set(inputs)) == 20_300


@every_task
def test_more_than_the_capacity_is_refused_with_both_numbers(name: str) -> None:
    capacity = BUILTIN_TASKS[name].capacity
    assert capacity >= 20_000
    with pytest.raises(DataError, match=rf"{capacity + 1} .*at most {capacity}\b"):
        generate(name, capacity, 1)


@pytest.mark.parametrize(("n_train", "n_validation"), [(0, 10), (-1, 10), (10, -1)])
def test_impossible_sizes_are_refused(n_train: int, n_validation: int) -> None:
    with pytest.raises(DataError, match=f"{n_train} training and {n_validation} validation"):
        generate("topics", n_train, n_validation)


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    with pytest.raises(DataError, match="did you mean 'questions'"):
        generate("question")


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("topics", 0.95, 1.0),
        ("questions", 0.8, 0.97),
        ("reviews", 0.6, 0.93),
        ("entailment", 0.4, 0.75),
        ("acceptability", 0.4, 0.75),
    ],
)
def test_a_bag_of_words_does_as_well_as_the_task_is_easy(
    name: str, least: float, most: float
) -> None:
    assert least <= _bag_of_words_accuracy(_task(name)) <= most


def test_the_tasks_are_ordered_by_difficulty() -> None:
    topics, questions, reviews, hard = (
        _bag_of_words_accuracy(_task(name))
        for name in ("topics", "questions", "reviews", "entailment")
    )
    assert topics > questions > reviews > hard
