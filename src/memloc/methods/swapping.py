"""Layer swapping (Dankers & Titov 2024, section 3.1).

For every window [a..b] of consecutive layers, the model is θ_M2 with layers a..b taken from θ_O;
embeddings, head, final norm and pooler stay those of θ_M2. If swapping a window makes the model
forget the labels it memorised, the window was needed to remember them:

    error[a..b] = share of noisy examples not predicted as their perturbed label

The windows share most of their computation. At layer i, all windows that have not begun have the
same state; those that began at the same layer a and have not ended have the same state; only those
that have ended differ. So all windows advance through the layers in lockstep, and layer i costs

    i passes of θ_O's block (one per start a ≤ i), and
    1 + i(i−1)/2 passes of θ_M's (the unmodified model and the windows that have ended),

in total L(L+1)/2 + L(L²−1)/6 + L block passes instead of L·(L(L+1)/2 + 1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from memloc.analysis.windows import (
    Window,
    all_windows,
    chosen_windows,
    error_matrix,
    error_table,
    layer_weights,
    prediction_table,
    undoing_table,
)
from memloc.config import Dtype
from memloc.data.encode import Encoded, equal_length_batches, evaluation_batches
from memloc.methods.base import Context, LocalisationResult, Report, register
from memloc.models.blocks import Batch, BlockModel
from memloc.training.evaluate import autocast, predict_logits

STATE_BYTES = 256 * 2**20
"""Upper limit for the states of all windows of one batch; decides how many examples go together."""
TOKENS_PER_PASS = {"cpu": 1024, "cuda": 65536, "mps": 16384}
"""How much goes through a block at once: enough to be efficient, small enough for the cache."""
LARGEST_BATCH = 32


@register
class Swapping:
    """Layer swapping as a technique."""

    name = "swapping"
    revision = 2
    needs = ("memorised", "original")
    settings = ("window_sizes",)

    def localise(self, context: Context, report: Report) -> LocalisationResult:
        """Swap all windows and weigh the layers by the errors that follow."""
        memorised = context.model("memorised")
        chosen = chosen_windows(memorised.n_layers, context.techniques.window_sizes)
        swapped = swap_all_windows(
            memorised, context.model("original"), context.encoded, context.training.dtype, report
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
) -> SwapResult:
    """Predict every example under every window.

    Args:
        memorised: θ_M2; it is left as it was.
        original: θ_O, on the same device; left as it was too.
        encoded: The examples.
        dtype: Of the matrix multiplications.
        report: Called with the finished fraction.
    """
    if not memorised.can_resume:
        with original.mode(training=False):
            return _whole_passes(memorised, original.stack, encoded, dtype, report)
    windows = all_windows(memorised.n_layers)
    predicted = np.empty((len(windows) + 1, len(encoded)), dtype=np.int64)
    passes = batches = done = 0
    with (
        memorised.mode(training=False),
        original.mode(training=False),
        torch.inference_mode(),
        autocast(memorised.device, dtype),
    ):
        for indices in equal_length_batches(encoded, _batch_size(memorised, encoded)):
            run = _Lockstep(
                memorised, original.stack, encoded.batch(indices.tolist(), memorised.device)
            )
            logits = run.logits()
            predicted[:, indices] = logits.argmax(dim=-1).cpu().numpy()
            passes += run.block_passes
            batches += 1
            done += len(indices)
            report(done / len(encoded))
    return SwapResult(windows, predicted[0], predicted[1:], passes, batches)


class _Lockstep:
    """All windows of one batch of examples, advanced together."""

    def __init__(self, model: BlockModel, original: nn.ModuleList, batch: Batch) -> None:
        self.model, self.original, self.batch = model, original, batch
        self.rows, self.length = batch["input_ids"].shape
        self.limit = max(1, TOKENS_PER_PASS[model.device.type] // (self.rows * self.length))
        self.repeated: dict[int, Batch] = {1: batch}
        self.block_passes = 0

    def logits(self) -> Tensor:
        """Logits [1 + windows, examples, classes]: unmodified first, then as in `all_windows`.

        All states are rows of one tensor: row 0 is the unmodified model; then come the windows in
        the order in which they end, so that those that have ended are always the first rows.
        """
        n_layers = self.model.n_layers
        start = self.model.input_state(self.batch)
        states = start.new_empty(_first_row(n_layers + 1), *start.shape)
        states[0] = start
        for layer in range(1, n_layers + 1):
            # A window that ended at the layer before has, so far, the state of those that go on.
            going_on = states[_first_row(layer - 1) : _first_row(layer)]
            running = torch.cat([going_on, states[:1]])  # and one window begins here
            ending = states[_first_row(layer) : _first_row(layer + 1)]
            self._advance(running, ending, layer, self.original[layer - 1])
            others = states[: _first_row(layer)]
            self._advance(others, others, layer, self.model.block(layer))
        order = [_first_row(w.last) + w.first - 1 for w in all_windows(n_layers)]
        return self._tail(states)[[0, *order]]

    def _advance(self, states: Tensor, into: Tensor, layer: int, block: nn.Module) -> None:
        """Send states [n, examples, tokens, width] through one block."""
        self.block_passes += len(states)
        with self.model.swapped({layer: block}):
            for first in range(0, len(states), self.limit):
                part = states[first : first + self.limit]
                batch = self._repeat(len(part))
                after = self.model.run_layers(part.flatten(0, 1), batch, layer, layer)
                into[first : first + len(part)] = after.view(part.shape)

    def _tail(self, states: Tensor) -> Tensor:
        n = len(states)
        if self.model.pooling == "other":
            parts = [
                self.model.resume(part.flatten(0, 1), self._repeat(len(part)), self.model.n_layers)
                for part in states.split(self.limit)
            ]
            return torch.cat(parts).view(n, self.rows, -1)
        pooled = [self.model.pooled(state, self.batch) for state in states]
        return self.model.tail(torch.cat(pooled)).view(n, self.rows, -1)

    def _repeat(self, times: int) -> Batch:
        if times not in self.repeated:
            self.repeated[times] = {k: v.repeat(times, 1) for k, v in self.batch.items()}
        return self.repeated[times]


def _first_row(layer: int) -> int:
    """Row of the first window that ends at `layer`: one window per start 1..layer ends there."""
    return 1 + layer * (layer - 1) // 2


def expected_block_passes(n_layers: int) -> int:
    """Block passes per batch, as derived in the module's docstring."""
    return n_layers * (n_layers + 1) // 2 + n_layers * (n_layers**2 - 1) // 6 + n_layers


def _batch_size(model: BlockModel, encoded: Encoded) -> int:
    embeddings = cast(Any, model.model).get_input_embeddings()
    width = int(embeddings.weight.shape[1])
    states = model.n_layers * (model.n_layers + 1) // 2 + 1
    longest = int(encoded.lengths.max())
    return max(1, min(LARGEST_BATCH, STATE_BYTES // (states * longest * width * 4)))


def _whole_passes(
    memorised: BlockModel,
    original: nn.ModuleList,
    encoded: Encoded,
    dtype: Dtype,
    report: Report,
) -> SwapResult:
    """The slow path, for models that cannot start from a stored state: one forward per window."""
    windows = all_windows(memorised.n_layers)
    unmodified = predict_logits(memorised, encoded, dtype).argmax(axis=1)
    predicted = np.empty((len(windows), len(encoded)), dtype=np.int64)
    for index, window in enumerate(windows):
        with memorised.swapped({layer: original[layer - 1] for layer in window.layers}):
            predicted[index] = predict_logits(memorised, encoded, dtype).argmax(axis=1)
        report((index + 1) / len(windows))
    batches = len(list(evaluation_batches(encoded, LARGEST_BATCH)))
    passes = (len(windows) + 1) * memorised.n_layers * batches
    return SwapResult(windows, unmodified, predicted, passes, batches)
