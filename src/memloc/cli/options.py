"""Options of the command line, made from the fields of the settings.

A command that takes settings is a function of them: `Options` makes its options. Settings that are
often used have a short option; every one has a long one, `--training.warmup 0.2`, also those of
techniques, `--retraining.epochs 3`. What `--config` names comes first, options win.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from memloc.config import (
    Audit,
    ControlRun,
    Engine,
    Execution,
    Localisation,
    Repair,
    Run,
    Setting,
    Settings,
    put,
    settings_in,
    write_value,
)
from memloc.errors import ConfigError, nearest

PANELS = {
    **{"data": "Data", "model": "Model", "training": "Training", "seeds": "Training"},
    **{"seed": "Training", "control": "Training", "auxiliary": "Data", "auxiliary_limit": "Data"},
    **{"tasks": "Data", "held_back": "Data", "layers": "Model", "engine": None, "device": None},
    **{"executor": None, "workers": None, "save_every": None, "candidate": None},
    **{"splits": "Audit", "split_epochs": "Audit"},
    **{"explain": "Explanation", "generalisation": "Explanation", "checkpoints": "Explanation"},
    **{"memorised": "Model", "original": "Model", "pretrained": "Model", "near_ceiling": "Model"},
}
"""Headings of the help page by group or setting; others are with the techniques."""


def option(flag: str, help: str, show_default: bool = True) -> Any:
    """An option that is not a setting."""
    return typer.Option(flag, help=help, show_default=show_default)


ConfigFile = Annotated[
    Path | None, option("--config", "Settings from a YAML file, or settings.json of a result.")
]


@dataclass(frozen=True)
class Options:
    """The options of a command that takes settings.

    Attributes:
        group: The settings.
        also: Further groups whose settings have options here.
        without: Settings that this command does not have.
        part: Where the settings are in settings.json, if they are not all of it.
        files: Whether `--config` may name a file with settings.
    """

    group: type[Settings]
    also: Mapping[str, type[Settings]] = field(default_factory=dict)
    without: Sequence[str] = ()
    part: str | None = None
    files: bool = True

    @property
    def settings(self) -> dict[str, Setting]:
        """All settings by path."""
        groups: dict[str, type[Settings]] = {"": self.group, **self.also, "engine": Engine}
        found = [one for path, group in groups.items() for one in settings_in(group, path)]
        return {one.path: one for one in found if one.path not in self.without}

    def add(self, app: typer.Typer, name: str, function: Callable[..., Any]) -> None:
        """Make a command of a function `command(settings, engine, …)`."""

        def command(ctx: typer.Context, **values: Any) -> Any:
            rest = {name: values.pop(name) for name in own}
            settings, engine = self.read(values, ctx.args)
            return function(settings, engine, **rest)

        signature = inspect.signature(function, eval_str=True)
        own = dict(list(signature.parameters.items())[2:])
        context = ("ctx", inspect.Parameter.empty, typer.Context)
        made = [context, *self._parameters()]
        made += [("config", None, ConfigFile)] if self.files else []
        made += [(one.name, one.default, one.annotation) for one in own.values()]
        command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
                )
                for name, default, annotation in made
            ]
        )
        command.__annotations__ = {name: annotation for name, _, annotation in made}
        # Long options are not known to typer, which leaves them in `ctx.args`.
        unknown = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(name, help=inspect.getdoc(function), context_settings=unknown)(command)

    def _parameters(self) -> Iterator[tuple[str, Any, Any]]:
        """Name, default and annotation of the parameter of every short option."""
        for setting in self.settings.values():
            for flag in _flags(setting):
                made = typer.Option(
                    flag,
                    help=_help(setting),
                    hidden=not setting.shown or flag != setting.option,
                    rich_help_panel=PANELS.get(setting.path.partition(".")[0], "Techniques"),
                    show_default=False,
                    metavar=None if setting.is_switch else _metavar(setting),
                )
                kind: Any = bool | None if setting.is_switch else str | None
                yield _parameter_name(flag), None, Annotated[kind, made]

    def read(self, values: Mapping[str, Any], words: Sequence[str]) -> tuple[Any, Engine]:
        """The settings that short options (by parameter), long ones and a file give together.

        Those of `Execution` are only what was given, as the rest is in the file of a sweep.

        Raises:
            ConfigError: If there is no such setting, or a value is not possible.
        """
        from memloc.engine import complete

        given: dict[str, Any] = {}
        for path, setting in self.settings.items():
            for flag, on in _flags(setting).items():
                value = values.get(_parameter_name(flag))
                if value is not None:
                    put(given, path, value if isinstance(value, str) else on)
        for setting, text in self._long_options(list(words)):
            put(given, setting.path, text)
        if values.get("config") is not None:
            given = complete.merge_given(complete.read_settings(values["config"], self.part), given)
        engine = Engine(**given.pop("engine", {}))
        make: dict[type[Settings], Callable[[dict[str, Any]], Any]] = {
            Run: complete.complete_run,
            Localisation: complete.complete_localisation,
            ControlRun: complete.complete_control,
            Audit: complete.complete_audit,
            Repair: lambda tree: Repair(**tree),
            Execution: dict,
        }
        return make[self.group](given), engine

    def _long_options(self, words: list[str]) -> Iterator[tuple[Setting, str]]:
        """`--retraining.epochs 3`, or with an equals sign."""
        while words:
            flag, equals, value = words.pop(0).partition("=")
            setting = self._find(flag)
            if not equals:
                if words and not words[0].startswith("--"):
                    value = words.pop(0)
                elif setting.is_switch:
                    value = "true"
                else:
                    raise ConfigError("it needs a value", setting=setting.path)
            yield setting, value

    def _find(self, flag: str) -> Setting:
        """A setting by its long option; words may be joined by `-` or `_`."""
        from memloc import techniques

        known = self.settings
        group = flag.removeprefix("--").partition(".")[0]
        for name in (*techniques.names(), *techniques.names("explanation")):
            if name.replace("_", "-") == group.replace("_", "-"):
                found = settings_in(techniques.find(name).Config, name)
                known |= {one.path: one for one in found}
        for path, setting in known.items():
            if f"--{path}".replace("_", "-") == flag.replace("_", "-"):
                return setting
        short = [one.option for one in known.values() if one.option]
        like = [f"--{path}" for path in known if path.startswith(f"{group}.")]
        remedy = nearest(flag, like if "." in flag else short)
        if remedy is None or not remedy.endswith("?"):
            remedy = "`memloc settings` and `memloc techniques NAME` list all settings"
        raise ConfigError(f"there is no option {flag}", remedy=remedy)


def _flags(setting: Setting) -> dict[str, bool]:
    """The short options of a setting; False: it switches off."""
    if setting.option is None:
        return {}
    off = {f"--no-{setting.option[2:]}": False}
    return {setting.option: True, **(off if setting.is_switch and setting.default is None else {})}


def _parameter_name(flag: str) -> str:
    return f"setting{flag.replace('-', '_')}"


def _metavar(setting: Setting) -> str:
    words = setting.type_words
    if "|" in words:
        return "CHOICE"
    return {"INTEGER": "N", "INTEGER,...": "N,...", "NUMBER": "X"}.get(words, words)


def _help(setting: Setting) -> str:
    """What it is for, what can be chosen, and the default, unless it depends on the model."""
    words = setting.help
    if "|" in setting.type_words and not setting.is_switch and "INTEGER" not in setting.type_words:
        words = f"{words.rstrip('.')}: {setting.type_words.replace('|', ', ')}."
    default = setting.default
    plain = isinstance(default, str | int | float | Path | tuple) and not setting.is_switch
    if plain and default != () and not setting.path.startswith("training."):
        words += f" \\[{write_value(default)}]"
    return words


@cache
def _short_options() -> dict[str, str]:
    """By path of the setting."""
    groups: list[tuple[str, type[Settings]]] = [
        ("", ControlRun),
        ("", Audit),
        ("", Localisation),
        ("", Run),
        ("engine", Engine),
    ]
    found = [one for path, group in groups for one in settings_in(group, path)]
    return {one.path: one.option for one in found if one.option}


def spell(path: str) -> str:
    """A setting as an option: the short one, if there is one."""
    long = f"--{path}" if "." in path else f"--{path.replace('_', '-')}"
    return _short_options().get(path, long)
