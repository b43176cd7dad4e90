"""Tiny random classifiers of many architectures, with a real tokeniser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

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
