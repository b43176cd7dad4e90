"""Layer swapping as defined: build every mixed model, run it plainly, example by example."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch

ATTENTION = {
    **dict.fromkeys(("bert", "roberta", "electra", "deberta-v2", "distilbert"), "attention."),
    **dict.fromkeys(("modernbert", "gpt_neo", "gpt2"), "attn."),
    **dict.fromkeys(("llama", "qwen2", "qwen3", "mistral", "gemma2", "opt"), "self_attn."),
    "gpt_neox": "attention.",
    "bloom": "self_attention.",
    "t5": "layer.0.SelfAttention.",
}
"""Written down by hand, per architecture: how the names of a layer's attention weights begin."""


def part_of_layer(names: Iterable[str], start: str, architecture: str, unit: str) -> list[str]:
    """Those of the names that begin with `start` and belong to the part."""
    whole = [name for name in names if name.startswith(start)]
    if unit == "layer":
        return whole
    attention = start + ATTENTION[architecture]
    return [name for name in whole if name.startswith(attention) == (unit == "attention")]


def mixed_state_dict(
    memorised: Any, original: Any, prefix: str, layers: Iterable[int], unit: str = "layer"
) -> dict[str, Any]:
    """θ_M2's weights with those of the given layers (from 1), or a part, taken from θ_O."""
    mixed = dict(memorised.state_dict())
    theirs = original.state_dict()
    for layer in layers:
        start = f"{prefix}.{layer - 1}."
        names = part_of_layer(mixed, start, memorised.config.model_type, unit)
        assert names, start
        for name in names:
            mixed[name] = theirs[name]
    return mixed


def swap_all_windows_plainly(
    memorised: Any,
    original: Any,
    prefix: str,
    tokenizer: Any,
    texts: list[Any],
    batch: int = 8,
    unit: str = "layer",
) -> dict[tuple[int, int], list[int]]:
    """Predictions per window (first, last); (0, 0) is the unmodified model."""
    n_layers = len(memorised.get_submodule(prefix))
    windows = [(0, 0)] + [(a, b) for a in range(1, n_layers + 1) for b in range(a, n_layers + 1)]
    found = swap_plainly(memorised, original, prefix, tokenizer, texts, windows, batch, unit=unit)
    return {window: logits.argmax(dim=-1).tolist() for window, logits in found.items()}


def swap_plainly(
    memorised: Any,
    original: Any,
    prefix: str,
    tokenizer: Any,
    texts: list[Any],
    windows: Iterable[tuple[int, int]],
    batch: int = 8,
    dtype: torch.dtype | None = None,
    unit: str = "layer",
) -> dict[tuple[int, int], torch.Tensor]:
    """Logits [examples, classes] per window, with matrix products in `dtype` if it is given."""
    model = copy.deepcopy(memorised).eval()
    found: dict[tuple[int, int], torch.Tensor] = {}
    for first, last in windows:
        layers = range(first, last + 1) if first else range(0)
        model.load_state_dict(mixed_state_dict(memorised, original, prefix, layers, unit))
        parts = []
        for start in range(0, len(texts), batch):
            inputs = tokenizer(
                texts[start : start + batch], padding=True, truncation=True, return_tensors="pt"
            )
            with torch.no_grad(), torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
                parts.append(model(**inputs).logits.float())
        found[first, last] = torch.cat(parts)
    return found
