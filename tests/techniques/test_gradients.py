from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from memloc.data.encode import TextCodec, encode
from memloc.models.blocks import BlockModel
from memloc.techniques.base import Context
from memloc.techniques.gradients import Gradients, clean_sample
from memloc.training.gradients import Target, mean_gradient
from memloc.training.loop import TrainingFailed
from tests.conftest import labelled_rows
from tests.oracles.gradients import layer_norms_plainly, mean_gradient_plainly, weights_plainly
from tests.tiny_models import tiny_model, tiny_tokenizer

FIVE = ("bert", "opt", "gpt_neox", "gpt_neo", "llama")


def make_context(architecture: str, layers: int, seed: int = 3, n: int = 30) -> Context:
    rows = labelled_rows(n)
    rows["noisy"] = rows["label"] != rows["original_label"]
    rows["example"] = np.arange(n)
    models = {
        role: BlockModel(tiny_model(architecture, layers=layers, seed=number))
        for number, role in enumerate(("near_ceiling", "frozen"))
    }
    encoded = encode(rows, TextCodec(tiny_tokenizer(), "|", 0, 128))
    return Context.of(rows, encoded, models, seed=seed)


def prefix_of(model: BlockModel) -> str:
    return f"{model.model.base_model_prefix}.{model.stack_path}"


def plain_gradients(context: Context, role, objective: str = "nll"):
    """(noisy, clean) gradients of the same examples, one at a time."""
    noisy = context.examples["noisy"].to_numpy()
    sets = np.flatnonzero(noisy), clean_sample(noisy, context.seed)
    model = context.model(role).model
    return tuple(
        mean_gradient_plainly(
            model,
            prefix_of(context.model(role)),
            tiny_tokenizer(),
            context.examples["text"].to_numpy()[rows].tolist(),
            context.examples["label"].to_numpy()[rows].tolist(),
            objective,
        )
        for rows in sets
    )


@pytest.mark.parametrize(("architecture", "layers"), list(product(FIVE, (2, 12))))
def test_weights_are_those_of_single_examples_added_up(architecture: str, layers: int) -> None:
    context = make_context(architecture, layers)
    result = Gradients().localise(context, lambda _: None)
    expected = weights_plainly(
        plain_gradients(context, "near_ceiling"),
        plain_gradients(context, "frozen"),
        prefix_of(context.model("frozen")),
    )
    assert len(expected) == layers
    np.testing.assert_allclose(result.layers["weight"], expected, rtol=1e-4)
    assert result.layers["weight"].sum() == pytest.approx(1.0)
    assert np.std(expected) > 1e-3  # otherwise anything would agree


@pytest.mark.parametrize("architecture", FIVE)
def test_mean_gradients_agree_parameter_by_parameter(architecture: str) -> None:
    context = make_context(architecture, 2)
    model = context.model("near_ceiling")
    noisy = np.flatnonzero(context.examples["noisy"].to_numpy())
    target = Target(context.encoded, torch.tensor(context.examples["label"].to_numpy()))
    found = mean_gradient(model, target, noisy)
    expected = plain_gradients(context, "near_ceiling")[0]
    for layer in found:
        # Sums of floats in another order: entries that cancel to nothing (the biases of keys have
        # no gradient at all) are compared relative to the largest of the layer.
        scale = max(float(expected[name].abs().max()) for name in layer)
        for name, value in layer.items():  # the oracle differentiates −loss
            torch.testing.assert_close(value, -expected[name], rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize(
    ("objective", "norm", "subtract", "divide"),
    list(product(("nll", "gold_logit"), ("L1", "L2"), (True, False), (True, False))),
)
def test_every_switch_does_what_it_says(
    objective: str, norm: str, subtract: bool, divide: bool
) -> None:
    context = make_context("bert", 3)
    technique = Gradients(
        objective=objective, norm=norm, subtract_clean=subtract, divide_by_frozen=divide
    )
    result = technique.localise(context)
    expected = weights_plainly(
        plain_gradients(context, "near_ceiling", objective),
        plain_gradients(context, "frozen", objective),
        prefix_of(context.model("frozen")),
        norm,
        subtract,
        divide,
    )
    np.testing.assert_allclose(result.layers["weight"], expected, rtol=1e-4)


def test_each_noisy_example_gets_weights_of_its_own_when_asked() -> None:
    context = make_context("llama", 3)
    technique = Gradients(per_example=True, divide_by_frozen=False, norm="L2")
    table = technique.localise(context).details["example_gradients"]
    noisy = context.examples[context.examples["noisy"]]
    assert sorted(set(table["example"])) == noisy["example"].tolist()
    clean = plain_gradients(context, "near_ceiling")[1]
    model = context.model("near_ceiling")
    for row in noisy.head(4).itertuples():
        own = mean_gradient_plainly(
            model.model, prefix_of(model), tiny_tokenizer(), [row.text], [row.label]
        )
        difference = {name: value - clean[name] for name, value in own.items()}
        norms = np.array(layer_norms_plainly(difference, prefix_of(model), "L2"))
        found = table[table["example"] == row.example].sort_values("layer")["weight"]
        np.testing.assert_allclose(found, norms / norms.sum(), rtol=1e-4)


def test_norms_of_both_models_are_kept_and_progress_ends_at_one() -> None:
    context = make_context("gpt2", 3)
    seen: list[float] = []
    result = Gradients().localise(context, seen.append)
    table = result.details["gradients"]
    assert set(table["model"]) == {"near_ceiling", "frozen"}
    assert set(table["gradient"]) == {"noisy", "clean", "difference"}
    assert set(table["kind"]) == {"L1", "L2"}
    assert len(table) == 2 * 3 * 2 * 3
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1.0)
    assert result.costs["block_passes"] == 3 * 4  # four sets of ten examples, one batch each


def test_the_models_are_left_as_they_were() -> None:
    context = make_context("bert", 2)
    model = context.model("near_ceiling").model.train()
    flags = [parameter.requires_grad for parameter in model.parameters()]
    Gradients().localise(context, lambda _: None)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert all(module.training for module in model.modules())


def test_a_broken_model_is_one_sentence() -> None:
    context = make_context("bert", 2)
    with torch.no_grad():
        next(context.model("near_ceiling").block(1).parameters()).fill_(float("nan"))
    with pytest.raises(TrainingFailed, match="the loss of the model is nan"):
        Gradients().localise(context, lambda _: None)


def test_the_clean_sample_is_as_large_as_the_noisy_set_and_seeded() -> None:
    noisy = np.arange(40) % 4 == 0
    sample = clean_sample(noisy, 1)
    assert len(sample) == len(set(sample)) == 10
    assert not noisy[sample].any()
    assert sample.tolist() == clean_sample(noisy, 1).tolist() != clean_sample(noisy, 2).tolist()
    assert len(clean_sample(~noisy, 1)) == 10  # fewer clean than noisy: all of them
