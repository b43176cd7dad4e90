"""Weights of layers when some window sizes were left out, or some windows have no result."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from memloc.analysis.windows import (
    Window,
    all_windows,
    centre_of_gravity,
    chosen_windows,
    error_matrix,
    layer_weights,
    mean_over_sizes,
)
from memloc.config import ConfigError


def table(errors: dict[tuple[int, int], float]) -> pd.DataFrame:
    rows = [(first, last, last - first + 1, error) for (first, last), error in errors.items()]
    return pd.DataFrame(rows, columns=["first_layer", "last_layer", "size", "noisy_error"])


THREE_LAYERS = {(1, 1): 0.1, (2, 2): 0.2, (3, 3): 0.3, (1, 2): 0.4, (2, 3): 0.6, (1, 3): 0.8}
"""Errors of all windows of a model with three layers."""


def without(*windows: tuple[int, int]) -> pd.DataFrame:
    return table({w: error for w, error in THREE_LAYERS.items() if w not in windows})


@pytest.mark.parametrize("layers", [1, 3, 12, 24])
def test_all_windows_are_chosen_unless_sizes_are_given(layers: int) -> None:
    assert chosen_windows(layers, None) == all_windows(layers)
    assert chosen_windows(layers, range(1, layers + 1)) == all_windows(layers)


def test_chosen_sizes_bring_the_full_window_along() -> None:
    assert chosen_windows(4, (1,)) == ((1, 1), (2, 2), (3, 3), (4, 4), (1, 4))
    assert chosen_windows(4, (3,)) == (Window(1, 3), Window(2, 4), Window(1, 4))
    assert chosen_windows(4, (4,)) == (Window(1, 4),)
    assert chosen_windows(1, (1,)) == (Window(1, 1),)


def test_the_order_of_sizes_does_not_matter_and_repeats_are_one() -> None:
    assert chosen_windows(5, (3, 1, 3)) == chosen_windows(5, (1, 3))
    assert [w.size for w in chosen_windows(5, (3, 1))] == [1, 1, 1, 1, 1, 3, 3, 3, 5]


@pytest.mark.parametrize("size", [0, -1, 5])
def test_a_size_that_the_model_does_not_have_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=rf"windows.sizes {size} is not possible.* 1 to 4 "):
        chosen_windows(4, (1, size))


def test_sizes_without_windows_are_rows_without_numbers() -> None:
    matrix = error_matrix(without((1, 2), (2, 3)))
    np.testing.assert_allclose(matrix[0], np.array([0.1, 0.2, 0.3]) / 0.8)
    assert np.isnan(matrix[1]).all()
    np.testing.assert_allclose(matrix[2], 1.0)


def test_weights_are_means_over_the_sizes_that_there_are() -> None:
    matrix = error_matrix(without((1, 2), (2, 3)))
    expected = (np.array([0.1, 0.2, 0.3]) / 0.8 + 1) / 2
    np.testing.assert_allclose(mean_over_sizes(matrix), expected)
    np.testing.assert_allclose(layer_weights("t", matrix)["weight"], expected)


def test_the_full_window_alone_weighs_all_layers_alike() -> None:
    matrix = error_matrix(table({(1, 4): 0.5}))
    assert matrix.shape == (4, 4)
    weights = mean_over_sizes(matrix)
    np.testing.assert_allclose(weights, 1.0)
    assert centre_of_gravity(weights) == pytest.approx(2.5)


def test_a_size_counts_only_if_every_layer_has_a_window_of_it() -> None:
    # Without window 1-1, the mean over single layers would favour the layers that have one.
    matrix = error_matrix(without((1, 1)))
    assert np.isnan(matrix[0, 0])
    np.testing.assert_allclose(matrix[0, 1:], np.array([0.2, 0.3]) / 0.8)
    expected = (np.array([0.4, 0.5, 0.6]) / 0.8 + 1) / 2
    np.testing.assert_allclose(mean_over_sizes(matrix), expected)


def test_a_missing_window_that_overlaps_others_leaves_their_mean() -> None:
    # Layers 2 and 3 are also in 1-2 and 3-4; a missing window must not count as an error of 0.
    errors = {tuple(window): 0.5 for window in all_windows(4) if window != (2, 3)} | {(1, 4): 1.0}
    np.testing.assert_allclose(error_matrix(table(errors))[1], 0.5)
    np.testing.assert_allclose(mean_over_sizes(error_matrix(table(errors))), (3 * 0.5 + 1) / 4)


def test_a_window_that_is_not_a_number_counts_like_a_missing_one() -> None:
    errors = table(THREE_LAYERS | {(1, 1): float("nan")})
    np.testing.assert_array_equal(error_matrix(errors), error_matrix(without((1, 1))))


@pytest.mark.parametrize("full", [0.0, float("nan")])
def test_without_an_error_of_the_full_window_there_are_no_weights(full: float) -> None:
    matrix = error_matrix(table(THREE_LAYERS | {(1, 3): full}))
    assert np.isnan(matrix).all()
    weights = mean_over_sizes(matrix)
    assert weights.shape == (3,)
    assert np.isnan(weights).all()
    assert centre_of_gravity(weights) is None


def test_errors_above_that_of_the_full_window_stay_above_1() -> None:
    matrix = error_matrix(table({(1, 1): 0.6, (2, 2): 0.1, (1, 2): 0.4}))
    np.testing.assert_allclose(matrix, [[1.5, 0.25], [1.0, 1.0]])
