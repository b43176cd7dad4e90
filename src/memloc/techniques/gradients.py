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

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from pydantic import Field

from memloc.config import Settings
from memloc.models.names import Role
from memloc.tables import CELL, EXAMPLE, LAYER, STATE, TECHNIQUE, Column, Table
from memloc.techniques.base import (
    Context,
    Report,
    Tables,
    Technique,
    TechniqueFailed,
    tidy,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from torch import Tensor
    from torch.nn import Parameter

    from memloc.config import Dtype, Unit
    from memloc.data.encode import Encoded
    from memloc.models.blocks import BlockModel

Objective = Literal["nll", "gold_logit"]
Norm = Literal["L1", "L2"]
Gradient = list[dict[str, "Tensor"]]
"""Per layer, by parameter."""
BATCH = 16
"""Examples per backward pass; the sums do not depend on it. Larger batches were not faster."""
CHOICES = Table(
    "gradient_choices",
    "whether gradients find the hidden layers, for every post-processing",
    {
        "norm": Column("str", "L1 or L2"),
        "subtract_clean": Column("bool", "whether the gradient of clean examples is subtracted"),
        "divide_by_frozen": Column("bool", "whether it is divided by that of the frozen model"),
        "k": Column("int64", "how many layers it may name"),
        "accuracy": Column("float64", "share of those that are hidden ones"),
    },
    of=("control",),
)


class Gradients(Technique):
    """Which layers would have to change most to forget?"""

    class Config(Settings):
        """The switches of appendix E."""

        objective: Objective = Field(
            "nll",
            description="What is differentiated: nll (the paper) or gold_logit (the authors' "
            "program).",
        )
        norm: Norm = Field("L1", description="Norm over the parameters of a layer.")
        subtract_clean: bool = Field(
            True, description="Subtract the clean gradient before the norm."
        )
        divide_by_frozen: bool = Field(True, description="Divide by the norm in the frozen model.")
        per_example: bool = Field(False, description="Also one weight per noisy example and layer.")

    config: Config
    name = "gradients"
    revision = 2
    needs = ("near_ceiling", "frozen")
    needs_if: ClassVar = {"frozen": "divide_by_frozen"}
    without_effect = ("per_example",)
    uses_unit = True
    tables = (
        Table(
            "gradients",
            "norms of mean gradients",
            {
                "technique": TECHNIQUE,
                "model": STATE,
                "gradient": Column("str", "noisy, clean, or their difference"),
                "kind": Column("str", "L1 or L2"),
                "layer": LAYER,
                "norm": Column("float64", "the norm over all parameters of the layer"),
            },
            of=("run", "localise", "control"),
        ),
        Table(
            "example_gradients",
            "weights of the layers by the gradient of one noisy example",
            {
                "technique": TECHNIQUE,
                "example": EXAMPLE,
                "layer": LAYER,
                "weight": Column("float64", "its weight"),
            },
            condition="gradients.per_example",
        ),
        CHOICES,
    )
    colour, marker = "#009E73", "D"

    @classmethod
    def benchmark(cls, tables: Tables) -> Tables:
        """Which of the switches of appendix E would have found the hidden layers (Table 4)."""
        if "gradients" not in tables:
            return {}
        return {CHOICES.name: gradient_choices(tables["gradients"])}

    @classmethod
    def summarise_benchmark(cls, tables: Tables) -> dict[str, Any]:
        """Mean accuracy@2 per model and kind of post-processing (Table 4)."""
        kind = ["model", "norm", "subtract_clean", "divide_by_frozen"]
        rows = tables[CHOICES.name] if CHOICES.name in tables else CHOICES.frame([], "control")
        rows = rows[rows["k"] == 2].dropna(subset="accuracy")
        found = rows.groupby(kind, sort=False)["accuracy"].agg(accuracy="mean", n="size")
        return {CHOICES.name: found.reset_index().to_dict("records")}

    def cost(self, n_layers: int) -> float:
        """Forward and backward."""
        return 3.0

    def localise(self, context: Context, report: Report = lambda _: None) -> Tables:
        """Mean gradients of both sets in both models, and the weights of the layers."""
        import numpy as np
        import torch

        from memloc.analysis.windows import layer_table

        config = self.config
        labels, wrong, ids = context.columns("label", "noisy", "example")
        noisy, clean = np.flatnonzero(wrong), clean_sample(wrong, context.seed)
        target = Target(
            context.encoded,
            torch.tensor(labels),
            config.objective,
            context.training.dtype,
            context.windows.unit,
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

        norms: dict[tuple[str, str, str], np.ndarray] = {}
        for role in roles:  # gradients are as large as the model: those of one are held at a time
            of_clean = mean_gradient(context.model(role), target, clean, advance)
            of_noisy = mean_gradient(context.model(role), target, noisy, advance)
            # Both kinds of norms cost next to nothing, and Table 4 compares them.
            for kind in get_args(Norm):
                norms[role, kind, "clean"] = layer_norms(of_clean, kind)
                norms[role, kind, "noisy"] = layer_norms(of_noisy, kind)
                norms[role, kind, "difference"] = layer_norms(subtract(of_noisy, of_clean), kind)
        used = "difference" if config.subtract_clean else "noisy"
        found = norms["near_ceiling", config.norm, used]
        scale = norms["frozen", config.norm, used] if config.divide_by_frozen else np.ones(1)
        layers = range(1, len(found) + 1)
        kinds = {"kind": get_args(Norm), "gradient": ("clean", "noisy", "difference")}
        tables = {
            "layers": layer_table(self.name, to_weights(found / scale)),
            "gradients": tidy(
                {"technique": [self.name], "model": roles, **kinds, "layer": layers},
                norm=list(norms.values()),
            )[list(self.tables[0].columns)],
        }
        if config.per_example:
            weights = []
            for row in noisy:
                own = mean_gradient(context.model("near_ceiling"), target, np.array([row]))
                own = subtract(own, of_clean) if config.subtract_clean else own
                values = layer_norms(own, config.norm) / scale
                # An example without a gradient has no weights.
                weights.append(to_weights(values) if values.sum() > 0 else values * np.nan)
                advance(5)
            tables["example_gradients"] = tidy(
                {"technique": [self.name], "example": ids[noisy], "layer": layers}, weight=weights
            )
        context.costs["block_passes"] = target.block_passes
        return tables


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
        import torch
        from torch.nn.functional import cross_entropy

        from memloc.models.states import autocast
        from memloc.training.loop import TrainingFailed

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
    import numpy as np
    import torch

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


def _take_gradient(parameter: Parameter) -> Tensor:
    import torch

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
    import numpy as np
    import torch

    power = 1 if norm == "L1" else 2
    sums = [
        sum(float(value.abs().pow(power).sum(dtype=torch.float64)) for value in layer.values())
        for layer in gradient
    ]
    return np.array(sums) ** (1 / power)


def clean_sample(noisy: np.ndarray, seed: int) -> np.ndarray:
    """As many clean examples as there are noisy ones, or all of them if there are fewer."""
    import numpy as np

    clean = np.flatnonzero(~noisy)
    if not len(clean):
        raise TechniqueFailed("gradients need clean examples to compare with, and there are none")
    size = min(len(clean), int(noisy.sum()))
    return np.sort(np.random.default_rng(seed).choice(clean, size, replace=False))


def to_weights(values: np.ndarray) -> np.ndarray:
    """Values that sum to 1."""
    import numpy as np

    total = values.sum()
    if not np.isfinite(total) or total <= 0:
        raise TechniqueFailed(
            "the gradients are zero or not finite in some layer, so they cannot be compared; set "
            "gradients.divide_by_frozen to false, or gradients.objective to gold_logit"
        )
    weights: np.ndarray = values / total
    return weights


def gradient_choices(norms: pd.DataFrame) -> pd.DataFrame:
    """accuracy@k of gradients under every kind of post-processing (appendix E, Table 4).

    Args:
        norms: Columns of `CELL`, state (near_ceiling, frozen), gradient (noisy, clean, difference),
            kind (L1, L2), layer, norm.

    Returns:
        Columns of `CELL`, norm, subtract_clean, divide_by_frozen, k, accuracy. Without norms of the
        frozen model, only rows that do not need it.
    """
    import numpy as np

    from memloc.analysis.control import RANKS, accuracy_at, parse_hidden

    rows = []
    for key, cell in norms.groupby([*CELL, "kind"], sort=False):
        named = dict(zip([*CELL, "norm"], key, strict=True))
        hidden = parse_hidden(str(named["hidden"]))
        wide = cell.pivot(index="layer", columns=["state", "gradient"], values="norm")
        for subtract, divide in product((False, True), repeat=2):
            used = "difference" if subtract else "noisy"
            if divide and ("frozen", used) not in wide:
                continue
            weights = wide["near_ceiling", used].to_numpy()
            if divide:
                with np.errstate(divide="ignore", invalid="ignore"):
                    weights = weights / wide["frozen", used].to_numpy()
            choice = {**named, "subtract_clean": subtract, "divide_by_frozen": divide}
            rows += [{**choice, "k": k, "accuracy": accuracy_at(weights, hidden, k)} for k in RANKS]
    return CHOICES.frame(rows, "control")
