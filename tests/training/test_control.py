"""The control setup: what a task may change, and how often it is tried."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
import torch

from memloc.config import Control, Tail, Training
from memloc.data.encode import Encoded
from memloc.models.blocks import BlockModel
from memloc.training.learners import AuxiliaryTask, hidden_task
from memloc.training.loop import (
    Attempt,
    Objective,
    Trained,
    TrainingFailed,
    fine_tune,
    train_until_learned,
)
from tests.oracles.control import train_two_tasks_plainly
from tests.tiny_models import each, tiny_blocks, tiny_model
from tests.training.test_loop import data

TRAINING = Training(epochs=2, learning_rate=3e-3, batch_size=8)
AUXILIARY = Training(epochs=2, learning_rate=1e-3, batch_size=8)
CLASSES = 4
"""Of the auxiliary task; the main one has three."""


def auxiliary_of(
    model: BlockModel, architecture: str, encoded: Encoded, **changes
) -> AuxiliaryTask:
    donor = tiny_blocks(architecture, model.n_layers, 9, labels=CLASSES, **changes)
    return AuxiliaryTask(model, donor, encoded)


def auxiliary_labels(n: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(3).integers(0, CLASSES, n))


def train_control(
    architecture: str = "bert",
    layers: tuple[int, ...] = (2, 3),
    seed: int = 1,
    with_auxiliary: bool = True,
    tail: Tail = "head",
    **changes,
) -> tuple[BlockModel, dict[str, torch.Tensor], Trained]:
    """A trained model, its parameters before training, and what training says."""
    train, validation, targets = data()
    model = tiny_blocks(architecture, 4, **changes)
    before = {n: p.detach().clone() for n, p in model.model.named_parameters()}
    learner = hidden_task(model, train, validation, layers, tail)
    beside = []
    if with_auxiliary:
        task = auxiliary_of(model, architecture, validation, **changes)
        beside = [Objective(task, auxiliary_labels(len(validation)), AUXILIARY)]
    return model, before, fine_tune(learner, targets, TRAINING, seed, beside=beside)


def changed_layers(model: BlockModel, before: dict[str, torch.Tensor]) -> dict[str, bool]:
    after = dict(model.model.named_parameters())
    groups = {f"layer {i}": names for i, names in enumerate(model.groups.blocks, start=1)}
    rest = set(model.groups.tail) - set(model.groups.head)
    groups |= {"embeddings": model.groups.embeddings, "head": model.groups.head}
    groups |= {"shared tail": tuple(rest)} if rest else {}
    return {
        group: any(not torch.equal(after[name], before[name]) for name in names)
        for group, names in groups.items()
    }


@pytest.mark.parametrize("architecture", each("bert", "distilbert", "roberta", "opt", "llama"))
@pytest.mark.parametrize("layers", [(2, 3), (4,), ()])
def test_without_the_auxiliary_task_all_but_the_chosen_layers_are_bit_identical(
    architecture: str, layers: tuple[int, ...]
) -> None:
    model, before, _ = train_control(architecture, layers, with_auxiliary=False)
    changed = changed_layers(model, before)
    assert changed.pop("head")
    assert {name for name, is_other in changed.items() if is_other} == {
        f"layer {layer}" for layer in layers
    }


@pytest.mark.parametrize("architecture", ["bert", "llama"])
def test_pooler_and_norm_are_open_to_the_main_task_if_the_setting_says_so(
    architecture: str,
) -> None:
    model, before, _ = train_control(architecture, (2,), with_auxiliary=False, tail="all")
    changed = changed_layers(model, before)
    assert {name for name, is_other in changed.items() if is_other} == {
        *("layer 2", "head", "shared tail"),
    }


@pytest.mark.parametrize("architecture", each("bert", "distilbert", "roberta", "opt", "llama"))
def test_with_the_auxiliary_task_everything_but_the_embeddings_changes(architecture: str) -> None:
    model, before, trained = train_control(architecture)
    changed = changed_layers(model, before)
    assert not changed.pop("embeddings")
    assert all(changed.values()), changed
    # The second head is no part of the model, before, during and after.
    assert before.keys() == dict(model.model.named_parameters()).keys()
    assert trained.final.keys() == before.keys() - set(model.groups.embeddings)


@pytest.mark.parametrize("layers", [(1, 2), ()])
def test_it_equals_two_optimisers_on_a_plain_model_with_two_heads(layers: tuple[int, ...]) -> None:
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    plain = copy.deepcopy(tiny_model("bert", layers=4, **off))
    donor = tiny_model("bert", layers=4, labels=CLASSES, seed=9, **off)
    train, validation, targets = data()
    tasks = {
        "main": (train, torch.from_numpy(targets.labels)),
        "auxiliary": (validation, auxiliary_labels(len(validation))),
    }
    taken: list[tuple[str, dict[str, torch.Tensor], torch.Tensor]] = []
    step = Objective.step

    def noting(objective: Objective, indices: np.ndarray) -> torch.Tensor:
        name = "auxiliary" if isinstance(objective.learner, AuxiliaryTask) else "main"
        inputs, labels = tasks[name]
        taken.append((name, inputs.batch(indices.tolist()), labels[torch.from_numpy(indices)]))
        return step(objective, indices)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Objective, "step", noting)
        _, _, trained = train_control(layers=layers, **off)
    expected = train_two_tasks_plainly(
        plain, donor.classifier, "bert.encoder.layer", layers, taken,
        {"main": TRAINING.learning_rate, "auxiliary": AUXILIARY.learning_rate},
    )  # fmt: skip
    assert {name for name, _, _ in taken} == {"main", "auxiliary"}
    for name, value in trained.final.items():
        # The bias of keys cancels in the softmax: its gradient is mere rounding.
        if not name.endswith("key.bias"):
            # Sums in another order; AdamW divides by roots of tiny second moments.
            torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=5e-5)


@pytest.mark.parametrize(
    "architecture", each("bert", "distilbert", "roberta", "electra", "opt", "llama", "gpt2")
)
def test_a_second_head_answers_for_its_task_and_leaves_the_model_as_it_was(
    architecture: str,
) -> None:
    train, _, _ = data()
    model = tiny_blocks(architecture, 4)
    batch = train.batch(range(4))
    before = model.logits(batch)
    task = auxiliary_of(model, architecture, train)
    with pytest.raises(RuntimeError, match="stop"), task.in_place():
        assert model.logits(batch).shape == (4, CLASSES)
        raise RuntimeError("stop")
    assert torch.equal(model.logits(batch), before)


def attempts_of(results: dict[float, float | None]) -> tuple[float, list[Attempt]]:
    """Train with known results by learning rate; None fails."""

    def train(rate: float) -> Trained:
        accuracy = results[rate]
        if accuracy is None:
            raise TrainingFailed(f"the loss became nan at {rate}")
        rows = [(1, "train", 0.2), (2, "train", accuracy), (2, "validation", 0.1)]
        history = pd.DataFrame(rows, columns=["epoch", "split", "accuracy"])
        return Trained({}, None, None, history)

    trained, chosen, attempts = train_until_learned(train, 1.0, Control(attempts=len(results)))
    assert chosen.accuracy == trained.accuracy
    return chosen.accuracy, attempts


def test_training_is_repeated_at_a_higher_rate_until_the_task_is_learned() -> None:
    reached, attempts = attempts_of({1.0: 0.8, 2.0: 0.99, 4.0: 0.995, 8.0: 1.0})
    assert reached == 0.995  # .99 is not above .99
    assert [one.learning_rate for one in attempts] == [1.0, 2.0, 4.0]
    reached, attempts = attempts_of({1.0: 0.8, 2.0: 0.9, 4.0: 0.7})
    assert reached == 0.9  # the best, if none is good enough
    assert len(attempts) == 3


def test_an_attempt_that_diverges_ends_the_search_and_is_recorded() -> None:
    reached, attempts = attempts_of({1.0: 0.8, 2.0: None, 4.0: 1.0})
    assert reached == 0.8
    assert np.isnan(attempts[-1].accuracy)
    assert "nan at 2.0" in str(attempts[-1].failure)
    with pytest.raises(TrainingFailed, match="nan"):
        attempts_of({1.0: None})
