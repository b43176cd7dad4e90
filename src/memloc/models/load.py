"""From a name to a classifier that is ready to be taken apart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from memloc.config import ModelConfig
from memloc.errors import ModelError
from memloc.models.blocks import BlockModel
from memloc.models.names import ModelSource


@dataclass(frozen=True)
class TextCodec:
    """A tokeniser and what is needed to use it the same way everywhere."""

    tokenizer: Any
    separator: str
    pad_id: int
    max_tokens: int


@dataclass(frozen=True)
class Classifier:
    """A model taken apart into layers, with its tokeniser."""

    blocks: BlockModel
    codec: TextCodec


def load_classifier(
    source: ModelSource,
    config: ModelConfig,
    *,
    n_labels: int | None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    max_tokens: int = 512,
    labels: tuple[str, ...] | None = None,
) -> Classifier:
    """Load model and tokeniser, agree on padding, and examine the layers.

    Args:
        source: From `resolve`.
        config: How to read it.
        n_labels: Size of a new head (initialised from `seed`); None keeps the head that is stored.
        seed: For the new head.
        device: Where to put the model.
        max_tokens: Upper limit of the input length.
        labels: Class names to store in the config.

    Raises:
        ModelError: If the model cannot be loaded or analysed.
    """
    options: dict[str, Any] = {"trust_remote_code": config.trust_remote_code}
    if source.revision:
        options |= {"revision": source.revision, "local_files_only": source.offline}
    tokenizer = _load_tokenizer(source, options)
    head: dict[str, Any] = {} if n_labels is None else {"num_labels": n_labels}
    if labels is not None:
        head |= {
            "id2label": dict(enumerate(labels)),
            "label2id": {n: i for i, n in enumerate(labels)},
        }
    try:
        # Checkpoints are loaded in float32 even if stored in half precision: fine-tuning needs it.
        with quiet(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model, info = AutoModelForSequenceClassification.from_pretrained(
                source.location,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=n_labels is not None,
                **options,
                **head,
            )
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        if "trust_remote_code" in str(error):
            raise ModelError(
                f"model {source.name!r} brings code of its own, which is run only if you pass "
                "--trust-remote-code"
            ) from None
        raise ModelError(
            f"model {source.name!r} could not be loaded from {source.location!r}: "
            f"{_first_line(error)}"
        ) from None
    if n_labels is None and info["missing_keys"]:
        raise ModelError(
            f"model {source.name!r} has no trained {sorted(info['missing_keys'])[0]!r}; "
            "give a fine-tuned sequence-classification model"
        )
    pad_id = agree_on_padding(model, tokenizer, source.name)
    blocks = BlockModel(model.to(device).eval(), config.blocks)
    codec = TextCodec(
        tokenizer, separator_of(tokenizer, model.config), pad_id,
        min(max_tokens, length_limit(tokenizer, model.config)),
    )  # fmt: skip
    return Classifier(blocks, codec)


def agree_on_padding(model: Any, tokenizer: Any, name: str) -> int:
    """Make tokeniser and config name the same padding token; a missing one becomes EOS.

    If they disagree the model wins: its modules were built with its id.

    Raises:
        ModelError: If there is neither a padding nor an end-of-text token.
    """
    config = model.config.get_text_config()
    if config.pad_token_id is not None and 0 <= config.pad_token_id < config.vocab_size:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(config.pad_token_id)
    elif tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise ModelError(
                f"the tokeniser of {name!r} has neither a padding nor an end-of-text token; "
                "set tokenizer.pad_token and save it again"
            )
        tokenizer.pad_token = tokenizer.eos_token
    config.pad_token_id = tokenizer.pad_token_id
    model.config.pad_token_id = tokenizer.pad_token_id
    return int(tokenizer.pad_token_id)


def separator_of(tokenizer: Any, config: Any) -> str:
    """What stands between two sentences (section 3): SEP; EOS for OPT; otherwise a bar."""
    if tokenizer.sep_token:
        return str(tokenizer.sep_token)
    if config.model_type == "opt":
        return str(tokenizer.eos_token)
    return "|"


def length_limit(tokenizer: Any, config: Any) -> int:
    """The longest input that both tokeniser and position embeddings allow."""
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    if positions is not None and "roberta" in config.model_type:
        positions -= config.pad_token_id + 1  # RoBERTa counts positions from there
    return min(int(tokenizer.model_max_length), positions or 2**30)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the loading reports and bars of transformers, then restore them."""
    verbosity = transformers.logging.get_verbosity()
    bars = transformers.utils.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        if bars:
            transformers.utils.logging.enable_progress_bar()


def _load_tokenizer(source: ModelSource, options: dict[str, Any]) -> Any:
    try:
        with quiet():
            return AutoTokenizer.from_pretrained(source.location, **options)
    except Exception as error:  # the tokenisers raise bare Exceptions on damaged files
        raise ModelError(
            f"the tokeniser of {source.name!r} could not be loaded from {source.location!r}: "
            f"{_first_line(error)}"
        ) from None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")
