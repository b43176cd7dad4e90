"""`memloc store`: a result is listed, checked, cleaned up around, and given to a colleague."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from memloc import cli
from memloc.engine.store.inventory import entries
from memloc.engine.store.store import Store
from tests.conftest import assert_one_sentence
from tests.store.artefacts import make_older, write_data, write_result, write_training
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


def tables(folder: Path) -> dict[str, pd.DataFrame]:
    return {path.name: pd.read_parquet(path) for path in folder.glob("*.parquet")}


def test_a_result_lists_all_it_was_made_from(runs: Path) -> None:
    listed = json.loads((result_in(runs) / "artefacts.json").read_text())
    store = Store(runs / "store")
    assert {tuple(pair) for pair in listed} == {(e.kind, e.key) for e in entries(store)}
    assert {kind for kind, _ in listed} == {"data", "model", "train", "localise"}


def test_a_colleague_can_go_on_as_if_the_result_were_his(memloc, work: Path, runs: Path) -> None:
    folder = result_in(runs)
    code, out, _ = memloc("store", "export", folder, "-o", "mine.tar.gz")
    assert code == 0
    assert "results: 1, artefacts: 6" in out
    code, out, err = memloc("store", "import", "mine.tar.gz", "--runs", "theirs")
    assert (code, err) == (0, "")
    there = Path("theirs") / folder.name
    assert f"Imported {there}\nArtefacts: 6 new, 0 here already and kept.\n" in out
    assert not (there / "report.html").exists()
    assert memloc("report", there)[0] == 0
    assert (there / "report.html").is_file()
    assert memloc("claims", "theirs")[0] == 0
    code, out, _ = memloc("run", "--model", work / "tiny", *SETTINGS, "--runs", "theirs")
    assert code == 0
    assert "Nothing to compute: all 4 jobs were in the store already." in out
    for name, table in tables(folder).items():
        pd.testing.assert_frame_equal(table, pd.read_parquet(there / name))
    code, out, _ = memloc("store", "import", "mine.tar.gz", "--runs", "theirs", "--json")
    done = json.loads(out)
    assert (done["kept_artefacts"], done["kept_results"]) == (6, [str(there)])


def test_without_weights_a_colleague_gets_the_tables(memloc, runs: Path) -> None:
    folder = result_in(runs)
    arguments = ("--out", "mine.tar", "--without-weights", "--json")
    assert json.loads(memloc("store", "export", folder, *arguments)[1])["left_out"] == 3
    _, out, _ = memloc("store", "import", "mine.tar", "--runs", "theirs")
    assert "3 with weights or states were not sent" in out
    assert memloc("report", Path("theirs") / folder.name)[0] == 0


def test_the_store_is_listed_in_80_columns(memloc, runs: Path) -> None:
    code, out, _ = memloc("store", "list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        *("kind", "data", "localise", "model", "train", "all"),
    ]
    code, detail, _ = memloc("store", "list", "--kind", "train")
    assert "θ_M, seed 1, on questions" in detail
    assert max(map(len, (out + detail).splitlines())) <= 80
    rows = json.loads(memloc("store", "list", "--kind", "train", "--json")[1])
    assert {row["what"] for row in rows} >= {"θ_O, seed 1, on questions"}
    assert all(row["seconds"] > 0 and len(row["key"]) == 32 for row in rows)
    kinds = json.loads(memloc("store", "list", "--json")[1])["kinds"]
    assert {row["kind"]: row["number"] for row in kinds}["train"] == 3


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
    assert "is damaged (layers.parquet does not match its checksum); set aside as" in lines[0]
    assert lines[1].endswith("checked: 1 damaged.")
    found = json.loads(memloc("store", "list", "--json")[1])
    assert len(found["set_aside"]) == 1
    code, out, _ = memloc("run", "--model", work / "tiny", *SETTINGS)
    assert code == 0
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
    assert "an interrupted run may need them. --unreferenced" in " ".join(out.split())
    assert (code, set(runs.rglob("*"))) == (0, before)
    code, out, _ = memloc("store", "gc", "--unreferenced", "--json")
    done = json.loads(out)
    numbers = {row["what"]: row["number"] for row in done["removed"]}
    assert numbers["artefacts set aside as damaged"] == 1
    assert numbers["artefacts that no result refers to"] == 1
    assert done["freed_bytes"] > 0
    assert len(entries(store)) == 6
    assert memloc("store", "gc", "--unreferenced") == (0, "There is nothing to remove.\n", "")
    _, out, _ = memloc("run", "--model", work / "tiny", *SETTINGS)
    assert "Nothing to compute" in out


def test_results_of_older_versions_are_named(memloc, tmp_path: Path) -> None:
    store = Store(tmp_path / "runs" / "store")
    write_data(store)
    make_older(store)
    write_result(tmp_path / "runs", "older", None)
    code, out, _ = memloc("store", "gc")
    assert code == 0
    assert "do not say what they were made from: older." in " ".join(out.split())
    assert len(entries(store)) == 1


def test_bad_input_is_one_sentence(memloc, runs: Path) -> None:
    folder = result_in(runs)
    for arguments, words in {
        ("list", "--runs", "none"): "there is no store in 'none'",
        ("verify", "--runs", "none"): "there is no store in 'none'",
        ("gc", "--runs", "none"): "there is no store in 'none'",
        ("list", "--kind", "trian"): "did you mean 'train'?",
        ("export", folder, "-o", "x.zip"): "end it with .tar.gz or .tar",
        ("export", "runs", "-o", "x.tar"): "is not a folder of results",
        ("export", folder, "-o", "none/x.tar"): "cannot write 'none/x.tar'",
        ("import", "none.tar"): "there is no file 'none.tar'",
        ("import", folder / "settings.json"): "was not imported: it is",
        ("import", "x", "--max-size", "many"): "--max-size 'many' is not possible",
    }.items():
        assert_one_sentence(*memloc("store", *arguments), words)


def test_ctrl_c_ends_a_long_check_at_once(tmp_path: Path) -> None:
    # Sparse files: large to read, but without a place on the disk.
    store = Store(tmp_path / "runs" / "store")
    data = write_data(store)
    for seed in range(3):
        kind, key = write_training(store, seed, data)
        with (store.root / kind / key / "final.safetensors").open("r+b") as file:
            file.truncate(200 * 2**30)
    program = [sys.executable, "-m", "memloc", "store", "verify"]
    process = subprocess.Popen(program, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not _reads(process.pid, "final.safetensors"):
        assert process.poll() is None
        time.sleep(0.05)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert time.monotonic() - started < 5
    assert "memloc: interrupted; what was found until then was set aside" in err
    assert "Traceback" not in err


def _reads(pid: int, name: str) -> bool:
    """Whether a process has a file of this name open."""
    try:
        descriptors = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(path.endswith(name) for path in descriptors)
