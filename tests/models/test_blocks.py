from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from memloc.errors import ModelError
from memloc.models.blocks import BlockModel
from tests.oracles.swapping import mixed_state_dict
from tests.tiny_models import ARCHITECTURES, VOCABULARY, tiny_model


def padded_batch() -> dict[str, torch.Tensor]:
    ids = torch.tensor([[2, 9, 14, 30, 7, 22, 3], [2, 11, 6, 3, 0, 0, 0], [2, 40, 3, 0, 0, 0, 0]])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def stack_prefix(model: BlockModel) -> str:
    return f"{model.model.base_model_prefix}.{model.stack_path}"


@pytest.mark.parametrize("layers", [2, 5])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_parameter_is_in_exactly_one_group(architecture: str, layers: int) -> None:
    model = BlockModel(tiny_model(architecture, layers=layers))
    groups = model.groups
    named = [*groups.embeddings, *(n for names in groups.blocks for n in names), *groups.tail]
    assert sorted(named) == sorted(name for name, _ in model.model.named_parameters())
    assert model.n_layers == layers
    assert all(groups.blocks)
    assert groups.embeddings
    assert set(groups.head) <= set(groups.tail)
    assert groups.head


@pytest.mark.parametrize("layers", [2, 5])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_resuming_after_any_layer_gives_bit_equal_logits(architecture: str, layers: int) -> None:
    model = BlockModel(tiny_model(architecture, layers=layers))
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


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_resuming_gives_bit_equal_gradients(architecture: str) -> None:
    model = BlockModel(tiny_model(architecture, layers=3))
    batch = padded_batch()
    upper = [p for names in model.groups.blocks[1:] for p in names]
    parameters = dict(model.model.named_parameters())

    def gradients(logits: torch.Tensor) -> list[torch.Tensor]:
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2]))
        return list(torch.autograd.grad(loss, [parameters[name] for name in upper]))

    with torch.no_grad():
        states, _ = model.states(batch)
    whole = gradients(model.logits(batch))
    resumed = gradients(model.resume(states[1], batch, 1))
    assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_swapping_blocks_equals_loading_the_mixed_state_dict(architecture: str) -> None:
    memorised = BlockModel(tiny_model(architecture, seed=0))
    original = BlockModel(tiny_model(architecture, seed=1))
    plain = copy.deepcopy(memorised.model)
    batch = padded_batch()
    for layers in (range(1, 2), range(2, 4), range(1, 5)):
        prefix = stack_prefix(memorised)
        plain.load_state_dict(mixed_state_dict(memorised.model, original.model, prefix, layers))
        with torch.no_grad(), memorised.swapped({i: original.block(i) for i in layers}):
            assert torch.equal(memorised.logits(batch), plain(**batch).logits)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_tail_needs_only_the_pooled_row(architecture: str) -> None:
    model = BlockModel(tiny_model(architecture))
    assert model.pooling == (
        "first" if "bert" in architecture or architecture == "electra" else "last"
    )
    batch = padded_batch()
    with torch.no_grad():
        states, logits = model.states(batch)
        short = model.tail(model.pooled(states[-1], batch))
    torch.testing.assert_close(short, logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("architecture", ["opt", "gpt_neox", "gpt2", "llama", "gemma2", "bloom"])
def test_a_text_that_ends_with_the_padding_token_is_pooled_like_the_model_does(
    architecture: str,
) -> None:
    # With padding = end of text, tokenisers may add that token to every text.
    model = BlockModel(tiny_model(architecture, pad_token_id=3))
    ids = torch.tensor([[9, 14, 30, 7, 22, 3], [11, 6, 17, 3, 3, 3], [40, 3, 3, 3, 3, 3]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]])
    batch = {"input_ids": ids, "attention_mask": mask}
    with torch.no_grad():
        states, logits = model.states(batch)
        short = model.tail(model.pooled(states[-1], batch))
    torch.testing.assert_close(short, logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("depth", [1, 2, 24])
def test_any_number_of_layers_works(depth: int) -> None:
    model = BlockModel(tiny_model("bert", layers=depth))
    assert model.n_layers == depth
    assert model.can_resume


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


def test_reset_layers_are_copies_that_can_be_trained() -> None:
    model, pretrained = (BlockModel(tiny_model("bert", seed=s)) for s in (0, 1))
    with model.reset([2], pretrained):
        assert model.block(2) is not pretrained.block(2)
        inside = next(model.block(2).parameters())
        assert torch.equal(inside, next(pretrained.block(2).parameters()))
        with torch.no_grad():
            inside.zero_()
    assert next(pretrained.block(2).parameters()).abs().sum() > 0
    assert next(model.block(2).parameters()).abs().sum() > 0


def test_frozen_parameters_take_no_gradient_and_the_others_do() -> None:
    model = BlockModel(tiny_model("bert"))
    with model.frozen(model.groups.embeddings):
        model.logits(padded_batch()).sum().backward()
        for name, parameter in model.model.named_parameters():
            assert (parameter.grad is None) == (name in model.groups.embeddings), name


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


def t5() -> Any:
    return tiny_model("t5", layers_name="num_layers", d_model=32, d_kv=8, d_ff=48, num_heads=4,
                      decoder_start_token_id=0)  # fmt: skip


def test_several_stacks_are_named_and_the_user_is_asked() -> None:
    with pytest.raises(ModelError, match=r"model.blocks: .*encoder.block \(4 layers\)"):
        BlockModel(t5())
    with pytest.raises(ModelError, match=r"did you mean 'encoder\.block'"):
        BlockModel(t5(), blocks="encoder.blok")


def test_a_stack_that_cannot_resume_is_recognised() -> None:
    # T5's first block computes the position bias of all later ones.
    model = BlockModel(t5(), blocks="encoder.block")
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


def test_a_model_without_layers_is_refused() -> None:
    config = BertConfig(
        num_hidden_layers=0, hidden_size=32, num_attention_heads=4, vocab_size=VOCABULARY
    )
    with pytest.raises(ModelError, match="no stack of layers"):
        BlockModel(BertForSequenceClassification(config))


def test_a_layer_out_of_range_is_named() -> None:
    with pytest.raises(ModelError, match="layer 9 does not exist; the model has layers 1 to 4"):
        BlockModel(tiny_model("bert")).block(9)
