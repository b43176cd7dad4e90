from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from memloc.analysis.windows import (
    Window,
    all_windows,
    centre_of_gravity,
    error_matrix,
    error_table,
    layer_weights,
    undoing_table,
)


def test_there_are_78_windows_of_12_layers() -> None:
    windows = all_windows(12)
    assert len(windows) == len(set(windows)) == 78
    assert windows[0] == (1, 1)
    assert windows[-1] == (1, 12)


def test_errors_count_examples_not_predicted_as_their_training_label() -> None:
    labels = np.array([0, 1, 1, 2])
    noisy = np.array([True, True, False, False])
    predicted = np.array([[0, 1, 1, 2], [2, 1, 1, 0]])
    table = error_table("t", (Window(1, 1), Window(1, 2)), predicted, labels, noisy)
    assert table["noisy_error"].tolist() == [0.0, 0.5]
    assert table["clean_error"].tolist() == [0.0, 0.5]


def test_the_matrix_is_the_mean_over_windows_that_contain_the_layer() -> None:
    # Three layers; errors by hand: single 1: .1, 2: .2, 3: .3; pairs 12: .4, 23: .6; all: .8.
    windows = pd.DataFrame(
        [(1, 1, 0.1), (2, 2, 0.2), (3, 3, 0.3), (1, 2, 0.4), (2, 3, 0.6), (1, 3, 0.8)],
        columns=["first_layer", "last_layer", "noisy_error"],
    )
    windows["size"] = windows["last_layer"] - windows["first_layer"] + 1
    matrix = error_matrix(windows)
    expected = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.8, 0.8, 0.8]]) / 0.8
    np.testing.assert_allclose(matrix, expected)
    weights = layer_weights("t", matrix)
    assert weights["layer"].tolist() == [1, 2, 3]
    np.testing.assert_allclose(weights["weight"], expected.mean(axis=0))
    w = expected.mean(axis=0)
    assert centre_of_gravity(w) == pytest.approx((w[0] + 2 * w[1] + 3 * w[2]) / w.sum())


def test_without_any_error_there_is_no_centre() -> None:
    windows = pd.DataFrame(
        {"first_layer": [1, 2, 1], "last_layer": [1, 2, 2], "size": [1, 1, 2], "noisy_error": 0.0}
    )
    assert np.isnan(error_matrix(windows)).all()
    assert centre_of_gravity(error_matrix(windows).mean(axis=0)) is None


def test_the_smallest_window_that_undoes_an_example_is_found() -> None:
    windows = all_windows(2)  # (1,1) (2,2) (1,2)
    labels = np.array([1, 1, 1, 1])
    predicted = np.array([[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 0]])
    unmodified = np.array([1, 1, 1, 0])
    table = undoing_table("t", windows, predicted, unmodified, labels, np.array([5, 6, 7, 8]))
    assert table["memorised"].tolist() == [True, True, True, False]
    assert table["smallest_window"].astype(object).where(table["smallest_window"].notna(), None).tolist() == [1, 2, None, None]  # fmt: skip  # noqa: E501
    assert table.loc[0, "first_layer"] == 2
    assert (table.loc[1, "first_layer"], table.loc[1, "last_layer"]) == (1, 2)
