"""The procedure of the authors' program, step by step, for a BERT and an OPT.

Their heads, their names of parameters, one model per window, one example at a time where they take
one. Where their program has a known defect, this is the mended version: the head of OPT reads the
last real token, never padding; no example is skipped; frozen parameters do not count in the
clipping norm; the state of the last layer is taken before the final norm. What chance decides there
(which clean examples, which batches) is given.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn

Window = tuple[int, ...]
"""Numbers of layers, from 0 as in their program."""


class TheirModel(nn.Module):
    """A base model of transformers under a linear head with a bias.

    The names of its parameters are those of their program: `bert.encoder.layer.0…`,
    `model.decoder.layers.0…` and `classifier`.
    """

    def __init__(self, base: Any, n_labels: int) -> None:
        super().__init__()
        self.kind = base.config.model_type
        self.place = "bert" if self.kind == "bert" else "model"
        self.add_module(self.place, base)
        if self.kind == "bert":
            self.dropout = nn.Dropout(base.config.hidden_dropout_prob)
        self.classifier = nn.Linear(base.config.hidden_size, n_labels)

    @property
    def layers(self) -> Any:
        base: Any = self.get_submodule(self.place)
        return base.encoder.layer if self.kind == "bert" else base.decoder.layers

    def forward(self, **inputs: Tensor) -> Tensor:
        hidden = self.get_submodule(self.place)(**inputs).last_hidden_state
        if self.kind == "bert":
            return self.classifier(self.dropout(hidden[:, 0]))
        logits = self.classifier(hidden)
        return logits[torch.arange(len(logits)), inputs["attention_mask"].sum(dim=1) - 1]


def their_model(classifier: Any) -> TheirModel:
    """The same weights as a classifier of transformers that has one of their heads."""
    base = copy.deepcopy(classifier.base_model)
    model = TheirModel(base, classifier.config.num_labels)
    head = classifier.classifier if model.kind == "bert" else classifier.score
    with torch.no_grad():
        model.classifier.weight.copy_(head.weight)
        model.classifier.bias.copy_(head.bias)
    return model.eval()


class Texts:
    """Their data set: texts with labels, encoded when a batch is asked for."""

    def __init__(self, tokenizer: Any, texts: Sequence[str], labels: Sequence[int]) -> None:
        self.tokenizer, self.texts, self.labels = tokenizer, texts, labels

    def batch(self, rows: Sequence[int]) -> tuple[Any, Tensor]:
        inputs = self.tokenizer(
            [self.texts[row] for row in rows],
            padding="longest",
            truncation=True,
            max_length=512,
            return_tensors="pt",
        )
        return inputs, torch.tensor([self.labels[row] for row in rows])

    def accuracy(self, model: TheirModel, rows: Sequence[int], size: int = 8) -> float:
        model.eval()
        right = 0
        for start in range(0, len(rows), size):
            inputs, labels = self.batch(rows[start : start + size])
            with torch.no_grad():
                right += int((model(**inputs).argmax(dim=-1) == labels).sum())
        return right / len(rows)


def layer_of(name: str) -> int | None:
    """The number of the layer in the name of a parameter."""
    parts = name.split(".")
    return int(parts[3]) if len(parts) > 3 and parts[2] in ("layer", "layers") else None


def their_windows(n_layers: int) -> list[Window]:
    """All runs of consecutive layers."""
    return sorted(
        {
            tuple(range(first, min(first + size, n_layers)))
            for size in range(1, n_layers + 1)
            for first in range(n_layers)
        }
    )


# --- layer swapping ------------------------------------------------------------------------------


def swapping(
    memorised: TheirModel,
    original: TheirModel,
    data: Texts,
    noisy: Sequence[int],
    clean: Sequence[int],
) -> dict[Window, tuple[float, float]]:
    """Accuracy on the noisy and on the clean examples, by window."""
    model, theirs = copy.deepcopy(memorised), original.state_dict()
    found = {}
    for window in their_windows(len(memorised.layers)):
        state = dict(memorised.state_dict())
        for name in state:
            if layer_of(name) in window:
                state[name] = theirs[name]
        model.load_state_dict(state)
        found[window] = data.accuracy(model, noisy), data.accuracy(model, clean)
    return found


# --- forgetting gradients ------------------------------------------------------------------------


def forgetting_gradients(model: TheirModel, data: Texts, rows: Sequence[int]) -> dict[str, Tensor]:
    """By parameter, the mean gradient of the negative NLLLoss, which they take of raw logits."""
    model.eval()
    model.zero_grad()
    sums: dict[str, Tensor] = {}
    for row in rows:
        inputs, label = data.batch([row])
        (-nn.NLLLoss()(model(**inputs), label)).backward()
        for name, parameter in model.named_parameters():
            skipped = any(part in name for part in ("embed", "pooler"))
            if parameter.grad is not None and not skipped:
                sums[name] = sums.get(name, torch.zeros_like(parameter)) + parameter.grad
        model.zero_grad()
    return {name: value / len(rows) for name, value in sums.items()}


def gradient_weights(
    model: TheirModel,
    frozen: TheirModel,
    data: Texts,
    noisy: Sequence[int],
    clean: Sequence[int],
    norm: str = "l1",
) -> list[float]:
    """Their post-processing: minus clean, divided by the frozen model; weights sum to 1."""

    def norms(which: TheirModel) -> dict[int, float]:
        of_noisy = forgetting_gradients(which, data, noisy)
        of_clean = forgetting_gradients(which, data, clean)
        sums: dict[int, float] = defaultdict(float)
        for name, value in of_noisy.items():
            layer = layer_of(name)
            if layer is not None:
                difference = (value - of_clean[name]).double()
                sums[layer] += float((difference ** (2 if norm == "l2" else 1)).abs().sum())
        return {layer: total**0.5 if norm == "l2" else total for layer, total in sums.items()}

    mine, theirs = norms(model), norms(frozen)
    ratios = [mine[layer] / theirs[layer] for layer in sorted(mine)]
    return [ratio / sum(ratios) for ratio in ratios]


# --- centroid analysis ---------------------------------------------------------------------------


def centroid_positions(
    model: TheirModel, data: Texts, original: Sequence[int], noisy: Iterable[int]
) -> dict[tuple[int, int, int], dict[str, dict[int, float]]]:
    """By pair of classes and layer (from 1): positions of class1, class2 and the noisy, by row."""
    wrong, states = set(noisy), _states(model, data)
    found = {}
    for layer in range(1, len(model.layers) + 1):
        for one, two in permutations(range(model.classifier.out_features), 2):
            of_one = _representations(states[layer - 1], data.labels, original, wrong, one, two)
            of_two = _representations(states[layer - 1], data.labels, original, wrong, two, one)
            start = np.mean([v for row, v in of_one.items() if row not in wrong], axis=0)
            end = np.mean([v for row, v in of_two.items() if row not in wrong], axis=0)
            direction = (end - start) / np.linalg.norm(end - start)
            far = float(np.dot(end - start, direction))
            on_line = [
                {row: float(np.dot(v - start, direction)) / far for row, v in group.items()}
                for group in (of_one, of_two)
            ]
            found[one, two, layer] = {
                "class_a": {row: x for row, x in on_line[0].items() if row not in wrong},
                "class_b": {row: x for row, x in on_line[1].items() if row not in wrong},
                "noisy": {row: x for row, x in on_line[0].items() if row in wrong},
            }
    return found


def _representations(
    states: Sequence[np.ndarray],
    labels: Sequence[int],
    original: Sequence[int],
    noisy: set[int],
    focus: int,
    other: int,
) -> dict[int, np.ndarray]:
    """Examples of one class; of the noisy ones among them, those that were of the other class."""
    return {
        row: states[row]
        for row, label in enumerate(labels)
        if label == focus and (row not in noisy or original[row] == other)
    }


def _states(model: TheirModel, data: Texts) -> list[list[np.ndarray]]:
    """By layer and example, the output of the layer for [CLS], or for the last token."""
    model.eval()
    found: list[list[np.ndarray]] = [[] for _ in model.layers]
    position = 0 if model.kind == "bert" else -1

    def keep(number: int) -> Any:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            state = output[0] if isinstance(output, tuple) else output
            found[number].append(state[0, position].double().numpy())

        return hook

    handles = [
        layer.register_forward_hook(keep(number)) for number, layer in enumerate(model.layers)
    ]
    with torch.no_grad():
        for row in range(len(data.texts)):
            model(**data.batch([row])[0])
    for handle in handles:
        handle.remove()
    return found


# --- layer retraining ----------------------------------------------------------------------------


def retrain(
    memorised: TheirModel,
    pretrained: TheirModel,
    window: Window,
    data: Texts,
    epochs: Sequence[Sequence[Sequence[int]]],
    rate: float,
    seed: int,
) -> tuple[TheirModel, list[float]]:
    """The retrained model, and the loss of every step; dropout acts in the whole model.

    Args:
        memorised: θ_M2.
        pretrained: θ_P.
        window: The layers to reset and train.
        data: All examples.
        epochs: Per epoch, the rows of every batch.
        rate: Peak learning rate.
        seed: Of dropout.
    """
    model = copy.deepcopy(pretrained)
    kept = {n: v for n, v in memorised.state_dict().items() if layer_of(n) not in window}
    model.load_state_dict(kept, strict=False)
    learns = [p for n, p in model.named_parameters() if not _is_frozen(n, window)]
    optimizer = torch.optim.AdamW(learns, lr=rate)
    steps = sum(map(len, epochs))
    schedule = transformers.get_scheduler("linear", optimizer, int(0.1 * steps), steps)
    losses = []
    torch.manual_seed(seed)
    for batches in epochs:
        for rows in batches:
            model.train()
            inputs, labels = data.batch(rows)
            loss = nn.functional.cross_entropy(model(**inputs), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(learns, 1.0)
            optimizer.step()
            schedule.step()
            model.zero_grad()
            losses.append(float(loss.detach()))
    return model.eval(), losses


def _is_frozen(name: str, window: Window) -> bool:
    """Head and final norm learn, and the layers of the window; embeddings and pooler do not."""
    layer = layer_of(name)
    if layer is not None:
        return layer not in window
    return not (name.startswith("classifier") or "final_layer_norm" in name)
