"""Options of the command line, made from the fields of the settings.

A command that takes settings is a function of them: `with_settings` makes its options. Settings
that are often used have a short option; every one has a long one, `--training.warmup 0.2`, also
those of techniques, `--retraining.epochs 3`. What `--config` names comes first, options win.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from memloc.config import (
    ControlRun,
    Engine,
    Localisation,
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
    **{"explain": "Explanation", "generalisation": "Explanation", "checkpoints": "Explanation"},
    **{"memorised": "Model", "original": "Model", "pretrained": "Model", "near_ceiling": "Model"},
}
"""Headings of the help page by group or setting; others are with the techniques."""


def option(flag: str, help: str, panel: str | None = None, show_default: bool = True) -> Any:
    """An option with its help text, under a heading of the help page."""
    return typer.Option(flag, help=help, rich_help_panel=panel, show_default=show_default)


ConfigFile = Annotated[
    Path | None,
    option("--config", "Settings from a YAML file, or settings.json of a result."),
]


class SettingsCommand(TyperCommand):
    """A command whose options are settings; it reads and completes them before it is called."""

    settings: ClassVar[dict[str, Setting]]
    """By path."""
    complete: ClassVar[Callable[[dict[str, Any]], Settings]]
    part: ClassVar[str | None]
    """Where the settings are in settings.json, if they are not all of it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the settings out of the arguments."""
        words, dotted = _split_dotted(args, self.settings)
        rest = super().parse_args(ctx, words)
        options: dict[str, Any] = {}
        for path, setting in self.settings.items():
            for name, (_, off) in _flags(setting).items():
                value = ctx.params.pop(name, None)
                if value is not None:
                    put(options, path, setting.read(value) if isinstance(value, str) else not off)
        for setting, text in dotted:
            put(options, setting.path, setting.read(text))
        ctx.meta["settings"], ctx.meta["engine"] = self._completed(
            ctx.params.pop("config"), options
        )
        return rest

    def _completed(self, file: Path | None, options: dict[str, Any]) -> tuple[Settings, Engine]:
        from memloc.engine.complete import merge_given
        from memloc.engine.settings_file import read_settings

        given = options
        if file is not None:
            given = merge_given(read_settings(file, type(self).part), options)
        engine = Engine(**given.pop("engine", {}))
        return type(self).complete(given), engine


def with_settings(
    group: type[Settings],
    complete: Callable[[dict[str, Any]], Settings],
    *,
    hidden: Sequence[str] = (),
    without: Sequence[str] = (),
    also: Mapping[str, type[Settings]] | None = None,
    part: str | None = None,
) -> Callable[[Callable[..., None]], tuple[Callable[..., None], type[SettingsCommand]]]:
    """Make the options of a function `command(settings, engine, ...)`.

    Args:
        group: The settings.
        complete: Makes them from a tree of what was given.
        hidden: Settings whose short options are not on the help page of this command.
        without: Settings that this command does not have.
        also: Further groups whose settings have options here.
        part: See `SettingsCommand`.
    """
    found = [*settings_in(group)]
    further: dict[str, type[Settings]] = {**(also or {}), "engine": Engine}
    for path, other in further.items():
        found += settings_in(other, path)
    settings = {one.path: one for one in found if one.path not in without}

    def decorate(
        function: Callable[..., None],
    ) -> tuple[Callable[..., None], type[SettingsCommand]]:
        def command(ctx: typer.Context, **values: Any) -> None:
            rest = {name: value for name, value in values.items() if name in own}
            function(ctx.meta["settings"], ctx.meta["engine"], **rest)

        made = [p for one in settings.values() for p in _parameters(one, one.path in hidden)]
        config = inspect.Parameter(
            "config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigFile
        )
        signature = inspect.signature(function, eval_str=True)
        own = {
            name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in [*signature.parameters.items()][2:]
        }
        context = inspect.Parameter(
            "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
        )
        parameters = [context, *made, *own.values(), config]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        command.__doc__ = function.__doc__
        kind = type(
            "Command",
            (SettingsCommand,),
            {"settings": settings, "complete": staticmethod(complete), "part": part},
        )
        return command, kind

    return decorate


def _flags(setting: Setting) -> dict[str, tuple[str, bool]]:
    """The short options of a setting by the names of their parameters; True: it switches off."""
    if setting.flag is None:
        return {}
    flags = dict.fromkeys((setting.flag.name, *setting.flag.former), False)
    if setting.is_switch and setting.default is None:
        flags[f"--no-{setting.flag.name[2:]}"] = True
    return {f"setting{flag.replace('-', '_')}": (flag, off) for flag, off in flags.items()}


def _parameters(setting: Setting, hidden: bool) -> Iterator[inspect.Parameter]:
    """The short options of a setting; those that had other names once are hidden."""
    group = setting.path.partition(".")[0]
    for name, (flag, _) in _flags(setting).items():
        assert setting.flag is not None
        made = typer.Option(
            flag,
            help=_help(setting),
            hidden=hidden or flag != setting.flag.name or not setting.flag.shown,
            rich_help_panel=PANELS.get(group, "Techniques"),
            show_default=False,
            metavar=None if setting.is_switch else _metavar(setting),
        )
        kind: Any = bool | None if setting.is_switch else str | None
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[kind, made],
        )


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


def spell(path: str) -> str:
    """A setting as an option: the short one, if there is one."""
    groups: dict[str, type[Settings]] = {"": Run, "engine": Engine}
    more: list[tuple[str, type[Settings]]] = [("", Localisation), ("", ControlRun)]
    for where, group in (*groups.items(), *more):
        for setting in settings_in(group, where):
            if setting.path == path and setting.flag is not None:
                return setting.flag.name
    return f"--{path}" if "." in path else f"--{path.replace('_', '-')}"


def _split_dotted(
    args: Sequence[str], settings: Mapping[str, Setting]
) -> tuple[list[str], list[tuple[Setting, str]]]:
    """Arguments without long options, and the values of these."""
    words: list[str] = []
    dotted: list[tuple[Setting, str]] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        if not flag.startswith("--") or "." not in flag:
            words.append(word)
            continue
        setting = find_setting(flag[2:], settings)
        if not equals:
            if rest and not rest[0].startswith("--"):
                value = rest.pop(0)
            elif setting.is_switch:
                value = "true"
            else:
                raise ConfigError("it needs a value", setting=setting.path)
        dotted.append((setting, value))
    return words, dotted


def find_setting(path: str, settings: Mapping[str, Setting]) -> Setting:
    """A setting by its dotted path; words may be joined by `-` or `_`.

    Raises:
        ConfigError: If there is none.
    """
    from memloc import techniques

    known = dict(settings)
    group = path.partition(".")[0]
    for name in (*techniques.names(), *techniques.names("explanation")):
        if name.replace("_", "-") == group.replace("_", "-"):
            known.update({one.path: one for one in settings_in(techniques.find(name).Config, name)})
    for one in known.values():
        if one.path.replace("_", "-") == path.replace("_", "-"):
            return one
    raise ConfigError(
        "there is no such setting",
        setting=path,
        remedy=nearest(path, [one for one in known if "." in one])
        or "`memloc settings` and `memloc techniques NAME` list all settings",
    )
