"""Errors a user can do something about.

Every message names the bad value, then the remedy, in one sentence. The command line prints it and
exits with code 2; nothing else in memloc catches these.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MemlocError(Exception):
    """Something the user gave cannot be used as it is."""


class DataError(MemlocError):
    """A data set is missing, malformed or unsuitable."""


class ModelError(MemlocError):
    """A model cannot be loaded or its layers cannot be told apart."""


class StoreError(MemlocError):
    """The store cannot be written, or holds something damaged."""


class ClusterError(MemlocError):
    """A cluster is not there, or cannot be used as it is."""


MALFORMED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What reading data of another form than expected may end with."""


def suggest(wrong: str, options: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the nearest option, or a list of all options."""
    names = [str(option) for option in options]
    lowered = {name.lower(): name for name in names}
    near = difflib.get_close_matches(wrong.lower(), list(lowered), n=1, cutoff=0.6)
    if near:
        return f"; did you mean {lowered[near[0]]!r}?"
    return f"; choose one of: {', '.join(names)}" if names else ""
