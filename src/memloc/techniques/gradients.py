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
weights of its own: its gradient takes the place of the mean over the noisy ones. Their norms come
from one backward pass per batch too (`memloc.models.example_gradients`). With ``unit``, the
parameters of a layer are those of its attention, or the rest of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
    clean_sample,
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
"""Examples per backward pass, of similar lengths; the sums do not depend on it. Larger batches are
not faster, nor are batches of exactly one length, most of which are smaller: nine tenths of the
time goes into matrix products."""
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
        if not len(clean):
            raise TechniqueFailed(
                "gradients need clean examples to compare with, and there are none"
            )
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
        total = len(roles) * (len(noisy) + len(clean)) + config.per_example * len(noisy)
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
            subtract(of_noisy, of_clean)
            for kind in get_args(Norm):
                norms[role, kind, "difference"] = layer_norms(of_noisy, kind)
            del of_noisy
        used = "difference" if config.subtract_clean else "noisy"
        found = norms["near_ceiling", config.norm, used]
        scale = norms["frozen", config.norm, used] if config.divide_by_frozen else np.ones(1)
        layers = range(1, len(found) + 1)
        kinds = {"kind": get_args(Norm), "gradient": ("clean", "noisy", "difference")}
        tables = {
            "layers": layer_table(self.name, to_weights(found / scale)),
            "gradients": tidy(
                {"technique": [self.name], "model": roles, **kinds, "layer": layers},
                norm=[norms[role, kind, of] for role, kind, of in product(roles, *kinds.values())],
            )[list(self.tables[0].columns)],
        }
        if config.per_example:
            values = example_norms(
                context.model("near_ceiling"),
                target,
                noisy,
                config.norm,
                of_clean if config.subtract_clean else None,
                advance,
            )
            # An example without a gradient has no weights.
            weights = [to_weights(own) if own.sum() > 0 else own * np.nan for own in values / scale]
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
        """Sum over some examples."""
        import torch
        from torch.nn.functional import cross_entropy

        from memloc.models.states import autocast

        self.block_passes += model.n_layers
        with autocast(model.device, self.dtype):
            logits = model.logits(self.encoded.batch(rows.tolist(), model.device)).float()
        labels = self.labels[torch.from_numpy(rows)].to(model.device)
        if self.objective == "gold_logit":
            return -logits.gather(1, labels[:, None]).sum()
        return cross_entropy(logits, labels, reduction="sum")

    def batches(self, rows: np.ndarray) -> list[np.ndarray]:
        """Rows of similar lengths."""
        import numpy as np

        order = rows[np.argsort(self.encoded.lengths[rows], kind="stable")]
        return [order[start : start + BATCH] for start in range(0, len(order), BATCH)]


def mean_gradient(
    model: BlockModel,
    target: Target,
    rows: np.ndarray,
    advance: Callable[[int], None] = lambda _: None,
) -> Gradient:
    """Gradient of the layers' parameters, averaged over examples; float32, without dropout.

    Raises:
        TrainingFailed: If what is differentiated is not a number.
    """
    import torch

    from memloc.training.loop import TrainingFailed

    parameters = dict(model.model.named_parameters())
    layers = [{name: parameters[name] for name in names} for names in model.groups.of(target.unit)]
    wanted = {name: p for layer in layers for name, p in layer.items()}
    # Half precision holds the gradient of one batch, but not sums over many.
    exact = all(p.dtype in (torch.float32, torch.float64) for p in wanted.values())
    sums: dict[str, Tensor] = {}
    closed = [name for name in parameters if name not in wanted]
    total = torch.zeros((), device=model.device)
    batches = target.batches(rows)
    with model.frozen(closed), model.mode(training=False):
        model.model.zero_grad()
        try:
            for number, part in enumerate(batches, start=1):
                loss = target.total(model, part)
                loss.backward()
                total += loss.detach()
                if not exact or number == len(batches):
                    for name, parameter in wanted.items():
                        taken = _take_gradient(parameter)
                        sums[name] = sums[name].add_(taken) if name in sums else taken
                advance(len(part))
        finally:
            model.model.zero_grad()
    # Asked once: a GPU has to be waited for.
    if not torch.isfinite(total):
        raise TrainingFailed(
            f"the loss of the model is {float(total)}, so it has no gradient; check its weights, "
            "or leave out gradients"
        )
    return [{name: sums[name].div_(len(rows)) for name in layer} for layer in layers]


def _take_gradient(parameter: Parameter) -> Tensor:
    import torch

    gradient, parameter.grad = parameter.grad, None
    # A parameter that took no part (an unused bias, say) has the gradient 0.
    return torch.zeros_like(parameter).float() if gradient is None else gradient.float()


def example_norms(
    model: BlockModel,
    target: Target,
    rows: np.ndarray,
    norm: Norm,
    minus: Gradient | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> np.ndarray:
    """Per example and layer, the norm of the gradient of the example alone, less a fixed one.

    Modules of an unknown kind, or used in an unknown way, take one backward pass per example. So
    does a model in which an example does not get the same norms both ways.
    """
    import numpy as np

    from memloc.models.example_gradients import CannotFollow, example_sums

    layers = model.groups.of(target.unit)
    fixed = {name: value for layer in minus or [] for name, value in layer.items()}
    power = 1 if norm == "L1" else 2
    found = np.empty((len(rows), len(layers)))
    place = {int(row): number for number, row in enumerate(rows)}

    def alone(row: int) -> np.ndarray:
        own = mean_gradient(model, target, np.array([row]))
        if minus is not None:
            subtract(own, minus)
        return layer_norms(own, norm)

    together, tested = True, False
    for part in target.batches(rows):
        norms = None
        if together:
            try:
                with model.mode(training=False):
                    sums = example_sums(
                        model, layers, partial(target.total, model, part), len(part), power, fixed
                    )
                norms = sums.numpy() ** (1 / power)
                if not tested:
                    # Of the largest gradient: those of others may be little but rounding.
                    most = int(norms.sum(axis=1).argmax())
                    together = np.allclose(norms[most], alone(part[most]), rtol=0.01, atol=0)
                    tested = True
            except CannotFollow:
                together = False
        if norms is None or not together:
            norms = np.stack([alone(row) for row in part])
        found[[place[int(row)] for row in part]] = norms
        advance(len(part))
    return found


def subtract(one: Gradient, other: Gradient) -> None:
    """Parameter by parameter, in place."""
    for mine, theirs in zip(one, other, strict=True):
        for name, value in mine.items():
            value.sub_(theirs[name])


def layer_norms(gradient: Gradient, norm: Norm) -> np.ndarray:
    """Per layer, over all its parameters."""
    import torch

    def size(value: Tensor) -> Tensor:
        # The first sum is over one row of a matrix, which float32 adds up well enough.
        rows = value.abs() if norm == "L1" else value.square()
        return rows.sum(dim=-1).sum(dtype=torch.float64)

    nothing = torch.zeros((), dtype=torch.float64)
    sums = torch.stack([sum(map(size, layer.values()), nothing) for layer in gradient])
    norms: np.ndarray = (sums if norm == "L1" else sums.sqrt()).cpu().numpy()
    return norms


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
