"""Control training, written plainly: a module with two heads, and gradients thrown away by hand.

All parameters but the embeddings take gradients in every step; those that a task may not change are
set to None before its optimiser steps. Batches are in the order that is given.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch


def train_two_tasks_plainly(
    model: Any,
    second_head: torch.nn.Module,
    prefix: str,
    layers: tuple[int, ...],
    batches: list[tuple[str, dict[str, torch.Tensor], torch.Tensor]],
    rates: dict[str, float],
    weight_decay: float = 0.01,
    clip_norm: float = 1.0,
    warmup: float = 0.1,
) -> dict[str, torch.Tensor]:
    """The weights after all batches.

    Args:
        model: A `BertForSequenceClassification` without dropout; a copy of it is trained.
        second_head: Of the auxiliary task; a copy of it is trained.
        prefix: Path of the layers.
        layers: Those that the main task may change, from 1.
        batches: Task (main, auxiliary), inputs and labels, in order.
        rates: Peak learning rate per task.
        weight_decay: Of AdamW.
        clip_norm: Of the gradient of a step.
        warmup: Share of a task's steps.
    """
    model, second_head = copy.deepcopy(model).train(), copy.deepcopy(second_head).train()
    named = dict(model.named_parameters())
    fixed = {name for name in named if ".embeddings." in name}
    head = {name for name in named if name.startswith("classifier.")}
    hidden = {n for n in named for layer in layers if n.startswith(f"{prefix}.{layer - 1}.")}
    may = {
        "main": [named[name] for name in named if name in head | hidden],
        "auxiliary": [
            *(named[name] for name in named if name not in fixed | head),
            *second_head.parameters(),
        ],
    }
    optimizers = {
        task: torch.optim.AdamW(may[task], lr=rate, weight_decay=weight_decay)
        for task, rate in rates.items()
    }
    totals = {task: sum(one == task for one, _, _ in batches) for task in rates}
    done = dict.fromkeys(rates, 0)
    for task, inputs, labels in batches:
        pooled = model.bert(**inputs).pooler_output
        logits = (model.classifier if task == "main" else second_head)(pooled)
        torch.nn.functional.cross_entropy(logits, labels).backward()
        allowed = {id(parameter) for parameter in may[task]}
        for parameter in _all(model, second_head):
            if id(parameter) not in allowed:
                parameter.grad = None
        torch.nn.utils.clip_grad_norm_(may[task], clip_norm)
        steps, rising = done[task], int(warmup * totals[task])
        share = (
            steps / max(1, rising)
            if steps < rising
            else (totals[task] - steps) / max(1, totals[task] - rising)
        )
        for group in optimizers[task].param_groups:
            group["lr"] = rates[task] * share
        optimizers[task].step()
        done[task] += 1
        for parameter in _all(model, second_head):
            parameter.grad = None
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _all(model: torch.nn.Module, head: torch.nn.Module) -> Iterable[torch.nn.Parameter]:
    return [*model.parameters(), *head.parameters()]
