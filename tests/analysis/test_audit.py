"""Labels are ranked by how likely they are wrong, and how many are is estimated."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from memloc.analysis.audit import choose_suspects, estimate_wrong, margin_of, rank_labels
from memloc.analysis.dynamics import dynamics


def slow_margin(belief: np.ndarray, labels: np.ndarray) -> list[float]:
    return [
        row[label] - max(p for c, p in enumerate(row) if c != label)
        for row, label in zip(belief.tolist(), labels, strict=True)
    ]


def test_a_margin_is_that_to_the_most_likely_other_class() -> None:
    random = np.random.default_rng(0)
    belief = softmax(random.normal(size=(20, 4)), axis=1)
    labels = random.integers(4, size=20)
    assert margin_of(belief, labels) == pytest.approx(slow_margin(belief, labels))


def test_the_score_is_the_sum_of_both_ranks_and_suggestions_are_other_classes() -> None:
    random = np.random.default_rng(1)
    logits = random.normal(size=(6, 15, 3)).astype(np.float16)
    labels = random.integers(3, size=15)
    unseen = softmax(random.normal(size=(15, 3)), axis=1)
    found = rank_labels(logits, labels, dynamics(logits, labels), unseen)

    early = np.mean([softmax(logits[e].astype(float), axis=1) for e in range(3)], axis=0)
    both = [slow_margin(early, labels), slow_margin(unseen, labels)]
    # Rank 15 is the smallest margin.
    ranks = sum(np.array([sorted(m, reverse=True).index(x) + 1 for x in m]) for m in both)
    assert found["score"].to_numpy() == pytest.approx(ranks / ranks.max())
    assert sorted(found["rank"]) == list(range(1, 16))
    assert (np.diff(found.sort_values("rank")["score"]) <= 0).all()
    for row, label in enumerate(labels):
        others = {c: early[row, c] + unseen[row, c] for c in range(3) if c != label}
        assert found["suggested_label"][row] == max(others, key=others.__getitem__)
        assert found["self_confidence"][row] == pytest.approx(unseen[row, label])


def test_without_half_splits_the_early_margin_decides_alone() -> None:
    logits = np.zeros((4, 5, 2))
    logits[:, :, 1] = np.linspace(-2, 2, 5)  # the label 0 is less and less likely
    labels = np.zeros(5, dtype=np.int64)
    found = rank_labels(logits, labels, dynamics(logits, labels), None)
    assert found["rank"].tolist() == [5, 4, 3, 2, 1]
    assert "self_confidence" not in found
    assert found["suggested_label"].tolist() == [1] * 5


@pytest.mark.parametrize("share", [0.05, 0.15, 0.3])
def test_the_number_of_wrong_labels_is_estimated_where_models_know_the_answer(share: float) -> None:
    inside = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        true, n = random.integers(4, size=400), 400
        strength = random.uniform(1, 6, size=(n, 1))
        unseen = softmax(
            strength * np.eye(4)[true] + random.normal(size=(n, 4)), axis=1
        )  # mostly right, not calibrated
        wrong = random.random(n) < share
        labels = np.where(wrong, (true + random.integers(1, 4, size=n)) % 4, true)
        found = estimate_wrong(unseen, labels)
        assert found.low <= found.estimate <= found.high
        inside += found.low <= wrong.sum() <= found.high
    assert inside >= 17  # 95% intervals


def test_no_class_loses_more_than_half_of_its_labels() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 2])
    rank = np.array([8, 7, 6, 5, 1, 2, 3, 4])  # all of the rare classes come first
    assert (
        choose_suspects(rank, labels, 3).tolist() == [False, False, True, True, True] + [False] * 3
    )
    assert choose_suspects(rank, labels, 1).nonzero()[0].tolist() == [4]
    assert choose_suspects(rank, labels, 8).sum() == 3


def test_models_that_know_nothing_leave_the_prior_and_a_wide_interval() -> None:
    random = np.random.default_rng(0)
    unseen = softmax(0.1 * random.normal(size=(200, 2)), axis=1)
    found = estimate_wrong(unseen, random.integers(2, size=200))
    assert found.low <= 5
    assert found.high >= 40
