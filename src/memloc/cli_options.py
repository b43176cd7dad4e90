"""Options that several commands share, and how their values are read."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from memloc.config import Device, Dtype
from memloc.errors import MemlocError

DATA, MODEL, TRAINING = "Data", "Model", "Training"


def option(flag: str, help: str, panel: str | None = None) -> Any:
    """An option with its help text, under a heading of the help page."""
    return typer.Option(flag, help=help, rich_help_panel=panel)


Json = Annotated[bool, option("--json", "Print the result as JSON.")]
DeviceOption = Annotated[Device, option("--device", "Where to compute.")]
DtypeOption = Annotated[
    Dtype, option("--dtype", "Of matrix products; weights stay float32.", TRAINING)
]
Blocks = Annotated[
    str | None, option("--blocks", "Path of the layer stack, if it is ambiguous.", MODEL)
]
TrustCode = Annotated[
    bool, option("--trust-remote-code", "Run code that a hub model brings along.", MODEL)
]
TextColumn = Annotated[str | None, option("--text-column", "Column with the text.", DATA)]
PairColumn = Annotated[str | None, option("--pair-column", "Column with a second text.", DATA)]
LabelColumn = Annotated[str | None, option("--label-column", "Column with the label.", DATA)]
OriginalColumn = Annotated[
    str | None,
    option("--original-label-column", "Correct labels, if the noise is known.", DATA),
]
MaxTokens = Annotated[int | None, option("--max-tokens", "Longer texts are cut.", MODEL)]


def parse_seeds(text: str) -> tuple[int, ...]:
    """`1,2,3` as numbers.

    Raises:
        MemlocError: If it is something else.
    """
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise MemlocError(
            f"--seeds {text!r} is not a list of whole numbers such as 1,2,3"
        ) from None
    if len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) >= 2**32:
        raise MemlocError(f"--seeds {text!r} must be different numbers from 0 up, such as 1,2,3")
    return seeds


def parse_names(text: str) -> tuple[str, ...]:
    """`a,b` as names, without repeats."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise MemlocError("--methods is empty; name at least one technique, such as swapping")
    return names
