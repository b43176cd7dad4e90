"""Sentences that name options of the command line, for people who have a file instead."""

from __future__ import annotations

import re
from functools import cache

from memloc.config import ControlConfig, ControlRunConfig, ModelConfig, Settings
from memloc.engine.sweep_file.settings import PARTS

_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])")
_LIST = re.compile(r"(?<![\w-])--methods ((?:[\w.-]+,)*[\w.-]+)")
_KEPT = ("data-dir", "device")
"""Settings for which a sweep has an option too."""


def in_settings(text: str, of: str = "") -> str:
    """A sentence that names options (`--batch-size`) with the settings (`training.batch_size`).

    Args:
        text: The sentence.
        of: `control.` if it is about the benchmark, which has techniques of its own.
    """
    text = _LIST.sub(lambda match: f"{of}methods: [{match[1].replace(',', ', ')}]", text)
    return _OPTION.sub(lambda match: _settings().get(match[1], match[0]), text)


@cache
def _settings() -> dict[str, str]:
    """Options without their dashes, and where their settings are in a file."""
    found = {
        **{"model": "models", "task": "tasks", "tasks": "control.tasks", "seeds": "seeds"},
        **{"methods": "methods", "checkpoints": "checkpoints", "generalisation": "generalisation"},
        **{"aux-task": "control.auxiliary", "set": "techniques.options"},
        **{"explain": "explain: true", "no-explain": "explain: false", "binarise": "binarise"},
        "keep-clean": "techniques.gradients.subtract_clean: false",
        "undivided": "techniques.gradients.divide_by_frozen: false",
    }
    shapes: list[tuple[str, type[Settings]]] = [
        *PARTS.items(),
        ("models", ModelConfig),
        ("control.control", ControlConfig),
        ("control", ControlRunConfig),
    ]
    for path, shape in shapes:
        _add(path, shape, found)
    return {name: where for name, where in found.items() if name not in _KEPT}


def _add(path: str, shape: type[Settings], found: dict[str, str]) -> None:
    for name, field in shape.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Settings):
            if path != "control":  # whose parts are those of the sweep
                _add(f"{path}.{name}", inner, found)
        else:
            flag = shape.flags.get(name, f"--{name.replace('_', '-')}")
            found.setdefault(flag.removeprefix("--"), f"{path}.{name}")
