"""accuracy@k, and which layers a specification means."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memloc.analysis.control import accuracy_at, accuracy_table, hidden_layers, score
from memloc.errors import ConfigError
from memloc.techniques.gradients import Gradients, gradient_choices


def plainly(weights: list[float], hidden: set[int], k: int) -> float:
    """Mean over all orders of the layers that sort the weights, so over all ways to break ties."""
    k = min(k, len(weights))
    layers = range(1, len(weights) + 1)
    shares = [
        sum(layer in hidden for layer in order[:k]) / k
        for order in itertools.permutations(layers)
        if all(weights[a - 1] >= weights[b - 1] for a, b in itertools.pairwise(order))
    ]
    return sum(shares) / len(shares)


@pytest.mark.parametrize(
    ("weights", "hidden", "k", "expected"),
    [
        ([0.9, 0.8, 0.1, 0.2], (1, 2), 1, 1.0),
        ([0.9, 0.8, 0.1, 0.2], (1, 2), 2, 1.0),
        ([0.9, 0.1, 0.8, 0.2], (1, 2), 2, 0.5),
        ([0.9, 0.1, 0.8, 0.2], (2, 4), 1, 0.0),
        ([0, 0, 0, 0], (1, 2), 1, 0.5),  # nothing found is as good as chance
        ([1, 1, 1, 0], (1, 2), 2, 2 / 3),
        ([3, 1], (2,), 2, 0.5),
        ([3.0, math.nan, 1.0], (1,), 1, math.nan),
    ],
)
def test_accuracy_at_k(weights: list[float], hidden: tuple[int, ...], k: int, expected) -> None:
    assert accuracy_at(weights, hidden, k) == pytest.approx(expected, nan_ok=True)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.sets(st.integers(1, 6), min_size=1),
    st.integers(1, 3),
)
def test_ties_are_broken_in_all_ways_alike(weights: list[int], hidden: set[int], k: int) -> None:
    values = [float(weight) for weight in weights]
    assert accuracy_at(values, hidden, k) == pytest.approx(plainly(values, hidden, k))


@pytest.mark.parametrize(
    ("spec", "n_layers", "expected"),
    [
        ("first", 12, (1, 2)), ("middle", 12, (6, 7)), ("last", 12, (11, 12)),
        ("middle", 6, (3, 4)), ("middle", 5, (2, 3)), ("last", 3, (2, 3)),
        ("7+6", 12, (6, 7)), ("3", 4, (3,)), ("1+3+5", 24, (1, 3, 5)),
    ],
)  # fmt: skip
def test_layers_are_named_or_numbered(spec: str, n_layers: int, expected) -> None:
    assert hidden_layers(spec, n_layers, "m") == expected


@pytest.mark.parametrize(
    ("spec", "n_layers", "words"),
    [
        ("7+8", 6, "'7+8' is not possible: 'm' has layers 1 to 6"),
        ("1+2", 2, "leaves nothing to find"),
        ("first", 2, "at least 3"),
        ("bottom", 6, "neither first, middle or last"),
        ("1+", 6, "neither first, middle or last"),
    ],
)
def test_layers_that_are_not_there_are_named(spec: str, n_layers: int, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        hidden_layers(spec, n_layers, "m")
    assert words in str(error.value)


def weights_table(profiles: dict[tuple[str, str, str, int], list[float]]) -> pd.DataFrame:
    """By task, hidden layers, technique and seed."""
    return pd.DataFrame(
        [
            ("minilm", len(weights), task, hidden, seed, technique, layer, weight)
            for (task, hidden, technique, seed), weights in profiles.items()
            for layer, weight in enumerate(weights, start=1)
        ],
        columns=[
            *("model", "n_layers", "task", "hidden", "seed", "technique", "layer", "weight"),
        ],
    )


def test_scores_are_means_over_cells_with_intervals_and_chance() -> None:
    right, half = [0.9, 0.8, 0.1, 0.0], [0.9, 0.0, 0.8, 0.1]
    profiles = {
        (task, "1+2", technique, 1): weights
        for task in "abcd"
        for technique, weights in (("swapping", right), ("probing", half))
    }
    profiles["d", "1+2", "probing", 1] = right
    table = accuracy_table(weights_table(profiles))
    found = score(table, "technique").set_index(["technique", "k"])
    assert found.loc[("swapping", 2), "accuracy"] == 1.0
    assert found.loc[("probing", 1), "accuracy"] == 1.0
    assert found.loc[("probing", 2), "accuracy"] == pytest.approx((3 * 0.5 + 1) / 4)
    low, high = found.loc[("probing", 2), ["low", "high"]]
    assert 0.1 < low < 0.625 < high < 1.0
    assert set(found["chance"]) == {0.5}
    assert set(found["n"]) == {4}
    by_task = score(table, "task", ["probing"]).set_index(["task", "k"])
    assert by_task.loc[("a", 2), "accuracy"] == 0.5
    assert math.isnan(by_task.loc[("a", 2), "low"])  # one unit has no interval
    assert by_task.loc[("d", 2), "accuracy"] == 1.0


def test_gradients_are_scored_under_every_kind_of_post_processing() -> None:
    norms = {
        ("near_ceiling", "noisy"): [1.0, 2.0, 4.0],
        ("near_ceiling", "difference"): [3.0, 2.0, 4.0],
        ("near_ceiling", "clean"): [1.0, 1.0, 1.0],
        ("frozen", "noisy"): [0.1, 1.0, 8.0],
        ("frozen", "difference"): [1.0, 1.0, 8.0],
        ("frozen", "clean"): [1.0, 1.0, 1.0],
    }
    table = pd.DataFrame(
        [
            ("minilm", 3, "a", "1+2", 1, state, gradient, kind, layer, norm)
            for (state, gradient), values in norms.items()
            for kind in ("L1", "L2")
            # By L2 every layer is alike, so accuracy is chance.
            for layer, norm in enumerate(values if kind == "L1" else [1.0] * 3, start=1)
        ],
        columns=[
            *("model", "n_layers", "task", "hidden", "seed", "state", "gradient", "kind"),
            *("layer", "norm"),
        ],
    )
    found = pd.DataFrame(
        Gradients.summarise_benchmark(Gradients.benchmark({"gradients": table}))["gradient_choices"]
    )
    accuracy = found.set_index(["norm", "subtract_clean", "divide_by_frozen"])["accuracy"]
    assert accuracy["L1", False, False] == 0.5  # layers 3 and 2
    assert accuracy["L1", False, True] == 1.0  # 10, 2, .5: layers 1 and 2
    assert accuracy["L1", True, False] == 0.5  # layers 3 and 1
    assert accuracy["L1", True, True] == 1.0  # 3, 2, .5
    assert np.allclose(accuracy["L2"].to_numpy(), 2 / 3)
    assert len(gradient_choices(table[table["state"] != "frozen"])) == 2 * 2 * 2
