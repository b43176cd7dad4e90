"""Models in memory: found inside their wrappers, opened as they are, and compared."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from memloc.errors import ModelError
from memloc.models.blocks import BlockModel


def unwrap(model: Any, role: str) -> nn.Module:
    """The classifier inside `torch.compile`, data-parallel and `peft` wrappers.

    Adapters of peft stay where they are, inside the layers.

    Raises:
        ModelError: If it is no model, or its adapters are not in its layers.
    """
    if not isinstance(model, nn.Module):
        hint = f"; give its .model as {role}" if hasattr(model, "model") else ""
        raise ModelError(
            f"{role} is of type {type(model).__name__}, not a transformers model{hint or ''}"
            + ("" if hint else "; load it with AutoModelForSequenceClassification")
        )
    if hasattr(model, "_orig_mod"):
        return unwrap(model._orig_mod, role)
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrap(model.module, role)
    if hasattr(model, "peft_config") and hasattr(model, "get_base_model"):
        active: Any = model.active_peft_config
        if getattr(active, "is_prompt_learning", False):
            raise ModelError(
                f"{role} has learned a prompt ({active.peft_type}), which is not in its layers; "
                "adapters in the layers, such as LoRA, can be analysed"
            )
        wrapper: Any = model
        return unwrap(wrapper.get_base_model(), role)
    return model


def check_distinct(models: Mapping[str, nn.Module]) -> None:
    """No model may have two roles; only θ_M1 may be θ_M, which it is if it is not given.

    Raises:
        ModelError: Naming the first two that are one.
    """
    for (role, model), (other, same) in itertools.combinations(models.items(), 2):
        if model is same and {role, other} != {"memorised", "near_ceiling"}:
            raise ModelError(
                f"{role} and {other} are one and the same model in memory, so nothing tells them "
                f"apart; load {other} separately, or leave it out"
            )


def open_model(model: nn.Module, role: str, blocks: str | None) -> BlockModel:
    """Its layers, looked at in place.

    Raises:
        ModelError: If it is no classifier, or its layers cannot be told apart.
    """
    config: Any = getattr(model, "config", None)
    if config is None or not hasattr(config, "num_labels"):
        raise ModelError(
            f"{role} ({type(model).__name__}) is not a transformers model; load it with "
            "AutoModelForSequenceClassification"
        )
    if getattr(model, "base_model", None) is model or int(config.num_labels) < 2:
        raise ModelError(
            f"{role} ({type(model).__name__}) does not choose between classes; give a "
            "sequence-classification model with two outputs or more"
        )
    devices = {str(p.device) for p in model.parameters()}
    if len(devices) > 1 or "meta" in devices:
        raise ModelError(
            f"the weights of {role} are on {' and '.join(sorted(devices))}; move the whole model "
            "to one device"
        )
    opened = BlockModel(model, blocks)
    adapters = adapter_parameters(model)
    if adapters:
        # The gradient of a weight under an adapter is that of the merged weight.
        kept = tuple(
            tuple(name for name in names if name not in adapters) for names in opened.groups.blocks
        )
        opened.groups = replace(opened.groups, blocks=kept)
    return opened


def adapter_parameters(model: nn.Module) -> set[str]:
    """Names of the parameters of adapters (LoRA, say) that are not merged into the weights."""
    found = set()
    for prefix, module in model.named_modules():
        if hasattr(module, "base_layer") and hasattr(module, "adapter_layer_names"):
            inside = module.named_parameters(prefix)
            found |= {n for n, _ in inside if not n.startswith(f"{prefix}.base_layer.")}
    return found


def class_names(model: BlockModel) -> list[str]:
    """In the order of the outputs."""
    config: Any = model.model.config
    return [str(config.id2label.get(index, index)) for index in range(int(config.num_labels))]


def dtype_of(model: BlockModel) -> torch.dtype:
    """Of the first layer's weights; adapters may have another."""
    layers = dict(model.model.named_parameters())
    return layers[model.groups.blocks[0][0]].dtype


def check_fit(one: BlockModel, other: BlockModel, role: str, *, same_classes: bool = True) -> None:
    """Layers of `other`, called `role`, can take the place of those of `memorised`.

    Raises:
        ModelError: Naming the first difference.
    """
    mine, theirs = _shapes(one), _shapes(other)
    facts: dict[str, tuple[Any, Any]] = {
        "architecture": (type(one.model).__name__, type(other.model).__name__),
        "number of layers": (one.n_layers, other.n_layers),
        "number of classes": (len(class_names(one)), len(class_names(other))),
    }
    if same_classes:
        facts["list of classes (id2label)"] = (class_names(one), class_names(other))
        facts["precision"] = (dtype_of(one), dtype_of(other))
    facts["device"] = (one.device, other.device)
    for name in mine:
        if name in theirs:  # adapters and what they wrap have other names
            facts[f"shape of {name}"] = (mine[name], theirs[name])
    for what, (ours, given) in facts.items():
        if ours != given:
            remedy = {
                "device": "move both to the same device",
                "precision": "convert one of them, such as with .float()",
            }.get(what, "give models that were fine-tuned from the same one on the same classes")
            raise ModelError(
                f"the models do not fit each other: {what} is {ours} in memorised but {given} in "
                f"{role}; {remedy}"
            )


def _shapes(model: BlockModel) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in model.model.named_parameters()}


def load_pretrained(
    name: str | Path, classes: int, blocks: str | None, device: torch.device, max_tokens: int
) -> BlockModel:
    """θ_P by its name or folder, with a new head, in float32.

    Raises:
        ModelError: If it cannot be loaded.
    """
    from memloc.config import ModelConfig
    from memloc.engine.plan import FROZEN_SEED
    from memloc.models.load import load_classifier
    from memloc.models.names import resolve

    config = ModelConfig.make(name=str(name), blocks=blocks)
    return load_classifier(
        resolve(config),
        config,
        n_labels=classes,
        seed=FROZEN_SEED,
        device=device,
        max_tokens=max_tokens,
    ).blocks
