"""Sizes of the gradients of single examples, from one backward pass of a batch of them.

The gradient of an example in a linear module is δᵀa, where a are the inputs of its tokens and δ the
gradients of its outputs; in a norm it follows from both as well. So hooks form it while the
backward pass goes by, one module at a time, for a few examples at once. No gradient of a whole
model is held, and no parameter takes one. For sums of squares in short texts it is not even formed:

    ‖δᵀa − c‖² = Σ_{t,s} (δ_t·δ_s)(a_t·a_s) − 2 Σ_t δ_t·(c a_t) + ‖c‖²
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from transformers.pytorch_utils import Conv1D

from memloc.models.blocks import BlockModel

LARGEST = {"cpu": 2**18}
"""Numbers that gradients of one module and some examples may have at a time, by kind of device. On
a CPU they should stay in its cache."""
LARGEST_ELSEWHERE = 2**24


class CannotFollow(Exception):
    """A module whose gradients do not follow from its inputs and the gradients of its outputs."""


def example_sums(
    model: BlockModel,
    layers: Sequence[Sequence[str]],
    total: Callable[[], Tensor],
    examples: int,
    power: int,
    minus: Mapping[str, Tensor],
) -> Tensor:
    """Per example and layer, Σ |g − c|^power over the parameters of the layer.

    Args:
        model: The model.
        layers: Names of the parameters of each layer.
        total: Makes the forward pass; the sum over the batch of what is differentiated.
        examples: Size of the batch.
        power: 1 or 2.
        minus: c by parameter; those left out are 0.

    Returns:
        Float64 [examples, layers] in main memory.

    Raises:
        CannotFollow: If a module is not of a known kind, or is used in an unknown way.
    """
    sums = torch.zeros(examples, len(layers), dtype=torch.float64, device=model.device)
    layer_of = {name: number for number, names in enumerate(layers) for name in names}
    waiting: dict[str, nn.Module] = {}

    def watch(path: str, module: nn.Module, names: Mapping[str, str]) -> Any:
        def after_forward(_module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if path not in waiting or len(inputs) != 1 or not isinstance(output, Tensor):
                raise CannotFollow(f"{path} is called in an unusual way")
            if inputs[0].dim() not in (2, 3) or len(inputs[0]) % examples:
                raise CannotFollow(f"{path} does not get rows of examples")
            del waiting[path]
            given = _by_example(inputs[0].detach(), examples)

            def in_backward(gradient: Tensor) -> None:
                subtracted = {name: minus[whole] for name, whole in names.items() if whole in minus}
                outputs = _by_example(gradient, examples)
                for name, part, found in _sizes(module, given, outputs, subtracted, power):
                    if name in names:
                        sums[part, layer_of[names[name]]] += found

            output.register_hook(in_backward)

        return module.register_forward_hook(after_forward)

    with model.frozen([name for name, _ in model.model.named_parameters()]), ExitStack() as hooks:
        for path, module in model.model.named_modules():
            own = {name: f"{path}.{name}" for name, _ in module.named_parameters(recurse=False)}
            wanted = {name: whole for name, whole in own.items() if whole in layer_of}
            if wanted:
                _check(path, module)
                waiting[path] = module
                hooks.callback(watch(path, module, wanted).remove)
        seen = [id(p) for module in waiting.values() for p in module.parameters(recurse=False)]
        if len(seen) < len(layer_of) or len(seen) > len(set(seen)):
            raise CannotFollow("modules share parameters")
        hooks.enter_context(_differentiable_input(model))
        total().backward()
    # What took no part has the gradient 0.
    for path, module in waiting.items():
        for name, parameter in module.named_parameters(recurse=False):
            whole = f"{path}.{name}"
            if whole in minus and whole in layer_of:
                nothing = torch.zeros_like(parameter, dtype=torch.float32)[None]
                sums[:, layer_of[whole]] += _size(nothing, minus[whole], power)
    return sums.clamp_(min=0).cpu()  # rounding may take a sum of squares below 0


def _check(path: str, module: nn.Module) -> None:
    is_norm = "norm" in type(module).__name__.lower()
    vectors = all(p.dim() == 1 for p in module.parameters(recurse=False))
    if type(module) not in (nn.Linear, Conv1D) and not (is_norm and vectors):
        raise CannotFollow(f"{path} is of type {type(module).__name__}")
    if any(True for _ in module.children()):
        raise CannotFollow(f"{path} has modules of its own")


def _by_example(values: Tensor, examples: int) -> Tensor:
    """[examples, tokens, width]; some models put the tokens of all examples in one row of them."""
    return values.reshape(examples, -1, values.shape[-1])


def _sizes(
    module: nn.Module, given: Tensor, gradient: Tensor, minus: Mapping[str, Tensor], power: int
) -> Iterator[tuple[str, slice, Tensor]]:
    """Sums over the parameters of a module, some examples at a time: name, which, Σ |g − c|^power.

    Inputs and the gradients of outputs are [examples, tokens, width].
    """
    everyone = slice(0, len(given))
    if type(module) not in (nn.Linear, Conv1D):
        for name, values in _norm_gradients(module, given, gradient).items():
            yield name, everyone, _size(values.float(), minus.get(name), power)
        return
    inputs, outputs = given.float(), gradient.float()
    if getattr(module, "bias", None) is not None:
        yield "bias", everyone, _size(outputs.sum(dim=1), minus.get("bias"), power)
    left, right = (outputs, inputs) if type(module) is nn.Linear else (inputs, outputs)
    fixed = minus.get("weight")
    numbers = left.shape[2] * right.shape[2]
    if power == 2 and left.shape[1] * (left.shape[2] + right.shape[2]) < numbers:
        yield "weight", everyone, _squares(left, right, fixed)
        return
    step = max(1, LARGEST.get(given.device.type, LARGEST_ELSEWHERE) // numbers)
    for start in range(0, len(given), step):
        part = slice(start, min(start + step, len(given)))
        yield "weight", part, _size(left[part].transpose(1, 2) @ right[part], fixed, power)


def _norm_gradients(module: nn.Module, given: Tensor, gradient: Tensor) -> dict[str, Tensor]:
    """Gradients of the parameters of a norm, per example."""
    parameters = {name: p.detach() for name, p in module.named_parameters(recurse=False)}

    def of_one(inputs: Tensor, outputs: Tensor) -> dict[str, Tensor]:
        def forward(values: dict[str, Tensor]) -> Tensor:
            result: Tensor = functional_call(module, values, (inputs,))
            return result

        found: dict[str, Tensor] = vjp(forward, parameters)[1](outputs)[0]
        return found

    with _unhooked(module):
        try:
            found: dict[str, Tensor] = vmap(of_one)(given, gradient)
        except RuntimeError as error:
            raise CannotFollow(f"{type(module).__name__}: {error}") from error
    return found


def _squares(left: Tensor, right: Tensor, fixed: Tensor | None) -> Tensor:
    """‖leftᵀright − fixed‖² per example, without leftᵀright."""
    pairs = (left @ left.transpose(1, 2)) * (right @ right.transpose(1, 2))
    squares = pairs.sum(dim=(1, 2), dtype=torch.float64)
    if fixed is not None:
        common = ((left @ fixed) * right).sum(dim=2).sum(dim=1, dtype=torch.float64)
        squares += _size(fixed[None], None, 2) - 2 * common
    return squares


def _size(found: Tensor, minus: Tensor | None, power: int) -> Tensor:
    """Σ |g − c|^power per example; `found` may be overwritten if there is something to subtract."""
    rest = found if minus is None else found.sub_(minus)
    rows = rest.abs() if power == 1 else rest.square()
    # The first sum is over one row of a matrix, which float32 adds up well enough.
    return rows.sum(dim=-1).reshape(len(found), -1).sum(dim=1, dtype=torch.float64)


@contextmanager
def _unhooked(module: nn.Module) -> Iterator[None]:
    hooks = module._forward_hooks.copy()
    module._forward_hooks.clear()
    try:
        yield
    finally:
        module._forward_hooks.update(hooks)


@contextmanager
def _differentiable_input(model: BlockModel) -> Iterator[None]:
    """Inside, the input of layer 1 takes a gradient, so that the backward pass comes so far."""

    def open_state(_module: nn.Module, args: Any, kwargs: Any) -> Any:
        if args:
            return (args[0].detach().requires_grad_(), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": kwargs["hidden_states"].detach().requires_grad_()}

    handle = model.stack[0].register_forward_pre_hook(open_state, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
