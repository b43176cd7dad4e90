"""Baselines, which more careful techniques have to beat.

Weight change: how far the layers of θ_M2 and θ_O are apart,

    weight_l = ‖θ_M2,l − θ_O,l‖ / ‖θ_P,l‖

Both were trained alike but for the flipped labels. A layer that differs much need not be one that
memorised. With ``unit``, θ_l is the attention of layer l, or the rest of it.

Random: weights drawn at random, for what a technique that knows nothing would find. They differ
from model to model, and are the same for the same model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memloc.models.names import Role
from memloc.techniques.base import Circumstances, Context, Technique

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from memloc.config import Unit
    from memloc.models.blocks import BlockModel


class WeightChange(Technique):
    """Baseline: how far the layers of the two models are apart."""

    name = "weight-change"
    needs = ("memorised", "original", "pretrained")
    uses_unit = True
    colour, marker = "#999999", "X"

    def obstacle(self, there: Circumstances) -> str | None:
        """Weights must be where they are looked for."""
        if there.adapters:
            return "adapters are not merged into the weights to compare; use merge_and_unload()"
        return super().obstacle(there)

    def cost(self, n_layers: int) -> float:
        """A look at the weights."""
        return 0.5

    def score(self, context: Context) -> pd.DataFrame:
        """Euclidean norms over all parameters of a layer, or of a part of it."""
        import pandas as pd

        roles: tuple[Role, ...] = ("memorised", "original", "pretrained")
        models = [context.model(role) for role in roles]
        layers = range(1, context.n_layers + 1)
        weights = []
        for layer in layers:
            m, o, p = (_flat(model, layer, context.windows.unit) for model in models)
            weights.append(float((m - o).norm() / p.norm()))
        return pd.DataFrame({"layer": layers, "weight": weights})


def _flat(model: BlockModel, layer: int, unit: Unit) -> Tensor:
    import torch

    from memloc.models.blocks import attention_parameters

    block = model.block(layer)
    inside = attention_parameters(block) if unit != "layer" else set()
    return torch.cat(
        [
            parameter.detach().double().flatten()
            for parameter in block.parameters()
            if (id(parameter) in inside) == (unit == "attention")
        ]
    )


class Random(Technique):
    """Baseline: random weights."""

    name = "random"
    revision = 2
    needs = ("memorised",)
    by_chance = True
    colour, marker = "#666666", "h"

    def cost(self, n_layers: int) -> float:
        """Next to nothing."""
        return 0.1

    def score(self, context: Context) -> pd.DataFrame:
        """One number per layer."""
        import zlib

        import numpy as np
        import pandas as pd

        head = next(reversed(list(context.model("memorised").model.parameters())))
        drawn = zlib.crc32(head.detach().float().cpu().numpy().tobytes())
        weights = np.random.default_rng([context.seed, drawn]).random(context.n_layers)
        return pd.DataFrame({"layer": np.arange(1, context.n_layers + 1), "weight": weights})
