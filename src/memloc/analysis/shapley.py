"""Shapley values of a game between layers.

The value v(S) of a set of layers is what happens if just these are changed. The Shapley value of a
layer is what it adds to the layers before it, averaged over all orders of the layers:

    φ_i = mean over orders of  v(before i ∪ {i}) − v(before i)

The values add up to v(all) − v(none). With few layers all sets are looked at; otherwise orders are
drawn, each with its reverse, until the standard error is small enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial

import numpy as np

Game = Callable[[np.ndarray], np.ndarray]
"""From sets [sets, layers] of booleans to values [sets, observations]."""
PAIRS_PER_ROUND = 8
"""Orders drawn between two looks at the standard error, each with its reverse."""


@dataclass(frozen=True)
class ShapleyValues:
    """Values of every layer."""

    values: np.ndarray
    """[layers, observations]."""
    standard_error: np.ndarray
    """[layers] of the mean over observations; 0 if all sets were looked at."""
    orders: int
    """Drawn; 0 if all sets were looked at."""

    @property
    def mean(self) -> np.ndarray:
        """[layers] over the observations."""
        mean: np.ndarray = self.values.mean(axis=1)
        return mean


def exact_shapley(game: Game, n_layers: int) -> ShapleyValues:
    """From all 2^L sets."""
    sets = (np.arange(2**n_layers)[:, None] >> np.arange(n_layers)) % 2 == 1
    found = game(sets)
    sizes = sets.sum(axis=1)
    weights = np.array(
        [factorial(k) * factorial(n_layers - k - 1) / factorial(n_layers) for k in range(n_layers)]
    )
    values = np.empty((n_layers, found.shape[1]))
    for layer in range(n_layers):
        without = np.flatnonzero(~sets[:, layer])
        gain = found[without + 2**layer] - found[without]
        values[layer] = weights[sizes[without]] @ gain
    return ShapleyValues(values, np.zeros(n_layers), 0)


def sampled_shapley(
    game: Game,
    n_layers: int,
    standard_error: float,
    most_orders: int,
    seed: int,
    report: Callable[[float], None] = lambda _: None,
) -> ShapleyValues:
    """From random orders, until the standard error of every layer is small enough.

    No set is asked for twice. The standard error is that of the mean over observations.
    """
    random = np.random.default_rng(seed)
    known: dict[bytes, np.ndarray] = {}
    total: np.ndarray | None = None
    pair_means: list[np.ndarray] = []
    error = np.full(n_layers, np.inf)
    while 2 * len(pair_means) < most_orders:
        room = (most_orders + 1) // 2 - len(pair_means)
        orders = [random.permutation(n_layers) for _ in range(min(PAIRS_PER_ROUND, room))]
        pairs = [(order, order[::-1]) for order in orders]
        _learn(game, known, [_growing(order) for pair in pairs for order in pair])
        for pair in pairs:
            gains = (_gains(known, pair[0]) + _gains(known, pair[1])) / 2
            total = gains if total is None else total + gains
            pair_means.append(gains.mean(axis=1))
        error = np.std(pair_means, axis=0, ddof=1) / np.sqrt(len(pair_means))
        worst = float(error.max())
        report(min(1.0, (standard_error / worst) ** 2) if worst > 0 else 1.0)
        if worst <= standard_error:
            break
    assert total is not None
    return ShapleyValues(total / len(pair_means), error, 2 * len(pair_means))


def _growing(order: np.ndarray) -> np.ndarray:
    """The sets [L + 1, L] that an order goes through, from none to all."""
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    grown: np.ndarray = place[None, :] < np.arange(len(order) + 1)[:, None]
    return grown


def _learn(game: Game, known: dict[bytes, np.ndarray], chains: list[np.ndarray]) -> None:
    wanted = {row.tobytes(): row for chain in chains for row in chain}
    unknown = {key: row for key, row in wanted.items() if key not in known}
    if unknown:
        known |= dict(zip(unknown, game(np.stack(list(unknown.values()))), strict=True))


def _gains(known: dict[bytes, np.ndarray], order: np.ndarray) -> np.ndarray:
    """What each layer adds [layers, observations] when layers join in an order."""
    values = np.stack([known[row.tobytes()] for row in _growing(order)])
    gains = np.empty((len(order), values.shape[1]))
    gains[order] = np.diff(values, axis=0)
    return gains
