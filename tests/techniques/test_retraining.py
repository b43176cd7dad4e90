from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

from memloc.analysis.windows import Window, all_windows
from memloc.config import Training
from memloc.data.encode import TextCodec, encode, training_batches
from memloc.models.blocks import BlockModel
from memloc.models.states import StateCache
from memloc.techniques.base import Context, TechniqueFailed
from memloc.techniques.retraining import Retraining
from memloc.training.loop import TrainingFailed
from memloc.training.window_learner import WindowLearner, divide, retrain_window, tail_parameters
from tests.conftest import labelled_rows
from tests.oracles.retraining import retrain_window_plainly
from tests.tiny_models import tiny_model, tiny_tokenizer

FIVE = ("bert", "opt", "gpt_neox", "gpt_neo", "llama")
NO_DROPOUT = {
    "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "opt": {"dropout": 0.0, "attention_dropout": 0.0},
    "gpt_neo": {"resid_dropout": 0.0, "embed_dropout": 0.0, "attention_dropout": 0.0},
}
# Random models of 12 layers magnify the rounding of a step by orders of magnitude, and the more so
# the larger the step is: small steps keep the comparison about what is computed.
TWICE = Retraining(epochs=2)
TRAINING = Training(learning_rate=5e-4, batch_size=4, epochs=2)


def examples(n: int) -> pd.DataFrame:
    rows = labelled_rows(n)
    rows["noisy"] = rows["label"] != rows["original_label"]
    rows["example"] = np.arange(n) + 100
    return rows


def make_context(architecture: str, layers: int, n: int = 30) -> Context:
    rows = examples(n)
    encoded = encode(rows, TextCodec(tiny_tokenizer(), "|", 0, 128))
    models = {
        role: BlockModel(tiny_model(architecture, layers=layers, seed=seed))
        for seed, role in enumerate(("memorised", "pretrained"))
    }
    return Context.of(rows, encoded, models, seed=3, training=TRAINING)


def windows_to_try(layers: int) -> list[Window]:
    if layers == 2:
        return list(all_windows(2))
    return [Window(1, 1), Window(5, 7), Window(12, 12), Window(1, 12)]


@pytest.mark.parametrize(("architecture", "layers"), list(product(FIVE, (2, 12))))
def test_every_step_has_the_loss_of_the_authors_recipe(architecture: str, layers: int) -> None:
    rows = examples(30)
    texts, labels = rows["text"].tolist(), rows["label"].tolist()
    encoded = encode(rows, TextCodec(tiny_tokenizer(), "|", 0, 128))
    parts = divide(rows["noisy"].to_numpy(), seed=3)
    n_noisy = int(rows["noisy"].sum())
    changes = NO_DROPOUT.get(architecture, {})
    memorised, pretrained = (
        BlockModel(tiny_model(architecture, layers=layers, seed=seed, **changes)) for seed in (0, 1)
    )
    before = {k: v.clone() for k, v in memorised.model.state_dict().items()}
    prefix = f"{memorised.model.base_model_prefix}.{memorised.stack_path}"
    cache = StateCache(memorised, encoded, 2**30)
    final = set()
    for window in windows_to_try(layers):
        found = retrain_window(
            memorised, pretrained, encoded, torch.tensor(labels), parts, window, TRAINING,
            3, cache,
        )  # fmt: skip
        order = np.random.default_rng(3)
        lengths = encoded.lengths[parts.train]
        orders = [
            [batch.tolist() for batch in training_batches(lengths, 4, order)] for _ in range(2)
        ]
        losses, predicted = retrain_window_plainly(
            memorised.model, pretrained.model, prefix, tuple(window), tiny_tokenizer(), texts,
            labels, parts.train.tolist(), parts.evaluated[:n_noisy].tolist(),
            parts.evaluated[n_noisy:].tolist(), tail_parameters(memorised, "norm+head"), orders,
            TRAINING.learning_rate,
        )  # fmt: skip
        steps = [loss for epoch in found.losses for loss in epoch]
        np.testing.assert_allclose(steps, losses, rtol=1e-4)
        assert found.predicted.tolist() == predicted
        final.add(tuple(predicted))
    assert len(final) > 1
    for name, value in memorised.model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_model_that_cannot_resume_takes_whole_passes_with_the_same_losses() -> None:
    settings = {"layers_name": "num_layers", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4,
                "dropout_rate": 0.0, "decoder_start_token_id": 0}  # fmt: skip
    rows = examples(24)
    encoded = encode(rows, TextCodec(tiny_tokenizer(), "|", 0, 128))
    models = [
        BlockModel(tiny_model("t5", layers=3, seed=seed, **settings), blocks="encoder.block")
        for seed in (0, 1)
    ]
    assert not models[0].can_resume
    context = Context.of(
        rows, encoded, {"memorised": models[0], "pretrained": models[1]}, seed=3, training=TRAINING,
    )  # fmt: skip
    found = Retraining(epochs=1).window(context, Window(2, 3), lambda _: None)
    parts = divide(rows["noisy"].to_numpy(), seed=3)
    lengths = encoded.lengths[parts.train]
    batches = training_batches(lengths, 4, np.random.default_rng(3))
    n_noisy = int(rows["noisy"].sum())
    losses, predicted = retrain_window_plainly(
        models[0].model, models[1].model, "transformer.encoder.block", (2, 3), tiny_tokenizer(),
        rows["text"].tolist(), rows["label"].tolist(), parts.train.tolist(),
        parts.evaluated[:n_noisy].tolist(), parts.evaluated[n_noisy:].tolist(),
        tail_parameters(models[0], "norm+head"), [[b.tolist() for b in batches]],
        TRAINING.learning_rate,
    )  # fmt: skip
    assert found["losses"]["loss"].iloc[0] == pytest.approx(np.mean(losses), rel=1e-4)
    assert found["predictions"]["predicted"].tolist() == predicted


@pytest.mark.parametrize(
    ("architecture", "which", "expected"),
    [
        ("bert", "norm+head", {"classifier.weight", "classifier.bias"}),
        ("bert", "all", {"classifier.weight", "classifier.bias", "bert.pooler.dense.weight",
                         "bert.pooler.dense.bias"}),
        ("bert", "none", set()),
        ("llama", "norm+head", {"score.weight", "model.norm.weight"}),
        ("llama", "head", {"score.weight"}),
        ("gpt_neox", "norm+head", {"score.weight", "gpt_neox.final_layer_norm.weight",
                                   "gpt_neox.final_layer_norm.bias"}),
    ],
)  # fmt: skip
def test_the_tail_learns_as_the_setting_says(architecture: str, which, expected: set) -> None:
    assert set(tail_parameters(BlockModel(tiny_model(architecture)), which)) == expected


def changed_by_training(architecture: str, window: Window, frozen_dropout: bool) -> set[str]:
    context = make_context(architecture, 3)
    model = context.model("memorised")
    rows = divide(context.examples["noisy"].to_numpy(), 3)
    cache = None if frozen_dropout else StateCache(model, context.encoded, 2**30)
    learner = WindowLearner(
        model, context.encoded, rows.train, window, cache, frozen_dropout=frozen_dropout
    )
    before = {n: p.detach().clone() for n, p in model.model.named_parameters()}
    parameters = learner.trainable()
    with learner.training_mode():
        loss = learner.logits(np.arange(6)).square().sum()
        loss.backward()
    with torch.no_grad():
        for parameter in parameters.values():
            parameter -= 0.1 * parameter.grad
    closed = {n for n, p in model.model.named_parameters() if p.grad is not None} - set(parameters)
    assert not closed, "frozen parameters got a gradient"
    return {n for n, p in model.model.named_parameters() if not torch.equal(p, before[n])}


@pytest.mark.parametrize("frozen_dropout", [True, False])
def test_only_the_window_and_the_tail_get_gradients(frozen_dropout: bool) -> None:
    changed = changed_by_training("bert", Window(2, 2), frozen_dropout=frozen_dropout)
    outside = {name for name in changed if not name.startswith("bert.encoder.layer.1.")}
    assert outside == {"classifier.weight", "classifier.bias"}
    assert len(changed) > 10


def test_dropout_acts_in_the_window_alone_unless_asked_otherwise() -> None:
    def training_modules(frozen_dropout: bool) -> set[str]:
        context = make_context("opt", 3)
        model = context.model("memorised")
        rows = divide(context.examples["noisy"].to_numpy(), 3)
        learner = WindowLearner(
            model, context.encoded, rows.train, Window(2, 2), None, frozen_dropout=frozen_dropout
        )
        with learner.training_mode():
            return {name for name, module in model.model.named_modules() if module.training}

    inside = {name for name in training_modules(False) if name.startswith("model.")}
    assert inside
    assert all(name.startswith("model.decoder.layers.1") for name in inside)
    assert {"model.decoder.layers.0", "model.decoder.layers.2"} <= training_modules(True)


def test_one_result_from_all_windows_in_the_usual_tables() -> None:
    context = make_context("bert", 3)
    seen: list[float] = []
    result = TWICE.localise(context, seen.append)
    n_noisy = int(context.examples["noisy"].sum())
    assert len(result.windows) == 6
    assert len(result.predictions) == 6 * 2 * n_noisy
    assert len(result.examples) == n_noisy
    assert len(result.details["retraining"]) == 6 * 2
    assert "failures" not in result.details
    labels = context.examples.set_index("example")["label"]
    noisy = context.examples.set_index("example")["noisy"]
    for window in result.windows.itertuples():
        rows = result.predictions[
            (result.predictions["first_layer"] == window.first_layer)
            & (result.predictions["last_layer"] == window.last_layer)
        ].set_index("example")["predicted"]
        wrong = rows != labels[rows.index]
        assert window.noisy_error == pytest.approx(wrong[noisy[rows.index]].mean())
        assert window.clean_error == pytest.approx(wrong[~noisy[rows.index]].mean())
    assert seen[-1] == pytest.approx(1.0)


def test_windows_computed_apart_and_in_any_order_give_the_same_result() -> None:
    together = TWICE.localise(make_context("gpt2", 3), lambda _: None)
    windows = list(all_windows(3))
    parts = {}
    for window in reversed(windows):  # a fresh process each, so to speak
        parts[window] = TWICE.window(make_context("gpt2", 3), window, lambda _: None)
    apart = TWICE.combine(make_context("gpt2", 3), windows, [parts[w] for w in windows])
    for name, table in together.tables.items():
        if name != "retraining":
            pd.testing.assert_frame_equal(table, apart.tables[name])
    # The states below a window may have come from another batch: equal up to rounding.
    pd.testing.assert_frame_equal(
        together.details["retraining"], apart.details["retraining"], rtol=1e-4
    )


def test_held_out_examples_are_clean_as_many_as_noisy_and_not_learned_from() -> None:
    noisy = np.arange(50) % 5 == 0
    rows = divide(noisy, 1)
    assert rows.evaluated[:10].tolist() == np.flatnonzero(noisy).tolist()
    assert not noisy[rows.evaluated[10:]].any()
    assert len(rows.evaluated) == 20
    assert set(rows.train) | set(rows.evaluated) == set(range(50))
    assert not set(rows.train) & set(rows.evaluated)
    with pytest.raises(TrainingFailed, match="10 clean and 40 noisy"):
        divide(~noisy, 1)


def test_a_window_whose_loss_is_not_a_number_leaves_the_others_standing() -> None:
    context = make_context("bert", 3)
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
    sound = TWICE.window(make_context("bert", 3), Window(1, 3), lambda _: None)
    result = TWICE.combine(context, windows, [*parts[:-1], sound])
    assert len(result.windows) == 3
    assert result.details["failures"]["first_layer"].tolist() == [2, 1, 2]
    assert np.isfinite(result.layers["weight"]).all()


def test_a_model_whose_padding_leaks_into_real_tokens_is_not_cached() -> None:
    leaking = BlockModel(
        tiny_model(
            "nystromformer", hidden_size=32, num_attention_heads=4, intermediate_size=48,
            segment_means_seq_len=64, num_landmarks=64,
        )
    )  # fmt: skip
    assert leaking.can_resume
    assert not leaking.ignores_padding
    assert BlockModel(tiny_model("bert")).ignores_padding
