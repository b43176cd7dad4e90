"""Deep models as a user meets them: every technique, --low-memory and bfloat16."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import labelled_rows
from tests.tiny_models import save_pair, tiny_model, tiny_tokenizer

ALL = "swapping,retraining,gradients,probing,shapley,patching,weight-change,random"
QUICK = [
    *("--workers", "1", "--epochs", "1", "--learning-rate", "1e-3", "--techniques", ALL),
    *("--window-sizes", "1", "--retraining.epochs", "1", "--probing.epochs", "2"),
    *("--probing.seeds", "1", "--shapley.orders", "4"),
]
FEW = ("--limit", "42", "--noise", "0.3")  # 12 noisy examples: probing needs 10


def tables(folder: Path) -> dict[str, pd.DataFrame]:
    """All but how long it took."""
    found = {path.stem: pd.read_parquet(path) for path in folder.glob("*.parquet")}
    found["costs"] = found["costs"].drop(columns=["seconds", "peak_memory_bytes"])
    return found


def forget_what_looked_at_two_models(store: Path) -> None:
    """Trained models and windows stay in the store; techniques and explanations go."""
    for kind in ("localise", "states", "explain"):
        shutil.rmtree(store / kind)


def assert_same(found: dict[str, pd.DataFrame], expected: dict[str, pd.DataFrame]) -> None:
    assert found.keys() == expected.keys()
    for name, table in expected.items():
        pd.testing.assert_frame_equal(found[name], table, check_exact=True, obj=name)


@pytest.mark.parametrize("layers", [3, pytest.param(24, marks=pytest.mark.slow)])
def test_a_run_with_low_memory_finds_the_same(layers: int, memloc, tmp_path: Path) -> None:
    tiny_model("opt", layers=layers).save_pretrained("deep")
    tiny_tokenizer().save_pretrained("deep")
    arguments = ("run", "--model", "./deep", "--task", "topics", *FEW, *QUICK)
    code, out, err = memloc(*arguments)
    assert code == 0, err
    assert "Caution" in out  # nothing was learned in one epoch
    assert max(map(len, out.splitlines())) <= 80
    folder = next(Path("runs").glob("topics-deep-*"))
    expected = tables(folder)
    assert expected["layers"].groupby("technique").size().to_dict() == dict.fromkeys(
        ALL.split(","), layers
    )

    forget_what_looked_at_two_models(Path("runs/store"))
    code, out, err = memloc(*arguments, "--low-memory", "--json")
    assert code == 0, err
    assert json.loads(out)["failures"] == []
    assert Path(json.loads(out)["folder"]) == folder
    assert_same(tables(folder), expected)
    assert list(Path("runs/store/.cache").iterdir()) == []
    # It says where to compute, not what: results are shared.
    assert "Nothing to compute" in memloc(*arguments)[1]


@pytest.mark.parametrize("layers", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_localise_in_bfloat16_with_low_memory_finds_the_same(
    layers: int, memloc, tmp_path: Path
) -> None:
    memorised, original = save_pair(tmp_path, "gpt_neox", layers=layers)
    tiny_model("gpt_neox", layers=layers, seed=7).save_pretrained("pretrained")
    tiny_tokenizer().save_pretrained("pretrained")
    labelled_rows(36).to_csv("data.csv", index=False)
    arguments = ("localise", "--memorised", memorised, "--original", original, "--data", "data.csv",
                 "--pretrained", "pretrained", "--out", "found", "--dtype", "bfloat16", *QUICK)  # fmt: skip  # noqa: E501
    code, out, err = memloc(*arguments)
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    expected = tables(Path("found"))
    assert {"centroids", "class_probes", "shapley", "patching"} <= expected.keys()

    forget_what_looked_at_two_models(Path("found/store"))
    code, out, err = memloc(*arguments, "--low-memory", "--json")
    assert code == 0, err
    assert json.loads(out)["failures"] == []
    assert_same(tables(Path("found")), expected)


@pytest.mark.parametrize("layers", [1, 2])
def test_shallow_models_have_results_too(layers: int, memloc, tmp_path: Path) -> None:
    memorised, original = save_pair(tmp_path, "bert", layers=layers)
    tiny_model("bert", layers=layers, seed=7).save_pretrained("pretrained")
    tiny_tokenizer().save_pretrained("pretrained")
    labelled_rows(36).to_csv("data.csv", index=False)
    code, out, err = memloc(
        "localise", "--memorised", memorised, "--original", original, "--data", "data.csv",
        "--pretrained", "pretrained", "--out", "found", "--low-memory", *QUICK,
    )  # fmt: skip
    assert code == 0, err
    assert f"({layers} layer{'s' if layers > 1 else ''})" in out
    counts = pd.read_parquet("found/layers.parquet").groupby("technique").size()
    assert set(counts) == {layers}
