"""Errors a user can do something about, as data.

An error says what is wrong, and, where it is about a setting, which one and what value it had. The
front ends spell the setting their own way: `--epochs` on the command line, `training.epochs` in a
YAML file or in Python. Problem and remedy are plain words, so no code ever has to read a message.

    raise DataError("there is no such file", setting="data.task", value=path, remedy="check it")
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any, Self

from pydantic_core import PydanticUndefined

MISSING = PydanticUndefined
"""No value was given; `None` is a value."""
Spelling = Callable[[str], str]
"""How a front end writes a setting, given its dotted path such as `training.epochs`."""


class MemlocError(Exception):
    """Something the user gave cannot be used as it is.

    Args:
        problem: What is wrong, in plain words. Without a setting, a sentence of its own.
        setting: Dotted path of the setting that is wrong, such as `training.epochs`.
        value: What the setting was.
        remedy: What to do about it.

    `str(error)` is one sentence; `error.spelled(how)` is the same in the words of a front end:

        {setting} {value} is not possible: {problem}; {remedy}
    """

    setting: str | None
    value: Any
    remedy: str | None

    def __init__(
        self,
        problem: str,
        *,
        setting: str | None = None,
        value: Any = MISSING,
        remedy: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.setting, self.value, self.remedy = setting, value, remedy

    @property
    def problem(self) -> str:
        """What is wrong, in plain words."""
        return str(self.args[0])

    def spelled(self, how: Spelling) -> str:
        """The error as one sentence, with the setting as a front end writes it."""
        sentence = self.problem
        if self.setting is not None:
            where = how(self.setting)
            if self.value is MISSING:
                sentence = f"{where}: {sentence}"
            else:
                sentence = f"{where} {show_value(self.value)} is not possible: {sentence}"
        return sentence if self.remedy is None else f"{sentence}; {self.remedy}"

    def __str__(self) -> str:
        """The error as one sentence."""
        return self.spelled(str)

    def below(self, path: str) -> Self:
        """The same error, of a setting that lies deeper: `epochs` below `training`."""
        if self.setting is not None:
            self.setting = f"{path}.{self.setting}"
        return self


class ConfigError(MemlocError):
    """A setting has a value that makes no sense."""


class DataError(MemlocError):
    """A data set is missing, malformed or unsuitable."""


class ModelError(MemlocError):
    """A model cannot be loaded or its layers cannot be told apart."""


class StoreError(MemlocError):
    """The store cannot be written, or holds something damaged."""


class ClusterError(MemlocError):
    """A cluster is not there, or cannot be used as it is."""


def cannot_write(path: object, error: Exception) -> StoreError:
    """What to say if a disk is full, or a folder is not ours."""
    reason = getattr(error, "strerror", None) or error
    return StoreError(
        f"cannot write to {str(path)!r}: {reason}",
        remedy="free some space or choose another folder for the results",
    )


MALFORMED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What reading data of another form than expected may end with."""


def show_value(value: Any) -> str:
    """A value in a sentence: short, and a text in quotes."""
    words = repr(value) if isinstance(value, str) else str(value)
    return words if len(words) <= 60 else f"{words[:57]}..."


MOST_NAMES = 24
"""More options are not listed."""


def nearest(wrong: Any, options: Iterable[str]) -> str | None:
    """A remedy for a wrong name: the option that is nearest to it, or else all options."""
    names = [str(option) for option in options]
    lowered = {name.lower(): name for name in names}
    near = difflib.get_close_matches(str(wrong).lower(), list(lowered), n=1, cutoff=0.6)
    if near:
        return f"did you mean {lowered[near[0]]!r}?"
    return f"choose one of: {', '.join(names)}" if 0 < len(names) <= MOST_NAMES else None
