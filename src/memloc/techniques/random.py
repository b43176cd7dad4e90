"""Baseline: weights drawn at random, for what a technique that knows nothing would find.

They differ from model to model, and are the same for the same model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memloc.techniques.base import Context, Technique

if TYPE_CHECKING:
    import pandas as pd


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
