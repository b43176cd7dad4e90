"""Whole runs with a tiny model, with all classes and with two."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from memloc.api.experiments import run
from memloc.config import Data, Engine, Model, Run, Training
from memloc.engine.experiment import prepare
from memloc.engine.input_cache import InputCache
from memloc.engine.progress import LogLines, Progress
from memloc.engine.store.store import Store
from memloc.results.grid import read_grid
from tests.result_folders import compare_binarised


@pytest.mark.parametrize(("task", "same"), [("questions", False), ("reviews", True)])
def test_binarising_is_for_tasks_of_several_classes(
    task: str, same: bool, tiny_folder: Path, tmp_path: Path
) -> None:
    inputs, stream = InputCache(Store(tmp_path)), io.StringIO()
    model = Model(name=str(tiny_folder))
    data = [Data(task=task, limit=60, binarise=binarise) for binarise in (False, True)]
    for one in data:
        config = Run(data=one, model=model, techniques={"swapping": {}})
        prepare(config, inputs, Progress(LogLines(stream)))
    assert (inputs.data(data[0]) == inputs.data(data[1])) == same
    assert stream.getvalue().count("has two classes anyway") == same


@pytest.mark.slow
def test_a_run_is_compared_with_its_binarised_twin_unless_it_has_two_classes_anyway(
    tiny_folder: Path, tmp_path: Path
) -> None:
    runs, stream = tmp_path / "runs", io.StringIO()

    def result(task: str, binarise: bool) -> Path:
        config = Run(
            data=Data(task=task, limit=60, binarise=binarise),
            model=Model(name=str(tiny_folder)),
            training=Training(epochs=1, learning_rate=1e-3),
            techniques={"swapping": {}},
            explain=False,
        )
        found = run(config, Engine(runs=runs, workers=1), Progress(LogLines(stream)))
        assert found.folder is not None
        return found.folder

    multi, binary = result("questions", False), result("questions", True)
    assert multi != binary
    assert "two classes anyway" not in stream.getvalue()
    reviews = result("reviews", False)
    assert result("reviews", True) == reviews
    assert "note: 'reviews' has two classes anyway, so there is nothing to binarise" in (
        stream.getvalue()
    )
    found = compare_binarised(runs)
    assert found is not None
    assert found.pairs[["task", "seed", "quantity"]].to_numpy().tolist() == [
        ["questions", 1, "m_cog"]
    ]
    assert list(read_grid(runs).runs["folder"]) == [multi.name, reviews.name]
    assert list(read_grid(runs, 2).runs["folder"]) == [binary.name]
