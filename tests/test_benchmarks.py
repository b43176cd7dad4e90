"""`make bench` goes through the whole analysis, here with a tiny model."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.__main__ import SIDES, as_json, ratio_at_full_length, report, totals
from benchmarks.steps import Bench, Sizes, shuffled, strata
from benchmarks.subjects import Subject, with_layers_twice
from rich.console import Console

from memloc.analysis.windows import all_windows
from memloc.config import Training
from memloc.data.task import Task
from memloc.models.blocks import BlockModel
from memloc.models.load import put_paper_head
from memloc.techniques.probing import Probing
from tests.conftest import labelled_rows
from tests.tiny_models import encoded, tiny_model, tiny_tokenizer

LAYERS = 10  # enough for the defaults to leave out windows


def tiny_subject() -> Subject:
    rows = labelled_rows(60)
    rows["noisy"] = rows["label"] != rows["original_label"]
    rows["example"] = np.arange(len(rows)) + 100
    train, validation = rows[:48], rows[48:].reset_index(drop=True)

    def build() -> BlockModel:
        model = tiny_model("bert", layers=LAYERS // 2)
        put_paper_head(model)
        return BlockModel(with_layers_twice(model))

    return Subject(
        "tiny",
        Task("rows", "test", ("a", "b", "c"), train, validation),
        build,
        tiny_tokenizer(),
        encoded(train),
        encoded(validation),
    )


def test_the_benchmark_measures_every_step_and_finds_the_results_of_the_authors(
    tmp_path: Path,
) -> None:
    sizes = Sizes(
        Training(epochs=6, learning_rate=3e-3, batch_size=8),
        swapped=2,
        plainly_retrained=1,
        retrained=2,
        probed_layers=1,
        peak_seconds=0.01,
        probes=Probing.Config(seeds=1, epochs=30, least_steps=0),
    )
    bench = Bench(tiny_subject(), sizes, tmp_path)
    steps = {step.name: step for step in bench.steps()}
    assert list(steps) == [
        *("fine-tuning", "frozen model", "swapping", "retraining"),
        *("gradients", "probing", "class probes", "centroids"),
    ]
    assert all(value > 0 for value in totals(list(steps.values())).values())
    # Both sides look at the same weights.
    swapped = steps["swapping"].agreement
    assert swapped["largest difference of an accuracy from the authors'"] < 1e-6
    assert swapped["ρ of layer weights, defaults and exact"] > 0
    assert steps["gradients"].agreement["largest difference of a layer weight"] < 1e-3
    assert steps["centroids"].agreement["largest difference of a position"] < 1e-2
    # What is timed is scaled to the whole analysis.
    assert steps["fine-tuning"].authors is not None
    assert steps["fine-tuning"].authors.times == 50
    assert steps["fine-tuning"].exact.times == pytest.approx(50 / 6)
    assert steps["swapping"].authors is not None
    assert steps["swapping"].authors.times == 55 / 2
    assert steps["retraining"].defaults.total < steps["retraining"].exact.total

    # Fewer epochs are a part of what the defaults gain.
    sums = totals(list(steps.values()))
    assert ratio_at_full_length(list(steps.values())) < sums["authors"] / sums["defaults"]

    facts = {
        **{"model": "tiny", "layers": LAYERS, "task": "rows", "examples": 48, "noisy": 16},
        **{"epochs": bench.epochs, "memorised": bench.memorised, "matmul_peak": 1e9, "seconds": 1},
    }
    found = as_json(facts, list(steps.values()))
    assert json.loads(json.dumps(found))["totals"].keys() == set(SIDES)
    console = Console(width=80, record=True, file=io.StringIO())
    for part in report(facts, list(steps.values())):
        console.print(part)
    text = console.export_text()
    assert "…" not in text  # it fits 80 columns
    assert all(len(line) <= 80 for line in text.splitlines())
    assert all(name in text for name in steps)


def test_a_sample_of_windows_has_the_mean_size_of_all() -> None:
    windows = all_windows(12)
    sample = strata(windows, 3, lambda window: window.size)
    assert len(sample) == 3
    assert np.mean([w.size for w in sample]) == pytest.approx(np.mean([w.size for w in windows]))


def test_noisy_and_clean_examples_test_a_probe_however_few_there_are() -> None:
    random = np.random.default_rng(0)
    noisy = np.arange(20) == 3
    orders = [shuffled(noisy, random) for _ in range(20)]
    for order in orders:
        assert sorted(order) == list(range(20))
        assert 3 in order[16:]
    assert len({tuple(order) for order in orders}) == 20
