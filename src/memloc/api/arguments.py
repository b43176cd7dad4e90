"""Arguments of functions where the command line has options: how they are read and spoken of."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memloc.cli.options import (
    check_workers,
    parse_bytes,
    parse_names,
    parse_seeds,
    parse_sizes,
    techniques_from,
)
from memloc.errors import MemlocError

if TYPE_CHECKING:
    from memloc.config import TechniqueSettings
    from memloc.engine.progress import Progress

_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])")
_SWITCHES = {
    **{name: f"{name}=True" for name in ("undivided", "binarise", "generalisation")},
    **{"no_explain": "explain=False", "set": "options", "seed": "seed"},
}

COLUMNS = {f"{role}_column": role for role in ("text", "pair", "label", "original_label")}
"""Options of the command line that are shorter as arguments, except in `memloc.run`."""


def in_words(text: str, names: Mapping[str, str] | None = None) -> str:
    """A sentence that names options (`--batch-size`) with the arguments they are (`batch_size`).

    Args:
        text: The sentence.
        names: Arguments that are not called like their option.
    """
    known = {**_SWITCHES, **(names or {})}

    def argument(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        return known.get(name, name)

    return _OPTION.sub(argument, text)


@contextmanager
def spoken(
    others: Mapping[str, str] | None = None, names: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Errors inside name arguments, not options.

    Args:
        others: Further words and what to say instead; looked at only when there is an error.
        names: Arguments that are not called like their option.
    """
    try:
        yield
    except MemlocError as error:
        words = in_words(str(error), names)
        for word, instead in (others or {}).items():
            words = words.replace(word, instead)
        error.args = (words, *error.args[1:])
        raise


def whole_number(value: Any) -> int | None:
    """What Python or numpy takes for a whole number; None if it is something else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def names_of(methods: str | Sequence[str]) -> tuple[str, ...]:
    """Techniques: names, or one text with commas."""
    return parse_names(_listed(methods, "methods", "give names of techniques, such as 'swapping'"))


def seeds_of(seeds: int | str | Sequence[int]) -> tuple[int, ...]:
    """Model seeds: one, several, or one text with commas."""
    return parse_seeds(_listed(seeds, "seeds", "give whole numbers, such as 1 or [1, 2, 3]"))


def sizes_of(sizes: int | str | Sequence[int] | None) -> tuple[int, ...] | None:
    """Window sizes: one, several, or a text such as 1-3,6."""
    remedy = "give whole numbers, such as 1 or [1, 2], or '1-3,6'"
    return None if sizes is None else parse_sizes(_listed(sizes, "window_sizes", remedy))


def _listed(values: Any, name: str, remedy: str) -> str:
    """As it would stand on the command line."""
    if isinstance(values, str):
        return values
    number = whole_number(values)
    if number is not None and name != "methods":
        return str(number)
    if isinstance(values, Mapping) or not isinstance(values, Iterable):
        raise MemlocError(f"{name} {values!r:.40} is not possible; {remedy}")
    return ",".join(map(str, values))


def bytes_of(memory: str | int) -> int:
    """A number of bytes, or a text such as 2GB.

    Raises:
        MemlocError: If it is something else.
    """
    if isinstance(memory, str):
        return parse_bytes(memory)
    number = whole_number(memory)
    if number is None or not 0 <= number < 2**60:
        raise MemlocError(
            f"cache_memory {memory!r:.40} is not possible; give a number of bytes, or a text such "
            "as '2GB'"
        )
    return number


def checked_seed(seed: Any) -> int:
    """A number that generators take.

    Raises:
        MemlocError: If it is something else.
    """
    number = whole_number(seed)
    if number is None or not 0 <= number < 2**32:
        raise MemlocError(
            f"seed {seed!r:.40} is not possible; give a whole number from 0 to {2**32 - 1}"
        )
    return number


def checked_workers(workers: Any) -> int | None:
    """A number of processes; None leaves the choice.

    Raises:
        MemlocError: If it is something else.
    """
    if workers is None:
        return None
    number = whole_number(workers)
    if number is None:
        raise MemlocError(f"workers {workers!r:.40} is not possible; give a whole number, or None")
    check_workers(number)
    return number


def path_of(path: Any, name: str) -> Path:
    """Where something is, or is to be written.

    Raises:
        MemlocError: If it is neither a text nor a path.
    """
    if not isinstance(path, str | os.PathLike):
        raise MemlocError(f"{name} {path!r:.40} is not a path; give it as a text or a pathlib.Path")
    return Path(path)


def techniques_of(values: Mapping[str, Any], names: Sequence[str]) -> TechniqueSettings:
    """The techniques that were chosen, with their settings, from a function's arguments.

    Raises:
        MemlocError: If one is not possible.
    """
    return techniques_from({**values, "options": options_of(values["options"])}, names)


def options_of(options: Any) -> dict[str, dict[str, Any]]:
    """Options of techniques of other packages.

    Raises:
        MemlocError: If they are not given by the name of a technique and their own.
    """
    given = {} if options is None else options
    nested = isinstance(given, Mapping) and all(isinstance(v, Mapping) for v in given.values())
    if not nested:
        raise MemlocError(
            f"options {options!r:.40} is not possible; give a dict of options for each technique, "
            "such as {'my-technique': {'depth': 2}}"
        )
    return {str(name): dict(values) for name, values in given.items()}


def progress_of(progress: bool | Progress) -> Progress:
    """Bars in a terminal and, with ipywidgets, in a notebook; otherwise lines; False: nothing.

    Raises:
        MemlocError: If it is something else.
    """
    from rich.console import Console

    from memloc.engine.progress import Silent, TerminalProgress, make_progress

    if not isinstance(progress, bool):
        methods = ("showing", "start", "advance", "finish", "fail", "drop", "note")
        if not all(callable(getattr(progress, name, None)) for name in methods):
            raise MemlocError(
                f"progress {progress!r:.40} is not possible; give True, False, or an object with "
                f"the methods {', '.join(methods)}"
            )
        return progress
    if not progress:
        return Silent()
    console = Console(stderr=True)
    if not console.is_jupyter:
        return make_progress(console)
    try:
        import ipywidgets  # type: ignore[import-not-found, import-untyped, unused-ignore] # noqa: F401
    except ImportError:
        return make_progress(console)
    return TerminalProgress(console)
