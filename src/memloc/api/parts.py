"""The steps of the experiment one by one: flip labels, fine-tune."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from torch import nn

from memloc.api.arguments import COLUMNS, as_arguments, checked_seed, progress_of
from memloc.api.models import (
    check_pairs,
    check_words,
    ensure_padding,
    make_codec,
    open_model,
    unwrap,
)
from memloc.api.restored import own_settings, restored
from memloc.api.tabular import Data, as_frame, listed
from memloc.config import Dtype, PairFormat, Training
from memloc.data import noise as noise_of
from memloc.data.encode import encode
from memloc.data.files import labelled_examples
from memloc.data.task import Task
from memloc.engine.given import class_numbers
from memloc.engine.job import Job
from memloc.errors import DataError, ModelError
from memloc.training import loop
from memloc.training.learners import HeadOnly, WholeModel

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def perturb(labels: Sequence[Any], noise: float = 0.15, seed: int = 1) -> pd.DataFrame:
    """Flip a share of the labels of every class, as `memloc.run` does (section 3 of the paper).

    Args:
        labels: Correct labels: texts or numbers.
        noise: The share of each class.
        seed: Decides who is noisy and what the new labels are.

    Returns:
        One row per example: label, original_label, noisy; with the index of `labels`, if they have
        one.

    Example:
        >>> found = memloc.perturb(["yes", "no"] * 10, noise=0.1)
        >>> int(found["noisy"].sum())
        2

    Raises:
        MemlocError: If the share is impossible, or flips no label at all.
    """
    values = _checked_labels(labels)
    classes = sorted(values.unique().tolist(), key=lambda value: (str(type(value)), value))
    if len(classes) < 2:
        raise DataError(f"{len(classes)} class is not enough to flip labels; give two or more")
    numbers = values.map({value: index for index, value in enumerate(classes)}).astype("int64")
    train = pd.DataFrame({"label": numbers})
    task = Task("labels", "own", tuple(map(str, classes)), train, train.iloc[:0])
    found = noise_of.perturb(task, noise, checked_seed(seed)).train
    for column in ("label", "original_label"):
        found[column] = pd.Series([classes[number] for number in found[column]])
    if isinstance(labels, pd.Series):  # so that columns put back into its table stay in their rows
        found.index = labels.index
    return found[["label", "original_label", "noisy"]]


def fine_tune(
    model: nn.Module,
    *,
    tokenizer: PreTrainedTokenizerBase,
    data: Data,
    text: str | None = "text",
    pair: str | None = None,
    label: str | None = "label",
    epochs: int = 50,
    learning_rate: float = 1e-5,
    batch_size: int = 8,
    micro_batch_size: int | None = None,
    max_tokens: int = 512,
    dtype: Dtype = "float32",
    pairs: PairFormat = "joined",
    head_only: bool = False,
    blocks: str | None = None,
    seed: int = 1,
    progress: bool = False,
) -> pd.DataFrame:
    """Train a classifier in place, as `memloc.run` does (appendix D of the paper).

    AdamW, linear schedule with warm-up, gradients clipped; input embeddings stay frozen. Mode and
    `requires_grad` are afterwards as before.

    Args:
        model: A `transformers` sequence classifier; its weights change.
        tokenizer: Its tokeniser.
        data: As for `memloc.localise`.
        text: Column with the text.
        pair: Column with a second text.
        label: Column with the label: names (texts) or numbers of the model's classes.
        epochs: Passes over the data.
        learning_rate: Peak learning rate.
        batch_size: Examples per step.
        micro_batch_size: Accumulate gradients in parts of this size.
        max_tokens: Longer texts are cut.
        dtype: Of matrix products.
        pairs: How two texts are encoded.
        head_only: Train nothing but the head.
        blocks: Path of the layer stack, if it is ambiguous.
        seed: Decides the order of the examples and dropout.
        progress: Show how far it is.

    Example:
        >>> history = memloc.fine_tune(model_p, tokenizer=tok, data=df, epochs=2)
        >>> history.columns.tolist()
        ['epoch', 'loss', 'accuracy', 'macro_f1']

    Returns:
        One row per epoch: epoch, loss, accuracy, macro_f1 on the training examples.

    Raises:
        MemlocError: If model and data do not fit, or the loss is not a number.
    """
    with as_arguments(COLUMNS):
        seed = checked_seed(seed)
        check_pairs(pairs)
        config = Training.make(
            epochs=epochs,
            learning_rate=learning_rate,
            batch_size=batch_size,
            micro_batch_size=micro_batch_size,
            max_tokens=max_tokens,
            dtype=dtype,
        )
        examples = labelled_examples(as_frame(data), "data", text, pair, label, numbers=True)
        inner = unwrap(model, "model")
        frozen = [name for name, p in inner.named_parameters() if not p.requires_grad]
        if frozen:
            raise ModelError(
                f"{len(frozen)} parameters of the model are frozen ({frozen[0]} is one), and "
                "fine_tune would train them; merge adapters, or set requires_grad, before"
            )
        device = next(inner.parameters()).device
        with restored([inner], tokenizer), own_settings(device):
            ensure_padding(inner, tokenizer)
            opened = open_model(inner, "model", blocks)
            codec = make_codec(tokenizer, opened, max_tokens)
            numbers = class_numbers(examples["label"], opened, "label", "data")
            encoded = encode(examples, codec, pairs)
            check_words(encoded, tokenizer)
            nothing = encode(examples.iloc[:0], codec, pairs)
            learner = (HeadOnly if head_only else WholeModel)(opened, encoded, nothing)
            nobody = np.zeros(len(numbers), dtype=bool)
            target = loop.TrainingData(numbers, nobody, np.empty(0, dtype=np.int64))
            shown, job = progress_of(progress), Job("train", "fine-tuning", {})
            with shown.showing([job]):
                shown.start(job)
                trained = loop.fine_tune(
                    learner, target, config, seed, lambda done: shown.advance(job, done)
                )
                shown.finish(job)
    history = trained.history
    return history[history["split"] == "train"].drop(columns="split").reset_index(drop=True)


def _checked_labels(labels: Any) -> pd.Series[Any]:
    values = pd.Series(listed(labels, "labels"))
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, str | Number):
            raise DataError(
                f"label {row} (they count from 0) is {value!r:.40}; give a text or a number for "
                "every example"
            )
    if values.isna().any():
        row = int(np.flatnonzero(values.isna())[0])
        raise DataError(f"label {row} (they count from 0) is missing; give every example a label")
    return values
