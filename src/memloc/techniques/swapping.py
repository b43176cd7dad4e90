"""Layer swapping (Dankers & Titov 2024, section 3.1).

For every window [a..b] of consecutive layers, the model is θ_M2 with layers a..b taken from θ_O;
embeddings, head, final norm and pooler stay those of θ_M2. If swapping a window makes the model
forget the labels it memorised, the window was needed to remember them:

    error[a..b] = share of noisy examples not predicted as their perturbed label

Of the layers of a window all is swapped, or their attention or the rest alone (``unit``).
The windows share most of their computation, see `memloc.models.mixing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memloc.techniques.base import Context, Report, Tables, Technique

if TYPE_CHECKING:
    from memloc.config import Dtype, Unit
    from memloc.data.encode import Encoded
    from memloc.models.blocks import BlockModel
    from memloc.models.mixing import Mixtures


class Swapping(Technique):
    """Swap layers for those of the model of the original labels."""

    name = "swapping"
    revision = 2
    needs = ("memorised", "original")
    uses_windows = uses_unit = True
    at_checkpoints = True
    clean_loss = 0.05
    clean_remedy = "compare models that were trained alike and long enough"
    colour, marker = "#0072B2", "o"

    def cost(self, n_layers: int) -> float:
        """All windows advance together, see `memloc.models.mixing`."""
        return n_layers**2 / 6 + n_layers / 2 + 1

    def localise(self, context: Context, report: Report = lambda _: None) -> Tables:
        """Swap all windows and weigh the layers by the errors that follow."""
        from memloc.analysis.windows import all_windows, chosen_windows, window_tables

        memorised = context.model("memorised")
        chosen = chosen_windows(memorised.n_layers, context.windows.sizes)
        found = swap_all_windows(
            memorised,
            context.model("original"),
            context.encoded,
            context.training.dtype,
            report,
            context.windows.unit,
        )
        # All windows advance together, so leaving some out would save little.
        kept = [window in chosen for window in all_windows(memorised.n_layers)]
        predicted, unmodified = found.predicted[1:][kept], found.predicted[0]
        context.costs["block_passes"] = found.block_passes
        return window_tables(self.name, chosen, predicted, unmodified, context.examples)


def swap_all_windows(
    memorised: BlockModel,
    original: BlockModel,
    encoded: Encoded,
    dtype: Dtype = "float32",
    report: Report = lambda _: None,
    unit: Unit = "layer",
) -> Mixtures:
    """Predict every example by θ_M2 as it is (the first row), then under every window."""
    import numpy as np

    from memloc.analysis.windows import all_windows
    from memloc.models.mixing import predict_mixtures

    windows = all_windows(memorised.n_layers)
    swapped = np.zeros((len(windows) + 1, memorised.n_layers), dtype=bool)
    for row, window in zip(swapped[1:], windows, strict=True):
        row[window.first - 1 : window.last] = True
    return predict_mixtures(memorised, original, encoded, swapped, dtype, report, unit=unit)
