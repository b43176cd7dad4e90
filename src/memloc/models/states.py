"""Logits of whole data sets, and hidden states: where the head reads them, or below a layer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memloc.config import Dtype, check_dtype
from memloc.data.encode import Encoded, evaluation_batches
from memloc.errors import ModelError
from memloc.models.blocks import Batch, BlockModel
from memloc.models.names import NO_SINGLE_STATE, Role, StatesOf
from memloc.models.on_demand import nameless_file

EVALUATION_BATCH = 32
Report = Callable[[float], None]


def autocast(device: torch.device, dtype: Dtype) -> contextlib.AbstractContextManager[Any]:
    """Matrix multiplications in `dtype`, weights in float32.

    Raises:
        ConfigError: If the device does not know `dtype`.
    """
    if dtype == "float32":
        return contextlib.nullcontext()
    if dtype == "tf32":
        check_dtype(dtype, device.type)
        return _tensor_float_32()
    return torch.autocast(device.type, dtype=getattr(torch, dtype))


@contextlib.contextmanager
def _tensor_float_32() -> Iterator[None]:
    """Inside, products of float32 matrices on CUDA keep 10 of 23 bits of the factors."""
    matmul: Any = torch.backends.cuda.matmul
    # Torch before 2.9 has only the second; later ones object to a mixture of both.
    name, on = (
        ("fp32_precision", "tf32") if hasattr(matmul, "fp32_precision") else ("allow_tf32", True)
    )
    before = getattr(matmul, name)
    setattr(matmul, name, on)
    try:
        yield
    finally:
        setattr(matmul, name, before)


def predict_logits(
    model: BlockModel,
    encoded: Encoded,
    dtype: Dtype = "float32",
    rows: np.ndarray | None = None,
    forward: Callable[[np.ndarray], Tensor] | None = None,
) -> np.ndarray:
    """Logits of examples (all, or some rows), in their order; the model is left as it was.

    `forward` gives the logits of some inputs by their rows; by default it is an ordinary pass.
    """

    def whole_pass(chosen: np.ndarray) -> Tensor:
        return model.logits(encoded.batch(chosen.tolist(), model.device))

    config: Any = model.model.config
    rows = np.arange(len(encoded)) if rows is None else rows
    logits = np.empty((len(rows), int(config.num_labels)), dtype=np.float32)
    order = np.argsort(encoded.lengths[rows], kind="stable")
    with model.mode(training=False), torch.inference_mode(), autocast(model.device, dtype):
        for start in range(0, len(rows), EVALUATION_BATCH):
            places = order[start : start + EVALUATION_BATCH]
            part = (forward or whole_pass)(rows[places]).float().cpu().numpy()
            if part.shape[1] != logits.shape[1]:  # another head is in place
                logits = np.empty((len(rows), part.shape[1]), dtype=np.float32)
            logits[places] = part
    return logits


def pooled_states(
    model: BlockModel,
    encoded: Encoded,
    report: Report = lambda _: None,
    layers: Sequence[int] | None = None,
) -> Tensor:
    """States 0..L of every example where the head reads them, or those after some layers.

    One pass over the data; the model is left as it was.

    Returns:
        Float32 [layers, examples, width] in main memory.

    Raises:
        ModelError: If the head does not read a single position.
    """
    if model.pooling == "other":
        raise ModelError(NO_SINGLE_STATE)
    states = torch.empty(0, 0, 0)
    kept = range(model.n_layers + 1) if layers is None else layers
    done = 0
    with model.mode(training=False), torch.no_grad():
        for indices in evaluation_batches(encoded, EVALUATION_BATCH):
            batch = encoded.batch(indices.tolist(), model.device)
            found, _ = model.states(batch)
            part = torch.stack([model.pooled(found[layer], batch) for layer in kept]).float().cpu()
            if not states.numel():
                states = torch.empty(part.shape[0], len(encoded), part.shape[2])
            states[:, torch.from_numpy(indices)] = part
            done += len(indices)
            report(done / len(encoded))
    return states


def states_of(
    of: StatesOf,
    model: Callable[[Role], BlockModel],
    encoded: Encoded,
    report: Report = lambda _: None,
) -> Tensor:
    """`pooled_states` of a model, or of θ_M2 with half its layers from θ_O."""
    if of != "bottom_swapped" and of != "top_swapped":
        return pooled_states(model(of), encoded, report)
    memorised, original = model("memorised"), model("original")
    half = memorised.n_layers // 2  # the middle one of an odd number is in neither
    first = 1 if of == "bottom_swapped" else memorised.n_layers - half + 1
    blocks = {layer: original.block(layer) for layer in range(first, first + half)}
    with original.mode(training=False), memorised.swapped(blocks):
        return pooled_states(memorised, encoded, report)


class StateCache:
    """The state before a layer of every token of every example, without padding.

    Held in memory, or in a memory-mapped file if it is larger than `limit` bytes. The file has no
    name in its folder: it vanishes with the process, whatever ends it.
    """

    def __init__(
        self, model: BlockModel, encoded: Encoded, limit: int, folder: Path | None = None
    ) -> None:
        self.model, self.encoded = model, encoded
        lengths = encoded.lengths
        self.lengths = torch.from_numpy(lengths)
        self.starts = torch.from_numpy(np.cumsum(lengths) - lengths)
        self.limit, self.folder = limit, folder
        self.states = torch.empty(0)
        self.in_file = False
        self.layer = -1
        """Which state is held: that after this layer."""
        self.block_passes = 0

    def _allocate(self, width: int) -> Tensor:
        shape = (int(self.lengths.sum()), width)
        size = 4 * shape[0] * shape[1]
        self.in_file = size > self.limit
        if not self.in_file:
            return torch.empty(shape)
        with nameless_file(self.folder, size, "states", "engine.cache_memory") as file:
            array = np.memmap(file, dtype=np.float32, mode="w+", shape=shape)
        return torch.from_numpy(array)

    def move_to(self, layer: int) -> None:
        """Hold the states after `layer` (0: what the embeddings give)."""
        if layer == self.layer:
            return
        before = self.layer if 0 <= self.layer < layer else -1
        self.layer = -1  # until all have moved: an interrupted move must not pass for a state
        with self.model.mode(training=False), torch.no_grad():
            for indices in evaluation_batches(self.encoded, EVALUATION_BATCH):
                batch = self.encoded.batch(indices.tolist(), self.model.device)
                state = (
                    self.model.input_state(batch) if before < 0 else self._gather(indices, batch)
                )
                first = max(before, 0) + 1
                if layer >= first:
                    state = self.model.run_layers(state, batch, first, layer)
                    self.block_passes += layer - first + 1
                self._scatter(indices, state)
        self.layer = layer

    def batch(self, indices: np.ndarray) -> tuple[Tensor, Batch]:
        """States [examples, tokens, width] with zeros as padding, and the inputs they belong to."""
        batch = self.encoded.batch(indices.tolist(), self.model.device)
        return self._gather(indices, batch), batch

    def _gather(self, indices: np.ndarray, batch: Batch) -> Tensor:
        longest = batch["input_ids"].shape[1]
        state = torch.zeros(len(indices), longest, self.states.shape[1])
        for row, (start, length) in enumerate(self._spans(indices)):
            state[row, :length] = self.states[start : start + length]
        own = next(self.model.block(1).parameters())  # states are kept in float32
        return state.to(self.model.device, own.dtype)

    def _scatter(self, indices: np.ndarray, state: Tensor) -> None:
        state = state.float().cpu()
        if not len(self.states):
            self.states = self._allocate(state.shape[-1])
        for row, (start, length) in enumerate(self._spans(indices)):
            self.states[start : start + length] = state[row, :length]

    def _spans(self, indices: np.ndarray) -> list[tuple[int, int]]:
        chosen = torch.from_numpy(indices)
        return list(zip(self.starts[chosen].tolist(), self.lengths[chosen].tolist(), strict=True))
