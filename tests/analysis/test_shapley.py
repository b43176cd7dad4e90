from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from memloc.analysis.shapley import exact_shapley, sampled_shapley


def additive(sets: np.ndarray) -> np.ndarray:
    """Every layer adds its own worth, whatever else is changed."""
    return sets @ np.array([[0.5, 0.0], [0.25, 1.0], [0.25, -1.0], [0.0, 0.0]])


def glove(sets: np.ndarray) -> np.ndarray:
    """A pair of gloves is worth 1: layers 1 and 2 have left ones, 3 has the right one."""
    return ((sets[:, 0] | sets[:, 1]) & sets[:, 2]).astype(float)[:, None]


def random_game(n_layers: int, observations: int = 5):
    table = np.random.default_rng(0).random((2**n_layers, observations))

    def game(sets: np.ndarray) -> np.ndarray:
        return table[sets @ (2 ** np.arange(n_layers))]

    return game, table


def test_games_with_known_values() -> None:
    np.testing.assert_allclose(
        exact_shapley(additive, 4).values, [[0.5, 0], [0.25, 1], [0.25, -1], [0, 0]]
    )
    np.testing.assert_allclose(exact_shapley(glove, 3).values[:, 0], [1 / 6, 1 / 6, 4 / 6])


def test_the_exact_value_is_the_mean_over_all_orders() -> None:
    game, _ = random_game(4)
    gains = np.zeros((4, 5))
    for order in permutations(range(4)):
        members = np.zeros(4, dtype=bool)
        for layer in order:
            before = game(members[None])[0]
            members[layer] = True
            gains[layer] += game(members[None])[0] - before
    np.testing.assert_allclose(exact_shapley(game, 4).values, gains / 24)


@pytest.mark.parametrize("n_layers", [1, 4, 7])
def test_values_add_up_to_what_changing_all_layers_does(n_layers: int) -> None:
    game, table = random_game(n_layers)
    for found in (exact_shapley(game, n_layers), sampled_shapley(game, n_layers, 0.5, 8, 0)):
        np.testing.assert_allclose(found.values.sum(axis=0), table[-1] - table[0])


def test_samples_are_as_near_to_the_exact_values_as_they_say() -> None:
    game, _ = random_game(6)
    exact = exact_shapley(game, 6).mean
    found = [sampled_shapley(game, 6, 0.01, 2000, seed) for seed in range(20)]
    assert all(f.standard_error.max() <= 0.01 for f in found)
    errors = np.array([(f.mean - exact) / f.standard_error for f in found])
    assert np.mean(np.abs(errors) < 2) > 0.85  # 95% of a normal distribution
    assert np.abs(errors).max() < 5


def test_no_set_is_asked_for_twice_and_the_limit_holds() -> None:
    game, _ = random_game(5)
    asked: list[bytes] = []

    def watched(sets: np.ndarray) -> np.ndarray:
        asked.extend(row.tobytes() for row in sets)
        return game(sets)

    found = sampled_shapley(watched, 5, 1e-9, 60, 0)
    assert len(asked) == len(set(asked)) <= 32
    assert found.orders == 60
    assert found.standard_error.max() > 1e-9
