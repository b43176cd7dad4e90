"""Scores made from logits."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from sklearn.metrics import f1_score

from memloc.training.loop import macro_f1


@pytest.mark.parametrize("seed", range(20))
def test_macro_f1_is_that_of_scikit_learn_bit_for_bit(seed: int) -> None:
    generator = np.random.default_rng(seed)
    # Few examples of many classes: some are missing in the labels, the predictions or both.
    n, classes = int(generator.integers(1, 60)), int(generator.integers(1, 12))
    labels, predicted = generator.integers(0, classes, (2, n))
    expected = f1_score(labels, predicted, average="macro", zero_division=0)
    assert macro_f1(labels, predicted) == expected


def test_workers_do_not_wait_for_what_few_of_them_need() -> None:
    code = "import memloc.engine.compute, sys; print({'sklearn', 'scipy.stats'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
