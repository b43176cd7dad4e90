"""Parts of layers: which parameters they have, and blocks that mix those of two models."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from torch import nn

from memloc.analysis.windows import all_windows
from memloc.config import Unit
from memloc.models.blocks import BlockModel, mixed_block, mixed_stack, unit_problem
from memloc.models.on_demand import LayersOnDemand
from memloc.techniques.swapping import swap_windows
from tests.oracles import swapping as oracle
from tests.tiny_models import ARCHITECTURES, each, encoded, prefix_of, two_blocks

PARTS = [unit for unit in get_args(Unit) if unit != "layer"]
EVERY = each(*ARCHITECTURES, "t5")


@cache
def read_only(architecture: str) -> tuple[BlockModel, ...]:
    """Two models of three layers that no test changes."""
    return two_blocks(architecture)


@pytest.mark.parametrize("architecture", EVERY)
def test_attention_and_mlp_are_disjoint_and_together_the_layer(architecture: str) -> None:
    model, _ = read_only(architecture)
    groups = model.groups
    start = oracle.ATTENTION[architecture]
    for layer, (whole, attention, mlp) in enumerate(
        zip(groups.of("layer"), groups.of("attention"), groups.of("mlp"), strict=True)
    ):
        assert set(attention) | set(mlp) == set(whole)
        assert not set(attention) & set(mlp)
        below = f"{prefix_of(model)}.{layer}.{start}"
        assert attention
        assert set(attention) == {name for name in whole if name.startswith(below)}
        # As many weights as the names promise: queries, keys, values and output; two or three.
        matrices = [n for n in mlp if model.model.get_parameter(n).dim() > 1]
        assert len(matrices) in (2, 3)
        assert all("norm" in n.lower() or "ln_" in n for n in mlp if n not in matrices
                   and not n.endswith("bias"))  # fmt: skip
    assert model.unit_problem is None


@pytest.mark.parametrize("architecture", EVERY)
def test_mixed_blocks_give_the_logits_of_plain_models_bit_for_bit(
    architecture: str, texts: list[str]
) -> None:
    own, other = read_only(architecture)
    batch = encoded(texts).batch(range(6))
    plain = copy.deepcopy(own.model)
    with torch.no_grad():
        for unit in PARTS:
            blocks = mixed_stack(own, other, unit)
            for layers in ((1,), (2, 3), (1, 2, 3)):
                plain.load_state_dict(
                    oracle.mixed_state_dict(own.model, other.model, prefix_of(own), layers, unit)
                )
                with own.swapped({layer: blocks[layer - 1] for layer in layers}):
                    assert torch.equal(own.logits(batch), plain(**batch).logits), (unit, layers)
        # Attention, and then the rest too: the whole layer.
        both = [
            mixed_block(block, theirs, "mlp")
            for block, theirs in zip(mixed_stack(own, other, "attention"), other.stack, strict=True)
        ]
        with own.swapped(dict(enumerate(both, start=1))):
            found = own.logits(batch)
        with own.swapped(dict(enumerate(other.stack, start=1))):
            assert torch.equal(found, own.logits(batch))


@pytest.mark.parametrize("unit", PARTS)
@pytest.mark.parametrize("architecture", each("bert", "opt", "gpt_neo", "t5"))
def test_parts_of_layers_in_a_file_predict_the_same(
    architecture: str, unit: Unit, texts: list[str], tmp_path: Path
) -> None:
    memorised, original = two_blocks(architecture)
    expected = swap_windows(
        memorised, original, encoded(texts), all_windows(memorised.n_layers), unit=unit
    )
    layers = LayersOnDemand(original, tmp_path)
    found = swap_windows(
        memorised, original, encoded(texts), all_windows(memorised.n_layers), unit=unit
    )
    assert np.array_equal(found.predicted, expected.predicted)
    if memorised.can_resume:  # two layers are read by the check of the parts
        assert layers.reads == 3 * found.batches + 2


def test_a_layer_without_attention_is_named() -> None:
    one, other = nn.Module(), nn.Module()
    one.attn, one.fc = nn.Linear(2, 2), nn.Linear(2, 2)
    other.mixer, other.attn_norm = nn.Linear(2, 2), nn.LayerNorm(2)
    assert unit_problem(nn.ModuleList([one])) is None
    problem = unit_problem(nn.ModuleList([one, other]))
    assert problem == "no part of layer 2 (Module) is called attention"
    del one.fc
    assert "nothing beside its attention" in (unit_problem(nn.ModuleList([one])) or "")
