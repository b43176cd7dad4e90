"""States of whole data sets: the same as those of one example at a time, wherever they are kept."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from memloc.data.encode import Encoded
from memloc.errors import ConfigError, ModelError
from memloc.models import states as module
from memloc.models.blocks import BlockModel
from memloc.models.states import StateCache, pooled_states
from tests.tiny_models import FIVE, WORDS, each, encoded, tiny_blocks

NO_LIMIT = 2**40


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVALUATION_BATCH", 8)


def encoded_texts() -> Encoded:
    """Texts of 1 to 60 words in no order of length: three batches, all but one with padding."""
    generator = random.Random(3)
    lengths = [1, 60, *(generator.randint(1, 40) for _ in range(16))]
    return encoded(" ".join(generator.choices(WORDS, k=length)) for length in lengths)


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


@pytest.mark.parametrize("architecture", each(*FIVE))
def test_pooled_states_are_those_of_one_example_at_a_time(architecture: str) -> None:
    model, encoded, layers = tiny_blocks(architecture), encoded_texts(), 3
    fractions: list[float] = []
    found = pooled_states(model, encoded, fractions.append)
    assert fractions == [8 / 18, 16 / 18, 1.0]
    assert found.shape == (layers + 1, len(encoded), 32)
    assert found.dtype == torch.float32
    alone = states_one_by_one(model, encoded)
    for layer in range(layers + 1):
        # The first token of encoders; the last real one of decoders, which alone is the last.
        place = 0 if architecture == "bert" else -1
        expected = torch.stack([states[layer][place] for states in alone])
        torch.testing.assert_close(found[layer], expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found[0], found[layers], atol=0.1)
    assert torch.equal(pooled_states(model, encoded, layers=(3, 1)), found[[3, 1]])
    # The head reads the last of them.
    with torch.no_grad():
        whole = torch.cat([model.logits(encoded.batch([index])) for index in range(len(encoded))])
        torch.testing.assert_close(model.tail(found[-1]), whole, rtol=1e-4, atol=1e-4)
    probe = nn.Linear(32, 2)
    probe(found[1]).sum().backward()  # fails for tensors made in inference mode


def test_a_head_that_reads_all_tokens_is_refused_in_words() -> None:
    model = tiny_blocks("modernbert", classifier_pooling="mean")
    with pytest.raises(ModelError, match="does not read the first or the last token alone"):
        pooled_states(model, encoded_texts())


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


@pytest.mark.parametrize("architecture", each(*FIVE))
def test_a_cache_moves_to_any_layer_and_up_by_the_layers_in_between(architecture: str) -> None:
    model, encoded = tiny_blocks(architecture, 4), encoded_texts()
    expected = states_one_by_one(model, encoded)
    passes, cache = Passes(model), StateCache(model, encoded, NO_LIMIT)
    counted = 0
    for layer, computed in (
        (4, [1, 1, 1, 1]),
        (0, [0, 0, 0, 0]),
        (1, [1, 0, 0, 0]),
        (2, [0, 1, 0, 0]),
        (2, [0, 0, 0, 0]),
        (4, [0, 0, 1, 1]),
        (3, [1, 1, 1, 0]),  # what is below is gone, so down means from the beginning
    ):
        cache.move_to(layer)
        found = passes.take()
        assert found == [3 * count for count in computed], f"to layer {layer}"
        counted += sum(found)
        assert cache.block_passes == counted
        assert_holds(cache, layer, expected)


def test_above_the_limit_a_file_without_a_name_holds_the_same_states(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "when needed"
    model, encoded = tiny_blocks("gpt_neo", 4), encoded_texts()
    size = 4 * 32 * int(encoded.lengths.sum())
    memory, file = (StateCache(model, encoded, limit, folder) for limit in (size, size - 1))
    for layer in (0, 1, 3, 2, 4):
        memory.move_to(layer)
        file.move_to(layer)
        assert (memory.in_file, file.in_file) == (False, True)
        assert memory.states.abs().sum() > 0
        assert torch.equal(memory.states, file.states)
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("limit", [0, NO_LIMIT])
def test_a_batch_has_the_right_rows_in_any_order_and_zeros_as_padding(
    limit: int, tmp_path: Path
) -> None:
    model, encoded = tiny_blocks("llama"), encoded_texts()
    expected = states_one_by_one(model, encoded)
    cache = StateCache(model, encoded, limit, tmp_path)
    cache.move_to(2)
    for indices in ([0, 1, 2], [17, 1, 9, 0], [5, 5], [10]):
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


def test_tf32_is_set_inside_and_only_there() -> None:
    def precision() -> str:
        return str(torch.backends.cuda.matmul.fp32_precision)

    before = precision()
    assert before != "tf32"
    with module.autocast(torch.device("cuda"), "float32"):
        assert precision() == before
    with module.autocast(torch.device("cuda"), "tf32"):
        assert precision() == "tf32"
    assert precision() == before
    with pytest.raises(KeyboardInterrupt), module.autocast(torch.device("cuda"), "tf32"):
        raise KeyboardInterrupt
    assert precision() == before
    for device in ("cpu", "mps"):
        with pytest.raises(
            ConfigError, match=f"only CUDA GPUs have TF32, and the device is {device}"
        ):
            module.autocast(torch.device(device), "tf32")
    assert precision() == before
