"""The command that makes a result again, from its settings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from memloc.config import (
    DEFAULT_TECHNIQUES,
    Localisation,
    Run,
    Setting,
    Training,
    settings_in,
    write_value,
)
from memloc.errors import MISSING
from memloc.models.names import known_training
from memloc.techniques import PluginFailed, Technique, find

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
    usual = {"training": Training(**known_training(start))}
    for setting in settings_in(type(settings)):
        group, _, name = setting.path.rpartition(".")
        if setting.path == "techniques":
            yield from _techniques(settings)
            continue
        try:
            value = attrgetter(setting.path)(settings)
        except AttributeError:  # in a group that was left out
            continue
        default = setting.default
        # If the default depends on the model, the value is named: it may change with the version.
        if group in usual and getattr(usual[group], name) != default:
            default = MISSING
        if value != default or setting.path in ALWAYS:
            yield from _option(setting, value)


def _option(setting: Setting, value: Any) -> list[str]:
    long = f"--{setting.path}"
    short = setting.option or long
    if setting.is_switch:
        on = value is not None and value is not False
        if setting.default is None:
            return [short if on else f"--no-{short[2:]}"]
        return [short] if on and setting.option else _pair(long, value)
    return _pair(short, value)


def _pair(flag: str, value: Any) -> list[str]:
    text = write_value(value)
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def _techniques(settings: Run | Localisation) -> Iterator[str]:
    """Which ones, and their settings that are not the default."""
    chosen, words = [], []
    for name, given in settings.techniques.items():
        try:
            technique: type[Technique] | None = find(name)
        except PluginFailed:
            technique = None
        if technique is None or technique.kind == "technique":
            chosen.append(name)
        usual = technique.Config.model_construct().model_dump(mode="json") if technique else {}
        for key, value in given.items():
            if key not in usual or value != usual[key]:
                words += _pair(f"--{name}.{key}", value)
    if not isinstance(settings, Run) or chosen != list(DEFAULT_TECHNIQUES):
        yield from ("--techniques", ",".join(chosen))
    yield from words
