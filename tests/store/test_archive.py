from __future__ import annotations

import gzip
import json
import shutil
import tarfile
import zlib
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from memloc.engine.store.archive import export_results, import_archive
from memloc.engine.store.inventory import entries, verify
from memloc.engine.store.store import Store, _sha256
from memloc.errors import StoreError
from tests.store.artefacts import (
    change_json,
    make_older,
    write_data,
    write_result,
    write_training,
    write_window,
)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    store = Store(runs / "store")
    data = write_data(store)
    training = write_training(store, 1, data)
    write_training(store, 2, data)  # of no result
    write_result(runs, "mine-é 1", [data, training, write_window(store, 1, data)])
    return runs


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def export(runs: Path, name: str = "a.tar.gz", **options: bool) -> Path:
    file = runs.parent / name
    export_results([runs / "mine-é 1"], runs, file, **options)
    return file


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar"])
def test_a_result_arrives_with_all_it_was_made_from(runs: Path, tmp_path: Path, name: str) -> None:
    there = tmp_path / "there"
    done = import_archive(export(runs, name), there)
    assert (done.artefacts, done.kept_artefacts, done.left_out) == (3, 0, 0)
    assert done.results == [there / "mine-é 1"]
    expected = contents(runs)
    unneeded = {path for path in expected if "/train/" in f"/{path}"} - set(contents(there))
    assert len(unneeded) == 4  # the files of the other training
    assert contents(there) == {p: c for p, c in expected.items() if p not in unneeded}
    assert verify(Store(there / "store"), entries(Store(there / "store"))) == []
    assert not list((there / "store" / ".tmp").iterdir())


def test_the_same_content_gives_the_same_bytes(runs: Path, tmp_path: Path) -> None:
    first = export(runs, "a.tar.gz").read_bytes()
    shutil.copytree(runs, tmp_path / "copy" / "runs")
    make_older(Store(tmp_path / "copy" / "runs" / "store"))
    (runs / "mine-é 1" / "report.html").write_text("<script>")  # a page is never packed
    assert export(tmp_path / "copy" / "runs", "b.tar.gz").read_bytes() == first
    assert export(runs, "c.tar.gz").read_bytes() == first
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_weights_can_be_left_out(runs: Path, tmp_path: Path) -> None:
    file = export(runs, without_weights=True)
    with tarfile.open(file) as archive:
        assert not [name for name in archive.getnames() if "safetensors" in name]
    there = tmp_path / "there"
    done = import_archive(file, there)
    assert (done.artefacts, done.left_out) == (2, 1)
    with pytest.raises(StoreError, match=r"train .* cannot be exported .*leave out the weights"):
        export(there)
    assert export(there, "b.tar.gz", without_weights=True).read_bytes() == file.read_bytes()


def test_what_is_there_already_is_kept(runs: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    file = export(runs)
    import_archive(file, there)
    (there / "mine-é 1" / "summary.json").write_text('{"mine": 1}')
    before = contents(there)
    done = import_archive(file, there)
    assert (done.artefacts, done.kept_artefacts) == (0, 3)
    assert (done.results, done.kept_results) == ([], [there / "mine-é 1"])
    assert contents(there) == before


def test_a_result_of_localise_brings_its_own_store(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(runs / "mine-é 1", out)
    shutil.copytree(runs / "store", out / "store")
    export_results([out], tmp_path / "nowhere", tmp_path / "a.tar")
    assert import_archive(tmp_path / "a.tar", tmp_path / "there").artefacts == 3


def test_what_cannot_be_exported_is_said(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.tar.gz"
    result = runs / "mine-é 1"
    cases = {
        "is no name for an archive": lambda: export(runs, "a.zip"),
        "is not a folder of results": lambda: export_results([tmp_path], runs, file),
        "two results are called": lambda: export_results([result, result], runs, file),
        "nothing to export": lambda: export_results([], runs, file),
    }
    for words, call in cases.items():
        with pytest.raises(StoreError, match=words):
            call()
    (result / "artefacts.json").unlink()
    with pytest.raises(StoreError, match=r"does not say what it was made from .* run the same"):
        export(runs)
    result.rename(runs / "odd\nname")
    with pytest.raises(StoreError, match="cannot be exported: a name may have"):
        export_results([runs / "odd\nname"], runs, file)
    assert not file.exists()


def test_a_damaged_artefact_is_not_exported(runs: Path) -> None:
    path = entries(Store(runs / "store"), "window")[0].path / "losses.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreError, match=r"losses.parquet does not match its checksum.*run the"):
        export(runs)
    assert not list(runs.parent.glob("*a.tar.gz*"))


def forge(runs: Path, to: Path, change) -> Path:
    """An archive of a store that was changed and made to look whole again."""
    files = to / "files"
    with tarfile.open(export(runs, "before.tar")) as archive:
        archive.extractall(files, filter="data")
    change(files)
    forged = to / "forged.tar"
    with tarfile.open(forged, "w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(files.rglob("*")):
            if path.is_file():
                archive.add(path, str(path.relative_to(files)))
    return forged


def folder_of(files: Path, kind: str) -> Path:
    return next((files / "store" / kind).iterdir())


def refresh(folder: Path) -> None:
    """Checksums that fit the files, as a forger would write them."""
    files = {path.name: _sha256(path) for path in folder.iterdir() if path.name != "manifest.json"}
    change_json(folder / "manifest.json", files=files)


def other_data(files: Path) -> None:
    folder = folder_of(files, "data")
    table = pd.read_parquet(folder / "train.parquet")
    table.assign(label=1).to_parquet(folder / "train.parquet", index=False)
    refresh(folder)


def other_key(files: Path) -> None:
    folder = folder_of(files, "train")
    change_json(folder / "manifest.json", key="0" * 32)
    folder.rename(folder.with_name("0" * 32))


def result_file(name: str, text: str | None):
    def change(files: Path) -> None:
        path = files / "results" / "mine-é 1" / name
        if text is None:
            path.unlink()
        else:
            path.write_text(text)

    return change


def one_more_file(files: Path) -> None:
    save_file({"w": torch.zeros(1)}, folder_of(files, "window") / "more.safetensors")


FORGERIES = {
    "train.parquet has another content than its name says": other_data,
    "its key does not follow from its inputs": other_key,
    "'more.safetensors' does not belong to it": one_more_file,
    "has no summary.json": result_file("summary.json", None),
    "is damaged (layers.parquet)": result_file("layers.parquet", "x"),
    "artefacts.json of the result 'mine-\\xe9 1' is no list": result_file("artefacts.json", "{}"),
    "refers to split ffffffffffff, which is not in it": result_file(
        "artefacts.json", json.dumps([["split", "f" * 32]])
    ),
}


@pytest.mark.parametrize("words", FORGERIES)
def test_every_forgery_is_refused_and_nothing_is_imported(
    runs: Path, tmp_path: Path, words: str
) -> None:
    forged = forge(runs, tmp_path, FORGERIES[words])
    there = tmp_path / "there"
    with pytest.raises(StoreError) as caught:
        import_archive(forged, there)
    assert words in str(caught.value)
    assert "was not imported" in str(caught.value)
    assert not contents(there)


def test_what_a_forger_leaves_alone_is_imported(runs: Path, tmp_path: Path) -> None:
    assert import_archive(forge(runs, tmp_path, lambda files: None), tmp_path / "there").artefacts


@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 0.999])
def test_an_archive_that_is_cut_off_is_refused(runs: Path, tmp_path: Path, share: float) -> None:
    for name in ("a.tar", "a.tar.gz"):
        file = export(runs, name)
        content = file.read_bytes()
        if name == "a.tar":
            content = content.rstrip(b"\0")  # to within the last file, not its padding
        file.write_bytes(content[: int(len(content) * share)])
        with pytest.raises(StoreError, match="was not imported"):
            import_archive(file, tmp_path / "there")
    assert not contents(tmp_path / "there")


def test_a_flipped_byte_in_an_artefact_is_noticed(runs: Path, tmp_path: Path) -> None:
    file = export(runs, "a.tar")
    plain = file.read_bytes()
    with tarfile.open(file) as archive:
        members = [m for m in archive.getmembers() if m.name.startswith("store")]
    data = [m for m in members if not m.name.endswith("manifest.json")]
    assert len(data) == 3 + 3 + 1
    for member in data:
        changed = bytearray(plain)
        changed[member.offset_data + member.size // 2] ^= 4
        file.write_bytes(changed)
        with pytest.raises(StoreError, match="does not match its checksum"):
            import_archive(file, tmp_path / "there")
    assert not contents(tmp_path / "there")


def test_a_flipped_byte_anywhere_in_a_gzipped_archive_is_noticed(
    runs: Path, tmp_path: Path
) -> None:
    file = export(runs)
    packed, plain = file.read_bytes(), gzip.decompress(file.read_bytes())
    noticed = 0
    for place in range(20, len(packed), len(packed) // 12):
        changed = bytearray(packed)
        changed[place] ^= 4
        file.write_bytes(changed)
        try:
            same = gzip.decompress(changed) == plain  # zeros copied from other zeros
        except (OSError, EOFError, zlib.error):
            same = False
        if not same:
            with pytest.raises(StoreError, match="was not imported"):
                import_archive(file, tmp_path / "there")
            noticed += 1
    assert noticed > 6
    assert not contents(tmp_path / "there")
