"""Analyse models that somebody has already trained (the engine of `memloc localise`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import memloc
from memloc.config import Dtype, ModelConfig
from memloc.data.encode import encode
from memloc.data.files import read_labelled_file
from memloc.errors import DataError, ModelError
from memloc.methods import Context, find_method
from memloc.methods.base import Report
from memloc.models.blocks import BlockModel
from memloc.models.load import Classifier, load_classifier
from memloc.models.names import resolve
from memloc.report.summary import finish, summarise_methods
from memloc.results import with_texts


def localise_folders(
    memorised: ModelConfig,
    original: ModelConfig,
    data: Path,
    methods: tuple[str, ...] = ("swapping",),
    columns: dict[str, str | None] | None = None,
    pretrained: ModelConfig | None = None,
    device: str = "cpu",
    max_tokens: int = 512,
    dtype: Dtype = "float32",
    report: Report = lambda _: None,
) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """Load two fine-tuned classifiers and localise what only the first one stores.

    Args:
        memorised: θ_M, trained on the labels in `data`.
        original: θ_O, trained the same way on the original labels.
        data: File with text, optional text_pair, label (as trained) and original_label.
        methods: Techniques to apply.
        columns: Names of the columns, if they are not the usual ones (see `read_labelled_file`).
        pretrained: θ_P, for techniques that need it.
        device: Where to compute.
        max_tokens: Longer texts are cut.
        dtype: Of the matrix multiplications.
        report: Called with the finished fraction.

    Returns:
        A summary and the tables.

    Raises:
        MemlocError: If the models do not fit each other or the data.
    """
    examples = read_labelled_file(data, **(columns or {}))
    if "original_label" not in examples.columns:
        raise DataError(
            f"{data} has no column with the original labels; name it with --original-label-column"
        )
    first = _load(memorised, device, max_tokens)
    second = _load(original, device, max_tokens)
    check_same_shape(first.blocks, second.blocks, memorised.name, original.name)
    if first.codec.tokenizer.get_vocab() != second.codec.tokenizer.get_vocab():
        raise ModelError(
            f"the tokenisers of {memorised.name!r} and {original.name!r} have different "
            "vocabularies; give two models fine-tuned from the same one"
        )
    if pretrained is not None:
        third = load_classifier(
            resolve(pretrained), pretrained, n_labels=_n_labels(first.blocks), max_tokens=max_tokens
        )
        check_same_shape(
            first.blocks, third.blocks, memorised.name, pretrained.name, compare_names=False
        )
    examples = label_examples(examples, first.blocks, data)
    context = Context(
        examples,
        encode(examples, first.codec, memorised.pair_format),
        first.blocks,
        second.blocks,
        dtype,
    )
    parts: dict[str, list[pd.DataFrame]] = {}
    for index, name in enumerate(methods):
        result = find_method(name).localise(
            context,
            lambda part, index=index: report((index + part) / len(methods)),  # type: ignore[misc]
        )
        for table, rows in result.tables.items():
            parts.setdefault(table, []).append(rows)
    tables = {name: pd.concat(rows, ignore_index=True) for name, rows in parts.items()}
    stored = tables["examples"]
    summary: dict[str, Any] = {
        "memloc": memloc.__version__,
        "model": type(first.blocks.model).__name__,
        "classes": _names(first.blocks),
        "layers": first.blocks.n_layers,
        "examples": len(examples),
        "noisy_examples": int(examples["noisy"].sum()),
        "memorised_examples": int(stored.loc[stored["technique"] == methods[0], "memorised"].sum()),
        "methods": summarise_methods(tables["windows"], stored),
    }
    summary["memorised_share"] = summary["memorised_examples"] / summary["noisy_examples"]
    tables["examples"] = with_texts(stored, examples, summary["classes"])
    finish(summary, tables["examples"])
    return summary, tables


def label_examples(examples: pd.DataFrame, model: BlockModel, data: Path) -> pd.DataFrame:
    """Turn labels as written into the model's class numbers; mark the noisy examples.

    Raises:
        DataError: If the model has no such class, or no label is wrong.
    """
    written = set(examples["label"]) | set(examples["original_label"])
    ids = class_ids(model, written)
    numbered = examples.copy()
    for column in ("label", "original_label"):
        unknown = ~examples[column].isin(list(ids))
        if unknown.any():
            row = int(np.flatnonzero(unknown.to_numpy())[0])
            raise DataError(
                f"{column} {examples[column].iloc[row]!r} in row {row} of {data} (rows count from "
                f"0) is not a class of the model; its classes are: {', '.join(_names(model))}"
            )
        numbered[column] = examples[column].map(ids).astype("int64")
    numbered["noisy"] = numbered["label"] != numbered["original_label"]
    if not numbered["noisy"].any():
        raise DataError(
            f"no label in {data} differs from its original label, so there is nothing to localise; "
            "the column 'label' must hold the labels the model was trained on"
        )
    return numbered


def class_ids(model: BlockModel, written: set[str]) -> dict[str, int]:
    """What stands in a file for each class: the names in the model's config, or else numbers.

    Decided for the whole file: if all labels are names, they are names, even if a name is a number.
    """
    names = {name: index for index, name in enumerate(_names(model))}
    if written <= names.keys():
        return names
    numbers = {str(index): index for index in range(len(names))}
    return numbers if written & numbers.keys() else names


def _names(model: BlockModel) -> list[str]:
    config: Any = model.model.config
    return [str(config.id2label.get(index, index)) for index in range(_n_labels(model))]


def _n_labels(model: BlockModel) -> int:
    config: Any = model.model.config
    return int(config.num_labels)


def check_same_shape(
    one: BlockModel, other: BlockModel, name: str, other_name: str, *, compare_names: bool = True
) -> None:
    """Two models can exchange layers only if all their parameters have the same shape.

    Raises:
        ModelError: Naming the first difference.
    """
    facts: dict[str, tuple[Any, Any]] = {
        "architecture": (type(one.model).__name__, type(other.model).__name__),
        "number of layers": (one.n_layers, other.n_layers),
        "number of classes": (_n_labels(one), _n_labels(other)),
    }
    if compare_names:
        facts["list of class names"] = (_names(one), _names(other))
    shapes = [
        {key: tuple(value.shape) for key, value in m.model.named_parameters()} for m in (one, other)
    ]
    for key in shapes[0] | shapes[1]:
        facts[f"shape of {key}"] = (shapes[0].get(key, "none"), shapes[1].get(key, "none"))
    for what, (mine, theirs) in facts.items():
        if mine != theirs:
            raise ModelError(
                f"the models do not fit each other: {what} is {mine} in {name!r} but {theirs} in "
                f"{other_name!r}; give two models fine-tuned from the same one"
            )


def _load(config: ModelConfig, device: str, max_tokens: int) -> Classifier:
    return load_classifier(
        resolve(config), config, n_labels=None, device=device, max_tokens=max_tokens
    )
