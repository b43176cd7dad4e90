from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from memloc.models.blocks import BlockModel
from memloc.models.states import pooled_states
from memloc.techniques.centroids import Centroids
from tests.oracles.centroids import positions_plainly
from tests.oracles.probing import hidden_states_plainly
from tests.tiny_models import each, prefix_of, tiny_context, tiny_tokenizer


@pytest.mark.parametrize("architecture", each("bert", "opt", "gpt_neo"))
@pytest.mark.parametrize("layers", [4, 5])
def test_positions_come_from_the_models_that_they_claim(architecture: str, layers: int) -> None:
    context = tiny_context(architecture, layers, n=24)
    before = pooled_states(context.model("memorised"), context.encoded)
    trajectories = Centroids().localise(context)["trajectories"]
    columns = context.columns("label", "original_label", "noisy")
    # Half of an odd number of layers leaves the middle one alone.
    halves = {"memorised": [], "bottom_swapped": [1, 2], "top_swapped": [layers - 1, layers]}
    for name, swapped in halves.items():
        model = BlockModel(copy.deepcopy(context.model("memorised").model))
        for layer in swapped:
            model.block(layer).load_state_dict(context.model("original").block(layer).state_dict())
        texts, prefix = context.examples["text"].tolist(), prefix_of(model)
        states = torch.stack(
            [
                hidden_states_plainly(
                    model.model, tiny_tokenizer(), texts, layer, prefix, model.pooling
                )
                for layer in range(1, layers + 1)
            ]
        )
        plainly = positions_plainly(states.numpy(), *columns)
        mine = trajectories[trajectories["model"] == name].pivot(
            index="layer", columns="example", values="position"
        )
        np.testing.assert_allclose(mine.to_numpy(), plainly["noisy"], rtol=1e-3, atol=1e-4)
    assert torch.equal(before, pooled_states(context.model("memorised"), context.encoded))


def test_a_model_of_one_layer_has_no_halves() -> None:
    tables = Centroids().localise(tiny_context("bert", 1, n=60))
    assert set(tables["centroids"]["model"]) == {"memorised"}
    assert tables["crossings"]["largest_step"].isna().all()
