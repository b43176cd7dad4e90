"""Find the stack of blocks in a model without knowing its architecture."""

from __future__ import annotations

from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from memloc.errors import ModelError, suggest


def find_stack(model: nn.Module, path: str | None = None) -> tuple[str, nn.ModuleList]:
    """Return the path below the base model and the `ModuleList` of the layers.

    Transformers marks the repeated layers of a model as `GradientCheckpointingLayer`. A model of
    somebody's own may not: then a list of equal modules, as long as the config says, is taken.

    Raises:
        ModelError: If there is no such list, or several and no `path`.
    """
    base = getattr(model, "base_model", model)
    name = type(model).__name__
    lists = {
        path: module
        for path, module in base.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) > 0
    }
    if path is not None:
        if path not in lists:
            raise ModelError(f"{name} has no layer stack at {path!r}{suggest(path, lists)}")
        return path, lists[path]
    depth = getattr(model.config, "num_hidden_layers", None)
    candidates = {
        path: module
        for path, module in lists.items()
        if all(isinstance(block, GradientCheckpointingLayer) for block in module)
    } or {
        path: module
        for path, module in lists.items()
        if len(module) == depth and len({type(block) for block in module}) == 1
    }
    if len(candidates) == 1:
        return next(iter(candidates.items()))
    if candidates:
        found = ", ".join(f"{path} ({len(stack)} layers)" for path, stack in candidates.items())
        raise ModelError(
            f"{name} has several layer stacks: {found}; say which to analyse with --blocks PATH"
        )
    if hasattr(model.config, "num_hidden_groups"):
        raise ModelError(
            f"{name} uses the same weights in every layer, so no layer can be told from another; "
            "choose a model whose layers have weights of their own"
        )
    raise ModelError(
        f"no stack of layers was found in {name}; if it has one, give its path with --blocks PATH"
    )
