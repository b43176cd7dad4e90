"""Model directories that are damaged or made to do harm, told apart before they can.

A config is a few numbers, and each of them can ask for more memory than there is: layers are built
one by one, tables in one piece. So the numbers that are repeated are limited, the model is built
without memory first, and its size is compared with the weights that are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForSequenceClassification, PretrainedConfig

from memloc.errors import ModelError
from memloc.models.names import ModelSource

LIMITS = {
    re.compile(r"(.*_)?(layers?|depths?|attention_types)"): 1_000,
    re.compile(r"(.*_)?heads?"): 10_000,
    re.compile(r"num_labels"): 100_000,
}
"""Of numbers in a config that say how often something is made; real models are far below."""
PER_BYTE, SLACK = 4, 2**26
"""Numbers a model may have per byte of its weights (quantised ones have two), and besides: a head,
a pooler, masks."""


def check_config(source: ModelSource, options: dict[str, Any]) -> None:
    """Refuse numbers that no model has, before anything is built from them.

    Raises:
        ModelError: Naming the number.
    """
    raw, _ = PretrainedConfig.get_config_dict(source.location, **options)
    for key, value in _numbers(raw):
        for pattern, limit in LIMITS.items():
            if pattern.fullmatch(key) and value > limit:
                raise ModelError(
                    f"the config of {source.name!r} gives {key} as {value:.6g}, and no model has "
                    f"more than {limit:,}; correct it, or save the model again"
                )


def _numbers(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """All numbers, each with the name it is found under, however deep."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _numbers(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _numbers(inner, key)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield key, value


def check_size(config: Any, source: ModelSource, trust_remote_code: bool) -> None:
    """Refuse a config that describes a far larger model than the weights in the directory.

    Raises:
        ModelError: With both sizes.
    """
    if source.revision is not None:
        return  # from the hub; its weights may not be here yet
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(
            config, trust_remote_code=trust_remote_code
        )
    size = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    weights = sum(
        file.stat().st_size
        for pattern in ("*.safetensors", "*.bin")
        for file in Path(source.location).glob(pattern)
    )
    if size > PER_BYTE * weights + SLACK:
        raise ModelError(
            f"the config of {source.name!r} describes a model of {size:.3g} numbers, but its "
            f"weights have {weights:,} bytes; its config does not fit its weights"
        )


def check_finite(model: nn.Module, name: str) -> None:
    """Refuse weights that are not numbers.

    Raises:
        ModelError: Naming the first.
    """
    for key, tensor in model.named_parameters():
        # A sum needs no memory, and is finite if all are; only a suspect is looked at closely.
        if not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
            raise ModelError(
                f"{key!r} in the weights of {name!r} has NaN or infinite values; the checkpoint is "
                "damaged, so get or save it again"
            )
