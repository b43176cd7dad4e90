"""`memloc store`: a result is listed, checked, cleaned up around, and given to a colleague."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from memloc.engine.store.admin import inventory
from memloc.engine.store.store import Store
from tests.conftest import Finished
from tests.store.artefacts import make_older, write_training


@pytest.fixture
def runs(finished: Finished, tmp_path: Path) -> Path:
    finished.copy_to(tmp_path / "runs")
    return tmp_path / "runs"


def test_a_colleague_can_go_on_as_if_the_result_were_his(
    memloc, finished: Finished, runs: Path
) -> None:
    folder = runs / finished.run.name
    made_from = len(json.loads((folder / "artefacts.json").read_text()))
    code, out, _ = memloc("store", "export", folder, "-o", "mine.tar.gz")
    assert code == 0
    assert f"results: 1, artefacts: {made_from}" in out
    code, out, err = memloc("store", "import", "mine.tar.gz", "--runs", "theirs")
    assert (code, err) == (0, "")
    there = Path("theirs") / folder.name
    assert f"memloc report {there}\nArtefacts: {made_from} new, 0 here already and kept.\n" in out
    assert not (there / "report.html").exists()
    assert memloc("report", there)[0] == 0
    assert (there / "report.html").is_file()
    code, out, _ = memloc(*finished.run_words, "--runs", "theirs")
    assert code == 0
    assert "Nothing to compute" in out
    for path in folder.glob("*.parquet"):
        table = pd.read_parquet(path)
        pd.testing.assert_frame_equal(table, pd.read_parquet(there / path.name))
    code, out, _ = memloc("store", "import", "mine.tar.gz", "--runs", "theirs", "--json")
    done = json.loads(out)
    assert (done["kept_artefacts"], done["kept_results"]) == (made_from, [str(there)])


def test_the_store_is_listed_by_kind_and_as_json_by_artefact(memloc, runs: Path) -> None:
    code, out, _ = memloc("store", "list")
    assert code == 0
    kinds = [line.split()[0] for line in out.splitlines()]
    assert {"data", "localise", "train", "window"} < {*kinds[1:-1]}
    assert (kinds[0], kinds[-1]) == ("kind", "All:")
    rows = json.loads(memloc("store", "list", "--json")[1])
    trainings = [row for row in rows if row["kind"] == "train"]
    assert len(trainings) == 5  # two seeds, and the frozen model
    assert all(row["bytes"] > 0 and len(row["key"]) == 32 for row in trainings)


def test_verify_says_what_is_damaged_and_running_again_mends_it(
    memloc, finished: Finished, runs: Path
) -> None:
    code, out, _ = memloc("store", "verify")
    assert (code, out.split(": ")[1]) == (0, "all sound.\n")
    path = next((runs / "store" / "localise").iterdir()) / "layers.parquet"
    content = path.read_bytes()
    path.unlink()  # it is a link
    path.write_bytes(content + b"x")
    code, out, err = memloc("store", "verify")
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert "is damaged (layers.parquet does not match its checksum) and was set aside" in lines[0]
    assert lines[1].endswith("checked: 1 damaged.")
    assert "localise (damaged)" in memloc("store", "list")[1]
    for words in (finished.run_words, finished.control_words):
        assert memloc(*words)[0] == 0
    assert json.loads(memloc("store", "verify", "--json")[1])["damaged"] == []


def test_gc_says_what_goes_and_what_stays(memloc, finished: Finished, runs: Path) -> None:
    store, everything = Store(runs / "store"), len(inventory(runs))
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
    assert len(inventory(runs)) == everything
    assert memloc("store", "gc", "--unreferenced") == (0, "There is nothing to remove.\n", "")
    assert "Nothing to compute" in memloc(*finished.run_words)[1]
