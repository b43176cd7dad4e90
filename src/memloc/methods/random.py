"""Baseline: weights drawn at random, for what a technique that knows nothing would find."""

from __future__ import annotations

import numpy as np
import pandas as pd

from memloc.methods.base import Context, register


@register
class Random:
    """Baseline: random weights."""

    name = "random"
    revision = 1
    needs = ("memorised",)
    settings = ()

    def score(self, context: Context) -> pd.DataFrame:
        """One number per layer."""
        weights = np.random.default_rng(context.seed).random(context.n_layers)
        return pd.DataFrame({"layer": np.arange(1, context.n_layers + 1), "weight": weights})
