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
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from pathlib import Path
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


class Checkpoints:
    """Their files: the pre-trained model, and the weights of those that were fine-tuned.

    They read them again for every window that they retrain, and in the centroid analysis for every
    pair of classes and every layer.
    """

    def __init__(self, folder: Path, pretrained: TheirModel, **trained: TheirModel) -> None:
        self.folder, self.n_labels = folder, pretrained.classifier.out_features
        base: Any = pretrained.get_submodule(pretrained.place)
        self.base = type(base)
        # The head of BERT does not look at the pooler.
        self.options = {"add_pooling_layer": False} if pretrained.kind == "bert" else {}
        base.save_pretrained(folder / "pretrained")
        for name, model in trained.items():
            torch.save(model.state_dict(), folder / f"{name}.pt")

    def load(self, name: str, without: Window = ()) -> TheirModel:
        """A fine-tuned model; the layers in `without` stay pre-trained."""
        model = TheirModel(
            self.base.from_pretrained(self.folder / "pretrained", **self.options), self.n_labels
        )
        state = self.weights(name)
        kept = {key: value for key, value in state.items() if layer_of(key) not in without}
        model.load_state_dict(kept, strict=False)
        return model.eval()

    def weights(self, name: str) -> dict[str, Tensor]:
        return torch.load(self.folder / f"{name}.pt", weights_only=True)


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
    model, windows = copy.deepcopy(memorised), their_windows(len(memorised.layers))
    return {
        window: swap_window(model, memorised, original, window, data, noisy, clean)
        for window in windows
    }


def swap_window(
    model: TheirModel,
    memorised: TheirModel,
    original: TheirModel,
    window: Window,
    data: Texts,
    noisy: Sequence[int],
    clean: Sequence[int],
) -> tuple[float, float]:
    """Accuracy on the noisy and on the clean examples; `model` is what the weights are put into."""
    model.load_state_dict(mixed(memorised.state_dict(), original.state_dict(), window))
    return data.accuracy(model, noisy), data.accuracy(model, clean)


def mixed(mine: dict[str, Tensor], theirs: dict[str, Tensor], window: Window) -> dict[str, Tensor]:
    """The weights of one model, with some layers of another."""
    return {n: theirs[n] if layer_of(n) in window else value for n, value in mine.items()}


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


Positions = dict[str, dict[int, float]]
"""Of class_a, class_b and the noisy examples, by row."""


def centroid_positions(
    model: TheirModel, data: Texts, original: Sequence[int], noisy: Iterable[int]
) -> dict[tuple[int, int, int], Positions]:
    """By pair of classes and layer (from 1)."""
    wrong, states = set(noisy), states_of(model, data, range(len(data.texts)))
    found = {}
    for layer in range(1, len(model.layers) + 1):
        for one, two in permutations(range(model.classifier.out_features), 2):
            groups = [
                {row: states[row][layer] for row in of_class(data.labels, original, wrong, *pair)}
                for pair in ((one, two), (two, one))
            ]
            found[one, two, layer] = on_the_line(*groups, wrong)
    return found


def positions_of_pair(
    model: TheirModel,
    data: Texts,
    original: Sequence[int],
    noisy: Iterable[int],
    pair: tuple[int, int],
    layer: int,
) -> Positions:
    """One pair in one layer, for which they encode the examples of both classes again."""
    wrong, groups = set(noisy), []
    for focus, other in (pair, pair[::-1]):
        states = states_of(model, data, of_class(data.labels, original, wrong, focus, other))
        groups.append({row: state[layer] for row, state in states.items()})
    return on_the_line(*groups, wrong)


def of_class(
    labels: Sequence[int], original: Sequence[int], noisy: set[int], focus: int, other: int
) -> list[int]:
    """Examples of one class; of the noisy ones among them, those that were of the other class."""
    return [
        row
        for row, label in enumerate(labels)
        if label == focus and (row not in noisy or original[row] == other)
    ]


def on_the_line(
    of_one: dict[int, np.ndarray], of_two: dict[int, np.ndarray], noisy: set[int]
) -> Positions:
    """Where examples are on the line from the clean mean of one class to that of the other."""
    start = np.mean([v for row, v in of_one.items() if row not in noisy], axis=0)
    end = np.mean([v for row, v in of_two.items() if row not in noisy], axis=0)
    direction = (end - start) / np.linalg.norm(end - start)
    far = float(np.dot(end - start, direction))
    one, two = (
        {row: float(np.dot(v - start, direction)) / far for row, v in group.items()}
        for group in (of_one, of_two)
    )
    return {
        "class_a": {row: x for row, x in one.items() if row not in noisy},
        "class_b": {row: x for row, x in two.items() if row not in noisy},
        "noisy": {row: x for row, x in one.items() if row in noisy},
    }


def states_of(model: TheirModel, data: Texts, rows: Iterable[int]) -> dict[int, list[np.ndarray]]:
    """By row, the state of [CLS], or of the last token, before and after every layer.

    One example at a time, with a whole pass each.
    """
    model.eval()
    found: list[np.ndarray] = []
    position = 0 if model.kind == "bert" else -1

    def keep(state: Tensor) -> None:
        found.append(state[0, position].double().numpy())

    def before(_: Any, args: Any, kwargs: Any) -> None:
        keep(args[0] if args else kwargs["hidden_states"])

    def after(_: Any, __: Any, output: Any) -> None:
        keep(output[0] if isinstance(output, tuple) else output)

    handles = [model.layers[0].register_forward_pre_hook(before, with_kwargs=True)]
    handles += [layer.register_forward_hook(after) for layer in model.layers]
    states = {}
    with torch.no_grad():
        for row in rows:
            found = []
            model(**data.batch([row])[0])
            states[row] = found
    for handle in handles:
        handle.remove()
    return states


# --- fine-tuning and layer retraining ------------------------------------------------------------

Evaluation = tuple["Texts", Sequence[int], int]
"""Data, rows, and examples per batch."""


def train(
    model: TheirModel,
    closed: Callable[[str], bool],
    data: Texts,
    epochs: Sequence[Sequence[Sequence[int]]],
    rate: float,
    evaluations: Sequence[Evaluation] = (),
) -> list[float]:
    """Train a model in place, with dropout in all of it; the loss of every step.

    Gradients go through the whole model in every step, whatever is frozen.

    Args:
        model: The model.
        closed: Whether a parameter of this name is frozen.
        data: All examples.
        epochs: Per epoch, the rows of every batch.
        rate: Peak learning rate.
        evaluations: What the model is evaluated on after every epoch.
    """
    learns = [p for n, p in model.named_parameters() if not closed(n)]
    optimizer = torch.optim.AdamW(learns, lr=rate)
    steps = sum(map(len, epochs))
    schedule = transformers.get_scheduler("linear", optimizer, int(0.1 * steps), steps)
    losses = []
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
        for texts, rows, size in evaluations:
            texts.accuracy(model, rows, size)
    model.eval()
    return losses


def retrain(
    memorised: TheirModel,
    pretrained: TheirModel,
    window: Window,
    data: Texts,
    epochs: Sequence[Sequence[Sequence[int]]],
    rate: float,
    seed: int,
) -> tuple[TheirModel, list[float]]:
    """The retrained model, and the loss of every step.

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
    torch.manual_seed(seed)
    return model, train(model, lambda name: outside(name, window), data, epochs, rate)


def outside(name: str, window: Window) -> bool:
    """Head and final norm learn, and the layers of the window; embeddings and pooler do not."""
    layer = layer_of(name)
    if layer is not None:
        return layer not in window
    return not (name.startswith("classifier") or "final_layer_norm" in name)
