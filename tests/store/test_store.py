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


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def write_one(store: Store, key: str = "k") -> None:
    with store.write("kind", key, {"a": 1}, {"seconds": 1.5}) as draft:
        draft.json("value.json", {"x": [1, 2]})
        draft.table("table.parquet", pd.DataFrame({"a": [1, 2]}))
        draft.tensors("weights.safetensors", {"w": torch.arange(4.0)})


def test_an_artefact_comes_back_as_it_was_written(store: Store) -> None:
    assert not store.has("kind", "k")
    write_one(store)
    artefact = store.open("kind", "k")
    assert artefact.json("value.json") == {"x": [1, 2]}
    assert artefact.table("table.parquet")["a"].tolist() == [1, 2]
    assert torch.equal(artefact.tensors("weights.safetensors")["w"], torch.arange(4.0))
    assert artefact.manifest["costs"] == {"seconds": 1.5}
    assert "torch" in artefact.manifest["versions"]


def test_an_error_while_writing_leaves_nothing(store: Store) -> None:
    with pytest.raises(RuntimeError), store.write("kind", "k", {}) as draft:
        draft.json("value.json", 1)
        raise RuntimeError
    assert not store.has("kind", "k")
    assert not list(store.root.rglob("*.json"))


@pytest.mark.parametrize(
    ("file", "damage"),
    [("value.json", "flip"), ("table.parquet", "truncate"), ("manifest.json", "remove")],
)
def test_damage_is_noticed_and_set_aside(store: Store, file: str, damage: str) -> None:
    write_one(store)
    path = store.folder("kind", "k") / file
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "truncate":
        path.write_bytes(content[:-1])
    else:
        path.unlink()
    with pytest.raises(StoreError, match=rf"is damaged \({file} .*run the same command again"):
        store.open("kind", "k")
    assert not store.has("kind", "k")
    write_one(store)
    assert store.open("kind", "k").json("value.json") == {"x": [1, 2]}


def test_the_key_depends_on_every_input_and_not_on_their_order() -> None:
    one = key_of("kind", {"a": 1, "b": {"c": [1, 2]}})
    assert one == key_of("kind", {"b": {"c": [1, 2]}, "a": 1})
    assert one == "743f84ca3c232843f8eb9d5e07619f3a"  # or nobody's finished work would be found
    assert one != key_of("kind", {"a": 1, "b": {"c": [2, 1]}})
    assert one != key_of("other", {"a": 1, "b": {"c": [1, 2]}})


def test_a_writer_killed_at_work_leaves_no_artefact_and_its_draft_is_swept(store: Store) -> None:
    program = f"""
import os, signal
from pathlib import Path
from memloc.engine.store.store import Store
with Store(Path({str(store.root)!r})).write("kind", "k", {{}}) as draft:
    draft.json("value.json", 1)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    assert not store.has("kind", "k")
    assert list(store.root.rglob("value.json"))
    with store.write("kind", "other", {}) as draft:
        store.sweep_leftovers()
        draft.json("value.json", 2)  # drafts of living processes stay
    assert store.open("kind", "other").json("value.json") == 2
    assert not list((store.root / ".tmp").iterdir())
    for name in ("a@b@c@d", f"a@{socket.gethostname()}@x", "a@@"):  # of others
        (store.root / ".tmp" / name).mkdir()
    store.sweep_leftovers()
    assert len(list((store.root / ".tmp").iterdir())) == 3


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


def test_what_cannot_be_read_now_is_not_taken_for_damaged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_one(store)
    file_digest = hashlib.file_digest

    def away(*arguments):
        raise OSError(errno.ESTALE, "Stale file handle", "values.json")

    monkeypatch.setattr(hashlib, "file_digest", away)  # no file system here goes away when asked
    with pytest.raises(StoreError, match=r"'values.json' cannot be read: Stale file handle; mend"):
        store.sound("kind", "k")
    monkeypatch.setattr(hashlib, "file_digest", file_digest)
    assert store.sound("kind", "k")
