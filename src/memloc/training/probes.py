"""Probes: small classifiers on the states of one layer (sections 3.1 and 5).

An MLP d-hidden-hidden-C with GELU and dropout on its input, AdamW, the weights of the epoch with
the best validation F1; if that is 0 in every epoch that may be chosen, those of the last epoch. All
layers of one probe seed share split, batches, initial weights and dropout, so that layers differ in
nothing but their features.

The probes of a seed train together as one batched model, forward and backward written out: such
small matrices would otherwise spend most of the time between the multiplications.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.optim.adamw import adamw

if TYPE_CHECKING:
    from memloc.techniques.probing import Probing

# Most bytes of parameters, gradients and both moments that train together. Measured on one core of
# a machine with 512 KiB of L2 and 32 MiB of L3 cache, microseconds per probe and step:
#   d = 384:  4 MiB 259,  8 MiB 225, 14 MiB 229, 40 MiB (8 layers of 5 seeds at once) 244
#   d = 768:  7 MiB 368, 14 MiB 376, 25 MiB 443, 70 MiB 409
# Small groups wait for Python, large ones for memory. With a neighbour on the other core, who
# shares the L3 cache, 7 MiB beat 14 MiB (280 to 300), so the limit is nearer to the lower end.
GROUP_BYTES = 12 * 2**20
CONSTANT = 1e-5
"""A feature that varies by less than this share of the typical state varies by rounding alone."""
_LEVELS = 2**16  # of the random numbers for dropout
_EVALUATION_ROWS = 1024


@dataclass(frozen=True)
class Split:
    """Indices of the examples that train, select and test a probe."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class ProbeResult:
    """What the selected weights of every probe answer; F feature sets, S seeds, N examples."""

    predicted: np.ndarray
    """[F, S, N] class predicted for every example, whatever its split."""
    validation_f1: np.ndarray
    """[F, S] best F1 on the validation split."""
    epoch: np.ndarray
    """[F, S] first epoch (from 1) that reached it; the last one if it is 0."""
    steps: int
    """Optimiser steps times probes."""


def split_examples(strata: np.ndarray, seed: int) -> Split:
    """Random 70/10/20 split in which every stratum has its share.

    Shares of validation and test are rounded down per stratum, so a stratum of fewer than five
    examples only trains.
    """
    random = np.random.default_rng(seed)
    parts: tuple[list[np.ndarray], ...] = ([], [], [])
    for stratum in np.unique(strata):
        members = random.permutation(np.flatnonzero(strata == stratum))
        validation, test = len(members) // 10, len(members) // 5
        cut = np.split(members, [len(members) - validation - test, len(members) - test])
        for part, indices in zip(parts, cut, strict=True):
            part.append(indices)
    train, chosen, tested = (np.sort(np.concatenate(part)) for part in parts)
    return Split(train, chosen, tested)


def f1(
    predicted: np.ndarray, truth: np.ndarray, n_classes: int, *, macro: bool = False
) -> np.ndarray:
    """F1 over the last axis: of class 1 if there are two classes (unless `macro`), else the mean.

    As in scikit-learn, classes in neither labels nor predictions do not count in the mean.
    """
    classes = np.array([1]) if n_classes == 2 and not macro else np.arange(n_classes)
    guessed = predicted[..., None, :] == classes[:, None]
    true = truth == classes[:, None]
    hits = (guessed & true).sum(axis=-1)
    total = guessed.sum(axis=-1) + true.sum(axis=-1)
    scores = 2 * hits / np.maximum(total, 1)
    mean: np.ndarray = scores.sum(axis=-1) / np.maximum((total > 0).sum(axis=-1), 1)
    return mean


def initial_weights(seed: int, d: int, hidden: int, n_classes: int) -> dict[str, Tensor]:
    """Weights [out, in] and biases of the three linear maps, drawn as `torch.nn.Linear` does."""
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, Tensor] = {}
    sizes = (d, hidden, hidden, n_classes)
    for index, (width, out) in enumerate(pairwise(sizes), 1):
        weight, bias = torch.empty(out, width), torch.empty(out)
        torch.nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
        bound = 1 / math.sqrt(width)
        torch.nn.init.uniform_(bias, -bound, bound, generator=generator)
        weights |= {f"weight{index}": weight, f"bias{index}": bias}
    return weights


def epochs_of(n: int, config: Probing.Config) -> int:
    """Passes over n training examples: as many as set, or more if these are too few steps."""
    return max(config.epochs, math.ceil(config.least_steps / math.ceil(n / config.batch_size)))


def epoch_batches(seed: int, n: int, config: Probing.Config) -> Iterator[list[np.ndarray]]:
    """The batches of n training examples in every epoch: positions from 0 to n − 1."""
    random = np.random.default_rng(seed)
    cuts = range(config.batch_size, n, config.batch_size)
    batches = np.split(random.permutation(n), cuts)
    for _ in range(epochs_of(n, config)):
        if config.batches == "chunks":
            yield [batches[index] for index in random.permutation(len(batches))]
        else:
            yield batches
            batches = np.split(random.permutation(n), cuts)


def standardised(features: Tensor, train: np.ndarray) -> Tensor:
    """Features [F, N, d] with mean 0 and deviation 1 over the training examples of each set.

    What does not vary there, such as the first position of an encoder before its first layer, is
    only centred: divided by its deviation, rounding would look like a finding.
    """
    rows = torch.from_numpy(train).to(features.device)
    scaled = torch.empty_like(features)
    for source, target in zip(features, scaled, strict=True):
        seen = source.index_select(0, rows).cpu().double()
        deviation, typical = seen.std(0, correction=0), seen.square().mean().sqrt()
        deviation[deviation <= CONSTANT * typical] = 1.0
        mean, scale = (a.float().to(features.device) for a in (seen.mean(0), deviation))
        torch.sub(source, mean, out=target).div_(scale)
    return scaled


def train_probes(
    features: Tensor,
    labels: np.ndarray,
    n_classes: int,
    splits: Sequence[Split],
    config: Probing.Config,
    *,
    class_weights: Sequence[float] | None = None,
    report: Callable[[float], None] = lambda _: None,
    macro: bool = False,
) -> ProbeResult:
    """Train one probe per feature set and seed; the result does not depend on how they are grouped.

    Args:
        features: [F, N, d], one set per layer; the probes run on its device, in float32.
        labels: Class of every example.
        n_classes: Number of classes.
        splits: One per probe seed. Seeds 0, 1, ... decide initial weights, order and dropout.
        config: Settings.
        class_weights: Weight of each class in the loss.
        report: Called with the finished fraction.
        macro: Select by macro F1 even with two classes, as class probes do (section 5).
    """
    features, labels = features.detach().float().contiguous(), labels.astype(np.int64)
    n_sets, n, d = features.shape
    predicted = np.zeros((n_sets, len(splits), n), np.int64)
    best = np.zeros((n_sets, len(splits)))
    epoch = np.zeros((n_sets, len(splits)), np.int64)
    steps = 0
    weights = np.asarray(class_weights or [1.0] * n_classes, np.float64)
    groups = _groups(n_sets, d, config.hidden, n_classes)
    parts = [(seed, group) for seed in range(len(splits)) for group in groups]
    with torch.inference_mode():
        for done, (seed, group) in enumerate(parts, start=1):
            trained = _train_group(
                features[group], labels, weights, splits[seed], config, seed, macro=macro
            )
            predicted[group, seed] = trained.predicted
            best[group, seed] = trained.validation_f1
            epoch[group, seed] = trained.epoch
            steps += trained.steps
            report(done / len(parts))
    return ProbeResult(predicted, best, epoch, steps)


def linear_probes(
    features: Tensor,
    labels: np.ndarray,
    splits: Sequence[Split],
    *,
    class_weights: Sequence[float] | None = None,
) -> np.ndarray:
    """Logistic regression in place of the MLP, as a control: [F, S, N] predicted classes."""
    # Imported here, as it takes a second that only this control should cost.
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    columns, labels = features.detach().float().cpu().numpy(), labels.astype(np.int64)
    predicted = np.zeros((len(columns), len(splits), len(labels)), np.int64)
    with threadpool_limits(1):
        for position, split in enumerate(splits):
            present = np.unique(labels[split.train])
            weights = None if class_weights is None else {c: class_weights[c] for c in present}
            for index, states in enumerate(columns):
                if len(present) == 1:
                    predicted[index, position] = present[0]
                    continue
                scaler = StandardScaler().fit(states[split.train])
                scaled = scaler.transform(states)
                model = LogisticRegression(max_iter=1000, class_weight=weights)
                model.fit(scaled[split.train], labels[split.train])
                predicted[index, position] = model.predict(scaled)
    return predicted


def _targets(labels: np.ndarray, weights: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """Weight [n, 1] of every example in the mean of its batch, and that times its one-hot row.

    The gradient of the loss with respect to the logits is softmax × weight − target.
    """
    share = weights[labels]
    total = np.add.reduceat(share, np.cumsum([0, *sizes[:-1]]))
    share /= np.repeat(total, sizes)
    target = np.zeros((len(share), len(weights)), np.float32)
    target[np.arange(len(share)), labels] = share
    return [share[:, None].astype(np.float32), target]


class _Stack:
    """Probes of one shape; parameters, gradients and moments are a row of one tensor each.

    A row holds the first weights of all probes, then their first biases, and so on: a batched
    multiplication writes a gradient in place only if it is contiguous, and the optimiser makes one
    pass over everything. The last weights are stored [C, hidden], since multiplying by a matrix of
    two columns is four times slower than by the transpose of one of two rows.
    """

    def __init__(self, count: int, d: int, hidden: int, n_classes: int, device: torch.device):
        self.sizes, self.device = (d, hidden, n_classes), device
        shapes = [(d, hidden), (1, hidden), (hidden, hidden), (1, hidden)]
        shapes += [(n_classes, hidden), (1, n_classes)]
        lengths = [count * rows * columns for rows, columns in shapes]
        self.state = torch.zeros(4, sum(lengths), device=device)
        self.views = [
            [
                part.view(count, *shape)
                for part, shape in zip(row.split(lengths), shapes, strict=True)
            ]
            for row in self.state
        ]
        self.parameters, self.gradients = self.views[:2]
        self.steps = torch.zeros((), device=device)

    def fill(self, weights: dict[str, Tensor]) -> None:
        """Give all probes the same weights."""
        for index, parameter in enumerate(self.parameters):
            value = weights[f"{'bias' if index % 2 else 'weight'}{index // 2 + 1}"]
            parameter.copy_(value.mT if index in (0, 2) else value)

    def take(self, keep: Tensor) -> _Stack:
        """Some of the probes, to go on with."""
        taken = _Stack(len(keep), *self.sizes, self.device)
        taken.steps = self.steps
        for old, new in zip(self.views, taken.views, strict=True):
            for source, target in zip(old, new, strict=True):
                target.copy_(source.index_select(0, keep))
        return taken

    def copy(self, other: _Stack, source: np.ndarray, target: np.ndarray) -> None:
        """Take over the weights of some of another's probes."""
        there, here = (torch.from_numpy(a).to(self.device) for a in (source, target))
        for mine, theirs in zip(self.parameters, other.parameters, strict=True):
            mine.index_copy_(0, here, theirs.index_select(0, there))

    def predict(self, inputs: Tensor) -> np.ndarray:
        """Classes for inputs [G, n, d]."""
        rows = inputs.split(_EVALUATION_ROWS, dim=1)
        classes = [self._forward(part)[-1].argmax(dim=-1) for part in rows]
        predicted: np.ndarray = torch.cat(classes, dim=1).cpu().numpy()
        return predicted

    def learn(self, x: Tensor, share: Tensor, target: Tensor, config: Probing.Config) -> None:
        """One step of AdamW on a batch [G, b, d]; see `_targets` for the other two."""
        z1, h1, z2, h2, logits = self._forward(x)
        _, _, w2, _, w3, _ = self.parameters
        gw1, gb1, gw2, gb2, gw3, gb3 = self.gradients
        delta = logits.softmax(dim=-1).mul_(share).sub_(target)
        torch.bmm(delta.mT, h2, out=gw3)
        torch.sum(delta, 1, keepdim=True, out=gb3)
        delta = torch.ops.aten.gelu_backward(torch.bmm(delta, w3), z2)
        torch.bmm(h1.mT, delta, out=gw2)
        torch.sum(delta, 1, keepdim=True, out=gb2)
        delta = torch.ops.aten.gelu_backward(torch.bmm(delta, w2.mT), z1)
        torch.bmm(x.mT, delta, out=gw1)
        torch.sum(delta, 1, keepdim=True, out=gb1)
        parameters, gradients, mean, square = self.state
        adamw(
            [parameters], [gradients], [mean], [square], [], [self.steps], fused=True,
            lr=config.learning_rate, weight_decay=config.weight_decay, beta1=0.9, beta2=0.999,
            eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip

    def _forward(self, x: Tensor) -> tuple[Tensor, ...]:
        w1, b1, w2, b2, w3, b3 = self.parameters
        z1 = torch.baddbmm(b1, x, w1)
        h1 = functional.gelu(z1)
        z2 = torch.baddbmm(b2, h1, w2)
        h2 = functional.gelu(z2)
        return z1, h1, z2, h2, torch.baddbmm(b3, h2, w3.mT)


def dropout_masks(seed: int, rate: float) -> Callable[[int, int], Tensor]:
    """Gives masks [n, d] of zeros and factors, the same sequence on every device.

    Sixteen random bits per number take a third of the time of a float32, and the rate is off by
    less than 1e-5.
    """
    random = np.random.PCG64([seed, 1])
    threshold = min(round(rate * _LEVELS), _LEVELS - 1)
    scale = np.float32(_LEVELS / (_LEVELS - threshold))

    def mask(n: int, d: int) -> Tensor:
        numbers = random.random_raw(-(-n * d // 4)).view(np.uint16)[: n * d]
        kept = np.multiply(numbers >= threshold, scale, dtype=np.float32)
        return torch.from_numpy(kept.reshape(n, d))

    return mask


def _train_group(
    features: Tensor,
    labels: np.ndarray,
    weights: np.ndarray,
    split: Split,
    config: Probing.Config,
    seed: int,
    *,
    macro: bool,
) -> ProbeResult:
    """Train the probes of one seed on some feature sets [G, N, d], all at once.

    A probe whose validation F1 is 1 leaves the group: no later epoch can replace the first best.
    """
    device, (count, _, d) = features.device, features.shape
    sizes = d, config.hidden, len(weights)
    stack, chosen = _Stack(count, *sizes, device), _Stack(count, *sizes, device)
    stack.fill(initial_weights(seed, *sizes))
    mask = dropout_masks(seed, config.dropout)
    if config.standardise:
        features = standardised(features, split.train)
    held_out = features.index_select(1, torch.from_numpy(split.validation).to(device))
    inputs, active = features, np.arange(count)
    best, selected, steps = np.zeros(count), np.zeros(count, np.int64), 0
    first = min(config.select_after + 1, epochs_of(len(split.train), config))

    for epoch, positions in enumerate(epoch_batches(seed, len(split.train), config), 1):
        lengths = [len(batch) for batch in positions]
        indices = split.train[np.concatenate(positions)]
        arrays = [indices, *_targets(labels[indices], weights, lengths)]
        batches = [torch.from_numpy(a).to(device).split(lengths) for a in arrays]
        for index, share, target in zip(*batches, strict=True):
            x = inputs.index_select(1, index)
            if config.dropout:
                x.mul_(mask(len(index), d).to(device))
            stack.learn(x, share, target, config)
            steps += len(active)
        if epoch < first:
            continue
        scores = f1(stack.predict(held_out), labels[split.validation], len(weights), macro=macro)
        better = np.flatnonzero(scores > best[active])
        chosen.copy(stack, better, active[better])
        best[active[better]], selected[active[better]] = scores[better], epoch
        keep = np.flatnonzero(best[active] < 1)
        if not len(keep):
            break
        if len(keep) < len(active):
            kept = torch.from_numpy(keep).to(device)
            stack, active = stack.take(kept), active[keep]
            inputs, held_out = inputs.index_select(0, kept), held_out.index_select(0, kept)
    never = np.flatnonzero(best[active] == 0)
    chosen.copy(stack, never, active[never])
    selected[active[never]] = epoch
    return ProbeResult(chosen.predict(features), best, selected, steps)


def _groups(n_sets: int, d: int, hidden: int, n_classes: int) -> list[slice]:
    """Runs of feature sets, as equal as possible, whose probes train together."""
    parameters = (d + 1) * hidden + (hidden + 1) * hidden + (hidden + 1) * n_classes
    most = max(1, GROUP_BYTES // (16 * parameters))
    cuts = np.linspace(0, n_sets, -(-n_sets // most) + 1).round().astype(int).tolist()
    return [slice(start, stop) for start, stop in pairwise(cuts)]
