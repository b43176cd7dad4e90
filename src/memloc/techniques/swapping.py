"""Layer swapping (Dankers & Titov 2024, section 3.1).

For every window [a..b] of consecutive layers, the model is θ_M2 with layers a..b taken from θ_O;
embeddings, head, final norm and pooler stay those of θ_M2. If swapping a window makes the model
forget the labels it memorised, the window was needed to remember them:

    error[a..b] = share of noisy examples not predicted as their perturbed label

Of the layers of a window all is swapped, or their attention or the rest alone (``unit``).
The windows share most of their computation, see `memloc.models.mixing`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memloc.techniques.base import Context, LocalisationResult, Report, Technique

if TYPE_CHECKING:
    import numpy as np

    from memloc.analysis.windows import Window
    from memloc.config import Dtype, Unit
    from memloc.data.encode import Encoded
    from memloc.models.blocks import BlockModel


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

    def localise(self, context: Context, report: Report = lambda _: None) -> LocalisationResult:
        """Swap all windows and weigh the layers by the errors that follow."""
        from memloc.analysis.windows import (
            chosen_windows,
            error_matrix,
            error_table,
            layer_weights,
            prediction_table,
            undoing_table,
        )

        memorised = context.model("memorised")
        chosen = chosen_windows(memorised.n_layers, context.windows.sizes)
        swapped = swap_all_windows(
            memorised,
            context.model("original"),
            context.encoded,
            context.training.dtype,
            report,
            context.windows.unit,
        ).only(chosen)
        labels = context.examples["label"].to_numpy()
        noisy = context.examples["noisy"].to_numpy()
        examples = context.examples["example"].to_numpy()
        windows = error_table(self.name, swapped.windows, swapped.predicted, labels, noisy)
        return LocalisationResult(
            layers=layer_weights(self.name, error_matrix(windows)),
            windows=windows,
            predictions=prediction_table(self.name, swapped.windows, swapped.predicted, examples),
            examples=undoing_table(
                self.name,
                swapped.windows,
                swapped.predicted[:, noisy],
                swapped.unmodified[noisy],
                labels[noisy],
                examples[noisy],
            ),
            costs={
                "block_passes": swapped.block_passes,
                "batches": swapped.batches,
                "shared": memorised.can_resume,
            },
        )


@dataclass(frozen=True)
class SwapResult:
    """Predictions of the unmodified model and of every window."""

    windows: tuple[Window, ...]
    unmodified: np.ndarray
    """Predicted class per example."""
    predicted: np.ndarray
    """Predicted class per window and example."""
    block_passes: int
    """Batches sent through a block, summed over the data, in units of one batch of examples."""
    batches: int

    def only(self, chosen: tuple[Window, ...]) -> SwapResult:
        """The same for some of the windows (as all advance together, fewer would save little)."""
        kept = [index for index, window in enumerate(self.windows) if window in chosen]
        return replace(self, windows=chosen, predicted=self.predicted[kept])


def swap_all_windows(
    memorised: BlockModel,
    original: BlockModel,
    encoded: Encoded,
    dtype: Dtype = "float32",
    report: Report = lambda _: None,
    unit: Unit = "layer",
) -> SwapResult:
    """Predict every example under every window.

    Args:
        memorised: θ_M2; it is left as it was.
        original: θ_O, on the same device; left as it was too.
        encoded: The examples.
        dtype: Of the matrix multiplications.
        report: Called with the finished fraction.
        unit: What of the layers is swapped.
    """
    import numpy as np

    from memloc.analysis.windows import all_windows
    from memloc.models.mixing import predict_mixtures

    windows = all_windows(memorised.n_layers)
    swapped = np.zeros((len(windows) + 1, memorised.n_layers), dtype=bool)
    for row, window in zip(swapped[1:], windows, strict=True):
        row[window.first - 1 : window.last] = True
    found = predict_mixtures(memorised, original, encoded, swapped, dtype, report, unit=unit)
    return SwapResult(
        windows, found.predicted[0], found.predicted[1:], found.block_passes, found.batches
    )


def expected_block_passes(n_layers: int) -> int:
    """Block passes per batch, as derived in `memloc.models.mixing`."""
    return n_layers * (n_layers + 1) // 2 + n_layers * (n_layers**2 - 1) // 6 + n_layers
