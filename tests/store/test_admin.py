"""What is in a store, is it sound, what can go, and results for a colleague."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from memloc.engine.job import Job, write_plan
from memloc.engine.store.admin import (
    export_results,
    find_garbage,
    import_archive,
    inventory,
    verify,
)
from memloc.engine.store.store import Store
from memloc.errors import StoreError
from tests.store.artefacts import make_older, write_data, write_result, write_training, write_window


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A result made from one of three trainings and a window."""
    runs = tmp_path / "runs"
    store = Store(runs / "store")
    data = write_data(store)
    trainings = [write_training(store, seed, data) for seed in (1, 2, 3)]
    write_result(runs, "mine-é 1", [data, trainings[0], write_window(store, 1, data)])
    make_older(store)
    return runs


@pytest.fixture
def store(runs: Path) -> Store:
    return Store(runs / "store")


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


# --- list and verify


def of_kind(runs: Path, kind: str) -> pd.DataFrame:
    found = inventory(runs)
    return found[found["kind"] == kind].reset_index()


def test_artefacts_are_listed_with_their_size(runs: Path, store: Store) -> None:
    (store.root / ".locks").mkdir()
    (store.root / "train" / "of somebody").mkdir()
    found = inventory(runs)
    assert list(found["kind"]) == ["data", "train", "train", "train", "window"]
    train = found.iloc[1]
    assert train["bytes"] == sum(file.stat().st_size for file in train["path"].iterdir())
    with pytest.raises(StoreError, match=r"nothing in the store of .*; give the folder"):
        inventory(store.root)


def test_verify_reads_everything_and_sets_damaged_artefacts_aside(runs: Path, store: Store) -> None:
    key = f"{of_kind(runs, 'train')['key'][0]}-12"  # state of an unfinished training
    with store.write("resume", key, {"step": 12}) as draft:
        draft.json("state.json", {})
    found = inventory(runs)
    assert list(verify(store, found)) == [None] * 6
    path = next(store.root.glob("window/*/losses.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    (problem,) = [each for each in verify(store, found) if each]
    assert "(losses.parquet does not match its checksum) and was set aside as" in problem
    assert list(of_kind(runs, "window")["damaged"]) == [True]


# --- garbage


def clean(runs: Path, unreferenced: bool = False) -> dict[str, int]:
    """Remove garbage; returns the number of artefacts that are left, by kind."""
    store = Store(runs / "store")
    for paths in find_garbage(runs, unreferenced).values():
        for path in paths:
            store.remove(path.parent.name, path.name)
    return inventory(runs).groupby("kind").size().to_dict()


ALL = {"data": 1, "train": 3, "window": 1}


def test_artefacts_of_no_result_go_only_if_somebody_asks(runs: Path, store: Store) -> None:
    with store.write("model", "f" * 32, {}) as draft:
        draft.json("facts.json", {})
    make_older(store)
    assert clean(runs) == {**ALL, "model": 1}
    assert clean(runs, unreferenced=True) == {**ALL, "model": 1, "train": 1}
    assert not list((store.root / ".tmp").iterdir())


def test_what_a_sweep_has_planned_is_needed(runs: Path, store: Store) -> None:
    needed = {pair[1] for pair in json.loads((runs / "mine-é 1" / "artefacts.json").read_text())}
    second = next(key for key in of_kind(runs, "train")["key"] if key not in needed)
    job = Job("window", "window", {}, {"memorised": ("train", second)})
    place = write_plan(runs / "sweeps" / "paper", [job])
    assert clean(runs, unreferenced=True) == {**ALL, "train": 2}
    place.write_bytes(place.read_bytes()[:-9])
    with pytest.raises(StoreError, match=r"plan.*cannot be read.* move its folder"):
        clean(runs, unreferenced=True)


def test_a_result_that_does_not_say_what_it_needs_is_named(runs: Path) -> None:
    write_result(runs, "old", None)
    assert clean(runs) == ALL
    with pytest.raises(StoreError, match=r"old/artefacts.json', which lists what is needed"):
        clean(runs, unreferenced=True)


def test_young_artefacts_stay_and_all_while_somebody_computes(runs: Path, store: Store) -> None:
    write_training(store, 4, ("data", "x"))
    assert clean(runs, unreferenced=True) == {**ALL, "train": 2}
    with store.locks.hold("train", "abc"), pytest.raises(StoreError, match="somebody is computing"):
        clean(runs, unreferenced=True)


def test_rubbish_goes_when_nobody_can_need_it_any_more(runs: Path, store: Store) -> None:
    broken = of_kind(runs, "train")["path"][2]
    broken.rename(f"{broken}.damaged-0a1b2c")
    elsewhere = store.root / ".tmp" / "01234567@another-machine@1"
    elsewhere.mkdir(parents=True)
    assert [len(paths) for paths in find_garbage(runs, False).values()] == [0, 1, 0]
    make_older(store, 30 * 3600)
    assert clean(runs) == {**ALL, "train": 2}
    assert not elsewhere.exists()


def test_states_of_trainings_go_when_the_training_is_finished(runs: Path, store: Store) -> None:
    finished = of_kind(runs, "train")["key"][0]
    for key in (f"{finished}-4", "e" * 32):
        with store.write("resume", key, {}) as draft:
            draft.json("state.json", {})
    assert clean(runs)["resume"] == 1
    make_older(store)
    assert "resume" not in clean(runs, unreferenced=True)


# --- export and import


def export(runs: Path, name: str = "a.tar.gz", **options: bool) -> Path:
    file = runs.parent / name
    export_results([runs / "mine-é 1"], runs, file, **options)
    return file


def test_a_result_arrives_with_all_it_was_made_from(runs: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (runs / "mine-é 1" / "report.html").write_text("<script>")  # a page is never packed
    done = import_archive(export(runs), there)
    assert (done["artefacts"], done["kept_artefacts"], done["left_out"]) == (3, 0, 0)
    assert done["results"] == [str(there / "mine-é 1")]
    arrived, sent = contents(there), contents(runs)
    assert {path: sent[path] for path in arrived} == arrived
    # Two trainings of no result, with four files each, and the page.
    assert len(sent) - len(arrived) == 2 * 4 + 1
    assert not any(verify(Store(there / "store"), inventory(there)))
    assert not list((there / "store" / ".tmp").iterdir())


def test_weights_can_be_left_out(runs: Path, tmp_path: Path) -> None:
    file = export(runs, without_weights=True)
    with tarfile.open(file) as archive:
        assert not [name for name in archive.getnames() if "safetensors" in name]
    there = tmp_path / "there"
    done = import_archive(file, there)
    assert (done["artefacts"], done["left_out"]) == (2, 1)
    with pytest.raises(StoreError, match=r"stored train .* is gone"):
        export(there)
    assert export(there, "b.tar.gz", without_weights=True).is_file()


def test_what_is_there_already_is_kept(runs: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    file = export(runs)
    import_archive(file, there)
    (there / "mine-é 1" / "summary.json").write_text('{"mine": 1}')
    before = contents(there)
    done = import_archive(file, there)
    assert (done["artefacts"], done["kept_artefacts"]) == (0, 3)
    assert (done["results"], done["kept_results"]) == ([], [str(there / "mine-é 1")])
    assert contents(there) == before


def test_what_is_damaged_or_no_result_is_not_exported(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a folder of results"):
        export_results([tmp_path], runs, tmp_path / "a.tar.gz")
    shutil.copytree(runs / "mine-é 1", tmp_path / "mine-é 1")
    with pytest.raises(StoreError, match=r"two of the results are called 'mine-é 1', and one"):
        both = [runs / "mine-é 1", tmp_path / "mine-é 1"]
        export_results(both, runs, tmp_path / "a.tar.gz")
    path = next(runs.glob("store/window/*/losses.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreError, match=r"losses.parquet does not match its checksum"):
        export(runs)
    assert not list(tmp_path.glob("*a.tar.gz*"))


def refused(file: Path, words: str) -> None:
    """Refused with these words, and nothing is imported."""
    there = file.parent / "there"
    with pytest.raises(StoreError, match=words):
        import_archive(file, there)
    assert not contents(there)


def repacked(runs: Path, change: Callable[[Path], object]) -> Path:
    """An archive whose files were changed."""
    files = runs.parent / "files"
    with tarfile.open(export(runs)) as archive:
        archive.extractall(files, filter="data")
    change(files)
    with tarfile.open(runs.parent / "b.tar", "w") as archive:
        archive.add(files, ".")
    return runs.parent / "b.tar"


CHANGES = {
    "losses.parquet does not match its checksum": "store/window/*/losses.parquet",
    "summary.json of the result .* cannot be read": "results/*/summary.json",
    "layers.parquet of the result .* cannot be read": "results/*/layers.parquet",
}


@pytest.mark.parametrize("words", CHANGES)
def test_what_does_not_verify_or_read_is_not_imported(runs: Path, words: str) -> None:
    refused(repacked(runs, lambda files: next(files.glob(CHANGES[words])).write_bytes(b"x")), words)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("settings.json", "[]"),
        ("summary.json", "[]"),
        ("summary.json", '{"layers": 1' + 400 * "0" + "}"),
        ("checksums.json", '{"summary.json": "0"}'),
    ],
)
def test_a_forged_result_is_not_imported(runs: Path, file: str, text: str) -> None:
    def forge(files: Path) -> None:
        for folder in files.glob("results/*/"):
            (folder / file).write_text(text)

    refused(repacked(runs, forge), "of the result '.*' (cannot be read|differs from its checksum)")


def test_an_incomplete_archive_is_not_imported(runs: Path) -> None:
    file = repacked(runs, lambda files: shutil.rmtree(files / "store" / "window"))
    refused(file, "window .*, which a result refers to, is not in it")
    file = export(runs)
    file.write_bytes(file.read_bytes()[:-1000])
    refused(file, "was not imported")
    file.write_bytes(b"hello")
    refused(file, "was not imported")
    refused(file.with_name("none.tar"), "none.tar' was not imported: No such file or directory")


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        member = tarfile.TarInfo("../../out.json")
        member.size = 2
        archive.addfile(member, io.BytesIO(b"{}"))
    before = set(tmp_path.rglob("*.json"))
    with pytest.raises(StoreError, match="was not imported"):
        import_archive(tmp_path / "a.tar", tmp_path / "deep" / "runs")
    assert set(tmp_path.rglob("*.json")) == before
