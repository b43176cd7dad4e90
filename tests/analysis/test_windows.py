from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement

import numpy as np
import pandas as pd
import pytest

from memloc.analysis.windows import (
    Window,
    all_windows,
    centre_interval,
    centre_of_gravity,
    centre_range,
    chosen_sizes,
    chosen_windows,
    error_matrix,
    interpolated,
    interval_over_seeds,
    layer_weights,
    sizes_tried,
    window_tables,
)
from memloc.config import WindowSizes
from memloc.errors import ConfigError
from tests.oracles.windows import interpolate_plainly


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


def test_auto_tries_five_sizes_in_deep_models_and_all_in_others() -> None:
    assert chosen_sizes(12, "auto") == (1, 4, 7, 10, 12)
    assert chosen_sizes(24, "auto") == (1, 7, 13, 19, 24)
    assert chosen_sizes(9, "auto") == (1, 3, 6, 8, 9)
    for n in range(9, 100):
        assert len({*chosen_sizes(n, "auto")}) == 5
    assert chosen_sizes(8, "auto") == chosen_sizes(8, "all") == tuple(range(1, 9))
    assert chosen_windows(12, "all") == all_windows(12)
    assert len(chosen_windows(12, "auto")) == 12 + 9 + 6 + 3 + 1


def test_sizes_that_were_not_tried_lie_between_those_that_were() -> None:
    matrix = error_matrix(without((1, 2), (2, 3)))
    single = np.array([0.1, 0.2, 0.3]) / 0.8
    assert sizes_tried(matrix).tolist() == [1, 3]
    expected = np.array([single, (single + 1) / 2, np.ones(3)])
    np.testing.assert_allclose(interpolated(matrix), expected)
    np.testing.assert_allclose(layer_weights("t", matrix)["weight"], expected.mean(axis=0))


@pytest.mark.parametrize("sizes", [(1, 4), (3, 5), (2, 5, 9), (7,)])
def test_rows_between_are_those_of_the_oracle(sizes: tuple[int, ...]) -> None:
    n = 10
    random = np.random.default_rng(3)
    rows = {tuple(window): random.random() for window in chosen_windows(n, sizes)}
    matrix = error_matrix(table(rows))
    plainly = interpolate_plainly([None if np.isnan(row).any() else list(row) for row in matrix])
    np.testing.assert_allclose(interpolated(matrix), plainly)


def test_nothing_lies_between_sizes_of_which_none_is_known() -> None:
    matrix = np.full((3, 3), np.nan)
    assert np.isnan(interpolated(matrix)).all()
    assert not len(sizes_tried(matrix))


def test_a_size_counts_only_if_every_layer_has_a_window_of_it() -> None:
    # Without window 1-1, the mean over single layers would favour the layers that have one.
    matrix = error_matrix(without((1, 1)))
    assert np.isnan(matrix[0, 0])
    np.testing.assert_allclose(matrix[0, 1:], np.array([0.2, 0.3]) / 0.8)
    two = np.array([0.4, 0.5, 0.6]) / 0.8
    np.testing.assert_allclose(interpolated(matrix), [two / 2, two, np.ones(3)])


# --- where a centre of gravity can lie ---------------------------------------------------------


def centre_by_definition(windows: Sequence[Window], errors: Sequence[float]) -> float:
    """By way of the matrix and the weights."""
    first, last = np.array(windows).T
    columns = {"first_layer": first, "last_layer": last, "size": last - first + 1}
    table = pd.DataFrame({**columns, "noisy_error": np.asarray(errors, dtype=float)})
    centre = centre_of_gravity(interpolated(error_matrix(table)).mean(axis=0))
    assert centre is not None
    return centre


def every_centre(windows: Sequence[Window]) -> list[float]:
    """Of every way in which larger windows undo at least what smaller ones inside them undo.

    A centre is a quotient of sums, so its extremes are among errors of 0 and 1.
    """
    n = max(window.last for window in windows)
    found = []
    # The smallest last layer that it takes from each first layer on; n + 1: no window is enough.
    for ends in combinations_with_replacement(range(1, n + 2), n):
        errors = [window.last >= ends[window.first - 1] for window in windows]
        if errors[windows.index(Window(1, n))]:
            found.append(centre_by_definition(windows, errors))
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 4, pytest.param(5, marks=pytest.mark.slow)])
def test_the_range_of_the_centre_is_that_of_all_possible_errors(n: int) -> None:
    chosen: list[WindowSizes] = ["all"]
    chosen += [sizes for k in range(1, n) for sizes in combinations(range(1, n), k)]
    for sizes in chosen:
        windows = chosen_windows(n, sizes)
        centres = every_centre(windows)
        assert centre_range(windows) == pytest.approx((min(centres), max(centres)))


def test_windows_that_failed_change_the_range() -> None:
    windows = [window for window in all_windows(5) if window not in {(1, 1), (2, 3)}]
    centres = every_centre(windows)
    assert centre_range(windows) == pytest.approx((min(centres), max(centres)))
    assert sum(centre_range(windows)) != pytest.approx(6)  # the middle is no longer its middle


@pytest.mark.parametrize(("n", "low"), [(6, 2.5376), (12, 4.2930)])
def test_with_all_windows_the_ends_are_what_the_first_and_the_last_layer_give(
    n: int, low: float
) -> None:
    windows = all_windows(n)
    lowest = centre_by_definition(windows, [window.first == 1 for window in windows])
    assert centre_range(windows) == pytest.approx((lowest, n + 1 - lowest))
    assert lowest == pytest.approx(low, abs=1e-4)


def outcomes(random: np.random.Generator, examples: int, seeds: int = 1) -> list[np.ndarray]:
    """Each example is in one layer, mostly a low one, and a bit of chance."""
    layers = random.choice([1, 2, 3, 4], size=examples, p=[0.4, 0.3, 0.2, 0.1])
    inside = np.array([[layer in w.layers for layer in layers] for w in all_windows(4)])
    return [inside ^ (random.random(inside.shape) < 0.1) for _ in range(seeds)]


def test_the_interval_of_the_centre_is_that_of_a_plain_bootstrap() -> None:
    windows = all_windows(4)
    (wrong,) = outcomes(np.random.default_rng(1), 40)
    found = centre_interval([windows], [wrong])
    assert found == centre_interval([windows], [wrong])
    random = np.random.default_rng(2)
    plain = [
        centre_by_definition(windows, wrong[:, random.integers(40, size=40)].mean(axis=1))
        for _ in range(1000)
    ]
    assert found == pytest.approx(tuple(np.quantile(plain, [0.025, 0.975])), abs=0.02)
    assert found[0] < centre_by_definition(windows, wrong.mean(axis=1)) < found[1]


def test_the_interval_of_the_centre_covers_that_of_all_examples() -> None:
    random, windows, covered = np.random.default_rng(3), all_windows(4), 0
    (everybody,) = outcomes(random, 20_000)
    truth = centre_by_definition(windows, everybody.mean(axis=1))
    for _ in range(100):
        some = everybody[:, random.choice(20_000, size=60, replace=False)]
        low, high = centre_interval([windows], [some]) or (9.0, 9.0)
        covered += low <= truth <= high
    assert 88 <= covered <= 99


def test_more_seeds_of_the_same_examples_do_not_narrow_the_interval() -> None:
    windows = all_windows(4)
    (one,) = outcomes(np.random.default_rng(4), 50)
    alone = centre_interval([windows], [one])
    together = centre_interval([windows] * 5, [one] * 5)
    assert alone == pytest.approx(together)


def test_too_few_examples_or_seeds_have_no_interval() -> None:
    windows = all_windows(4)
    (wrong,) = outcomes(np.random.default_rng(5), 3)
    assert centre_interval([windows], [wrong]) is None
    assert centre_interval([windows], [np.zeros((10, 9), dtype=bool)]) is None
    assert interval_over_seeds([3.1, 3.2]) is None
    assert interval_over_seeds([3.0, 3.1, 3.2]) == pytest.approx((2.8516, 3.3484), abs=1e-4)
