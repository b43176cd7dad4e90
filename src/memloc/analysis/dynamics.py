"""Training dynamics: how each label was learned, from the logits after every epoch.

Labels that are wrong tend to be learned late, to be lost again, and to be believed least while the
others are learned. For an example with label y and probabilities p after each of T epochs,

    learned          the first epoch from which on its label is the answer
    forgotten        how often its label stops being the answer
    margin           mean of logit_y − max other logit (area under the margin, Pleiss et al. 2020)
    cumulative_loss  sum of −log p_y
    confidence       mean of p_y, and
    variability      its standard deviation (data maps, Swayamdipta et al. 2020)
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import log_softmax

LEAST_EPOCHS = 2
"""Fewer say nothing about how a label was learned."""


def dynamics(logits: np.ndarray, labels: np.ndarray) -> pd.DataFrame:
    """One row per example, in their order.

    Args:
        logits: [epochs, examples, classes], after every epoch.
        labels: The label of each example, as trained.
    """
    logits = logits.astype(np.float64)
    epochs, n, _ = logits.shape
    rows = np.arange(n)
    own = logits[:, rows, labels]
    others = logits.copy()
    others[:, rows, labels] = -np.inf
    loss = -log_softmax(logits, axis=2)[:, rows, labels]
    right = logits.argmax(axis=2) == labels
    # One after the last epoch in which the label was not the answer.
    learned = epochs - np.argmax(~right[::-1], axis=0) + 1
    learned[right.all(axis=0)] = 1
    confidence = np.exp(-loss)
    return pd.DataFrame(
        {
            "learned": pd.array(np.where(right[-1], learned, -1), dtype="Int64"),
            "forgotten": (right[:-1] & ~right[1:]).sum(axis=0),
            "margin": (own - others.max(axis=2)).mean(axis=0),
            "cumulative_loss": loss.sum(axis=0),
            "confidence": confidence.mean(axis=0),
            "variability": confidence.std(axis=0),
        }
    ).assign(learned=lambda table: table["learned"].where(right[-1]))
