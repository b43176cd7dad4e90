"""What the control benchmark says in words."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from memloc.analysis.control import accuracy_table
from memloc.config import Unit
from memloc.results.summary import summarise_control
from memloc.tables import CELL

RIGHT, WRONG = [1.0, 0.9, 0.1, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.1, 0.9, 1.0]


def summary_of(
    found: dict[str, list[bool]], learned: bool = True, unit: Unit = "layer"
) -> dict[str, Any]:
    """Of techniques that find the hidden layers 1+2 in some of the tasks."""
    rows = [
        ("minilm", 6, f"task {place}", "1+2", 1, technique, layer, weight)
        for technique, successes in found.items()
        for place, success in enumerate(successes)
        for layer, weight in enumerate(RIGHT if success else WRONG, start=1)
    ]
    layers = pd.DataFrame(rows, columns=[*CELL, "technique", "layer", "weight"])
    cells = layers.drop_duplicates([*CELL])[[*CELL]]
    accuracy = 1.0 if learned else 0.8
    trained = cells.assign(
        state="memorised", accuracy=accuracy, learned=learned, auxiliary_accuracy=0.9
    )
    tables = {
        "layers": layers,
        "accuracy": accuracy_table(layers),
        "trainings": trained,
        "attempts": pd.concat([trained, trained.head(1)]),
        "costs": cells.assign(job="memorised", seconds=2.0),
    }
    about = {"held_back": [], "auxiliary": "b", "seeds": [1], "learned_at": 0.99, "unit": unit}
    return summarise_control(about, tables)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            {"swapping": [True] * 5, "gradients": [False] * 5},
            "Swapping points to a hidden layer nearly always; "
            "gradients too seldom to tell from chance.",
        ),
        (
            {"swapping": [True] * 7 + [False], "random": [True] * 8},
            "Swapping points to a hidden layer more often than chance.",
        ),
        (
            {"swapping": [False] * 4, "probing": [False] * 4},
            "Swapping and probing point to a hidden layer too seldom to tell from chance.",
        ),
    ],
)
def test_the_sentence_says_who_finds_the_hidden_layers(found: dict, words: str) -> None:
    assert summary_of(found)["interpretation"] == words


def test_what_was_not_learned_is_a_caution() -> None:
    summary = summary_of({"swapping": [True] * 5}, learned=False)
    assert "5 of 5 trainings did not get above 0.99" in summary["caveats"][0]
    assert summary["trainings"]["repeated"] == 1
    assert summary_of({"swapping": [True] * 5})["caveats"] == []
    assert "fewer than 4 control models" in summary_of({"swapping": [True] * 3})["caveats"][0]


def test_looking_for_whole_layers_in_parts_is_a_caution() -> None:
    (words,) = summary_of({"swapping": [True] * 5}, unit="mlp")["caveats"]
    assert words.startswith("memorisation was hidden in whole layers, but techniques were told to")
    assert words.endswith("their MLP parts alone.")
