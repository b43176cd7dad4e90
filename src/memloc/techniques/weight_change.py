"""Baseline: how far the layers of θ_M2 and θ_O are apart.

    weight_l = ‖θ_M2,l − θ_O,l‖ / ‖θ_P,l‖

Both were trained alike but for the flipped labels. A layer that differs much need not be one that
memorised: this is what more careful techniques have to beat. With ``unit``, θ_l is the attention of
layer l, or the rest of it.
"""

from __future__ import annotations

import pandas as pd
import torch

from memloc.config import Unit
from memloc.models.blocks import BlockModel
from memloc.models.units import attention_parameters
from memloc.techniques.base import Context, register


@register
class WeightChange:
    """Baseline: how far the layers of the two models are apart."""

    name = "weight-change"
    revision = 1
    needs = ("memorised", "original", "pretrained")
    settings = ("unit",)

    def score(self, context: Context) -> pd.DataFrame:
        """Euclidean norms over all parameters of a layer, or of a part of it."""
        memorised, original = context.model("memorised"), context.model("original")
        pretrained = context.model("pretrained")
        layers = range(1, context.n_layers + 1)
        unit = context.techniques.unit
        weights = [
            float(
                (_flat(memorised, layer, unit) - _flat(original, layer, unit)).norm()
                / _flat(pretrained, layer, unit).norm()
            )
            for layer in layers
        ]
        return pd.DataFrame({"layer": layers, "weight": weights})


def _flat(model: BlockModel, layer: int, unit: Unit) -> torch.Tensor:
    block = model.block(layer)
    inside = attention_parameters(block) if unit != "layer" else set()
    return torch.cat(
        [
            parameter.detach().double().flatten()
            for parameter in block.parameters()
            if (id(parameter) in inside) == (unit == "attention")
        ]
    )
