from __future__ import annotations

import math

import numpy as np
import pytest

from memloc.analysis.centroids import (
    Positions,
    crossing,
    crossings_for_good,
    f1_90,
    first_crossing,
    initiation,
    largest_steps,
    mem_gen,
    pair_table,
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


def test_a_pair_without_noisy_examples_is_skipped_and_counted() -> None:
    labels = np.array([0, 0, 1, 1, 2, 2, 0])
    original = np.array([0, 0, 1, 1, 2, 2, 1])
    classes = pick_classes(labels, original, labels != original, 3)
    pairs = pair_table(classes)
    assert len(pairs) == 6
    assert pairs[pairs["used"]].values.tolist() == [[0, 1, 1, True]]
    found = positions(np.random.default_rng(0).normal(size=(2, 7, 3)), classes)
    assert found.class_a.shape == (2, 2)
    assert found.noisy.shape == (2, 1)


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


NAN = math.nan


@pytest.mark.parametrize(
    ("means", "last", "first"),
    [
        ([0.9, 0.8, 0.4, 0.1], 3, 3),
        ([0.9, 0.8, 0.7, 0.6], None, None),  # never
        ([0.9, 0.4, 0.6, 0.3], 4, 2),  # several: the last
        ([0.9, 0.4, 0.6, 0.8], 2, 2),  # and back again
        ([0.4, 0.3, 0.2, 0.1], 1, 1),  # below from the start
        ([0.49, 0.7, 0.9, 0.9], None, 1),  # chance in layer 1 is no crossing
        ([0.49, 0.7, 0.4, 0.1], 3, 1),
        ([NAN, 0.8, 0.4, 0.1], 3, 3),
        ([0.6, 0.5, 0.5, 0.49], 4, 4),  # at .5 it has not crossed
        ([0.3], 1, 1),
        ([0.7], None, None),
    ],
)
def test_crossing(means: list[float], last: int | None, first: int | None) -> None:
    assert crossing(means) == last
    assert first_crossing(means) == first


@pytest.mark.parametrize(
    ("a_high", "b_low", "layer"),
    [
        ([0.6, 0.4, 0.3], [0.4, 0.5, 0.6], 2),
        ([0.6, 0.4, 0.7, 0.3], [0.5, 0.5, 0.5, 0.5], 4),  # apart, together, apart for good
        ([0.6, 0.6, 0.6], [0.5, 0.5, 0.5], None),
        ([0.4, 0.6], [0.5, 0.5], None),  # not apart in the end
        ([0.1, 0.1], [0.9, 0.9], 1),
        ([0.5, 0.5], [0.5, 0.5], None),  # touching is not apart
        ([NAN, 0.1], [NAN, 0.9], 2),
    ],
)
def test_classification_initiation(
    a_high: list[float], b_low: list[float], layer: int | None
) -> None:
    assert initiation(a_high, b_low) == layer


def test_memorisation_beats_generalisation_by_more_than_ten_points() -> None:
    original = np.array([0.5, 0.5, 0.5])
    assert mem_gen(np.array([0.5, 0.6, 0.62]), original) == 3
    assert mem_gen(np.array([0.5, 0.61, 0.2]), original) == 2  # the first
    assert mem_gen(np.array([0.5, 0.5, 0.6]), original) is None


def test_90_per_cent_f1_is_relative_to_guessing_and_the_best_layer() -> None:
    # Rescaled: 0, .5, .9375, 1.
    assert f1_90(np.array([0.2, 0.6, 0.95, 1.0]), 0.2) == 3
    # The best layer is .6, so .55 is rescaled to .875, and not enough.
    assert f1_90(np.array([0.2, 0.55, 0.6]), 0.2) == 3
    assert f1_90(np.array([0.2, 0.1]), 0.2) is None  # no better than guessing


def test_single_examples_cross_for_good_or_never() -> None:
    found = np.array(
        [[0.9, 0.4, 0.9, 0.3, NAN], [0.4, 0.6, 0.9, 0.2, 0.2], [0.1, 0.2, 0.8, 0.1, 0.1]]
    )
    assert crossings_for_good(found) == [2, 3, None, 1, 2]


def test_the_largest_step_is_a_share_of_the_way_down() -> None:
    found = np.array([[1.0, 1.0, 0.2, 1.0], [0.0, 0.7, 0.5, 1.0], [0.0, 0.4, 0.9, 0.5]])
    layers, shares = largest_steps(found)
    assert layers.tolist() == [2, 2, 0, 3]  # a tie counts for the lower layer
    np.testing.assert_allclose(shares, [1.0, 0.5, NAN, 1.0])
    assert largest_steps(found[:1])[0].tolist() == [0, 0, 0, 0]
