from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from memloc.analysis.windows import all_windows
from memloc.report.summary import interpret, summarise_methods
from memloc.report.terminal import heat_map, weight_bars


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


NO_EXAMPLES = pd.DataFrame({"technique": [], "memorised": [], "smallest_window": []})


def summary(n: int, error) -> dict:
    return {"methods": summarise_methods(windows(n, error), NO_EXAMPLES)}


def test_memorisation_in_one_layer_is_said_so() -> None:
    found = summary(6, lambda w: 2 in w.layers)
    assert found["methods"]["swapping"]["layers_to_undo"] == 1
    assert interpret(found).startswith(
        "Memorisation sits in layer 2: changing it alone undoes 100%"
    )


def test_spread_memorisation_is_said_so() -> None:
    found = summary(6, lambda w: sum(7 - layer for layer in w.layers) / 21)
    text = interpret(found)
    assert "spread over the layers" in text
    assert "lower layers matter more" in text
    upper = interpret(summary(6, lambda w: sum(layer for layer in w.layers) / 21))
    assert "upper layers matter more" in upper
    even = interpret(summary(6, lambda w: w.size / 6))
    assert "all parts matter alike" in even


def test_nothing_to_localise_is_said_so() -> None:
    found = summary(4, lambda w: 0)
    assert found["methods"]["swapping"]["m_cog"] is None
    assert interpret(found).startswith("Nothing to localise")


def test_a_model_that_did_not_memorise_gets_a_warning() -> None:
    found = summary(4, lambda w: w.size / 4)
    found["training"] = {"noisy_accuracy": 0.6}
    assert "memorised only 60%" in interpret(found)


def test_seeds_are_averaged_and_kept() -> None:
    tables = [windows(3, lambda w, k=k: k in w.layers).assign(seed=k) for k in (1, 3)]
    result = summarise_methods(pd.concat(tables), NO_EXAMPLES)["swapping"]
    assert result["m_cog"] == pytest.approx(np.mean(result["m_cog_per_seed"]))
    assert result["m_cog_per_seed"][0] < 2 < result["m_cog_per_seed"][1]


@pytest.mark.parametrize("n", [1, 2, 6, 12, 16, 24, 48])
@pytest.mark.parametrize("colour", [True, False])
def test_the_heat_map_fits_80_columns_at_any_depth(n: int, colour: bool) -> None:
    matrix = [[(size + layer) / (2 * n) for layer in range(n)] for size in range(n)]
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=colour, color_system="truecolor" if colour else None)  # fmt: skip  # noqa: E501
    console.print(heat_map(matrix))
    console.print(weight_bars([1 / n] * n))
    lines = stream.getvalue().splitlines()
    assert ("\x1b[" in stream.getvalue()) == colour
    if not colour:
        assert max(map(len, lines)) <= 78
        assert len(lines) == 2 * n + 1
