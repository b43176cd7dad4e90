"""Who becomes noisy, and what smaller versions of a task keep."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memloc.data.noise import (
    allocate,
    binarise,
    known_noise,
    limit,
    perturb,
    suspected,
    trusted,
)
from memloc.data.task import Task
from memloc.errors import DataError


def make_task(counts, validation=(3,), order_seed=0):
    """A task with so many examples per class, in a shuffled order and with uneven example ids."""
    label = np.repeat(np.arange(len(counts)), counts)
    label = np.random.default_rng(order_seed).permutation(label).astype(np.int64)
    table = pd.DataFrame(
        {
            "example": np.arange(len(label), dtype=np.int64) * 3 + 5,
            "text": [f"text {i}" for i in range(len(label))],
            "label": label,
        }
    )
    per_class = np.resize(validation, len(counts))
    held = np.repeat(np.arange(len(counts)), per_class).astype(np.int64)
    other = pd.DataFrame(
        {
            "example": np.arange(len(held), dtype=np.int64),
            "text": [f"held {i}" for i in range(len(held))],
            "label": held,
        }
    )
    return Task("demo", "test", tuple(f"c{i}" for i in range(len(counts))), table, other)


class_counts = st.lists(st.integers(7, 40), min_size=2, max_size=5)


@given(class_counts, st.integers(15, 90), st.integers(0, 10**6))
def test_every_class_loses_its_share_rounded_down(counts, percent, seed):
    train = perturb(make_task(counts), percent / 100, seed).train
    noisy = train[train.noisy].original_label.value_counts()
    assert [noisy.get(i, 0) for i in range(len(counts))] == [n * percent // 100 for n in counts]


@given(class_counts, st.integers(0, 10**6))
def test_only_noisy_labels_change_and_they_all_do(counts, seed):
    task = make_task(counts)
    train = perturb(task, 0.15, seed).train
    assert (train.original_label == task.train.label).all()
    assert ((train.label != train.original_label) == train.noisy).all()
    assert train.label.between(0, len(counts) - 1).all()
    assert (train[["example", "text"]] == task.train[["example", "text"]]).all(axis=None)
    assert train.label.dtype == train.original_label.dtype == np.int64
    assert train.noisy.dtype == bool


def test_new_labels_are_uniform_over_the_other_classes():
    train = perturb(make_task([6000, 6000, 6000, 6000]), 0.5, seed=3).train
    moved = train[train.noisy].groupby(["original_label", "label"]).size()
    assert len(moved) == 12
    assert moved.between(880, 1120).all()  # 1000 expected, four standard deviations are 103


@pytest.mark.parametrize(
    ("ratio", "size", "noisy"), [(0.15, 20, 3), (0.29, 100, 29), (0.07, 100, 7)]
)
def test_rounding_down_is_not_fooled_by_floating_point(ratio, size, noisy):
    assert perturb(make_task([size, size]), ratio, 1).train.noisy.sum() == 2 * noisy


@pytest.mark.parametrize("ratio", [0, 1, float("nan")])
def test_a_ratio_that_is_no_share_is_refused(ratio):
    with pytest.raises(DataError, match=f"noise ratio {ratio} is not possible"):
        perturb(make_task([20, 20]), ratio, 1)


def test_too_small_a_ratio_names_the_largest_class_and_what_would_do():
    with pytest.raises(DataError) as caught:
        perturb(make_task([5, 6]), 0.15, 1)
    message = str(caught.value)
    assert "largest class has only 6 training examples" in message
    assert "or 7 examples of a class" in message
    assert perturb(make_task([5, 7]), 0.15, 1).train.noisy.sum() == 1


def with_original(task, original):
    return task.with_train(task.train.assign(original_label=np.array(original, dtype=np.int64)))


def test_known_noise_without_noisy_or_without_clean_examples_is_refused():
    task = make_task([3, 3])
    with pytest.raises(DataError, match="no label of 'demo' differs"):
        known_noise(with_original(task, task.train.label))
    with pytest.raises(DataError, match="every label of 'demo' differs"):
        known_noise(with_original(task, 1 - task.train.label))


@given(class_counts, st.data())
def test_a_limit_keeps_class_shares_order_and_ids(counts, data):
    n = data.draw(st.integers(2 * len(counts), sum(counts)))
    task = make_task(counts)
    train = limit(task, n, seed=1).train
    kept = np.bincount(train.label, minlength=len(counts))
    exact = np.array(counts) * n / sum(counts)
    assert len(train) == n
    assert (kept >= 2).all()
    assert (kept <= counts).all()
    if (exact >= 2).all():
        assert (np.abs(kept - exact) < 1).all()
    assert train.example.is_monotonic_increasing
    source = task.train.set_index("example").loc[train.example]
    assert list(source.text) == list(train.text)
    assert list(source.label) == list(train.label)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(0, 3), st.data())
def test_an_allocation_is_exact_and_within_bounds(counts, least, data):
    n = data.draw(st.integers(0, sum(counts)))
    sizes = allocate(counts, n, least)
    assert sum(sizes) == n
    assert all(0 <= size <= count for size, count in zip(sizes, counts, strict=True))
    if n >= sum(min(least, count) for count in counts):
        assert all(s >= min(least, c) for s, c in zip(sizes, counts, strict=True))


@given(
    st.lists(st.tuples(st.integers(2, 40), st.integers(0, 40)), min_size=2, max_size=6),
    st.data(),
)
def test_a_limit_keeps_the_share_of_wrong_labels(counts, data):
    task = make_task([clean + wrong for clean, wrong in counts])
    train = task.train.assign(original_label=task.train["label"])
    for number, (_, wrong) in enumerate(counts):
        rows = train.index[train["original_label"] == number][:wrong]
        train.loc[rows, "label"] = (number + 1) % len(counts)
    task = task.with_train(train)
    n = data.draw(st.integers(2 * len(counts), len(train)))
    found = limit(task, n, seed=1).train
    sizes = allocate([sum(pair) for pair in counts], n, 2)
    assert np.bincount(found["original_label"]).tolist() == sizes
    wrong = int((found["label"] != found["original_label"]).sum())
    expected = n * sum(wrong for _, wrong in counts) / len(train)
    # Small classes keep two examples, which may shift the rest by one each.
    assert abs(wrong - expected) <= 1 + len(counts)


def test_a_limit_keeps_a_few_wrong_labels_of_many_classes():
    task = make_task([100] * 10)
    original = task.train["label"]
    wrong = np.arange(len(original)) % 100 < 12
    labels = original.where(~wrong, (original + 1) % 10)
    task = task.with_train(task.train.assign(label=labels, original_label=original))
    found = limit(task, 60, seed=1).train
    assert (found["label"] != found["original_label"]).sum() == 7


def test_a_limit_leaves_a_hundred_validation_examples():
    task = make_task([200, 200], validation=(90, 210))
    assert len(limit(task, 20, 1).validation) == 100
    assert list(limit(task, 20, 1).validation.label.value_counts()[[0, 1]]) == [30, 70]
    assert len(limit(task, 150, 1).validation) == 150


def test_a_limit_below_two_per_class_names_the_minimum():
    with pytest.raises(DataError, match=r"limit of 5 is too small for the 3 classes.*at least 6"):
        limit(make_task([50, 50, 50]), 5, 1)


def test_binarising_keeps_the_two_most_frequent_classes_in_label_order():
    task = make_task([5, 30, 7, 20], validation=(4,))
    small = binarise(task)
    assert small.labels == ("c1", "c3")
    assert small.binarised
    assert not task.binarised
    assert small.train.label.value_counts().to_dict() == {0: 30, 1: 20}
    assert small.validation.label.value_counts().to_dict() == {0: 4, 1: 4}
    source = task.train.set_index("example").loc[small.train.example]
    assert list(source.text) == list(small.train.text)
    assert list(source.label) == [1 if label == 0 else 3 for label in small.train.label]


def test_binarising_known_noise_goes_by_the_original_labels():
    task = make_task([4, 4, 4])
    original = task.train.label.replace({0: 1})
    original[task.train.label == 2] = 2
    small = binarise(with_original(task, original))  # originals: 8 times c1, 4 times c2
    assert small.labels == ("c1", "c2")
    assert set(small.train.label) == {0, 1}
    assert len(small.train) == 8  # those whose flipped label, c0, is gone are gone too


def test_a_limit_keeps_the_share_of_suspects() -> None:
    train = pd.DataFrame(
        {
            "example": range(100),
            "text": "x",
            "label": np.repeat([0, 1], 50),
            "noisy": np.arange(100) % 5 == 0,
        }
    )
    task = suspected(Task("t", "own", ("a", "b"), train, train.iloc[:0]))
    assert task.noise == "suspected"
    assert limit(task, 50, seed=1).train["noisy"].sum() == 10


def test_labels_that_are_trusted_are_neither_flipped_nor_suspected() -> None:
    train = pd.DataFrame({"example": [0, 1], "label": [0, 1], "original_label": [1, 1]})
    task = trusted(Task("t", "own", ("a", "b"), train, train.iloc[:0]))
    assert not task.train["noisy"].any()
    assert "original_label" not in task.train
    assert task.train["label"].tolist() == [0, 1]
