from __future__ import annotations

from typing import Any

import pytest
import torch

from memloc.errors import ModelError
from memloc.models.blocks import BlockModel
from tests.tiny_models import T5, each, tiny_blocks, tiny_model


def padded_batch() -> dict[str, torch.Tensor]:
    ids = torch.tensor([[2, 9, 14, 30, 7, 22, 3], [2, 11, 6, 3, 0, 0, 0], [2, 40, 3, 0, 0, 0, 0]])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


@pytest.mark.parametrize("architecture", each())
def test_every_parameter_is_in_exactly_one_group(architecture: str) -> None:
    layers = 3
    model = tiny_blocks(architecture, layers)
    groups = model.groups
    named = [*groups.embeddings, *(n for names in groups.blocks for n in names), *groups.tail]
    assert sorted(named) == sorted(name for name, _ in model.model.named_parameters())
    assert model.n_layers == layers
    assert all(groups.blocks)
    assert groups.embeddings
    assert set(groups.head) <= set(groups.tail)
    assert groups.head


@pytest.mark.parametrize("architecture", each())
def test_resuming_after_any_layer_gives_bit_equal_logits(architecture: str) -> None:
    layers = 4
    model = tiny_blocks(architecture, layers)
    assert model.can_resume, model.resume_problem
    batch = padded_batch()
    with torch.no_grad():
        states, logits = model.states(batch)
        assert torch.equal(model.logits(batch), logits)
        assert torch.equal(model.input_state(batch), states[0])
        for after in range(layers + 1):
            assert torch.equal(model.resume(states[after], batch, after), logits)
            for last in range(after + 1, layers + 1):
                state = model.run_layers(states[after], batch, after + 1, last)
                assert torch.equal(state, states[last])


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("architecture", each())
def test_the_tail_needs_only_the_pooled_row(architecture: str, padding: int) -> None:
    model = BlockModel(tiny_model(architecture, pad_token_id=padding))
    assert model.pooling == (
        "first" if "bert" in architecture or architecture == "electra" else "last"
    )
    batch = padded_batch()
    if padding:  # it is the end of text, which tokenisers may add to every text
        batch["input_ids"][batch["attention_mask"] == 0] = padding
    with torch.no_grad():
        states, logits = model.states(batch)
        short = model.tail(model.pooled(states[-1], batch))
    torch.testing.assert_close(short, logits, rtol=1e-5, atol=1e-5)


def test_everything_is_restored_even_after_an_error() -> None:
    model = BlockModel(tiny_model("gpt_neo"))
    other = BlockModel(tiny_model("gpt_neo", seed=1))
    batch = padded_batch()
    model.model.train()
    model.model.base_model.eval()
    with torch.no_grad():
        states, before = model.states(batch)
    flags = [module.training for module in model.model.modules()]
    parameter = next(model.model.parameters())
    parameter.requires_grad_(False)

    def fail(manager: Any) -> None:
        with pytest.raises(KeyboardInterrupt), manager:
            raise KeyboardInterrupt

    fail(model.swapped({1: other.block(1), 3: other.block(3)}))
    fail(model.only_layers(range(2, 4), states[1]))
    fail(model.reset([1, 2], other))
    fail(model.frozen(model.groups.embeddings))
    fail(model.mode(training=True))

    assert [module.training for module in model.model.modules()] == flags
    assert not parameter.requires_grad
    assert all(p.requires_grad for p in list(model.model.parameters())[1:])
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.model.modules())
    assert not any("forward" in m.__dict__ for m in model.model.modules())
    with torch.no_grad():
        assert torch.equal(model.logits(batch), before)


def test_the_self_test_leaves_the_model_as_it_was() -> None:
    plain = tiny_model("opt")
    plain.train()
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    BlockModel(plain)
    assert all(module.training for module in plain.modules())
    assert all(parameter.grad is None for parameter in plain.parameters())
    assert all(torch.equal(before[name], value) for name, value in plain.state_dict().items())


def test_shared_layers_are_refused_in_words() -> None:
    with pytest.raises(ModelError, match="same weights in every layer"):
        BlockModel(
            tiny_model(
                "albert",
                hidden_size=32,
                num_attention_heads=4,
                intermediate_size=48,
                embedding_size=16,
            )
        )


def test_a_layer_that_runs_twice_is_refused_in_words() -> None:
    model = tiny_model("bert", layers=3)
    model.bert.encoder.layer[2] = model.bert.encoder.layer[0]
    with pytest.raises(ModelError, match="layer 1 runs 2 times"):
        BlockModel(model)


def test_several_stacks_are_named_and_the_user_is_asked() -> None:
    with pytest.raises(ModelError, match=r"model.blocks: .*encoder.block \(4 layers\)"):
        BlockModel(tiny_model("t5", **T5))
    with pytest.raises(ModelError, match=r"did you mean 'encoder\.block'"):
        BlockModel(tiny_model("t5", **T5), blocks="encoder.blok")


def test_a_stack_that_cannot_resume_is_recognised() -> None:
    # T5's first block computes the position bias of all later ones.
    model = tiny_blocks("t5")
    assert model.groups.embeddings == ("transformer.shared.weight",)
    assert not model.can_resume
    assert model.resume_problem


def test_weights_that_are_not_numbers_are_refused() -> None:
    model = tiny_model("bert")
    with torch.no_grad():
        model.bert.encoder.layer[1].output.dense.weight[0, 0] = float("nan")
    with pytest.raises(ModelError, match="NaN"):
        BlockModel(model)


def test_a_mean_pooling_head_is_noticed() -> None:
    model = BlockModel(tiny_model("modernbert", classifier_pooling="mean"))
    assert model.pooling == "other"
    assert model.can_resume


def test_padding_that_leaks_into_real_tokens_is_noticed() -> None:
    leaking = tiny_blocks(
        "nystromformer", 4, hidden_size=32, num_attention_heads=4, intermediate_size=48,
        segment_means_seq_len=64, num_landmarks=64,
    )  # fmt: skip
    assert leaking.can_resume
    assert not leaking.ignores_padding
    assert tiny_blocks("bert").ignores_padding
