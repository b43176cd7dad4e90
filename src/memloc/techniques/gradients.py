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

from typing import TYPE_CHECKING, ClassVar, get_args

from pydantic import Field

from memloc.config import Norm, Objective, Settings
from memloc.models.names import Role
from memloc.tables import EXAMPLE, LAYER, STATE, TECHNIQUE, Column, Table
from memloc.techniques.base import (
    Context,
    LocalisationResult,
    Report,
    Tables,
    Technique,
    TechniqueFailed,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    Norms = dict[tuple[str, str, str], np.ndarray]
    """Per layer, by model, gradient (noisy, clean, difference) and kind (L1, L2)."""


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
    )
    colour, marker = "#009E73", "D"

    @classmethod
    def benchmark(cls, tables: Tables) -> Tables:
        """Which of the switches of appendix E would have found the hidden layers (Table 4)."""
        from memloc.analysis.control import gradient_choices

        if "gradients" not in tables:
            return {}
        return {"gradient_choices": gradient_choices(tables["gradients"])}

    def cost(self, n_layers: int) -> float:
        """Forward and backward."""
        return 3.0

    def localise(self, context: Context, report: Report = lambda _: None) -> LocalisationResult:
        """Mean gradients of both sets in both models, and the weights of the layers."""
        import numpy as np
        import torch

        from memloc.analysis.windows import layer_table
        from memloc.training.gradients import Target, layer_norms, mean_gradient, subtract

        config = self.config
        wrong = context.examples["noisy"].to_numpy()
        noisy, clean = np.flatnonzero(wrong), clean_sample(wrong, context.seed)
        target = Target(
            context.encoded,
            torch.tensor(context.examples["label"].to_numpy()),
            config.objective,
            context.training.dtype,
            unit=context.windows.unit,
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
        import numpy as np
        import pandas as pd

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
        import numpy as np
        import pandas as pd

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
    import numpy as np

    clean = np.flatnonzero(~noisy)
    if not len(clean):
        raise TechniqueFailed("gradients need clean examples to compare with, and there are none")
    size = min(len(clean), int(noisy.sum()))
    return np.sort(np.random.default_rng(seed).choice(clean, size, replace=False))


def _own_weights(values: np.ndarray) -> np.ndarray:
    """The same for one example; it has none if its gradient is zero."""
    import numpy as np

    return to_weights(values) if values.sum() > 0 else np.full(len(values), np.nan)


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
