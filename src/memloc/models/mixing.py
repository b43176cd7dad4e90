"""Models whose layers come from two models: many mixtures of the same examples at once.

A mixture takes some layers, or a part of them (`memloc.models.blocks`), from another model of the
same shape, everything else (embeddings, head, final norm, pooler) from the first. Mixtures that
agree in their lower layers have the same states there, so all of them advance through the layers
together as the nodes of a tree: at layer i there is one state per distinct choice of layers 1..i,
and each costs one pass of one block. For all windows of consecutive layers that is

    i passes of the other's block (one per window that began at a ≤ i and goes on), and
    1 + i(i−1)/2 passes of the own one (nothing swapped so far, and the windows that have ended),

in total L(L+1)/2 + L(L²−1)/6 + L block passes instead of L·(L(L+1)/2 + 1).

If the states of a single example are too many already, the mixtures are divided into parts that
have most of their lower layers in common; what parts share is computed in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from memloc.config import Dtype, Unit
from memloc.data.encode import Encoded, equal_length_batches, evaluation_batches
from memloc.models.blocks import Batch, BlockModel, mixed_stack
from memloc.models.states import Report, autocast, predict_logits

STATE_BYTES = 256 * 2**20
"""Upper limit for the states that are held at once; decides how many examples, and how many of
their mixtures, go together."""
TOKENS_PER_PASS = {"cpu": 1024, "cuda": 65536, "mps": 16384}
"""How much goes through a block at once: enough to be efficient, small enough for the cache."""
TOKENS_ELSEWHERE = 16384
"""On devices that were never measured."""
LARGEST_BATCH = 32


@dataclass(frozen=True)
class Mixtures:
    """What every mixture predicts."""

    predicted: np.ndarray
    """Class per mixture and example."""
    block_passes: int
    """Batches sent through a block, summed over the data, in units of one batch of examples."""
    batches: int


def predict_mixtures(
    own: BlockModel,
    other: BlockModel,
    encoded: Encoded,
    swapped: np.ndarray,
    dtype: Dtype = "float32",
    report: Report = lambda _: None,
    *,
    input_of: BlockModel | None = None,
    unit: Unit = "layer",
) -> Mixtures:
    """Predict every example under every mixture.

    Args:
        own: The model whose layers are swapped; it is left as it was.
        other: Where they come from, on the same device; left as it was too.
        encoded: The examples.
        swapped: [mixtures, L] which layers come from the other model.
        dtype: Of the matrix multiplications.
        report: Called with the finished fraction.
        input_of: Whose embeddings feed layer 1, if not those of `own` (then `own` must be able to
            start from stored states).
        unit: What comes from the other model of the chosen layers: all, or a part.
    """
    if not own.can_resume:
        assert input_of is None
        with own.mode(training=False), other.mode(training=False):
            blocks = mixed_stack(own, other, unit)
            return _whole_passes(own, blocks, encoded, swapped, dtype, report)
    trees: dict[int, list[tuple[np.ndarray, _Tree]]] = {}
    predicted = np.empty((len(swapped), len(encoded)), dtype=np.int64)
    passes = batches = done = 0
    with (
        own.mode(training=False),
        other.mode(training=False),
        torch.inference_mode(),
        autocast(own.device, dtype),
    ):
        blocks = mixed_stack(own, other, unit)
        size = examples_at_once(len(swapped), int(encoded.lengths.max()), own.width)
        for indices in equal_length_batches(encoded, size):
            batch = encoded.batch(indices.tolist(), own.device)
            run = _Lockstep(own, blocks, batch)
            start = (input_of or own).input_state(batch)
            tokens = batch["input_ids"].numel()
            parts = -(-state_bytes(len(swapped), tokens, own.width) // STATE_BYTES)
            if parts not in trees:
                trees[parts] = [(part, _Tree.of(swapped[part])) for part in divide(swapped, parts)]
            for part, tree in trees[parts]:
                answers = run.logits(tree, start).argmax(dim=-1).cpu().numpy()
                predicted[np.ix_(part, indices)] = answers[tree.leaf]
            passes += run.block_passes
            batches += 1
            done += len(indices)
            report(done / len(encoded))
    return Mixtures(predicted, passes, batches)


@dataclass(frozen=True)
class _Tree:
    """The distinct choices of layers 1..i, for every i.

    At layer i, `stay[i]` and `swap[i]` are the rows of the states before it that go through the own
    and through the other's block; the states after it are those of the first, then of the second.
    """

    stay: list[np.ndarray]
    swap: list[np.ndarray]
    leaf: np.ndarray
    """Row of every mixture among the last states."""

    @classmethod
    def of(cls, swapped: np.ndarray) -> _Tree:
        """Find what mixtures have in common."""
        row = np.zeros(len(swapped), dtype=np.int64)
        stay, swap = [], []
        for layer in swapped.T:
            branches = [np.unique(row[~layer]), np.unique(row[layer])]
            stay.append(branches[0])
            swap.append(branches[1])
            after = np.searchsorted(branches[0], row)
            row = np.where(layer, len(branches[0]) + np.searchsorted(branches[1], row), after)
        return cls(stay, swap, row)


class _Lockstep:
    """All mixtures of one batch of examples, advanced together."""

    def __init__(self, own: BlockModel, other: Sequence[nn.Module], batch: Batch) -> None:
        self.own, self.other, self.batch = own, other, batch
        self.rows, self.length = batch["input_ids"].shape
        tokens = TOKENS_PER_PASS.get(own.device.type, TOKENS_ELSEWHERE)
        self.limit = max(1, tokens // (self.rows * self.length))
        self.repeated: dict[int, Batch] = {1: batch}
        self.block_passes = 0

    def logits(self, tree: _Tree, start: Tensor) -> Tensor:
        """Logits [distinct mixtures, examples, classes] from the input of layer 1."""
        states = start[None]
        for layer, (stay, swap) in enumerate(zip(tree.stay, tree.swap, strict=True), start=1):
            after = states.new_empty(len(stay) + len(swap), *states.shape[1:])
            self._advance(states, stay, after[: len(stay)], layer, self.own.block(layer))
            self._advance(states, swap, after[len(stay) :], layer, self.other[layer - 1])
            states = after
        return self._tail(states)

    def _advance(
        self, states: Tensor, chosen: np.ndarray, into: Tensor, layer: int, block: nn.Module
    ) -> None:
        """Send some of the states [n, examples, tokens, width] through one block."""
        self.block_passes += len(chosen)
        with self.own.swapped({layer: block}):
            for first in range(0, len(chosen), self.limit):
                rows = torch.from_numpy(chosen[first : first + self.limit]).to(states.device)
                part = states.index_select(0, rows)
                batch = self._repeat(len(part))
                after = self.own.run_layers(part.flatten(0, 1), batch, layer, layer)
                into[first : first + len(part)] = after.view(part.shape)

    def _tail(self, states: Tensor) -> Tensor:
        n = len(states)
        if not self.own.head_alone:
            parts = [
                self.own.resume(part.flatten(0, 1), self._repeat(len(part)), self.own.n_layers)
                for part in states.split(self.limit)
            ]
            return torch.cat(parts).view(n, self.rows, -1)
        pooled = [self.own.pooled(state, self.batch) for state in states]
        return self.own.tail(torch.cat(pooled)).view(n, self.rows, -1)

    def _repeat(self, times: int) -> Batch:
        if times not in self.repeated:
            self.repeated[times] = {k: v.repeat(times, 1) for k, v in self.batch.items()}
        return self.repeated[times]


def state_bytes(mixtures: int, tokens: int, width: int) -> int:
    """Of all mixtures: the states before and after a layer are there at the same time."""
    return 2 * mixtures * tokens * width * 4


def examples_at_once(mixtures: int, longest: int, width: int) -> int:
    """How many examples of up to `longest` tokens go through the layers together."""
    return max(1, min(LARGEST_BATCH, STATE_BYTES // state_bytes(mixtures, longest, width)))


def divide(swapped: np.ndarray, parts: int) -> list[np.ndarray]:
    """Rows of mixtures in parts of equal size; those with the same lower layers are together."""
    order = np.lexsort(swapped.T[::-1])
    return np.array_split(order, min(parts, len(order)))


def _whole_passes(
    own: BlockModel,
    other: Sequence[nn.Module],
    encoded: Encoded,
    swapped: np.ndarray,
    dtype: Dtype,
    report: Report,
) -> Mixtures:
    """The slow path, for models that cannot start from a stored state: one forward per mixture."""
    predicted = np.empty((len(swapped), len(encoded)), dtype=np.int64)
    for index, mask in enumerate(swapped):
        chosen = {int(layer) + 1: other[int(layer)] for layer in np.flatnonzero(mask)}
        with own.swapped(chosen):
            predicted[index] = predict_logits(own, encoded, dtype).argmax(axis=1)
        report((index + 1) / len(swapped))
    batches = len(list(evaluation_batches(encoded, LARGEST_BATCH)))
    return Mixtures(predicted, len(swapped) * own.n_layers * batches, batches)
