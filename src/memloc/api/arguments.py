"""Arguments of functions where the command line has options: how they are read and named."""

from __future__ import annotations

import operator
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
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

COLUMNS = {f"data.{role}_column": role for role in ("text", "pair", "label", "original_label")}
"""Settings that are arguments of their own, except in `memloc.run`."""


@contextmanager
def as_arguments(
    names: Mapping[str, str] | None = None, own_files: Collection[str] = ()
) -> Iterator[None]:
    """Errors inside name arguments, where the command line has options.

    Args:
        names: Arguments that are not called like their setting.
        own_files: Files that memloc made, of which the user knows nothing.
    """
    try:
        yield
    except MemlocError as error:
        if error.setting is not None:
            own = {**_ARGUMENTS, **(names or {})}
            error.setting = own.get(error.setting, error.setting.removeprefix("engine."))
            error.value = MISSING if str(error.value) in own_files else error.value
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
