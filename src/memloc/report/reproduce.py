"""The command that makes a result again, from its settings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from memloc.config import (
    DEFAULT_TECHNIQUES,
    Localisation,
    Run,
    Setting,
    Settings,
    Training,
    settings_in,
    write_value,
)
from memloc.errors import MISSING
from memloc.models.names import known_training
from memloc.techniques import PluginFailed, find

ALWAYS = ("data.task", "model.name", "seeds")
"""Settings that are named even if they have their default."""


def command_of(settings: Mapping[str, Any], trained: bool, folder: Path | None = None) -> str:
    """`memloc run ...` or `memloc localise ...`, with every setting that is not the default.

    Args:
        settings: Of a result, as in its settings.json.
        trained: Whether memloc trained the models.
        folder: Where the result is.
    """
    if settings.get("in_memory"):
        return "memloc.localise(…)  # in Python, with models in memory"
    if trained:
        words = ["run", *_words(Run(**settings))]
        runs = folder.parent if folder is not None else Path("runs")
        words += [] if runs == Path("runs") else ["--runs", str(runs)]
    else:
        words = ["localise", *_words(Localisation(**settings))]
        words += ["--out", "OUT" if folder is None else str(folder)]
    return "memloc " + " ".join(shlex.quote(word) for word in words)


def _words(settings: Run | Localisation) -> Iterator[str]:
    start = settings.model.name if isinstance(settings, Run) else settings.pretrained or ""
    usual_training = Training(**known_training(start))
    for setting in settings_in(type(settings)):
        value = _value(settings, setting.path)
        if setting.path == "techniques":
            yield from _techniques(settings)
        elif setting.path.startswith("training."):
            # The default depends on the model, and on the version: named unless both agree.
            usual = _value(usual_training, setting.path.removeprefix("training."))
            if not value == usual == setting.default:
                yield from _option(setting, value)
        elif value is not MISSING and (value != setting.default or setting.path in ALWAYS):
            yield from _option(setting, value)


def _value(settings: Settings, path: str) -> Any:
    """A setting by its path; `MISSING` if it is in a group that was left out."""
    found: Any = settings
    for name in path.split("."):
        found = MISSING if found is None else getattr(found, name)
        if found is MISSING:
            return MISSING
    return found


def _option(setting: Setting, value: Any) -> list[str]:
    flag = f"--{setting.path}" if setting.flag is None else setting.flag.name
    if setting.is_switch:
        on = value is not None and value is not False
        if setting.default is None:
            return [flag if on else f"--no-{flag[2:]}"]
        if on and setting.flag is not None:
            return [flag]
        return [f"--{setting.path}", write_value(value)]
    text = write_value(value)
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def _techniques(settings: Run | Localisation) -> Iterator[str]:
    """Which ones, and their settings that are not the default."""
    chosen = [n for n in settings.techniques if _kind(n) == "technique"]
    if not isinstance(settings, Run) or chosen != list(DEFAULT_TECHNIQUES):
        yield from ("--techniques", ",".join(chosen))
    for name, given in settings.techniques.items():
        try:
            known = {one.path: one for one in settings_in(find(name).Config, name)}
        except PluginFailed:
            known = {}
        for key, value in given.items():
            setting = known.get(f"{name}.{key}")
            if setting is None or value != _plain(setting.default):
                text = write_value(value)
                flag = f"--{name}.{key}"
                yield from [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def _plain(value: Any) -> Any:
    """As in JSON."""
    return list(value) if isinstance(value, tuple) else value


def _kind(name: str) -> str:
    try:
        return find(name).kind
    except PluginFailed:
        return "technique"
