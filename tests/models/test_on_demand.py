"""Layers in a file: the same answers, one layer in memory at a time, and what that saves."""

from __future__ import annotations

import argparse
import copy
import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from benchmarks.swapping_memory import make_models, measure

from memloc.analysis.windows import all_windows
from memloc.errors import ModelError, StoreError
from memloc.models.blocks import BlockModel
from memloc.models.load import swapping_bytes
from memloc.models.on_demand import ALIGNMENT, LayersOnDemand
from memloc.techniques import make
from memloc.techniques.swapping import swap_windows
from tests.tiny_models import ARCHITECTURES, each, encoded, tiny_context, tiny_model, two_blocks


def weights(model: BlockModel, layer: int) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.block(layer).parameters()]


def in_memory(model: BlockModel) -> list[int]:
    """Layers that have any weights in memory."""
    return [
        layer
        for layer, block in enumerate(model.stack, start=1)
        if any(parameter.numel() for parameter in block.parameters())
    ]


@pytest.mark.parametrize("architecture", each(*ARCHITECTURES, "t5"))
def test_swapping_predicts_the_same_with_layers_in_a_file(
    architecture: str, texts: list[str], tmp_path: Path
) -> None:
    memorised, original = two_blocks(architecture, 4)
    expected = swap_windows(memorised, original, encoded(texts), all_windows(memorised.n_layers))
    layers = LayersOnDemand(original, tmp_path)
    found = swap_windows(memorised, original, encoded(texts), all_windows(memorised.n_layers))
    assert np.array_equal(found.predicted, expected.predicted)
    assert len({tuple(row) for row in expected.predicted}) > 2
    # All parts of a batch go through a layer before the next is read.
    assert layers.reads == 4 * found.batches or not memorised.can_resume


@pytest.mark.parametrize("architecture", each("bert", "gpt_neo", "modernbert"))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_layer_at_a_time_is_in_memory_with_its_own_weights(
    architecture: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = BlockModel(tiny_model(architecture).to(dtype))
    expected = [weights(model, layer) for layer in range(1, 5)]
    folder = tmp_path / "made" / "when needed"
    layers = LayersOnDemand(model, folder)
    assert in_memory(model) == []
    for layer in (1, 2, 4, 4, 3, 1):
        found = weights(model, layer)
        assert in_memory(model) == [layer] == [layers.layer]
        for mine, theirs in zip(found, expected[layer - 1], strict=True):
            assert mine.dtype == theirs.dtype
            assert torch.equal(mine, theirs)
        # As torch aligns tensors, so that the same kernels do the same sums.
        assert all(p.data_ptr() % ALIGNMENT == 0 for p in model.block(layer).parameters())
    assert layers.reads == 5
    assert list(folder.iterdir()) == []  # the file has no name, so it goes with the process


@pytest.mark.parametrize("name", ["shapley", "patching", "weight-change"])
def test_techniques_that_look_at_the_original_model_find_the_same(
    name: str, tmp_path: Path
) -> None:
    context = tiny_context("bert", 3, ("memorised", "original", "pretrained"), 12)
    expected = make(name).localise(context)
    layers = LayersOnDemand(context.model("original"), tmp_path)
    found = make(name).localise(context)
    assert layers.reads >= 3
    assert found.keys() == expected.keys()
    for table in expected:
        pd.testing.assert_frame_equal(found[table], expected[table], check_exact=True)


def test_layers_in_a_file_cannot_be_differentiated_and_say_so(
    texts: list[str], tmp_path: Path
) -> None:
    model = BlockModel(tiny_model("bert"))
    LayersOnDemand(model, tmp_path)
    with pytest.raises(ModelError, match=r"cannot be differentiated while .*no_grad"):
        model.logits(encoded(texts).batch([0]))


def test_a_full_disk_is_one_sentence_and_leaves_the_model_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    model = BlockModel(tiny_model("bert"))
    before = copy.deepcopy(model.model.state_dict())
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StoreError, match=r"no room for .* of layers in .*free some space"):
        LayersOnDemand(model, tmp_path)
    assert all(torch.equal(before[name], v) for name, v in model.model.state_dict().items())


def test_low_memory_saves_the_layers_of_one_model() -> None:
    parameters = {"embeddings": 10**8, "layers": [5 * 10**7] * 24, "tail": 5000, "all": 13 * 10**8}
    memory = swapping_bytes(parameters)
    assert memory["two_models"] - memory["low_memory"] == 4 * 23 * 5 * 10**7


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_a_process_with_low_memory_needs_less_by_most_of_a_model(tmp_path: Path) -> None:
    settings = argparse.Namespace(layers=24, width=384, vocabulary=100, tokens=4, examples=2)
    parameters = make_models(tmp_path, settings)
    with ThreadPoolExecutor() as pool:  # each waits for a process
        found = pool.map(lambda way: measure(tmp_path, way), ("two_models", "low_memory"))
        two_models, low_memory = found
    assert two_models["predictions"] == low_memory["predictions"]
    assert two_models["peak"] - low_memory["peak"] > 0.7 * 4 * sum(parameters["layers"])
    estimate = swapping_bytes(parameters)
    assert two_models["peak"] < estimate["two_models"]
    assert low_memory["peak"] < estimate["low_memory"]
