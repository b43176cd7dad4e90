"""Which labels are likely wrong, and how many, from what models answered.

Two things speak against a label y: low margins p_y − max p_other

    early_margin   of the mean probabilities p in the first half of the training: wrong labels are
                   contradicted by the others until the model learns them by heart
    unseen_margin  of the mean probabilities by models of random halves of the data that did not
                   see the example

The score of an example is the sum of its two ranks, divided by the largest such sum: 1 is the most
suspicious label. Without half-splits, it is the rank by the early margin alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import logsumexp, softmax

PRIOR = 18.0, 2.0
"""Of the share of wrong labels, a beta distribution: as if so many were right and wrong."""
TEMPERATURES = np.geomspace(0.3, 30, 40)
LEAST = 1e-12
"""Probability; smaller ones have no logarithm."""
UNKNOWN_SHARE = 0.1
"""Of the labels that are suspected, if nothing says how many are wrong."""


class Estimate(NamedTuple):
    """How many labels are wrong, with an interval of 95%."""

    estimate: int
    low: int
    high: int


def rank_labels(
    logits: np.ndarray, labels: np.ndarray, learned: pd.DataFrame, unseen: np.ndarray | None
) -> pd.DataFrame:
    """One row per example: a suggested label, rank, score, and all that these come from.

    Args:
        logits: [epochs, examples, classes] of a training on all labels.
        labels: The label of each example, as given.
        learned: Its dynamics, see `memloc.analysis.dynamics`.
        unseen: [examples, classes] probabilities by models that did not see the example.
    """
    rows = np.arange(len(labels))
    early = logits[: max(1, len(logits) // 2)].astype(np.float64)
    beliefs = {"early_margin": softmax(early, axis=2).mean(axis=0)}
    if unseen is not None:
        beliefs["unseen_margin"] = unseen
    margins = {name: margin_of(belief, labels) for name, belief in beliefs.items()}
    suspicion = pd.DataFrame(margins).rank(ascending=False).sum(axis=1).to_numpy()
    rank = np.empty(len(rows), dtype=np.int64)
    rank[np.lexsort((rows, margins["early_margin"], -suspicion))] = rows + 1
    others = sum(beliefs.values())
    others[rows, labels] = -1.0
    found = {"suggested_label": others.argmax(axis=1), "rank": rank}
    found |= {"score": suspicion / suspicion.max(), **margins}
    if unseen is not None:
        found["self_confidence"] = unseen[rows, labels]
    return pd.concat([pd.DataFrame(found), learned], axis=1)


def margin_of(belief: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Probability of the label minus that of the most likely other class.

    Args:
        belief: [examples, classes] probabilities.
        labels: One of each example.
    """
    rows = np.arange(len(labels))
    others = belief.copy()
    others[rows, labels] = -np.inf
    margin: np.ndarray = belief[rows, labels] - others.max(axis=1)
    return margin


def choose_suspects(rank: np.ndarray, labels: np.ndarray, wanted: int) -> np.ndarray:
    """The most suspicious labels, as many as wanted; but every class keeps half of its labels.

    Labels of a rare class all look suspicious, as models hardly learn it.
    """
    room = np.bincount(labels) // 2
    chosen = np.zeros(len(labels), dtype=bool)
    for row in np.argsort(rank):
        if chosen.sum() < wanted and room[labels[row]]:
            chosen[row] = True
            room[labels[row]] -= 1
    return chosen


def estimate_wrong(unseen: np.ndarray, labels: np.ndarray) -> Estimate:
    """How many labels are wrong, by models that did not see the examples.

    If a share s of the labels is wrong, and every other class is as likely then, the label y of an
    example has the probability (1 − s)·p_y + s·(1 − p_y)/(C − 1). Probabilities are softened or
    sharpened by a temperature that is not known either. The estimate is the mean of the posterior
    of s over a grid, with a prior worth 20 labels: one in ten is wrong (`PRIOR`).

    It cannot see wrong labels that the models believe too.

    Args:
        unseen: [examples, classes] probabilities by models that did not see the example.
        labels: The label of each example, as given.
    """
    n, classes = unseen.shape
    shares = np.linspace(0.0025, 0.5, 200)
    likelihood = np.empty((len(TEMPERATURES), len(shares)))
    for row, temperature in enumerate(TEMPERATURES):
        softened = softmax(np.log(np.maximum(unseen, LEAST)) / temperature, axis=1)
        own = softened[np.arange(n), labels][:, None]
        given = (1 - shares) * own + shares * (1 - own) / (classes - 1)
        likelihood[row] = np.log(given).sum(axis=0)
    right, wrong = PRIOR
    prior = (wrong - 1) * np.log(shares) + (right - 1) * np.log(1 - shares)
    of_share = logsumexp(likelihood, axis=0) + prior
    posterior = np.exp(of_share - logsumexp(of_share))
    low, high = shares[np.searchsorted(posterior.cumsum(), [0.025, 0.975])]
    return Estimate(round(n * float(posterior @ shares)), math.floor(n * low), math.ceil(n * high))
