"""Versions of a task: fewer classes or examples, and who is noisy.

Noise is labels flipped by a seed (section 3 of the paper), or label noise that is already known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from numbers import Real

import numpy as np
import pandas as pd

from memloc.data.task import Task
from memloc.errors import DataError

LEAST_PER_CLASS = 2
"""Training examples every class needs."""
VALIDATION_FLOOR = 100
"""Validation examples that a limit leaves at least, if there are as many."""


def true_label(table: pd.DataFrame) -> np.ndarray:
    """The original labels if they are known, otherwise the labels."""
    column = "original_label" if "original_label" in table.columns else "label"
    return table[column].to_numpy(dtype=np.int64)


def binarise(task: Task) -> Task:
    """Keep the two classes most frequent in training, renumbered 0 and 1 in their order.

    Classes are the original ones where these are known; an example whose flipped label is neither
    of the two kept is dropped as well.
    """
    if len(task.labels) <= 2:
        return task
    counts = np.bincount(true_label(task.train), minlength=len(task.labels))
    # A stable sort leaves equally frequent classes in label order.
    kept = np.sort(np.argsort(-counts, kind="stable")[:2])
    number = {old: new for new, old in enumerate(kept)}

    def reduced(table: pd.DataFrame) -> pd.DataFrame:
        labels = [name for name in ("label", "original_label") if name in table.columns]
        table = table[table[labels].isin(kept).all(axis=1)].reset_index(drop=True)
        return table.assign(**{name: table[name].map(number).astype(np.int64) for name in labels})

    return replace(
        task,
        labels=tuple(task.labels[old] for old in kept),
        train=reduced(task.train),
        validation=reduced(task.validation),
        binarised=True,
    )


def limit(task: Task, n: int, seed: int) -> Task:
    """Take a stratified random subset of `n` training examples, or all if there are no more.

    Every class keeps its share, and at least two examples; so do wrong labels, where they are
    known. Rows stay in their order. Validation is cut to at most `n` examples too, but not below
    100.

    Raises:
        DataError: If `n` is too small for two examples of every class.
    """
    check_limit(task.name, n, len(np.unique(true_label(task.train))))
    random = np.random.default_rng(seed)
    train = stratified(task.train, n, random, LEAST_PER_CLASS)
    validation = stratified(task.validation, max(VALIDATION_FLOOR, n), random, 1)
    return replace(task, train=train, validation=validation)


def check_limit(name: str, n: int, classes: int) -> None:
    """Raise `DataError` if `n` examples are too few for this many classes."""
    least = LEAST_PER_CLASS * classes
    if n < least:
        raise DataError(
            f"a limit of {n} is too small for the {classes} classes of {name!r}; give at least "
            f"{least}, so that every class keeps {LEAST_PER_CLASS} training examples"
        )


def stratified(
    table: pd.DataFrame, n: int, random: np.random.Generator, least: int
) -> pd.DataFrame:
    """A random subset of `n` rows in the order of `table`.

    Classes keep their shares and so do wrong labels, where they are known, and suspects.
    """
    if n >= len(table):
        return table
    label = true_label(table)
    counts = np.unique(label, return_counts=True)[1].tolist()
    sizes = allocate(counts, n, least)
    wrong = table["label"].to_numpy(dtype=np.int64) != label
    if "noisy" in table.columns:
        wrong = table["noisy"].to_numpy()
    if not wrong.any():
        return table.iloc[draw(label, sizes, random)].reset_index(drop=True)
    of_class = [int(wrong[label == number].sum()) for number in np.unique(label)]
    chosen = allocate([int(wrong.sum()), int((~wrong).sum())], n, 1)[0]
    parts = []
    for share, size, count, among in zip(
        allocate(of_class, chosen, 0), sizes, counts, of_class, strict=True
    ):
        share = min(max(share, size - (count - among)), size, among)
        parts += [(count - among, size - share), (among, share)]
    taken = [part for there, part in parts if there]
    return table.iloc[draw(2 * label + wrong, taken, random)].reset_index(drop=True)


def draw(label: np.ndarray, sizes: Sequence[int], random: np.random.Generator) -> np.ndarray:
    """Rows drawn from every class that occurs, as many as `sizes` says, in ascending order."""
    taken = [
        random.permutation(np.flatnonzero(label == number))[:size]
        for number, size in zip(np.unique(label), sizes, strict=True)
    ]
    return np.sort(np.concatenate(taken))


def allocate(counts: Sequence[int], n: int, least: int) -> list[int]:
    """Divide `n` over classes in proportion to `counts`, by largest remainder.

    Args:
        counts: Examples of each class.
        n: The sum wanted, at most the sum of `counts`.
        least: What every class gets at least, if it has as many and `n` is enough for all.

    Returns:
        How many to take of each class.
    """
    total = sum(counts)
    floors = [min(least, count) for count in counts]
    if sum(floors) > n:
        floors = [0] * len(counts)
    sizes = [max(floor, n * count // total) for floor, count in zip(floors, counts, strict=True)]

    def shortfall(i: int) -> int:
        """How far class i is below its exact share (times `total`, to stay with integers)."""
        return n * counts[i] - sizes[i] * total

    while sum(sizes) < n:
        open_to_more = [i for i in range(len(counts)) if sizes[i] < counts[i]]
        sizes[max(open_to_more, key=shortfall)] += 1
    while sum(sizes) > n:  # the classes raised to their floor took what others must give back
        open_to_less = [i for i in range(len(counts)) if sizes[i] > floors[i]]
        sizes[min(open_to_less, key=shortfall)] -= 1
    return sizes


def perturb(task: Task, ratio: float, seed: int) -> Task:
    """Flip the labels of a share of every class of the training examples.

    Of each class, the seed picks ``floor(ratio * size)`` examples; each of them gets a label drawn
    uniformly from the other classes.

    Returns:
        The task with `original_label` and `noisy` in its training table.

    Raises:
        DataError: If the ratio is impossible, or so small that nobody would be noisy.
    """
    if not isinstance(ratio, Real) or not 0 < ratio < 1:
        raise DataError(f"noise ratio {ratio!r:.40} is not possible; give a number between 0 and 1")
    # In floating point 0.29 * 100 is just below 29; as decimal fractions it is 29.
    exact = Fraction(str(float(ratio)))
    original = task.train["label"].to_numpy(dtype=np.int64)
    classes = len(task.labels)
    random = np.random.default_rng(seed)
    label = original.copy()
    for number in range(classes):
        rows = np.flatnonzero(original == number)
        chosen = random.permutation(rows)[: math.floor(exact * len(rows))]
        # Any step from 1 to C-1 around the circle of classes leads to another class.
        steps = random.integers(1, classes, size=len(chosen))
        label[chosen] = (number + steps) % classes
    noisy = label != original
    if not noisy.any():
        raise DataError(
            f"noise ratio {ratio} makes no example of {task.name!r} noisy, as its largest class "
            f"has only {np.bincount(original).max()} training examples; give a higher ratio, or "
            f"{math.ceil(1 / exact)} examples of a class"
        )
    return task.with_train(task.train.assign(label=label, original_label=original, noisy=noisy))


def known_noise(task: Task) -> Task:
    """Mark as noisy the training examples whose label is not their `original_label`.

    Raises:
        DataError: If no example is noisy, or every one.
    """
    noisy = (task.train["label"] != task.train["original_label"]).to_numpy()
    if not noisy.any():
        raise DataError(
            f"no label of {task.name!r} differs from its original label in the {len(noisy)} "
            f"training examples; leave out the original labels to have memloc flip some"
        )
    if noisy.all():
        raise DataError(
            f"every label of {task.name!r} differs from its original label in the {len(noisy)} "
            "training examples; clean ones are needed too, so check the column of original labels"
        )
    return replace(task.with_train(task.train.assign(noisy=noisy)), noise="wrong")


def trusted(task: Task) -> Task:
    """A task with its labels as they are: nothing is flipped, and nobody is suspected yet."""
    train = task.train.drop(columns="original_label", errors="ignore").assign(noisy=False)
    return replace(task.with_train(train), noise="suspected")


def suspected(task: Task) -> Task:
    """A task whose suspects are marked.

    Raises:
        DataError: If no training example is suspected, or too few of a class are not.
    """
    noisy = task.train["noisy"].to_numpy()
    if not noisy.any():
        raise DataError(f"none of the {len(noisy)} training examples of {task.name!r} is suspected")
    kept = np.bincount(task.train["label"][~noisy], minlength=len(task.labels))
    given = np.bincount(task.train["label"], minlength=len(task.labels))
    for number in np.flatnonzero((kept < LEAST_PER_CLASS) & (given > 0)):
        raise DataError(
            f"the class {task.labels[number]!r} of {task.name!r} keeps {kept[number]} training "
            f"examples without the suspects, and every class needs {LEAST_PER_CLASS}",
            setting="data.suspects",
            remedy="mark fewer of its labels",
        )
    return replace(task, noise="suspected")
