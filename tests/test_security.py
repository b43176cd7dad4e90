"""Nothing that comes from disk or network is ever run, and nothing hostile exhausts the machine."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import memloc as package
from memloc.config import Model
from tests.conftest import assert_one_sentence
from tests.tiny_models import tiny_model, tiny_tokenizer

TRUST = re.compile(
    r"torch\.(hub\.)?load\(|read_pickle|unsafe_load|(weights_only|safe)=False"
    r"|(allow_pickle|trust_remote_code)\W+True"
)
"""What could run code that it reads; calls of pickle and eval are found by ruff."""


def test_memloc_trusts_nothing_that_it_reads() -> None:
    sources = sorted(Path(package.__file__).parent.rglob("*.py"))
    assert len(sources) > 50
    assert [path for path in sources if TRUST.search(path.read_text(encoding="utf-8"))] == []
    assert TRUST.search("f(trust_remote_code=True)")
    assert Model(name="x").trust_remote_code is False


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    tiny_model("bert", layers=2, labels=2).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def model(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "model"))


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def weight(name: str, value: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        tensors[name].view(-1)[5] = value
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return change


def text(name: str, content: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(content) and None


def huge_tensor(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    header["classifier.weight"] |= {"shape": [10**12, 10**6], "data_offsets": [0, 4 * 10**18]}
    changed = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(changed)) + changed + content[8 + length :])


def index(part: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
        text("model.safetensors.index.json", json.dumps({"weight_map": {"w": part}}))(folder)

    return change


LAYER = "bert.encoder.layer.1.output.dense.weight"
HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a huge tensor": (huge_tensor, "the model of 'model' could not"),
    "a weight is NaN": (weight(LAYER, float("nan")), "answers with NaN or infinite logits"),
    "config is no JSON": (text("config.json", "{"), "the config of 'model' could not"),
    "tokeniser is no JSON": (text("tokenizer.json", "{"), "the tokeniser of 'model' could not"),
    "weights elsewhere": (index("../outside.safetensors"), "the model of 'model' could not"),
}
QUICK = ("--limit", "40", "--epochs", "1", "--techniques", "swapping", "--workers", "1")


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_model_directory_is_one_sentence(memloc, model: Path, what: str) -> None:
    change, words = HOSTILE[what]
    change(model)
    assert_one_sentence(*memloc("models", "check", model), words)
    assert_one_sentence(*memloc("run", "--model", model, "--no-explain", *QUICK), words)


class Touch:
    """Unpickling it runs a command."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("wrapped", [True, False])
def test_code_in_pickled_weights_is_not_run(
    memloc, model: Path, tmp_path: Path, wrapped: bool
) -> None:
    marker = tmp_path / "executed"
    file = model / "pytorch_model.bin"
    (model / "model.safetensors").unlink()
    if wrapped:
        torch.save({"classifier.weight": Touch(marker)}, file)
    else:
        file.write_bytes(pickle.dumps(Touch(marker)))
    words = "are a pickle with more than tensors in it, which could run code and is not read"
    assert_one_sentence(*memloc("models", "check", model), words)
    assert_one_sentence(*memloc("run", "--model", model, "--no-explain", *QUICK), words)
    assert not marker.exists()
    pickle.loads(pickle.dumps(Touch(marker)))  # it would have worked
    assert marker.exists()


CODE = """
open({marker!r}, "w").close()
from transformers import BertConfig, BertForSequenceClassification

class Config(BertConfig):
    model_type = "own"

class Model(BertForSequenceClassification):
    config_class = Config
"""


def test_code_of_a_model_is_run_only_if_the_user_says_so(
    memloc, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr("sys.path", list(sys.path))  # transformers adds its cache
    marker = tmp_path / "executed"
    classes = {"AutoConfig": "modeling_x.Config"}
    classes["AutoModelForSequenceClassification"] = "modeling_x.Model"
    (model / "modeling_x.py").write_text(CODE.format(marker=str(marker)))
    change_config(model, model_type="own", auto_map=classes)
    words = "brings code of its own, which runs only if you allow it"
    assert_one_sentence(*memloc("models", "check", model), words)
    assert_one_sentence(*memloc("run", "--model", model, "--no-explain", *QUICK), words)
    assert not marker.exists()
    # A type that is known needs no code of the model's.
    change_config(model, model_type="bert")
    assert memloc("models", "check", model)[0] == 0
    assert not marker.exists()
    change_config(model, model_type="own")
    code, _, err = memloc("models", "check", model, "--trust-remote-code")
    assert (code, marker.exists()) == (0, True), err
