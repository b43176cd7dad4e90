"""`memloc store`: a result is listed, checked, cleaned up around, and given to a colleague."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from memloc import cli
from memloc.engine.store.admin import inventory
from memloc.engine.store.store import Store
from tests.store.artefacts import make_older, write_training
from tests.tiny_models import tiny_model, tiny_tokenizer

SETTINGS = [
    *("--task", "questions", "--limit", "60", "--epochs", "1", "--techniques", "swapping"),
    *("--no-explain", "--workers", "1"),
]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and one finished run, for all tests to copy."""
    folder = tmp_path_factory.mktemp("work")
    tiny_model("bert", layers=2).save_pretrained(folder / "tiny")
    tiny_tokenizer().save_pretrained(folder / "tiny")
    with pytest.MonkeyPatch.context() as patch:
        call = ["run", "--model", str(folder / "tiny"), *SETTINGS, "--runs", str(folder / "runs")]
        patch.setattr("sys.argv", ["memloc", *call])
        cli.main()
    return folder


@pytest.fixture
def runs(work: Path, tmp_path: Path) -> Path:
    shutil.copytree(work / "runs", tmp_path / "runs")
    return tmp_path / "runs"


def result_in(runs: Path) -> Path:
    return next(runs.glob("questions-*"))


def test_a_colleague_can_go_on_as_if_the_result_were_his(memloc, work: Path, runs: Path) -> None:
    folder = result_in(runs)
    code, out, _ = memloc("store", "export", folder, "-o", "mine.tar.gz")
    assert code == 0
    assert "results: 1, artefacts: 6" in out
    code, out, err = memloc("store", "import", "mine.tar.gz", "--runs", "theirs")
    assert (code, err) == (0, "")
    there = Path("theirs") / folder.name
    assert f"memloc report {there}\nArtefacts: 6 new, 0 here already and kept.\n" in out
    assert not (there / "report.html").exists()
    assert memloc("report", there)[0] == 0
    assert (there / "report.html").is_file()
    assert memloc("claims", "theirs")[0] == 0
    code, out, _ = memloc("run", "--model", work / "tiny", *SETTINGS, "--runs", "theirs")
    assert code == 0
    assert "Nothing to compute: all 4 jobs were in the store already." in out
    for path in folder.glob("*.parquet"):
        table = pd.read_parquet(path)
        pd.testing.assert_frame_equal(table, pd.read_parquet(there / path.name))
    code, out, _ = memloc("store", "import", "mine.tar.gz", "--runs", "theirs", "--json")
    done = json.loads(out)
    assert (done["kept_artefacts"], done["kept_results"]) == (6, [str(there)])


def test_the_store_is_listed_by_kind_and_as_json_by_artefact(memloc, runs: Path) -> None:
    code, out, _ = memloc("store", "list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        *("kind", "data", "localise", "model", "train", "All:"),
    ]
    rows = json.loads(memloc("store", "list", "--json")[1])
    trainings = [row for row in rows if row["kind"] == "train"]
    assert len(trainings) == 3
    assert all(row["seconds"] > 0 and len(row["key"]) == 32 for row in trainings)


def test_verify_says_what_is_damaged_and_running_again_mends_it(
    memloc, work: Path, runs: Path
) -> None:
    code, out, _ = memloc("store", "verify")
    assert (code, out.split(": ")[1]) == (0, "all sound.\n")
    path = next((runs / "store" / "localise").iterdir()) / "layers.parquet"
    path.write_bytes(path.read_bytes() + b"x")
    code, out, err = memloc("store", "verify")
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert "is damaged (layers.parquet does not match its checksum) and was set aside" in lines[0]
    assert lines[1].endswith("checked: 1 damaged.")
    assert "localise (damaged)" in memloc("store", "list")[1]
    assert memloc("run", "--model", work / "tiny", *SETTINGS)[0] == 0
    assert json.loads(memloc("store", "verify", "--json")[1])["damaged"] == []


def test_gc_says_what_goes_and_what_stays(memloc, work: Path, runs: Path) -> None:
    store = Store(runs / "store")
    write_training(store, 7, ("data", "x"))
    make_older(store)
    aside = next((runs / "store" / "train").iterdir())
    shutil.copytree(aside, aside.with_name(f"{aside.name}.damaged-abcdef"))
    before = set(runs.rglob("*"))
    code, out, _ = memloc("store", "gc", "--dry-run")
    assert "1  artefacts set aside as damaged would go" in out
    assert "--unreferenced removes them, too" in out
    assert (code, set(runs.rglob("*"))) == (0, before)
    done = json.loads(memloc("store", "gc", "--unreferenced", "--json")[1])
    assert {row["what"]: row["number"] for row in done["removed"]} == {
        "artefacts set aside as damaged": 1,
        "artefacts that no result refers to": 1,
    }
    assert done["freed_bytes"] > 0
    assert len(inventory(runs)) == 6
    assert memloc("store", "gc", "--unreferenced") == (0, "There is nothing to remove.\n", "")
    _, out, _ = memloc("run", "--model", work / "tiny", *SETTINGS)
    assert "Nothing to compute" in out
