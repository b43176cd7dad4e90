"""The steps, each as (oracle, fast path) on the same input.

Swapping, gradients and states check that both agree. Retraining and probing use dropout and other
batches here, as their recipes do; the tests compare them without.

A step returns a dict with the seconds of both, the forward passes of a batch through a layer that
the fast path and the plain way need, and the useful floating-point operations of the fast path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tests.oracles.gradients import mean_gradient_plainly
from tests.oracles.probing import hidden_states_plainly, probe_plainly
from tests.oracles.retraining import retrain_window_plainly
from tests.oracles.swapping import swap_all_windows_plainly

from benchmarks.subjects import PREFIX, Subject, block_size, timed, timed_in_turns
from memloc.analysis.windows import Window, all_windows
from memloc.config import Training
from memloc.data.encode import encode, training_batches
from memloc.models.states import pooled_states
from memloc.techniques.base import Context
from memloc.techniques.gradients import Target, clean_sample, mean_gradient
from memloc.techniques.probing import Probing
from memloc.techniques.retraining import Retraining, divide, tail_parameters
from memloc.techniques.swapping import swap_windows
from memloc.training.learners import Learner
from memloc.training.loop import Objective, train
from memloc.training.probes import (
    epoch_orders,
    f1,
    initial_weights,
    split_examples,
    train_probes,
)

MEASURED_WINDOWS = 7
"""Of retraining: enough for a mean, few enough for minutes."""


def swapping(subject: Subject) -> dict[str, Any]:
    """All windows in lockstep, against one plain mixed model per window."""
    memorised, original = subject.build(1), subject.build(2)
    few = encode(subject.table[:8], memorised.codec)
    windows = all_windows(memorised.blocks.n_layers)
    swap_windows(memorised.blocks, original.blocks, few, windows)  # warm up
    fast, found = timed(
        lambda: swap_windows(
            memorised.blocks,
            original.blocks,
            encode(subject.table, memorised.codec),
            windows,
        )
    )
    slow, expected = timed(
        lambda: swap_all_windows_plainly(
            memorised.blocks.model, original.blocks.model, PREFIX, subject.tokenizer, subject.texts
        )
    )
    for window, predicted in zip(windows, found.predicted[1:].tolist(), strict=True):
        assert predicted == expected[tuple(window)], window
    passes = found.block_passes / found.batches
    return {
        "oracle_seconds": slow,
        "fast_seconds": fast,
        "block_passes": passes,
        "block_passes_plain": memorised.blocks.n_layers * len(found.predicted),
        "useful_flops": 2 * block_size(memorised.blocks) * subject.tokens * passes,
    }


def retraining(subject: Subject, epochs: int = 5) -> dict[str, Any]:
    """Windows from stored states, against the authors' recipe; seconds are means over all windows.

    The cost of the fast path is nearly linear in 2(L − a + 1) + (b − a + 1), see the technique: the
    windows measured are the middles of strata of that cost, and their mean is scaled by it. The
    cost of the oracle does not depend on the window (the whole model, whatever is frozen).
    """
    memorised, pretrained = subject.build(1).blocks, subject.build(2).blocks
    training = Training(learning_rate=1e-4, batch_size=8, epochs=epochs)
    train_rows, evaluated = divide(subject.table["noisy"].to_numpy(), 0)
    n_noisy = int(subject.table["noisy"].sum())
    n_layers = memorised.n_layers

    def units(window: Window) -> int:
        return 2 * (n_layers - window.first + 1) + window.size

    windows = sorted(all_windows(n_layers), key=units)
    middles = (np.arange(MEASURED_WINDOWS) + 0.5) * len(windows) / MEASURED_WINDOWS
    sample = sorted(windows[int(place)] for place in middles)
    scale = np.mean([units(w) for w in windows]) / np.mean([units(w) for w in sample])
    models = {"memorised": memorised, "pretrained": pretrained}
    context = Context.of(subject.table, subject.encoded, models, training=training)

    def retrain(window: Window) -> Any:
        return Retraining(epochs=epochs).window(context, window, lambda _: None)

    def retrain_plainly(window: Window) -> Any:
        generator = np.random.default_rng(0)
        n_batches = -(-len(train_rows) // 8)
        orders = [
            [b.tolist() for b in np.array_split(generator.permutation(len(train_rows)), n_batches)]
            for _ in range(epochs)
        ]
        return retrain_window_plainly(
            memorised.model, pretrained.model, PREFIX, tuple(window), subject.tokenizer,
            subject.texts, subject.labels.tolist(), train_rows.tolist(),
            evaluated[:n_noisy].tolist(), evaluated[n_noisy:].tolist(),
            tail_parameters(memorised, "norm+head"), orders, training.learning_rate, dropout=True,
        )  # fmt: skip

    # Turn and turn about, so that a machine that gets slower does so for both.
    plain = [sample[0], sample[-1]]
    slow_each, fast_all, passes = [], 0.0, 0
    for window in sample:
        seconds, found = timed(lambda window=window: retrain(window))
        fast_all += seconds
        passes += int(found["losses"]["block_passes"].iloc[0])
        if window in plain:
            seconds, (losses, _) = timed(lambda window=window: retrain_plainly(window))
            assert np.isfinite(losses).all()
            slow_each.append(seconds)
    trained = int(subject.encoded.lengths[train_rows].sum()) * epochs
    evaluations = epochs * (-(-len(train_rows) // 8) + -(-n_noisy // 8)) + -(-2 * n_noisy // 8)
    return {
        "oracle_seconds": float(np.mean(slow_each)),
        "fast_seconds": float(fast_all / len(sample) * scale),
        "windows_measured": {"fast": len(sample), "oracle": len(plain)},
        "block_passes": passes / len(sample) * scale,
        "block_passes_plain": n_layers * (epochs * -(-len(train_rows) // 8) + evaluations),
        "useful_flops": 2 * block_size(memorised) * trained * np.mean([units(w) for w in windows]),
    }


def gradients(subject: Subject) -> dict[str, Any]:
    """Mean gradients of the noisy and the clean set, against one example at a time."""
    model = subject.build(1).blocks
    noisy = subject.table["noisy"].to_numpy()
    sets = np.flatnonzero(noisy), clean_sample(noisy, 0)
    target = Target(subject.encoded, subject.labels)
    mean_gradient(model, Target(subject.encoded, subject.labels), sets[0][:4])  # warm up
    fast, found, slow, expected = timed_in_turns(
        lambda: [mean_gradient(model, target, rows) for rows in sets],
        lambda: [
            mean_gradient_plainly(
                model.model,
                PREFIX,
                subject.tokenizer,
                [subject.texts[row] for row in rows],
                subject.labels[rows].tolist(),
            )
            for rows in sets
        ],
    )
    for gradient, plain in zip(found, expected, strict=True):
        for layer in gradient:
            scale = max(float(plain[name].abs().max()) for name in layer)
            for name, value in layer.items():
                torch.testing.assert_close(value, -plain[name], rtol=1e-4, atol=1e-4 * scale)
    chosen = np.concatenate(sets)
    tokens = int(subject.encoded.lengths[chosen].sum())
    return {
        "oracle_seconds": slow,
        "fast_seconds": fast,
        "block_passes": target.block_passes // 3,  # measured three times
        "block_passes_plain": model.n_layers * len(chosen),
        "useful_flops": 6 * block_size(model) * model.n_layers * tokens,
    }


def hidden_states(subject: Subject) -> dict[str, Any]:
    """Pooled states of all layers in one pass, against one example at a time, once per layer."""
    model = subject.build(1).blocks
    n = model.n_layers
    pooled_states(model, encode(subject.table[:32], subject.build(1).codec))  # warm up
    fast, found = timed(lambda: pooled_states(model, subject.encoded))
    slow, expected = timed(lambda: _states_plainly(subject, model))
    fast = (fast + timed(lambda: pooled_states(model, subject.encoded))[0]) / 2
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    batches = -(-len(subject.table) // 32)
    return {
        "oracle_seconds": slow,
        "fast_seconds": fast,
        "block_passes": n * batches,
        "block_passes_plain": n * (n + 1) * len(subject.table),
        "useful_flops": 2 * block_size(model) * n * subject.tokens,
    }


def probing(subject: Subject, config: Probing.Config | None = None) -> dict[str, Any]:
    """Probes of all layers × 5 seeds with their states, against one by one.

    Both train on states of layers 0..L of θ_M2 and of layer 1 of θ_P. The oracle trains the probes
    of the first seed; those of the others take as long.
    """
    config = config or Probing.Config()
    memorised, pretrained = subject.build(1).blocks, subject.build(2).blocks
    noisy = subject.table["noisy"].to_numpy().astype(np.int64)
    splits = [split_examples(noisy, seed) for seed in range(config.seeds)]
    weights = (config.clean_weight, config.noisy_weight)

    def probe() -> Any:
        states = pooled_states(memorised, subject.encoded)
        baseline = pooled_states(pretrained, subject.encoded)[1:2]
        features = torch.cat([states, baseline])
        return train_probes(features, noisy, 2, splits, config, class_weights=weights)

    def plainly() -> list[np.ndarray]:
        states = [
            *_states_plainly(subject, memorised),
            hidden_states_plainly(
                pretrained.model, subject.tokenizer, subject.texts, 1, PREFIX, pretrained.pooling
            ),
        ]
        nonlocal probe_seconds
        found = []
        for features in states:
            seconds, answer = timed(
                lambda features=features: probe_plainly(
                    features, noisy, 2, splits[0].train, splits[0].validation,
                    initial_weights(0, features.shape[1], config.hidden, 2),
                    epoch_orders(0, len(splits[0].train), config.epochs), class_weights=weights,
                )
            )  # fmt: skip
            probe_seconds += seconds
            found.append(answer[0])
        return found

    probe_seconds = 0.0
    fast, found = timed(probe)
    slow, expected = timed(plainly)
    slow += (config.seeds - 1) * probe_seconds  # only the first seed was trained
    test = splits[0].test
    ours = f1(found.predicted[:, 0][:, test], noisy[test], 2)
    plain = np.array([f1(predicted[test], noisy[test], 2) for predicted in expected])
    n, width = memorised.n_layers, int(memorised.model.config.hidden_size)
    hidden = config.hidden
    per_example = 2 * (2 * width * hidden + 3 * hidden * hidden + 3 * 2 * hidden)
    trained = sum(len(split.train) for split in splits) * config.epochs * (n + 2)
    return {
        "oracle_seconds": slow,
        "fast_seconds": fast,
        "block_passes": 2 * n * -(-len(noisy) // 32),
        "block_passes_plain": (n * (n + 1) + n) * len(noisy),
        "useful_flops": per_example * trained,
        "mean_difference_of_f1": float(np.abs(ours - plain).mean()),
    }


def _states_plainly(subject: Subject, model: Any) -> torch.Tensor:
    return torch.stack(
        [
            hidden_states_plainly(
                model.model, subject.tokenizer, subject.texts, layer, PREFIX, model.pooling
            )
            for layer in range(model.n_layers + 1)
        ]
    )


def fine_tuning(subject: Subject, epochs: int = 2) -> dict[str, Any]:
    """One epoch at batch 8; useful work is 6 × non-embedding parameters × real tokens."""
    model = subject.build(1).blocks
    learner = Learner(model, subject.encoded)
    size = sum(parameter.numel() for parameter in learner.trainable().values())
    config = Training(learning_rate=1e-4, batch_size=8, epochs=epochs)
    seconds = []
    epochs_of = train([Objective(learner, subject.labels, config)], 0)
    while True:
        spent, losses = timed(lambda: next(epochs_of, None))
        if losses is None:
            break
        seconds.append(spent)
    batches = training_batches(subject.encoded.lengths, 8, np.random.default_rng(0))
    padded = sum(int(subject.encoded.lengths[b].max()) * len(b) for b in batches)
    return {
        "fast_seconds": seconds[-1],  # the first epoch also sets up the optimiser
        "padding": 1 - subject.tokens / padded,
        "useful_flops": 6 * size * subject.tokens,
    }
