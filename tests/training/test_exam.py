"""The exam of a model: probes and relearning are those of slow, obvious versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from memloc.config import Training
from memloc.data.encode import Encoded, training_batches
from memloc.models.states import pooled_states
from memloc.techniques.probing import Probing
from memloc.training.exam import DRAWS, FOLDS, Exam, best_reading, hold_out
from memloc.training.probes import dropout_masks, epoch_batches, initial_weights
from tests.conftest import labelled_rows
from tests.oracles.probing import probe_plainly
from tests.oracles.retraining import retrain_window_plainly
from tests.tiny_models import T5, encoded, prefix_of, tiny_blocks, tiny_tokenizer

LAYERS = 3
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
PROBING = Probing.Config(
    epochs=12, select_after=4, hidden=16, learning_rate=5e-3, least_steps=0, fitted_at=0
)
TRAINING = Training(learning_rate=2e-3, batch_size=4, epochs=7)


def make_exam(n: int = 60, architecture: str = "bert", **settings: Any) -> Exam:
    rows, unseen = labelled_rows(n), labelled_rows(12, seed=9)
    changes: dict[str, Any] = {"bert": NO_DROPOUT, "t5": T5}[architecture]
    label, true = (rows[column].to_numpy(copy=True) for column in ("label", "original_label"))
    usual: dict[str, Any] = {
        "true_labels": true,
        "training": TRAINING,
        "probing": PROBING,
        "seed": 3,
        "noisy": label != true,
    }
    return Exam(
        tiny_blocks(architecture, LAYERS, **changes),
        encoded(rows),
        encoded(unseen),
        label,
        validation_labels=unseen["original_label"].to_numpy(),
        **{**usual, **settings},
    )


def plain_answers(exam: Exam, texts: list[str]) -> np.ndarray:
    """One whole pass per text."""
    tokenizer, answers = tiny_tokenizer(), []
    for text in texts:
        with torch.no_grad():
            logits = exam.model.model(**tokenizer([text], return_tensors="pt")).logits
        answers.append(int(logits.argmax()))
    return np.array(answers)


def relearned_plainly(exam: Exam, rows: list[int], asked: list[int], size: int, seed: int) -> Any:
    """Whether examples get their label after an epoch on others: every parameter, step by step."""
    order = training_batches(exam.train.lengths[rows], size, np.random.default_rng(seed))
    _, predicted = retrain_window_plainly(
        exam.model.model, exam.model.model, prefix_of(exam.model), (1, LAYERS), tiny_tokenizer(),
        labelled_rows(60)["text"].tolist(), exam.labels.tolist(), rows, asked, [],
        exam.model.groups.tail, [[batch.tolist() for batch in order]], TRAINING.learning_rate,
    )  # fmt: skip
    return np.array(predicted) == exam.labels[asked]


def test_all_measures_are_those_of_the_obvious_versions() -> None:
    exam = make_exam()
    before = {name: value.clone() for name, value in exam.model.model.state_dict().items()}
    table = pd.DataFrame(exam.take()).set_index("measure")
    answers = plain_answers(exam, labelled_rows(60)["text"].tolist())
    unseen = plain_answers(exam, labelled_rows(12, seed=9)["text"].tolist())
    suspects, kept = np.flatnonzero(exam.noisy), np.flatnonzero(~exam.noisy)
    assert exam.true_labels is not None
    expected = {
        "given": (answers == exam.labels)[suspects],
        "kept_accuracy": (answers == exam.labels)[kept],
        "validation_accuracy": unseen == exam.validation_labels,
        "true_accuracy": (answers == exam.true_labels)[suspects],
        "relearned_kept": relearned_plainly(exam, kept.tolist(), suspects.tolist(), 4, 3),
    }
    for name, shares in expected.items():
        assert table.loc[name, "value"] == pytest.approx(shares.mean()), name
        assert table.loc[name, "examples"] == len(shares)
        assert table.loc[name, "low"] <= shares.mean() <= table.loc[name, "high"]
    assert len({shares.mean() for shares in expected.values()}) > 3
    # A single step on a tenth, several times; only those that were not shown are asked.
    random, how_often = np.random.default_rng(3), [[] for _ in exam.labels]
    for draw in range(DRAWS):
        shown = np.sort(random.permutation(suspects)[: len(suspects) // 10])
        others = np.setdiff1d(suspects, shown)
        again = relearned_plainly(exam, shown.tolist(), others.tolist(), len(shown), 4 + draw)
        for row, found in zip(others, again, strict=True):
            how_often[row].append(found)
    means = [np.mean(found) for found in how_often if found]
    assert table.loc["relearned_tenth", "value"] == pytest.approx(np.mean(means))
    assert table.loc["relearned_tenth", "examples"] == len(means)
    for name, value in exam.model.model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert not exam.model.model.training


def test_what_probes_read_is_what_single_probes_read_in_the_best_layer() -> None:
    exam = make_exam()
    states = pooled_states(exam.model, exam.train)[1:]
    best: list[float] = []
    for layer in states:
        right = []
        for number, split in enumerate(hold_out(exam.noisy, 3)):
            plain = probe_plainly(
                layer, exam.labels, 3, split.train, split.validation,
                initial_weights(number, layer.shape[1], 16, 3),
                epoch_batches(number, len(split.train), PROBING),
                masks=dropout_masks(number, PROBING.dropout), macro=True, first_epoch=5,
                learning_rate=PROBING.learning_rate,
            )  # fmt: skip
            right += (plain.predicted == exam.labels)[split.test].tolist()
        best.append(float(np.mean(right)))
    found = best_reading(states, exam.labels, exam.noisy, PROBING, 3)
    assert len(found) == exam.noisy.sum()
    assert found.mean() == pytest.approx(max(best), abs=1 / exam.noisy.sum())
    assert max(best) > min(best)


def test_every_suspect_is_held_out_once_and_no_kept_example_ever() -> None:
    noisy = np.arange(57) % 4 == 0
    splits = hold_out(noisy, 1)
    assert len(splits) == FOLDS
    tested = np.concatenate([split.test for split in splits])
    assert sorted(tested) == np.flatnonzero(noisy).tolist()
    for split in splits:
        parts = [*split.train, *split.validation, *split.test]
        assert sorted(parts) == list(range(57))
        assert len(split.validation) == (57 - len(split.test)) // 10


@pytest.mark.parametrize(("strength", "low", "high"), [(0.0, 0.0, 0.6), (3.0, 0.9, 1.0)])
def test_a_probe_reads_what_is_in_the_states(strength: float, low: float, high: float) -> None:
    random = np.random.default_rng(0)
    true = random.integers(0, 3, 200)
    noisy = np.arange(200) % 5 == 0
    labels = np.where(noisy, (true + random.integers(1, 3, 200)) % 3, true)
    means = random.standard_normal((3, 16))
    # Kept examples show their class; suspects their true one, or the label in the data.
    shown = np.where(noisy & (strength > 0), labels, true)
    states = torch.from_numpy(3 * means[shown] + random.standard_normal((2, 200, 16))).float()
    found = best_reading(states, labels, noisy, PROBING.replace(fitted_at=0.5), 0)
    assert len(found) == 40
    assert low <= found.mean() <= high


def test_what_cannot_be_known_is_missing_and_never_0() -> None:
    exam = make_exam()
    states = pooled_states(exam.model, exam.train)[1:]
    # Nothing is learned at such a rate, so that no probe fits.
    hopeless = PROBING.replace(learning_rate=1e-9, fitted_at=0.9)
    assert len(best_reading(states, exam.labels, exam.noisy, hopeless, 3)) == 0
    few = make_exam(noisy=np.arange(60) < 9)
    table = pd.DataFrame(few.take()).set_index("measure")
    assert table.loc["probe", ["value", "low", "high"]].isna().all()
    assert table.loc["probe", "examples"] == 0
    lonely = make_exam(noisy=np.arange(60) < 1, true_labels=None)
    table = pd.DataFrame(lonely.take()).set_index("measure")
    assert "true_accuracy" not in table.index
    assert np.isnan(table.loc["relearned_tenth", "value"])
    assert np.isnan(table.loc["given", "low"])  # one example has no interval
    assert table.loc["given", "value"] in (0, 1)


def test_a_head_that_reads_no_single_position_has_no_states_to_probe() -> None:
    exam = make_exam(architecture="t5")
    exam.model.pooling = "other"
    assert len(exam.probe()) == 0


def test_without_validation_examples_their_accuracy_is_missing() -> None:
    exam = make_exam()
    nothing = {"validation": Encoded([], exam.train.pad_id), "validation_labels": np.empty(0)}
    table = pd.DataFrame(replace(exam, **nothing).take()).set_index("measure")
    assert np.isnan(table.loc["validation_accuracy", "value"])
