"""Is it the tokeniser that the models were trained with?"""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
from torch import nn

from memloc.config import PairFormat
from memloc.data.encode import Encoded, TextCodec
from memloc.errors import MemlocError, ModelError
from memloc.models.blocks import BlockModel
from memloc.models.load import agree_on_padding, length_limit, separator_of, set_padding


def make_codec(tokenizer: Any, model: BlockModel, max_tokens: int) -> TextCodec:
    """The tokeniser, used for this model; sets padding ids, see `untouched`.

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
