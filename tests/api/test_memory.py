"""What `memloc.localise` allocates: activations, but no copies of models.

Measured by the profiler of torch, which sees every tensor that is allocated. The models are much
larger than the states of the few examples.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import memloc
from tests.api.conftest import SETTINGS, UNDIVIDED, clean_rows
from tests.tiny_models import tiny_model, tiny_tokenizer

LAYERS = 3
pytestmark = pytest.mark.slow


def peak_allocation(**given: Any) -> int:
    """Largest number of bytes of tensors that exist at the same time, beyond those before."""
    with torch.autograd.profiler.profile(profile_memory=True, use_kineto=True) as profile:
        memloc.localise(**given)
    events = [e for e in profile.kineto_results.events() if e.name() == "[memory]"]
    assert events
    now = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


def size_of(module: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in module.parameters())


@pytest.fixture(scope="module")
def large() -> dict[str, Any]:
    wide = {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 2}
    models = [tiny_model("bert", layers=LAYERS, seed=seed, **wide) for seed in range(3)]
    data = clean_rows(22)
    data["text"] = [" ".join(text.split()[:2]) for text in data["text"]]
    return {
        "memorised": models[0],
        "original": models[1],
        "pretrained": models[2],
        "tokenizer": tiny_tokenizer(),
        "data": data,
        "label": "gold",
        "suspects": [True, False] * 10 + [False] * 2,
        "explain": False,
        "progress": False,
        "training": {"epochs": 1},
        "windows": {"sizes": [1]},
    }


@pytest.mark.parametrize(
    ("technique", "layers"), [("swapping", 1), ("shapley", 1), ("probing", 1.5)]
)
def test_looking_at_models_copies_none(
    large: dict[str, Any], technique: str, layers: float
) -> None:
    layer = size_of(large["memorised"].bert.encoder.layer[0])
    # Activations, and for probing the probes themselves.
    assert (
        peak_allocation(**large, techniques={technique: SETTINGS.get(technique, {})})
        < layers * layer
    )


def test_gradients_need_the_gradients_of_one_model(large: dict[str, Any]) -> None:
    layers = size_of(large["memorised"].bert.encoder)
    peak = peak_allocation(**large, techniques=UNDIVIDED)
    # Of the clean set, of the noisy set, and their difference; never a copy of the weights.
    assert peak < 3.6 * layers
    assert peak > 2 * layers  # so the measurement sees such things


def test_retraining_copies_only_the_window_that_it_trains(large: dict[str, Any]) -> None:
    layers = size_of(large["memorised"].bert.encoder)
    windows = [large["memorised"].bert.encoder.layer[0]]
    one = size_of(windows[0])
    peak = peak_allocation(**large, techniques={"retraining": {"epochs": 1}})
    # The full window is always tried: copy, gradient, and two moments of the optimiser.
    assert peak < 4.8 * layers
    assert peak > 3 * one
