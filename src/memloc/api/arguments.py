"""Arguments of functions where the command line has options: how they are read and spoken of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memloc.cli_options import parse_bytes, parse_names, parse_seeds, parse_sizes
from memloc.errors import MemlocError

if TYPE_CHECKING:
    from memloc.execution.progress import Progress

_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])")
_SWITCHES = {
    **{name: f"{name}=True" for name in ("undivided", "binarise", "generalisation")},
    **{"no_explain": "explain=False", "set": "options", "seed": "seed"},
}


def in_words(text: str) -> str:
    """A sentence that names options (`--batch-size`) with the arguments they are (`batch_size`)."""

    def argument(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        return _SWITCHES.get(name, name)

    return _OPTION.sub(argument, text)


@contextmanager
def spoken(others: Mapping[str, str] | None = None) -> Iterator[None]:
    """Errors inside name arguments, not options.

    Args:
        others: Further words and what to say instead; looked at only when there is an error.
    """
    try:
        yield
    except MemlocError as error:
        words = in_words(str(error))
        for word, instead in (others or {}).items():
            words = words.replace(word, instead)
        error.args = (words, *error.args[1:])
        raise


def names_of(methods: str | Sequence[str]) -> tuple[str, ...]:
    """Techniques: names, or one text with commas."""
    return parse_names(methods if isinstance(methods, str) else ",".join(map(str, methods)))


def seeds_of(seeds: int | str | Sequence[int]) -> tuple[int, ...]:
    """Model seeds: one, several, or one text with commas."""
    if isinstance(seeds, int):
        return parse_seeds(str(seeds))
    return parse_seeds(seeds if isinstance(seeds, str) else ",".join(map(str, seeds)))


def sizes_of(sizes: str | Sequence[int] | None) -> tuple[int, ...] | None:
    """Window sizes: numbers, or a text such as 1-3,6."""
    return parse_sizes(sizes if sizes is None or isinstance(sizes, str) else _listed(sizes))


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def bytes_of(memory: str | int) -> int:
    """A number of bytes, or a text such as 2GB."""
    return parse_bytes(memory if isinstance(memory, str) else f"{memory / 2**10}KB")


def check_seed(seed: int) -> None:
    """A number that generators take.

    Raises:
        MemlocError: If it is something else.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise MemlocError(
            f"seed {seed!r} is not possible; give a whole number from 0 to {2**32 - 1}"
        )


def progress_of(progress: bool | Progress) -> Progress:
    """Bars in a terminal and, with ipywidgets, in a notebook; otherwise lines; False: nothing."""
    from rich.console import Console

    from memloc.execution.progress import Silent, TerminalProgress, make_progress

    if not isinstance(progress, bool):
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
