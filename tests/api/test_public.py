"""What `import memloc` offers: light, typed, documented by examples that run."""

from __future__ import annotations

import copy
import doctest
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


def test_techniques_are_objects_that_hold_their_settings() -> None:
    technique = memloc.Retraining(epochs=3)  # type: ignore[attr-defined]
    assert technique.config.epochs == 3
    assert "Retraining" in dir(memloc)
    with pytest.raises(memloc.MemlocError, match=r"^retraining\.epochs 0 is not possible"):
        memloc.Retraining(epochs=0)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_file_of_a_user_is_type_checked(tmp_path: Path) -> None:
    assert (ROOT / "py.typed").exists()
    file = tmp_path / "of_a_user.py"
    file.write_text("""
import memloc
from matplotlib.figure import Figure

result: memloc.Result = memloc.run("minilm", {"text": ["a"], "label": [1]}, seeds=[1, 2])
picture: Figure = result.plot.heatmap("swapping")
centre: float | None = result.mcog("swapping")
memloc.run(workers="ten")
memloc.runn()
""")
    settings = Path(__file__).parents[2] / "pyproject.toml"  # the same, so that its cache serves
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", settings, file],
        capture_output=True,
        text=True,
        cwd=settings.parent,
        timeout=600,
    )
    errors = [line for line in found.stdout.splitlines() if "of_a_user.py" in line]
    assert len(errors) == 2, found.stdout
    assert '"workers" to "run"' in errors[0]
    assert 'no attribute "runn"' in errors[1]


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
        "result": memloc.run(
            "path/to/model",
            trained.data[["text", "gold"]],
            data={"label_column": "gold", "noise": 0.2},
            **{"training": {"epochs": 1}, "techniques": "swapping", "explain": False},
            **{"workers": 1, "progress": False},
        ),
    }
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    documented = ("run", "repair", "localise", "prepare", "load", "perturb", "fine_tune")
    for function in (getattr(memloc, name) for name in documented):
        (test,) = finder.find(function, function.__name__, globs=names)
        assert test.examples, function
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
    for name in memloc.__all__:
        assert name == "__version__" or getattr(memloc, name).__doc__
