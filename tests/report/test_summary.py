from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from memloc.analysis.correlation import interval_of_share
from memloc.analysis.windows import (
    all_windows,
    centre_range,
    error_matrix,
    layer_table,
    layer_weights,
    window_tables,
)
from memloc.report.terminal import heat_map, profiles
from memloc.results.narrative import caveats, facts, interpret
from memloc.results.summary import sample_examples, summarise_techniques


def windows(n: int, error) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "technique": "swapping",
                "first_layer": w.first,
                "last_layer": w.last,
                "size": w.size,
                "noisy_error": float(error(w)),
                "clean_error": 0.0,
            }
            for w in all_windows(n)
        ]
    )


def methods(table: pd.DataFrame) -> dict:
    """As from a run: the weights of each seed beside its windows."""
    if "seed" not in table.columns:
        table = table.assign(seed=1)
    weights = [
        layer_weights("swapping", error_matrix(rows)).assign(seed=seed)
        for seed, rows in table.groupby("seed", sort=False)
    ]
    return summarise_techniques({"windows": table, "layers": pd.concat(weights)})


def summary(n: int, error) -> dict:
    return {"techniques": methods(windows(n, error)), "memorised_share": 1.0, "layers": n}


GOOD = {"memorised_share": 1.0, "clean_accuracy": 1.0, "noisy_examples": 50}


def test_sound_results_have_no_caveats() -> None:
    found = summary(4, lambda w: w.size / 4) | GOOD
    found["training"] = {"original_accuracy": 1.0}
    assert caveats(found) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"memorised_share": 0.6, "training": {"original_accuracy": 1.0}},
            "higher learning rate",
        ),
        ({"memorised_share": 0.6}, "check that the two models were not exchanged"),
        ({"training": {"original_accuracy": 0.5}}, "knows only 50%"),
        ({"noisy_examples": 6}, "noisy examples is only 6,"),
    ],
)
def test_results_that_mislead_come_with_a_caveat(change: dict, words: str) -> None:
    found = summary(4, lambda w: w.size / 4) | GOOD | change
    assert len(caveats(found)) == 1
    assert words in caveats(found)[0]


def test_a_seed_without_profile_does_not_blank_the_others() -> None:
    tables = [windows(3, lambda w: 0).assign(seed=2), windows(3, lambda w: 1 in w.layers).assign(seed=1)]  # fmt: skip  # noqa: E501
    result = methods(pd.concat(tables))["swapping"]
    assert result["m_cog_per_seed"][0] is None  # in the order of the seeds given
    assert result["m_cog"] == result["m_cog_per_seed"][1]
    assert None not in result["layer_weights"]


def test_sample_examples_go_from_easy_to_hard() -> None:
    table = pd.DataFrame(
        {
            "example": range(6),
            "memorised": [True, True, True, True, False, True],
            "smallest_window": pd.Series([3, 1, 2, 1, 1, None], dtype="Int64"),
            "first_layer": 1,
            "last_layer": 1,
            "text": "t",
            "label_name": "a",
            "original_label_name": "b",
        }
    )
    assert [e["example"] for e in sample_examples(table)] == [1, 3, 2, 0]
    assert [e["example"] for e in sample_examples(table, 2)] == [1, 0]
    assert sample_examples(table[table["example"] > 3]) == []


def test_seeds_are_averaged_and_kept() -> None:
    tables = [windows(3, lambda w, k=k: k in w.layers).assign(seed=k) for k in (1, 3)]
    result = methods(pd.concat(tables))["swapping"]
    assert result["m_cog"] == pytest.approx(np.mean(result["m_cog_per_seed"]))
    assert result["m_cog_per_seed"][0] < 2 < result["m_cog_per_seed"][1]


def printed(what: Any, colour: bool = False) -> list[str]:
    stream = io.StringIO()
    system = "truecolor" if colour else None
    Console(file=stream, width=80, force_terminal=colour, color_system=system).print(what)
    assert ("\x1b[" in stream.getvalue()) == colour
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("n", [6, 24])
def test_the_heat_map_fits_80_columns_at_any_depth(n: int) -> None:
    matrix = [[(size + layer) / (2 * n) for layer in range(n)] for size in range(n)]
    printed(heat_map(matrix, range(1, n + 1)), colour=True)
    lines = printed(heat_map(matrix, range(1, n + 1)))
    assert max(map(len, lines)) <= 78  # it is indented by two
    cells = -(-n // -(-n // 14))
    above = next(i for i, line in enumerate(lines) if line.startswith("layer"))
    rows = [line.removeprefix("size").split() for line in lines[above + 1 :]]
    assert [len(row) for row in rows] == [1 + cells] * cells  # so no two numbers touch
    result = {"layers": n, "layer_weights": [1 / n] * n, "m_cog": n / 2, "m_cog_spread": 0.1}
    result |= {"m_cog_range": [n / 2 - 2.11, n / 2 + 2.11], "m_cog_interval": [n - 1.1, n - 1.01]}
    bars = printed(
        profiles(dict.fromkeys(("swapping", "retraining", "gradients", "b", "c"), result))
    )
    assert max(map(len, bars)) <= 78
    assert len(bars) == n + 4


def test_nothing_is_said_of_window_sizes_that_were_not_tried() -> None:
    table = windows(6, lambda w: w.size / 6)
    only_two = methods(table[table["size"].isin([2, 6])])["swapping"]
    assert only_two["sizes_tried"] == [2, 6]
    assert only_two["smallest_window"]["at_least"] == 3
    assert facts({"techniques": {"swapping": only_two}}, "swapping")["smallest window for 95%"] == (
        "layers 1-6 (at least 3 layers)"
    )
    assert only_two["strongest_single_layer"] is None
    assert only_two["m_cog"] is not None
    up_to_two = methods(table[table["size"].isin([1, 2, 6])])["swapping"]
    assert up_to_two["smallest_window"]["at_least"] == 3
    np.testing.assert_allclose(up_to_two["undone_by_size_and_layer"][3], 4 / 6)
    assert up_to_two["strongest_single_layer"]["undoes"] == pytest.approx(1 / 6)


def test_rows_between_sizes_that_were_tried_have_no_colour_in_the_heat_map() -> None:
    matrix = [[size / 9] * 9 for size in range(1, 10)]
    lines = printed(heat_map(matrix, [1, 3, 6, 9]), colour=True)
    rows = {int(size): line for line in lines for size in re.findall(r"size +(\d+)", line)}
    assert {size for size, line in rows.items() if "48;2" in line} == {1, 3, 6, 9}
    assert any("between the sizes that were tried" in line for line in lines)


def test_the_headline_says_which_sizes_were_tried() -> None:
    table = windows(12, lambda w: float(w.size > 6))
    some = methods(table[table["size"].isin([1, 4, 8, 12])])["swapping"]
    summary = {"techniques": {"swapping": some}, "memorised_share": 1.0, "noisy_examples": 9}
    words = interpret(summary)
    assert words.startswith("Memorisation takes 5 to 8 neighbouring layers: swapping layers 1-8 ")
    assert "and no window of 1 or 4 layers 95%" in words


def test_the_clean_error_has_the_interval_of_its_examples() -> None:
    table = windows(3, lambda w: 1.0).assign(clean_error=0.25)
    layers = layer_weights("swapping", error_matrix(table))
    examples = pd.DataFrame(
        {
            "technique": "swapping",
            "example": [0],
            "memorised": [True],
            "smallest_window": pd.Series([1], dtype="Int64"),
            "label": [1],
        }
    )
    predictions = pd.DataFrame(
        {
            "technique": "swapping",
            "first_layer": 1,
            "last_layer": 3,
            "example": range(9),
            "predicted": 0,
            "seed": 0,
        }
    )
    tables = {
        "windows": table,
        "layers": layers,
        "predictions": predictions,
        "examples": examples.assign(seed=0),
    }
    found = summarise_techniques(tables)["swapping"]
    assert found["clean_error_interval"] == pytest.approx(interval_of_share([1, 1, *[0] * 6]))


def test_what_is_undone_is_measured_from_what_the_model_knew() -> None:
    """θ_M gives 8 of 10 labels, layer 2 takes 4 of them away, the others nothing."""
    table = windows(3, lambda w: 0.6 if 2 in w.layers else 0.2)
    examples = pd.DataFrame(
        {
            "technique": "swapping",
            "memorised": [True] * 8 + [False] * 2,
            "smallest_window": pd.Series([1] * 4 + [None] * 6, dtype="Int64"),
        }
    )
    layers = layer_weights("swapping", error_matrix(table))
    found = summarise_techniques({"windows": table, "layers": layers, "examples": examples})
    result = found["swapping"]
    assert result["undone"] == pytest.approx(0.4)
    assert result["undone_by_size_and_layer"][0] == pytest.approx([0, 1, 0])
    assert result["error_by_size_and_layer"][0] == pytest.approx([1 / 3, 1, 1 / 3])  # as published
    assert result["full_error"] == pytest.approx(0.6)
    assert result["strongest_single_layer"] == {"layer": 2, "undoes": pytest.approx(1.0)}
    where = {"first_layer": 2, "last_layer": 2, "undoes": 1.0, "at_least": 1}
    assert result["smallest_window"] == where
    assert [one["undoes"] for one in result["outside"]] == pytest.approx([0, 0])


def test_two_equal_models_undo_nothing() -> None:
    table = windows(3, lambda w: 0.2)
    examples = pd.DataFrame({"technique": "swapping", "memorised": [True] * 8 + [False] * 2})
    examples["smallest_window"] = pd.Series([None] * 10, dtype="Int64")
    layers = layer_weights("swapping", error_matrix(table))
    result = summarise_techniques({"windows": table, "layers": layers, "examples": examples})
    assert result["swapping"]["undone"] == pytest.approx(0)
    assert result["swapping"]["smallest_window"] is None
    assert result["swapping"]["strongest_single_layer"] is None


def test_the_smallest_window_that_undoes_nearly_all_is_named_with_what_lies_outside() -> None:
    """Labels are lost if layers 2 and 3 are both changed; layer 5 undoes a tenth of them."""
    error = {(True, True): 1.0, (True, False): 1.0, (False, True): 0.1, (False, False): 0.0}
    found = methods(windows(6, lambda w: error[{2, 3} <= {*w.layers}, 5 in w.layers]))["swapping"]
    where = {"first_layer": 2, "last_layer": 3, "undoes": 1.0, "at_least": 2}
    assert found["smallest_window"] == where
    assert found["outside"] == [
        {"first_layer": 1, "last_layer": 1, "undoes": 0.0},
        {"first_layer": 4, "last_layer": 6, "undoes": 0.1},
    ]


def test_the_full_window_s_clean_error_stands_beside_the_mean() -> None:
    table = windows(4, lambda w: 1 in w.layers)
    table["clean_error"] = table["size"].eq(4) * 0.2
    found = methods(table)["swapping"]
    assert found["full_clean_error"] == 0.2
    assert found["clean_error"] == pytest.approx(0.02)


def test_the_centre_has_a_range_and_an_interval_from_single_examples() -> None:
    """A fifth of the examples is in layer 3 of 3, the others are in layer 1."""
    examples = pd.DataFrame({"example": range(30), "label": 0, "noisy": True})
    held = np.where(np.arange(30) < 6, 3, 1)
    spans = all_windows(3)
    predicted = np.array([[int(layer in w.layers) for layer in held] for w in spans])
    tables = window_tables("swapping", spans, predicted, np.zeros(30, int), examples)
    tables["examples"] = tables["examples"].merge(examples[["example", "label"]], on="example")
    result = summarise_techniques(tables)["swapping"]
    low, high = result["m_cog_interval"]
    assert low < result["m_cog"] < high < 2
    assert result["m_cog_range"] == pytest.approx(list(centre_range(spans)))
    assert result["m_cog_range"][0] < low
    several = {name: pd.concat([t.assign(seed=k) for k in (1, 2)]) for name, t in tables.items()}
    again = summarise_techniques(several)["swapping"]
    assert again["m_cog_interval"] == pytest.approx([low, high])


def test_without_single_examples_the_interval_is_over_three_seeds() -> None:
    weights = {1: [3.0, 2.0, 1.0], 2: [3.0, 1.0, 1.0], 3: [2.0, 2.0, 1.0]}
    layers = pd.concat(layer_table("g", np.array(w)).assign(seed=k) for k, w in weights.items())
    result = summarise_techniques({"layers": layers})["g"]
    low, high = result["m_cog_interval"]
    assert 1 <= low < result["m_cog"] < high <= 3
    assert result["m_cog_range"] == [1, 3]
    two = summarise_techniques({"layers": layers[layers["seed"] < 3]})["g"]
    assert two["m_cog_interval"] is None
