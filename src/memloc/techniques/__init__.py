"""Localisation techniques and explanations: one file each, one protocol, one registry.

A technique is a subclass of `Technique`. memloc's own are the modules of this package. Another
package makes one known with an entry point,

    [project.entry-points."memloc.techniques"]
    my-technique = "my_package.module:MyTechnique"

and a class in a script with `register`. Nothing else has to be edited, and all have the same
rights. Importing this package, or asking what a technique declares, imports nothing large.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from typing import Any, get_args

from memloc.config import DEFAULT_TECHNIQUES, Settings, Unit
from memloc.errors import MemlocError, nearest
from memloc.models.names import SWAPPED_HALVES, Role
from memloc.tables import SHARED, Table, checkpoints_of
from memloc.techniques.base import (
    Circumstances,
    Context,
    Explanation,
    Kind,
    Technique,
    TechniqueFailed,
)

__all__ = [
    "Circumstances",
    "Context",
    "Explanation",
    "Settings",
    "Technique",
    "TechniqueFailed",
    "find",
    "make",
    "names",
    "register",
]

GROUP = "memloc.techniques"


class UnknownTechnique(MemlocError):
    """No technique has that name."""


class PluginFailed(MemlocError):
    """A technique of another package cannot be used."""


class NotPossible(MemlocError):
    """A technique, or parts of layers, are not possible with this model and these examples."""


_registered: dict[str, type[Technique]] = {}


def register(technique: type[Technique]) -> type[Technique]:
    """Class decorator: make a technique known under its name.

    Experiments that run in other processes import its module there. In memory, as in
    `memloc.localise`, it may be defined anywhere.

    Raises:
        PluginFailed: If it is no technique, or its name is taken by one of memloc.
    """
    if technique.name in _own():
        raise PluginFailed(f"the name {technique.name!r} is taken by a technique of memloc")
    _registered[technique.name] = _checked(technique, technique.name, technique.__module__)
    return technique


@cache
def _own() -> dict[str, type[Technique]]:
    """The techniques in the modules of this package, those of the default first."""
    found: dict[str, type[Technique]] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Technique) and "name" in vars(value):
                found[value.name] = value
    order = [*DEFAULT_TECHNIQUES, *sorted(found.keys() - set(DEFAULT_TECHNIQUES))]
    return {name: found[name] for name in order}


@cache
def _plugins() -> dict[str, EntryPoint]:
    """Entry points of other packages, by the name of the technique."""
    return {p.name: p for p in entry_points(group=GROUP) if p.name not in _own()}


@cache
def _load(name: str) -> type[Technique]:
    """The class behind an entry point."""
    where = origin(name)
    try:
        found = _plugins()[name].load()
    except Exception as error:  # whatever a foreign module does when it is imported
        raise PluginFailed(
            f"technique {name!r} of {where} cannot be imported: {type(error).__name__}: {error}; "
            "mend or uninstall that package"
        ) from None
    return _checked(found, name, where)


def _checked(found: Any, name: str, where: str | None) -> type[Technique]:
    if not isinstance(found, type) or not issubclass(found, Technique):
        raise PluginFailed(
            f"technique {name!r} of {where} is not a subclass of memloc.techniques.Technique; see "
            "docs/your-technique.md"
        )
    roles = get_args(Role)
    known = {*roles, *(f"states:{role}" for role in (*roles, *SWAPPED_HALVES))}
    for need in found.needs:
        if need not in known:
            raise PluginFailed(
                f"technique {name!r} of {where} needs {need!r}", remedy=nearest(str(need), known)
            )
    return found


def find(name: str) -> type[Technique]:
    """The technique or explanation of that name.

    Raises:
        UnknownTechnique: If there is none.
        PluginFailed: If it cannot be imported.
    """
    found = _own().get(name) or _registered.get(name)
    if found is not None:
        return found
    if name not in _plugins():
        raise UnknownTechnique(f"technique {name!r} does not exist", remedy=nearest(name, names()))
    return _load(name)


def installed(name: str) -> type[Technique] | None:
    """The technique of that name, if there is one that can be imported."""
    with suppress(UnknownTechnique, PluginFailed):
        return find(name)
    return None


def names(kind: Kind = "technique") -> tuple[str, ...]:
    """Names of all techniques, or of all explanations; the default ones first.

    Those that cannot be imported are among the techniques: `find` says what is wrong with them.
    """
    known = dict.fromkeys((*_own(), *_plugins(), *_registered))
    return tuple(n for n in known if getattr(installed(n), "kind", "technique") == kind)


def classes() -> dict[str, type[Technique]]:
    """All techniques and explanations that can be imported, by the names of their classes."""
    found = [installed(name) for kind in get_args(Kind) for name in names(kind)]
    return {technique.__name__: technique for technique in found if technique is not None}


def origin(name: str) -> str | None:
    """The package a technique comes from, with its version; None for memloc's own."""
    if name in _own():
        return None
    if name in _registered:
        return _registered[name].__module__
    point = _plugins()[name]
    return point.value if point.dist is None else f"{point.dist.name} {point.dist.version}"


def at_checkpoints() -> tuple[str, ...]:
    """The techniques whose weights are compared over training time."""
    return tuple(n for n in names() if getattr(installed(n), "at_checkpoints", False))


def all_tables() -> dict[str, Table]:
    """The tables of all techniques and explanations that can be imported, and the shared ones."""
    found = {table.name: table for table in SHARED}
    found["checkpoints"] = checkpoints_of(at_checkpoints())
    for technique in classes().values():
        found |= {table.name: table for table in technique.tables}
    return found


def place_of(name: str) -> str | None:
    """Where other processes find a technique that a script has registered, as `module:Class`.

    Raises:
        PluginFailed: If they cannot import it.
    """
    technique = _registered.get(name)
    if technique is None:
        return None
    if technique.__module__ == "__main__" or "<locals>" in technique.__qualname__:
        raise PluginFailed(
            f"technique {name!r} is defined where other processes cannot import it",
            remedy="put its class into a module",
        )
    return f"{technique.__module__}:{technique.__qualname__}"


def register_from(place: str) -> None:
    """Register the technique that `place_of` told of, in another process."""
    module, _, qualname = place.partition(":")
    register(attrgetter(qualname)(importlib.import_module(module)))


def make(name: str, settings: Mapping[str, Any] | None = None) -> Technique:
    """A technique with its settings."""
    return find(name)(**(settings or {}))


def make_techniques(chosen: Mapping[str, Mapping[str, Any]]) -> list[Technique]:
    """The techniques among those that were chosen, with their settings.

    Explanations may be among them for their settings: see `possible_explanations`.

    Raises:
        UnknownTechnique: If a name does not exist, or there is no technique at all.
        ConfigError: If a technique does not have these settings.
        PluginFailed: If one cannot be imported.
    """
    made = [make(name, settings) for name, settings in chosen.items()]
    found = [one for one in made if one.kind == "technique"]
    if not found:
        raise UnknownTechnique(
            "no technique is chosen", remedy=f"choose some of: {', '.join(names())}"
        )
    return found


def settings_of(techniques: Iterable[Technique]) -> dict[str, dict[str, Any]]:
    """All settings of techniques as JSON data, by name: what `make` takes."""
    return {one.name: one.config.model_dump(mode="json") for one in techniques}


def possible(
    techniques: Iterable[Technique], there: Circumstances
) -> tuple[list[Technique], dict[str, str]]:
    """The techniques that models and examples allow, and the reason for each of the others."""
    found, reasons = [], {}
    for technique in techniques:
        reason = technique.obstacle(there)
        if reason is None:
            found.append(technique)
        else:
            reasons[technique.name] = reason
    return found, reasons


def check_possible(
    techniques: Sequence[Technique],
    there: Circumstances,
    unit: Unit = "layer",
    unit_problem: str | None = None,
) -> None:
    """Complain, before any work, if models or examples do not allow what was asked for.

    Raises:
        NotPossible: Naming the first technique that is not possible, or the unit.
    """
    for name, reason in possible(techniques, there)[1].items():
        raise NotPossible(f"{name} is not possible: {reason}", remedy="leave the technique out")
    if unit == "layer":
        return
    remedy = "use whole layers"
    if unit_problem is None and not any(technique.uses_unit for technique in techniques):
        unit_problem = f"it makes no difference to {', '.join(one.name for one in techniques)}"
        able = ", ".join(name for name in names() if getattr(installed(name), "uses_unit", False))
        remedy = f"leave it out, or choose techniques that look at parts of layers: {able}"
    if unit_problem is not None:
        raise NotPossible(unit_problem, setting="windows.unit", value=unit, remedy=remedy)


def possible_explanations(
    wanted: bool | None, there: Circumstances, settings: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Technique], list[str]]:
    """The explanations that models and examples allow, and a sentence on each that they do not.

    Args:
        wanted: Whether explanations were asked for; None takes what is possible.
        there: Models and examples.
        settings: By name; an explanation that is not there shares those of a technique, or has the
            usual ones.

    Raises:
        NotPossible: If they were asked for and one is not possible.
    """
    if wanted is False:
        return [], []
    found, reasons = possible(
        [
            make(name, settings.get(name) or settings.get(find(name).settings_from or ""))
            for name in names("explanation")
        ],
        there,
    )
    for reason in reasons.values():
        if wanted:
            raise NotPossible(reason, setting="explain")
    return found, list(dict.fromkeys(reasons.values()))
