"""Baseline: how far the layers of θ_M2 and θ_O are apart.

    weight_l = ‖θ_M2,l − θ_O,l‖ / ‖θ_P,l‖

Both were trained alike but for the flipped labels. A layer that differs much need not be one that
memorised: this is what more careful techniques have to beat.
"""

from __future__ import annotations

import pandas as pd
import torch

from memloc.methods.base import Context, register
from memloc.models.blocks import BlockModel


@register
class WeightChange:
    """Baseline: how far the layers of the two models are apart."""

    name = "weight-change"
    revision = 1
    needs = ("memorised", "original", "pretrained")
    settings = ()

    def score(self, context: Context) -> pd.DataFrame:
        """Euclidean norms over all parameters of a layer."""
        memorised, original = context.model("memorised"), context.model("original")
        pretrained = context.model("pretrained")
        layers = range(1, context.n_layers + 1)
        weights = [
            float(
                (_flat(memorised, layer) - _flat(original, layer)).norm()
                / _flat(pretrained, layer).norm()
            )
            for layer in layers
        ]
        return pd.DataFrame({"layer": layers, "weight": weights})


def _flat(model: BlockModel, layer: int) -> torch.Tensor:
    return torch.cat([p.detach().double().flatten() for p in model.block(layer).parameters()])
