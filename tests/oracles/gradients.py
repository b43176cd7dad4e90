"""Forgetting gradients as defined: one example at a time, the whole model, plain sums."""

from __future__ import annotations

from typing import Any

import torch


def mean_gradient_plainly(
    model: Any,
    prefix: str,
    tokenizer: Any,
    texts: list[str],
    labels: list[int],
    objective: str = "nll",
) -> dict[str, Any]:
    """Gradient of −loss(x, label) of the layers' parameters, averaged over the examples."""
    model.eval()
    layers = {n: p for n, p in model.named_parameters() if n.startswith(f"{prefix}.")}
    sums = {name: torch.zeros_like(parameter) for name, parameter in layers.items()}
    for text, label in zip(texts, labels, strict=True):
        model.zero_grad()
        logits = model(**tokenizer([text], truncation=True, return_tensors="pt")).logits[0]
        gains = torch.log_softmax(logits, dim=0) if objective == "nll" else logits
        loss = -gains[label]
        (-loss).backward()
        for name, parameter in layers.items():
            if parameter.grad is not None:
                sums[name] += parameter.grad
    model.zero_grad()
    return {name: value / len(texts) for name, value in sums.items()}


def layer_norms_plainly(gradient: dict[str, Any], prefix: str, norm: str) -> list[float]:
    """The norm over all parameters of each layer below `prefix`."""
    layers: dict[int, list[Any]] = {}
    for name, value in gradient.items():
        if name.startswith(f"{prefix}."):
            layers.setdefault(int(name[len(prefix) + 1 :].split(".")[0]), []).append(
                value.flatten()
            )
    order = 1 if norm == "L1" else 2
    return [
        float(torch.linalg.vector_norm(torch.cat(layers[layer]).double(), ord=order))
        for layer in sorted(layers)
    ]


def weights_plainly(
    memorised: tuple[dict[str, Any], dict[str, Any]],
    frozen: tuple[dict[str, Any], dict[str, Any]],
    prefix: str,
    norm: str = "L1",
    subtract: bool = True,
    divide: bool = True,
) -> list[float]:
    """Layer weights from (noisy, clean) gradients of both models."""

    def norms(noisy: dict[str, Any], clean: dict[str, Any]) -> list[float]:
        used = {name: value - clean[name] for name, value in noisy.items()} if subtract else noisy
        return layer_norms_plainly(used, prefix, norm)

    values = norms(*memorised)
    if divide:
        values = [value / other for value, other in zip(values, norms(*frozen), strict=True)]
    return [value / sum(values) for value in values]


def example_norms_plainly(
    model: Any,
    prefix: str,
    tokenizer: Any,
    texts: list[str],
    labels: list[int],
    norm: str,
    minus: dict[str, Any] | None = None,
    objective: str = "nll",
) -> list[list[float]]:
    """Per example and layer, the norm of its own gradient, less a fixed one: a pass each."""
    found = []
    for text, label in zip(texts, labels, strict=True):
        own = mean_gradient_plainly(model, prefix, tokenizer, [text], [label], objective)
        if minus is not None:
            own = {name: value - minus[name] for name, value in own.items()}
        found.append(layer_norms_plainly(own, prefix, norm))
    return found
