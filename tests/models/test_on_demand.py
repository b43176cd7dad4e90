"""Layers in a file: the same answers, one layer in memory at a time."""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from memloc.data.encode import Encoded, TextCodec, encode
from memloc.errors import ModelError, StoreError
from memloc.models.blocks import BlockModel
from memloc.models.load import share_embeddings
from memloc.models.on_demand import ALIGNMENT, LayersOnDemand
from memloc.models.states import states_of
from memloc.techniques import make
from memloc.techniques.base import Context
from memloc.techniques.swapping import swap_all_windows
from tests.conftest import labelled_rows, make_texts
from tests.tiny_models import ARCHITECTURES, tiny_model, tiny_tokenizer

T5 = {"layers_name": "num_layers", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4}


def encoded_texts(texts: list[str]) -> Encoded:
    return encode(pd.DataFrame({"text": texts}), TextCodec(tiny_tokenizer(), "|", 0, 128))


def two_models(architecture: str, layers: int = 4, **changes: Any) -> list[BlockModel]:
    blocks = changes.pop("blocks", None)
    return [
        BlockModel(tiny_model(architecture, layers=layers, seed=seed, **changes), blocks)
        for seed in (0, 1)
    ]


def weights(model: BlockModel, layer: int) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.block(layer).parameters()]


def in_memory(model: BlockModel) -> list[int]:
    """Layers that have any weights in memory."""
    return [
        layer
        for layer, block in enumerate(model.stack, start=1)
        if any(parameter.numel() for parameter in block.parameters())
    ]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_swapping_predicts_the_same_with_layers_in_a_file(
    architecture: str, texts: list[str], tmp_path: Path
) -> None:
    memorised, original = two_models(architecture)
    encoded = encoded_texts(texts)
    expected = swap_all_windows(memorised, original, encoded)
    layers = LayersOnDemand(original, tmp_path)
    found = swap_all_windows(memorised, original, encoded)
    assert np.array_equal(found.predicted, expected.predicted)
    assert np.array_equal(found.unmodified, expected.unmodified)
    assert len({tuple(row) for row in expected.predicted}) > 2
    # All parts of a batch go through a layer before the next is read.
    assert layers.reads == 4 * found.batches


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("architecture", ["bert", "opt", "llama"])
def test_24_layers_predict_the_same_with_layers_in_a_file(
    architecture: str, dtype: Any, tmp_path: Path
) -> None:
    memorised, original = two_models(architecture, layers=24)
    encoded = encoded_texts(make_texts(6))
    expected = swap_all_windows(memorised, original, encoded, dtype)
    layers = LayersOnDemand(original, tmp_path)
    found = swap_all_windows(memorised, original, encoded, dtype)
    assert np.array_equal(found.predicted, expected.predicted)
    assert layers.reads == 24 * found.batches


def test_models_that_cannot_resume_work_too(texts: list[str], tmp_path: Path) -> None:
    settings = {"decoder_start_token_id": 0, "blocks": "encoder.block", **T5}
    memorised, original = two_models("t5", layers=3, **settings)
    assert not memorised.can_resume
    expected = swap_all_windows(memorised, original, encoded_texts(texts))
    LayersOnDemand(original, tmp_path)
    found = swap_all_windows(memorised, original, encoded_texts(texts))
    assert np.array_equal(found.predicted, expected.predicted)


@pytest.mark.parametrize("architecture", ["bert", "gpt_neo", "modernbert"])
def test_one_layer_at_a_time_is_in_memory_with_its_own_weights(
    architecture: str, tmp_path: Path
) -> None:
    model = BlockModel(tiny_model(architecture))
    expected = [weights(model, layer) for layer in range(1, 5)]
    layers = LayersOnDemand(model, tmp_path)
    assert in_memory(model) == []
    for layer in (1, 2, 4, 4, 3, 1):
        found = weights(model, layer)
        assert in_memory(model) == [layer] == [layers.layer]
        for mine, theirs in zip(found, expected[layer - 1], strict=True):
            assert mine.dtype == theirs.dtype
            assert torch.equal(mine, theirs)
    assert layers.reads == 5


def test_while_a_model_runs_one_layer_is_in_memory(texts: list[str], tmp_path: Path) -> None:
    model = BlockModel(tiny_model("gpt2", layers=6))
    batch = encoded_texts(texts).batch(range(4))
    with torch.no_grad():
        states, logits = model.states(batch)
    layers = LayersOnDemand(model, tmp_path)
    seen = []
    for block in model.stack:
        block.register_forward_hook(lambda *_: seen.append(in_memory(model)))
    with torch.no_grad():
        found, again = model.states(batch)
    assert seen == [[1], [2], [3], [4], [5], [6]]
    assert torch.equal(again, logits)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, states, strict=True))
    # A layer that only passes its input through is not read.
    layers.reads = 0
    with torch.no_grad():
        assert torch.equal(model.run_layers(states[2], batch, 3, 3), states[3])
        assert torch.equal(model.resume(states[6], batch, 6), logits)
    assert layers.reads == 1


def test_parameters_are_aligned_like_those_of_torch(tmp_path: Path) -> None:
    model = BlockModel(tiny_model("gpt_neox"))
    LayersOnDemand(model, tmp_path)
    for layer in (1, 4):
        assert all(p.data_ptr() % ALIGNMENT == 0 for p in model.block(layer).parameters())


def test_layers_of_half_precision_come_back_in_it(tmp_path: Path) -> None:
    model = BlockModel(tiny_model("llama").to(torch.bfloat16))
    expected = [weights(model, layer) for layer in (1, 2, 3, 4)]
    LayersOnDemand(model, tmp_path)
    for layer, before in enumerate(expected, start=1):
        found = weights(model, layer)
        assert all(torch.equal(a, b) for a, b in zip(found, before, strict=True))
        assert {p.dtype for p in found} == {torch.bfloat16}


def test_a_parameter_that_two_layers_share_stays_in_memory(
    texts: list[str], tmp_path: Path
) -> None:
    model = tiny_model("bert")
    layers = model.bert.encoder.layer
    layers[2].output.LayerNorm.weight = layers[0].output.LayerNorm.weight
    blocks, encoded = BlockModel(model), encoded_texts(texts)
    with torch.no_grad():
        expected = blocks.logits(encoded.batch(range(5)))
        LayersOnDemand(blocks, tmp_path)
        assert torch.equal(blocks.logits(encoded.batch(range(5))), expected)
    assert layers[0].output.LayerNorm.weight.numel() == 32


def make_context(**settings: Any) -> Context:
    models = two_models("bert", layers=9)
    pretrained = BlockModel(tiny_model("bert", layers=9, seed=2))
    share = dict(models[0].model.named_parameters())
    with torch.no_grad():
        for name, parameter in models[1].model.named_parameters():
            if name in models[1].groups.embeddings:
                parameter.copy_(share[name])
    rows = labelled_rows(24)
    rows["noisy"] = rows["label"] != rows["original_label"]
    rows["example"] = np.arange(24)
    roles = {"memorised": models[0], "original": models[1], "pretrained": pretrained}
    return Context.of(rows, encoded_texts(rows["text"].tolist()), roles, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["swapping", "shapley", "patching", "weight-change"])
def test_techniques_that_look_at_the_original_model_find_the_same(
    name: str, tmp_path: Path
) -> None:
    context = make_context()
    technique = make(name, {"orders": 4} if name == "shapley" else {})
    expected = technique.localise(context, lambda _: None).tables
    layers = LayersOnDemand(context.model("original"), tmp_path)
    found = technique.localise(context, lambda _: None).tables
    assert layers.reads >= 9
    assert found.keys() == expected.keys()
    for table in expected:
        pd.testing.assert_frame_equal(found[table], expected[table], check_exact=True)


@pytest.mark.parametrize("half", ["bottom_swapped", "top_swapped"])
def test_states_with_half_the_layers_swapped_are_the_same(half: Any, tmp_path: Path) -> None:
    context = make_context()
    expected = states_of(half, context.model, context.encoded)
    LayersOnDemand(context.model("original"), tmp_path)
    assert torch.equal(states_of(half, context.model, context.encoded), expected)


def test_layers_in_a_file_cannot_be_differentiated_and_say_so(
    texts: list[str], tmp_path: Path
) -> None:
    model = BlockModel(tiny_model("bert"))
    LayersOnDemand(model, tmp_path)
    with pytest.raises(ModelError, match=r"cannot be differentiated while .*no_grad"):
        model.logits(encoded_texts(texts).batch([0]))


def test_the_file_has_no_name_and_goes_with_the_model(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "when needed"
    model = BlockModel(tiny_model("bert"))
    LayersOnDemand(model, folder)
    assert list(folder.iterdir()) == []
    weights(model, 2)
    assert list(folder.iterdir()) == []


def test_a_full_disk_is_one_sentence_and_leaves_the_model_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    model = BlockModel(tiny_model("bert"))
    before = copy.deepcopy(model.model.state_dict())
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StoreError, match=r"no room for .* of layers in .*leave it out"):
        LayersOnDemand(model, tmp_path)
    assert all(torch.equal(before[name], v) for name, v in model.model.state_dict().items())


def test_an_interrupted_read_is_not_taken_for_a_layer(tmp_path: Path) -> None:
    model = BlockModel(tiny_model("bert"))
    expected = weights(model, 2)
    layers = LayersOnDemand(model, tmp_path)
    model.block(1)
    read = layers._read

    def interrupt(layer: int) -> Iterator[None]:
        read(layer)
        raise KeyboardInterrupt

    layers._read = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        model.block(2)
    assert in_memory(model) == []
    layers._read = read  # type: ignore[method-assign]
    found = weights(model, 2)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("architecture", ["bert", "opt", "gpt_neo"])
def test_equal_embeddings_are_kept_once_and_others_are_left_alone(architecture: str) -> None:
    one = BlockModel(tiny_model(architecture, seed=0))
    two = BlockModel(copy.deepcopy(one.model))
    names = one.groups.embeddings
    assert len(names) > 1
    mine, theirs = (dict(model.model.named_parameters()) for model in (one, two))
    with torch.no_grad():
        theirs[names[0]] += 1
    changed = theirs[names[0]].clone()
    share_embeddings(two, one)
    assert torch.equal(theirs[names[0]], changed)
    assert theirs[names[0]].data_ptr() != mine[names[0]].data_ptr()
    for name in mine:
        shared = theirs[name].data_ptr() == mine[name].data_ptr()
        assert shared == (name in names[1:]), name
        theirs[name].requires_grad_(False)
        assert mine[name].requires_grad  # the values are shared, not the parameters
