"""Models that a user has in memory: trained once for all tests, which must leave them alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

import memloc
from tests.conftest import make_texts
from tests.tiny_models import WORDS, tiny_model, tiny_tokenizer

LAYERS = 3


def clean_rows(n: int = 60, seed: int = 3) -> pd.DataFrame:
    """Texts whose class depends on their first word."""
    texts = make_texts(n, seed)
    return pd.DataFrame({"text": texts, "gold": [WORDS.index(t.split()[0]) % 3 for t in texts]})


def untrained() -> PreTrainedModel:
    """Without dropout, so that a few epochs are enough to learn everything by heart."""
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return tiny_model("bert", layers=LAYERS, seed=7, **none)


@dataclass(frozen=True)
class Setup:
    memorised: PreTrainedModel
    original: PreTrainedModel
    pretrained: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    data: pd.DataFrame
    """text, gold, label, noisy."""

    @property
    def both(self) -> dict[str, Any]:
        """Arguments of `localise`."""
        return {
            "memorised": self.memorised,
            "original": self.original,
            "tokenizer": self.tokenizer,
            "data": self.data,
            "original_label": "gold",
            "progress": False,
        }


FOUR = ("swapping", "retraining", "gradients", "probing")
SETTINGS = {
    "retraining": {"epochs": 1},
    "probing": {"epochs": 27, "seeds": 1, "least_steps": 0, "fitted_at": 0},
}


def quick(*names: str) -> dict[str, Any]:
    """Arguments with which all techniques together take a second."""
    techniques = {name: SETTINGS.get(name, {}) for name in names}
    return {"techniques": techniques, "training": {"epochs": 2}}


QUICK = quick(*FOUR)
UNDIVIDED = {"gradients": {"divide_by_frozen": False}}
"""Gradients that need no other model."""


@pytest.fixture(scope="session")
def trained() -> Setup:
    torch.set_num_threads(1)
    data = clean_rows()
    flipped = memloc.perturb(data["gold"].tolist(), noise=0.2, seed=1)
    data["label"], data["noisy"] = flipped["label"], flipped["noisy"]
    tokenizer = tiny_tokenizer()
    models = {}
    for name, column in (("memorised", "label"), ("original", "gold")):
        models[name] = untrained()
        history = memloc.fine_tune(
            models[name],
            tokenizer=tokenizer,
            data=data,
            label=column,
            epochs=12,
            learning_rate=1e-3,
        )
        assert history["accuracy"].iloc[-1] > 0.95
    pretrained = untrained()
    return Setup(models["memorised"], models["original"], pretrained, tokenizer, data)
