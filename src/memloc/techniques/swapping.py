"""Layer swapping (Dankers & Titov 2024, section 3.1).

For every window [a..b] of consecutive layers, the model is θ_M2 with layers a..b taken from θ_O;
embeddings, head, final norm and pooler stay those of θ_M2. If swapping a window makes the model
forget the labels it memorised, the window was needed to remember them:

    error[a..b] = share of noisy examples not predicted as their perturbed label

As many clean examples as there are noisy ones show what a window loses beside what it had
memorised. Of the layers of a window all is swapped, or their attention or the rest alone
(``unit``). The windows share most of their computation, see `memloc.models.mixing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memloc.techniques.base import Context, Report, Tables, Technique, clean_sample

if TYPE_CHECKING:
    from memloc.analysis.windows import Window
    from memloc.config import Dtype, Unit
    from memloc.data.encode import Encoded
    from memloc.models.blocks import BlockModel
    from memloc.models.mixing import Mixtures


class Swapping(Technique):
    """Swap layers for those of the model of the original labels."""

    name = "swapping"
    revision = 3
    needs = ("memorised", "original")
    uses_windows = uses_clean = uses_unit = True
    at_checkpoints = True
    clean_loss = 0.05
    clean_remedy = "compare models that were trained alike and long enough"
    colour, marker = "#0072B2", "o"

    def cost(self, n_layers: int) -> float:
        """All windows advance together, see `memloc.models.mixing`."""
        return n_layers**2 / 6 + n_layers / 2 + 1

    def localise(self, context: Context, report: Report = lambda _: None) -> Tables:
        """Swap the windows and weigh the layers by the errors that follow."""
        import numpy as np

        from memloc.analysis.windows import chosen_windows, window_tables

        memorised, chosen = context.model("memorised"), context.windows
        windows = chosen_windows(memorised.n_layers, chosen.sizes)
        (noisy,) = context.columns("noisy")
        rows = np.arange(len(noisy))
        if chosen.clean == "matched":  # only the errors of noisy examples weigh layers
            rows = np.sort([*np.flatnonzero(noisy), *clean_sample(noisy, context.seed)])
        examples, encoded = context.some_examples(rows)
        original, dtype = context.model("original"), context.training.dtype
        found = swap_windows(
            memorised, original, encoded, windows, dtype, report, context.windows.unit
        )
        context.costs["block_passes"] = found.block_passes
        return window_tables(self.name, windows, found.predicted[1:], found.predicted[0], examples)


def swap_windows(
    memorised: BlockModel,
    original: BlockModel,
    encoded: Encoded,
    windows: Sequence[Window],
    dtype: Dtype = "float32",
    report: Report = lambda _: None,
    unit: Unit = "layer",
) -> Mixtures:
    """Predict every example by θ_M2 as it is (the first row), then under every window."""
    import numpy as np

    from memloc.models.mixing import predict_mixtures

    swapped = np.zeros((len(windows) + 1, memorised.n_layers), dtype=bool)
    for row, window in zip(swapped[1:], windows, strict=True):
        row[window.first - 1 : window.last] = True
    return predict_mixtures(memorised, original, encoded, swapped, dtype, report, unit=unit)
