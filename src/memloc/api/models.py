"""Models and tokenisers in memory: found inside their wrappers, opened as they are, compared."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import nn

from memloc.config import Model, PairFormat
from memloc.data.encode import Encoded, TextCodec
from memloc.engine.given import CLASSES, check_fit, comparable
from memloc.engine.plan import FROZEN_SEED
from memloc.errors import MemlocError, ModelError
from memloc.models.blocks import BlockModel
from memloc.models.load import (
    agree_on_padding,
    length_limit,
    load_classifier,
    separator_of,
    set_padding,
)
from memloc.models.names import resolve


def unwrap(model: Any, role: str) -> nn.Module:
    """The classifier inside `torch.compile`, data-parallel and `peft` wrappers.

    Adapters of peft stay where they are, inside the layers.

    Raises:
        ModelError: If it is no model, or its adapters are not in its layers.
    """
    if not isinstance(model, nn.Module):
        hint = f"; give its .model as {role}" if hasattr(model, "model") else ""
        raise ModelError(
            f"{role} is of type {type(model).__name__}, not a transformers model{hint or ''}"
            + ("" if hint else "; load it with AutoModelForSequenceClassification")
        )
    if hasattr(model, "_orig_mod"):
        return unwrap(model._orig_mod, role)
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrap(model.module, role)
    if hasattr(model, "peft_config") and hasattr(model, "get_base_model"):
        active: Any = model.active_peft_config
        if getattr(active, "is_prompt_learning", False):
            raise ModelError(
                f"{role} has learned a prompt ({active.peft_type}), which is not in its layers; "
                "adapters in the layers, such as LoRA, can be analysed"
            )
        wrapper: Any = model
        return unwrap(wrapper.get_base_model(), role)
    return model


def check_distinct(models: Mapping[str, nn.Module]) -> None:
    """No model may have two roles; only θ_M1 may be θ_M, which it is if it is not given.

    Raises:
        ModelError: Naming the first two that are one.
    """
    for (role, model), (other, same) in itertools.combinations(models.items(), 2):
        if model is same and {role, other} != {"memorised", "near_ceiling"}:
            raise ModelError(
                f"{role} and {other} are one and the same model in memory, so nothing tells them "
                f"apart; load {other} separately, or leave it out"
            )


def open_model(model: nn.Module, role: str, blocks: str | None) -> BlockModel:
    """Its layers, looked at in place.

    Raises:
        ModelError: If it is no classifier, or its layers cannot be told apart.
    """
    config: Any = getattr(model, "config", None)
    if config is None or not hasattr(config, "num_labels"):
        raise ModelError(
            f"{role} ({type(model).__name__}) is not a transformers model; load it with "
            "AutoModelForSequenceClassification"
        )
    if getattr(model, "base_model", None) is model or int(config.num_labels) < 2:
        raise ModelError(
            f"{role} ({type(model).__name__}) does not choose between classes; give a "
            "sequence-classification model with two outputs or more"
        )
    devices = {str(p.device) for p in model.parameters()}
    if len(devices) > 1 or "meta" in devices:
        raise ModelError(
            f"the weights of {role} are on {' and '.join(sorted(devices))}; move the whole model "
            "to one device"
        )
    opened = BlockModel(model, blocks)
    adapters = adapter_parameters(model)
    if adapters:
        # The gradient of a weight under an adapter is that of the merged weight.
        kept = tuple(
            tuple(name for name in names if name not in adapters) for names in opened.groups.blocks
        )
        opened.groups = replace(opened.groups, blocks=kept)
    return opened


def adapter_parameters(model: nn.Module) -> set[str]:
    """Names of the parameters of adapters (LoRA, say) that are not merged into the weights."""
    found = set()
    for prefix, module in model.named_modules():
        if hasattr(module, "base_layer") and hasattr(module, "adapter_layer_names"):
            inside = module.named_parameters(prefix)
            found |= {n for n, _ in inside if not n.startswith(f"{prefix}.base_layer.")}
    return found


def dtype_of(model: BlockModel) -> torch.dtype:
    """Of the first layer's weights; adapters may have another."""
    layers = dict(model.model.named_parameters())
    return layers[model.groups.blocks[0][0]].dtype


def check_role(own: BlockModel, other: BlockModel, role: str) -> None:
    """Layers of `other`, called `role`, can take the place of those of `memorised`.

    Raises:
        ModelError: Naming the first difference.
    """
    mine, theirs = comparable(own), comparable(other)
    shared = mine.keys() & theirs.keys()  # adapters and what they wrap have other names
    mine, theirs = ({k: v for k, v in facts.items() if k in shared} for facts in (mine, theirs))
    mine["device"], theirs["device"] = own.device, other.device
    if role == "pretrained":  # it has a head of its own, and may be in another precision
        theirs[CLASSES] = mine[CLASSES]
    else:
        mine["precision"], theirs["precision"] = dtype_of(own), dtype_of(other)
    check_fit(mine, theirs, "memorised", role)


def load_pretrained(
    name: str | Path, classes: int, blocks: str | None, device: torch.device, max_tokens: int
) -> BlockModel:
    """θ_P by its name or folder, with a new head, in float32.

    Raises:
        ModelError: If it cannot be loaded.
    """
    config = Model(name=str(name), blocks=blocks)
    return load_classifier(
        resolve(config),
        config,
        n_labels=classes,
        seed=FROZEN_SEED,
        device=device,
        max_tokens=max_tokens,
    ).blocks


def make_codec(tokenizer: Any, model: BlockModel, max_tokens: int) -> TextCodec:
    """The tokeniser, used for this model; sets padding ids, see `restored`.

    Raises:
        ModelError: If it is no tokeniser, or has no token to pad with.
    """
    if not callable(tokenizer) or not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise ModelError(
            f"tokenizer is of type {type(tokenizer).__name__}; give the model's tokeniser, from "
            "AutoTokenizer.from_pretrained"
        )
    whole: Any = model.model
    pad_id = agree_on_padding(whole, tokenizer, "tokenizer")
    return TextCodec(
        tokenizer,
        separator_of(tokenizer, whole.config),
        pad_id,
        min(max_tokens, length_limit(tokenizer, whole)),
        whole.get_input_embeddings().weight.shape[0],
    )


def ensure_padding(model: nn.Module, tokenizer: Any) -> None:
    """A model that knows no padding token gets the tokeniser's, so that it can be examined."""
    config = _text_config(model)
    token = getattr(tokenizer, "pad_token_id", None)
    if token is None:
        token = getattr(tokenizer, "eos_token_id", None)
    if config is not None and getattr(config, "pad_token_id", None) is None and token is not None:
        set_padding(model, int(token))


def padding_caution(model: nn.Module, tokenizer: Any) -> str | None:
    """A sentence if model and tokeniser pad with different tokens.

    That alone is no error: what is padding is masked, and the model's token is taken for both
    (`agree_on_padding`). Padding with the end of text, as decoders do, is said nothing about. But
    tokenisers of other models pad with other tokens too.
    """
    config = _text_config(model)
    theirs, ours = getattr(config, "pad_token_id", None), getattr(tokenizer, "pad_token_id", None)
    if theirs is None or ours is None or theirs in (ours, getattr(tokenizer, "eos_token_id", None)):
        return None
    if not 0 <= theirs < config.vocab_size:  # no token at all, so that the tokeniser's is taken
        return None
    known_as = tokenizer.convert_ids_to_tokens(theirs)
    return (
        f"The config of memorised pads with token {theirs}, tokenizer (which calls that one "
        f"{known_as!r}) with token {ours} ({tokenizer.pad_token!r}); "
        "if the model was trained with another tokeniser, these results mean nothing."
    )


def check_words(encoded: Encoded, tokenizer: Any) -> None:
    """Most of the texts must be known to the tokeniser.

    Raises:
        ModelError: If more than half of their tokens are the one for what is unknown.
    """
    unknown = getattr(tokenizer, "unk_token_id", None)
    special = {
        getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "sep", "pad", "cls")
    }
    if unknown is None or unknown in special:  # then it does not tell what is unknown
        return
    others = [token for token in {*special, *tokenizer.all_special_ids} if token != unknown]
    tokens = np.array([token for row in encoded.rows for token in row["input_ids"]])
    words = tokens[~np.isin(tokens, [token for token in others if token is not None])]
    share = float((words == unknown).mean()) if len(words) else 0.0
    if share > 0.5:
        raise ModelError(
            f"{share:.0%} of the tokens of the texts are unknown to tokenizer "
            f"({tokenizer.unk_token}); give the tokeniser that the model was trained with, and "
            "texts that it knows"
        )


def check_pairs(pairs: Any) -> None:
    """How two texts are encoded.

    Raises:
        MemlocError: If there is no such way.
    """
    ways = get_args(PairFormat)
    if pairs not in ways:
        raise MemlocError(
            f"pairs {pairs!r:.40} is not possible; give {' or '.join(map(repr, ways))}"
        )


def _text_config(model: nn.Module) -> Any:
    config: Any = getattr(model, "config", None)
    return config.get_text_config() if hasattr(config, "get_text_config") else config
