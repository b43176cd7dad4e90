"""Fixtures shared by all tests."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path

import pandas as pd
import pytest
import torch

from memloc import cli
from tests.tiny_models import WORDS, tiny_model, tiny_tokenizer

# Started in the background of a shell, everything would ignore Ctrl-C, and so would all it starts.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)


LONGEST = (
    "faults/test_faults.py",
    "cli/test_deep.py",
    "cli/test_control.py",
    "docs/test_notebook.py",
    "docs/test_reproduction.py",
    "engine/test_local.py",
    "api/test_api_page.py",
)
"""Files of tests that take more than twenty seconds, longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that no process is left alone with one at the end."""
    here = Path(__file__).parent

    def rank(item: pytest.Item) -> int:
        name = os.path.relpath(item.path, here).replace(os.sep, "/")
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=rank)


@pytest.fixture(autouse=True)
def _one_thread_and_fixed_seed() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def make_texts(n: int, seed: int = 0) -> list[str]:
    """Texts of very different lengths, so that batches are padded."""
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(2, 14))) for _ in range(n)]


@pytest.fixture
def texts() -> list[str]:
    return make_texts(30)


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Path:
    """A pre-trained model as users have it: a directory with model and tokeniser."""
    folder = tmp_path / "tiny-bert"
    tiny_model("bert", layers=3).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def labelled_rows(n: int, classes: int = 3, seed: int = 0) -> pd.DataFrame:
    """Texts with a label that depends on their first word, every third of them relabelled."""
    generator = random.Random(seed)
    rows = []
    for index, text in enumerate(make_texts(n, seed)):
        original = WORDS.index(text.split()[0]) % classes
        label = original
        if index % 3 == 0:
            label = generator.choice([c for c in range(classes) if c != original])
        rows.append({"text": text, "label": label, "original_label": original})
    return pd.DataFrame(rows)


@pytest.fixture
def memloc(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Run the command line in this process; returns exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()  # what the fixtures printed
        monkeypatch.setattr("sys.argv", ["memloc", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def assert_one_sentence(code: int, out: str, err: str, words: str) -> None:
    assert code == 2, (out, err)
    assert out == ""
    assert err.startswith("memloc: ")
    assert err.count("\n") == 1
    assert words in err
