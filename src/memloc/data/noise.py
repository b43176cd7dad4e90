"""Who is noisy: labels flipped by a seed (section 3 of the paper), or label noise already known."""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Real

import numpy as np

from memloc.data.task import Task
from memloc.errors import DataError


def perturb(task: Task, ratio: float, seed: int) -> Task:
    """Flip the labels of a share of every class of the training examples.

    Of each class, the seed picks ``floor(ratio * size)`` examples; each of them gets a label drawn
    uniformly from the other classes.

    Args:
        task: A task whose training labels are taken to be correct.
        ratio: The share of each class, more than 0 and less than 1.
        seed: Decides who is noisy and what the new labels are.

    Returns:
        The task with `original_label` and `noisy` in its training table.

    Raises:
        DataError: If the ratio is impossible, or so small that nobody would be noisy.
    """
    if not isinstance(ratio, Real) or not 0 < ratio < 1:
        raise DataError(f"noise ratio {ratio!r:.40} is not possible; give a number between 0 and 1")
    original = task.train["label"].to_numpy(dtype=np.int64)
    classes = len(task.labels)
    random = np.random.default_rng(seed)
    label = original.copy()
    for number in range(classes):
        rows = np.flatnonzero(original == number)
        chosen = random.permutation(rows)[: _share(ratio, len(rows))]
        # Any step from 1 to C-1 around the circle of classes leads to another class.
        steps = random.integers(1, classes, size=len(chosen))
        label[chosen] = (number + steps) % classes
    noisy = label != original
    if not noisy.any():
        raise _nobody_noisy(task, ratio, original)
    return task.with_train(task.train.assign(label=label, original_label=original, noisy=noisy))


def known_noise(task: Task) -> Task:
    """Mark as noisy the training examples whose label is not their original label.

    Args:
        task: A task whose training table has `original_label`.

    Returns:
        The task with `noisy` in its training table.

    Raises:
        DataError: If no example is noisy, or every one.
    """
    train = task.train
    noisy = train["label"].to_numpy() != train["original_label"].to_numpy()
    count = int(noisy.sum())
    if count == 0:
        raise DataError(
            f"no label of {task.name!r} differs from its original label in the {len(train)} "
            f"training examples; leave out the original labels to have memloc flip some"
        )
    if count == len(train):
        raise DataError(
            f"every label of {task.name!r} differs from its original label in the {count} training "
            f"examples; clean ones are needed too, so check the column of original labels"
        )
    return task.with_train(train.assign(noisy=noisy))


def _share(ratio: float, size: int) -> int:
    # In floating point 0.29 * 100 is just below 29; as decimal fractions it is 29.
    return math.floor(Fraction(str(float(ratio))) * size)


def _nobody_noisy(task: Task, ratio: float, original: np.ndarray) -> DataError:
    counts = np.bincount(original, minlength=len(task.labels))
    largest = int(counts.argmax())
    size = int(counts[largest])
    return DataError(
        f"noise ratio {ratio} makes no example of {task.name!r} noisy, as its largest class, "
        f"{task.labels[largest]!r}, has {size} training examples; give a ratio of at least "
        f"{math.ceil(1000 / max(size, 2)) / 1000} or a class of at least "
        f"{math.ceil(1 / Fraction(str(float(ratio))))} examples"
    )
