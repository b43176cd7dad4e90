"""The memory of swapping: what is estimated, and what a process really needs."""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from benchmarks.swapping_memory import make_models, measure

from memloc.models.load import swapping_bytes


def test_low_memory_saves_the_layers_of_one_model() -> None:
    parameters = {"embeddings": 10**8, "layers": [5 * 10**7] * 24, "tail": 5000, "all": 13 * 10**8}
    memory = swapping_bytes(parameters)
    assert memory["two_models"] - memory["low_memory"] == 4 * 23 * 5 * 10**7


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_a_process_with_low_memory_needs_less_by_most_of_a_model(tmp_path: Path) -> None:
    settings = argparse.Namespace(layers=24, width=384, vocabulary=100, tokens=4, examples=2)
    parameters = make_models(tmp_path, settings)
    with ThreadPoolExecutor() as pool:  # each waits for a process
        found = pool.map(lambda way: measure(tmp_path, way), ("two_models", "low_memory"))
        two_models, low_memory = found
    assert two_models["predictions"] == low_memory["predictions"]
    assert two_models["peak"] - low_memory["peak"] > 0.7 * 4 * sum(parameters["layers"])
    estimate = swapping_bytes(parameters)
    assert two_models["peak"] < estimate["two_models"]
    assert low_memory["peak"] < estimate["low_memory"]
