from __future__ import annotations

import numpy as np
import pytest
from cleanlab.rank import get_label_quality_scores, order_label_issues
from sklearn.metrics import average_precision_score, roc_auc_score

from memloc.analysis.generalisation import (
    Splits,
    detection,
    half_split,
    memorisation_map,
    standard_error,
    task_score,
    validation_scores,
)


def toy_splits(n: int = 40, count: int = 30) -> tuple[Splits, np.ndarray, np.ndarray]:
    """A learner that knows what it has seen (.9) and guesses the rest as told beforehand."""
    held_out = np.linspace(0, 1, n)
    inside = np.stack([half_split(n, split, seed=1) for split in range(count)])
    return Splits(inside, np.where(inside, 0.9, held_out), 4), held_out, inside


def test_halves_are_random_equal_and_repeatable() -> None:
    splits = [half_split(41, split, seed=1) for split in range(30)]
    assert all(split.sum() == 20 for split in splits)
    assert len({split.tobytes() for split in splits}) == 30
    np.testing.assert_array_equal(splits[3], half_split(41, 3, seed=1))
    assert (splits[3] != half_split(41, 3, seed=2)).any()


def test_the_map_of_a_learner_with_known_probabilities() -> None:
    splits, held_out, inside = toy_splits()
    table = memorisation_map(splits)
    np.testing.assert_allclose(table["training_memorisation"], 0.9)
    np.testing.assert_allclose(table["generalisation_score"], held_out)
    np.testing.assert_allclose(table["counterfactual_memorisation"], 0.9 - held_out)
    np.testing.assert_array_equal(table["times_in"], inside.sum(axis=0))
    np.testing.assert_array_equal(table["times_in"] + table["times_out"], 30)
    assert task_score(splits) == pytest.approx((held_out > 0.25).mean())


def test_scores_average_only_over_the_models_that_apply() -> None:
    inside = np.array([[True, False], [False, True], [False, False]])
    target = np.array([[0.8, 0.1], [0.2, 0.6], [0.4, 0.3]])
    table = memorisation_map(Splits(inside, target, 2))
    assert table["training_memorisation"].tolist() == pytest.approx([0.8, 0.6])
    assert table["generalisation_score"].tolist() == pytest.approx([0.3, 0.2])
    assert task_score(Splits(inside, target, 2)) == 0.0
    assert task_score(Splits(inside, target, 4)) == 0.5


def first(splits: Splits, count: int) -> Splits:
    return Splits(splits.inside[:count], splits.target[:count], splits.n_classes)


def test_the_standard_error_is_zero_without_variation_and_falls_with_more_splits() -> None:
    steady, _, _ = toy_splits()
    assert standard_error(steady) < 0.02  # only examples at the threshold could change
    random = np.random.default_rng(0)
    inside = random.random((40, 60)) < 0.5
    noise = Splits(inside, random.random((40, 60)), 2)
    errors = [standard_error(first(noise, count)) for count in (5, 40)]
    assert errors[0] > 0.02
    assert standard_error(noise) == standard_error(noise)
    # Not that of many splits, but of the right size: the spread of the score over repetitions.
    repeated = [
        task_score(Splits(random.random((40, 60)) < 0.5, random.random((40, 60)), 2))
        for _ in range(200)
    ]
    assert errors[1] == pytest.approx(np.std(repeated), rel=0.5)
    assert np.isnan(standard_error(first(noise, 1)))


def test_rankings_find_wrong_labels_as_cleanlab_and_scikit_learn_say() -> None:
    random = np.random.default_rng(0)
    n, classes = 200, 3
    labels = random.integers(classes, size=n)
    noisy = random.random(n) < 0.2
    logits = random.normal(size=(n, classes))
    logits[np.arange(n), labels] += np.where(noisy, -1.0, 1.5)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    target = probabilities[np.arange(n), labels]
    inside = np.stack([half_split(n, split, seed=0) for split in range(30)])
    table = memorisation_map(Splits(inside, np.where(inside, 0.95, target), classes))
    quality = get_label_quality_scores(labels, probabilities, method="self_confidence")
    np.testing.assert_allclose(table["generalisation_score"], quality)
    found = detection(table, noisy)
    assert found["self_confidence"]["roc_auc"] == pytest.approx(roc_auc_score(noisy, -quality))
    assert found["self_confidence"]["average_precision"] == pytest.approx(
        average_precision_score(noisy, -quality)
    )
    ranked = order_label_issues(
        np.ones(n, dtype=bool), labels, probabilities, rank_by="self_confidence"
    )
    np.testing.assert_array_equal(ranked, np.argsort(table["generalisation_score"].to_numpy()))
    assert found["counterfactual_memorisation"]["roc_auc"] > 0.8


def test_validation_scores_are_relative_to_every_way_of_guessing() -> None:
    labels = np.array([0, 0, 0, 1])
    found = validation_scores(0.875, labels, 2)
    assert found == {"uniform": 0.75, "proportional": pytest.approx(2 / 3), "majority": 0.5}
    many, random = np.tile(labels, 20_000), np.random.default_rng(1)
    shuffled = float((random.permutation(many) == many).mean())
    assert abs(validation_scores(shuffled, labels, 2)["proportional"]) < 0.02
    assert validation_scores(0.5, labels, 2)["majority"] == -1.0
    nothing = {"uniform": None, "proportional": None, "majority": None}
    assert validation_scores(None, labels, 2) == nothing
    assert validation_scores(0.9, labels[:0], 2) == nothing
    assert validation_scores(1.0, labels[:3], 2)["majority"] is None  # nothing to gain
