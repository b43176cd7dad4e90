"""Techniques of other packages, found through their entry points.

A package makes a technique known with

    [project.entry-points."memloc.techniques"]
    my-technique = "my_package.module:MyTechnique"

Nothing is imported until a technique is asked for by name.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from memloc.errors import MemlocError

GROUP = "memloc.techniques"


class PluginFailed(MemlocError):
    """A technique of another package cannot be used."""


@cache
def plugins() -> dict[str, EntryPoint]:
    """Entry points by the name of the technique."""
    return {point.name: point for point in entry_points(group=GROUP)}


def origin(name: str) -> str:
    """The package a technique comes from, with its version."""
    dist = plugins()[name].dist
    return f"{dist.name} {dist.version}" if dist is not None else plugins()[name].value


@cache
def load_plugin(name: str) -> type[Any]:
    """The class of a technique.

    Raises:
        PluginFailed: If it cannot be imported, or is no technique.
    """
    try:
        found = plugins()[name].load()
    except Exception as error:  # whatever a foreign module does when it is imported
        raise PluginFailed(
            f"technique {name!r} of {origin(name)} cannot be imported: "
            f"{type(error).__name__}: {error}; mend or uninstall that package"
        ) from None
    if not isinstance(found, type) or not (hasattr(found, "score") or hasattr(found, "localise")):
        raise PluginFailed(
            f"technique {name!r} of {origin(name)} is not a class with a method score(context); "
            "see docs/your-technique.md"
        )
    return found
