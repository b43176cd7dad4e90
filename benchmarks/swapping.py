"""Layer swapping: all windows in lockstep against one plain model per window.

The oracle is the plain way: for every window, load the mixed state dict, tokenise, pad in the given
order, batches of 8, whole model. Both see the same examples and must predict the same classes.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from tests.oracles.swapping import swap_all_windows_plainly
from transformers import BertConfig, BertForSequenceClassification

from memloc.config import ModelConfig
from memloc.data.builtin import generate
from memloc.data.encode import encode
from memloc.methods.swapping import expected_block_passes, swap_all_windows
from memloc.models.blocks import BlockModel
from memloc.models.load import Classifier, load_classifier
from memloc.models.names import resolve


def shaken(model: Any, seed: int) -> Any:
    """The model with random changes to its layers, so that swapping changes predictions."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter += 0.05 * noise * parameter.std().nan_to_num(0.0)
    return model


def minilm(seed: int) -> Classifier:
    """The embedded 6-layer model with six classes."""
    config = ModelConfig(name="minilm")
    classifier = load_classifier(resolve(config), config, n_labels=6, seed=0)
    shaken(classifier.blocks.model, seed)
    return classifier


def twelve_layers(seed: int) -> Classifier:
    """A random 12-layer BERT as wide as `minilm`, with its tokeniser."""
    codec = minilm(0).codec
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30522, hidden_size=384, num_hidden_layers=12, num_attention_heads=12,
        intermediate_size=1536, num_labels=6, initializer_range=0.05,
    )  # fmt: skip
    return Classifier(BlockModel(shaken(BertForSequenceClassification(config).eval(), seed)), codec)


def measure(build: Any, name: str, examples: int) -> dict[str, Any]:
    """Time both ways on the same examples and check that they agree."""
    memorised, original = build(1), build(2)
    table = generate("questions", examples, 0).train
    encoded = encode(table, memorised.codec)
    texts = table["text"].tolist()
    tokenizer = memorised.codec.tokenizer
    swap_all_windows(memorised.blocks, original.blocks, encode(table[:8], memorised.codec))

    started = time.perf_counter()
    encoded = encode(table, memorised.codec)
    fast = swap_all_windows(memorised.blocks, original.blocks, encoded)
    fast_seconds = time.perf_counter() - started
    started = time.perf_counter()
    slow = swap_all_windows_plainly(
        memorised.blocks.model, original.blocks.model, "bert.encoder.layer", tokenizer, texts
    )
    slow_seconds = time.perf_counter() - started

    different = sum(
        a != b
        for window, predicted in zip(fast.windows, fast.predicted.tolist(), strict=True)
        for a, b in zip(predicted, slow[tuple(window)], strict=True)
    )
    assert different == 0, f"{different} predictions differ"
    n_layers = memorised.blocks.n_layers
    block = sum(p.numel() for p in memorised.blocks.block(1).parameters())
    tokens = int(encoded.lengths.sum())
    return {
        "step": "swapping, all windows",
        "model": name,
        "layers": n_layers,
        "examples": examples,
        "oracle_seconds": slow_seconds,
        "fast_seconds": fast_seconds,
        "ratio": slow_seconds / fast_seconds,
        "block_passes": fast.block_passes // fast.batches,
        "block_passes_derived": expected_block_passes(n_layers),
        "block_passes_plain": n_layers * (len(fast.windows) + 1),
        "useful_flops_per_second": 2
        * block
        * tokens
        * fast.block_passes
        / fast.batches
        / fast_seconds,
        "distinct_window_predictions": len({tuple(p) for p in fast.predicted.tolist()}),
    }
