"""Localisation techniques: one file each, one protocol.

A technique is added by adding a module with a registered class: nothing else has to be edited.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from functools import cache
from pathlib import Path

from memloc.errors import MemlocError, suggest
from memloc.methods.base import REGISTRY, Context, LocalisationResult, Method, register

__all__ = ["Context", "LocalisationResult", "Method", "find_method", "method_names", "register"]


class UnknownMethod(MemlocError):
    """No technique has that name."""


@cache
def method_names() -> tuple[str, ...]:
    """Names of all techniques: the modules of this package. Imports none of them."""
    return tuple(m.name for m in pkgutil.iter_modules(__path__) if m.name != "base")


def check_method_names(names: tuple[str, ...]) -> None:
    """Complain about names that do not exist.

    Raises:
        UnknownMethod: Naming the first one, with a suggestion.
    """
    for name in names:
        if name not in method_names():
            raise UnknownMethod(f"technique {name!r} does not exist{suggest(name, method_names())}")


@cache
def method_revision(name: str) -> int:
    """The `revision` that the module of a technique declares.

    Read from its source, because importing a technique imports torch and transformers, and
    finding out that everything is already computed should not take seconds.
    """
    source = (Path(__path__[0]) / f"{name}.py").read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Assign(
                targets=[ast.Name(id="revision")], value=ast.Constant(value=int(number))
            ):
                return number
    raise UnknownMethod(f"technique {name!r} declares no revision")


def find_method(name: str) -> Method:
    """The technique of that name.

    Raises:
        UnknownMethod: If there is none.
    """
    check_method_names((name,))
    importlib.import_module(f"{__name__}.{name}")
    return REGISTRY[name]()
