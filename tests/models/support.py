# ruff: noqa: E501 (a page of text)
"""docs/support.md, as found on tiny models: `make support` writes it, a test compares it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
import transformers

from memloc.data.encode import Encoded
from memloc.errors import ModelError
from memloc.models.blocks import BlockModel, mixed_stack
from tests.tiny_models import ARCHITECTURES, T5, UNUSUAL, tiny_model

PAGE = Path(__file__).parents[2] / "docs" / "support.md"
SMALL = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
OTHERS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "t5": ("encoder.block", T5),
    "albert": (None, {**SMALL, "embedding_size": 16}),
    **{name: (one.blocks, one.settings) for name, one in UNUSUAL.items()},
}
"""Architectures that need a word, or are refused: path of the layers, and settings."""
HEADS = {"first": "first token", "last": "last token", "other": "several"}
LAYERS = 3

TEXT = """# Supported models

Written by the tests (`make support`), which compare it with what they find: do not edit.

memloc names no architecture: it finds the stack of layers in any sequence classifier of `transformers`, and examines it when it
loads. These were, as tiny random models, with transformers {version}:

| architecture | layers are in | needs | windows | head reads | swapped equals mixed weights | `--unit` |
| --- | --- | --- | --- | --- | --- | --- |
{rows}

- **needs**: an option that you must give.
- **windows**: *shared* if the model can start from a stored state, bit for bit, so that windows share what they have in common; *one by one*
  otherwise: the same results, slower. Retraining and patching then are slower or not possible, which they say.
- **head reads**: the position from which the class is predicted. Probing needs a single one.
- **swapped equals mixed weights**: the logits with a layer of another model are, bit for bit, those after loading its weights.
- **`--unit`**: whether attention and MLP can be told apart.

The examination is repeated on the longest and the shortest of your texts. BigBird changes its attention for good when it reads a text that is
too short for the sparse one: if all texts are short it is used with full attention, which a run says and records; if all are long, with
sparse attention; if some are short and some long, it is refused, as its answers would depend on their order. Set `attention_type` to
`original_full` in its config then. A model that you have in memory is afterwards what it was.

Any other model: `memloc models check NAME` says what is found in it.
"""


def encoded() -> Encoded:
    rows = [[2, 9, 14, 30, 7, 22, 3], [2, 11, 6, 3]]
    return Encoded([{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in rows], 0)


def batch() -> dict[str, torch.Tensor]:
    return encoded().batch((0, 1))


def row(architecture: str) -> str:
    """What is found in a model of this architecture."""
    path, settings = OTHERS.get(architecture, (None, {}))
    needs = f"`--blocks {path}`" if path else ""
    try:
        own, other = (
            BlockModel(tiny_model(architecture, layers=LAYERS, seed=seed, **settings), path)
            for seed in (0, 1)
        )
    except ModelError as error:
        reason = str(error).split(";")[0]
        return f"| {architecture} | refused: {reason} | | | | | |"
    assert own.n_layers == LAYERS
    for model in (own, other):
        model.examine(encoded())
    cells = [
        architecture,
        f"`{own.stack_path}`",
        needs,
        "shared" if own.can_resume else "one by one",
        HEADS[own.pooling],
        "yes" if swaps_exactly(own, other) else "no",
        "yes" if tells_parts_apart(own, other) else "no",
    ]
    return f"| {' | '.join(cells)} |"


def swaps_exactly(own: BlockModel, other: BlockModel) -> bool:
    """Whether a block of another model acts like its weights in this one."""
    mixed = copy.deepcopy(own)
    mixed.block(2).load_state_dict(other.block(2).state_dict())
    with torch.no_grad(), own.swapped({2: other.block(2)}):
        swapped = own.logits(batch())
    with torch.no_grad():
        return torch.equal(swapped, mixed.logits(batch())) and not torch.equal(
            swapped, own.logits(batch())
        )


def tells_parts_apart(own: BlockModel, other: BlockModel) -> bool:
    """Whether blocks can be made of the attention of one model and the rest of another."""
    if own.unit_problem is not None:
        return False
    parts = mixed_stack(own, other, "attention"), mixed_stack(own, other, "mlp")
    return all(len(stack) == own.n_layers for stack in parts)


def page() -> str:
    """What docs/support.md must say."""
    rows = "\n".join(row(architecture) for architecture in (*ARCHITECTURES, *OTHERS))
    return TEXT.format(rows=rows, version=".".join(transformers.__version__.split(".")[:2]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    PAGE.write_text(page(), encoding="utf-8")
