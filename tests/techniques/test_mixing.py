"""Shapley values and patching: techniques that mix two models in other ways than windows."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from memloc.analysis.windows import all_windows
from memloc.data.encode import TextCodec, encode
from memloc.models import mixing
from memloc.models.blocks import BlockModel
from memloc.models.mixing import predict_mixtures
from memloc.techniques import shapley as shapley_module
from memloc.techniques.base import Context, TechniqueFailed
from memloc.techniques.patching import Patching
from memloc.techniques.shapley import Shapley
from memloc.techniques.swapping import expected_block_passes, swap_all_windows
from tests.conftest import labelled_rows
from tests.oracles.patching import patched_prediction
from tests.oracles.swapping import mixed_state_dict
from tests.tiny_models import tiny_model, tiny_tokenizer


def make_context(architecture: str, layers: int, *, shared: bool = True, n: int = 30) -> Context:
    models = [tiny_model(architecture, layers=layers, seed=seed) for seed in (0, 1)]
    blocks = [BlockModel(model) for model in models]
    if shared:  # as after fine-tuning with frozen embeddings
        mine, theirs = (dict(model.named_parameters()) for model in models)
        with torch.no_grad():
            for name in blocks[0].groups.embeddings:
                theirs[name].copy_(mine[name])
    rows = labelled_rows(n)
    rows["noisy"] = rows["label"] != rows["original_label"]
    rows["example"] = np.arange(n) + 100
    encoded = encode(rows, TextCodec(tiny_tokenizer(), "|", 0, 128))
    return Context.of(rows, encoded, {"memorised": blocks[0], "original": blocks[1]})


@pytest.mark.parametrize("architecture", ["bert", "opt", "gpt_neo", "llama", "modernbert"])
def test_any_mixture_predicts_like_a_plain_mixed_model(architecture: str) -> None:
    context = make_context(architecture, 4)
    own, other = context.model("memorised"), context.model("original")
    sets = np.random.default_rng(0).random((9, 4)) < 0.5
    sets[3] = sets[5]  # twice the same
    found = predict_mixtures(own, other, context.encoded, sets)
    stack = f"{own.model.base_model_prefix}.{own.stack_path}"
    for mask, predicted in zip(sets, found.predicted, strict=True):
        chosen = (np.flatnonzero(mask) + 1).tolist()
        plain = copy.deepcopy(own.model)
        plain.load_state_dict(mixed_state_dict(own.model, other.model, stack, chosen))
        for row, text in enumerate(context.examples["text"]):
            with torch.no_grad():
                logits = plain(**tiny_tokenizer()([text], return_tensors="pt")).logits
            assert predicted[row] == int(logits.argmax())


def test_mixtures_share_the_layers_that_they_have_in_common() -> None:
    context = make_context("bert", 6)
    sets = np.zeros((3, 6), dtype=bool)
    sets[1, 5] = sets[2, 0] = True
    found = predict_mixtures(
        context.model("memorised"), context.model("original"), context.encoded, sets
    )
    # Five layers of the first two, then one each; six of the third.
    assert found.block_passes == (5 + 2 + 6) * found.batches


@pytest.mark.parametrize("limit", [1, 20_000, 100_000])
@pytest.mark.parametrize("architecture", ["bert", "gpt_neox"])
def test_mixtures_of_one_example_that_are_too_many_are_divided(
    architecture: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context(architecture, 6, n=12)
    own, other = context.model("memorised"), context.model("original")
    whole = swap_all_windows(own, other, context.encoded)
    held: list[int] = []
    advance = mixing._Lockstep._advance

    def watch(run: Any, states: torch.Tensor, chosen: Any, into: torch.Tensor, *more: Any) -> None:
        held.append(states.nbytes + into.nbytes)
        advance(run, states, chosen, into, *more)

    monkeypatch.setattr(mixing._Lockstep, "_advance", watch)
    monkeypatch.setattr(mixing, "STATE_BYTES", limit)
    divided = swap_all_windows(own, other, context.encoded)
    assert np.array_equal(divided.predicted, whole.predicted)
    assert np.array_equal(divided.unmodified, whole.unmodified)
    one_mixture = 2 * int(context.encoded.lengths.max()) * 32 * 4
    assert max(held) <= max(limit, one_mixture) + one_mixture
    assert divided.block_passes > whole.block_passes


def test_parts_of_all_windows_have_little_to_compute_twice() -> None:
    windows = all_windows(24)
    swapped = np.array([[layer in window.layers for layer in range(1, 25)] for window in windows])
    parts = mixing.divide(swapped, 10)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(windows)))
    assert {len(part) for part in parts} == {30}
    trees = [mixing._Tree.of(swapped[part]) for part in parts]
    passes = sum(len(rows) for tree in trees for rows in (*tree.stay, *tree.swap))
    assert passes < 1.1 * (expected_block_passes(24) - 24)


def test_shapley_values_are_those_of_all_mixtures_and_add_up() -> None:
    context = make_context("bert", 4)
    result = Shapley().localise(context, lambda _: None)
    noisy = context.examples["noisy"].to_numpy()
    labels = context.examples["label"].to_numpy()[noisy]
    full = predict_mixtures(
        context.model("memorised"), context.model("original"), context.encoded,
        np.array([[False] * 4, [True] * 4]),
    ).predicted[:, noisy]  # fmt: skip
    undone = (full != labels).mean(axis=1)
    table = result.details["shapley"]
    assert table["value"].sum() == pytest.approx(undone[1] - undone[0])
    assert (table["standard_error"] == 0).all()
    np.testing.assert_allclose(result.layers["weight"], table["value"].clip(lower=0))
    single = result.details["example_shapley"].groupby("example")["value"].sum()
    np.testing.assert_allclose(
        single.to_numpy(), (full[1] != labels).astype(int) - (full[0] != labels), atol=1e-12
    )
    assert single.index.tolist() == context.examples["example"][noisy].tolist()


def test_drawn_orders_agree_with_all_mixtures_within_their_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = make_context("bert", 4)
    exact = Shapley().localise(context, lambda _: None).details["shapley"]
    monkeypatch.setattr(shapley_module, "MOST_EXACT", 3)
    drawn = (
        Shapley(standard_error=0.005, orders=600)
        .localise(context, lambda _: None)
        .details["shapley"]
    )
    assert (drawn["orders"] > 0).all()
    assert drawn["standard_error"].max() <= 0.005
    assert drawn["value"].sum() == pytest.approx(exact["value"].sum())
    difference = (drawn["value"] - exact["value"]).abs()
    assert (difference <= 4 * drawn["standard_error"] + 1e-9).all()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("architecture", ["bert", "opt", "gpt_neo"])
def test_patching_is_what_hooks_on_whole_models_do(architecture: str, shared: bool) -> None:
    context = make_context(architecture, 3, shared=shared)
    result = Patching().localise(context, lambda _: None)
    noisy = context.examples[context.examples["noisy"]]
    own, other = (context.model(role) for role in ("memorised", "original"))
    stack = f"{own.model.base_model_prefix}.{own.stack_path}"
    table = result.details["patching"].set_index(["direction", "layer"])["flipped"]
    directions = {
        "restore": (own.model, other.model, "label", "original_label"),
        "implant": (other.model, own.model, "original_label", "label"),
    }
    for direction, (into, source, before, after) in directions.items():
        can = [
            row for row in noisy.to_dict("records")
            if patched_prediction(into, source, stack, tiny_tokenizer(), row["text"], 0)
            == row[before]
        ]  # fmt: skip
        assert can
        examples = result.details["example_patching"].query("direction == @direction")
        assert examples[examples["expected"]]["example"].tolist() == [r["example"] for r in can]
        first: dict[int, int] = {}
        for layer in (1, 2, 3):
            flips = [
                patched_prediction(into, source, stack, tiny_tokenizer(), row["text"], layer)
                == row[after]
                for row in can
            ]
            assert table[direction, layer] == pytest.approx(np.mean(flips))
            for row, flip in zip(can, flips, strict=True):
                if flip:
                    first.setdefault(row["example"], layer)
        known = examples.dropna(subset="first_layer")
        assert dict(zip(known["example"], known["first_layer"], strict=True)) == first
    gains = np.diff(table["restore"].to_numpy(), prepend=0)
    np.testing.assert_allclose(result.layers["weight"], np.maximum(gains, 0))


def test_models_that_cannot_be_patched_are_refused_in_words() -> None:
    settings = {"layers_name": "num_layers", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4}
    blocks = [
        BlockModel(
            tiny_model("t5", layers=2, seed=seed, decoder_start_token_id=0, **settings),
            blocks="encoder.block",
        )
        for seed in (0, 1)
    ]
    rows = labelled_rows(12)
    rows["noisy"] = rows["label"] != rows["original_label"]
    rows["example"] = np.arange(12)
    encoded = encode(rows, TextCodec(tiny_tokenizer(), "|", 0, 128))
    context = Context.of(rows, encoded, {"memorised": blocks[0], "original": blocks[1]})
    with pytest.raises(TechniqueFailed, match="share their embeddings"):
        Patching().localise(context, lambda _: None)
