"""Localisation techniques: one file each, one protocol.

A technique is added by adding a module with a registered class, called like its name: nothing else
has to be edited. Other packages bring theirs through entry points (`memloc.techniques.plugins`).
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from memloc.config import DEFAULT_METHODS, Unit
from memloc.errors import MemlocError, suggest
from memloc.models.names import SWAPPED_HALVES, Role
from memloc.techniques.base import (
    REGISTRY,
    Context,
    LocalisationResult,
    Method,
    Scored,
    register,
)
from memloc.techniques.plugins import PluginFailed, load_plugin, origin, plugins

__all__ = ["Context", "LocalisationResult", "Method", "find_method", "method_names", "register"]


class UnknownMethod(MemlocError):
    """No technique has that name."""


class NoSingleState(MemlocError):
    """The head of a model does not read a single position."""


class NoSuchUnit(MemlocError):
    """Parts of layers are wanted where there are none, or where nobody looks at them."""


class TooFewExamples(MemlocError):
    """A technique needs more noisy or clean examples."""


@dataclass(frozen=True)
class Declared:
    """What a technique says about itself; see `memloc.techniques.base.Method`."""

    revision: int
    needs: tuple[str, ...]
    settings: tuple[str, ...]
    windowed: bool = False
    smallest_group: int = 0
    """Noisy examples, and clean ones, that it needs at least."""
    holds_out_clean: bool = False
    """Whether it sets aside as many clean examples as there are noisy ones, and needs more."""
    origin: str | None = None
    """The package it comes from, if that is not memloc."""
    about: str = ""
    """What it does: the first line of the docstring of its class."""


_OTHERS = {"base", "centroids", "class-probes", "explain", "plugins"}
"""Modules here that are no technique."""


@cache
def method_names() -> tuple[str, ...]:
    """Names of all techniques: modules of this package and entry points. Imports none of them."""
    found = {m.name.replace("_", "-") for m in pkgutil.iter_modules(__path__)} - _OTHERS
    usual = [name for name in DEFAULT_METHODS if name in found]
    others = sorted(found - set(usual))
    return (*usual, *others, *(name for name in plugins() if name not in found))


def is_plugin(name: str) -> bool:
    """Whether a technique comes from another package; memloc's own names cannot be taken."""
    return not (Path(__path__[0]) / f"{_module(name)}.py").exists()


def _module(name: str) -> str:
    return name.replace("-", "_")


def check_method_names(names: tuple[str, ...]) -> None:
    """Complain about names that do not exist.

    Raises:
        UnknownMethod: Naming the first one, with a suggestion.
    """
    for name in names:
        if name not in method_names():
            raise UnknownMethod(f"technique {name!r} does not exist{suggest(name, method_names())}")


@cache
def declared(name: str) -> Declared:
    """What the module of a technique declares.

    Read from its source, because importing a technique imports torch and transformers, and
    finding out that everything is already computed should not take seconds.
    """
    if is_plugin(name):
        return _declared_by_class(name)
    source = (Path(__path__[0]) / f"{_module(name)}.py").read_text(encoding="utf-8")
    known = Declared.__dataclass_fields__
    found: dict[str, Any] = {}
    for node in (n for n in ast.parse(source).body if isinstance(n, ast.ClassDef)):
        fields = {
            target.id: value
            for statement in node.body
            if isinstance(statement, ast.Assign)
            for target, value in [(statement.targets[0], statement.value)]
            if isinstance(target, ast.Name)
        }
        if "name" in fields:
            about = ast.get_docstring(node) or ""
            found = {k: ast.literal_eval(v) for k, v in fields.items() if k in known}
            found["about"] = about.split("\n")[0]
    missing = {"revision", "needs", "settings"} - found.keys()
    if missing:
        raise UnknownMethod(f"technique {name!r} does not declare its {min(missing)}")
    return Declared(**found)


def _declared_by_class(name: str) -> Declared:
    """What a technique of another package declares, with defaults for what it does not."""
    found = load_plugin(name)
    needs = tuple(getattr(found, "needs", ("memorised", "original")))
    known = {*get_args(Role), *(f"states:{role}" for role in (*get_args(Role), *SWAPPED_HALVES))}
    for need in needs:
        if need not in known:
            raise PluginFailed(
                f"technique {name!r} of {origin(name)} needs {need!r}{suggest(str(need), known)}"
            )
    return Declared(
        revision=int(getattr(found, "revision", 1)),
        needs=needs,
        settings=("options",),
        smallest_group=int(getattr(found, "smallest_group", 0)),
        origin=origin(name),
        about=(found.__doc__ or "").strip().split("\n")[0],
    )


def usable_methods(
    names: tuple[str, ...], options: Mapping[str, Mapping[str, Any]]
) -> tuple[tuple[str, ...], list[str]]:
    """The techniques that can be imported, and a sentence on each that cannot.

    Raises:
        UnknownMethod: If a name does not exist, or options are for a technique that is not used.
        PluginFailed: If none can be imported, or one does not take its options.
    """
    check_method_names(names)
    for name in options:
        if name not in names:
            raise UnknownMethod(f"--set {name!r} is not among the techniques: {', '.join(names)}")
        if not is_plugin(name):
            raise UnknownMethod(
                f"--set is for techniques of other packages; {name!r} has options of its own, see "
                "--help"
            )
    usable, broken = [], []
    for name in names:
        try:
            declared(name)
        except PluginFailed as error:
            broken.append(str(error))
        else:
            usable.append(name)
            if is_plugin(name):
                construct(name, load_plugin(name), options.get(name, {}))
    if not usable:
        raise PluginFailed(broken[0])
    return tuple(usable), broken


def check_enough_examples(names: tuple[str, ...], noisy: int, clean: int) -> None:
    """Complain, before any work, if a technique would not find enough examples.

    Raises:
        TooFewExamples: Saying how many are needed.
    """
    for name in names:
        least = declared(name).smallest_group
        for kind, count in (("noisy", noisy), ("clean", clean)):
            if count < least:
                others = ",".join(n for n in names if declared(n).smallest_group <= count)
                remedy = f", or leave it out: --methods {others}" if others else ""
                raise TooFewExamples(
                    f"{name} needs at least {least} {kind} examples and there are {count}; use "
                    f"more examples{remedy}"
                )
        if declared(name).holds_out_clean and clean <= noisy:
            raise TooFewExamples(
                f"{name} needs more clean examples than noisy ones, to hold out as many, and there "
                f"are {clean} clean and {noisy} noisy; leave it out with --methods"
            )


def pooling_allows(names: tuple[str, ...], pooling: str) -> tuple[str, ...]:
    """The techniques that do without the state a head reads, if it does not read a single one."""
    if pooling != "other":
        return names
    return tuple(
        name
        for name in names
        if not any(need.startswith("states:") for need in declared(name).needs)
    )


def check_pooling(names: tuple[str, ...], pooling: str) -> None:
    """Complain, before any work, if a technique looks at the state a head reads and there is none.

    Raises:
        NoSingleState: Naming the technique.
    """
    others = pooling_allows(names, pooling)
    for name in names:
        if name not in others:
            remedy = f"leave it out: --methods {','.join(others or ('swapping',))}"
            raise NoSingleState(
                f"{name} looks at the state the head reads, but the head of this model does not "
                f"read the first or the last token alone; {remedy}"
            )


def check_unit(names: tuple[str, ...], unit: Unit, problem: str | None) -> None:
    """Complain, before any work, if parts of layers are wanted and cannot be had.

    Args:
        names: Techniques.
        unit: What of a layer they are to change.
        problem: Why the layers of the model have no parts (`BlockModel.unit_problem`).

    Raises:
        NoSuchUnit: If the model has no parts, or none of the techniques knows any.
    """
    if unit == "layer":
        return
    if problem is not None:
        raise NoSuchUnit(f"--unit {unit} is not possible: {problem}; use --unit layer")
    if not any("unit" in declared(name).settings for name in names):
        raise NoSuchUnit(
            f"--unit {unit} makes no difference to {', '.join(names)}; leave it out, or choose "
            "techniques that look at parts of layers: --methods swapping"
        )


def find_method(name: str, options: Mapping[str, Any] | None = None) -> Method:
    """The technique of that name.

    Args:
        name: Of memloc's own or of another package.
        options: For its `Config`, if it has one.

    Raises:
        UnknownMethod: If there is none.
        PluginFailed: If it cannot be imported, or does not take these options.
    """
    check_method_names((name,))
    if is_plugin(name):
        technique = construct(name, load_plugin(name), options or {})
    else:
        importlib.import_module(f"{__name__}.{_module(name)}")
        technique = REGISTRY[name]()
    return technique if hasattr(technique, "localise") else Scored(technique)


def construct(name: str, technique: type[Any], options: Mapping[str, Any]) -> Any:
    """An instance with its configuration.

    Raises:
        PluginFailed: If the options are not those it has.
    """
    config = getattr(technique, "Config", None)
    if config is None:
        if options:
            raise PluginFailed(f"technique {name!r} has no options, but got {min(options)!r}")
        return technique()
    try:
        return technique(config(**options))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = first["msg"][0].lower() + first["msg"][1:]
        raise PluginFailed(
            f"--set {name}.{where}={first['input']} is not possible: {reason}"
        ) from None
