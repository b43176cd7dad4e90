from __future__ import annotations

import numpy as np
import pytest

from memloc.analysis.centroids import (
    Positions,
    pick_classes,
    positions,
    summary_table,
    trajectory_table,
)
from memloc.errors import DataError
from tests.oracles.centroids import positions_plainly


def random_data(
    n: int = 90, classes: int = 4, layers: int = 5, width: int = 16, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    original = random.integers(classes, size=n)
    noisy = random.random(n) < 0.25
    moved = (original + random.integers(1, classes, size=n)) % classes
    labels = np.where(noisy, moved, original)
    # Far from the origin, as real states are: cancellation would show.
    states = (random.normal(size=(layers, n, width)) + 30 + original[:, None]).astype(np.float32)
    return states, labels, original, noisy


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_positions_are_those_of_a_direct_loop(classes: int) -> None:
    states, labels, original, noisy = random_data(classes=classes)
    found = positions(states, pick_classes(labels, original, noisy, classes))
    plainly = positions_plainly(states, labels, original, noisy)
    for group in ("noisy", "class_a", "class_b"):
        np.testing.assert_allclose(getattr(found, group), plainly[group], rtol=1e-5, atol=1e-9)


def test_an_example_at_a_centroid_is_at_0_or_1_and_beyond_it_outside() -> None:
    labels = np.array([0, 0, 1, 1, 0, 0, 0])
    original = np.array([0, 0, 1, 1, 1, 1, 1])
    noisy = labels != original
    states = np.array([[[0.0, 1], [0, -1], [4, 1], [4, -1], [0, 7], [4, 7], [-2, 0]]])
    found = positions(states, pick_classes(labels, original, noisy, 2))
    assert found.noisy[0].tolist() == pytest.approx([0.0, 1.0, -0.5])
    assert found.class_a[0].tolist() == pytest.approx([0.0, 0.0])
    assert found.class_b[0].tolist() == pytest.approx([1.0, 1.0])


def test_means_of_the_classes_are_0_and_1_by_construction() -> None:
    states, labels, original, noisy = random_data()
    table = summary_table("m", positions(states, pick_classes(labels, original, noisy, 4)))
    means = table.set_index(["group", "layer"])["mean"]
    np.testing.assert_allclose(means["class_a"], 0, atol=1e-9)
    np.testing.assert_allclose(means["class_b"], 1, atol=1e-9)


def test_a_pair_without_noisy_examples_is_skipped_and_counted() -> None:
    labels = np.array([0, 0, 1, 1, 2, 2, 0])
    original = np.array([0, 0, 1, 1, 2, 2, 1])
    classes = pick_classes(labels, original, labels != original, 3)
    assert classes.pairs.tolist() == [[0, 1]]
    assert classes.skipped == 5
    found = positions(np.random.default_rng(0).normal(size=(2, 7, 3)), classes)
    assert found.class_a.shape == (2, 2)
    assert found.noisy.shape == (2, 1)


def test_noisy_examples_of_a_class_without_clean_ones_are_left_out() -> None:
    labels = np.array([0, 0, 1, 1, 0, 0])
    original = np.array([0, 0, 1, 1, 1, 2])  # class 2 has no clean example
    classes = pick_classes(labels, original, labels != original, 3)
    assert classes.moved.tolist() == [4]


def test_too_few_classes_are_one_sentence() -> None:
    labels = np.array([0, 0, 0, 0])
    original = np.array([0, 0, 1, 1])
    with pytest.raises(DataError, match="only 1 of 2 classes have clean examples"):
        pick_classes(labels, original, labels != original, 2)


def test_coinciding_centroids_give_no_position() -> None:
    # As before the first layer of a BERT, where all examples have the state of [CLS].
    _, labels, original, noisy = random_data()
    states = np.full((1, len(labels), 8), 0.1, dtype=np.float32)
    found = positions(states, pick_classes(labels, original, noisy, 4))
    assert np.isnan(found.noisy).all()
    table = summary_table("m", found)
    assert table["count"].tolist() == [0, 0, 0]
    assert table["mean"].isna().all()


def test_tables_hold_the_middle_three_quarters_and_every_step_of_every_example() -> None:
    found = Positions(np.arange(18.0).reshape(2, 9), np.zeros((2, 3)), np.ones((2, 3)))
    table = summary_table("m", found)
    first = table[(table["group"] == "noisy") & (table["layer"] == 1)].iloc[0]
    assert (first["low"], first["mean"], first["high"], first["count"]) == (1.0, 4.0, 7.0, 9)
    rows = trajectory_table("m", found, np.arange(100, 109))
    assert rows[rows["example"] == 103]["position"].tolist() == [3.0, 12.0]
    assert rows[rows["example"] == 103]["layer"].tolist() == [1, 2]
