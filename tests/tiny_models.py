"""Tiny random classifiers of many architectures, with a real tokeniser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from memloc.data.encode import Encoded, TextCodec, encode
from memloc.models.blocks import BlockModel
from memloc.techniques.base import Context

WORDS = [
    *("the", "a", "film", "was", "good", "bad", "very", "not", "who", "what", "where", "when"),
    *("is", "river", "city", "king", "wrote", "ran", "and", "but", "dull", "bright", "story"),
    *("plot", "actor", "song", "did", "does", "capital", "of", "in", "on", "to", "for", "how"),
    *("many", "years", "old", "tall", "painted"),
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[EOS]"]
VOCABULARY = len(SPECIAL) + len(WORDS)

_WIDTH = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
_ROPE = {**_WIDTH, "num_key_value_heads": 2, "head_dim": 8}

# Settings per architecture; "layers_name" is the one that sets the depth.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "bert": {**_WIDTH},
    "roberta": {**_WIDTH, "max_position_embeddings": 130, "pad_token_id": 0},
    "distilbert": {"dim": 32, "n_heads": 4, "hidden_dim": 48, "layers_name": "n_layers"},
    "electra": {**_WIDTH, "embedding_size": 16},
    "deberta-v2": {
        **_WIDTH,
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
    },
    "modernbert": {**_WIDTH, "global_attn_every_n_layers": 2, "local_attention": 4},
    "opt": {
        "hidden_size": 32,
        "num_attention_heads": 4,
        "ffn_dim": 48,
        "word_embed_proj_dim": 32,
        "max_position_embeddings": 128,
    },
    "gpt_neox": {**_WIDTH, "max_position_embeddings": 128},
    "gpt_neo": {
        "hidden_size": 32,
        "num_heads": 4,
        "intermediate_size": 48,
        "window_size": 4,
        "max_position_embeddings": 128,
        "layers_name": "num_layers",
    },
    "gpt2": {"n_embd": 32, "n_head": 4, "n_positions": 128, "layers_name": "n_layer"},
    "llama": {**_ROPE},
    "qwen2": {**_ROPE},
    "qwen3": {**_ROPE},
    "mistral": {**_ROPE, "sliding_window": 4},
    "gemma2": {**_ROPE, "sliding_window": 4, "query_pre_attn_scalar": 8},
    "bloom": {"hidden_size": 32, "n_head": 4, "layers_name": "n_layer"},
}

FIVE = ("bert", "opt", "gpt_neox", "gpt_neo", "llama")
"""The paper's, and one with rotary positions."""
DIFFERENT = ("bert", "gpt_neox", "llama", "modernbert")
"""An encoder, a decoder with fused weights of attention, one with rotary positions, a late norm."""
T5 = {"layers_name": "num_layers", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4,
      "dropout_rate": 0.0, "decoder_start_token_id": 0}  # fmt: skip
"""An architecture that cannot start from a stored state."""


class Unusual(NamedTuple):
    """An architecture that is unlike the others: its settings, and what is to be expected."""

    settings: dict[str, Any]
    blocks: str | None = None
    refused: str = ""
    """Part of the sentence; empty if it works."""

    @property
    def works(self) -> bool:
        return not self.refused


UNUSUAL = {
    "big_bird": Unusual({**_WIDTH, "block_size": 4, "num_random_blocks": 1, "sep_token_id": 3}),
    "longformer": Unusual({**_WIDTH, "attention_window": 8, "max_position_embeddings": 140}),
    "ibert": Unusual({**_WIDTH, "max_position_embeddings": 140}),
    "openai-gpt": Unusual(
        {"n_embd": 32, "n_head": 4, "n_positions": 128, "layers_name": "n_layer"}
    ),
    "canine": Unusual({**_WIDTH, "num_hash_buckets": 256}, "encoder.layer"),
    "perceiver": Unusual(
        {
            "d_model": 32,
            "num_latents": 8,
            "d_latents": 32,
            "num_blocks": 1,
            "num_self_attention_heads": 4,
            "num_cross_attention_heads": 4,
            "max_position_embeddings": 128,
            "layers_name": "num_self_attends_per_block",
        },
        "encoder.self_attends",
    ),
    "xlnet": Unusual(
        {"d_model": 32, "n_head": 4, "d_inner": 48, "layers_name": "n_layer"},
        refused="the head of XLNetForSequenceClassification reads the last position even if",
    ),
    "reformer": Unusual(
        {
            "attention_head_size": 8,
            "num_attention_heads": 4,
            "hidden_size": 32,
            "feed_forward_size": 48,
            "attn_layers": ["local"] * 3,
            "axial_pos_embds": False,
            "max_position_embeddings": 128,
            "local_attn_chunk_length": 8,
            "is_decoder": False,
        },
        refused="its layers hand on ReformerOutput, not one hidden state",
    ),
}


def unusual_model(architecture: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A random classifier of three layers."""
    settings = {**UNUSUAL[architecture].settings, **changes}
    return tiny_model(architecture, layers=3, seed=seed, **settings)


def each(*architectures: str) -> list[Any]:
    """Parameters of a test: these architectures or all, but only a few different ones are quick."""
    return [
        pytest.param(name, marks=() if name in DIFFERENT else pytest.mark.slow)
        for name in architectures or ARCHITECTURES
    ]


def tiny_tokenizer(words: Sequence[str] = WORDS) -> PreTrainedTokenizerFast:
    """A word-level tokeniser with [CLS] ... [SEP] and a padding token."""
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=128,
    )


def tiny_model(
    architecture: str, layers: int = 4, labels: int = 3, seed: int = 0, **changes: Any
) -> PreTrainedModel:
    """A random classifier. Weights are wide so that predictions differ between models."""
    settings = {**ARCHITECTURES.get(architecture, {}), **changes}
    depth_name = settings.pop("layers_name", "num_hidden_layers")
    settings[depth_name] = layers
    if architecture == "gpt_neo":
        settings["attention_types"] = [[["global", "local"], (layers + 1) // 2]]
        if layers % 2:
            settings["attention_types"] = [[["global"], layers]]
    settings.setdefault("pad_token_id", 0)
    config = AutoConfig.for_model(
        architecture, vocab_size=VOCABULARY, num_labels=labels, bos_token_id=2, eos_token_id=3,
        **settings,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_config(config)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.25)
    return model.eval()


def save_pair(folder: Path, architecture: str, **kwargs: Any) -> tuple[Path, Path]:
    """Two different models of one shape, saved as Hugging Face directories with tokeniser."""
    paths = folder / "memorised", folder / "original"
    for seed, path in enumerate(paths):
        tiny_model(architecture, seed=seed, **kwargs).save_pretrained(path)
        tiny_tokenizer().save_pretrained(path)
    return paths


def tiny_blocks(architecture: str, layers: int = 3, seed: int = 0, **changes: Any) -> BlockModel:
    """The same as a `BlockModel`."""
    if architecture == "t5":
        model = tiny_model("t5", layers=layers, seed=seed, **{**T5, **changes})
        return BlockModel(model, blocks="encoder.block")
    return BlockModel(tiny_model(architecture, layers=layers, seed=seed, **changes))


def two_blocks(architecture: str, layers: int = 3, **changes: Any) -> tuple[BlockModel, ...]:
    """Two different models of one shape."""
    return tuple(tiny_blocks(architecture, layers, seed, **changes) for seed in (0, 1))


def encoded(table: pd.DataFrame | Sequence[str]) -> Encoded:
    """The rows of a table, or texts, as the tiny models read them."""
    rows = table if isinstance(table, pd.DataFrame) else pd.DataFrame({"text": list(table)})
    return encode(rows, TextCodec(tiny_tokenizer(), "|", 0, 128))


def prefix_of(model: BlockModel) -> str:
    """The path of the layers in the whole model."""
    return f"{model.model.base_model_prefix}.{model.stack_path}"


def tiny_context(
    architecture: str,
    layers: int = 3,
    roles: Sequence[str] = ("memorised", "original"),
    n: int = 30,
    changes: dict[str, Any] | None = None,
    **settings: Any,
) -> Context:
    """What a technique may look at: a different random model in every role."""
    from tests.conftest import labelled_rows

    rows = labelled_rows(n)
    rows["noisy"] = rows["label"] != rows["original_label"]
    rows["example"] = np.arange(n) + 100
    models: Any = {
        role: tiny_blocks(architecture, layers, seed, **(changes or {}))
        for seed, role in enumerate(roles)
    }
    return Context.of(rows, encoded(rows), models, **{"seed": 3, **settings})
