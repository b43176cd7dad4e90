"""Nothing that comes from disk or network is ever run, and nothing hostile exhausts the machine."""

from __future__ import annotations

import ast
import json
import os
import pickle
import shutil
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import memloc as package
from memloc.config import Model
from tests.conftest import assert_one_sentence
from tests.tiny_models import tiny_model, tiny_tokenizer

SOURCES = sorted(Path(package.__file__).parent.rglob("*.py"))
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
"""Whatever these read can run code."""
CALLS = {
    "eval", "exec", "compile", "__import__",
    "torch.load", "torch.hub.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load",
    "pd.read_pickle", "pandas.read_pickle", "os.system", "os.popen",
}  # fmt: skip


def dangers(source: str) -> Iterator[tuple[int, str]]:
    """What in a program could run code that it reads, with the line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names]
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                if name.split(".")[0] in MODULES:
                    yield node.lineno, f"import {name}"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in CALLS:
                yield node.lineno, called
            for keyword in node.keywords:
                value = ast.unparse(keyword.value)
                if keyword.arg in ("allow_pickle", "shell") and value != "False":
                    yield node.lineno, f"{keyword.arg}={value}"
                if keyword.arg == "weights_only" and value != "True":
                    yield node.lineno, f"{keyword.arg}={value}"


def trusts(source: str) -> Iterator[int]:
    """Lines that trust a model's code without having been asked to."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
            values = [node.value]
        elif isinstance(node, ast.Dict):
            values = [
                value
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and key.value == "trust_remote_code"
            ]
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "trust_remote_code":
            values = [node.value] if node.value is not None else []
        else:
            continue
        # Handed on from the settings, or False; never a True of our own.
        yield from (
            v.lineno for v in values if isinstance(v, ast.Constant) and v.value is not False
        )


def test_nothing_in_memloc_unpickles_or_evaluates() -> None:
    found = [
        f"{path}:{line}: {what}"
        for path in SOURCES
        for line, what in dangers(path.read_text(encoding="utf-8"))
    ]
    assert len(SOURCES) > 100
    assert found == []


def test_the_search_for_dangers_finds_them() -> None:
    bad = [
        "import pickle", "from joblib import load", "import shelve as s", "from dill import loads",
        "torch.load(p)", "yaml.load(s)", "eval('1')", "exec(s)", "np.load(f, allow_pickle=True)",
        "x(weights_only=False)", "run(c, shell=True)", "def f():\n    import marshal",
    ]  # fmt: skip
    assert all(list(dangers(source)) for source in bad)
    assert not list(dangers("import json\nyaml.safe_load(s)\nmodel.eval()\nast.literal_eval(s)"))
    assert list(trusts("f(trust_remote_code=True)"))
    assert list(trusts("x = {'trust_remote_code': True}"))
    assert list(trusts("trust_remote_code: bool = True"))
    assert not list(trusts("f(trust_remote_code=config.trust_remote_code)"))


def test_code_of_models_is_trusted_only_if_the_user_says_so() -> None:
    found = [f"{path}:{line}" for path in SOURCES for line in trusts(path.read_text("utf-8"))]
    assert found == []
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


def config(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: change_config(folder, **changes)


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


def header_length(number: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(struct.pack("<Q", number) + path.read_bytes()[8:])

    return change


def index(part: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
        text("model.safetensors.index.json", json.dumps({"weight_map": {"w": part}}))(folder)

    return change


LAYER = "bert.encoder.layer.1.output.dense.weight"
HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "other shapes": (config(intermediate_size=96), "gives another shape for 'bert.encoder"),
    "more layers": (config(num_hidden_layers=3), "has no weights for 'bert.encoder.layer.2"),
    "a huge tensor": (huge_tensor, "model.safetensors in model directory"),
    "a huge header": (header_length(2**62), "header too large"),
    "a short header": (header_length(7), "model.safetensors in model directory"),
    "a weight is NaN": (
        weight(LAYER, float("nan")),
        f"{LAYER!r} in the weights of 'model' has NaN",
    ),
    "a weight is infinite": (weight(LAYER, float("-inf")), f"{LAYER!r} in the weights of 'model'"),
    "config is no JSON": (text("config.json", "{"), "config.json in model directory"),
    "config is too deep": (text("config.json", "[" * 10**5), "config.json in model directory"),
    "config is a list": (text("config.json", "[1]"), "the config of 'model' could not be loaded"),
    "tokeniser is no JSON": (text("tokenizer.json", "{"), "the tokeniser of 'model' could not"),
    "tokeniser is empty": (text("tokenizer.json", "{}"), "the tokeniser of 'model' could not"),
    "tokeniser settings": (text("tokenizer_config.json", "[["), "the tokeniser of 'model' could"),
    "no heads": (config(num_attention_heads=0), "the model of 'model' could not be loaded"),
    "weights elsewhere": (index("../outside.safetensors"), "no file '../outside.safetensors'"),
    "weights nowhere": (index("part.safetensors"), "there is no file 'part.safetensors' beside"),
}
QUICK = ("--limit", "40", "--epochs", "1", "--techniques", "swapping", "--workers", "1")


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_model_directory_is_one_sentence_within_seconds(
    memloc, model: Path, what: str
) -> None:
    change, words = HOSTILE[what]
    change(model)
    started = time.monotonic()
    assert_one_sentence(*memloc("models", "check", model), words)
    assert_one_sentence(*memloc("run", "--model", model, "--no-explain", *QUICK), words)
    assert time.monotonic() - started < 20


def test_the_model_is_fine_before_it_is_made_hostile(memloc, model: Path) -> None:
    assert memloc("models", "check", model)[0] == 0


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
