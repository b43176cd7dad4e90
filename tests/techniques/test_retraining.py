"""Retraining: every step has the loss of the authors' recipe, and only what should learn learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from memloc.analysis.windows import Window, all_windows
from memloc.config import Training, Unit, Windows
from memloc.data.encode import training_batches
from memloc.models.states import predict_logits
from memloc.techniques.base import Circumstances, Context, TechniqueFailed
from memloc.techniques.retraining import Retraining, divide
from memloc.training.learners import tail_parameters
from memloc.training.loop import Objective
from tests.oracles.retraining import retrain_window_plainly
from tests.tiny_models import FIVE, each, prefix_of, tiny_blocks, tiny_context, tiny_tokenizer

NO_DROPOUT: dict[str, Any] = {
    "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "opt": {"dropout": 0.0, "attention_dropout": 0.0},
    "gpt_neo": {"resid_dropout": 0.0, "embed_dropout": 0.0, "attention_dropout": 0.0},
}
# Random models of 12 layers magnify the rounding of a step by orders of magnitude, and the more so
# the larger the step is: small steps keep the comparison about what is computed.
TRAINING = Training(learning_rate=5e-4, batch_size=4, epochs=2)
TWICE = Retraining(epochs=2)


def make_context(
    architecture: str, layers: int = 3, unit: Unit = "layer", n: int = 30, **changes: Any
) -> Context:
    return tiny_context(
        architecture, layers, ("memorised", "pretrained"), n, changes,
        training=TRAINING, windows=Windows(unit=unit),
    )  # fmt: skip


def assert_plain(context: Context, windows: list[Window], technique: Retraining = TWICE) -> None:
    """Losses and predictions are those of the plain recipe; the model is left as it was."""
    memorised, pretrained = context.model("memorised"), context.model("pretrained")
    before = {name: value.clone() for name, value in memorised.model.state_dict().items()}
    text, label, noisy = context.columns("text", "label", "noisy")
    train, evaluated = divide(noisy, seed=3)
    final = set()
    for window in windows:
        found = technique.window(context, window, lambda _: None)
        order, lengths = np.random.default_rng(3), context.encoded.lengths[train]
        orders = [[b.tolist() for b in training_batches(lengths, 4, order)] for _ in range(2)]
        losses, predicted = retrain_window_plainly(
            memorised.model, pretrained.model, prefix_of(memorised), tuple(window),
            tiny_tokenizer(), text.tolist(), label.tolist(), train.tolist(),
            evaluated[: noisy.sum()].tolist(), evaluated[noisy.sum() :].tolist(),
            tail_parameters(memorised, "norm+head"), orders,
            technique.config.learning_rate or TRAINING.learning_rate,
            unit=context.windows.unit,
        )  # fmt: skip
        epochs = np.reshape(losses, (2, -1)).mean(axis=1)
        np.testing.assert_allclose(found["losses"]["loss"], epochs, rtol=1e-4)
        assert found["predictions"]["predicted"].tolist() == predicted
        final.add(tuple(predicted))
    assert len(final) == 1 or len(windows) > 1
    for name, value in memorised.model.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("architecture", each(*FIVE))
def test_every_epoch_has_the_losses_of_the_authors_recipe(architecture: str) -> None:
    context = make_context(architecture, 2, **NO_DROPOUT.get(architecture, {}))
    assert_plain(context, list(all_windows(2)))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", FIVE)
def test_twelve_layers_have_the_losses_of_the_authors_recipe(architecture: str) -> None:
    context = make_context(architecture, 12, **NO_DROPOUT.get(architecture, {}))
    assert_plain(context, [Window(1, 1), Window(5, 7), Window(12, 12), Window(1, 12)])


def test_the_weights_of_a_window_answer_as_the_plain_recipe_on_the_same_examples() -> None:
    context = make_context("bert", 3, **NO_DROPOUT["bert"])
    memorised, pretrained = context.model("memorised"), context.model("pretrained")
    text, label, noisy = context.columns("text", "label", "noisy")
    kept, suspects = np.flatnonzero(~noisy), np.flatnonzero(noisy)
    found = TWICE.weights(context, Window(1, 2), kept, lambda _: None)
    order, lengths = np.random.default_rng(3), context.encoded.lengths[kept]
    _, expected = retrain_window_plainly(
        memorised.model, pretrained.model, prefix_of(memorised), (1, 2), tiny_tokenizer(),
        text.tolist(), label.tolist(), kept.tolist(), suspects.tolist(), kept.tolist(),
        tail_parameters(memorised, "norm+head"),
        [[b.tolist() for b in training_batches(lengths, 4, order)] for _ in range(2)],
        TRAINING.learning_rate,
    )  # fmt: skip
    before = predict_logits(memorised, context.encoded).argmax(axis=1)
    with memorised.preserved(found), torch.no_grad():
        parameters = dict(memorised.model.named_parameters())
        for name, value in found.items():
            parameters[name].copy_(value)
        answers = predict_logits(memorised, context.encoded).argmax(axis=1)
    assert answers[[*suspects, *kept]].tolist() == expected
    assert (answers != before).any()
    outside = {name for name, _ in memorised.model.named_parameters() if ".layer.2." in name}
    assert not outside & found.keys()


def test_windows_learn_at_a_rate_of_their_own() -> None:
    context = make_context("bert", 2, **NO_DROPOUT["bert"])
    assert_plain(context, [Window(1, 1)], Retraining(epochs=2, learning_rate=2e-3))


@pytest.mark.parametrize(
    ("model", "given", "rate"),
    [
        *((name, None, 3e-5) for name in ("bert", "facebook/opt-125m", "pythia-160m")),
        ("opt-1.3b", None, 7e-4),  # the authors did not retrain it
        ("minilm", None, 7e-4),
        ("somebody/bert", None, 7e-4),
        ("bert", 1e-4, 1e-4),
    ],
)
def test_a_rate_that_was_left_open_is_the_authors_or_that_of_the_fine_tuning(
    model: str, given: float | None, rate: float
) -> None:
    open_rate = Retraining(epochs=3, learning_rate=given)
    found = open_rate.suited_to(model, Training(learning_rate=7e-4))
    assert found == Retraining(epochs=3, learning_rate=rate)


@pytest.mark.parametrize("unit", ["attention", "mlp"])
def test_a_part_of_layers_has_the_losses_of_the_plain_recipe(unit: Unit) -> None:
    assert_plain(make_context("bert", 3, unit, **NO_DROPOUT["bert"]), [Window(2, 2), Window(1, 3)])


def test_a_model_that_cannot_resume_takes_whole_passes_with_the_same_losses() -> None:
    context = make_context("t5", n=24)
    assert not context.model("memorised").can_resume
    assert_plain(context, [Window(2, 3)])


@pytest.mark.parametrize(
    ("architecture", "which", "expected"),
    [
        ("bert", "norm+head", {"classifier.weight", "classifier.bias"}),
        ("bert", "all", {"classifier.weight", "classifier.bias", "bert.pooler.dense.weight",
                         "bert.pooler.dense.bias"}),
        ("llama", "norm+head", {"score.weight", "model.norm.weight"}),
        ("llama", "head", {"score.weight"}),
    ],
)  # fmt: skip
def test_the_tail_learns_as_the_setting_says(architecture: str, which, expected: set) -> None:
    assert set(tail_parameters(tiny_blocks(architecture), which)) == expected


@pytest.mark.parametrize("frozen_dropout", [True, False])
def test_only_the_window_and_the_tail_learn_and_dropout_acts_as_the_setting_says(
    frozen_dropout: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context("opt")
    seen: list[tuple[set[str], set[str]]] = []
    step = Objective.step

    def watch(objective: Objective, indices: np.ndarray) -> torch.Tensor:
        model = objective.learner.model.model
        active = {name for name, module in model.named_modules() if module.training}
        seen.append((set(objective.learner.trainable()), active))
        assert {n for n, p in model.named_parameters() if p.requires_grad} == seen[-1][0]
        return step(objective, indices)

    monkeypatch.setattr(Objective, "step", watch)
    Retraining(epochs=1, frozen_dropout=frozen_dropout).window(
        context, Window(2, 2), lambda _: None
    )
    learns, active = seen[0]
    layer = "model.decoder.layers.1."
    assert {name for name in learns if not name.startswith(layer)} == {
        "score.weight",
        "model.decoder.final_layer_norm.weight",
        "model.decoder.final_layer_norm.bias",
    }
    assert len(learns) > 10
    inside = {name for name in active if name.startswith("model.")}
    assert (inside == {name for name in inside if f"{name}.".startswith(layer)}) != frozen_dropout


def test_windows_computed_apart_and_in_any_order_give_the_same_result() -> None:
    together = TWICE.localise(make_context("gpt2", 2))
    windows = list(all_windows(2))
    parts = {}
    for window in reversed(windows):  # a fresh process each, so to speak
        parts[window] = TWICE.window(make_context("gpt2", 2), window, lambda _: None)
    apart = TWICE.combine(make_context("gpt2", 2), windows, [parts[w] for w in windows])
    # The states below a window may have come from another batch: losses are equal up to rounding.
    for name, table in together.items():
        tolerance = 1e-4 if name == "retraining" else 0.0
        pd.testing.assert_frame_equal(table, apart[name], rtol=tolerance)


def test_held_out_examples_are_clean_as_many_as_noisy_and_not_learned_from() -> None:
    noisy = np.arange(50) % 5 == 0
    train, evaluated = divide(noisy, 1)
    assert evaluated[:10].tolist() == np.flatnonzero(noisy).tolist()
    assert not noisy[evaluated[10:]].any()
    assert sorted([*train, *evaluated]) == list(range(50))
    with pytest.raises(TechniqueFailed, match="10 clean and 40 noisy"):
        divide(~noisy, 1)
    few = Circumstances(pd.DataFrame({"noisy": ~noisy}))
    assert "10 clean and 40 noisy" in str(Retraining().obstacle(few))


def test_a_window_whose_loss_is_not_a_number_leaves_the_others_standing() -> None:
    context = make_context("bert")
    # Layer 2 of θ_P is broken: every window that contains it fails, and so does the full one.
    with torch.no_grad():
        next(context.model("pretrained").block(2).parameters()).fill_(float("nan"))
    windows = list(all_windows(3))
    parts = [TWICE.window(context, window, lambda _: None) for window in windows]
    failed = [window for window, part in zip(windows, parts, strict=True) if "failure" in part]
    assert failed == [window for window in windows if 2 in window.layers]
    assert "the loss became nan in epoch 1" in parts[1]["failure"]["reason"].iloc[0]
    with pytest.raises(TechniqueFailed, match="4 of 6 windows could not be retrained, the full"):
        TWICE.combine(context, windows, parts)
    sound = TWICE.window(make_context("bert"), Window(1, 3), lambda _: None)
    result = TWICE.combine(context, windows, [*parts[:-1], sound])
    assert len(result["windows"]) == 3
    assert result["failures"]["first_layer"].tolist() == [2, 1, 2]
    assert np.isfinite(result["layers"]["weight"]).all()
