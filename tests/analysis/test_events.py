from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from memloc.analysis.events import (
    crossing,
    crossings_for_good,
    event_table,
    f1_90,
    first_crossing,
    initiation,
    largest_steps,
    mem_gen,
)

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


def test_a_missing_event_has_no_layer() -> None:
    table = event_table("memorised", {"crossing": None, "initiation": 3})
    assert table["layer"].dtype == pd.Int64Dtype()
    assert table["layer"].isna().tolist() == [True, False]
    assert table["layer"][1] == 3
