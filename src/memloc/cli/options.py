"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from memloc.config import (
    Device,
    Dtype,
    Norm,
    Objective,
    RetrainedTail,
    TechniqueSettings,
    Unit,
)
from memloc.errors import MemlocError

DATA, MODEL, TRAINING, TECHNIQUES = "Data", "Model", "Training", "Techniques"
EXPLANATION = "Explanation"


def option(flag: str, help: str, panel: str | None = None, show_default: bool = True) -> Any:
    """An option with its help text, under a heading of the help page."""
    return typer.Option(flag, help=help, rich_help_panel=panel, show_default=show_default)


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

WindowSizes = Annotated[
    str | None,
    option("--window-sizes", "Sizes of the windows to change, such as 1-3,6 (default: all).",
           TECHNIQUES),
]  # fmt: skip
UnitOption = Annotated[
    Unit,
    option("--unit", "What of a layer to change: all, its attention, or the rest.", TECHNIQUES),
]
RetrainEpochs = Annotated[
    int, option("--retrain-epochs", "Passes over the clean data per window.", TECHNIQUES)
]
RetrainTail = Annotated[
    RetrainedTail,
    option("--retrain-tail", "What learns beside the window.", TECHNIQUES),
]
FrozenDropout = Annotated[
    bool, option("--frozen-dropout", "Dropout in frozen layers too: slower.", TECHNIQUES)
]
GradientObjective = Annotated[
    Objective, option("--gradient-objective", "What is differentiated.", TECHNIQUES)
]
GradientNorm = Annotated[Norm, option("--gradient-norm", "Norm per layer.", TECHNIQUES)]
KeepClean = Annotated[
    bool, option("--keep-clean", "Do not subtract the gradient of clean examples.", TECHNIQUES)
]
Undivided = Annotated[
    bool, option("--undivided", "Do not divide by the norm in the frozen model.", TECHNIQUES)
]
PerExample = Annotated[
    bool, option("--per-example", "Also gradient weights of every noisy example.", TECHNIQUES)
]
ProbeSeeds = Annotated[int, option("--probe-seeds", "Probes per layer.", TECHNIQUES)]
ProbeEpochs = Annotated[int, option("--probe-epochs", "Passes over the states.", TECHNIQUES)]
ShapleyError = Annotated[
    float, option("--shapley-error", "Standard error of Shapley values to stop at.", TECHNIQUES)
]
ShapleyOrders = Annotated[
    int, option("--shapley-orders", "Orders of the layers to draw at most.", TECHNIQUES)
]
Set = Annotated[
    list[str] | None,
    option(
        "--set", "NAME.KEY=VALUE: option of a technique from another package.", TECHNIQUES, False
    ),
]
CacheMemory = Annotated[
    str,
    option("--cache-memory", "States a process keeps in memory; more go to a file.", TECHNIQUES),
]
LowMemory = Annotated[
    bool,
    option("--low-memory", "Layers of θ_O stay in a file until needed; same results.", TECHNIQUES),
]

Explain = Annotated[
    bool | None,
    option(
        "--explain/--no-explain",
        "Follow noisy examples through the layers: centroids, class probes (default: if possible).",
        EXPLANATION,
        False,
    ),
]


def techniques_from(values: Mapping[str, Any], names: Sequence[str]) -> TechniqueSettings:
    """The techniques that were chosen, with their settings, from a command's arguments.

    Raises:
        MemlocError: If there are settings of a technique that was not chosen.
    """
    own: TechniqueSettings = {
        "retraining": {
            "epochs": values["retrain_epochs"],
            "tail": values["retrain_tail"],
            "frozen_dropout": values["frozen_dropout"],
        },
        "gradients": {
            "objective": values["gradient_objective"],
            "norm": values["gradient_norm"],
            "subtract_clean": not values["keep_clean"],
            "divide_by_frozen": not values["undivided"],
            "per_example": values["per_example"],
        },
        "probing": {"seeds": values["probe_seeds"], "epochs": values["probe_epochs"]},
        "shapley": {"standard_error": values["shapley_error"], "orders": values["shapley_orders"]},
    }
    further = values.get("options") or parse_set(values.get("set_option") or [])
    for name in further:
        if name not in names:
            raise MemlocError(f"--set {name!r} is not among the techniques: {', '.join(names)}")
    chosen = {name: {**own.get(name, {}), **further.get(name, {})} for name in names}
    if "probing" not in names:
        chosen["class_probes"] = own["probing"]
    return chosen


def parse_sizes(text: str | None) -> tuple[int, ...] | None:
    """`1-3,6` as numbers.

    Raises:
        MemlocError: If it is something else.
    """
    if text is None:
        return None
    sizes: set[int] = set()
    for part in text.split(","):
        ends = part.strip().split("-")
        if not 1 <= len(ends) <= 2 or not all(end.isdecimal() and len(end) < 6 for end in ends):
            raise MemlocError(f"--window-sizes {text!r} is not a list of sizes such as 1-3,6")
        low, high = int(ends[0]), int(ends[-1])
        if not 1 <= low <= high:
            raise MemlocError(
                f"--window-sizes {text!r} is out of range; sizes are 1 or more, such as 1-3,6"
            )
        sizes |= set(range(low, high + 1))
    return tuple(sorted(sizes))


def parse_set(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`name.key=value` by name and key; a value is JSON, or else a text.

    Raises:
        MemlocError: If it is something else.
    """
    options: dict[str, dict[str, Any]] = {}
    for text in texts:
        where, equals, value = text.partition("=")
        name, dot, key = where.strip().rpartition(".")
        if not (equals and dot and name and key):
            raise MemlocError(f"--set {text!r} is not of the form NAME.KEY=VALUE")
        of_technique = options.setdefault(name, {})
        try:
            of_technique[key] = json.loads(value)
        except json.JSONDecodeError:
            of_technique[key] = value
    return options


def parse_bytes(text: str, flag: str = "--cache-memory") -> int:
    """`500MB` or `2GB` as bytes.

    Raises:
        MemlocError: If it is something else.
    """
    units = {"KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
    number, unit = text.strip()[:-2].strip(), text.strip()[-2:].upper()
    try:
        size = float(number) * units[unit]
        if not 0 <= size < 2**60:
            raise ValueError(text)
    except (KeyError, ValueError):
        raise MemlocError(f"{flag} {text!r} is not a size such as 500MB or 2GB") from None
    return int(size)


def check_workers(workers: int | None) -> None:
    """At least one.

    Raises:
        MemlocError: If there are fewer.
    """
    if workers is not None and workers < 1:
        raise MemlocError(f"--workers {workers} is not possible; give 1 or more")


def parse_checkpoints(text: str | None) -> int | str | None:
    """`5` as a number; words as they are, since the settings know which are possible."""
    return int(text) if text is not None and text.strip().isdecimal() else text


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
        raise MemlocError(
            f"--seeds {text!r} must be different numbers from 0 to {2**32 - 1}, such as 1,2,3"
        )
    return seeds


def parse_names(text: str) -> tuple[str, ...]:
    """`a,b` as names of techniques, without repeats."""
    return parse_list("--methods", text, "swapping") or ()


def parse_list(flag: str, text: str | None, example: str) -> tuple[str, ...] | None:
    """`a,b` as names, without repeats; None if the option was not given.

    Raises:
        MemlocError: If it is empty.
    """
    if text is None:
        return None
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise MemlocError(f"{flag} is empty; name at least one, such as {example}")
    return names
