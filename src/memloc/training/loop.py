"""The one training loop: makes θ_O, θ_M1, θ_M2 and the frozen model (section 3, appendix D).

AdamW, linear schedule with warm-up, gradient norm clipped; input embeddings frozen. The seed
decides the order of the data, the new head and dropout. Frozen means ``requires_grad=False``: such
parameters get no gradient and do not count in the clipping norm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import get_scheduler

from memloc.config import TrainingConfig
from memloc.data.encode import Encoded, training_batches
from memloc.errors import MemlocError
from memloc.models.blocks import BlockModel
from memloc.training.evaluate import autocast, predict_logits, scores
from memloc.training.learners import Learner, Trainee, WholeModel

Weights = dict[str, Tensor]


class TrainingFailed(MemlocError):
    """Training went wrong in a way that more of it would not mend."""


@dataclass
class TrainingData:
    """Labels of the training and validation examples, and which training labels are wrong."""

    labels: np.ndarray
    noisy: np.ndarray
    validation_labels: np.ndarray


@dataclass
class Trained:
    """What training leaves behind. Weights hold only the parameters that were trained."""

    final: Weights
    memorised_at: Weights | None
    memorised_epoch: int | None
    history: pd.DataFrame
    steps: int = 0


def fine_tune(
    learner: Learner,
    data: TrainingData,
    config: TrainingConfig,
    seed: int,
    report: Callable[[float], None] = lambda _: None,
) -> Trained:
    """Train what the learner leaves open and evaluate after every epoch.

    Args:
        learner: The model with its inputs; see `memloc.training.learners`.
        data: What it should answer.
        config: Settings.
        seed: Model seed.
        report: Called with the finished fraction.

    Raises:
        TrainingFailed: If the loss is not a number.
    """
    labels = torch.from_numpy(data.labels).to(learner.device)
    result = Trained({}, None, None, pd.DataFrame())
    rows: list[dict[str, float | int | str]] = []
    for epoch, losses in enumerate(train_epochs(learner, labels, config, seed, report), start=1):
        result.steps += len(losses)
        rows += _evaluate(learner, data, config, epoch)
        accuracy = next(
            float(row["accuracy"])
            for row in rows
            if row["epoch"] == epoch and row["split"] == "train"
        )
        if result.memorised_epoch is None and accuracy > config.memorised_at:
            result.memorised_epoch = epoch
            result.memorised_at = _copy(learner.trainable())
    result.final = _copy(learner.trainable())
    result.history = pd.DataFrame(rows)
    return result


def train_on_part(
    model: BlockModel,
    encoded: Encoded,
    inside: np.ndarray,
    labels: np.ndarray,
    config: TrainingConfig,
    seed: int,
    report: Callable[[float], None] = lambda _: None,
) -> np.ndarray:
    """Fine-tune on some of the examples; the logits of all of them at the end.

    Raises:
        TrainingFailed: If the loss is not a number.
    """
    rows = np.flatnonzero(inside).tolist()
    part = Encoded([encoded.rows[row] for row in rows], encoded.pad_id)
    learner = WholeModel(model, part, Encoded([], encoded.pad_id))
    answers = torch.from_numpy(labels[inside]).to(learner.device)
    for _ in train_epochs(learner, answers, config, seed, report, "--split-rate"):
        pass
    return predict_logits(model, encoded, config.dtype)


def train_epochs(
    learner: Trainee,
    labels: Tensor,
    config: TrainingConfig,
    seed: int,
    report: Callable[[float], None] = lambda _: None,
    remedy: str = "--learning-rate",
) -> Iterator[list[float]]:
    """Train; after each epoch yield the loss of each of its steps.

    What the caller does between two epochs happens in training mode.

    Raises:
        TrainingFailed: If the loss is not a number.
    """
    parameters = list(learner.trainable().values())
    order = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(
        parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    lengths = learner.lengths()
    total = -(-len(lengths) // config.batch_size) * config.epochs
    schedule = get_scheduler("linear", optimizer, int(config.warmup * total), total)
    optimizer.zero_grad()  # a training that failed may have left gradients behind
    steps = 0
    with torch.random.fork_rng(), learner.training_mode():
        torch.manual_seed(seed)
        for epoch in range(1, config.epochs + 1):
            losses = []
            for indices in training_batches(lengths, config.batch_size, order):
                loss = _accumulate(learner, labels, indices, config)
                if not np.isfinite(loss):
                    raise TrainingFailed(
                        f"the loss became {loss} in epoch {epoch} at learning rate "
                        f"{config.learning_rate:g}; lower it with {remedy}"
                    )
                torch.nn.utils.clip_grad_norm_(parameters, config.clip_norm)
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
                losses.append(loss)
                steps += 1
                report(steps / total)
            yield losses


def _accumulate(
    learner: Trainee, labels: Tensor, indices: np.ndarray, config: TrainingConfig
) -> float:
    """Gradient of the mean loss of one batch, in parts that fit the device."""
    part = config.micro_batch_size or len(indices)
    total = 0.0
    for start in range(0, len(indices), part):
        chunk = indices[start : start + part]
        with autocast(learner.device, config.dtype):
            logits = learner.logits(chunk)
        share = len(chunk) / len(indices)
        loss = cross_entropy(logits.float(), labels[torch.from_numpy(chunk)]) * share
        loss.backward()
        total += float(loss.detach())
    return total


def _evaluate(
    learner: Learner, data: TrainingData, config: TrainingConfig, epoch: int
) -> list[dict[str, float | int | str]]:
    train, validation = learner.evaluate(config.dtype)
    if not (np.isfinite(train).all() and np.isfinite(validation).all()):
        raise TrainingFailed(
            f"the model answers with NaN or infinite logits after epoch {epoch} at learning rate "
            f"{config.learning_rate:g}; lower it with --learning-rate"
        )
    splits = {
        "train": (train, data.labels),
        "noisy": (train[data.noisy], data.labels[data.noisy]),
        "clean": (train[~data.noisy], data.labels[~data.noisy]),
        "validation": (validation, data.validation_labels),
    }
    return [
        {"epoch": epoch, "split": split, **scores(logits, labels)}
        for split, (logits, labels) in splits.items()
        if len(labels)
    ]


def _copy(parameters: Mapping[str, Tensor]) -> Weights:
    return {name: parameter.detach().cpu().clone() for name, parameter in parameters.items()}
