"""Low memory, and models of one layer, as a user meets them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import Finished, labelled_rows
from tests.tiny_models import save_pair, tiny_model, tiny_tokenizer

ALL = "swapping,retraining,gradients,probing,shapley,patching,weight-change,random"
QUICK = [
    *("--workers", "1", "--epochs", "1", "--learning-rate", "1e-3", "--techniques", ALL),
    *("--windows", "1", "--retraining.epochs", "1", "--probing.epochs", "2"),
    *("--probing.seeds", "1", "--shapley.orders", "4"),
    *("--probing.least_steps", "0", "--probing.fitted_at", "0"),
]


def tables(folder: Path) -> dict[str, pd.DataFrame]:
    """All but how long it took."""
    found = {path.stem: pd.read_parquet(path) for path in folder.glob("*.parquet")}
    found["costs"] = found["costs"].drop(columns=["seconds", "peak_memory_bytes"])
    return found


def test_a_run_with_low_memory_finds_the_same(memloc, finished: Finished, tmp_path: Path) -> None:
    finished.copy_to(tmp_path / "runs")
    command = (*finished.run_words, "--seeds", "1", "--techniques",
               "swapping,shapley,patching,weight-change", "--shapley.orders", "4")  # fmt: skip
    code, out, err = memloc(*command, "--json")
    assert code == 0, err
    folder = Path(json.loads(out)["folder"])
    expected = tables(folder)
    for kind in ("localise", "states", "explain"):
        shutil.rmtree(Path("runs/store", kind))
    code, out, err = memloc(*command, "--low-memory", "--json")
    assert code == 0, err
    assert json.loads(out)["failures"] == []
    found = tables(folder)
    assert found.keys() == expected.keys()
    for name, table in expected.items():
        pd.testing.assert_frame_equal(found[name], table, check_exact=True, obj=name)
    assert list(Path("runs/store/.cache").iterdir()) == []
    # It says where to compute, not what: results are shared.
    assert "Nothing to compute" in memloc(*command)[1]


@pytest.mark.slow
def test_localise_with_low_memory_applies_every_technique_to_a_single_layer(
    memloc, tmp_path: Path
) -> None:
    memorised, original = save_pair(tmp_path, "gpt_neox", layers=1)
    tiny_model("gpt_neox", layers=1, seed=7).save_pretrained("pretrained")
    tiny_tokenizer().save_pretrained("pretrained")
    labelled_rows(36).to_csv("data.csv", index=False)
    code, out, err = memloc(
        *("localise", "--memorised", memorised, "--original", original, "--data", "data.csv"),
        *("--pretrained", "pretrained", "--out", "found", "--low-memory", *QUICK),
    )
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    assert "(1 layer)" in out
    found = tables(Path("found"))
    assert set(found["layers"].groupby("technique").size()) == {1}
    assert {"centroids", "class_probes", "shapley", "patching"} <= found.keys()
