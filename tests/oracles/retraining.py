"""Layer retraining as in the authors' recipe: the whole model, forward and backward, every step.

Every parameter, embeddings included, requires a gradient; those of frozen parameters are thrown
away before the step (they do not count in the clipping norm). Batches are padded in the order in
which they come. After every epoch, the training set and the noisy set are evaluated.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch

from tests.oracles.swapping import part_of_layer


def retrain_window_plainly(
    memorised: Any,
    pretrained: Any,
    prefix: str,
    window: tuple[int, int],
    tokenizer: Any,
    texts: list[str],
    labels: list[int],
    train: list[int],
    noisy: list[int],
    held_out: list[int],
    also_open: Iterable[str],
    orders: Iterable[list[list[int]]],
    learning_rate: float,
    weight_decay: float = 0.01,
    clip_norm: float = 1.0,
    warmup: float = 0.1,
    dropout: bool = False,
    batch: int = 8,
    unit: str = "layer",
) -> tuple[list[float], list[int]]:
    """Losses of all steps, and the classes predicted for `noisy` and `held_out` at the end.

    Args:
        memorised: θ_M2; a copy of it is trained.
        pretrained: θ_P, of the same shape.
        prefix: Path of the layers.
        window: First and last layer, from 1.
        tokenizer: For the texts.
        texts: All examples.
        labels: Their labels as trained.
        train: The clean examples to learn from.
        noisy: The noisy examples.
        held_out: The clean examples to evaluate on.
        also_open: Names of parameters that learn beside the window.
        orders: Per epoch, batches of positions in `train`.
        learning_rate: Peak.
        weight_decay: Of AdamW.
        clip_norm: Largest gradient norm.
        warmup: Share of the steps.
        dropout: Training mode.
        batch: Examples per evaluation batch.
        unit: What of the layers is reset and learns.
    """
    model = copy.deepcopy(memorised)
    state, fresh = model.state_dict(), pretrained.state_dict()
    open_names = set(also_open)
    for layer in range(window[0], window[1] + 1):
        names = part_of_layer(state, f"{prefix}.{layer - 1}.", model.config.model_type, unit)
        assert names
        state.update({name: fresh[name] for name in names})
        open_names |= set(names)
    model.load_state_dict(state)
    parameters = {n: p for n, p in model.named_parameters() if n in open_names}
    optimizer = torch.optim.AdamW(parameters.values(), lr=learning_rate, weight_decay=weight_decay)
    epochs = list(orders)
    total = sum(len(batches) for batches in epochs)
    rising = int(warmup * total)
    step, losses = 0, []
    for batches in epochs:
        model.train(dropout)
        for positions in batches:
            chosen = [train[position] for position in positions]
            inputs = _inputs(tokenizer, texts, chosen)
            logits = model(**inputs).logits
            wanted = torch.tensor([labels[index] for index in chosen])
            loss = torch.nn.functional.cross_entropy(logits, wanted)
            model.zero_grad()
            loss.backward()
            for name, parameter in model.named_parameters():
                if name not in parameters:
                    parameter.grad = None
            torch.nn.utils.clip_grad_norm_(parameters.values(), clip_norm)
            scale = step / rising if step < rising else (total - step) / max(1, total - rising)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * scale
            optimizer.step()
            losses.append(float(loss.detach()))
            step += 1
        _predict(model, tokenizer, texts, train, batch)
        _predict(model, tokenizer, texts, noisy, batch)
    return losses, _predict(model, tokenizer, texts, [*noisy, *held_out], batch)


def _inputs(tokenizer: Any, texts: list[str], chosen: list[int]) -> Any:
    rows = [texts[index] for index in chosen]
    return tokenizer(rows, padding=True, truncation=True, return_tensors="pt")


def _predict(
    model: Any, tokenizer: Any, texts: list[str], chosen: list[int], batch: int
) -> list[int]:
    model.eval()
    predicted: list[int] = []
    for start in range(0, len(chosen), batch):
        with torch.no_grad():
            logits = model(**_inputs(tokenizer, texts, chosen[start : start + batch])).logits
        predicted += logits.argmax(dim=-1).tolist()
    return predicted
