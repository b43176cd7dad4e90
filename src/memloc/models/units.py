"""Parts of layers: attention, and the rest, which is mostly the MLP.

Architectures call their parts as they like, so the rule is a simple one. The *attention* of a block
is what lies below its modules called attn, attention or the like; everything else is its *mlp*. A
norm beside the attention module is part of the rest whatever its name: `post_attention_layernorm`
comes before the MLP in Llama, after the attention in Gemma 2, and both parts need it.

A mixed block is a block of one model with a part from another. Modules are shared with both models,
no weight is copied: only the few modules above the attention are new, and they run the same code.
"""

from __future__ import annotations

import copy
import functools
import re
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call

from memloc.config import Unit
from memloc.errors import ModelError
from memloc.models.intercept import Interceptor

if TYPE_CHECKING:
    from memloc.models.blocks import BlockModel

ATTENTION = re.compile(r"attn|attention|(^|_)att($|_)", re.IGNORECASE)
"""Names of modules; not those that only contain the letters, such as pattern or flatten."""


def is_attention(name: str, module: nn.Module) -> bool:
    """Whether a module below a block is the attention, or one of several."""
    is_norm = "norm" in type(module).__name__.lower()
    return bool(ATTENTION.search(name)) and not is_norm and _has_parameters(module)


def attention_parameters(block: nn.Module) -> set[int]:
    """Ids of the parameters of the attention of a block."""
    found: set[int] = set()
    for name, child in block.named_children():
        found |= (
            {id(parameter) for parameter in child.parameters()}
            if is_attention(name, child)
            else attention_parameters(child)
        )
    return found


def unit_problem(stack: nn.ModuleList) -> str | None:
    """Why the layers have no parts, or None if all have both."""
    for layer, block in enumerate(stack, start=1):
        inside, whole = attention_parameters(block), {id(p) for p in block.parameters()}
        if not inside:
            return f"no part of layer {layer} ({type(block).__name__}) is called attention"
        if inside == whole:
            return f"layer {layer} ({type(block).__name__}) has nothing beside its attention"
    return None


def mixed_block(own: nn.Module, other: nn.Module, unit: Unit) -> nn.Module:
    """The block `own` with its attention, or the rest of it, from `other`; both stay as they are.

    Raises:
        ModelError: If the block does not run its own code.
    """
    if "forward" in vars(own):  # it would run the block it was made for, not this one
        raise _impossible(unit, f"something has replaced the forward of {type(own).__name__}")
    mixed = copy.copy(own)
    for name, value in vars(own).items():
        if isinstance(value, dict):  # modules, parameters, hooks: they must not be those of `own`
            mixed.__dict__[name] = value.copy()
    if unit == "mlp":
        mixed.__dict__["_parameters"] = other._parameters.copy()
        mixed.__dict__["_buffers"] = other._buffers.copy()
    for name, child in own.named_children():
        theirs = other.get_submodule(name)
        if is_attention(name, child):
            mixed._modules[name] = theirs if unit == "attention" else child
        elif attention_parameters(child):
            mixed._modules[name] = mixed_block(child, theirs, unit)
        else:
            mixed._modules[name] = child if unit == "attention" else theirs
    return mixed


def mixed_stack(own: BlockModel, other: BlockModel, unit: Unit) -> list[nn.Module]:
    """For every layer, that of `own` with a part from `other`; for whole layers, those of `other`.

    To be used while both models are in evaluation mode. If the layers of `other` are in a file,
    each is read when its mixed block runs.

    Raises:
        ModelError: If layers have no such parts, or exchanging them is not what it should be.
    """
    if unit == "layer":
        return list(other.stack)
    if own.unit_problem is not None:
        raise _impossible(unit, own.unit_problem)
    mixed = [
        mixed_block(mine, theirs, unit) for mine, theirs in zip(own.stack, other.stack, strict=True)
    ]
    if other.before_use is not None:
        for layer, block in enumerate(mixed, start=1):
            Interceptor.of(block).before = functools.partial(other.before_use, layer)
    _check(own, other, unit, mixed)
    return mixed


def check_parts(own: BlockModel, other: BlockModel, unit: Unit) -> None:
    """Find out whether parts of layers can be exchanged between two models.

    Raises:
        ModelError: If not.
    """
    with own.mode(training=False), other.mode(training=False):
        mixed_stack(own, other, unit)


def _check(own: BlockModel, other: BlockModel, unit: Unit, mixed: list[nn.Module]) -> None:
    """Do mixed blocks give what the block of `own` gives with the weights of `other` put in?"""
    from memloc.models.selftest import two_rows

    batch = two_rows(own)
    theirs = dict(other.model.named_parameters())
    with torch.no_grad():
        for layer in sorted({1, own.n_layers}):
            other.block(layer)  # brings its weights into memory
            weights: dict[str, Tensor] = {
                name: theirs[name] for name in own.groups.of(unit)[layer - 1]
            }
            expected = functional_call(own.model, weights, kwargs=own.arguments(batch)).logits
            with own.swapped({layer: mixed[layer - 1]}):
                found = own.logits(batch)
            if not torch.equal(found, expected):
                name = type(own.model).__name__
                raise _impossible(unit, f"layer {layer} of {name} does not run the parts it has")


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _impossible(unit: Unit, why: str) -> ModelError:
    return ModelError(why, setting="windows.unit", value=unit, remedy="analyse whole layers")
