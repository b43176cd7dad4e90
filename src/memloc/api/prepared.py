"""Models in memory and their data, checked and ready for techniques; restored afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from memloc.api.arguments import COLUMNS, checked_seed, group_of, spoken
from memloc.api.models import (
    adapter_parameters,
    check_distinct,
    check_fit,
    class_names,
    dtype_of,
    load_pretrained,
    open_model,
    unwrap,
)
from memloc.api.tabular import Data, Values, given_examples
from memloc.api.tokenisers import (
    check_pairs,
    check_words,
    ensure_padding,
    make_codec,
    padding_caution,
)
from memloc.api.untouched import own_settings, untouched
from memloc.config import Engine, PairFormat, Training, Windows
from memloc.data.encode import Encoded, encode
from memloc.engine.given import class_numbers
from memloc.engine.plan import FROZEN_SEED
from memloc.errors import DataError
from memloc.models.blocks import BlockModel
from memloc.models.names import Role, StatesOf
from memloc.models.states import predict_logits, states_of
from memloc.techniques.base import CACHE_MEMORY, Context, TechniqueFailed
from memloc.training.learners import HeadOnly
from memloc.training.loop import TrainingData, fine_tune

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WORDS = {
    "original": "the model of the correct labels (original)",
    "pretrained": "the model before fine-tuning (pretrained)",
    "frozen": "the model before fine-tuning (pretrained)",
}


@contextmanager
def prepare(
    *,
    memorised: nn.Module,
    original: nn.Module | None = None,
    pretrained: nn.Module | str | Path | None = None,
    near_ceiling: nn.Module | None = None,
    tokenizer: PreTrainedTokenizerBase,
    data: Data | None = None,
    text: Values | None = "text",
    pair: Values | None = None,
    label: Values | None = "label",
    original_label: Values | None = None,
    suspects: Values | None = None,
    pairs: PairFormat = "native",
    blocks: str | None = None,
    training: Training | Mapping[str, Any] | None = None,
    windows: Windows | Mapping[str, Any] | None = None,
    seed: int = 1,
    cache_memory: str | int | None = None,
) -> Iterator[Context]:
    """Models and data in the form that techniques take; arguments as for `localise`.

    Inside the ``with`` the models belong to memloc; afterwards they are as they were.

    Example:
        >>> models = {"memorised": model_m, "original": model_o}
        >>> with memloc.prepare(
        ...     **models, tokenizer=tok, data=df, original_label="gold", windows={"sizes": [1]}
        ... ) as context:
        ...     found = memloc.Swapping().localise(context)
        >>> found.windows["size"].tolist()
        [1, 1, 1, 3]

    Raises:
        MemlocError: If models, tokeniser and data do not fit each other.
    """
    with spoken(names=COLUMNS):
        trained = training_of(pretrained, training)
        changed = Windows(**group_of(Windows, windows, "windows"))
        examples = given_examples(data, text, pair, label, original_label, suspects)
        roles = {"memorised": memorised, "original": original, "near_ceiling": near_ceiling}
        with opened(
            roles,
            pretrained,
            tokenizer,
            examples,
            pairs,
            blocks,
            trained,
            seed,
            cache_memory,
            changed,
        ) as found:
            yield found.context


@dataclass(frozen=True)
class Opened:
    """What was found in the models."""

    context: Context
    labels: tuple[str, ...]
    roles: frozenset[str]
    """Of the models there are."""
    memorised: int
    """Noisy examples that θ_M answers with the label it was trained on."""
    pooling: str
    architecture: str
    adapters: bool
    """Whether some adapters are not merged into the weights."""
    precisions: dict[str, torch.dtype]
    """By role."""
    cautions: tuple[str, ...] = ()
    """What may be wrong with the input, in sentences."""

    @property
    def suspected(self) -> bool:
        """Whether labels may be wrong, but correct ones are unknown."""
        return "original_label" not in self.context.examples.columns


def training_of(pretrained: Any, training: Any) -> Training:
    """How windows are retrained and a head is put on θ_P: what suits it, unless it was given."""
    from memloc.models.names import known_training

    known = known_training(str(pretrained)) if isinstance(pretrained, str | Path) else {}
    return Training(**{**known, **group_of(Training, training, "training")})


@contextmanager
def opened(
    models: dict[str, Any],
    pretrained: Any,
    tokenizer: Any,
    examples: pd.DataFrame,
    pairs: PairFormat,
    blocks: str | None,
    training: Training,
    seed: int,
    cache_memory: str | int | None,
    windows: Windows | None = None,
) -> Iterator[Opened]:
    """Open the models and check everything; all is restored at the end, also after Ctrl-C.

    Args:
        models: memorised, original and near_ceiling; None where there is none.
        pretrained: θ_P, its name, or None.
        tokenizer: Of all models.
        examples: From `given_examples`.
        pairs: How two texts are encoded.
        blocks: Path of the layer stack.
        training: Settings.
        seed: For clean examples to compare with, and for retraining.
        cache_memory: Upper limit of states that are kept in memory.
        windows: Which windows of layers are changed.
    """
    memory = Engine(cache_memory=cache_memory).cache_memory
    memory, seed = CACHE_MEMORY if memory is None else memory, checked_seed(seed)
    check_pairs(pairs)
    found = {
        role: unwrap(model, role)
        for role, model in models.items()
        if model is not None or role == "memorised"
    }
    by_name = isinstance(pretrained, str | Path)
    if pretrained is not None and not by_name:
        found["pretrained"] = unwrap(pretrained, "pretrained")
    check_distinct(found)
    caution = padding_caution(found["memorised"], tokenizer)
    with ExitStack() as undo:
        undo.enter_context(untouched(list(found.values()), tokenizer))
        device = next(found["memorised"].parameters(), torch.empty(0)).device
        undo.enter_context(own_settings(device))
        for model in found.values():
            ensure_padding(model, tokenizer)
        own = open_model(found["memorised"], "memorised", blocks)
        codec = make_codec(tokenizer, own, training.max_tokens)
        layers: dict[str, BlockModel] = {"memorised": own}
        for role, model in found.items():
            if role != "memorised":
                layers[role] = open_model(model, role, blocks)
                make_codec(tokenizer, layers[role], training.max_tokens)
        if by_name:
            layers["pretrained"] = load_pretrained(
                pretrained, len(class_names(own)), blocks, device, training.max_tokens
            )
            make_codec(tokenizer, layers["pretrained"], training.max_tokens)
        for role, other in layers.items():
            if role != "memorised":
                check_fit(own, other, role, same_classes=role != "pretrained")
        labels = class_names(own)
        examples = number_labels(examples, own)
        encoded = encode(examples, codec, pairs)
        check_words(encoded, tokenizer)
        examples, memorised = _answers(examples, encoded, layers, labels)
        roles = frozenset({*layers, *({"frozen"} if "pretrained" in layers else ())})
        context = _context(layers, examples, encoded, training, seed, memory, windows, undo)
        yield Opened(
            context,
            tuple(labels),
            roles,
            memorised,
            own.pooling,
            type(own.model).__name__,
            any(adapter_parameters(model.model) for model in layers.values()),
            {role: dtype_of(model) for role, model in layers.items()},
            () if caution is None else (caution,),
        )


def number_labels(examples: pd.DataFrame, model: BlockModel) -> pd.DataFrame:
    """Labels as the model's class numbers; `noisy` where they differ from the original ones.

    Raises:
        DataError: If the model has no such class, or no label is wrong, or every one.
    """
    numbered = examples.copy()
    for column in ("label", "original_label"):
        if column in examples.columns:
            numbered[column] = class_numbers(examples[column], model, column, "data")
    if "noisy" not in numbered.columns:
        noisy = numbered["label"] != numbered["original_label"]
        if not noisy.any():
            raise DataError(
                "no label differs from its original label, so there is nothing to localise; "
                "label must hold the labels that memorised was trained on"
            )
        if noisy.all():
            raise DataError(
                f"all {len(noisy)} labels differ from their original labels; clean ones are needed "
                "to compare with, so check original_label"
            )
        numbered["noisy"] = noisy
    return numbered


def _answers(
    examples: pd.DataFrame,
    encoded: Encoded,
    layers: dict[str, BlockModel],
    labels: list[str],
) -> tuple[pd.DataFrame, int]:
    """How much is memorised; and what θ_O answers, where correct labels are unknown."""
    rows = np.flatnonzero(examples["noisy"].to_numpy())
    noisy = Encoded([encoded.rows[row] for row in rows], encoded.pad_id)
    known = predict_logits(layers["memorised"], noisy).argmax(axis=1)
    memorised = int((known == examples["label"].to_numpy()[rows]).sum())
    if "original_label" not in examples.columns and "original" in layers:
        answers = predict_logits(layers["original"], noisy).argmax(axis=1)
        column = pd.Series([None] * len(examples), dtype=object)
        column.iloc[rows] = [labels[answer] for answer in answers]
        examples = examples.assign(original_answer=column)
    return examples, memorised


def _context(
    layers: dict[str, BlockModel],
    examples: pd.DataFrame,
    encoded: Encoded,
    training: Training,
    seed: int,
    memory: int,
    windows: Windows | None,
    undo: ExitStack,
) -> Context:
    layers = {"near_ceiling": layers["memorised"], **layers}

    @cache
    def frozen() -> BlockModel:
        """θ_P whose head has learned the labels; the head gets its weights back at the end."""
        model = model_of("pretrained")
        undo.enter_context(model.preserved(model.groups.head))
        labels, noisy = (examples[c].to_numpy(copy=True) for c in ("label", "noisy"))
        nothing = Encoded([], encoded.pad_id)
        target = TrainingData(labels, noisy, np.empty(0, dtype=np.int64))
        fine_tune(HeadOnly(model, encoded, nothing), target, training, FROZEN_SEED)
        return model

    def model_of(role: Role) -> BlockModel:
        if role == "frozen":
            return frozen()
        if role not in layers:
            raise TechniqueFailed(f"this needs {WORDS[role]}, which was not given")
        return layers[role]

    @cache
    def states(of: StatesOf) -> Tensor:
        return states_of(of, model_of, encoded)

    return Context(
        examples,
        lambda: encoded,
        model_of,
        states,
        layers["memorised"].n_layers,
        seed=seed,
        training=training,
        windows=windows or Windows(),
        cache_memory=memory,
        has_original="original" in layers,
    )
