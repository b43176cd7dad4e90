"""Forgetting gradients (Dankers & Titov 2024, section 3.1 and appendix E).

At θ_M1, when the flipped labels have just been learned: which weights would have to move to forget
them? Per example, the gradient of −loss(x, perturbed label), averaged over the noisy examples and
over an equally large random set of clean ones; per layer l a norm over all its parameters:

    g_l = ‖ mean over noisy − mean over clean ‖ in θ_M1  /  the same in the frozen model
    weight_l = g_l / Σ g

Subtracting and dividing are switches, both on by default (appendix E). The objective is the
negative log-likelihood, or with ``gold_logit`` the negative logit of the label.

A mean gradient needs no batch of one: losses are summed over batches and float32 sums build up in
the parameters, so nothing is kept per example. With ``per_example``, each noisy example also gets
weights of its own: its gradient takes the place of the mean over the noisy ones. With ``unit``, the
parameters of a layer are those of its attention, or the rest of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from memloc.analysis.windows import layer_table
from memloc.config import Dtype, Norm, Objective, Unit
from memloc.data.encode import Encoded
from memloc.models.blocks import BlockModel
from memloc.models.names import Role
from memloc.models.states import autocast
from memloc.techniques.base import Context, LocalisationResult, MethodFailed, Report, register

BATCH = 16
"""Examples per backward pass; the sums do not depend on it. Larger batches were not faster."""

Gradient = list[dict[str, Tensor]]
"""Per layer, by parameter."""
Norms = dict[tuple[str, str, str], np.ndarray]
"""Per layer, by model, gradient (noisy, clean, difference) and kind (L1, L2)."""


@register
class Gradients:
    """Which layers would have to change most to forget?"""

    name = "gradients"
    revision = 2
    needs = ("near_ceiling", "frozen")
    settings = ("gradients", "unit")

    def localise(self, context: Context, report: Report) -> LocalisationResult:
        """Mean gradients of both sets in both models, and the weights of the layers."""
        config = context.techniques.gradients
        wrong = context.examples["noisy"].to_numpy()
        noisy, clean = np.flatnonzero(wrong), clean_sample(wrong, context.seed)
        target = Target(
            context.encoded,
            torch.tensor(context.examples["label"].to_numpy()),
            config.objective,
            context.training.dtype,
            unit=context.techniques.unit,
        )
        roles: tuple[Role, ...] = ("near_ceiling",)
        if config.divide_by_frozen:
            roles = ("frozen", "near_ceiling")
        total = len(roles) * (len(noisy) + len(clean)) + config.per_example * 5 * len(noisy)
        done = 0

        def advance(examples: int) -> None:
            nonlocal done
            done += examples
            report(done / total)

        norms: Norms = {}
        for role in roles:  # gradients are as large as the model: those of one are held at a time
            of_clean = mean_gradient(context.model(role), target, clean, advance)
            of_noisy = mean_gradient(context.model(role), target, noisy, advance)
            # Both kinds of norms cost next to nothing, and Table 4 compares them.
            for kind in get_args(Norm):
                norms[role, "clean", kind] = layer_norms(of_clean, kind)
                norms[role, "noisy", kind] = layer_norms(of_noisy, kind)
                norms[role, "difference", kind] = layer_norms(subtract(of_noisy, of_clean), kind)
        used = "difference" if config.subtract_clean else "noisy"
        scale = norms["frozen", used, config.norm] if config.divide_by_frozen else np.ones(1)
        details = {"gradients": self._norm_table(norms)}
        if config.per_example:
            per_example = []
            for row in noisy:
                own = mean_gradient(context.model("near_ceiling"), target, np.array([row]))
                own = subtract(own, of_clean) if config.subtract_clean else own
                per_example.append(layer_norms(own, config.norm))
                advance(5)
            details["example_gradients"] = self._example_table(
                context.examples["example"].to_numpy()[noisy], per_example, scale
            )
        return LocalisationResult(
            layers=layer_table(
                self.name, to_weights(norms["near_ceiling", used, config.norm] / scale)
            ),
            details=details,
            costs={"block_passes": target.block_passes},
        )

    def _norm_table(self, norms: Norms) -> pd.DataFrame:
        return pd.concat(
            [
                pd.DataFrame(
                    {
                        "technique": self.name,
                        "model": role,
                        "gradient": part,
                        "kind": kind,
                        "layer": np.arange(1, len(values) + 1),
                        "norm": values,
                    }
                )
                for (role, part, kind), values in norms.items()
            ],
            ignore_index=True,
        )

    def _example_table(
        self, examples: np.ndarray, norms: list[np.ndarray], scale: np.ndarray
    ) -> pd.DataFrame:
        n_layers = len(norms[0])
        return pd.DataFrame(
            {
                "technique": self.name,
                "example": np.repeat(examples, n_layers),
                "layer": np.tile(np.arange(1, n_layers + 1), len(examples)),
                "weight": np.concatenate([_own_weights(values / scale) for values in norms]),
            }
        )


def clean_sample(noisy: np.ndarray, seed: int) -> np.ndarray:
    """As many clean examples as there are noisy ones, or all of them if there are fewer."""
    clean = np.flatnonzero(~noisy)
    if not len(clean):
        raise MethodFailed("gradients need clean examples to compare with, and there are none")
    size = min(len(clean), int(noisy.sum()))
    return np.sort(np.random.default_rng(seed).choice(clean, size, replace=False))


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
                raise MethodFailed(
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


def _own_weights(values: np.ndarray) -> np.ndarray:
    """The same for one example; it has none if its gradient is zero."""
    return to_weights(values) if values.sum() > 0 else np.full(len(values), np.nan)


def to_weights(values: np.ndarray) -> np.ndarray:
    """Values that sum to 1."""
    total = values.sum()
    if not np.isfinite(total) or total <= 0:
        raise MethodFailed(
            "the gradients are zero or not finite in some layer, so they cannot be compared; try "
            "--undivided or --gradient-objective gold_logit"
        )
    weights: np.ndarray = values / total
    return weights
