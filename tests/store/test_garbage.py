from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memloc.engine.store.garbage import find_garbage, planned_artefacts, remove_garbage
from memloc.engine.store.inventory import entries
from memloc.engine.store.store import Store
from memloc.errors import StoreError
from tests.store.artefacts import (
    make_older,
    write_data,
    write_result,
    write_training,
    write_window,
)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Of three trainings, one is of a result."""
    store = Store(tmp_path / "store")
    data = write_data(store)
    trainings = [write_training(store, seed, data) for seed in (1, 2, 3)]
    write_result(tmp_path, "mine", [data, trainings[0]])
    make_older(store)
    return tmp_path


def clean(runs: Path, unreferenced: bool = False) -> list[tuple[str, int]]:
    store = Store(runs / "store")
    remove_garbage(store, find_garbage(store, runs), unreferenced)
    seeds = [entry.manifest["inputs"].get("seed", 0) for entry in entries(store) if entry.manifest]
    kinds = [entry.kind for entry in entries(store)]
    return list(zip(kinds, seeds, strict=True))


ALL = [("data", 0), ("train", 1), ("train", 2), ("train", 3)]


def in_any_order(found: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(found)


def test_artefacts_of_no_result_go_only_if_somebody_asks(runs: Path) -> None:
    assert in_any_order(clean(runs)) == ALL
    assert clean(runs, unreferenced=True) == [("data", 0), ("train", 1)]
    assert not list((runs / "store" / ".tmp").iterdir())


def test_what_a_sweep_has_planned_is_needed(runs: Path) -> None:
    second = next(
        entry for entry in entries(Store(runs / "store"), "train")
        if entry.manifest and entry.manifest["inputs"]["seed"] == 2
    )  # fmt: skip
    job = {"kind": "window", "key": "0" * 32, "needs": {"memorised": ["train", second.key]}}
    place = runs / "sweeps" / "paper" / "plan.json.gz"
    place.parent.mkdir(parents=True)
    with gzip.open(place, "wt") as stream:
        json.dump({"jobs": [job]}, stream)
    assert planned_artefacts(runs) == {("window", "0" * 32), ("train", second.key)}
    assert in_any_order(clean(runs, unreferenced=True)) == ALL[:3]
    place.write_bytes(place.read_bytes()[:-9])
    with pytest.raises(StoreError, match=r"plan.json.gz' cannot be read .* move its folder away"):
        clean(runs, unreferenced=True)


def test_young_artefacts_stay(runs: Path) -> None:
    store = Store(runs / "store")
    write_window(store, 1, ("data", "x"))
    assert ("window", 1) in clean(runs, unreferenced=True)
    make_older(store)
    assert ("window", 1) not in clean(runs, unreferenced=True)


def test_nothing_but_rubbish_goes_while_somebody_computes(runs: Path) -> None:
    claim = runs / "store" / ".locks" / "train-abc"
    claim.parent.mkdir()
    claim.write_text("{}")
    assert find_garbage(Store(runs / "store"), runs).in_use
    assert in_any_order(clean(runs, unreferenced=True)) == ALL
    long_ago = claim.stat().st_mtime - 3700
    if claim.exists():
        os.utime(claim, (long_ago, long_ago))
    assert clean(runs, unreferenced=True) == ALL[:2]


def test_a_result_that_does_not_say_what_it_was_made_from_is_named(runs: Path) -> None:
    old = write_result(runs, "old", None)
    assert find_garbage(Store(runs / "store"), runs).unlisted == [old]
    (old / "artefacts.json").write_text('[["../x", "y"]]')
    with pytest.raises(StoreError, match=r"artefacts.json' cannot be read"):
        find_garbage(Store(runs / "store"), runs)


def test_facts_on_models_and_machines_stay(runs: Path) -> None:
    store = Store(runs / "store")
    with store.write("model", "f" * 32, {}) as draft:
        draft.json("facts.json", {})
    make_older(store)
    clean(runs, unreferenced=True)
    assert store.has("model", "f" * 32)


def test_states_of_trainings_go_when_the_training_is_finished(runs: Path) -> None:
    store = Store(runs / "store")
    finished = entries(store, "train")[0].key
    for key in (f"{finished}-4", "e" * 32):
        with store.write("resume", key, {}) as draft:
            draft.json("state.json", {})
    clean(runs)
    assert [entry.key for entry in entries(store, "resume")] == ["e" * 32]
    make_older(store)
    clean(runs, unreferenced=True)
    assert not entries(store, "resume")


def test_rubbish_goes_and_work_in_progress_stays(runs: Path) -> None:
    store = Store(runs / "store")
    program = f"""
import os, signal
from pathlib import Path
from memloc.engine.store.store import Store
with Store(Path({str(store.root)!r})).write("kind", "k", {{}}) as draft:
    draft.json("value.json", 1)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    broken = entries(store, "train")[2]
    broken.path.rename(broken.path.with_name(f"{broken.key}.damaged-0a1b2c"))
    (store.root / ".cache").mkdir()
    (store.root / ".cache" / "states").write_bytes(bytes(1000))
    elsewhere = store.root / ".tmp" / "01234567@another-machine@1"
    elsewhere.mkdir()
    with store.write("kind", "other", {}) as draft:
        found = find_garbage(store, runs)
        assert [len(items) for items in found.rubbish.values()] == [1, 1, 0, 0]
        remove_garbage(store, found, unreferenced=False)
        draft.json("value.json", 2)
    assert store.open("kind", "other").json("value.json") == 2
    assert elsewhere.exists()
    make_older(store, 30 * 3600)
    found = find_garbage(store, runs)
    assert [sum(size for _, size in items) for items in found.rubbish.values()] == [0, 0, 0, 1000]
    remove_garbage(store, found, unreferenced=False)
    assert not elsewhere.exists()
    assert not list((store.root / ".cache").iterdir())
    shutil.rmtree(store.root / ".tmp")
    assert not any(find_garbage(store, runs).rubbish.values())
