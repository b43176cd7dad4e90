"""Techniques of other packages: installed for real, used from the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from memloc.techniques.base import MethodFailed, check_scores
from tests.cli.test_experiments import QUICK

GUIDE = Path(__file__).parents[1] / "docs" / "your-technique.md"
BROKEN = "import a_module_that_does_not_exist\n"
FEW = """
import pandas as pd
class Few:
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
    """Put a package with techniques into a folder, as pip does it."""
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
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[memloc.techniques]\n"
        + "".join(f"{name} = {value}\n" for name, value in points.items()),
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in files)
    wheel = target.parent / "tiny_techniques-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
         "--disable-pip-version-check", "--target", target, wheel],
        check=True, capture_output=True,
    )  # fmt: skip


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
    assert "not a class with a method score" in rows["nothing"]["problem"]


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
    # With an option, it is computed anew, and only it.
    found = memloc_with(*command, "--set", "spread.power=2", "--json")
    summary = json.loads(found.stdout)
    assert summary["jobs"]["computed"] == 1
    assert summary["methods"]["spread"]["settings"] == {"options": {"spread": {"power": 2}}}
    assert summary["methods"]["spread"]["layer_weights"] == pytest.approx(
        [weight**2 for weight in weights["spread"]], rel=1e-5
    )


def test_a_technique_that_fails_is_named_and_the_others_go_on(
    memloc_with, tiny_folder: Path, tmp_path: Path
) -> None:
    found = memloc_with("run", "--model", tiny_folder, "--task", "topics", *QUICK, "--no-explain",
                        "--techniques", "broken,few,nan,crash,random", "--json")  # fmt: skip
    assert found.returncode == 2
    summary = json.loads(found.stdout)
    assert set(summary["methods"]) == {"random"}
    said = " | ".join(summary["failures"])
    for words in (
        "'broken' of tiny-techniques 1.2 cannot be imported",
        "'few' returned weights for layers 1 of a model with 3",
        "'nan' returned nan for layer 2",
        "a defect in the technique",
    ):
        assert words in said
        assert words in " ".join(found.stderr.split())
    assert "Traceback" not in found.stderr


BAD = {
    "no technique left": (("--techniques", "broken"), "'broken' of tiny-techniques"),
    "misspelt": (("--techniques", "spred"), "did you mean 'spread'?"),
    "no form": (
        ("--techniques", "spread", "--set", "power=2"),
        "is not of the form NAME.KEY=VALUE",
    ),
    "not used": (
        ("--techniques", "random", "--set", "spread.power=2"),
        "is not among the techniques",
    ),
    "own": (("--techniques", "random", "--set", "random.seed=2"), "has options of its own"),
    "value": (("--techniques", "spread", "--set", "spread.power=high"), "--set spread.power=high"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_use_of_techniques_is_one_sentence(
    case: str, memloc_with, tiny_folder: Path, tmp_path: Path
) -> None:
    options, words = BAD[case]
    found = memloc_with("run", "--model", tiny_folder, *QUICK, *options)
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.startswith("memloc: ")
    assert found.stderr.count("\n") == 1
    assert words in found.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (None, "no table with columns layer and weight"),
        (pd.DataFrame({"layer": [1, 2]}), "no table with columns layer and weight"),
        (pd.DataFrame({"layer": [1, 1], "weight": [1, 1]}), "for layers 1, 1 of a model with 2"),
        (pd.DataFrame({"layer": [0, 1], "weight": [1, 1]}), "for layers 0, 1 of a model with 2"),
        (pd.DataFrame({"layer": [1, 2], "weight": ["a", "b"]}), "weights that are no numbers"),
        (pd.DataFrame({"layer": [1, 2], "weight": [1, float("inf")]}), "inf for layer 2"),
    ],
)
def test_scores_are_checked(table: object, words: str) -> None:
    with pytest.raises(MethodFailed, match=words):
        check_scores("mine", table, 2)


def test_scores_may_come_in_any_order() -> None:
    table = pd.DataFrame({"layer": [2, 1], "weight": [0.2, 0.1]})
    assert check_scores("mine", table, 2)["weight"].tolist() == [0.1, 0.2]


def test_techniques_of_other_packages_are_scored_in_the_control_benchmark(
    memloc_with, tiny_folder: Path, tmp_path: Path
) -> None:
    """Nobody names them: all that there are take part, and what is broken stops nobody."""
    found = memloc_with(
        "control", "--model", tiny_folder, "--tasks", "topics", "--layers", "first", *QUICK,
        "--aux-limit", "40", "--control.attempts", "1", "--window-sizes", "1",
    )  # fmt: skip
    assert found.returncode == 2, found.stderr
    complaints = " ".join(found.stderr.split())
    for words in ("layers 1 of a model with 3", "returned nan for layer 2", "a defect in the"):
        assert words in complaints
    # What cannot even be imported is mentioned, but no failure: nobody asked for it.
    assert "Note: technique 'broken' of tiny-techniques 1.2 cannot be imported" in complaints
    assert "memloc: technique 'broken'" not in complaints
    table = found.stdout.split("By task")[0]
    assert all(name in table for name in ("spread", "swapping", "random"))
    assert all(name not in table for name in ("few", "crash", "broken"))
    accuracy = pd.read_parquet(next((tmp_path / "runs").glob("control-*")) / "accuracy.parquet")
    assert {"spread", "swapping", "shapley"} <= set(accuracy["technique"])
