"""Logits of whole data sets, and the scores made from them."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch

from memloc.config import Dtype
from memloc.data.encode import Encoded, evaluation_batches
from memloc.models.blocks import BlockModel

EVALUATION_BATCH = 32


def autocast(device: torch.device, dtype: Dtype) -> contextlib.AbstractContextManager[Any]:
    """Matrix multiplications in `dtype`, weights in float32."""
    if dtype == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=getattr(torch, dtype))


def predict_logits(
    model: BlockModel, encoded: Encoded, dtype: Dtype = "float32", size: int = EVALUATION_BATCH
) -> np.ndarray:
    """Logits of every example, in the order of `encoded`."""
    config: Any = model.model.config
    logits = np.empty((len(encoded), int(config.num_labels)), dtype=np.float32)
    with model.mode(training=False), torch.inference_mode(), autocast(model.device, dtype):
        for indices in evaluation_batches(encoded, size):
            part = model.logits(encoded.batch(indices.tolist(), model.device)).float().cpu().numpy()
            logits[indices] = part
    return logits


def scores(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Mean cross-entropy, accuracy and macro-F1."""
    loss = torch.nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(labels))
    predicted = logits.argmax(axis=1)
    return {
        "loss": float(loss),
        "accuracy": float((predicted == labels).mean()),
        "macro_f1": macro_f1(labels, predicted),
    }


def macro_f1(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Mean F1 of the classes that occur in either.

    That of scikit-learn, of which every process would have to wait a second for the import.
    """
    n_classes = int(max(labels.max(), predicted.max())) + 1
    given = np.bincount(labels, minlength=n_classes)
    found = np.bincount(predicted, minlength=n_classes)
    right = np.bincount(labels[labels == predicted], minlength=n_classes)
    occurs = given + found > 0
    return float((2.0 * right[occurs] / (given + found)[occurs]).mean())
