from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from memloc.techniques.probing import Probing
from memloc.training import probes
from memloc.training.probes import (
    ProbeResult,
    dropout_masks,
    epoch_batches,
    f1,
    initial_weights,
    linear_probes,
    split_examples,
    standardised,
    train_probes,
)
from tests.oracles.probing import probe_plainly, standardise_plainly

QUICK = Probing.Config(
    seeds=2, epochs=12, select_after=4, hidden=32, learning_rate=2e-3, least_steps=0
)


def planted(
    n: int, d: int, strengths: list[float], n_classes: int = 2, seed: int = 0
) -> tuple[torch.Tensor, np.ndarray]:
    """Noise in which each feature set shows the class with its own strength."""
    random = np.random.default_rng(seed)
    shares = [0.8, 0.2] if n_classes == 2 else [1 / n_classes] * n_classes
    labels = random.choice(n_classes, n, p=shares)
    means = random.standard_normal((n_classes, d))
    noise = random.standard_normal((len(strengths), n, d))
    signal = np.array(strengths)[:, None, None] * means[labels]
    return torch.from_numpy((noise + signal).astype(np.float32)), labels


def splits_of(labels: np.ndarray, seeds: int = 2) -> list[probes.Split]:
    return [split_examples(labels, seed) for seed in range(seeds)]


def assert_same(one: ProbeResult, other: ProbeResult) -> None:
    np.testing.assert_array_equal(one.predicted, other.predicted)
    np.testing.assert_array_equal(one.validation_f1, other.validation_f1)
    np.testing.assert_array_equal(one.epoch, other.epoch)


@pytest.mark.parametrize(
    ("n_classes", "weights", "strengths"),
    [(2, (0.33, 0.67), [0.0, 0.1, 0.3]), (5, None, [0.0, 0.3])],
)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"standardise": False, "batches": "chunks"},
        {"least_steps": 90, "dropout": 0.0},
        {"learning_rate": 1e-6, "select_after": 10},
    ],
    ids=["default", "chunks-of-raw-states", "least-steps", "nothing-learnt"],
)
def test_the_engine_equals_the_oracle(
    n_classes: int,
    weights: tuple[float, ...] | None,
    strengths: list[float],
    settings: dict[str, Any],
) -> None:
    config = QUICK.replace(batch_size=24, **settings)
    features, labels = planted(160, 24, strengths, n_classes)
    features = features * 3 + 1
    splits = splits_of(labels)
    result = train_probes(features, labels, n_classes, splits, config, class_weights=weights)
    agreement = []
    for layer in range(len(strengths)):
        for seed, split in enumerate(splits):
            plain = probe_plainly(
                features[layer], labels, n_classes, split.train, split.validation,
                initial_weights(seed, 24, config.hidden, n_classes),
                epoch_batches(seed, len(split.train), config),
                masks=dropout_masks(seed, config.dropout) if config.dropout else None,
                class_weights=weights, first_epoch=config.select_after + 1,
                standardise=config.standardise, learning_rate=config.learning_rate,
            )  # fmt: skip
            ours = result.predicted[layer, seed]
            agreement.append((ours == plain.predicted).mean())
            assert result.epoch[layer, seed] == plain.epoch
            assert result.validation_f1[layer, seed] == pytest.approx(plain.validation_f1)
            scores = [
                f1(p[split.test], labels[split.test], n_classes) for p in (ours, plain.predicted)
            ]
            assert scores[0] == pytest.approx(scores[1], abs=0.01)
    assert np.mean(agreement) > 0.999


@pytest.mark.parametrize("macro", [False, True])
def test_without_a_validation_f1_above_0_the_last_epoch_stays(macro: bool) -> None:
    features, labels = planted(160, 24, [0.0, 0.5])
    [split] = splits_of(labels, 1)
    # Classes that nobody can predict, as they are in no example that trains.
    unseen = np.where(np.isin(np.arange(160), split.validation), 2, labels)
    sought = train_probes(features, unseen, 3, [split], QUICK, macro=macro)
    assert not sought.validation_f1.any()
    assert (sought.epoch == QUICK.epochs).all()
    last = train_probes(
        features, unseen, 3, [split], QUICK.replace(select_after=QUICK.epochs), macro=macro
    )
    np.testing.assert_array_equal(sought.predicted, last.predicted)
    first = QUICK.replace(epochs=QUICK.select_after + 1)
    earlier = train_probes(features, unseen, 3, [split], first, macro=macro)
    assert (sought.predicted != earlier.predicted).any()


def test_small_data_get_the_least_number_of_steps() -> None:
    features, labels = planted(100, 8, [0.0])
    splits = splits_of(labels, 1)
    steps = -(-len(splits[0].train) // QUICK.batch_size)
    for least, epochs in ((0, 12), (12 * steps, 12), (12 * steps + 1, 13), (100, -(-100 // steps))):
        config = QUICK.replace(least_steps=least)
        result = train_probes(features, labels, 2, splits, config)
        assert result.steps == epochs * steps
        assert len(list(epoch_batches(0, len(splits[0].train), config))) == epochs


@pytest.mark.parametrize("batches", ["shuffled", "chunks"])
def test_batches_are_drawn_anew_or_only_change_their_order(batches: str) -> None:
    epochs = list(epoch_batches(3, 75, QUICK.replace(batches=batches, batch_size=32)))
    together = [{frozenset(batch.tolist()) for batch in epoch} for epoch in epochs]
    assert all(sorted(np.concatenate(epoch)) == list(range(75)) for epoch in epochs)
    if batches == "chunks":
        assert all(sets == together[0] for sets in together)
        assert {len(epoch[-1]) for epoch in epochs} == {11, 32}  # the short one comes anywhere
    else:
        assert len({frozenset(sets) for sets in together}) == len(epochs)
        assert {tuple(map(len, epoch)) for epoch in epochs} == {(32, 32, 11)}


def test_features_are_standardised_by_the_training_split() -> None:
    random = np.random.default_rng(0)
    features = torch.from_numpy(random.normal(5, 3, (2, 40, 4)).astype(np.float32))
    features[0, :, 1] = 7.3  # constant everywhere
    features[0, :, 2] = 7.3 + 1e-6 * features[1, :, 2]  # but for rounding
    train = np.arange(30)
    features[1, :30, 3], features[1, 30:, 3] = 0.0, 2.5  # constant in the training split alone
    scaled = standardised(features, train)
    for index in range(2):
        expected = standardise_plainly(features[index], train)
        torch.testing.assert_close(scaled[index], expected, rtol=1e-5, atol=1e-5)
    varying = scaled[0, :30, [0, 3]]
    torch.testing.assert_close(varying.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(varying.std(0, correction=0), torch.ones(2))
    assert scaled[0, :, 1].abs().max() == 0
    assert scaled[0, :, 2].abs().max() < 1e-4
    assert (scaled[1, 30:, 3] == 2.5).all()


def test_the_initial_weights_are_those_of_torch() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        layers = [torch.nn.Linear(*sizes) for sizes in ((24, 16), (16, 16), (16, 3))]
    ours = initial_weights(7, 24, 16, 3)
    for number, layer in enumerate(layers, 1):
        assert torch.equal(ours[f"weight{number}"], layer.weight)
        assert torch.equal(ours[f"bias{number}"], layer.bias)


def test_groups_seeds_and_repetition_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = planted(150, 24, [0.0, 0.1, 0.2, 0.3, 0.4])
    splits = splits_of(labels)
    seen: list[float] = []
    result = train_probes(features, labels, 2, splits, QUICK, report=seen.append)
    assert seen == [0.5, 1.0]  # one group of probes per seed
    assert_same(result, train_probes(features, labels, 2, splits, QUICK))
    first = train_probes(features, labels, 2, splits[:1], QUICK)
    np.testing.assert_array_equal(first.predicted, result.predicted[:, :1])
    for most in (1, 2, 3):
        monkeypatch.setattr(probes, "GROUP_BYTES", most * 16 * (25 * 32 + 33 * 32 + 33 * 2))
        sizes = [part.stop - part.start for part in probes._groups(5, 24, 32, 2)]
        assert max(sizes) == most
        assert sum(sizes) == 5
        assert_same(result, train_probes(features, labels, 2, splits, QUICK))


def test_stopping_at_a_perfect_score_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = planted(200, 24, [0.0, 2.0, 0.4, 1.0])
    splits = splits_of(labels)
    stopped = train_probes(features, labels, 2, splits, QUICK)
    perfect = stopped.validation_f1 == 1
    assert perfect.any()
    assert not perfect.all()

    plain = probes.f1
    # Scores that never reach 1 keep every probe going to the end.
    monkeypatch.setattr(probes, "f1", lambda *args, **options: plain(*args, **options) / 2)
    full = train_probes(features, labels, 2, splits, QUICK)
    np.testing.assert_array_equal(stopped.predicted, full.predicted)
    np.testing.assert_array_equal(stopped.epoch, full.epoch)
    steps = -(-len(splits[0].train) // QUICK.batch_size)
    assert full.steps == steps * QUICK.epochs * 4 * 2
    assert stopped.steps == steps * np.where(perfect, stopped.epoch, QUICK.epochs).sum()


@pytest.mark.parametrize(("n_classes", "macro"), [(2, False), (2, True), (5, False)])
def test_f1_is_that_of_sklearn(n_classes: int, macro: bool) -> None:
    random = np.random.default_rng(0)
    average = "binary" if n_classes == 2 and not macro else "macro"
    for classes in range(1, n_classes + 1):
        truth = random.integers(0, classes, 17)
        predicted = random.integers(0, n_classes, (3, 4, 17))
        predicted[0] = 0  # most classes absent
        predicted[1, 0] = truth
        ours = f1(predicted, truth, n_classes, macro=macro)
        assert ours.shape == (3, 4)
        for index in np.ndindex(3, 4):
            theirs = f1_score(truth, predicted[index], average=average, zero_division=0)
            assert ours[index] == pytest.approx(theirs, abs=1e-12)


def test_splits_are_stratified() -> None:
    strata = np.random.default_rng(0).choice(4, 333, p=[0.6, 0.25, 0.14, 0.01])
    split = split_examples(strata, 3)
    parts = [split.train, split.validation, split.test]
    assert sorted(np.concatenate(parts)) == list(range(333))
    for part in parts:
        assert (np.diff(part) > 0).all()
    for stratum, count in zip(*np.unique(strata, return_counts=True), strict=True):
        held_out = [(strata[part] == stratum).sum() for part in parts[1:]]
        assert held_out == [count // 10, count // 5]
    np.testing.assert_array_equal(split.train, split_examples(strata, 3).train)
    assert not np.array_equal(split.test, split_examples(strata, 4).test)


def test_dropout_acts_in_training_only(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = planted(150, 24, [0.2])
    splits = splits_of(labels)
    zeros: dict[str, list[float]] = {"learn": [], "predict": []}
    for name in zeros:
        plain = getattr(probes._Stack, name)

        def spy(stack, x, *args, name=name, plain=plain):  # type: ignore[no-untyped-def]
            zeros[name].append((x == 0).float().mean().item())
            return plain(stack, x, *args)

        monkeypatch.setattr(probes._Stack, name, spy)
    with_dropout = train_probes(features, labels, 2, splits, QUICK.replace(dropout=0.5))
    assert np.mean(zeros["learn"]) == pytest.approx(0.5, abs=0.01)
    assert max(zeros["predict"]) == 0
    zeros["learn"].clear()
    without = train_probes(features, labels, 2, splits, QUICK.replace(dropout=0.0))
    assert max(zeros["learn"]) == 0
    assert (with_dropout.predicted != without.predicted).any()


def test_linear_probes_handle_a_single_class() -> None:
    features, labels = planted(40, 8, [0.0])
    predicted = linear_probes(features, np.ones_like(labels), splits_of(labels))
    assert (predicted == 1).all()
