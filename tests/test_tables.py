"""The schema of result tables: what is written has it, and the page about it is up to date."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from memloc.api.experiments import run
from memloc.config import Data, Engine, Model, Run, Training
from memloc.tables import LAYERS, TableError
from memloc.techniques import all_tables
from tests.conftest import Finished
from tests.docs.results_page import PAGE, page


def assert_as_declared(found: dict[str, pd.DataFrame]) -> None:
    known = all_tables()
    for name, table in found.items():
        columns = known[name].columns_in("run")
        assert [c for c in columns if c in table] == table.columns.tolist()
        assert {c for c, column in columns.items() if not column.optional} <= set(table.columns)
        for column, dtype in table.dtypes.items():  # a file does not tell objects from their values
            assert columns[column].dtype in (str(dtype), "object"), (name, column)


def test_tables_of_a_run_have_the_declared_columns_and_types(finished: Finished) -> None:
    found = {file.stem: pd.read_parquet(file) for file in finished.run.glob("*.parquet")}
    assert {"layers", "windows", "examples", "retraining", "gradients", "centroids"} <= set(found)
    assert_as_declared(found)


@pytest.mark.slow
def test_all_tables_that_a_run_can_have_are_as_declared(tiny_folder: Path, tmp_path: Path) -> None:
    settings = Run(
        data=Data(task="reviews", limit=80),
        model=Model(name=str(tiny_folder)),
        training=Training(epochs=2, learning_rate=1e-3, batch_size=32),
        techniques={
            **{"swapping": {}, "patching": {}, "shapley": {}, "gradients": {"per_example": True}},
            "probing": {"epochs": 2, "select_after": 0, "seeds": 1, "least_steps": 0},
        },
        windows={"sizes": [1]},
        checkpoints=2,
        generalisation={"splits": 2, "epochs": 1},
    )
    found = run(settings, Engine(runs=tmp_path, workers=1)).tables
    usual = {name for name, table in all_tables().items() if "run" in table.of}
    assert usual - {"retraining", "failures", "one_by_one"} == set(found)
    assert_as_declared(found)


def test_a_table_with_other_columns_is_refused() -> None:
    with pytest.raises(TableError, match="layers has no column 'technique'"):
        LAYERS.frame({"layer": [1], "weight": [1.0]})
    row = {"technique": ["a"], "layer": [1], "weight": [1.0], "spread": [0.0], "size": [1]}
    with pytest.raises(TableError, match="layers has a column 'size'"):
        LAYERS.frame(row)
    assert LAYERS.empty().dtypes.astype(str).to_dict() == LAYERS.dtypes(LAYERS.columns)


def test_the_page_on_result_tables_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make tables`"
