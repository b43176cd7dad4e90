"""The built-in tasks: always the same, balanced, clean, and as hard as they claim."""

from __future__ import annotations

import functools
import hashlib
import re

import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from memloc.data.builtin import BUILTIN_TASKS, CAPACITY, generate
from memloc.data.task import Task, input_columns
from memloc.errors import DataError

every_task = pytest.mark.parametrize("name", BUILTIN_TASKS)


@functools.cache
def _task(name: str, n_train: int = 1200, n_validation: int = 600, seed: int = 1) -> Task:
    return generate(name, n_train, n_validation, seed)


def _inputs(table: pd.DataFrame) -> list[tuple[str, ...]]:
    return list(table[input_columns(table)].itertuples(index=False, name=None))


def _joined(table: pd.DataFrame) -> list[str]:
    return [" ".join(parts) for parts in _inputs(table)]


FINGERPRINTS = {
    "questions": "aff89649c489b636",
    "reviews": "4cec89f030da2830",
    "topics": "cfe1b4386a90651b",
    "entailment": "65033794a2282f4c",
    "acceptability": "9f6fda7fbb66be3c",
}
"""Of all texts and labels: stored results are of exactly these."""


@every_task
def test_every_example_is_the_same_on_every_machine_and_in_every_version(name: str) -> None:
    task = generate(name, 600, 300, 3)
    csv = task.train.to_csv(index=False) + task.validation.to_csv(index=False)
    assert hashlib.sha256(csv.encode()).hexdigest()[:16] == FINGERPRINTS[name]


@every_task
@pytest.mark.parametrize(("n_train", "n_validation"), [(1200, 600), (7, 3), (1, 0)])
def test_classes_are_balanced_and_mixed_at_any_size(
    name: str, n_train: int, n_validation: int
) -> None:
    task = _task(name, n_train, n_validation)
    for table, size in ((task.train, n_train), (task.validation, n_validation)):
        assert len(table) == size
        counts = table["label"].value_counts().reindex(range(len(task.labels)), fill_value=0)
        assert counts.max() - counts.min() <= 1
        assert size < 600 or set(table["label"].head(60)) == set(range(len(task.labels)))


@pytest.mark.slow
@every_task
def test_thousands_of_texts_are_clean_varied_and_different(name: str) -> None:
    task = _task(name, 8_000, 300)
    inputs = _inputs(task.train) + _inputs(task.validation)
    assert len(set(inputs)) == 8_300
    lengths = [len(text.split()) for text in _joined(task.train)]
    assert 3 <= min(lengths) < 10
    assert 12 < max(lengths) <= 40
    words = {word for text in _joined(task.train) for word in re.findall(r"[a-z]+", text.lower())}
    assert len(words) >= 800
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
        "repeats a word": r"\b(?!cook cook)(\w+) \1\b",
        "starts a sentence with a small letter": r"[.?!] [a-z]",
    }
    for flaw, pattern in flaws.items():
        found = [text for text in texts if re.search(pattern, text)]
        assert not found, f"{flaw}: {found[:3]}"


def test_more_than_the_capacity_is_refused_with_both_numbers() -> None:
    with pytest.raises(DataError, match=rf"{CAPACITY + 1} .*at most {CAPACITY}\b"):
        generate("topics", CAPACITY, 1)


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
    task, vectoriser = _task(name), TfidfVectorizer()
    model = LogisticRegression(max_iter=1000)
    model.fit(vectoriser.fit_transform(_joined(task.train)), task.train["label"])
    features = vectoriser.transform(_joined(task.validation))
    assert least <= model.score(features, task.validation["label"]) <= most
