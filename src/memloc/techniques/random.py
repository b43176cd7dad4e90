"""Baseline: weights drawn at random, for what a technique that knows nothing would find.

They differ from model to model, and are the same for the same model.
"""

from __future__ import annotations

import zlib

import numpy as np
import pandas as pd

from memloc.techniques.base import Context, register


@register
class Random:
    """Baseline: random weights."""

    name = "random"
    revision = 2
    needs = ("memorised",)
    settings = ()

    def score(self, context: Context) -> pd.DataFrame:
        """One number per layer."""
        head = next(reversed(list(context.model("memorised").model.parameters())))
        drawn = zlib.crc32(head.detach().float().cpu().numpy().tobytes())
        weights = np.random.default_rng([context.seed, drawn]).random(context.n_layers)
        return pd.DataFrame({"layer": np.arange(1, context.n_layers + 1), "weight": weights})
