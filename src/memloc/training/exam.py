"""The exam of a model: are the wrong labels it had memorised gone, or only hidden?

*Suspects* are the noisy examples, *kept* are all other training examples. Shares of suspects:

    given            that the model answers with the label in the data, which is thought wrong
    relearned_kept   the same after one more epoch on kept examples alone
    relearned_tenth  the same, of those that were not shown, after one step of the optimiser on a
                     tenth of the suspects with the labels in the data; mean over several draws
    probe            whose label in the data a probe reads from the states of the best layer,
                     although it was trained without them
    true_accuracy    that the model answers with their correct label, where that is known

and the accuracy on kept and on validation examples. What comes back in a few steps, or can be read
from the states, was hidden, not gone. How much comes back in a model that never saw these labels is
known from the twin, so that the measures only mean something beside those of the twin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from memloc.analysis.correlation import interval_of_share
from memloc.analysis.probes import ENOUGH_FITTED
from memloc.config import Training
from memloc.data.encode import Encoded
from memloc.models.blocks import BlockModel
from memloc.models.states import Report, pooled_states, predict_logits
from memloc.training.learners import Learner
from memloc.training.loop import TrainingFailed, train_on_part
from memloc.training.probes import Split, f1, train_probes
from memloc.training.resume import ResumePoint

if TYPE_CHECKING:
    from memloc.techniques.probing import Probing

FOLDS = 5
"""Probes of a layer: each is tested on another fifth of the suspects."""
DRAWS = 5
"""Tenths of the suspects that are shown again, one after the other."""
LEAST_SUSPECTS = 2 * FOLDS
"""Fewer are too few for probes."""


@dataclass(frozen=True)
class Exam:
    """A model, and what it is asked about.

    Attributes:
        model: Is trained in between, and left as it was.
        train: The training examples.
        validation: The validation examples, perhaps none.
        labels: Of the training examples, as in the data.
        noisy: Which of them are suspects.
        validation_labels: Of the validation examples.
        true_labels: Of the training examples; None if they are not known.
        training: How models are fine-tuned.
        probing: Settings of probes.
        seed: Decides what is drawn, the order of examples and dropout.
    """

    model: BlockModel
    train: Encoded
    validation: Encoded
    labels: np.ndarray
    noisy: np.ndarray
    validation_labels: np.ndarray
    true_labels: np.ndarray | None
    training: Training
    probing: Probing.Config
    seed: int = 0

    def take(
        self, report: Report = lambda _: None, resume: ResumePoint | None = None
    ) -> list[dict[str, Any]]:
        """Rows with measure, value, low, high and examples.

        Args:
            report: Called with the finished fraction.
            resume: Where the state of the longest training is saved.

        Raises:
            TrainingFailed: If the loss or a logit is not a number.
        """
        everyone, suspects = np.arange(len(self.labels)), np.flatnonzero(self.noisy)
        kept = np.flatnonzero(~self.noisy)
        answers = self.answers(self.train, everyone)
        right = answers == self.labels
        on_validation = self.answers(self.validation, np.arange(len(self.validation)))
        found = {
            "given": right[suspects],
            "kept_accuracy": right[kept],
            "validation_accuracy": on_validation == self.validation_labels,
        }
        if self.true_labels is not None:
            found["true_accuracy"] = (answers == self.true_labels)[suspects]
        report(0.1)
        found["probe"] = self.probe(lambda done: report(0.1 + 0.4 * done))
        found["relearned_kept"] = self.after(
            kept, suspects, self.training, 0, lambda done: report(0.5 + 0.2 * done), resume
        )
        found["relearned_tenth"] = self.after_a_tenth(lambda done: report(0.7 + 0.3 * done))
        return [measured(name, shares) for name, shares in found.items()]

    def answers(self, examples: Encoded, rows: np.ndarray) -> np.ndarray:
        """Classes of some examples.

        Raises:
            TrainingFailed: If a logit is not a number.
        """
        logits = predict_logits(self.model, examples, self.training.dtype, rows)
        if not np.isfinite(logits).all():
            raise TrainingFailed("the model answers with NaN or infinite logits")
        found: np.ndarray = logits.argmax(axis=1)
        return found

    def after(
        self,
        rows: np.ndarray,
        asked: np.ndarray,
        config: Training,
        number: int,
        report: Report = lambda _: None,
        resume: ResumePoint | None = None,
    ) -> np.ndarray:
        """Whether examples get the label in the data after one epoch on others, by their rows.

        Args:
            rows: What the model learns from.
            asked: What it is asked.
            config: How it learns.
            number: Makes the order and dropout of one training another than those of the next.
            report: Called with the finished fraction.
            resume: Where the state is saved.
        """
        resume = resume and resume.part(f"relearning-{number}")
        with self.model.preserved(Learner(self.model, self.train).learns_anywhere):
            train_on_part(
                self.model,
                self.train,
                rows,
                self.labels,
                config.replace(epochs=1),
                self.seed + number,
                report,
                resume,
            )
            found: np.ndarray = self.answers(self.train, asked) == self.labels[asked]
        return found

    def after_a_tenth(self, report: Report = lambda _: None) -> np.ndarray:
        """For each suspect that is not in all draws: how often one step on the others is enough."""
        random, suspects = np.random.default_rng(self.seed), np.flatnonzero(self.noisy)
        found = np.full((DRAWS, len(self.labels)), np.nan)
        for draw in range(DRAWS):
            shown = np.sort(random.permutation(suspects)[: max(1, len(suspects) // 10)])
            others = np.setdiff1d(suspects, shown)
            if len(others):
                one_step = self.training.replace(batch_size=len(shown))
                found[draw, others] = self.after(shown, others, one_step, 1 + draw)
            report((draw + 1) / DRAWS)
        known = np.isfinite(found).any(axis=0)
        mean: np.ndarray = np.nanmean(found[:, known], axis=0)
        return mean

    def probe(self, report: Report = lambda _: None) -> np.ndarray:
        """Whether a probe reads each suspect's label in the data; empty if nobody knows."""
        if self.model.pooling == "other" or self.noisy.sum() < LEAST_SUSPECTS:
            return np.empty(0)
        states = pooled_states(self.model, self.train)[1:]
        return best_reading(states, self.labels, self.noisy, self.probing, self.seed, report)


def measured(name: str, shares: np.ndarray) -> dict[str, Any]:
    """A row of the table: the mean share of examples, and its interval; missing without any."""
    interval = interval_of_share(shares)
    low, high = (np.nan, np.nan) if interval is None else interval
    value = float(shares.mean()) if len(shares) else np.nan
    return {"measure": name, "value": value, "low": low, "high": high, "examples": len(shares)}


def best_reading(
    states: Tensor,
    labels: np.ndarray,
    noisy: np.ndarray,
    config: Probing.Config,
    seed: int,
    report: Report = lambda _: None,
) -> np.ndarray:
    """Which labels of suspects probes read that were trained without them, in the best layer.

    A probe that did not fit its own training data says nothing about the suspects it is tested on,
    and a layer is passed over if fewer than half of its probes have fitted.

    Args:
        states: [layers, examples, width].
        labels: What to read, of all examples.
        noisy: Which of them are suspects.
        config: Settings of the probes.
        seed: Deals the suspects out.
        report: Called with the finished fraction.

    Returns:
        True or False for every suspect that a fitted probe was tested on; empty without any layer.
    """
    splits, n_classes = hold_out(noisy, seed), int(labels.max()) + 1
    probes = train_probes(states, labels, n_classes, splits, config, macro=True, report=report)
    read = np.full(states.shape[:2], np.nan)
    fitted = np.zeros((len(states), len(splits)), dtype=bool)
    for number, split in enumerate(splits):
        answers = probes.predicted[:, number]
        fit = f1(answers[:, split.train], labels[split.train], n_classes, macro=True)
        fitted[:, number] = fit >= config.fitted_at
        right = (answers == labels)[:, split.test]
        read[:, split.test] = np.where(fitted[:, number, None], right, np.nan)
    layers = [row[np.isfinite(row)] for row in read[fitted.mean(axis=1) >= ENOUGH_FITTED]]
    return max(layers, key=np.mean, default=np.empty(0))


def hold_out(noisy: np.ndarray, seed: int) -> list[Split]:
    """Each suspect is in the test part of one split; a tenth of the rest chooses the epoch."""
    random = np.random.default_rng(seed)
    splits = []
    for test in np.array_split(random.permutation(np.flatnonzero(noisy)), FOLDS):
        rest = random.permutation(np.setdiff1d(np.arange(len(noisy)), test))
        chosen, train = np.split(rest, [len(rest) // 10])
        splits.append(Split(np.sort(train), np.sort(chosen), np.sort(test)))
    return splits
