"""Probing as defined: one probe after another, one batch after another, one layer after another."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import f1_score
from torch import nn

Masks = Callable[[int, int], torch.Tensor]


class PlainProbe(NamedTuple):
    """What one probe answers, and how its weights were chosen."""

    predicted: np.ndarray
    """Classes of all examples."""
    validation_f1: float
    epoch: int
    history: list[float]
    """Validation F1 of every epoch that may be chosen."""


def plain_network(initial: dict[str, torch.Tensor]) -> nn.Sequential:
    """The MLP, with given weights; dropout on its input is the caller's."""
    layers = []
    for number in (1, 2, 3):
        weight, bias = initial[f"weight{number}"], initial[f"bias{number}"]
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.load_state_dict({"weight": weight, "bias": bias})
        layers.append(layer)
    return nn.Sequential(layers[0], nn.GELU(), layers[1], nn.GELU(), layers[2])


def standardise_plainly(features: torch.Tensor, train: np.ndarray) -> torch.Tensor:
    """One column after another; those that vary by rounding alone are only centred."""
    columns = features.double().numpy().copy()
    typical = np.sqrt((columns[train] ** 2).mean())
    for column in columns.T:
        deviation = column[train].std()
        column -= column[train].mean()
        if deviation > 1e-5 * typical:
            column /= deviation
    return torch.from_numpy(columns).float()


def probe_plainly(
    features: torch.Tensor,
    labels: np.ndarray,
    n_classes: int,
    train: np.ndarray,
    validation: np.ndarray,
    initial: dict[str, torch.Tensor],
    epochs: Iterable[Sequence[np.ndarray]],
    *,
    class_weights: Any = None,
    macro: bool = False,
    standardise: bool = True,
    first_epoch: int = 26,
    masks: Masks | None = None,
    learning_rate: float = 2e-4,
    weight_decay: float = 1e-5,
) -> PlainProbe:
    """One probe on features [N, d]; every epoch is a list of batches, positions in `train`."""
    if standardise:
        features = standardise_plainly(features, train)
    probe = plain_network(initial)
    weight = None if class_weights is None else torch.tensor(class_weights, dtype=torch.float32)
    criterion = nn.CrossEntropyLoss(weight=weight)
    optimizer = torch.optim.AdamW(probe.parameters(), lr=learning_rate, weight_decay=weight_decay)
    targets = torch.from_numpy(labels)
    average = "binary" if n_classes == 2 and not macro else "macro"

    best, best_epoch, best_weights, history, epoch = 0.0, 0, None, [], 0
    for epoch, batches in enumerate(epochs, 1):
        for batch in batches:
            inputs = features[train[batch]]
            if masks is not None:
                inputs = inputs * masks(*inputs.shape)
            optimizer.zero_grad()
            criterion(probe(inputs), targets[train[batch]]).backward()
            optimizer.step()
        if epoch < first_epoch:
            continue
        with torch.no_grad():
            predicted = probe(features[validation]).argmax(dim=-1).numpy()
        history.append(
            float(f1_score(labels[validation], predicted, average=average, zero_division=0))
        )
        if history[-1] > best:
            best, best_epoch = history[-1], epoch
            best_weights = copy.deepcopy(probe.state_dict())
    if best_weights is not None:
        probe.load_state_dict(best_weights)
    with torch.no_grad():
        predicted = probe(features).argmax(dim=-1).numpy()
    return PlainProbe(predicted, best, best_epoch or epoch, history)


class AuthorsProbe(NamedTuple):
    """What the authors' procedure reports of one probe; epochs are numbered from 0."""

    train_f1: float
    test_f1: float
    noisy_f1: float
    clean_f1: float
    chosen: int | None


def authors_probe(
    states: torch.Tensor,
    labels: np.ndarray,
    noisy: np.ndarray,
    shuffled: np.ndarray,
    initial: dict[str, torch.Tensor],
    chunk_orders: Iterable[Sequence[int]],
    masks: Masks,
    *,
    predict_noise: bool,
    learning_rate: float = 2e-4,
) -> AuthorsProbe:
    """The procedure of the authors' released program on the states of one layer and one seed.

    Raw states; the first 70% of the shuffled examples train, the next 10% select, the rest test.
    Batches are runs of 32 training examples that never change; an epoch takes them in a new order.
    Weights are kept if the epoch's number is above 25, counted from 0, and its validation F1 is
    higher than any before, and than 0; if none is, training simply ends where it ends. Probes for
    noise weigh clean and noisy examples .33 and .67 and score the noisy class, those for classes
    weigh all alike and score by macro F1.

    Args:
        states: [N, d].
        labels: Classes; for noise, 1 for noisy examples.
        noisy: Whether each example is noisy.
        shuffled: All examples in random order.
        initial: The weights that training begins with.
        chunk_orders: In what order each of the 100 epochs takes the batches.
        masks: Factors of dropout for a batch [n, d].
        predict_noise: Whether noise is predicted, or classes.
        learning_rate: Of AdamW.
    """
    n = len(shuffled)
    parts = (
        shuffled[: int(n * 0.7)],
        shuffled[int(n * 0.7) : int(n * 0.8)],
        shuffled[int(n * 0.8) :],
    )
    train, validation, test = parts
    network = plain_network(initial)
    log_softmax = nn.LogSoftmax(dim=-1)
    criterion = nn.NLLLoss(torch.tensor([0.33, 0.67]) if predict_noise else None)
    optimizer = torch.optim.AdamW(network.parameters(), lr=learning_rate, weight_decay=1e-5)

    def score(rows: np.ndarray) -> float:
        with torch.no_grad():
            answers = log_softmax(network(states[rows])).argmax(dim=-1).numpy()
        how = {"pos_label": 1, "average": "binary"} if predict_noise else {"average": "macro"}
        return float(f1_score(labels[rows], answers, zero_division=0, **how))

    best, chosen, kept = 0.0, None, None
    orders = iter(chunk_orders)
    for epoch in range(100):
        for chunk in next(orders):
            rows = train[32 * chunk : 32 * chunk + 32]
            optimizer.zero_grad()
            answers = log_softmax(network(states[rows] * masks(*states[rows].shape)))
            criterion(answers, torch.from_numpy(labels[rows])).backward()
            optimizer.step()
        found = score(validation)
        if epoch > 25 and found > best:
            best, chosen, kept = found, epoch, copy.deepcopy(network.state_dict())
    if kept is not None:
        network.load_state_dict(kept)
    groups = test[noisy[test]], test[~noisy[test]]
    return AuthorsProbe(score(train), score(test), *(score(group) for group in groups), chosen)


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
