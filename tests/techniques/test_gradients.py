from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from memloc.config import Unit, Windows
from memloc.models.blocks import ParameterGroups
from memloc.techniques.base import Context
from memloc.techniques.gradients import Gradients, Norm, clean_sample
from memloc.training.loop import TrainingFailed
from tests.oracles.gradients import example_norms_plainly, mean_gradient_plainly, weights_plainly
from tests.oracles.swapping import part_of_layer
from tests.tiny_models import FIVE, each, prefix_of, tiny_context, tiny_tokenizer


def make_context(architecture: str, layers: int = 3, unit: Unit = "layer") -> Context:
    roles = ("near_ceiling", "frozen")
    return tiny_context(architecture, layers, roles, windows=Windows(unit=unit))


def plain_gradients(context: Context, role: Any, objective: str = "nll") -> Any:
    """(noisy, clean) gradients of the same examples, one at a time."""
    text, label, noisy = context.columns("text", "label", "noisy")
    model, found = context.model(role), []
    for rows in (np.flatnonzero(noisy), clean_sample(noisy, context.seed)):
        texts, labels = text[rows].tolist(), label[rows].tolist()
        prefix = prefix_of(model)
        whole = mean_gradient_plainly(
            model.model, prefix, tiny_tokenizer(), texts, labels, objective
        )
        parts = [
            part_of_layer(whole, f"{prefix}.{layer}.", "bert", context.windows.unit)
            for layer in range(model.n_layers)
        ]
        found.append({name: whole[name] for names in parts for name in names})
    return tuple(found)


def assert_plain(context: Context, **settings: Any) -> None:
    result = Gradients(**settings).localise(context)
    objective = settings.get("objective", "nll")
    expected = weights_plainly(
        plain_gradients(context, "near_ceiling", objective),
        plain_gradients(context, "frozen", objective),
        prefix_of(context.model("frozen")),
        settings.get("norm", "L1"),
        settings.get("subtract_clean", True),
        settings.get("divide_by_frozen", True),
    )
    np.testing.assert_allclose(result["layers"]["weight"], expected, rtol=1e-4)
    assert np.std(expected) > 1e-3  # otherwise anything would agree


@pytest.mark.parametrize("architecture", each(*FIVE))
def test_weights_are_those_of_single_examples_added_up(architecture: str) -> None:
    assert_plain(make_context(architecture))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", FIVE)
def test_weights_of_twelve_layers_are_those_of_single_examples(architecture: str) -> None:
    assert_plain(make_context(architecture, 12))


@pytest.mark.parametrize("unit", ["attention", "mlp"])
def test_gradients_of_a_part_are_those_of_its_parameters(unit: Unit) -> None:
    assert_plain(make_context("bert", 3, unit))


@pytest.mark.parametrize(
    ("objective", "norm", "subtract", "divide"),
    list(product(("nll", "gold_logit"), ("L1", "L2"), (True, False), (True, False))),
)
def test_every_switch_does_what_it_says(
    objective: str, norm: str, subtract: bool, divide: bool
) -> None:
    assert_plain(
        make_context("bert", 2),
        objective=objective, norm=norm, subtract_clean=subtract, divide_by_frozen=divide,
    )  # fmt: skip


@pytest.mark.parametrize("norm", ["L1", "L2"])
@pytest.mark.parametrize("subtract", [True, False])
@pytest.mark.parametrize("architecture", each(*FIVE, "gpt2", "modernbert"))
def test_each_noisy_example_gets_weights_of_its_own_when_asked(
    architecture: str, subtract: bool, norm: Norm
) -> None:
    context = make_context(architecture)
    technique = Gradients(
        per_example=True, divide_by_frozen=False, norm=norm, subtract_clean=subtract
    )
    table = technique.localise(context)["example_gradients"]
    noisy = context.examples[context.examples["noisy"]]
    assert sorted(set(table["example"])) == noisy["example"].tolist()
    weights = table.pivot(index="example", columns="layer", values="weight").to_numpy()
    norms = plain_example_norms(context, norm, subtract)
    np.testing.assert_allclose(weights, norms / norms.sum(axis=1, keepdims=True), rtol=1e-4)
    # One pass per batch, and one of a single example as a self-test.
    assert context.costs["block_passes"] == 3 * 4


def plain_example_norms(context: Context, norm: Norm, subtract: bool) -> np.ndarray:
    noisy = context.examples[context.examples["noisy"]]
    model = context.model("near_ceiling")
    clean = plain_gradients(context, "near_ceiling")[1]
    texts, labels = noisy["text"].tolist(), noisy["label"].tolist()
    return np.array(
        example_norms_plainly(
            model.model, prefix_of(model), tiny_tokenizer(), texts, labels, norm,
            clean if subtract else None,
        )
    )  # fmt: skip


class Scaled(torch.nn.Linear):
    """A linear layer of another kind."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


@pytest.mark.parametrize("kind", ["unknown", "shared", "mixing", "unused"])
def test_modules_of_an_unknown_kind_or_use_give_the_same_norms(kind: str) -> None:
    context = make_context("bert")
    model = context.model("near_ceiling")
    block: Any = model.block(2)
    if kind == "unknown":
        block.intermediate.dense.__class__ = Scaled
    elif kind == "shared":
        block.attention.self.query = block.attention.self.key
        model.groups = ParameterGroups(**{**vars(model.groups), "blocks": tuple(
            tuple(n for n in names if "1.attention.self.key" not in n)
            for names in model.groups.blocks
        )})  # fmt: skip
    elif kind == "mixing":  # one row per example, but of another one
        plain = block.intermediate.forward
        block.intermediate.forward = lambda x: plain(x.flip(0)).flip(0)
    else:
        block.register_module("spare", torch.nn.Linear(2, 2))
        extra = tuple(f"bert.encoder.layer.1.spare.{name}" for name in ("weight", "bias"))
        blocks = list(model.groups.blocks)
        blocks[1] += extra
        model.groups = ParameterGroups(**{**vars(model.groups), "blocks": tuple(blocks)})
    technique = Gradients(per_example=True, divide_by_frozen=False)
    table = technique.localise(context)["example_gradients"]
    weights = table.pivot(index="example", columns="layer", values="weight").to_numpy()
    norms = plain_example_norms(context, "L1", subtract=True)
    np.testing.assert_allclose(weights, norms / norms.sum(axis=1, keepdims=True), rtol=1e-4)
    assert (context.costs["block_passes"] > 3 * 4) == (kind != "unused")


def test_norms_are_kept_progress_ends_at_one_and_models_are_left_as_they_were() -> None:
    context = make_context("gpt2")
    model = context.model("near_ceiling").model.train()
    seen: list[float] = []
    result = Gradients().localise(context, seen.append)
    table = result["gradients"]
    assert len(table) == 2 * 3 * 2 * 3
    assert len(table.drop_duplicates(["model", "gradient", "kind", "layer"])) == len(table)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1.0)
    assert context.costs["block_passes"] == 3 * 4  # four sets of ten examples, one batch each
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert all(module.training for module in model.modules())


def test_a_broken_model_is_one_sentence() -> None:
    context = make_context("bert", 2)
    with torch.no_grad():
        next(context.model("near_ceiling").block(1).parameters()).fill_(float("nan"))
    with pytest.raises(TrainingFailed, match="the loss of the model is nan"):
        Gradients().localise(context)


def test_the_clean_sample_is_as_large_as_the_noisy_set_and_seeded() -> None:
    noisy = np.arange(40) % 4 == 0
    sample = clean_sample(noisy, 1)
    assert len(sample) == len(set(sample)) == 10
    assert not noisy[sample].any()
    assert sample.tolist() == clean_sample(noisy, 1).tolist() != clean_sample(noisy, 2).tolist()
    assert len(clean_sample(~noisy, 1)) == 10  # fewer clean than noisy: all of them
