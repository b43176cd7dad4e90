"""Arguments of functions where the command line has options: how they are read and spoken of."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memloc.config import Settings
from memloc.errors import MISSING, ConfigError, MemlocError

if TYPE_CHECKING:
    from memloc.engine.progress import Progress
    from memloc.techniques import Technique

Techniques = str | Iterable["str | Technique"] | Mapping[str, Mapping[str, Any]]
"""Names, technique objects, or settings by name."""
_ARGUMENTS = {"data.task": "task", "model.name": "model", "model.pair_format": "pairs"}
"""Settings that are arguments of their own; all others are called like their group."""

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
        if error.setting is not None:
            of_engine = error.setting.removeprefix("engine.")
            error.setting = _ARGUMENTS.get(error.setting, of_engine)
            if error.value in (others or {}):
                error.value = MISSING
            raise
        words = in_words(str(error), names)
        for word, instead in (others or {}).items():
            words = words.replace(word, instead)
        error.args = (words, *error.args[1:])
        raise


def group_of(kind: type[Settings], value: Any, name: str) -> dict[str, Any]:
    """What was given of a group of settings: as an object, a dict, or not at all.

    Raises:
        ConfigError: If it is something else, or a setting is not possible.
    """
    if value is None:
        return {}
    if isinstance(value, kind):
        return value.given()
    if not isinstance(value, Mapping):
        remedy = f"give a memloc.{kind.__name__}, or a dict"
        raise ConfigError("it is not a group of settings", setting=name, value=value, remedy=remedy)
    try:
        return kind(**value).given()
    except ConfigError as error:
        raise error.below(name) from None


def whole_number(value: Any) -> int | None:
    """What Python or numpy takes for a whole number; None if it is something else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


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


def path_of(path: Any, name: str) -> Path:
    """Where something is, or is to be written.

    Raises:
        MemlocError: If it is neither a text nor a path.
    """
    if not isinstance(path, str | os.PathLike):
        raise MemlocError(f"{name} {path!r:.40} is not a path; give it as a text or a pathlib.Path")
    return Path(path)


def progress_of(progress: bool | Progress) -> Progress:
    """A table in a terminal and, with ipywidgets, in a notebook; otherwise lines; False: nothing.

    Raises:
        MemlocError: If it is something else.
    """
    from memloc.engine.progress import Progress
    from memloc.report.progress_view import make_progress

    if isinstance(progress, Progress):
        return progress
    if not isinstance(progress, bool):
        raise MemlocError(
            f"progress {progress!r:.40} is not possible",
            remedy="give True, False, or a memloc.engine.progress.Progress",
        )
    return make_progress() if progress else Progress()
