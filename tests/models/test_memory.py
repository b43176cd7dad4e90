"""The memory of swapping: what is estimated, what a process really needs, and what the docs say."""

from __future__ import annotations

import argparse
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from benchmarks.swapping_memory import make_models, measure
from transformers import AutoConfig, OPTConfig

from memloc.models.blocks import BlockModel
from memloc.models.memory import NUMBER, shape_of, shape_of_config, swapping_memory
from memloc.models.mixing import STATE_BYTES
from tests.tiny_models import ARCHITECTURES, tiny_model

LIBRARIES = 128 * 2**20
"""Bytes that libraries may allocate for themselves."""
OPT_1_3B = OPTConfig(
    hidden_size=2048, num_hidden_layers=24, num_attention_heads=32, ffn_dim=8192, vocab_size=50272,
    max_position_embeddings=2048, word_embed_proj_dim=2048, num_labels=2,
)  # fmt: skip


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_shape_is_that_of_the_parts_that_memloc_finds(architecture: str) -> None:
    model = BlockModel(tiny_model(architecture))
    sizes = {name: parameter.numel() for name, parameter in model.model.named_parameters()}
    shape = shape_of(model.model)
    groups = model.groups
    assert shape.layers == tuple(sum(sizes[n] for n in names) for names in groups.blocks)
    assert shape.embeddings + sum(shape.layers) + shape.tail == sum(sizes.values())
    # A norm between embeddings and layers may be taken for the tail without weights to run.
    assert shape.embeddings == pytest.approx(sum(sizes[n] for n in groups.embeddings), rel=0.01)
    assert shape.width == 32
    config = AutoConfig.for_model(**model.model.config.to_dict())
    assert shape_of_config(config) == shape


def test_low_memory_saves_the_layers_of_one_model() -> None:
    shape = shape_of_config(OPT_1_3B)
    assert shape.embeddings + sum(shape.layers) + shape.tail == 1_315_762_176
    for tokens in (16, 128, 512):
        memory = swapping_memory(shape, tokens)
        assert memory.two_models - memory.low_memory == NUMBER * sum(shape.layers[1:])
        assert memory.states <= STATE_BYTES
    longer, shorter = (swapping_memory(shape, tokens) for tokens in (512, 4))
    assert longer.states > shorter.states


def test_the_docs_say_what_is_estimated_for_opt_1_3b() -> None:
    text = (Path(__file__).parents[2] / "docs" / "larger-models.md").read_text(encoding="utf-8")
    for tokens in (128, 512):
        memory = swapping_memory(shape_of_config(OPT_1_3B), tokens)
        both = [f"{b / 2**30:.1f} GB" for b in (memory.two_models, memory.low_memory)]
        assert re.search(rf"\| {tokens} tokens \| {both[0]} \| {both[1]} \|", text), both


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_a_process_with_low_memory_needs_less_by_most_of_a_model(tmp_path: Path) -> None:
    settings = argparse.Namespace(layers=24, width=384, vocabulary=100, tokens=4, examples=2)
    shape = make_models(tmp_path, settings)
    with ThreadPoolExecutor() as pool:  # each waits for a process
        found = pool.map(lambda way: measure(tmp_path, way), ("two_models", "low_memory"))
        two_models, low_memory = found
    assert two_models["predictions"] == low_memory["predictions"]
    layers = NUMBER * sum(shape.layers)
    assert two_models["peak"] - low_memory["peak"] > 0.7 * layers
    # Small as this model is, what the libraries allocate for themselves counts as well; it differs
    # between machines. `benchmarks.swapping_memory` compares a larger one.
    estimate = swapping_memory(shape, settings.tokens, settings.examples)
    for found, expected in ((two_models, estimate.two_models), (low_memory, estimate.low_memory)):
        assert 0.7 * expected < found["peak"] < expected + LIBRARIES
