"""Shapley values of the layers under swapping.

Windows of consecutive layers do not say what a layer adds to layers that are not its neighbours.
The Shapley value does. Replace the layers of θ_M2 by those of θ_O one after the other: the value of
a layer is the share of noisy examples that are undone at the moment it is replaced, on average over
all orders. The values add up to what replacing all layers undoes, and each noisy example has values
of its own.

Models of up to 8 layers are mixed in all ways; for deeper ones orders are drawn until the standard
error is below a setting. Mixtures that agree in their lower layers share them
(`memloc.models.mixing`), and only noisy examples are looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from memloc.config import Settings
from memloc.tables import EXAMPLE, LAYER, TECHNIQUE, Column, Table
from memloc.techniques.base import Context, LayerCurves, Report, Tables, Technique, tidy

if TYPE_CHECKING:
    import numpy as np

MOST_EXACT = 8
"""Layers up to which all sets are looked at: twice as many passes of noisy examples as sets."""
SETS_AT_ONCE = 128
USUAL_NOISE = 0.15
"""Share of the examples that are noisy, for estimates."""


class Shapley(Technique):
    """What a layer adds when layers are swapped in any order."""

    class Config(Settings):
        """Models of up to 8 layers need neither."""

        standard_error: float = Field(0.01, gt=0, description="Of a layer's value, to stop at.")
        orders: int = Field(400, ge=4, description="Orders of the layers to draw at most.")

    config: Config
    name = "shapley"
    needs = ("memorised", "original")
    uses_unit = True
    tables = (
        Table(
            "shapley",
            "the Shapley value of every layer",
            {
                "technique": TECHNIQUE,
                "layer": LAYER,
                "value": Column("float64", "share of noisy examples that it undoes"),
                "standard_error": Column("float64", "of the value; 0 if it is exact"),
                "orders": Column("int64", "orders of the layers that were drawn; 0 if it is exact"),
            },
        ),
        Table(
            "example_shapley",
            "the same for every noisy example",
            {
                "technique": TECHNIQUE,
                "example": EXAMPLE,
                "layer": LAYER,
                "value": Column("float64", "its part in undoing the example"),
            },
        ),
    )
    colour, marker = "#E69F00", "v"
    figure = LayerCurves(
        table="shapley",
        value="value",
        label="Shapley value",
        caption="Shapley values of layers: the share of noisy examples undone when a layer of θ_M2 "
        "is replaced by that of θ_O, averaged over all orders.",
    )

    def cost(self, n_layers: int) -> float:
        """All sets of layers, or those of so many orders; noisy examples alone."""
        return 2 * USUAL_NOISE * min(2.0 ** min(n_layers, 60) / n_layers, 25 * n_layers)

    def localise(self, context: Context, report: Report = lambda _: None) -> Tables:
        """Mix the two models in all ways, or in many."""
        import numpy as np

        from memloc.analysis.shapley import exact_shapley, sampled_shapley
        from memloc.analysis.windows import layer_table
        from memloc.models.mixing import predict_mixtures

        config = self.config
        memorised, original = context.model("memorised"), context.model("original")
        examples, encoded = context.noisy_examples()
        labels = examples["label"].to_numpy()
        passes = 0

        def game(sets: np.ndarray) -> np.ndarray:
            nonlocal passes
            undone = []
            for first in range(0, len(sets), SETS_AT_ONCE):
                found = predict_mixtures(
                    memorised,
                    original,
                    encoded,
                    sets[first : first + SETS_AT_ONCE],
                    context.training.dtype,
                    unit=context.windows.unit,
                )
                passes += found.block_passes
                undone.append(found.predicted != labels)
            return np.concatenate(undone).astype(np.float64)

        n_layers = memorised.n_layers
        found = (
            exact_shapley(game, n_layers)
            if n_layers <= MOST_EXACT
            else sampled_shapley(
                game, n_layers, config.standard_error, config.orders, context.seed, report
            )
        )
        report(1.0)
        layers = range(1, n_layers + 1)
        context.costs["block_passes"] = passes
        return {
            # A layer whose replacement restores more labels than it undoes holds nothing.
            "layers": layer_table(self.name, np.maximum(0.0, found.mean)),
            "shapley": tidy(
                {"technique": [self.name], "layer": layers},
                value=found.mean,
                standard_error=found.standard_error,
            ).assign(orders=found.orders),
            "example_shapley": tidy(
                {"technique": [self.name], "example": examples["example"], "layer": layers},
                value=found.values.T,
            ),
        }
