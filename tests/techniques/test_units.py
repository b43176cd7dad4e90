"""Techniques on parts of layers; retraining and gradients of parts are tested in their files."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from memloc.config import Unit, Windows
from memloc.techniques import Circumstances, NotPossible, check_possible, find, make, names
from memloc.techniques.base import Context
from tests.oracles.swapping import swap_plainly
from tests.tiny_models import prefix_of, tiny_context, tiny_tokenizer


def make_context(unit: Unit) -> Context:
    roles = ("memorised", "original", "pretrained")
    return tiny_context("bert", 3, roles, 24, windows=Windows(unit=unit))


@pytest.mark.parametrize("unit", ["attention", "mlp"])
def test_shapley_values_of_parts_add_up_to_swapping_all_of_them(unit: Unit) -> None:
    context = make_context(unit)
    own, other = context.model("memorised"), context.model("original")
    text, labels, noisy = context.columns("text", "label", "noisy")
    plain = swap_plainly(
        own.model, other.model, prefix_of(own), tiny_tokenizer(), text.tolist(),
        [(0, 0), (1, 3)], unit=unit,
    )  # fmt: skip
    wrong = {w: (logits.argmax(1).numpy() != labels)[noisy] for w, logits in plain.items()}
    values = make("shapley").localise(context)["shapley"]["value"]
    assert values.sum() == pytest.approx(wrong[1, 3].mean() - wrong[0, 0].mean())
    swapped = make("swapping").localise(context)["windows"]
    full = swapped.loc[swapped["size"] == 3, "noisy_error"]
    assert full.tolist() == pytest.approx([wrong[1, 3].mean()])


def test_the_change_of_weights_in_both_parts_is_that_of_the_layer() -> None:
    def squares(unit: Unit) -> np.ndarray:
        """Of the numerators: weights times the norm in θ_P."""
        context = make_context(unit)
        weights = make("weight-change").localise(context)["layers"]["weight"].to_numpy()
        pretrained = context.model("pretrained")
        norms = [
            torch.cat([pretrained.model.get_parameter(n).flatten() for n in layer]).norm().item()
            for layer in pretrained.groups.of(unit)
        ]
        return (weights * np.array(norms)) ** 2

    np.testing.assert_allclose(squares("attention") + squares("mlp"), squares("layer"), rtol=1e-5)


def test_parts_that_nobody_looks_at_or_that_do_not_exist_are_refused() -> None:
    known = {name for name in names() if find(name).uses_unit}
    assert {"swapping", "retraining", "gradients", "shapley", "weight-change"} <= known
    assert not known & {"probing", "patching", "random"}
    probing, swapping = make("probing"), make("swapping")
    there, problem = Circumstances(), "no part of layer 1 (X) is called attention"
    check_possible([probing], there, "layer", problem)
    check_possible([probing, swapping], there, "mlp")
    with pytest.raises(NotPossible, match="makes no difference to probing, random; "):
        check_possible([probing, make("random")], there, "mlp")
    with pytest.raises(NotPossible, match=r"^windows.unit 'mlp' is not possible: no part"):
        check_possible([swapping], there, "mlp", problem)
