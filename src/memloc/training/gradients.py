"""Mean gradients of a loss by the parameters of layers, and their norms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from memloc.config import Dtype, Norm, Objective, Unit
from memloc.data.encode import Encoded
from memloc.models.blocks import BlockModel
from memloc.models.states import autocast
from memloc.training.loop import TrainingFailed

BATCH = 16
"""Examples per backward pass; the sums do not depend on it. Larger batches were not faster."""

Gradient = list[dict[str, Tensor]]
"""Per layer, by parameter."""


@dataclass
class Target:
    """What is differentiated, and by what of the layers."""

    encoded: Encoded
    labels: Tensor
    objective: Objective = "nll"
    dtype: Dtype = "float32"
    unit: Unit = "layer"
    block_passes: int = 0
    """Batches sent through a block so far."""

    def total(self, model: BlockModel, rows: np.ndarray) -> Tensor:
        """Sum over some examples.

        Raises:
            TrainingFailed: If it is not a number.
        """
        self.block_passes += model.n_layers
        with autocast(model.device, self.dtype):
            logits = model.logits(self.encoded.batch(rows.tolist(), model.device)).float()
        labels = self.labels[torch.from_numpy(rows)].to(model.device)
        if self.objective == "gold_logit":
            total = -logits.gather(1, labels[:, None]).sum()
        else:
            total = cross_entropy(logits, labels, reduction="sum")
        if not torch.isfinite(total):
            raise TrainingFailed(
                f"the loss of the model is {float(total.detach())}, so it has no gradient; check "
                "its weights, or leave out gradients"
            )
        return total


def mean_gradient(
    model: BlockModel,
    target: Target,
    rows: np.ndarray,
    advance: Callable[[int], None] = lambda _: None,
) -> Gradient:
    """Gradient of the layers' parameters, averaged over examples; float32, without dropout."""
    order = rows[np.argsort(target.encoded.lengths[rows], kind="stable")]
    parameters = dict(model.model.named_parameters())
    layers = [{name: parameters[name] for name in names} for names in model.groups.of(target.unit)]
    wanted = {name: p for layer in layers for name, p in layer.items()}
    # Half precision holds the gradient of one batch, but not sums over many.
    exact = all(p.dtype in (torch.float32, torch.float64) for p in wanted.values())
    sums: dict[str, Tensor] = {}
    closed = [name for name in parameters if name not in wanted]
    with model.frozen(closed), model.mode(training=False):
        model.model.zero_grad()
        try:
            for start in range(0, len(order), BATCH):
                part = order[start : start + BATCH]
                target.total(model, part).backward()
                if not exact or start + BATCH >= len(order):
                    for name, parameter in wanted.items():
                        taken = _take_gradient(parameter)
                        sums[name] = sums[name].add_(taken) if name in sums else taken
                advance(len(part))
        finally:
            model.model.zero_grad()
    return [{name: sums[name].div_(len(rows)) for name in layer} for layer in layers]


def _take_gradient(parameter: torch.nn.Parameter) -> Tensor:
    gradient, parameter.grad = parameter.grad, None
    # A parameter that took no part (an unused bias, say) has the gradient 0.
    return torch.zeros_like(parameter).float() if gradient is None else gradient.float()


def subtract(one: Gradient, other: Gradient) -> Gradient:
    """Parameter by parameter."""
    return [
        {name: value - theirs[name] for name, value in mine.items()}
        for mine, theirs in zip(one, other, strict=True)
    ]


def layer_norms(gradient: Gradient, norm: Norm) -> np.ndarray:
    """Per layer, over all its parameters."""
    power = 1 if norm == "L1" else 2
    sums = [
        sum(float(value.abs().pow(power).sum(dtype=torch.float64)) for value in layer.values())
        for layer in gradient
    ]
    return np.array(sums) ** (1 / power)
