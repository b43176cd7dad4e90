"""The command that makes a result again, from its settings."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from memloc.config import (
    DEFAULT_TECHNIQUES,
    GeneralisationConfig,
)
from memloc.techniques import make, names

COLUMNS = ("text_column", "pair_column", "label_column", "original_label_column")
SWITCHES = {"--keep-clean", "--undivided"}
"""Options that turn off what is on by default."""
TRAINING = {
    **{"epochs": "--epochs", "learning_rate": "--learning-rate", "batch_size": "--batch-size"},
    **{"micro_batch_size": "--micro-batch-size", "max_tokens": "--max-tokens", "dtype": "--dtype"},
}
TECHNIQUES: dict[str, dict[str, str]] = {
    "retraining": {
        **{"epochs": "--retrain-epochs", "tail": "--retrain-tail"},
        "frozen_dropout": "--frozen-dropout",
    },
    "gradients": {
        **{"objective": "--gradient-objective", "norm": "--gradient-norm"},
        **{"subtract_clean": "--keep-clean", "divide_by_frozen": "--undivided"},
        "per_example": "--per-example",
    },
    "probing": {"seeds": "--probe-seeds", "epochs": "--probe-epochs"},
    "shapley": {"standard_error": "--shapley-error", "orders": "--shapley-orders"},
}


def command_of(settings: Mapping[str, Any], trained: bool) -> str:
    """`memloc run ...` or `memloc localise ...`.

    Training settings are always named, as their defaults depend on the model; others where they
    are not the default.
    """
    if settings.get("in_memory"):
        return "memloc.localise(…)  # in Python, with models in memory"
    words = _run(settings) if trained else _localise(settings)
    return "memloc " + " ".join(shlex.quote(word) for word in words)


def _run(settings: Mapping[str, Any]) -> list[str]:
    data, model = _section(settings, "data"), _section(settings, "model")
    words = ["run", "--task", str(data.get("task")), "--model", str(model.get("name"))]
    words += _given(data, ("data_dir", "validation", *COLUMNS, "limit", "binarise"))
    words += _unlike("--noise", data.get("noise"), 0.15)
    words += _unlike("--data-seed", data.get("seed"), 1)
    words += _given(model, ("blocks", "trust_remote_code"))
    words += _unlike("--pairs", model.get("pair_format"), "joined")
    words += ["--seeds", ",".join(map(str, settings.get("seeds") or [1]))]
    words += _training(settings)
    words += _techniques(settings, DEFAULT_TECHNIQUES)
    halves = settings.get("generalisation")
    if isinstance(halves, Mapping):
        words.append("--generalisation")
        usual = GeneralisationConfig()
        for name, flag in GeneralisationConfig.flags.items():
            words += _unlike(flag, halves.get(name), getattr(usual, name))
    return words + _unlike("--checkpoints", settings.get("checkpoints"), None)


def _localise(settings: Mapping[str, Any]) -> list[str]:
    words = ["localise", *_given(settings, ("memorised", "original", "pretrained", "near_ceiling"))]
    words += _given(settings, ("data", *COLUMNS, "blocks"))
    words += _unlike("--pairs", settings.get("pairs"), "native")
    words += _unlike("--seed", settings.get("seed"), 1)
    words += [*_training(settings), *_techniques(settings, ())]
    return [*words, "--out", "OUT"]


def _training(settings: Mapping[str, Any]) -> list[str]:
    training = _section(settings, "training")
    words = []
    for name, flag in TRAINING.items():
        usual = {"max_tokens": 512, "dtype": "float32"}.get(name)
        words += _unlike(flag, training.get(name), usual)
    return words


def _techniques(settings: Mapping[str, Any], usual_methods: tuple[str, ...]) -> list[str]:
    techniques, windows = _section(settings, "techniques"), _section(settings, "windows")
    chosen = tuple(name for name in techniques if name in names())
    words = ["--methods", ",".join(chosen)] if chosen != usual_methods else []
    sizes = windows.get("sizes")
    words += ["--window-sizes", ",".join(map(str, sizes))] if sizes else []
    words += _unlike("--unit", windows.get("unit"), "layer")
    for name in chosen:
        usual, flags = make(name).config, TECHNIQUES.get(name, {})
        for field, value in _section(techniques, name).items():
            if field in flags:
                words += _unlike(flags[field], value, getattr(usual, field))
            elif value != getattr(usual, field, None):
                words += ["--set", f"{name}.{field}={json.dumps(value)}"]
    explain = settings.get("explain")
    words += [] if explain is None else ["--explain" if explain else "--no-explain"]
    return words + _unlike("--device", settings.get("device"), "auto")


def _section(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = settings.get(name)
    return value if isinstance(value, Mapping) else {}


def _given(values: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    return [
        word
        for name in names
        for word in _unlike(f"--{name.replace('_', '-')}", values.get(name), None)
    ]


def _unlike(flag: str, value: Any, usual: Any) -> list[str]:
    """The option, unless its value is unknown or the usual one."""
    if value is None or value == usual:
        return []
    if isinstance(value, bool):
        return [flag] if value or flag in SWITCHES else []
    return [flag, str(value)]
