"""What users have in memory, as memloc takes it: models and tokenisers, and labelled examples.

Models are used where they are, and left as they were. Examples are data frames, datasets or lists.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import nn

from memloc.data.encode import Encoded
from memloc.data.files import ORIGINAL_LABEL_COLUMN, as_flags, labelled_examples, read_table
from memloc.engine.given import adapter_parameters
from memloc.errors import DataError, ModelError, nearest
from memloc.models.blocks import BlockModel
from memloc.models.load import Classifier, check_adapter, codec_of, set_padding
from memloc.models.selftest import Snapshot

if TYPE_CHECKING:
    from datasets import Dataset

Rows: TypeAlias = "Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]"
Data: TypeAlias = "pd.DataFrame | Dataset | Rows | str | Path"
"""A data frame, a `datasets.Dataset`, lists by column name, a list of rows, or a file."""
Values: TypeAlias = "str | Sequence[Any] | np.ndarray | pd.Series[Any]"
"""The name of a column, or its values."""
LOADER = "AutoModelForSequenceClassification"


# --- models and tokenisers ----------------------------------------------------------------------


def unwrap(model: Any, role: str) -> nn.Module:
    """The classifier inside `torch.compile`, data-parallel and `peft` wrappers.

    Adapters of peft stay where they are, inside the layers.

    Raises:
        ModelError: If it is no model, its adapters are not in its layers, or its weights are not
            on one device.
    """
    if not isinstance(model, nn.Module):
        inside = hasattr(model, "model")
        remedy = f"give its .model as {role}" if inside else "load it with " + LOADER
        raise ModelError(
            f"{role} is of type {type(model).__name__}, not a transformers model", remedy=remedy
        )
    wrapper: Any = model
    if hasattr(model, "_orig_mod"):
        return unwrap(wrapper._orig_mod, role)
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrap(model.module, role)
    if hasattr(model, "peft_config") and hasattr(model, "get_base_model"):
        check_adapter(wrapper.active_peft_config, role)
        return unwrap(wrapper.get_base_model(), role)
    devices = {str(p.device) for p in model.parameters()}
    if len(devices) > 1 or "meta" in devices:
        raise ModelError(
            f"the weights of {role} are on {' and '.join(sorted(devices))}; move the whole model "
            "to one device"
        )
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


def open_model(
    model: nn.Module, role: str, tokenizer: Any, blocks: str | None, max_tokens: int
) -> Classifier:
    """A model and its tokeniser, looked at in place; padding ids change, see `restored`.

    Raises:
        ModelError: If it is no classifier, its layers cannot be told apart, or the tokeniser is
            none.
    """
    config: Any = getattr(model, "config", None)
    if config is None or not hasattr(config, "num_labels"):
        raise ModelError(
            f"{role} ({type(model).__name__}) is not a transformers model; load it with {LOADER}"
        )
    if getattr(model, "base_model", None) is model or int(config.num_labels) < 2:
        raise ModelError(
            f"{role} ({type(model).__name__}) does not choose between classes; give a "
            "sequence-classification model with two outputs or more"
        )
    if not callable(tokenizer) or not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise ModelError(
            f"tokenizer is of type {type(tokenizer).__name__}; give the model's tokeniser, from "
            "AutoTokenizer.from_pretrained"
        )
    _ensure_padding(model, tokenizer)
    opened = BlockModel(model, blocks)
    adapters = adapter_parameters(model)
    if adapters:
        # The gradient of a weight under an adapter is that of the merged weight.
        kept = tuple(
            tuple(name for name in names if name not in adapters) for names in opened.groups.blocks
        )
        opened.groups = replace(opened.groups, blocks=kept)
    return Classifier(opened, codec_of(model, tokenizer, max_tokens))


def _ensure_padding(model: nn.Module, tokenizer: Any) -> None:
    """A model that knows no padding token gets the tokeniser's, so that it can be examined."""
    token = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    if getattr(_text_config(model), "pad_token_id", None) is None and token is not None:
        set_padding(model, int(token))


def padding_caution(model: nn.Module, tokenizer: Any) -> str | None:
    """A sentence if model and tokeniser pad with different tokens.

    That alone is no error: what is padding is masked, and the model's token is taken for both
    (`agree_on_padding`). Padding with the end of text, as decoders do, is said nothing about. But
    tokenisers of other models pad with other tokens too.
    """
    config = _text_config(model)
    theirs, ours = (getattr(one, "pad_token_id", None) for one in (config, tokenizer))
    if theirs is None or ours is None or theirs in (ours, tokenizer.eos_token_id):
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
    unknown = tokenizer.unk_token_id
    names = ("bos", "eos", "sep", "pad", "cls")
    special = {getattr(tokenizer, f"{name}_token_id", None) for name in names}
    if unknown is None or unknown in special:  # then it does not tell what is unknown
        return
    tokens = pd.Series([token for row in encoded.rows for token in row["input_ids"]])
    words = tokens[~tokens.isin({*special, *tokenizer.all_special_ids} - {unknown})]
    share = float((words == unknown).mean()) if len(words) else 0.0
    if share > 0.5:
        raise ModelError(
            f"{share:.0%} of the tokens of the texts are unknown to tokenizer "
            f"({tokenizer.unk_token}); give the tokeniser that the model was trained with, and "
            "texts that it knows"
        )


def _text_config(model: nn.Module) -> Any:
    config: Any = getattr(model, "config", None)
    return config.get_text_config() if hasattr(config, "get_text_config") else config


# --- models are left as they were ---------------------------------------------------------------


@contextmanager
def restored(models: Sequence[nn.Module], tokenizer: Any) -> Iterator[None]:
    """Afterwards modules, their attributes, configs, gradients and random states are as before.

    Weights are restored by those who change them (`BlockModel`). Inside, gradients can be taken
    and nothing is cast, whatever surrounds the call.
    """
    snapshots = [Snapshot(model) for model in models]
    parameters = [(p, p.requires_grad, p.grad) for model in models for p in model.parameters()]
    pad_token = getattr(tokenizer, "pad_token", None)
    device = next(models[0].parameters(), torch.empty(0)).device
    # Some models draw from these, or seed them.
    python_state, numpy_state = random.getstate(), np.random.get_state()
    # `fork_rng` forgets the generator of Apple's GPUs.
    mps = torch.mps.get_rng_state() if device.type == "mps" else None
    try:
        with (
            torch.random.fork_rng(),
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast(device.type, enabled=False),
        ):
            yield
    finally:
        for snapshot in snapshots:
            snapshot.restore()
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        for parameter, requires_grad, gradient in parameters:
            parameter.requires_grad_(requires_grad)
            parameter.grad = gradient
        if getattr(tokenizer, "pad_token", None) != pad_token:
            tokenizer.pad_token = pad_token
        if mps is not None:
            torch.mps.set_rng_state(mps)


# --- labelled examples --------------------------------------------------------------------------


def as_frame(data: Any, what: str = "data") -> pd.DataFrame:
    """Cells as Python objects, and None where there is nothing; as `read_table` reads a file.

    Args:
        data: In any of the forms of `Data`.
        what: What to call it in messages.

    Raises:
        DataError: If it is something else, or has no rows.
    """
    if isinstance(data, str | Path):
        return read_table(data)
    if isinstance(data, pd.DataFrame):
        columns: dict[str, Any] = {str(name): cells for name, cells in data.items()}
    elif hasattr(data, "to_pandas") and hasattr(data, "column_names"):  # datasets.Dataset
        columns = {str(name): cells for name, cells in _with_class_names(data).items()}
    elif isinstance(data, Mapping):
        columns = dict(data)
        if any(hasattr(part, "column_names") for part in columns.values()):
            raise DataError(
                f"{what} has several parts ({', '.join(map(str, columns))}); give one of them, "
                f"such as {what}[{next(iter(columns))!r}]"
            )
    elif isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
        columns = dict(pd.DataFrame(list(data), dtype=object))
    else:
        raise DataError(
            f"{what} is of type {type(data).__name__}; give a pandas.DataFrame, a datasets.Dataset,"
            " a dict of lists, a list of dicts, or the path of a file"
        )
    # Column by column, as integers beside missing values would become floats.
    cells = {name: listed(column, f"column {name!r} of {what}") for name, column in columns.items()}
    check_lengths({name: len(column) for name, column in cells.items()})
    if not any(cells.values()):
        raise DataError(f"{what} has no rows; give at least two examples of every class")
    return pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in cells.items()})


def check_lengths(lengths: Mapping[str, int]) -> None:
    """One value per example in every list.

    Raises:
        DataError: Naming the first two that differ.
    """
    first = next(iter(lengths), "")
    for name, length in lengths.items():
        if length != lengths[first]:
            raise DataError(
                f"{name!r} has {length} values but {first!r} has {lengths[first]}; give one of "
                "each per example"
            )


def _with_class_names(dataset: Any) -> pd.DataFrame:
    """A dataset; names of classes stand beside their numbers."""
    frame: pd.DataFrame = dataset.to_pandas()
    names = getattr(dataset.features.get("label"), "names", None)
    if names and "label_name" not in frame.columns and frame["label"].between(0, 2**31).all():
        frame = frame.assign(label_name=[names[number] for number in frame["label"]])
    return frame


def listed(values: Any, role: str) -> list[Any]:
    """Values as Python objects, one per example; None where there is nothing.

    Raises:
        DataError: If it is something else.
    """
    if isinstance(values, str | Mapping | pd.DataFrame) or not isinstance(values, Iterable):
        raise DataError(
            f"{role} is of type {type(values).__name__}; give one value per example, such as a "
            "list or a column of a data frame"
        )
    return [_cell(value) for value in values]


def _cell(value: Any) -> Any:
    if isinstance(value, np.generic) or getattr(value, "numel", lambda: 0)() == 1:  # of torch
        value = value.item()
    missing = pd.isna(value) if pd.api.types.is_scalar(value) else False
    return None if missing else value


def given_examples(
    data: Data,
    text: str | None,
    pair: str | None,
    label: str | None,
    original_label: str | None,
    suspects: Values | None,
) -> pd.DataFrame:
    """Examples of a trained model: example, text, text_pair, label, and original_label or noisy.

    Arguments are names of columns; `suspects` may also be values. Labels are texts or whole
    numbers.

    Raises:
        DataError: If a column is absent, an example is unusable, or nobody or everybody is
            suspected.
    """
    frame = as_frame(data)
    columns = (text, pair, label, original_label)
    if suspects is None:
        examples = labelled_examples(frame, "data", *columns, numbers=True)
        if "original_label" not in examples.columns:
            raise DataError(
                "nothing says which labels are wrong; name the column of correct labels with "
                "original_label, or mark labels that may be wrong with suspects"
            )
        return examples
    if original_label is not None:
        raise DataError(
            "original_label and suspects both say which labels are wrong; give one of them"
        )
    flags = _flags(data, frame, suspects)
    # A column that happens to have this name does not count then.
    unasked = [c for c in frame.columns if c.lower() == ORIGINAL_LABEL_COLUMN and c not in columns]
    examples = labelled_examples(frame.drop(columns=unasked), "data", *columns, numbers=True)
    return examples.assign(noisy=flags)


def _flags(data: Data, frame: pd.DataFrame, suspects: Values) -> np.ndarray:
    """Whether each example is suspected.

    Raises:
        DataError: If that is unknown of one, or if they are of other rows than those of `data`.
    """
    if isinstance(suspects, str):
        if suspects not in frame.columns:
            remedy = nearest(suspects, frame.columns)
            raise DataError(f"data has no column {suspects!r}", remedy=remedy)
        cells = frame[suspects].tolist()
    else:
        cells = listed(suspects, "suspects")
        check_lengths({"data": len(frame), "suspects": len(cells)})
        if (
            isinstance(data, pd.DataFrame)
            and isinstance(suspects, pd.Series)
            and not data.index.equals(suspects.index)
        ):
            raise DataError(
                "suspects has another index than data, and its values would be taken in their "
                "order; give a column of data, or .to_numpy() if the order is right"
            )
    return as_flags(cells, "suspects")
