"""Generalisation scores and the memorisation map (section 5, footnote 8).

Models are trained on random halves of the training data. For every example,

    training memorisation        mean probability of its label among the models that saw it
    generalisation score         the same among the models that did not
    counterfactual memorisation  the difference: what seeing the example changed

The score of a task is the share of its examples whose generalisation score exceeds random guessing,
1/C. The probability of the given label in models that did not see the example is also what label
cleaning calls self-confidence, so that both rankings of suspicious labels come from the same runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

RESAMPLES = 500
GUESSES = ("uniform", "proportional", "majority")
"""Ways to guess: every class alike, classes as often as they occur, the most frequent class."""


@dataclass(frozen=True)
class Splits:
    """What the models of the half-splits answer; S splits, N examples."""

    inside: np.ndarray
    """[S, N] whether the model was trained on the example."""
    target: np.ndarray
    """[S, N] probability of the example's label."""
    n_classes: int


def half_split(n: int, split: int, seed: int, paired: bool = False) -> np.ndarray:
    """Whether each of n examples is in the training half (rounded down) of a split.

    If splits are `paired`, every second one has the examples that the one before it lacks.
    """
    if paired and split % 2:
        return ~half_split(n, split - 1, seed)
    inside = np.zeros(n, dtype=bool)
    inside[np.random.default_rng([seed, split]).permutation(n)[: n // 2]] = True
    return inside


def memorisation_map(splits: Splits) -> pd.DataFrame:
    """One row per example; scores are NaN if no model saw it, or all did."""
    inside = splits.inside
    within = _mean(splits.target, inside)
    without = _mean(splits.target, ~inside)
    return pd.DataFrame(
        {
            "times_in": inside.sum(axis=0),
            "times_out": (~inside).sum(axis=0),
            "training_memorisation": within,
            "generalisation_score": without,
            "counterfactual_memorisation": within - without,
        }
    )


def task_score(splits: Splits) -> float:
    """Share of the examples whose label is found better than by guessing, by those held out."""
    return float(_score(splits.target, ~splits.inside, splits.n_classes))


def standard_error(splits: Splits, seed: int = 0) -> float:
    """Of the task score, over the choice of splits: bootstrap. NaN if there are fewer than two."""
    n = len(splits.inside)
    if n < 2:
        return float("nan")
    draws = np.random.default_rng(seed).integers(n, size=(RESAMPLES, n))
    outside = ~splits.inside
    scores = [_score(splits.target[draw], outside[draw], splits.n_classes) for draw in draws]
    return float(np.std(scores, ddof=1))


def detection(scores: pd.DataFrame, noisy: np.ndarray) -> dict[str, dict[str, float | None]]:
    """How well rankings of the map find the wrong labels: area under the ROC curve, and AP.

    AP is average precision; guessing reaches the share of wrong labels.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    rankings = {
        "counterfactual_memorisation": scores["counterfactual_memorisation"].to_numpy(),
        "self_confidence": 1 - scores["generalisation_score"].to_numpy(),
    }
    measures = {"roc_auc": roc_auc_score, "average_precision": average_precision_score}
    found: dict[str, dict[str, float | None]] = {}
    for name, suspicion in rankings.items():
        known = np.isfinite(suspicion)
        truth, suspected = noisy[known], suspicion[known]
        defined = len(set(truth.tolist())) == 2
        found[name] = {
            measure: float(score(truth, suspected)) if defined else None
            for measure, score in measures.items()
        }
    return found


def rescaled(accuracy: float | None, chance: float) -> float | None:
    """Accuracy with guessing at 0 and perfection at 1."""
    return None if accuracy is None or chance >= 1 else (accuracy - chance) / (1 - chance)


def validation_scores(accuracy: float | None, labels: np.ndarray, n_classes: int) -> dict[str, Any]:
    """Validation accuracy rescaled by each way to guess, right in 1/C, Σp² and max p of cases.

    p are the shares of the classes among the validation labels. Proportional guessing is what
    shuffled labels score.
    """
    if not len(labels) or accuracy is None:
        return dict.fromkeys(GUESSES)
    shares = np.bincount(labels) / len(labels)
    chances = (1 / n_classes, float((shares**2).sum()), float(shares.max()))
    return {
        guess: rescaled(accuracy, chance) for guess, chance in zip(GUESSES, chances, strict=True)
    }


def _mean(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Mean over the chosen splits, NaN where there are none."""
    count = chosen.sum(axis=0)
    total = np.where(chosen, values, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: np.ndarray = np.where(count > 0, total / count, np.nan)
    return mean


def _score(target: np.ndarray, outside: np.ndarray, n_classes: int) -> float:
    held_out = _mean(target, outside)
    known = held_out[np.isfinite(held_out)]
    return float((known > 1 / n_classes).mean()) if len(known) else float("nan")
