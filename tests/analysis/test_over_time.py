"""What counts as memorised at an epoch, and what is left out where nothing is."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from memloc.analysis.over_time import (
    ENOUGH,
    Examined,
    checkpoint_layer_table,
    checkpoint_table,
    movement,
)
from tests.report.over_time_folders import made_up

WEIGHTED = ("swapping", "probing")


def with_errors(noisy: float, clean: float, noisy_error: float, clean_error: float) -> Examined:
    layers = pd.DataFrame({"technique": "swapping", "layer": [1, 2], "weight": [0.25, 0.75]})
    windows = pd.DataFrame(
        {
            **{"size": [1, 2, 1], "noisy_error": [0.3, noisy_error, 0.4]},
            "clean_error": [0.3, clean_error, 0.3],
        }
    )
    return Examined(1, 3, {"noisy": noisy, "clean": clean}, layers, windows)


@pytest.mark.parametrize(
    ("case", "in_layers"),
    [
        ((1.0, 1.0, 1.0, 0.0), 1.0),  # θ_O's layers take away all flipped labels, and no clean one
        ((1.0, 1.0, 0.0, 0.0), 0.0),  # or none: they are in the head
        ((0.5, 0.5, 0.5, 0.5), 0.0),  # an untrained model of two classes guesses with both
        ((0.5, 0.5, 0.8, 0.8), 0.0),  # layers that do not fit break everything alike
        ((0.5, 0.7, 0.9, 0.1), 0.4),  # what is won of the clean ones is not memorisation
    ],
)
def test_memorised_is_what_the_twin_takes_away_of_flipped_labels_alone(
    case: tuple[float, float, float, float], in_layers: float
) -> None:
    found = with_errors(*case)
    assert found.in_layers == pytest.approx(in_layers)
    assert found.enough == (in_layers >= ENOUGH)


def test_weights_and_centres_are_missing_where_too_little_is_memorised() -> None:
    little, much = with_errors(1.0, 1.0, 0.15, 0.0), with_errors(1.0, 1.0, 0.25, 0.0)
    rows = checkpoint_table([little, much], WEIGHTED)
    assert rows["enough"].tolist() == [False, True]
    assert rows["swapping_m_cog"].isna().tolist() == [True, False]
    assert rows["swapping_m_cog"].iloc[1] == pytest.approx(1.75)
    assert rows["probing_m_cog"].isna().all()  # there was no probing
    assert np.isnan(checkpoint_layer_table([little], WEIGHTED)["value"]).all()
    assert checkpoint_layer_table([much], WEIGHTED)["value"].tolist() == [0.25, 0.75]


def test_without_swapping_nothing_is_known_and_nothing_is_claimed() -> None:
    found = Examined(1, 3, {"noisy": 1.0, "clean": 1.0})
    assert math.isnan(found.in_layers)
    row = checkpoint_table([found], WEIGHTED).iloc[0]
    assert not row["enough"]
    assert row["memorised"] == 1.0
    assert checkpoint_layer_table([found], WEIGHTED).empty


def test_a_centre_moves_from_its_first_epoch_to_the_last() -> None:
    rows = checkpoint_table(made_up(), WEIGHTED)
    assert movement(rows, "swapping") == {1: (4, 4.0, 3.0)}  # of seed 2 there is only the end
    assert movement(rows[rows["seed"] == 2], "swapping") == {}
