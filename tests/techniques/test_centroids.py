from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
import torch

from memloc.analysis.centroids import pick_classes, positions
from memloc.data.encode import TextCodec, encode
from memloc.models.blocks import BlockModel
from memloc.models.states import pooled_states
from memloc.techniques.base import Context
from memloc.techniques.centroids import Centroids
from tests.conftest import labelled_rows
from tests.oracles.centroids import positions_plainly
from tests.oracles.probing import hidden_states_plainly
from tests.tiny_models import tiny_model, tiny_tokenizer


def make_context(architecture: str = "bert", layers: int = 4, n: int = 60) -> Context:
    rows = labelled_rows(n)
    rows["noisy"] = rows["label"] != rows["original_label"]
    rows["example"] = np.arange(n) + 100
    models = {
        role: BlockModel(tiny_model(architecture, layers=layers, seed=seed))
        for seed, role in enumerate(("memorised", "original"))
    }
    encoded = encode(rows, TextCodec(tiny_tokenizer(), "|", 0, 128))
    return Context.of(rows, encoded, models)


@pytest.mark.parametrize("architecture", ["bert", "opt", "gpt_neo"])
@pytest.mark.parametrize("layers", [4, 5])
def test_positions_come_from_the_models_that_they_claim(architecture: str, layers: int) -> None:
    context = make_context(architecture, layers)
    tables = Centroids().explain(context, lambda _: None)
    examples = context.examples
    columns = [examples[c].to_numpy() for c in ("label", "original_label", "noisy")]
    # Half of an odd number of layers leaves the middle one alone.
    halves = {"memorised": [], "bottom_swapped": [1, 2], "top_swapped": [layers - 1, layers]}
    for name, swapped in halves.items():
        whole = copy.deepcopy(context.model("memorised").model)
        donor = context.model("original")
        model = BlockModel(whole)
        for layer in swapped:
            model.block(layer).load_state_dict(donor.block(layer).state_dict())
        stack = f"{whole.base_model_prefix}.{model.stack_path}"
        texts = examples["text"].tolist()
        states = torch.stack(
            [
                hidden_states_plainly(whole, tiny_tokenizer(), texts, layer, stack, model.pooling)
                for layer in range(1, layers + 1)
            ]
        )
        plainly = positions_plainly(states.numpy(), *columns)
        trajectories = tables["trajectories"]
        mine = trajectories[trajectories["model"] == name].pivot(
            index="layer", columns="example", values="position"
        )
        np.testing.assert_allclose(mine.to_numpy(), plainly["noisy"], rtol=1e-3, atol=1e-4)


def test_models_are_left_as_they_were() -> None:
    context = make_context()
    before = pooled_states(context.model("memorised"), context.encoded)
    Centroids().explain(context, lambda _: None)
    assert torch.equal(before, pooled_states(context.model("memorised"), context.encoded))


def test_tables_are_complete_and_agree_with_each_other() -> None:
    context = make_context()
    tables = Centroids().explain(context, lambda _: None)
    noisy = int(context.examples["noisy"].sum())
    assert len(tables["trajectories"]) == 3 * 4 * noisy
    assert len(tables["centroids"]) == 3 * 4 * 3
    assert set(tables["events"]["model"]) == {"memorised", "bottom_swapped", "top_swapped"}
    own = tables["trajectories"][tables["trajectories"]["model"] == "memorised"]
    means = own.groupby("layer")["position"].mean().to_numpy()
    centroids = tables["centroids"].query("model == 'memorised' and group == 'noisy'")
    np.testing.assert_allclose(centroids["mean"], means)
    for row in tables["crossings"].itertuples():
        path = own[own["example"] == row.example].sort_values("layer")["position"].to_numpy()
        late = [layer for layer in range(1, 5) if (path[layer - 1 :] < 0.5).all()]
        found = None if pd.isna(row.crossing) else int(row.crossing)
        assert found == (late[0] if late else None)
    pairs = tables["pairs"]
    assert len(pairs) == 6
    assert pairs["noisy"].sum() == noisy


def test_a_model_of_one_layer_has_no_halves() -> None:
    tables = Centroids().explain(make_context(layers=1), lambda _: None)
    assert set(tables["centroids"]["model"]) == {"memorised"}
    assert tables["crossings"]["largest_step"].isna().all()


def test_all_pairs_cost_one_pass_over_the_states() -> None:
    context = make_context()
    columns = [context.examples[c].to_numpy() for c in ("label", "original_label", "noisy")]
    classes = pick_classes(*columns, 3)
    assert len(classes.pairs) == 6
    states = context.pooled_states("memorised")
    assert positions(states[1:], classes).noisy.shape == (4, int(columns[2].sum()))
    assert context.pooled_states("memorised") is states  # computed once
