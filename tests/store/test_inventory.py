from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from memloc.engine.compute import KINDS as JOB_KINDS
from memloc.engine.store.inventory import KINDS, Describer, entries, open_store, set_aside, verify
from memloc.engine.store.store import Store
from memloc.errors import StoreError
from tests.store.artefacts import change_json, write_data, write_training, write_window


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    data = write_data(store)
    write_training(store, 1, data)
    write_window(store, 1, data)
    return store


def test_every_kind_of_job_can_be_exchanged() -> None:
    assert set(KINDS) == {"data", *JOB_KINDS}


def test_artefacts_are_found_by_kind_with_size_and_words(store: Store) -> None:
    (store.root / ".locks").mkdir()
    found = entries(store)
    assert [entry.kind for entry in found] == ["data", "train", "window"]
    words = [Describer(store).words(entry) for entry in found]
    assert words == [
        "mine, 2 classes",
        "θ_O, seed 1, on mine",
        "swapping, layer 2, seed 1, on mine",
    ]
    train = entries(store, "train")[0]
    assert train.size == sum(file.stat().st_size for file in train.path.iterdir())
    assert train.seconds == 83.0
    with pytest.raises(StoreError, match="did you mean 'train'"):
        entries(store, "trian")


def test_no_store_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store in"):
        open_store(tmp_path)


def flip(folder: Path) -> None:
    path = folder / "final.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def link(folder: Path) -> None:
    path = folder / "outcome.json"
    path.rename(folder.parent / "elsewhere.json")
    path.symlink_to(folder.parent / "elsewhere.json")


DAMAGE = {
    "final.safetensors does not match its checksum": flip,
    "outcome.json is missing": lambda folder: (folder / "outcome.json").unlink(),
    "'more.json' does not belong": lambda folder: (folder / "more.json").write_text("1"),
    "outcome.json is not a regular file": link,
    "manifest.json cannot be read": lambda folder: (folder / "manifest.json").write_text("{"),
    "manifest.json names another artefact": lambda folder: change_json(
        folder / "manifest.json", kind="window"
    ),
    "its key does not follow from its inputs": lambda folder: change_json(
        folder / "manifest.json", inputs={"seed": 2}
    ),
}


@pytest.mark.parametrize("problem", DAMAGE)
def test_every_damage_is_found_and_set_aside(store: Store, problem: str) -> None:
    train = entries(store, "train")[0]
    DAMAGE[problem](train.path)
    said: list[str] = []
    damaged = verify(store, entries(store), say=lambda damage: said.append(damage.words))
    assert [damage.entry.kind for damage in damaged] == ["train"]
    assert len(said) == 1
    assert problem in said[0]
    assert not store.has("train", train.key)
    assert len(set_aside(store)) == 1
    assert verify(store, entries(store)) == []


def test_a_sound_store_is_read_completely_and_left_alone(store: Store) -> None:
    found, read = entries(store), []
    assert verify(store, found, read.append) == []
    manifests = sum((entry.path / "manifest.json").stat().st_size for entry in found)
    assert sum(read) == sum(entry.size for entry in found) - manifests
    shutil.rmtree(found[0].path)  # by somebody else, meanwhile
    assert verify(store, found) == []


def test_states_of_unfinished_trainings_have_a_key_of_their_own(store: Store) -> None:
    key = entries(store, "train")[0].key
    with store.write("resume", f"{key}-12", {"step": 12}) as draft:
        draft.json("state.json", {})
    assert verify(store, entries(store)) == []
