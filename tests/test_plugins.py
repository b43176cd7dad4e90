"""Techniques of other packages, installed for real, and of scripts have the rights of memloc's own.

A file with one class is all it takes: its two settings are options, YAML keys and arguments, and it
is in listings, plans, the control benchmark, report and figures.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import memloc
from memloc import techniques
from memloc.config import ControlRun
from memloc.engine.control import prepare
from memloc.engine.inputs import InputCache
from memloc.engine.local import LocalExecutor
from memloc.engine.store.store import Store
from memloc.report.figures.looks import technique_looks
from memloc.techniques import Settings, Technique
from memloc.techniques.base import TechniqueFailed, check_scores
from tests.conftest import Finished
from tests.tiny_models import tiny_context

QUICK = ("--limit", "90", "--epochs", "2", "--learning-rate", "1e-3", "--workers", "1")
GUIDE = Path(__file__).parents[1] / "docs" / "your-technique.md"
BROKEN = "import a_module_that_does_not_exist\n"
FEW = """
import pandas as pd
from memloc.techniques import Technique
class Few(Technique):
    name = "few"
    def score(self, context):
        return pd.DataFrame({"layer": [1], "weight": [0.5]})
class Nan(Few):
    name = "nan"
    def score(self, context):
        return pd.DataFrame({"layer": [1, 2, 3], "weight": [0.5, float("nan"), 1]})
class Crash(Few):
    name = "crash"
    def score(self, context):
        raise RuntimeError("a defect in the technique")
class Wrong(Few):
    needs = ("memorized",)
nothing = 3
"""


def install(target: Path) -> None:
    """Put a package with techniques into a folder, with the files that pip would write."""
    guide = GUIDE.read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", guide, re.DOTALL)
    entry = re.search(r"^spread = \"(.*)\"$", guide, re.MULTILINE)
    assert example
    assert entry
    info = "tiny_techniques-1.2.dist-info"
    points = {
        "spread": entry[1], "broken": "my_package.broken:Broken", "few": "my_package.few:Few",
        "nan": "my_package.few:Nan", "crash": "my_package.few:Crash",
        "wrong": "my_package.few:Wrong", "nothing": "my_package.few:nothing",
        "swapping": "my_package.few:Few",
    }  # fmt: skip
    files = {
        "my_package/__init__.py": "",
        "my_package/spread.py": example[1],
        "my_package/broken.py": BROKEN,
        "my_package/few.py": FEW,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny-techniques\nVersion: 1.2\n",
        f"{info}/entry_points.txt": "[memloc.techniques]\n"
        + "".join(f"{name} = {value}\n" for name, value in points.items()),
    }
    for name, text in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("plugin") / "site"
    install(target)
    return target


@pytest.fixture
def memloc_with(site: Path, tmp_path: Path):
    """The command line in a process of its own that sees the installed package."""

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        paths = [str(site), os.environ.get("PYTHONPATH", "")]
        return subprocess.run(
            [sys.executable, "-m", "memloc", *map(str, arguments)],
            cwd=tmp_path, text=True, capture_output=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "80"},
        )  # fmt: skip

    return call


def test_an_installed_technique_is_listed_and_a_broken_one_is_no_catastrophe(memloc_with) -> None:
    found = memloc_with("techniques")
    assert found.returncode == 0, found.stderr
    assert "tiny-techniques 1.2" in found.stdout
    assert "How far noisy examples scatter" in " ".join(found.stdout.split())
    assert "'broken' of tiny-techniques 1.2 cannot be imported: ModuleNotFoundError" in " ".join(
        found.stdout.split()
    )
    rows = {row["name"]: row for row in json.loads(memloc_with("techniques", "--json").stdout)}
    assert rows["swapping"]["from"] == "memloc"  # its name cannot be taken
    assert rows["spread"]["problem"] is None
    assert "did you mean 'memorised'" in rows["wrong"]["problem"]
    assert "not a subclass of memloc.techniques.Technique" in rows["nothing"]["problem"]
    about = memloc_with("techniques", "spread")
    said = " ".join(about.stdout.split())
    assert "--spread.power NUMBER (default 1.0) Exponent of the ratio." in said
    assert "--spread.centred true|false (default false)" in said


@pytest.mark.slow
def test_the_example_of_the_guide_works_beside_the_others(
    memloc_with, tiny_folder: Path, tmp_path: Path
) -> None:
    command = ("run", "--model", tiny_folder, "--task", "topics", *QUICK, "--no-explain",
               "--techniques", "swapping,spread,weight-change,random")  # fmt: skip
    found = memloc_with(*command)
    assert found.returncode == 0, found.stderr
    assert "spread" in found.stdout
    folder = next((tmp_path / "runs").glob("topics-*"))
    layers = pd.read_parquet(folder / "layers.parquet")
    weights = layers.groupby("technique")["weight"].apply(list).to_dict()
    assert set(weights) == {"swapping", "spread", "weight-change", "random"}
    assert all(len(weight) == 3 for weight in weights.values())
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert '"spread":"#117733"' in page.replace(" ", "")  # its colour
    # With a setting, it is computed anew, and only it.
    found = memloc_with(*command, "--spread.power", "2", "--json")
    summary = json.loads(found.stdout)
    assert summary["jobs"]["computed"] == 1
    of_it = summary["techniques"]["spread"]
    assert of_it["settings"] == {"power": 2.0, "centred": False}
    assert of_it["layer_weights"] == pytest.approx(
        [weight**2 for weight in weights["spread"]], rel=1e-5
    )
    # The same in a file, of which only a plan is made; and again from the settings of the result.
    file = tmp_path / "sweep.yaml"
    file.write_text(
        f"models: [{tiny_folder}]\ntasks: [topics]\nseeds: [1]\ndata: {{limit: 90}}\n"
        "techniques: {swapping: {}, spread: {power: 3, centred: true}}\nexplain: false\n"
    )
    found = memloc_with("sweep", file, "--dry-run")
    assert found.returncode == 0, found.stderr
    assert re.search(r"^technique +2 +0 ", found.stdout, re.MULTILINE), found.stdout
    settings = Path(summary["folder"]) / "settings.json"
    found = memloc_with("run", "--config", settings, "--workers", "1", "--json")
    assert json.loads(found.stdout)["jobs"]["computed"] == 0, found.stderr


def test_a_technique_that_fails_is_named_and_the_others_go_on(
    memloc_with, finished: Finished, tmp_path: Path
) -> None:
    finished.copy_to(tmp_path / "runs")
    command = ("run", "--config", finished.run / "settings.json", "--seeds", "1",
               "--no-explain", "--workers", "1", "--json", "--techniques")  # fmt: skip
    found = memloc_with(*command, "swapping,broken")
    assert found.returncode == 2
    assert found.stdout == ""  # before any work
    assert "'broken' of tiny-techniques 1.2 cannot be imported" in " ".join(found.stderr.split())
    found = memloc_with(*command, "few,nan,crash,spread,random")
    assert found.returncode == 2
    summary = json.loads(found.stdout)
    assert set(summary["techniques"]) == {"spread", "random"}
    said = " | ".join(summary["failures"])
    for words in (
        "'few' returned weights for layers [1] of a model with 3",
        "'nan' returned nan for layer 2",
        "a defect in the technique",
    ):
        assert words in said
        assert words in " ".join(found.stderr.split())
    assert "Traceback" not in found.stderr


def test_a_bad_setting_of_a_technique_is_one_sentence(memloc_with, tmp_path: Path) -> None:
    found = memloc_with("run", "--techniques", "spread", "--spread.power", "-1")
    assert found.returncode == 2
    assert found.stdout == ""
    words = "memloc: --spread.power '-1' is not possible: it has to be greater than 0.0\n"
    assert found.stderr == words
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pd.DataFrame({"layer": [1, 2]}), "no table with numbers"),
        (
            pd.DataFrame({"layer": [1, 1], "weight": [1, 1]}),
            r"for layers \[1, 1\] of a model",
        ),
        (pd.DataFrame({"layer": [1, 2], "weight": ["a", "b"]}), "no table with numbers"),
        (pd.DataFrame({"layer": [1, 2], "weight": [1, float("inf")]}), "inf for layer 2"),
    ],
)
def test_scores_are_checked(table: object, words: str) -> None:
    with pytest.raises(TechniqueFailed, match=words):
        check_scores("mine", table, 2)


def test_a_technique_without_a_score_is_named() -> None:
    nothing = type("Nothing", (Technique,), {"name": "x"})()
    with pytest.raises(TechniqueFailed, match="technique 'x' has no method 'score'; see docs"):
        nothing.localise(tiny_context("bert", 1))


class Alternating(Technique):
    """Odd layers, and a setting each for them and the others."""

    class Config(Settings):
        odd: float = 1.0
        even: float = 0.0

    config: Config
    name = "alternating"
    needs = ("memorised",)
    colour, marker = "#112233", "*"

    def score(self, context: techniques.Context) -> pd.DataFrame:
        layers = range(1, context.n_layers + 1)
        weights = [self.config.odd if layer % 2 else self.config.even for layer in layers]
        return pd.DataFrame({"layer": layers, "weight": weights})


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> type[Technique]:
    monkeypatch.setattr(techniques, "_registered", {})
    return techniques.register(Alternating)


def test_a_class_in_a_script_takes_part_in_the_control_benchmark(
    registered: type[Technique], tiny_folder: Path, tmp_path: Path
) -> None:
    """Nobody names it: all that there are take part."""
    models = [{"model": {"name": str(tiny_folder)}}]
    config = ControlRun(models=models, tasks=["topics"], auxiliary="reviews", data={"limit": 90})
    store = Store(tmp_path)
    with LocalExecutor(store, 1) as executor:
        found = prepare(config, InputCache(executor, {"device": "cpu"}))
    assert {"swapping", "alternating"} <= {*found.plan.cells[0].results}


def test_a_class_in_a_script_is_a_technique_as_any_other(
    registered: type[Technique], tiny_folder: Path, tmp_path: Path
) -> None:
    assert "alternating" in techniques.names()
    assert techniques.make("alternating", {"even": 2}) == Alternating(even=2) != Alternating()
    result = memloc.run(
        str(tiny_folder), "topics", data={"limit": 90}, training={"epochs": 1},
        techniques=["random", Alternating(even=0.5)], explain=False, workers=1,
        runs=tmp_path, progress=False,
    )  # fmt: skip
    weights = result.layers[result.layers["technique"] == "alternating"]["weight"]
    assert weights.tolist() == [1.0, 0.5, 1.0]
    assert technique_looks(["alternating"])["alternating"].colour == "#112233"
    with pytest.raises(techniques.PluginFailed, match="is taken by a technique of memloc"):
        techniques.register(type("Other", (Alternating,), {"name": "swapping"}))
    inside = type("Inside", (Alternating,), {"name": "inside", "__qualname__": "f.<locals>.Inside"})
    techniques.register(inside)
    with pytest.raises(techniques.PluginFailed, match="other processes cannot import it"):
        techniques.place_of("inside")


@pytest.mark.slow
def test_techniques_of_other_packages_are_scored_in_the_control_benchmark(
    memloc_with, tiny_folder: Path, tmp_path: Path
) -> None:
    """Nobody names them: all that there are take part, and what is broken stops nobody."""
    found = memloc_with(
        "control", "--model", tiny_folder, "--tasks", "topics", "--layers", "first", *QUICK,
        "--aux-limit", "40", "--control.attempts", "1", "--windows", "1",
        "--retraining.epochs", "1", "--probing.epochs", "2", "--probing.seeds", "2",
        "--probing.least_steps", "0", "--probing.fitted_at", "0",
    )  # fmt: skip
    assert found.returncode == 2, found.stderr
    complaints = " ".join(found.stderr.split())
    for words in ("layers [1] of a model with 3", "returned nan for layer 2", "a defect in the"):
        assert words in complaints
    # What cannot even be imported is mentioned, but no failure: nobody asked for it.
    assert "note: technique 'broken' of tiny-techniques 1.2 cannot be imported" in complaints
    assert "memloc: technique 'broken'" not in complaints
    table = found.stdout.split("By task")[0]
    assert all(name in table for name in ("spread", "swapping", "random"))
    assert all(name not in table for name in ("few", "crash", "broken"))
    accuracy = pd.read_parquet(next((tmp_path / "runs").glob("control-*")) / "accuracy.parquet")
    assert {"spread", "swapping", "shapley"} <= set(accuracy["technique"])
