"""Mean gradients of a loss by the parameters of layers, and their norms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    """What is differentiated."""

    encoded: Encoded
    labels: Tensor
    objective: Objective = "nll"
    dtype: Dtype = "float32"
    block_passes: int = 0
    unit: Unit = "layer"
    """By what of the layers."""

    def total(self, model: BlockModel, rows: np.ndarray) -> Tensor:
        """Sum over some examples."""
        self.block_passes += model.n_layers
        with autocast(model.device, self.dtype):
            logits = model.logits(self.encoded.batch(rows.tolist(), model.device)).float()
        labels = self.labels[torch.from_numpy(rows)].to(model.device)
        if self.objective == "gold_logit":
            return -logits.gather(1, labels[:, None]).sum()
        return cross_entropy(logits, labels, reduction="sum")


def mean_gradient(
    model: BlockModel,
    target: Target,
    rows: np.ndarray,
    advance: Callable[[int], None] = lambda _: None,
) -> Gradient:
    """Gradient of the layers' parameters, averaged over examples; float32."""
    order = rows[np.argsort(target.encoded.lengths[rows], kind="stable")]
    groups = model.groups.of(target.unit)
    parameters = dict(model.model.named_parameters())
    layers = [{name: parameters[name] for name in names} for names in groups]
    # Half precision holds the gradient of one batch, but not sums over many.
    exact = all(
        p.dtype in (torch.float32, torch.float64) for layer in layers for p in layer.values()
    )
    sums: Gradient = []
    with _only_these_learn(model, groups):
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            total = target.total(model, part)
            if not torch.isfinite(total):
                loss = float(total.detach())
                raise TrainingFailed(
                    f"the loss of the model is {loss}, so it has no gradient; check its weights, "
                    "or leave out gradients"
                )
            total.backward()
            if not exact or start + BATCH >= len(order):
                _add_gradients(sums, layers)
            advance(len(part))
    return [{n: value.div_(len(rows)) for n, value in layer.items()} for layer in sums]


def _add_gradients(sums: Gradient, layers: Sequence[Mapping[str, torch.nn.Parameter]]) -> None:
    """Move what has built up in the parameters to the float32 sums."""
    taken = [{name: _take_gradient(p) for name, p in layer.items()} for layer in layers]
    if not sums:
        sums += taken
        return
    for total, more in zip(sums, taken, strict=True):
        for name, value in more.items():
            total[name] += value


def _take_gradient(parameter: torch.nn.Parameter) -> Tensor:
    gradient, parameter.grad = parameter.grad, None
    # A parameter that took no part (an unused bias, say) has the gradient 0.
    return torch.zeros_like(parameter).float() if gradient is None else gradient.float()


@contextmanager
def _only_these_learn(model: BlockModel, groups: Iterable[Iterable[str]]) -> Iterator[None]:
    """Gradients for some parameters alone, without dropout; none are left behind."""
    wanted = {name for names in groups for name in names}
    closed = [name for name, _ in model.model.named_parameters() if name not in wanted]
    with model.frozen(closed), model.mode(training=False):
        model.model.zero_grad()
        try:
            yield
        finally:
            model.model.zero_grad()


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
