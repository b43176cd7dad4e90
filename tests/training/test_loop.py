from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import f1_score

from memloc.config import Tail, Training
from memloc.data.encode import Encoded, training_batches
from memloc.models.states import predict_logits
from memloc.training.learners import Learner, TailOnly
from memloc.training.loop import (
    Objective,
    TrainingData,
    TrainingFailed,
    fine_tune,
    macro_f1,
    settling,
)
from tests.conftest import labelled_rows
from tests.tiny_models import each, encoded, tiny_blocks

QUICK = Training(epochs=3, learning_rate=3e-3, batch_size=8)


def data(n: int = 40, held_out: int = 20) -> tuple[Encoded, Encoded, TrainingData]:
    rows, validation = labelled_rows(n), labelled_rows(held_out, seed=1)
    noisy = (rows["label"] != rows["original_label"]).to_numpy()
    targets = TrainingData(
        rows["label"].to_numpy(copy=True), noisy, validation["original_label"].to_numpy(copy=True)
    )
    return encoded(rows), encoded(validation), targets


def learner(kind: type = Learner, architecture: str = "bert", seed: int = 0, **changes):
    train, validation, targets = data()
    return kind(tiny_blocks(architecture, 3, seed, **changes), train, validation), targets


def weights_equal(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_the_same_seed_gives_bit_identical_weights_and_another_does_not() -> None:
    results = []
    for number, seed in enumerate((1, 1, 2)):
        torch.manual_seed(number)  # the state of the global generator does not matter
        results.append(fine_tune(*learner(), QUICK, seed))
        found = torch.rand(3)
        torch.manual_seed(number)
        assert torch.equal(torch.rand(3), found)  # and is left alone
    assert weights_equal(results[0].final, results[1].final)
    pd.testing.assert_frame_equal(results[0].history, results[1].history)
    assert not weights_equal(results[0].final, results[2].final)


def test_embeddings_do_not_change_and_everything_else_does() -> None:
    whole, targets = learner()
    before = {k: v.detach().clone() for k, v in whole.model.model.named_parameters()}
    result = fine_tune(whole, targets, QUICK, 1)
    embeddings = set(whole.model.groups.embeddings)
    assert set(result.final) == set(before) - embeddings
    for name, parameter in whole.model.model.named_parameters():
        assert torch.equal(parameter, before[name]) == (name in embeddings), name
        assert parameter.requires_grad


def test_only_the_head_of_the_frozen_model_changes() -> None:
    head, targets = learner(TailOnly)
    before = {k: v.detach().clone() for k, v in head.model.model.named_parameters()}
    result = fine_tune(head, targets, QUICK, 1)
    assert set(result.final) == set(head.model.groups.head)
    for name, parameter in head.model.model.named_parameters():
        assert torch.equal(parameter, before[name]) == (name not in result.final), name


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize(
    ("architecture", "tail", "expected"),
    [
        ("bert", "norm+head", "classifier.weight classifier.bias"),
        ("bert", "all", "bert.pooler.dense.weight bert.pooler.dense.bias classifier.weight "
                        "classifier.bias"),
        ("llama", "all", "model.norm.weight score.weight"),
    ],
)  # fmt: skip
def test_more_of_the_tail_of_the_frozen_model_may_learn_with_dropout_in_its_layers(
    architecture: str, tail: Tail, expected: str, dropout: bool
) -> None:
    train, validation, targets = data()
    chance = {"attention_dropout": 0.3} if architecture == "llama" else {}
    model = tiny_blocks(architecture, 2, **chance)
    before = {k: v.detach().clone() for k, v in model.model.named_parameters()}
    one = TailOnly(model, train, validation, tail, dropout)
    rows = np.arange(4)
    with one.training_mode(), torch.no_grad():
        twice = [one.logits(rows) for _ in range(2)]
    head_dropout = architecture == "bert"
    assert torch.equal(*twice) == (not dropout and not head_dropout)
    result = fine_tune(one, targets, QUICK, 1)
    assert set(result.final) == set(expected.split())
    for name, parameter in model.model.named_parameters():
        assert torch.equal(parameter, before[name]) == (name not in result.final), name
    # Evaluation has no dropout, so it may use the stored states.
    fast, slow = one.evaluate("float32"), predict_logits(model, train)
    np.testing.assert_allclose(fast, slow, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("architecture", each("bert", "roberta", "distilbert", "opt", "llama"))
def test_training_the_head_on_stored_states_equals_whole_passes(architecture: str) -> None:
    # Rounding differs, because the tail sees one token instead of a padded batch of many.
    fast, targets = learner(TailOnly, architecture)
    slow, _ = learner(TailOnly, architecture)
    assert fast.cached
    slow.cached, slow.forward = False, slow.whole_pass
    results = [fine_tune(one, targets, QUICK, 1) for one in (fast, slow)]
    for name, value in results[0].final.items():
        torch.testing.assert_close(value, results[1].final[name], rtol=1e-3, atol=1e-5)
    for column in ("loss", "accuracy"):
        np.testing.assert_allclose(
            results[0].history[column], results[1].history[column], rtol=1e-4, atol=1e-5
        )


def test_a_mean_pooling_model_trains_its_head_by_whole_passes() -> None:
    head, targets = learner(TailOnly, "modernbert", classifier_pooling="mean")
    assert not head.cached
    result = fine_tune(head, targets, QUICK, 1)
    assert set(result.final) == set(head.model.groups.head)


def test_accumulated_gradients_equal_one_large_batch() -> None:
    # Without dropout the only difference is the order of summation.
    results = []
    for micro in (None, 3):
        one, targets = learner(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        config = QUICK.replace(micro_batch_size=micro)
        results.append(fine_tune(one, targets, config, 1))
    losses = [result.history["loss"].to_numpy() for result in results]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)


def test_the_first_epoch_near_the_ceiling_is_kept() -> None:
    one, targets = learner()
    result = fine_tune(one, targets, QUICK.replace(epochs=6, memorised_at=0.45), 1)
    train = result.history[result.history["split"] == "train"]
    passed = train.loc[train["accuracy"] > 0.45, "epoch"]
    assert result.memorised_epoch == passed.iloc[0] < 6
    assert result.memorised_at is not None
    assert not weights_equal(result.memorised_at, result.final)
    never = fine_tune(*learner(), QUICK.replace(epochs=1), 1)
    assert never.memorised_epoch is None
    assert never.memorised_at is None


def test_every_epoch_records_all_splits() -> None:
    one, targets = learner()
    history = fine_tune(one, targets, QUICK, 1).history
    assert history.columns.tolist() == ["epoch", "split", "loss", "accuracy", "macro_f1"]
    assert set(history["split"]) == {"train", "noisy", "clean", "validation"}
    last = history[history["epoch"] == 3].set_index("split")["accuracy"]
    share = targets.noisy.mean()
    assert last["train"] == pytest.approx(share * last["noisy"] + (1 - share) * last["clean"])


def test_a_loss_that_is_not_a_number_stops_with_a_remedy() -> None:
    with pytest.raises(TrainingFailed, match=r"training.learning_rate .*; lower it"):
        fine_tune(*learner(), QUICK.replace(learning_rate=1e30, epochs=20), 1)


def test_bfloat16_trains_on_float32_weights() -> None:
    one, targets = learner()
    result = fine_tune(one, targets, QUICK.replace(dtype="bfloat16"), 1)
    assert {value.dtype for value in result.final.values()} == {torch.float32}
    assert np.isfinite(result.history["loss"]).all()


def test_training_batches_hold_every_example_once_with_little_padding() -> None:
    lengths = np.random.default_rng(0).integers(3, 60, 1003)
    batches = training_batches(lengths, 8, np.random.default_rng(1))
    assert sorted(np.concatenate(batches)) == list(range(1003))
    assert len(batches) == 126
    padded = sum(lengths[batch].max() * len(batch) for batch in batches)
    assert padded < 1.15 * lengths.sum()
    again = training_batches(lengths, 8, np.random.default_rng(2))
    assert [b.tolist() for b in again] != [b.tolist() for b in batches]


@pytest.mark.parametrize("seed", range(5))
def test_macro_f1_is_that_of_scikit_learn_bit_for_bit(seed: int) -> None:
    generator = np.random.default_rng(seed)
    # Few examples of many classes: some are missing in the labels, the predictions or both.
    n, classes = int(generator.integers(1, 60)), int(generator.integers(1, 12))
    labels, predicted = generator.integers(0, classes, (2, n))
    expected = f1_score(labels, predicted, average="macro", zero_division=0)
    assert macro_f1(labels, predicted) == expected


@pytest.mark.slow
def test_workers_do_not_wait_for_what_few_of_them_need() -> None:
    code = "import memloc.engine.compute, sys; print({'sklearn', 'scipy.stats'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


# --- training until the labels are learned ------------------------------------------------------

OPEN = Training(epochs="auto", learning_rate=3e-3, batch_size=8, memorised_at=0.6)


def rates_of(config: Training, **how: int) -> tuple[list[float], list[float], int | None]:
    """The learning rate of every step, training accuracy by epoch, and when the rate fell."""
    rates: list[float] = []
    step = Objective.step

    def noting(objective: Objective, indices: np.ndarray) -> torch.Tensor:
        rates.append(objective.optimizer.param_groups[0]["lr"] / config.learning_rate)
        return step(objective, indices)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Objective, "step", noting)
        result = fine_tune(*learner(), config, 1, **how)
    rows = result.history[result.history["split"] == "train"]
    return rates, rows["accuracy"].tolist(), result.settled_after


def rates_plainly(settled: int, per_epoch: int, rising: int) -> list[float]:
    """Up to the peak, level until an epoch has ended, then down to 0 in half as many."""
    falling = max(3, -(-settled // 2))
    found = []
    for step in range((settled + falling) * per_epoch):
        rate = min(1.0, step / rising)
        if step >= settled * per_epoch:
            rate *= 1 - (step - settled * per_epoch) / (falling * per_epoch)
        found.append(rate)
    return found


def test_an_open_training_ends_some_epochs_after_the_labels_are_learned() -> None:
    rates, accuracy, settled = rates_of(OPEN)
    learned = next(epoch for epoch, share in enumerate(accuracy, start=1) if share > 0.6)
    assert learned == settled > 1
    assert len(accuracy) == learned + settling(learned) < OPEN.most_epochs
    np.testing.assert_allclose(rates, rates_plainly(learned, 5, rising=7), atol=1e-6)


def test_a_twin_makes_as_many_steps_at_the_same_rates() -> None:
    rates, accuracy, settled = rates_of(OPEN)
    config = OPEN.replace(memorised_at=1.0)  # it would not learn them all by itself
    assert settled is not None
    twin, others, _ = rates_of(config, settle_after=settled)
    assert twin == rates
    assert len(others) == len(accuracy)


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_an_open_training_that_learns_nothing_ends_at_its_limit(most: int) -> None:
    config = OPEN.replace(memorised_at=1.0, most_epochs=most, learning_rate=1e-9)
    rates, accuracy, settled = rates_of(config)
    assert len(accuracy) == most
    assert 0 < rates[-1] < rates[-2]  # it still falls
    assert (settled or 0) + settling(settled or 0) >= most


def test_logits_of_all_training_examples_are_kept_after_every_epoch() -> None:
    one, targets = learner()
    result = fine_tune(one, targets, QUICK, 1)
    assert len(result.logits) == 3
    final = torch.from_numpy(predict_logits(one.model, one.train))
    assert result.logits[-1].dtype == torch.float16
    torch.testing.assert_close(result.logits[-1].float(), final, rtol=1e-3, atol=1e-3)
    rows = result.history[result.history["split"] == "train"]
    labels = torch.from_numpy(targets.labels)
    found = [float((logits.argmax(dim=1) == labels).double().mean()) for logits in result.logits]
    assert found == pytest.approx(rows["accuracy"].tolist())


def test_validation_is_evaluated_as_often_as_a_curve_needs() -> None:
    asked: list[str] = []
    one, targets = learner()
    for name in ("evaluate", "evaluate_validation"):
        plain = getattr(one, name)
        setattr(one, name, lambda dtype, n=name, f=plain: asked.append(n) or f(dtype))
    result = fine_tune(one, targets, QUICK.replace(epochs=20), 1)
    rows = result.history[result.history["split"] == "validation"]
    assert rows["epoch"].tolist() == [1, 4, 8, 12, 16, 20]
    assert (asked.count("evaluate"), asked.count("evaluate_validation")) == (20, 6)
