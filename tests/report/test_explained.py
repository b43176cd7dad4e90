from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from memloc.analysis.centroids import (
    Positions,
    centroid_events,
    crossing_table,
    event_table,
    summary_table,
)
from memloc.report.terminal import show_explanation
from memloc.results.summary import summarise_explanation
from memloc.techniques.centroids import Centroids


def tables(*seeds: dict[str, list[float]]) -> dict[str, pd.DataFrame]:
    """Tables of runs in which all noisy examples have the given position in every layer."""
    parts: dict[str, list[pd.DataFrame]] = {}
    for seed, models in enumerate(seeds, start=1):
        for model, path in models.items():
            n_layers = len(path)
            spread = np.linspace(0.6, 0.05, n_layers)[:, None]
            # Below layer 2 the classes overlap.
            clean = np.linspace(-1, 1, 17)[None, :] * np.where(spread > 0.55, 0.8, spread)
            found = Positions(np.repeat(np.array(path)[:, None], 5, axis=1), clean, 1 + clean)
            table = summary_table(model, found)
            parts.setdefault("centroids", []).append(table.assign(seed=seed))
            events = event_table(model, centroid_events(table))
            parts.setdefault("events", []).append(events.assign(seed=seed))
            if model == "memorised":
                crossings = crossing_table(found, np.arange(5))
                parts.setdefault("crossings", []).append(crossings.assign(seed=seed))
    pairs = pd.DataFrame(
        {"label": [0, 1], "original_label": [1, 0], "noisy": [5, 0], "used": [True, False]}
    )
    return {name: pd.concat(part) for name, part in parts.items()} | {"pairs": pairs}


GRADUAL = {
    "memorised": [0.9, 0.7, 0.4, 0.1],
    "bottom_swapped": [0.9, 1.0, 0.9, 0.9],
    "top_swapped": [0.9, 0.7, 0.4, 0.3],
}


def words(found: dict[str, pd.DataFrame]) -> str:
    return " ".join(Centroids.sentences(summarise_explanation(found)))


def test_words_say_where_examples_cross_and_which_half_prevents_it() -> None:
    said = words(tables(GRADUAL))
    assert "nearer to their new class than to the old one in layer 3" in said
    assert "classes are apart from layer 2 on" in said
    assert "Swapping the bottom half prevents it, swapping the top half does not." in said
    # Steps .2 .3 .3: the largest is 38% of the way.
    assert (
        "the largest step of a typical one is 38% of its way (evenly spread it would be 33%)"
        in said
    )
    assert "0% go more than half of it in one layer" in said


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((0.9, 0.9), "Swapping either half of the layers prevents it."),
        ((0.1, 0.1), "Swapping half of the layers, bottom or top, does not prevent it."),
        ((0.1, 0.9), "Swapping the top half prevents it, swapping the bottom half does not."),
    ],
)
def test_words_follow_the_numbers(ends: tuple[float, float], expected: str) -> None:
    bottom, top = ends
    found = {**GRADUAL, "bottom_swapped": [0.9, 0.9, 0.9, bottom],
             "top_swapped": [0.9, 0.9, 0.9, top]}  # fmt: skip
    assert expected in words(tables(found))


def test_an_event_that_never_happens_is_said_to_be_missing() -> None:
    never = {"memorised": [0.9, 0.9, 0.8, 0.8]}
    said = words(tables(never))
    assert "never come nearer to their new class" in said
    assert "prevents" not in said
    found = summarise_explanation(tables(never, GRADUAL))
    assert found["events"]["memorised"]["crossing"] == {
        "layer": 3.0,
        "per_seed": [None, 3],
        "missing": 1,
    }
    assert "in layer 3 (missing in 1 of 2 seeds)" in words(tables(never, GRADUAL))


def test_pairs_are_counted_and_examples_distributed_over_layers() -> None:
    found = summarise_explanation(tables(GRADUAL))
    assert found["pairs"] == {"used": 1, "skipped": 1}
    assert found["examples"]["crossing_shares"] == [0.0, 0.0, 1.0, 0.0]
    assert found["examples"]["never_cross"] == 0.0
    assert found["examples"]["local_share"] == 0.0
    never = summarise_explanation(tables({"memorised": [0.9, 0.9, 0.8, 0.8]}))
    assert never["examples"]["never_cross"] == 1.0
    assert never["examples"]["local_share"] == 1.0  # all of its way in layer 3


@pytest.mark.parametrize("n_layers", [1, 48])
def test_the_terminal_is_80_columns_wide_whatever_the_depth(n_layers: int) -> None:
    path = np.linspace(0.9, 0.0, n_layers).tolist()
    models = ("memorised", "bottom_swapped", "top_swapped") if n_layers > 1 else ("memorised",)
    summary = {"explanation": summarise_explanation(tables(dict.fromkeys(models, path)))}
    console = Console(width=80, record=True, highlight=False, file=io.StringIO())
    show_explanation(summary, console)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    bars = [line.count("█") for line in lines]
    shown = [count for count in bars if count]
    assert shown == sorted(shown, reverse=True)  # from the old class to the new one
    assert sum(
        line.split()[:1] == [str(layer)] for layer in range(1, n_layers + 1) for line in lines
    )


def test_a_crossing_where_classes_still_overlap_is_marked() -> None:
    early = {"memorised": [0.4, 0.3, 0.2, 0.1]}
    found = summarise_explanation(tables(early))
    assert found["overlapping_crossings"] == {"memorised": 1}
    assert "in layer 1, where classes still overlap; classes are apart from layer 2 on." in words(
        tables(early)
    )
    assert "overlap" not in words(tables({"memorised": GRADUAL["memorised"]}))
    both = tables(early, {"memorised": GRADUAL["memorised"]})
    assert "in layer 2, where classes still overlap in 1 of 2 seeds; " in words(both)
    stream = io.StringIO()
    for shown in (both, tables(early)):
        explanation = {"explanation": summarise_explanation(shown)}
        show_explanation(explanation, Console(file=stream, width=80))
    assert "layer 2 (overlap in 1 of 2)" in stream.getvalue()
    assert "layer 1 (classes still overlap)" in stream.getvalue()
