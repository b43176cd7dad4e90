"""Training dynamics: how each label was learned, from the logits of every epoch.

Labels that are wrong tend to be learned late, to be lost again, and to be believed least while the
others are learned. For an example with label y and probabilities p in each of T epochs,

    learned          the first epoch from which on its label is the answer, if it is at the end
    forgotten        how often its label stops being the answer (Toneva et al. 2019)
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
"""Fewer do not show how a label was learned."""


def dynamics(logits: np.ndarray, labels: np.ndarray) -> pd.DataFrame:
    """One row per example, in their order.

    Args:
        logits: [epochs, examples, classes].
        labels: [examples], the classes as trained.
    """
    logits = logits.astype(np.float64)
    examples = np.arange(len(labels))
    own = logits[:, examples, labels]
    log_p = log_softmax(logits, axis=2)[:, examples, labels]
    p = np.exp(log_p)
    right = logits.argmax(axis=2) == labels
    right_to_the_end = np.logical_and.accumulate(right[::-1]).sum(axis=0)
    logits[:, examples, labels] = -np.inf
    learned = pd.Series(len(logits) + 1 - right_to_the_end, dtype="Int64")
    return pd.DataFrame(
        {
            "learned": learned.where(right[-1]),
            "forgotten": (right[:-1] & ~right[1:]).sum(axis=0),
            "margin": (own - logits.max(axis=2)).mean(axis=0),
            "cumulative_loss": -log_p.sum(axis=0),
            "confidence": p.mean(axis=0),
            "variability": p.std(axis=0),
        }
    )
