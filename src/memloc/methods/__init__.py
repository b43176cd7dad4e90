"""Localisation techniques: one file each, one protocol.

A technique is added by adding a module with a registered class: nothing else has to be edited.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from memloc.config import DEFAULT_METHODS
from memloc.errors import MemlocError, suggest
from memloc.methods.base import REGISTRY, Context, LocalisationResult, Method, register

__all__ = ["Context", "LocalisationResult", "Method", "find_method", "method_names", "register"]


class UnknownMethod(MemlocError):
    """No technique has that name."""


class NoSingleState(MemlocError):
    """The head of a model does not read a single position."""


class TooFewExamples(MemlocError):
    """A technique needs more noisy or clean examples."""


@dataclass(frozen=True)
class Declared:
    """What a technique says about itself; see `memloc.methods.base.Method`."""

    revision: int
    needs: tuple[str, ...]
    settings: tuple[str, ...]
    windowed: bool = False
    smallest_group: int = 0
    """Noisy examples, and clean ones, that it needs at least."""
    holds_out_clean: bool = False
    """Whether it sets aside as many clean examples as there are noisy ones, and needs more."""


@cache
def method_names() -> tuple[str, ...]:
    """Names of all techniques: the modules of this package. Imports none of them."""
    found = {m.name for m in pkgutil.iter_modules(__path__)} - {"base"}
    usual = [name for name in DEFAULT_METHODS if name in found]
    return (*usual, *sorted(found - set(usual)))


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
    source = (Path(__path__[0]) / f"{name}.py").read_text(encoding="utf-8")
    known = Declared.__dataclass_fields__
    found: dict[str, Any] = {}
    for body in (n.body for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ClassDef)):
        for node in body:
            match node:
                case ast.Assign(targets=[ast.Name(id=field)], value=value) if field in known:
                    found[field] = ast.literal_eval(value)
    missing = {"revision", "needs", "settings"} - found.keys()
    if missing:
        raise UnknownMethod(f"technique {name!r} does not declare its {min(missing)}")
    return Declared(**found)


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


def check_pooling(names: tuple[str, ...], pooling: str) -> None:
    """Complain, before any work, if a technique looks at the state a head reads and there is none.

    Raises:
        NoSingleState: Naming the technique.
    """
    if pooling != "other":
        return
    others = [n for n in names if not any(need.startswith("states:") for need in declared(n).needs)]
    for name in names:
        if name not in others:
            remedy = f"leave it out: --methods {','.join(others or ['swapping'])}"
            raise NoSingleState(
                f"{name} looks at the state the head reads, but the head of this model does not "
                f"read the first or the last token alone; {remedy}"
            )


def find_method(name: str) -> Method:
    """The technique of that name.

    Raises:
        UnknownMethod: If there is none.
    """
    check_method_names((name,))
    importlib.import_module(f"{__name__}.{name}")
    return REGISTRY[name]()
