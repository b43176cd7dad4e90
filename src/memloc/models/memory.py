"""How much memory swapping takes, estimated from the shape of a model alone.

    two models              embeddings + 2 · (layers + tail) + work
    with --low-memory       embeddings + layers + 2 · tail + the largest layer + work

Models of one origin share their embeddings, but each brings its own until they have been
compared. So `work` is the larger of a second set of embeddings (while loading), and of the states
of one batch of examples under all windows together with what a layer needs to compute (while
swapping). The program itself comes on top (about half a GB), and weights count in float32, whatever
they are stored in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForSequenceClassification

from memloc.models.find import find_stack
from memloc.models.mixing import (
    LARGEST_BATCH,
    STATE_BYTES,
    TOKENS_PER_PASS,
    examples_at_once,
    state_bytes,
    state_width,
)

NUMBER = 4
"""Bytes."""
ROWS_OF_STATES = 8
"""What a layer holds per token while it computes, beside two rows as wide as its MLP."""


@dataclass(frozen=True)
class Shape:
    """Sizes of the parts of a model, in numbers."""

    embeddings: int
    layers: tuple[int, ...]
    tail: int
    width: int
    """Of a state."""
    widest: int
    """Of what is computed within a layer."""


@dataclass(frozen=True)
class SwappingMemory:
    """Bytes at the peak."""

    states: int
    two_models: int
    low_memory: int


def shape_of_config(config: Any) -> Shape:
    """From a `transformers` config, without any weights."""
    with torch.device("meta"):
        return shape_of(AutoModelForSequenceClassification.from_config(config))


def shape_of(model: nn.Module, blocks: str | None = None) -> Shape:
    """From a model, which may be without weights (on torch's device "meta")."""
    _, stack = find_stack(model, blocks)
    seen = {id(parameter) for parameter in stack.parameters()}
    embeddings = tail = 0
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            if isinstance(module, nn.Embedding) or "embed" in name:
                embeddings += parameter.numel()
            else:
                tail += parameter.numel()
    return Shape(
        embeddings,
        tuple(sum(p.numel() for p in block.parameters()) for block in stack),
        tail,
        state_width(model),
        max(max(parameter.shape, default=1) for parameter in stack.parameters()),
    )


def swapping_memory(shape: Shape, tokens: int, examples: int = LARGEST_BATCH) -> SwappingMemory:
    """The peak for so many texts of so many tokens, on a CPU."""
    n_layers = len(shape.layers)
    mixtures = n_layers * (n_layers + 1) // 2 + 1
    together = tokens * min(examples, examples_at_once(mixtures, tokens, shape.width))
    states = min(state_bytes(mixtures, together, shape.width), STATE_BYTES)
    in_layer = max(TOKENS_PER_PASS["cpu"], together) * NUMBER
    work = states + in_layer * (ROWS_OF_STATES * shape.width + 2 * shape.widest)
    work = max(work, NUMBER * shape.embeddings)
    one = NUMBER * (shape.embeddings + sum(shape.layers) + shape.tail)
    return SwappingMemory(
        states,
        one + NUMBER * (sum(shape.layers) + shape.tail) + work,
        one + NUMBER * (max(shape.layers) + shape.tail) + work,
    )
