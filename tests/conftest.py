"""Fixtures shared by all tests."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import random
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import torch
from filelock import FileLock
from hypothesis import settings

from memloc import cli
from tests.tiny_models import WORDS, tiny_model, tiny_tokenizer

# Started in the background of a shell, everything would ignore Ctrl-C, and so would all it starts.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: no test depends on the load of the machine.
settings.register_profile("memloc", max_examples=25, deadline=None)
settings.load_profile("memloc")


def pytest_collection_finish() -> None:
    """Every job collects garbage; what libraries and tests are made of is looked at once."""
    gc.collect()
    gc.freeze()


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


@dataclass(frozen=True)
class Finished:
    """One finished run and one control result of a tiny model, with the store they share.

    Attributes:
        runs: The folder with `store`, the result of the run and that of the control benchmark.
        model: The pre-trained model, a directory: BERT with three layers.
        run_words: The command that made the run, without `--runs`.
        control_words: The command that made the control result, without `--runs`.
    """

    runs: Path
    model: Path
    run_words: tuple[str, ...]
    control_words: tuple[str, ...]

    @property
    def run(self) -> Path:
        """The result of the run: two seeds, the default techniques, explanations, a report."""
        return next(self.runs.glob("words-*"))

    @property
    def control(self) -> Path:
        """The result of the control benchmark: one task, hidden in layer 1 or 3."""
        return next(self.runs.glob("control-*"))

    def copy_to(self, runs: Path) -> Path:
        """A copy that a test may write to; returns its folder of the run.

        The same command with `--runs` there finds everything in the store, so it takes a second.
        Artefacts are linked, because nothing ever writes to them again.
        """
        shutil.copytree(self.runs / "store", runs / "store", copy_function=os.link)
        for result in (self.run, self.control):
            shutil.copytree(result, runs / result.name)
        return runs / self.run.name


def shared_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder that all processes of this test run have in common."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # each process has a folder of its own in this one
        folder = folder.parent
    return folder / name


def make_once(folder: Path, make: Callable[[Path], None]) -> None:
    """Fill a shared folder, unless another process has done so; it must not be written to later."""
    with FileLock(f"{folder}.lock"):
        if not (folder / ".made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            (folder / ".made").touch()


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A finished run and a control result, computed once for all tests of all processes.

    Only read them; a test that writes takes a copy:

        def test_tables(finished): pd.read_parquet(finished.run / "layers.parquet")
        def test_report(finished, tmp_path, memloc):
            finished.copy_to(tmp_path / "runs")
            memloc(*finished.run_words)  # nothing to compute
    """
    folder = shared_folder(tmp_path_factory, "finished")
    model, task = folder / "tiny-bert", folder / "words.csv"
    quick = (
        *("--model", str(model), "--noise", "0.2", "--learning-rate", "2e-3"),
        *("--probing.epochs", "4", "--probing.seeds", "2", "--workers", "1"),
        *("--probing.least_steps", "0", "--probing.fitted_at", "0"),
    )
    run_words = ("run", "--task", str(task), "--seeds", "1,2", "--epochs", "10", *quick)
    control_words = (
        *("control", "--tasks", str(task), "--layers", "1,3", "--aux-limit", "20"),
        *("--control.attempts", "1", "--windows", "1", "--epochs", "4", *quick),
    )

    def compute(folder: Path) -> None:
        torch.set_num_threads(1)
        no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        tiny_model("bert", layers=3, **no_dropout).save_pretrained(model)
        tiny_tokenizer().save_pretrained(model)
        rows = labelled_rows(75)
        rows.assign(label=rows.pop("original_label")).to_csv(task, index=False)
        for words in (run_words, control_words):
            with contextlib.redirect_stdout(io.StringIO()):
                code = cli.app([*words, "--runs", str(folder / "runs")], standalone_mode=False)
            assert not code

    make_once(folder, compute)
    return Finished(folder / "runs", model, run_words, control_words)
