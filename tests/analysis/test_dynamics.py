from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memloc.analysis.dynamics import dynamics


def slowly(logits: np.ndarray, labels: np.ndarray) -> pd.DataFrame:
    """The definitions, one example and epoch after the other."""
    rows = []
    for example, label in enumerate(labels):
        answers, margins, confidences = [], [], []
        for epoch in range(len(logits)):
            scores = [float(score) for score in logits[epoch, example]]
            answers.append(scores.index(max(scores)) == label)
            margins.append(scores[label] - max(scores[:label] + scores[label + 1 :]))
            total = sum(math.exp(score) for score in scores)
            confidences.append(math.exp(scores[label]) / total)
        learned = None
        for epoch in range(len(answers), 0, -1):
            if not answers[epoch - 1]:
                break
            learned = epoch
        mean = sum(confidences) / len(confidences)
        rows.append(
            {
                "learned": learned,
                "forgotten": sum(
                    answers[epoch] and not answers[epoch + 1] for epoch in range(len(answers) - 1)
                ),
                "margin": sum(margins) / len(margins),
                "cumulative_loss": sum(-math.log(confidence) for confidence in confidences),
                "confidence": mean,
                "variability": math.sqrt(
                    sum((confidence - mean) ** 2 for confidence in confidences) / len(confidences)
                ),
            }
        )
    return pd.DataFrame(rows).astype({"learned": "Int64"})


@given(
    seed=st.integers(0, 10_000),
    epochs=st.integers(1, 7),
    examples=st.integers(1, 12),
    classes=st.integers(2, 4),
)
def test_the_same_as_example_by_example(
    seed: int, epochs: int, examples: int, classes: int
) -> None:
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(epochs, examples, classes), scale=3).astype(np.float32)
    labels = generator.integers(classes, size=examples)
    before = logits.copy()
    pd.testing.assert_frame_equal(dynamics(logits, labels), slowly(logits, labels), rtol=1e-9)
    np.testing.assert_array_equal(logits, before)


def answers(*classes: str) -> np.ndarray:
    """Logits of examples that answer these classes, epoch by epoch: 4 for the answer, else 0."""
    return 4.0 * np.stack([np.eye(3)[[int(answer) for answer in row]] for row in classes], axis=1)


def test_learned_is_the_epoch_from_which_on_the_label_is_the_answer() -> None:
    logits = answers("1111", "0111", "1011", "0001", "1110", "0000", "0101")
    table = dynamics(logits, np.ones(7, dtype=int))
    assert table["learned"].dtype == "Int64"
    assert table["learned"].tolist() == [1, 2, 3, 4, pd.NA, pd.NA, 4]
    assert table["forgotten"].tolist() == [0, 0, 1, 0, 1, 0, 1]


def test_margin_loss_confidence_and_variability_of_known_logits() -> None:
    logits = answers("11", "10", "02")  # the label is always the answer, once, never
    table = dynamics(logits, np.array([1, 1, 1]))
    assert table["margin"].tolist() == [4, 0, -4]
    sure, unsure = (math.exp(score) / (math.exp(4) + 2) for score in (4, 0))
    assert table["confidence"].tolist() == pytest.approx([sure, (sure + unsure) / 2, unsure])
    assert table["variability"].tolist() == pytest.approx([0, (sure - unsure) / 2, 0])
    losses = -2 * math.log(sure), -math.log(sure * unsure), -2 * math.log(unsure)
    assert table["cumulative_loss"].tolist() == pytest.approx(losses)


def test_the_loss_of_a_hopeless_label_is_large_and_not_infinite() -> None:
    logits = np.array([[[0.0, 2000.0]]] * 3, dtype=np.float16)
    table = dynamics(logits, np.array([0]))
    assert table["cumulative_loss"].tolist() == [6000]
    assert table["margin"].tolist() == [-2000]
    assert table["confidence"].tolist() == [0]


def test_other_ways_of_writing_the_logits_change_no_probability_and_no_margin() -> None:
    logits = np.random.default_rng(0).normal(size=(5, 20, 3))
    labels = np.arange(20) % 3
    shifted = logits + np.arange(20)[:, None]
    pd.testing.assert_frame_equal(dynamics(logits, labels), dynamics(shifted, labels))
