"""What `import memloc` offers: light, typed, documented by examples that run."""

from __future__ import annotations

import copy
import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import memloc
from tests.api.conftest import Setup

ROOT = Path(memloc.__file__).parent


def test_importing_memloc_imports_nothing_heavy() -> None:
    code = """
import sys, memloc
heavy = {"torch", "transformers", "pandas", "numpy", "matplotlib", "typer"} & sys.modules.keys()
assert not heavy, heavy
assert set(memloc.__all__) <= set(dir(memloc))
assert memloc.MemlocError.__mro__[1] is Exception
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_public_name_is_there_and_stays_what_it_is() -> None:
    for name in memloc.__all__:
        assert getattr(memloc, name) is getattr(memloc, name)
    assert callable(memloc.localise)  # not a module of that name
    with pytest.raises(AttributeError, match="module 'memloc' has no attribute 'locate'"):
        memloc.locate  # type: ignore[attr-defined]  # noqa: B018


def test_techniques_are_objects_that_hold_their_settings() -> None:
    technique = memloc.Retraining(epochs=3)  # type: ignore[attr-defined]
    assert technique.config.epochs == 3
    assert "Retraining" in dir(memloc)
    with pytest.raises(memloc.MemlocError, match=r"^retraining\.epochs 0 is not possible"):
        memloc.Retraining(epochs=0)  # type: ignore[attr-defined]


def test_settings_are_objects_too() -> None:
    assert memloc.Training(epochs=3).batch_size == 8
    with pytest.raises(memloc.MemlocError, match=r"^epochs 0 is not possible"):
        memloc.Training(epochs=0)


def test_the_analyses_are_what_their_module_lists() -> None:
    own = {
        name
        for name, found in vars(memloc.analyses).items()
        if inspect.isfunction(found)
        and found.__module__ == memloc.analyses.__name__
        and name[0] != "_"
    }
    assert own == set(memloc.analyses.__all__)


@pytest.mark.slow
def test_a_file_of_a_user_passes_strict_type_checks(tmp_path: Path) -> None:
    assert (ROOT / "py.typed").exists()
    right = """
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import memloc
from memloc.techniques.swapping import Swapping


def analyse(folder: str, data: pd.DataFrame) -> float | None:
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    result: memloc.Result = memloc.localise(
        memorised=model, tokenizer=tokenizer, data=data, suspects=[True, False]
    )
    with memloc.prepare(memorised=model, tokenizer=tokenizer, data=data) as context:
        layers: pd.DataFrame = Swapping().localise(context).layers
    print(layers, memloc.BlockModel(model).n_layers)
    return result.mcog("swapping")


def experiment() -> Path:
    result = memloc.run("minilm", {"text": ["a"], "label": [1]}, seeds=[1, 2], techniques="random")
    picture: Figure = result.plot.heatmap("swapping")
    skipped: dict[str, str] = result.skipped
    weights: float | None = memloc.analyses.mcog([1.0, 2.0])
    print(picture, skipped, weights, memloc.load("runs/a").table("probes"))
    print(memloc.perturb(["a", "b"], noise=0.5))
    return result.report("a.html")
"""
    wrong = """
import memloc

memloc.run(workers="ten")
memloc.runn()
memloc.load("a").layer
"""
    files = {"right.py": right, "wrong.py": wrong}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    settings = Path(__file__).parents[2] / "pyproject.toml"  # the same, so that its cache serves
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", settings, *(tmp_path / f for f in files)],
        capture_output=True,
        text=True,
        cwd=settings.parent,
        timeout=600,
    )
    errors = [line for line in found.stdout.splitlines() if ": error:" in line]
    assert [line for line in errors if "right.py" in line] == []
    wanted = ('"workers" to "run"', 'no attribute "runn"', 'has no attribute "layer"')
    mistakes = [line for line in errors if "wrong.py" in line]
    assert len(mistakes) == len(wanted), found.stdout
    assert all(words in line for words, line in zip(wanted, mistakes, strict=True))


def test_the_examples_of_the_docstrings_run(
    trained: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trained.pretrained.save_pretrained("path/to/model")
    trained.tokenizer.save_pretrained("path/to/model")
    memloc.localise(**trained.both, techniques="swapping", explain=False).save("saved")
    names = {
        "memloc": memloc,
        "model_m": trained.memorised,
        "model_o": trained.original,
        "model_p": copy.deepcopy(trained.pretrained),
        "tok": trained.tokenizer,
        "df": trained.data,
    }
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    documented = ("run", "localise", "prepare", "load", "perturb", "fine_tune")
    functions = [getattr(memloc, name) for name in documented]
    for function in (*functions, memloc.analyses.mcog):
        (test,) = finder.find(function, function.__name__, globs=names)
        assert test.examples, function
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
    for name in memloc.__all__:
        assert name == "__version__" or getattr(memloc, name).__doc__
