"""Techniques on parts of layers agree with their oracles on the same parts."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import torch

from memloc.analysis.windows import Window
from memloc.config import Training, Unit, Windows
from memloc.data.encode import TextCodec, encode, training_batches
from memloc.models.blocks import BlockModel
from memloc.models.states import StateCache
from memloc.techniques import NoSuchUnit, check_unit, find, make, names
from memloc.techniques.base import Context
from memloc.techniques.gradients import clean_sample
from memloc.training.window_learner import divide, retrain_window, tail_parameters
from tests.conftest import labelled_rows
from tests.oracles.gradients import mean_gradient_plainly, weights_plainly
from tests.oracles.retraining import retrain_window_plainly
from tests.oracles.swapping import part_of_layer, swap_plainly
from tests.tiny_models import tiny_model, tiny_tokenizer

PARTS = [unit for unit in get_args(Unit) if unit != "layer"]
ROLES = ("memorised", "original", "pretrained", "near_ceiling", "frozen")
TRAINING = Training(learning_rate=5e-4, batch_size=4, epochs=2)
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
PREFIX = "bert.encoder.layer"


@pytest.fixture(scope="module")
def models() -> dict[str, BlockModel]:
    return {
        role: BlockModel(tiny_model("bert", layers=3, seed=seed, **NO_DROPOUT))
        for seed, role in enumerate(ROLES)
    }


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rows = labelled_rows(24)
    rows["noisy"] = rows["label"] != rows["original_label"]
    rows["example"] = np.arange(24)
    return rows


def make_context(models: Any, rows: pd.DataFrame, unit: Unit) -> Context:
    encoded = encode(rows, TextCodec(tiny_tokenizer(), "|", 0, 128))
    windows = Windows(unit=unit)
    return Context.of(rows, encoded, models, seed=3, training=TRAINING, windows=windows)


@pytest.mark.parametrize("unit", PARTS)
def test_retraining_a_part_has_the_losses_of_the_plain_recipe(
    unit: Unit, models: Any, rows: pd.DataFrame
) -> None:
    context = make_context(models, rows, unit)
    memorised, pretrained = models["memorised"], models["pretrained"]
    before = {name: value.clone() for name, value in memorised.model.state_dict().items()}
    parts = divide(rows["noisy"].to_numpy(), seed=3)
    labels, n_noisy = rows["label"].tolist(), int(rows["noisy"].sum())
    cache = StateCache(memorised, context.encoded, 2**30)
    for window in (Window(2, 2), Window(1, 3)):
        found = retrain_window(
            memorised, pretrained, context.encoded, torch.tensor(labels), parts, window, TRAINING,
            3, cache, unit=unit,
        )  # fmt: skip
        order, lengths = np.random.default_rng(3), context.encoded.lengths[parts.train]
        orders = [[b.tolist() for b in training_batches(lengths, 4, order)] for _ in range(2)]
        losses, predicted = retrain_window_plainly(
            memorised.model, pretrained.model, PREFIX, tuple(window), tiny_tokenizer(),
            rows["text"].tolist(), labels, parts.train.tolist(),
            parts.evaluated[:n_noisy].tolist(), parts.evaluated[n_noisy:].tolist(),
            tail_parameters(memorised, "norm+head"), orders, TRAINING.learning_rate, unit=unit,
        )  # fmt: skip
        np.testing.assert_allclose(np.concatenate(found.losses), losses, rtol=1e-4)
        assert found.predicted.tolist() == predicted
    for name, value in memorised.model.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("unit", PARTS)
def test_gradients_of_a_part_are_those_of_its_parameters(
    unit: Unit, models: Any, rows: pd.DataFrame
) -> None:
    noisy = rows["noisy"].to_numpy()

    def plain(role: str) -> tuple[dict[str, Any], ...]:
        found = []
        for chosen in (np.flatnonzero(noisy), clean_sample(noisy, 3)):
            texts, labels = (rows[c].to_numpy()[chosen].tolist() for c in ("text", "label"))
            whole = mean_gradient_plainly(
                models[role].model, PREFIX, tiny_tokenizer(), texts, labels
            )
            names = [
                name
                for layer in range(3)
                for name in part_of_layer(whole, f"{PREFIX}.{layer}.", "bert", unit)
            ]
            found.append({name: whole[name] for name in names})
        return tuple(found)

    result = make("gradients").localise(make_context(models, rows, unit), lambda _: None)
    expected = weights_plainly(plain("near_ceiling"), plain("frozen"), PREFIX)
    np.testing.assert_allclose(result.layers["weight"], expected, rtol=1e-4)


@pytest.mark.parametrize("unit", PARTS)
def test_shapley_values_of_parts_add_up_to_swapping_all_of_them(
    unit: Unit, models: Any, rows: pd.DataFrame
) -> None:
    context = make_context(models, rows, unit)
    plain = swap_plainly(
        models["memorised"].model, models["original"].model, PREFIX, tiny_tokenizer(),
        rows["text"].tolist(), [(0, 0), (1, 3)], unit=unit,
    )  # fmt: skip
    noisy, labels = rows["noisy"].to_numpy(), rows["label"].to_numpy()
    wrong = {w: (logits.argmax(1).numpy() != labels)[noisy] for w, logits in plain.items()}
    values = make("shapley").localise(context, lambda _: None).details["shapley"]["value"]
    assert values.sum() == pytest.approx(wrong[1, 3].mean() - wrong[0, 0].mean())
    swapped = make("swapping").localise(context, lambda _: None).windows
    full = swapped.loc[swapped["size"] == 3, "noisy_error"]
    assert full.tolist() == pytest.approx([wrong[1, 3].mean()])


def test_the_change_of_weights_in_both_parts_is_that_of_the_layer(
    models: Any, rows: pd.DataFrame
) -> None:
    def squares(unit: Unit) -> np.ndarray:
        """Of the numerators: weights times the norm in θ_P."""
        weights = (
            make("weight-change")
            .localise(make_context(models, rows, unit), lambda _: None)
            .layers["weight"]
        )
        names = models["pretrained"].groups.of(unit)
        norms = [
            np.linalg.norm(torch.cat([model.get_parameter(n).detach().flatten() for n in layer]))
            for model in [models["pretrained"].model]
            for layer in names
        ]
        return (weights.to_numpy() * np.array(norms)) ** 2

    np.testing.assert_allclose(squares("attention") + squares("mlp"), squares("layer"), rtol=1e-5)


def test_techniques_that_change_or_differentiate_weights_know_parts() -> None:
    known = {name for name in names() if find(name).uses_unit}
    assert {"swapping", "retraining", "gradients", "shapley", "weight-change"} <= known
    assert not known & {"probing", "patching", "random"}


def test_parts_that_nobody_looks_at_or_that_do_not_exist_are_refused() -> None:
    probing, swapping = make("probing"), make("swapping")
    check_unit([probing], "layer", "no part of layer 1 (X) is called attention")
    check_unit([probing, swapping], "mlp", None)
    with pytest.raises(NoSuchUnit, match="makes no difference to probing, random; "):
        check_unit([probing, make("random")], "mlp", None)
    with pytest.raises(NoSuchUnit, match=r"^windows.unit 'mlp' is not possible: no part"):
        check_unit([swapping], "mlp", "no part of layer 1 (X) is called attention")
