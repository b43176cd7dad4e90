"""Probing as defined: one probe after another, one batch after another, one layer after another."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from sklearn.metrics import f1_score
from torch import nn


def probe_plainly(
    features: torch.Tensor,
    labels: np.ndarray,
    n_classes: int,
    train: np.ndarray,
    validation: np.ndarray,
    initial: dict[str, torch.Tensor],
    orders: Iterable[np.ndarray],
    *,
    class_weights: Any = None,
    first_epoch: int = 26,
    dropout: float = 0.1,
    learning_rate: float = 2e-4,
    weight_decay: float = 1e-5,
    batch_size: int = 32,
) -> tuple[np.ndarray, float, int, list[float]]:
    """One probe on features [N, d]: classes of all N, best validation F1, its epoch, all F1s."""
    hidden, d = initial["weight1"].shape
    probe = nn.Sequential(
        nn.Dropout(dropout),
        nn.Linear(d, hidden),
        nn.GELU(),
        nn.Linear(hidden, hidden),
        nn.GELU(),
        nn.Linear(hidden, n_classes),
    )
    with torch.no_grad():
        for number, index in enumerate((1, 3, 5), 1):
            layer = probe[index]
            assert isinstance(layer, nn.Linear)
            layer.weight.copy_(initial[f"weight{number}"])
            layer.bias.copy_(initial[f"bias{number}"])
    weight = None if class_weights is None else torch.tensor(class_weights, dtype=torch.float32)
    criterion = nn.CrossEntropyLoss(weight=weight)
    optimizer = torch.optim.AdamW(probe.parameters(), lr=learning_rate, weight_decay=weight_decay)
    targets = torch.from_numpy(labels)
    average = "binary" if n_classes == 2 else "macro"

    best, best_epoch, best_weights, history = -1.0, 0, probe.state_dict(), []
    for epoch, order in enumerate(orders, 1):
        probe.train()
        for start in range(0, len(order), batch_size):
            indices = train[order[start : start + batch_size]]
            optimizer.zero_grad()
            criterion(probe(features[indices]), targets[indices]).backward()
            optimizer.step()
        if epoch < first_epoch:
            continue
        probe.eval()
        with torch.no_grad():
            predicted = probe(features[validation]).argmax(dim=-1).numpy()
        history.append(
            float(f1_score(labels[validation], predicted, average=average, zero_division=0))
        )
        if history[-1] > best:
            best, best_epoch = history[-1], epoch
            best_weights = copy.deepcopy(probe.state_dict())
    probe.load_state_dict(best_weights)
    probe.eval()
    with torch.no_grad():
        return probe(features).argmax(dim=-1).numpy(), best, best_epoch, history


def hidden_states_plainly(
    model: Any, tokenizer: Any, texts: list[Any], layer: int, stack: str, pooling: str
) -> torch.Tensor:
    """[N, d] state of one layer (0: below the first block) at the first or last position.

    `stack` is the dotted name of the list of blocks. One whole pass per example, so nothing is
    padded; still, as in the models, the last position is that of the last token whose id is not
    the padding id.
    """
    assert pooling in ("first", "last")
    blocks = model.get_submodule(stack)
    rows: list[torch.Tensor] = []
    position = 0

    def keep(state: torch.Tensor) -> None:
        assert state.shape[0] == 1, state.shape
        rows.append(state[0, position].clone())

    def before(_: Any, args: Any, kwargs: Any) -> None:
        keep(args[0] if args else kwargs["hidden_states"])

    def after(_: Any, __: Any, output: Any) -> None:
        keep(output[0] if isinstance(output, tuple) else output)

    if layer == 0:
        hook = blocks[0].register_forward_pre_hook(before, with_kwargs=True)
    else:
        hook = blocks[layer - 1].register_forward_hook(after)
    try:
        model.eval()
        for text in texts:
            inputs = tokenizer([text], truncation=True, return_tensors="pt")
            if pooling == "last":
                real = (inputs["input_ids"][0] != model.config.pad_token_id).nonzero()
                position = int(real[-1])
            with torch.no_grad():
                model(**inputs)
    finally:
        hook.remove()
    return torch.stack(rows)
