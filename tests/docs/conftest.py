"""The folder in which the blocks of a page run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import labelled_rows, make_once, shared_folder
from tests.tiny_models import save_pair, tiny_model, tiny_tokenizer

TASTE = ("run", "--limit", "60", "--epochs", "2", "--techniques", "swapping")
"""The cheapest experiment, with which the pages begin; computed once for all of them."""


@pytest.fixture(scope="session")
def tasted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a result of `memloc run`."""

    def compute(folder: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "memloc", *TASTE], cwd=folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    folder = shared_folder(tmp_path_factory, "tasted")
    make_once(folder, compute)
    return folder / "runs"


@pytest.fixture
def page_folder(tasted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a reader has: a result in `runs`, models and data in `my`."""
    # Artefacts are never written to again, so they need not be copied.
    shutil.copytree(tasted / "store", tmp_path / "runs" / "store", copy_function=os.link)
    for result in tasted.iterdir():
        if result.is_dir() and result.name != "store":
            shutil.copytree(result, tmp_path / "runs" / result.name)
    memorised, original = save_pair(tmp_path / "my", "bert", layers=2)
    memorised.rename(tmp_path / "my" / "model")
    original.rename(tmp_path / "my" / "model-clean")
    tiny_model("bert", layers=2, seed=2).save_pretrained(tmp_path / "my" / "base")
    tiny_tokenizer().save_pretrained(tmp_path / "my" / "base")
    rows = labelled_rows(40).rename(columns={"original_label": "gold"})
    rows.to_csv(tmp_path / "my" / "data.csv", index=False)
    monkeypatch.setenv("MPLBACKEND", "agg")
    return tmp_path
