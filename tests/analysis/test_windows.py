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
    window_tables,
)
from memloc.errors import ConfigError


def test_there_are_78_windows_of_12_layers() -> None:
    windows = all_windows(12)
    assert len(windows) == len(set(windows)) == 78
    assert windows[0] == (1, 1)
    assert windows[-1] == (1, 12)


def test_errors_count_examples_not_predicted_as_their_training_label() -> None:
    labels = np.array([0, 1, 1, 2])
    noisy = np.array([True, True, False, False])
    predicted = np.array([[0, 1, 1, 2], [2, 1, 1, 0]])
    examples = pd.DataFrame({"example": range(4), "label": labels, "noisy": noisy})
    windows = (Window(1, 1), Window(1, 2))
    table = window_tables("t", windows, predicted, labels, examples)["windows"]
    assert table["noisy_error"].tolist() == [0.0, 0.5]
    assert table["clean_error"].tolist() == [0.0, 0.5]


def test_the_matrix_is_the_mean_over_windows_that_contain_the_layer() -> None:
    matrix = error_matrix(without())
    expected = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.8, 0.8, 0.8]]) / 0.8
    np.testing.assert_allclose(matrix, expected)
    weights = layer_weights("t", matrix)
    assert weights["layer"].tolist() == [1, 2, 3]
    np.testing.assert_allclose(weights["weight"], expected.mean(axis=0))
    w = expected.mean(axis=0)
    assert centre_of_gravity(w) == pytest.approx((w[0] + 2 * w[1] + 3 * w[2]) / w.sum())


def test_the_smallest_window_that_undoes_an_example_is_found() -> None:
    windows = all_windows(2)  # (1,1) (2,2) (1,2)
    labels = np.array([1, 1, 1, 1])
    predicted = np.array([[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 0]])
    unmodified = np.array([1, 1, 1, 0])
    examples = pd.DataFrame({"example": [5, 6, 7, 8], "label": labels, "noisy": True})
    table = window_tables("t", windows, predicted, unmodified, examples)["examples"]
    assert table["memorised"].tolist() == [True, True, True, False]
    assert table["smallest_window"].astype(object).where(table["smallest_window"].notna(), None).tolist() == [1, 2, None, None]  # fmt: skip  # noqa: E501
    assert table.loc[0, "first_layer"] == 2
    assert (table.loc[1, "first_layer"], table.loc[1, "last_layer"]) == (1, 2)


def table(errors: dict[tuple[int, int], float]) -> pd.DataFrame:
    rows = [(first, last, last - first + 1, error) for (first, last), error in errors.items()]
    return pd.DataFrame(rows, columns=["first_layer", "last_layer", "size", "noisy_error"])


THREE_LAYERS = {(1, 1): 0.1, (2, 2): 0.2, (3, 3): 0.3, (1, 2): 0.4, (2, 3): 0.6, (1, 3): 0.8}
"""Errors of all windows of a model with three layers."""


def without(*windows: tuple[int, int]) -> pd.DataFrame:
    return table({w: error for w, error in THREE_LAYERS.items() if w not in windows})


def test_chosen_sizes_bring_the_full_window_along() -> None:
    assert chosen_windows(4, (1,)) == ((1, 1), (2, 2), (3, 3), (4, 4), (1, 4))
    assert chosen_windows(4, (3,)) == (Window(1, 3), Window(2, 4), Window(1, 4))
    assert chosen_windows(4, (4,)) == (Window(1, 4),)
    assert chosen_windows(1, (1,)) == (Window(1, 1),)


@pytest.mark.parametrize("size", [0, -1, 5])
def test_a_size_that_the_model_does_not_have_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=rf"windows.sizes {size} is not possible.* 1 to 4 "):
        chosen_windows(4, (1, size))


def test_weights_are_means_over_the_sizes_that_there_are() -> None:
    matrix = error_matrix(without((1, 2), (2, 3)))
    expected = (np.array([0.1, 0.2, 0.3]) / 0.8 + 1) / 2
    np.testing.assert_allclose(mean_over_sizes(matrix), expected)
    np.testing.assert_allclose(layer_weights("t", matrix)["weight"], expected)


def test_a_size_counts_only_if_every_layer_has_a_window_of_it() -> None:
    # Without window 1-1, the mean over single layers would favour the layers that have one.
    matrix = error_matrix(without((1, 1)))
    assert np.isnan(matrix[0, 0])
    np.testing.assert_allclose(matrix[0, 1:], np.array([0.2, 0.3]) / 0.8)
    expected = (np.array([0.4, 0.5, 0.6]) / 0.8 + 1) / 2
    np.testing.assert_allclose(mean_over_sizes(matrix), expected)
