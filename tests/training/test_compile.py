"""Layers that are compiled while they are trained: the same losses, and all is as it was after."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from memloc.analysis.windows import Window
from memloc.config import Training
from memloc.errors import ModelError
from memloc.models.blocks import BlockModel, Interceptor
from memloc.techniques.retraining import Retraining
from memloc.training.learners import Learner
from memloc.training.loop import Trained, TrainingData, fine_tune
from tests.techniques.test_retraining import NO_DROPOUT, make_context
from tests.tiny_models import encoded, tiny_blocks

TEXTS = ["the film was good", "who wrote the story of the king", "a dull plot", "bad", "not bad"]
LABELS = np.array([0, 1, 2, 0, 1])
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))),
    reason="torch.compile needs a C++ compiler, and there is none",
)


def trained(model: BlockModel, **settings: Any) -> Trained:
    inputs = encoded(TEXTS)
    data = TrainingData(LABELS, np.zeros(5, dtype=bool), LABELS)
    config = Training(epochs=2, batch_size=2, learning_rate=1e-3, **settings)
    return fine_tune(Learner(model, inputs, inputs), data, config, seed=1)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for the compiler: which blocks ran as it made them."""
    seen: list[str] = []

    def compile_nothing(forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            seen.append(type(getattr(forward, "__self__", None)).__name__)
            return forward(*args, **kwargs)

        return run

    monkeypatch.setattr(torch, "compile", compile_nothing)
    return seen


def test_nothing_is_compiled_unless_it_is_asked_for(calls: list[str]) -> None:
    usual = trained(tiny_blocks("bert", **NO_DROPOUT["bert"]))
    assert not calls
    compiled = trained(tiny_blocks("bert", **NO_DROPOUT["bert"]), compile=True)
    assert set(calls) == {"BertLayer"}
    pd.testing.assert_frame_equal(usual.history, compiled.history)


def test_windows_pass_through_compiled_layers_alone(calls: list[str]) -> None:
    context = make_context("bert", **NO_DROPOUT["bert"])
    with_compiler = replace(context, training=context.training.replace(compile=True))
    usual = Retraining(epochs=1).window(context, Window(2, 2), lambda _: None)
    assert not calls
    found = Retraining(epochs=1).window(with_compiler, Window(2, 2), lambda _: None)
    steps = -(-len(context.examples[~context.examples["noisy"]]) // 4)
    assert 0 < len(calls) <= 2 * steps  # layers 2 and 3; the states below are stored
    pd.testing.assert_frame_equal(usual["losses"], found["losses"])


def test_windows_that_are_one_model_are_not_compiled(calls: list[str]) -> None:
    context = make_context("bert", **NO_DROPOUT["bert"])
    context = replace(context, training=context.training.replace(compile=True))
    windows = Window(2, 3), Window(2, 2)
    parts = Retraining(epochs=1, batched=True).group(context, windows, lambda _: None)
    assert not calls
    assert all("one_by_one" not in part for part in parts)


def test_the_layers_are_afterwards_as_before(calls: list[str]) -> None:
    model = tiny_blocks("llama")
    kept = Interceptor.of(model.block(2))
    forward = kept.forward
    with model.compiled():
        assert model.block(1).__dict__["forward"].forward != model.block(1).forward
        assert kept.forward is not forward
    assert "forward" not in vars(model.block(1))
    assert vars(model.block(2))["forward"] is kept
    assert kept.forward == forward


@pytest.mark.parametrize("when", ["at once", "in a step"])
def test_a_compiler_that_fails_is_told_in_one_sentence(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo.exc import TorchDynamoException

    def fail(*_args: Any, **_settings: Any) -> Any:
        raise TorchDynamoException("No working C++ compiler found\n\nSet TORCHDYNAMO_VERBOSE=1")

    monkeypatch.setattr(torch, "compile", fail if when == "at once" else lambda _forward: fail)
    model = tiny_blocks("bert")
    with pytest.raises(ModelError) as caught:
        trained(model, compile=True)
    assert str(caught.value) == (
        "training.compile True is not possible: the layers of BertForSequenceClassification "
        "cannot be compiled (No working C++ compiler found); leave it out"
    )
    assert "forward" not in vars(model.block(1))


def test_keys_mention_it_only_if_it_is_on() -> None:
    usual = Training().identity()
    assert "compile" not in usual
    assert "compile" not in Training().identity("frozen")
    assert Training(compile=True).identity() == usual | {"compile": True}
    assert Training(**Training(compile=True).identity()).compile


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["bert", "llama"])
def test_compiled_layers_have_the_losses_of_those_that_are_not(architecture: str) -> None:
    changes = NO_DROPOUT.get(architecture, {})
    usual, compiled = (
        trained(tiny_blocks(architecture, **changes), compile=wanted).history
        for wanted in (False, True)
    )
    pd.testing.assert_frame_equal(usual, compiled, rtol=1e-4)


@needs_compiler
@pytest.mark.slow
def test_compiled_windows_have_the_losses_of_those_that_are_not() -> None:
    context = make_context("bert", **NO_DROPOUT["bert"])
    compiled = replace(context, training=context.training.replace(compile=True))
    for window in (Window(2, 3), Window(3, 3)):  # the second without compiling anything anew
        usual, found = (
            Retraining(epochs=1).window(c, window, lambda _: None) for c in (context, compiled)
        )
        pd.testing.assert_frame_equal(usual["losses"], found["losses"], rtol=1e-4)
        pd.testing.assert_frame_equal(usual["predictions"], found["predictions"])
