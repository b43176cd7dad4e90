from __future__ import annotations

import errno
import hashlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from memloc.engine.store.store import Store, key_of
from memloc.errors import StoreError


def write_one(store: Store, key: str = "k") -> None:
    with store.write("kind", key, {"a": 1}, {"seconds": 1.5}) as draft:
        draft.json("value.json", {"x": [1, 2]})
        draft.table("table.parquet", pd.DataFrame({"a": [1, 2]}))
        draft.tensors("weights.safetensors", {"w": torch.arange(4.0)})


def test_an_artefact_comes_back_as_it_was_written(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert not store.has("kind", "k")
    write_one(store)
    artefact = store.open("kind", "k")
    assert artefact.json("value.json") == {"x": [1, 2]}
    assert artefact.table("table.parquet")["a"].tolist() == [1, 2]
    assert torch.equal(artefact.tensors("weights.safetensors")["w"], torch.arange(4.0))
    assert artefact.manifest["costs"] == {"seconds": 1.5}
    assert "torch" in artefact.manifest["versions"]


def test_tensors_come_one_after_the_other_with_their_values(tmp_path: Path) -> None:
    store = Store(tmp_path)
    tensors = {
        "b": torch.randn(3, 2),
        "a": torch.arange(5),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "empty": torch.empty(0, 4),
    }
    with store.write("kind", "k", {}) as draft:
        draft.tensors("weights.safetensors", tensors)
    found = list(store.open("kind", "k").each_tensor("weights.safetensors"))
    assert sorted(name for name, _ in found) == sorted(tensors)
    for name, value in found:
        assert value.dtype == tensors[name].dtype
        assert torch.equal(value, tensors[name])


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(RuntimeError), store.write("kind", "k", {}) as draft:
        draft.json("value.json", 1)
        raise RuntimeError
    assert not store.has("kind", "k")
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("file", ["value.json", "table.parquet", "weights.safetensors"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_is_noticed_and_set_aside(tmp_path: Path, file: str, damage: str) -> None:
    store = Store(tmp_path)
    write_one(store)
    path = tmp_path / "kind" / "k" / file
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "truncate":
        path.write_bytes(content[:-1])
    else:
        path.unlink()
    with pytest.raises(StoreError, match=r"is damaged.*run the same command again"):
        store.open("kind", "k")
    assert not store.has("kind", "k")
    write_one(store)
    assert store.open("kind", "k").json("value.json") == {"x": [1, 2]}


def test_a_damaged_manifest_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write_one(store)
    (tmp_path / "kind" / "k" / "manifest.json").write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        store.open("kind", "k")


def test_two_writers_of_the_same_artefact_do_not_disturb_each_other(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.write("kind", "k", {}) as draft:
        draft.json("value.json", {"x": [1, 2]})
        write_one(store)  # the other one is faster
    assert store.open("kind", "k").json("value.json") == {"x": [1, 2]}


def test_the_key_depends_on_every_input_and_not_on_their_order() -> None:
    one = key_of("kind", {"a": 1, "b": {"c": [1, 2]}})
    assert one == key_of("kind", {"b": {"c": [1, 2]}, "a": 1})
    assert one != key_of("kind", {"a": 1, "b": {"c": [2, 1]}})
    assert one != key_of("other", {"a": 1, "b": {"c": [1, 2]}})


def test_a_writer_killed_at_work_leaves_no_artefact_and_its_draft_is_swept(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from memloc.engine.store.store import Store
with Store(Path({str(tmp_path)!r})).write("kind", "k", {{}}) as draft:
    draft.json("value.json", 1)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    store = Store(tmp_path)
    assert not store.has("kind", "k")
    assert list(tmp_path.rglob("value.json"))
    with store.write("kind", "other", {}) as draft:
        store.sweep_leftovers()
        draft.json("value.json", 2)  # drafts of living processes stay
    assert store.open("kind", "other").json("value.json") == 2
    assert not list((tmp_path / ".tmp").iterdir())


def test_a_file_in_the_place_of_the_store_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(StoreError, match="cannot write to"):
        Store(tmp_path / "runs" / "store").check_writable()


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mount") is None, reason="needs the right to mount a tmpfs"
)
def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)])
    if mounted.returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        store = Store(small)
        write_one(store)
        for big in ("tensors", "table"):
            message = r"cannot write to.*(No space left|space)"
            with pytest.raises(StoreError, match=message), store.write("kind", big, {}) as draft:
                if big == "tensors":
                    draft.tensors("w.safetensors", {"w": torch.zeros(100_000)})
                else:
                    draft.table("t.parquet", pd.DataFrame({"a": torch.rand(50_000).numpy()}))
            assert not store.has("kind", big)
        assert store.open("kind", "k").json("value.json") == {"x": [1, 2]}
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_every_flipped_byte_of_a_manifest_is_found(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.write("train", "0" * 32, {"seed": 1}, {"seconds": 12.5}) as draft:
        draft.json("values.json", {"a": 1})
    path = tmp_path / "train" / ("0" * 32) / "manifest.json"
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        assert not store.sound("train", "0" * 32), f"byte {place}: {content[place : place + 9]!r}"
        (aside,) = (tmp_path / "train").glob("*.damaged-*")
        aside.rename(path.parent)
    path.write_bytes(content)
    assert store.sound("train", "0" * 32)


def test_what_cannot_be_read_now_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    with store.write("train", "0" * 32, {}) as draft:
        draft.json("values.json", {"a": 1})
    file_digest = hashlib.file_digest

    def away(*arguments):
        raise OSError(errno.ESTALE, "Stale file handle", "values.json")

    monkeypatch.setattr(hashlib, "file_digest", away)  # no file system here goes away when asked
    with pytest.raises(StoreError, match=r"'values.json' cannot be read: Stale file handle; mend"):
        store.sound("train", "0" * 32)
    monkeypatch.setattr(hashlib, "file_digest", file_digest)
    assert store.sound("train", "0" * 32)


def test_strange_names_among_the_drafts_do_no_harm(tmp_path: Path) -> None:
    for name in ("a@b@c@d", f"a@{socket.gethostname()}@x", "a@@"):
        (tmp_path / ".tmp" / name).mkdir(parents=True)
    Store(tmp_path).sweep_leftovers()
    assert len(list((tmp_path / ".tmp").iterdir())) == 3
