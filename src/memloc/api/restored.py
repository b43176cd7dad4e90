"""The user's models are left as they were, whatever happens in between.

What is recorded are references and flags, no weights: nothing the size of a model is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

_HOOKS = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    *("_backward_hooks", "_backward_pre_hooks", "_non_full_backward_hooks"),
)
_PADDING = "pad_token_id"


@contextmanager
def restored(models: list[nn.Module], tokenizer: Any = None) -> Iterator[None]:
    """Afterwards modes, flags, gradients, hooks, layers and padding ids are what they were.

    Weights are restored by those who change them (`BlockModel.preserved`).
    """
    kept = [_Model(model) for model in models]
    padding = getattr(tokenizer, "pad_token", None)
    try:
        yield
    finally:
        for model in kept:
            model.restore()
        if tokenizer is not None and getattr(tokenizer, "pad_token", None) != padding:
            tokenizer.pad_token = padding


class _Model:
    """What one model was like."""

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self.training = [(module, module.training) for module in modules]
        self.parts = [(module, dict(module._modules)) for module in modules]
        self.forwards = [(module, module.__dict__.get("forward")) for module in modules]
        self.hooks = [
            (hooks, set(hooks))
            for module in modules
            for name in _HOOKS
            if isinstance(hooks := module.__dict__.get(name), dict)
        ]
        self.parameters = [(p, p.requires_grad, p.grad) for p in model.parameters()]
        config: Any = getattr(model, "config", None)
        text: Any = config.get_text_config() if hasattr(config, "get_text_config") else config
        self.padding = [
            (one, getattr(one, _PADDING)) for one in (config, text) if hasattr(one, _PADDING)
        ]

    def restore(self) -> None:
        """Put everything back; what was not changed is not touched."""
        for module, training in self.training:
            module.training = training
        for module, parts in self.parts:
            if list(module._modules.items()) != list(parts.items()):
                module._modules.clear()
                module._modules.update(parts)
        for module, forward in self.forwards:
            if forward is None:
                module.__dict__.pop("forward", None)
            else:
                module.__dict__["forward"] = forward
        for hooks, before in self.hooks:
            for key in set(hooks) - before:
                del hooks[key]
        for parameter, requires_grad, gradient in self.parameters:
            parameter.requires_grad_(requires_grad)
            parameter.grad = gradient
        for config, pad in self.padding:
            setattr(config, _PADDING, pad)


@contextmanager
def own_settings(device: torch.device) -> Iterator[None]:
    """Inside, gradients can be taken and nothing is cast, whatever surrounds the call.

    Random states are restored (also those that `torch.random.fork_rng` forgets).
    """
    mps = torch.mps.get_rng_state() if device.type == "mps" else None
    try:
        with (
            torch.random.fork_rng(),
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast(device.type, enabled=False),
        ):
            yield
    finally:
        if mps is not None:
            torch.mps.set_rng_state(mps)
