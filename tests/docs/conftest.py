"""The folder in which the blocks of a page run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from memloc import cli
from memloc.models import names
from tests.conftest import labelled_rows, make_once, shared_folder
from tests.tiny_models import save_pair, tiny_model, tiny_tokenizer

TASTE = ("run", "--limit", "60", "--epochs", "2", "--techniques", "swapping")
"""The cheapest experiment, with which the pages begin; computed once for all of them."""


def put_in_place_of_minilm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model in a folder answers to the name `minilm`; worker processes are told where it is."""
    found = folder, names.folder_fingerprint(folder)
    monkeypatch.setattr(names, "minilm_folder", lambda: found)


@pytest.fixture(scope="session")
def tasted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model, and a result of it in `runs`."""

    def compute(folder: Path) -> None:
        tiny_model("bert", layers=3).save_pretrained(folder / "tiny-bert")
        tiny_tokenizer().save_pretrained(folder / "tiny-bert")
        with pytest.MonkeyPatch.context() as monkeypatch:
            put_in_place_of_minilm(folder / "tiny-bert", monkeypatch)
            words = [*TASTE, "--workers", "1", "--runs", str(folder / "runs")]
            assert not cli.app(words, standalone_mode=False)

    folder = shared_folder(tmp_path_factory, "tasted")
    make_once(folder, compute)
    return folder


@pytest.fixture
def page_folder(tasted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a reader has: a result in `runs`, models and data in `my`."""
    put_in_place_of_minilm(tasted / "tiny-bert", monkeypatch)
    # Artefacts are never written to again, so they need not be copied.
    shutil.copytree(tasted / "runs" / "store", tmp_path / "runs" / "store", copy_function=os.link)
    for result in (tasted / "runs").glob("questions-*"):
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
