"""States of whole data sets: the same as those of one example at a time, wherever they are kept."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from memloc.data.encode import Encoded, TextCodec, encode
from memloc.errors import ModelError
from memloc.models.blocks import BlockModel
from memloc.models.states import EVALUATION_BATCH, StateCache, pooled_states
from tests.tiny_models import WORDS, tiny_model, tiny_tokenizer

ENCODERS, DECODERS = ("bert",), ("opt", "gpt_neox", "gpt_neo", "llama")
ARCHITECTURES = (*ENCODERS, *DECODERS)
NO_LIMIT = 2**40


def encoded_texts(n: int = 2 * EVALUATION_BATCH + 6) -> Encoded:
    """Texts of 1 to 60 words in no order of length: three batches, all but one with padding."""
    generator = random.Random(3)
    lengths = [1, 60, *(generator.randint(1, 40) for _ in range(n - 2))]
    texts = [" ".join(generator.choices(WORDS, k=length)) for length in lengths]
    return encode(pd.DataFrame({"text": texts}), TextCodec(tiny_tokenizer(), "|", 0, 128))


def states_one_by_one(model: BlockModel, encoded: Encoded) -> list[list[torch.Tensor]]:
    """States 0..L of every example, each [tokens, width], from batches of one without padding."""
    with torch.no_grad():
        return [
            [state[0] for state in model.states(encoded.batch([index]))[0]]
            for index in range(len(encoded))
        ]


def assert_holds(cache: StateCache, layer: int, expected: list[list[torch.Tensor]]) -> None:
    """Every token of every example, as if it had been alone in its batch."""
    assert cache.layer == layer
    for index, states in enumerate(expected):
        state, batch = cache.batch(np.array([index]))
        assert batch["attention_mask"].all()
        torch.testing.assert_close(state[0], states[layer], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layers", [2, 12])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_pooled_states_are_those_of_one_example_at_a_time(architecture: str, layers: int) -> None:
    model, encoded = BlockModel(tiny_model(architecture, layers=layers)), encoded_texts(40)
    found = pooled_states(model, encoded)
    assert found.shape == (layers + 1, len(encoded), 32)
    assert found.dtype == torch.float32
    alone = states_one_by_one(model, encoded)
    for layer in range(layers + 1):
        # The first token of encoders; the last real one of decoders, which alone is the last.
        place = 0 if architecture in ENCODERS else -1
        expected = torch.stack([states[layer][place] for states in alone])
        torch.testing.assert_close(found[layer], expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found[0], found[layers], atol=0.1)


@pytest.mark.parametrize("architecture", ["bert", "gpt_neox"])
def test_the_head_reads_the_pooled_state_of_the_last_layer(architecture: str) -> None:
    model, encoded = BlockModel(tiny_model(architecture, layers=3)), encoded_texts(12)
    with torch.no_grad():
        from_states = model.tail(pooled_states(model, encoded)[-1])
        whole = torch.cat([model.logits(encoded.batch([index])) for index in range(len(encoded))])
    torch.testing.assert_close(from_states, whole, rtol=1e-5, atol=1e-5)


def test_the_size_of_batches_changes_no_state_and_reports_end_at_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, encoded = BlockModel(tiny_model("opt", layers=3)), encoded_texts(20)
    fractions: list[float] = []
    large = pooled_states(model, encoded)
    monkeypatch.setattr("memloc.models.states.EVALUATION_BATCH", 6)
    small = pooled_states(model, encoded, fractions.append)
    torch.testing.assert_close(small, large, rtol=1e-5, atol=1e-5)
    assert fractions == [6 / 20, 12 / 20, 18 / 20, 1.0]


def test_some_layers_alone_are_those_of_all() -> None:
    model, encoded = BlockModel(tiny_model("gpt2", layers=3)), encoded_texts(9)
    some = pooled_states(model, encoded, layers=(3, 1))
    assert torch.equal(some, pooled_states(model, encoded)[[3, 1]])


def test_probes_can_be_trained_on_pooled_states() -> None:
    states = pooled_states(BlockModel(tiny_model("bert", layers=2)), encoded_texts(4))
    probe = nn.Linear(32, 2)
    probe(states[1]).sum().backward()  # fails for tensors made in inference mode
    assert probe.weight.grad is not None


def test_a_head_that_reads_all_tokens_is_refused_in_words() -> None:
    model = BlockModel(tiny_model("modernbert", classifier_pooling="mean"))
    with pytest.raises(ModelError, match=r"does not read the first or the last token.*probing"):
        pooled_states(model, encoded_texts(4))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_cache_moves_to_any_layer(architecture: str) -> None:
    model, encoded = BlockModel(tiny_model(architecture, layers=4)), encoded_texts()
    expected = states_one_by_one(model, encoded)
    cache = StateCache(model, encoded, NO_LIMIT)
    for layer in (0, 4, 1, 1, 2, 4, 3, 0):  # up by one and by more, down, in place, to both ends
        cache.move_to(layer)
        assert_holds(cache, layer, expected)


@pytest.mark.parametrize("first", [1, 4])
def test_a_cache_may_begin_at_any_layer(first: int) -> None:
    model, encoded = BlockModel(tiny_model("bert", layers=4)), encoded_texts()
    cache = StateCache(model, encoded, NO_LIMIT)
    cache.move_to(first)
    assert_holds(cache, first, states_one_by_one(model, encoded))


def test_memory_and_file_hold_identical_states(tmp_path: Path) -> None:
    model, encoded = BlockModel(tiny_model("gpt_neo", layers=4)), encoded_texts()
    memory, file = StateCache(model, encoded, NO_LIMIT), StateCache(model, encoded, 0, tmp_path)
    for layer in (0, 1, 3, 2, 4):
        memory.move_to(layer)
        file.move_to(layer)
        assert (memory.in_file, file.in_file) == (False, True)
        assert memory.states.abs().sum() > 0
        assert torch.equal(memory.states, file.states)


def test_a_file_is_used_only_above_the_limit(tmp_path: Path) -> None:
    model, encoded = BlockModel(tiny_model("bert", layers=2)), encoded_texts(5)
    size = 4 * 32 * int(encoded.lengths.sum())
    for limit, in_file in ((size, False), (size - 1, True)):
        cache = StateCache(model, encoded, limit, tmp_path)
        cache.move_to(0)
        assert cache.in_file == in_file


def test_the_file_has_no_name_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "when needed"
    model, encoded = BlockModel(tiny_model("bert", layers=2)), encoded_texts()
    cache = StateCache(model, encoded, 0, folder)
    for layer in range(3):
        cache.move_to(layer)
        assert cache.in_file
        assert list(folder.iterdir()) == []
    cache.batch(np.arange(3))
    del cache
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("limit", [0, NO_LIMIT])
def test_a_batch_has_the_right_rows_in_any_order_and_zeros_as_padding(
    limit: int, tmp_path: Path
) -> None:
    model, encoded = BlockModel(tiny_model("llama", layers=3)), encoded_texts()
    expected = states_one_by_one(model, encoded)
    cache = StateCache(model, encoded, limit, tmp_path)
    cache.move_to(2)
    for indices in ([0, 1, 2], [69, 1, 33, 0], [5, 5], [40]):
        state, batch = cache.batch(np.array(indices))
        lengths = encoded.lengths[indices]
        assert state.shape == (len(indices), max(lengths), 32)
        assert batch["input_ids"].shape == state.shape[:2]
        for row, index, length in zip(range(len(indices)), indices, lengths, strict=True):
            assert batch["input_ids"][row, :length].tolist() == encoded.rows[index]["input_ids"]
            torch.testing.assert_close(
                state[row, :length], expected[index][2], rtol=1e-4, atol=1e-4
            )
            assert not state[row, length:].any()


@pytest.mark.parametrize("layers", [2, 12])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_resuming_from_a_cached_batch_gives_the_logits_of_a_whole_pass(
    architecture: str, layers: int
) -> None:
    model, encoded = BlockModel(tiny_model(architecture, layers=layers)), encoded_texts()
    cache = StateCache(model, encoded, NO_LIMIT)
    indices = np.array([1, 0, 17, 52, 69])  # the longest and the shortest text among them
    with torch.no_grad():
        whole = model.logits(encoded.batch(indices.tolist()))
        for layer in range(layers + 1):
            cache.move_to(layer)
            resumed = model.resume(*cache.batch(indices), layer)
            torch.testing.assert_close(resumed, whole, rtol=1e-5, atol=1e-5)


class Passes:
    """Counts how often each layer really computes: what is passed through has no linear maps."""

    def __init__(self, model: BlockModel) -> None:
        self.counts = [0] * model.n_layers
        for index, block in enumerate(model.stack):
            linear = next(module for module in block.modules() if isinstance(module, nn.Linear))
            linear.register_forward_hook(lambda *_, index=index: self._add(index))

    def _add(self, index: int) -> None:
        self.counts[index] += 1

    def take(self) -> list[int]:
        found, self.counts = self.counts, [0] * len(self.counts)
        return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_moving_up_computes_only_the_layers_in_between(architecture: str) -> None:
    model, encoded = BlockModel(tiny_model(architecture, layers=4)), encoded_texts()
    batches = 3
    passes, cache = Passes(model), StateCache(model, encoded, NO_LIMIT)
    counted = 0
    for layer, computed in (
        (0, [0, 0, 0, 0]),
        (1, [1, 0, 0, 0]),
        (2, [0, 1, 0, 0]),
        (2, [0, 0, 0, 0]),
        (4, [0, 0, 1, 1]),
        (3, [1, 1, 1, 0]),  # what is below is gone, so down means from the beginning
        (0, [0, 0, 0, 0]),
    ):
        cache.move_to(layer)
        found = passes.take()
        assert found == [batches * count for count in computed], f"to layer {layer}"
        counted += sum(found)
        assert cache.block_passes == counted


@pytest.mark.parametrize("limit", [0, NO_LIMIT])
def test_the_model_is_left_as_it_was(limit: int, tmp_path: Path) -> None:
    model, encoded = BlockModel(tiny_model("bert", layers=3)), encoded_texts(10)
    model.model.train()
    model.block(2).eval()
    modes = [module.training for module in model.model.modules()]
    weights = {name: value.clone() for name, value in model.model.state_dict().items()}
    open_before = [parameter.requires_grad for parameter in model.model.parameters()]
    first, again = pooled_states(model, encoded), pooled_states(model, encoded)
    assert torch.equal(first, again)  # no dropout, although the model is in training mode
    cache = StateCache(model, encoded, limit, tmp_path)
    for layer in (0, 3, 1):
        cache.move_to(layer)
    assert [module.training for module in model.model.modules()] == modes
    assert [parameter.requires_grad for parameter in model.model.parameters()] == open_before
    assert all(torch.equal(weights[name], v) for name, v in model.model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.model.modules())
    assert not cache.states.requires_grad


def test_an_interrupted_move_leaves_no_mixture_of_layers() -> None:
    model, encoded = BlockModel(tiny_model("bert", layers=3)), encoded_texts()
    cache = StateCache(model, encoded, NO_LIMIT)
    cache.move_to(1)
    calls = []

    def interrupt(*_: object) -> None:
        calls.append(1)
        if len(calls) == 2:  # the second of three batches
            raise KeyboardInterrupt

    handle = model.block(2).register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.move_to(2)
    handle.remove()
    cache.move_to(1)
    assert_holds(cache, 1, states_one_by_one(model, encoded))
