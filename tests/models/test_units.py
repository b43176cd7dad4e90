"""Parts of layers: which parameters they have, and blocks that mix those of two models."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from memloc.config import Unit
from memloc.data.encode import Encoded, TextCodec, encode
from memloc.errors import ModelError
from memloc.models.blocks import BlockModel
from memloc.models.on_demand import LayersOnDemand
from memloc.models.units import ATTENTION, mixed_block, mixed_stack, unit_problem
from memloc.techniques.swapping import expected_block_passes, swap_all_windows
from tests.oracles import swapping as oracle
from tests.tiny_models import ARCHITECTURES, tiny_model, tiny_tokenizer

PARTS = [unit for unit in get_args(Unit) if unit != "layer"]
T5 = {"layers_name": "num_layers", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4,
      "decoder_start_token_id": 0}  # fmt: skip


@cache
def read_only(architecture: str) -> tuple[BlockModel, BlockModel]:
    """Two models of three layers that no test changes."""
    return two_models(architecture)


def two_models(architecture: str, layers: int = 3) -> tuple[BlockModel, BlockModel]:
    changes: dict[str, Any] = T5 if architecture == "t5" else {}
    path = "encoder.block" if architecture == "t5" else None
    one, other = (
        BlockModel(tiny_model(architecture, layers=layers, seed=seed, **changes), path)
        for seed in (0, 1)
    )
    return one, other


def prefix_of(model: BlockModel) -> str:
    return f"{model.model.base_model_prefix}.{model.stack_path}"


def encoded_texts(texts: list[str]) -> Encoded:
    return encode(pd.DataFrame({"text": texts}), TextCodec(tiny_tokenizer(), "|", 0, 128))


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "t5"])
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


@pytest.mark.parametrize("unit", PARTS)
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "t5"])
def test_swapped_parts_predict_like_plain_mixed_models(
    architecture: str, unit: Unit, texts: list[str]
) -> None:
    memorised, original = read_only(architecture)
    texts = texts[:10]
    before = [
        {name: value.clone() for name, value in model.model.state_dict().items()}
        for model in (memorised, original)
    ]
    result = swap_all_windows(memorised, original, encoded_texts(texts), unit=unit)
    expected = oracle.swap_all_windows_plainly(
        memorised.model, original.model, prefix_of(memorised), tiny_tokenizer(), texts, unit=unit
    )
    assert result.unmodified.tolist() == expected[0, 0]
    for window, predicted in zip(result.windows, result.predicted, strict=True):
        assert predicted.tolist() == expected[tuple(window)], window
    assert len({tuple(answers) for answers in expected.values()}) > 2
    if memorised.can_resume:
        assert result.block_passes == expected_block_passes(3) * result.batches
    for model, state in zip((memorised, original), before, strict=True):
        assert all(torch.equal(state[k], v) for k, v in model.model.state_dict().items())


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "t5"])
def test_mixed_blocks_give_the_logits_of_plain_models_bit_for_bit(
    architecture: str, texts: list[str]
) -> None:
    own, other = read_only(architecture)
    batch = encoded_texts(texts).batch(range(6))
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


def test_mixed_blocks_share_every_weight_with_one_of_the_models() -> None:
    own, other = read_only("gpt2")
    theirs = {id(p) for p in other.model.parameters()}
    for unit in PARTS:
        for layer, block in enumerate(mixed_stack(own, other, unit), start=1):
            assert block is not own.block(layer)
            taken = {n for n, p in block.named_parameters() if id(p) in theirs}
            prefix = f"{prefix_of(own)}.{layer - 1}."
            assert {prefix + name for name in taken} == set(own.groups.of(unit)[layer - 1])
            known = theirs | {id(p) for p in own.model.parameters()}
            assert {id(p) for p in block.parameters()} <= known


def test_what_a_block_holds_itself_is_part_of_the_rest() -> None:
    def block() -> nn.Module:
        found = nn.Module()
        found.attn, found.scale = nn.Linear(2, 2), nn.Parameter(torch.rand(2))
        found.register_buffer("mask", torch.ones(2))
        return found

    own, other = block(), block()
    attention, rest = (mixed_block(own, other, unit) for unit in ("attention", "mlp"))
    for mixed, of_attention, of_rest in ((attention, other, own), (rest, own, other)):
        assert mixed.attn is of_attention.attn
        assert mixed.scale is of_rest.scale
        assert mixed.mask is of_rest.mask


def test_hooks_on_a_mixed_block_stay_off_the_block_it_was_made_from() -> None:
    own, other = two_models("bert", layers=1)
    block = mixed_block(own.block(1), other.block(1), "attention")
    block.register_forward_hook(lambda *_: None)
    assert not own.block(1)._forward_hooks
    assert not other.block(1)._forward_hooks


@pytest.mark.parametrize("unit", PARTS)
@pytest.mark.parametrize("architecture", ["bert", "opt", "gpt_neo", "t5"])
def test_parts_of_layers_in_a_file_predict_the_same(
    architecture: str, unit: Unit, texts: list[str], tmp_path: Path
) -> None:
    memorised, original = two_models(architecture)
    encoded = encoded_texts(texts)
    expected = swap_all_windows(memorised, original, encoded, unit=unit)
    layers = LayersOnDemand(original, tmp_path)
    found = swap_all_windows(memorised, original, encoded, unit=unit)
    assert np.array_equal(found.predicted, expected.predicted)
    if memorised.can_resume:  # two layers are read by the check of the parts
        assert layers.reads == 3 * found.batches + 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [("self_attn", True), ("SelfAttention", True), ("att", True), ("self_att", True),
     ("flatten", False), ("pattern", False), ("scatter", False), ("mlp", False)],
)  # fmt: skip
def test_names_that_only_contain_the_letters_are_no_attention(name: str, expected: bool) -> None:
    assert bool(ATTENTION.search(name)) == expected


def test_a_layer_without_attention_is_named() -> None:
    one, other = nn.Module(), nn.Module()
    one.attn, one.fc = nn.Linear(2, 2), nn.Linear(2, 2)
    other.mixer, other.attn_norm = nn.Linear(2, 2), nn.LayerNorm(2)
    assert unit_problem(nn.ModuleList([one])) is None
    problem = unit_problem(nn.ModuleList([one, other]))
    assert problem == "no part of layer 2 (Module) is called attention"
    del one.fc
    assert "nothing beside its attention" in (unit_problem(nn.ModuleList([one])) or "")


def test_a_block_whose_forward_was_replaced_is_refused() -> None:
    own, other = two_models("bert", layers=1)
    own.block(1).__dict__["forward"] = own.block(1).forward
    with pytest.raises(ModelError, match="something has replaced the forward of"):
        mixed_block(own.block(1), other.block(1), "mlp")


def test_a_block_that_holds_on_to_its_own_parts_is_found_out() -> None:
    own, other = two_models("bert", layers=2)
    block = own.block(2)
    # As somebody's own code might: the attention is kept where no copy of the block can see it.
    hidden = SimpleNamespace(attention=block.attention)
    wrapped = type(block).forward

    class Stubborn(type(block)):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Tensor:
            self.__dict__["_modules"] = {**self._modules, "attention": hidden.attention}
            result: Tensor = wrapped(self, *args, **kwargs)
            return result

    block.__class__ = Stubborn
    with pytest.raises(ModelError, match=r"layer 2 of .* does not run the parts it has"):
        mixed_stack(own, other, "attention")
