"""Baseline: how far the layers of θ_M2 and θ_O are apart.

    weight_l = ‖θ_M2,l − θ_O,l‖ / ‖θ_P,l‖

Both were trained alike but for the flipped labels. A layer that differs much need not be one that
memorised: this is what more careful techniques have to beat. With ``unit``, θ_l is the attention of
layer l, or the rest of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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

        memorised, original = context.model("memorised"), context.model("original")
        pretrained = context.model("pretrained")
        layers = range(1, context.n_layers + 1)
        unit = context.windows.unit
        weights = [
            float(
                (_flat(memorised, layer, unit) - _flat(original, layer, unit)).norm()
                / _flat(pretrained, layer, unit).norm()
            )
            for layer in layers
        ]
        return pd.DataFrame({"layer": layers, "weight": weights})


def _flat(model: BlockModel, layer: int, unit: Unit) -> Tensor:
    import torch

    from memloc.models.units import attention_parameters

    block = model.block(layer)
    inside = attention_parameters(block) if unit != "layer" else set()
    return torch.cat(
        [
            parameter.detach().double().flatten()
            for parameter in block.parameters()
            if (id(parameter) in inside) == (unit == "attention")
        ]
    )
