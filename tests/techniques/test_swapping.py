"""Swapping, Shapley values and patching predict like plain models mixed from two."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from memloc.analysis.windows import all_windows
from memloc.config import Windows
from memloc.models import mixing
from memloc.models.mixing import Mixtures, predict_mixtures
from memloc.techniques.base import Context, TechniqueFailed
from memloc.techniques.patching import Patching
from memloc.techniques.shapley import Shapley
from memloc.techniques.swapping import Swapping, swap_windows
from tests.conftest import make_texts
from tests.oracles.patching import patched_prediction
from tests.oracles.swapping import mixed_state_dict, swap_all_windows_plainly, swap_plainly
from tests.tiny_models import (
    FIVE,
    each,
    encoded,
    prefix_of,
    tiny_context,
    tiny_tokenizer,
    two_blocks,
)

TOLERANCE = 2**-5
"""Of the largest logit. bfloat16 has 8 binary digits, so a logit is known to 2^-8 of its size.
Batches of another shape may be summed in another order, which now and then rounds a state to the
other side, and layers above may enlarge that: four times the rounding of two logits leaves room."""


def expected_block_passes(n_layers: int) -> int:
    """Block passes per batch, as derived in `memloc.models.mixing`."""
    return n_layers * (n_layers + 1) // 2 + n_layers * (n_layers**2 - 1) // 6 + n_layers


def swap(architecture: str, layers: int, texts: list[str], **changes: Any) -> tuple[Any, Mixtures]:
    models = two_blocks(architecture, layers, **changes)
    return models, swap_windows(*models, encoded(texts), all_windows(models[0].n_layers))


def assert_plain(models: Any, found: Mixtures, texts: list[Any]) -> None:
    own, other = (model.model for model in models)
    expected = swap_all_windows_plainly(own, other, prefix_of(models[0]), tiny_tokenizer(), texts)
    windows = [(0, 0), *map(tuple, all_windows(models[0].n_layers))]
    for window, predicted in zip(windows, found.predicted, strict=True):
        assert predicted.tolist() == expected[window]
    # Tiny random models still differ between windows, or the comparison would be empty.
    assert len({tuple(p) for p in expected.values()}) > 2


@pytest.mark.parametrize("architecture", each())
def test_all_windows_predict_like_plain_mixed_models(
    architecture: str, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A small limit cuts the stacked states into many parts.
    monkeypatch.setattr(mixing, "TOKENS_PER_PASS", {"cpu": 100})
    models, found = swap(architecture, 4, texts)
    assert_plain(models, found, texts)
    assert found.block_passes == expected_block_passes(4) * found.batches


@pytest.mark.slow
@pytest.mark.parametrize("architecture", FIVE)
def test_twelve_layers_predict_like_plain_mixed_models(architecture: str, texts: list[str]) -> None:
    assert expected_block_passes(12) == 364 + 12
    models, found = swap(architecture, 12, texts)
    assert_plain(models, found, texts)
    assert found.block_passes == expected_block_passes(12) * found.batches


def test_a_head_that_reads_several_positions_gets_whole_states(texts: list[str]) -> None:
    models, found = swap("modernbert", 3, texts, classifier_pooling="mean")
    assert models[0].pooling == "other"
    assert_plain(models, found, texts)


def test_a_model_that_cannot_resume_takes_the_slow_path_with_the_same_answer(
    texts: list[str],
) -> None:
    models, found = swap("t5", 3, texts)
    assert not models[0].can_resume
    assert_plain(models, found, texts)
    context = tiny_context("t5", 2, n=12)
    with pytest.raises(TechniqueFailed, match="share their embeddings"):
        Patching().localise(context)


def test_tables_say_what_the_windows_predict() -> None:
    context = replace(tiny_context("bert", 3), windows=Windows(clean="all"))
    result = Swapping().localise(context)
    own, other = context.model("memorised"), context.model("original")
    found = swap_windows(own, other, context.encoded, all_windows(own.n_layers)).predicted
    label, noisy, examples = context.columns("label", "noisy", "example")
    for row, predicted in zip(result["windows"].itertuples(), found[1:], strict=True):
        wrong = predicted != label
        assert row.noisy_error == pytest.approx(wrong[noisy].mean())
        assert row.clean_error == pytest.approx(wrong[~noisy].mean())
    assert result["predictions"]["predicted"].tolist() == found[1:].reshape(-1).tolist()
    assert result["examples"]["example"].tolist() == examples[noisy].tolist()
    assert result["examples"]["memorised"].tolist() == (found[0] == label)[noisy].tolist()


def test_as_many_clean_examples_as_noisy_ones_go_through_the_windows() -> None:
    context = tiny_context("bert", 3)
    every = Swapping().localise(replace(context, windows=Windows(clean="all")))
    some = Swapping().localise(context)
    (noisy, examples) = context.columns("noisy", "example")
    seen = {*some["predictions"]["example"]}
    assert seen >= {*examples[noisy]}
    assert len(seen - {*examples[noisy]}) == noisy.sum() < (~noisy).sum()
    # What they are answered with does not depend on who goes with them.
    pd.testing.assert_frame_equal(some["layers"], every["layers"])
    rows = every["predictions"]
    kept = rows[rows["example"].isin(seen)].reset_index(drop=True)
    pd.testing.assert_frame_equal(some["predictions"], kept)


@pytest.mark.parametrize("architecture", each("bert", "opt", "gpt_neox"))
def test_in_bfloat16_windows_predict_like_plain_models_in_bfloat16(architecture: str) -> None:
    texts = make_texts(8)
    models = two_blocks(architecture)
    found = swap_windows(
        *models, encoded(texts), all_windows(models[0].n_layers), "bfloat16"
    ).predicted
    windows = [(0, 0), *map(tuple, all_windows(3))]
    own, other = (model.model for model in models)
    expected = swap_plainly(
        own, other, prefix_of(models[0]), tiny_tokenizer(), texts, windows, dtype=torch.bfloat16
    )
    clear = total = 0
    for window, predicted in zip(windows, found, strict=True):
        logits = expected[window]
        best, second = logits.topk(2).values.T
        certain = best - second > TOLERANCE * logits.abs().amax(dim=1)
        assert torch.equal(torch.from_numpy(predicted)[certain], logits.argmax(dim=1)[certain])
        clear, total = clear + int(certain.sum()), total + len(certain)
    assert clear > 0.9 * total  # or the comparison would say little


# --- other mixtures than windows ----------------------------------------------------------------


def sharing_embeddings(architecture: str, layers: int) -> Context:
    """As after fine-tuning with frozen embeddings."""
    context = tiny_context(architecture, layers)
    own, other = context.model("memorised"), context.model("original")
    mine, theirs = (dict(model.model.named_parameters()) for model in (own, other))
    with torch.no_grad():
        for name in own.groups.embeddings:
            theirs[name].copy_(mine[name])
    return context


@pytest.mark.parametrize("architecture", each("bert", "opt", "gpt_neo", "llama"))
def test_any_mixture_predicts_like_a_plain_mixed_model(architecture: str) -> None:
    context, tokenizer = tiny_context(architecture, 4, n=12), tiny_tokenizer()
    own, other = context.model("memorised"), context.model("original")
    sets = np.random.default_rng(0).random((9, 4)) < 0.5
    sets[3] = sets[5]  # twice the same
    found = predict_mixtures(own, other, context.encoded, sets)
    for mask, predicted in zip(sets, found.predicted, strict=True):
        chosen = (np.flatnonzero(mask) + 1).tolist()
        plain = copy.deepcopy(own.model)
        plain.load_state_dict(mixed_state_dict(own.model, other.model, prefix_of(own), chosen))
        for row, text in enumerate(context.examples["text"]):
            with torch.no_grad():
                logits = plain(**tokenizer([text], return_tensors="pt")).logits
            assert predicted[row] == int(logits.argmax())


@pytest.mark.parametrize("limit", [1, 20_000])
def test_mixtures_of_one_example_that_are_too_many_are_divided(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = tiny_context("gpt_neox", 4, n=8)
    own, other = context.model("memorised"), context.model("original")
    whole = swap_windows(own, other, context.encoded, all_windows(own.n_layers))
    held: list[int] = []
    advance = mixing._Lockstep._advance

    def watch(run: Any, states: torch.Tensor, chosen: Any, into: torch.Tensor, *more: Any) -> None:
        held.append(states.nbytes + into.nbytes)
        advance(run, states, chosen, into, *more)

    monkeypatch.setattr(mixing._Lockstep, "_advance", watch)
    monkeypatch.setattr(mixing, "STATE_BYTES", limit)
    divided = swap_windows(own, other, context.encoded, all_windows(own.n_layers))
    assert np.array_equal(divided.predicted, whole.predicted)
    one_mixture = 2 * int(context.encoded.lengths.max()) * 32 * 4
    assert max(held) <= max(limit, one_mixture) + one_mixture
    assert divided.block_passes > whole.block_passes


def test_shapley_values_are_those_of_all_mixtures_and_add_up() -> None:
    context = tiny_context("bert", 4)
    result = Shapley().localise(context)
    labels, noisy, examples = context.columns("label", "noisy", "example")
    models = context.model("memorised"), context.model("original")
    sets = np.array([[False] * 4, [True] * 4])
    wrong = predict_mixtures(*models, context.encoded, sets).predicted[:, noisy] != labels[noisy]
    table = result["shapley"]
    assert table["value"].sum() == pytest.approx(wrong[1].mean() - wrong[0].mean())
    assert (table["standard_error"] == 0).all()
    np.testing.assert_allclose(result["layers"]["weight"], table["value"].clip(lower=0))
    single = result["example_shapley"].groupby("example")["value"].sum()
    np.testing.assert_allclose(single, wrong[1].astype(int) - wrong[0], atol=1e-12)
    assert single.index.tolist() == examples[noisy].tolist()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("architecture", each("bert", "opt", "gpt_neo"))
def test_patching_is_what_hooks_on_whole_models_do(architecture: str, shared: bool) -> None:
    context = sharing_embeddings(architecture, 3) if shared else tiny_context(architecture, 3)
    tokenizer = tiny_tokenizer()
    result = Patching().localise(context)
    noisy = context.examples[context.examples["noisy"]]
    own, other = (context.model(role) for role in ("memorised", "original"))
    table = result["patching"].set_index(["direction", "layer"])["flipped"]
    directions = {
        "restore": (own.model, other.model, "label", "original_label"),
        "implant": (other.model, own.model, "original_label", "label"),
    }
    for direction, (into, source, before, after) in directions.items():
        answers = pd.DataFrame(
            [
                [
                    patched_prediction(into, source, prefix_of(own), tokenizer, text, layer)
                    for text in noisy["text"]
                ]
                for layer in range(4)
            ],
            columns=noisy["example"],
        )
        can = (answers.loc[0] == noisy.set_index("example")[before]).to_numpy()
        assert can.any()
        examples = result["example_patching"].query("direction == @direction")
        assert examples["expected"].tolist() == can.tolist()
        flips = (answers == noisy.set_index("example")[after]) & can
        assert table[direction].tolist() == pytest.approx((flips.sum(axis=1) / can.sum())[1:])
        first = flips[1:].idxmax().where(flips[1:].any())
        assert examples["first_layer"].astype(float).fillna(0).tolist() == first.fillna(0).tolist()
    gains = np.diff(table["restore"].to_numpy(), prepend=0)
    np.testing.assert_allclose(result["layers"]["weight"], np.maximum(gains, 0))
