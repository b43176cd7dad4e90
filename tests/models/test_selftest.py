"""Models that are unlike BERT: each equals a plain swap of weights, or is refused in a sentence."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from memloc import localise
from memloc.errors import ModelError
from memloc.models.blocks import BlockModel, mixed_stack
from memloc.models.mixing import predict_mixtures
from memloc.models.selftest import Snapshot
from memloc.training.learners import TailOnly
from tests.conftest import assert_one_sentence
from tests.oracles.swapping import swap_plainly
from tests.tiny_models import (
    UNUSUAL,
    WORDS,
    encoded,
    prefix_of,
    tiny_blocks,
    tiny_model,
    tiny_tokenizer,
    unusual_model,
)

SHORT, LONG, MIXED = (4, 10), (40, 60), (4, 60)
"""Words of a text. The tiny BigBird has sparse attention for more than 28 tokens."""


def texts_of(words: tuple[int, int], n: int = 24) -> list[str]:
    draw = random.Random(1)
    return [" ".join(draw.choices(WORDS, k=draw.randint(*words))) for _ in range(n)]


def windows_of(n_layers: int) -> dict[tuple[int, int], np.ndarray]:
    layers = np.arange(1, n_layers + 1)
    return {
        (first, last): (first <= layers) & (layers <= last)
        for first in layers.tolist()
        for last in range(first, n_layers + 1)
    }


@pytest.mark.parametrize("words", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("architecture", [name for name in UNUSUAL if UNUSUAL[name].works])
def test_swapped_layers_equal_swapped_weights(architecture: str, words: tuple[int, int]) -> None:
    texts = texts_of(words)
    plain = [unusual_model(architecture, seed=seed) for seed in (0, 1)]
    path = UNUSUAL[architecture].blocks
    own, other = (BlockModel(unusual_model(architecture, seed=seed), path) for seed in (0, 1))
    inputs = encoded(texts)
    own.examine(inputs)
    other.examine(inputs)
    windows = windows_of(own.n_layers)
    found = predict_mixtures(own, other, inputs, np.stack(list(windows.values())))
    # One text at a time: some of these answer differently where padding is.
    expected = swap_plainly(*plain, prefix_of(own), tiny_tokenizer(), texts, windows, batch=1)
    for window, predicted in zip(windows, found.predicted, strict=True):
        assert predicted.tolist() == expected[window].argmax(dim=-1).tolist(), window
    assert len({tuple(row) for row in found.predicted.tolist()}) > 3


@pytest.mark.parametrize("words", [SHORT, LONG], ids=["short", "long"])
def test_parts_of_layers_are_tried_on_the_texts_too(words: tuple[int, int]) -> None:
    own, other = (BlockModel(unusual_model("big_bird", seed=seed)) for seed in (0, 1))
    inputs = encoded(texts_of(words))
    own.examine(inputs)
    other.examine(inputs)
    before = [Snapshot(one.model) for one in (own, other)]
    mixed_stack(own, other, "attention")
    assert [snapshot.changes() for snapshot in before] == [{}, {}]


@pytest.mark.parametrize("architecture", [name for name in UNUSUAL if not UNUSUAL[name].works])
def test_what_cannot_be_analysed_is_refused_in_a_sentence(architecture: str) -> None:
    with pytest.raises(ModelError, match=UNUSUAL[architecture].refused):
        BlockModel(unusual_model(architecture), UNUSUAL[architecture].blocks)


def swap(models: list[Any], texts: list[str]) -> None:
    """Localise, by swapping, in two models of the user."""
    localise(
        memorised=models[0],
        original=models[1],
        tokenizer=tiny_tokenizer(),
        data=pd.DataFrame({"text": texts, "label": [0, 1, 2] * 8, "gold": [0, 1, 1] * 8}),
        original_label="gold",
        techniques="swapping",
        explain=False,
        progress=False,
    )


@pytest.mark.parametrize("words", [SHORT, LONG], ids=["short", "long"])
def test_a_model_of_the_user_that_changes_itself_is_left_as_it_was(words: tuple[int, int]) -> None:
    models = [unusual_model("big_bird", seed=seed) for seed in (0, 1)]
    before = [Snapshot(model, buffers=True) for model in models]
    texts = texts_of(words)
    inputs = tiny_tokenizer()(texts[:3], padding=True, return_tensors="pt")
    fresh = unusual_model("big_bird")
    swap(models, texts)
    assert [snapshot.changes() for snapshot in before] == [{}, {}]
    with torch.no_grad():
        assert torch.equal(models[0](**inputs).logits, fresh(**inputs).logits)


def test_answers_that_depend_on_the_order_of_texts_are_refused() -> None:
    model = BlockModel(unusual_model("big_bird"))
    before = Snapshot(model.model)
    with pytest.raises(ModelError, match="set attention_type to 'original_full' in its config"):
        model.examine(encoded(texts_of(MIXED)))
    assert before.changes() == {}
    full = BlockModel(unusual_model("big_bird", attention_type="original_full"))
    full.examine(encoded(texts_of(MIXED)))
    assert full.changes is None


def test_only_texts_that_all_are_short_change_a_model() -> None:
    model = BlockModel(unusual_model("big_bird"))
    assert model.model.bert.attention_type == "block_sparse"
    model.examine(encoded(texts_of(LONG)))
    assert model.changes == {}
    assert model.pooling == "first"
    assert not model.head_alone, "one token would make it change"
    assert model.model.bert.attention_type == "block_sparse"
    model.examine(encoded(texts_of(SHORT)))
    assert model.changes == {"attention_type": "original_full"}
    assert model.head_alone
    assert model.model.bert.attention_type == "original_full"


def test_texts_of_other_data_count_too() -> None:
    model = BlockModel(unusual_model("big_bird"))
    with pytest.raises(ModelError, match="order of the texts"):
        model.examine(encoded(texts_of(LONG)), encoded(texts_of(SHORT)))


def test_models_in_different_modes_do_not_fit() -> None:
    models = [unusual_model("big_bird", seed=seed) for seed in (0, 1)]
    models[1].bert.set_attention_type("original_full")
    with pytest.raises(ModelError, match="attention_type of layer 1 is block_sparse in"):
        swap(models, texts_of(LONG))


class Noise(nn.Module):
    def forward(self, state: torch.Tensor) -> torch.Tensor:
        return state + torch.randn_like(state)


def test_answers_that_are_not_determined_are_refused() -> None:
    model = tiny_model("bert")
    model.dropout = Noise()
    with pytest.raises(ModelError, match="other answers when it reads the same texts again"):
        BlockModel(model)


def test_a_text_that_the_model_cannot_read_is_named() -> None:
    model = tiny_blocks("bert", max_position_embeddings=16)
    with pytest.raises(ModelError, match=r"does not run on two rows of 6\d tokens"):
        model.examine(encoded(texts_of(LONG)))


def test_a_snapshot_brings_everything_back() -> None:
    model = tiny_model("gpt_neo")
    handle = model.register_forward_hook(lambda *_: None)
    before = Snapshot(model, buffers=True)
    attention = model.transformer.h[0].attn.attention
    model.train()
    model.config.pad_token_id = 7
    model.config.id2label[0] = "other"
    model.new = 3
    attention.bias.logical_not_()
    attention.k_proj = nn.Linear(32, 32)
    del attention.head_dim
    changed = before.changes()
    assert changed["config.pad_token_id"] == 7
    assert {"new", "training", "config.id2label"} <= set(changed)
    assert {f"transformer.h.0.attn.attention.{name}" for name in ("bias", "head_dim")} <= set(
        changed
    )
    before.restore()
    assert before.changes() == {}
    assert attention.bias[0, 0, 1, 0]
    handle.remove()
    assert not model._forward_hooks, "hooks are still those that handles know"


@pytest.mark.parametrize("architecture", ["bert", "llama"])
def test_the_test_on_real_texts_costs_no_more_than_two_batches(architecture: str) -> None:
    model, inputs = tiny_blocks(architecture, 12), encoded(texts_of(MIXED, 64))
    work = 0

    def count(_module: nn.Module, args: Any, kwargs: Any) -> None:
        nonlocal work
        state = args[0] if args else kwargs["hidden_states"]
        work += state.shape[0] * state.shape[1]

    for block in model.stack:  # what passes its input on does not get there
        first = next(block.children())
        first.register_forward_pre_hook(count, with_kwargs=True)
    model.logits(inputs.batch(range(32)))
    one, work = work, 0
    model.examine(inputs)
    assert 0 < work < 2 * one


@pytest.mark.parametrize(
    ("words", "said"),
    [(SHORT, "has attention_type 'original_full'"), (MIXED, "order of the texts")],
)
def test_a_run_says_how_a_model_reads_the_texts(memloc, tmp_path, words, said: str) -> None:
    folder = tmp_path / "bird"
    unusual_model("big_bird").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    rows = pd.DataFrame({"text": texts_of(words, 60), "label": ["a", "b"] * 30})
    rows.to_csv(tmp_path / "texts.csv", index=False)
    code, out, err = memloc(
        *("run", "--model", folder, "--task", tmp_path / "texts.csv", "--epochs", 1),
        *("--techniques", "swapping", "--no-explain", "--workers", 1),
    )
    assert said in err
    if words == MIXED:
        assert_one_sentence(code, out, err, said)
        return
    assert code == 0, err
    (trained,) = (
        inputs
        for path in Path("runs/store/train").glob("*/manifest.json")
        if (inputs := json.loads(path.read_text())["inputs"])["state"] == "memorised"
    )
    assert trained["model"]["changes"] == {"attention_type": "original_full"}


def test_tf32_without_a_gpu_is_refused(memloc, tiny_folder: Path) -> None:
    found = memloc("run", "--model", tiny_folder, "--dtype", "tf32", "--device", "cpu")
    assert_one_sentence(*found, "only CUDA GPUs have TF32, and the device is cpu; leave it out")


def test_a_model_without_a_head_of_its_own_has_no_frozen_model() -> None:
    model = BlockModel(unusual_model("perceiver"), UNUSUAL["perceiver"].blocks)
    inputs = encoded(texts_of(SHORT))
    with pytest.raises(ModelError, match="no head outside its base model"):
        TailOnly(model, inputs, inputs)
