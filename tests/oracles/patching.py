"""Activation patching as it is defined: one example, one layer at a time, on whole models."""

from __future__ import annotations

from typing import Any

import torch


def patched_prediction(
    own: Any, other: Any, stack: str, tokenizer: Any, text: str, layer: int
) -> int:
    """What `own` predicts if the output of a layer (from 1) is that of `other`."""
    inputs = tokenizer([text], return_tensors="pt")
    kept: list[Any] = []

    def keep(_: Any, __: Any, output: Any) -> None:
        kept.append(output)

    def replace(_: Any, __: Any, output: Any) -> Any:
        return kept[0]

    with torch.no_grad():
        if layer:
            handle = other.get_submodule(stack)[layer - 1].register_forward_hook(keep)
            other(**inputs)
            handle.remove()
            handle = own.get_submodule(stack)[layer - 1].register_forward_hook(replace)
        logits = own(**inputs).logits
        if layer:
            handle.remove()
    return int(logits.argmax())
