"""The same name, colour and marker for a task, a technique or a model in every figure.

Tasks of one category share a hue, so that categories are told apart first and tasks by their marker
and shade. All colours were chosen from, or between, those of Okabe and Ito, which people with
colour-blindness can tell apart.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from memloc.data.load import named_tasks
from memloc.techniques import installed

OTHER = "other"
CATEGORIES = {
    "NLU": "NLU",
    "sentiment": "Sentiment",
    "hate speech": "Hate speech",
    "topic": "Topic classification",
    OTHER: "Other tasks",
}
"""Categories of tasks, in the paper's order, and as they are printed."""

MODEL_MARKERS = "osD^vPXhd*"
MODEL_COLOURS = ("#000000", "#56B4E9", "#D55E00", "#8A8A8A", "#009E73", "#CC79A7")
CLASS_A, CLASS_B, NOISY = "#0072B2", "#E69F00", "#000000"
"""New class, old class, and the noisy examples on their way between them."""
GREY = "#777777"


@dataclass(frozen=True)
class Look:
    """How something is drawn."""

    colour: str
    marker: str


LONGEST = 16
"""Letters of a name that every figure has room for."""
TASK_NAMES = {
    **{"wic": "WiC", "rte": "RTE", "mrpc": "MRPC", "cola": "CoLA", "boolq": "BoolQ"},
    **{"sst2": "SST-2", "sst5": "SST-5", "emotion": "Emotion", "implicithate": "ImplicitHate"},
    **{"stormfront": "Stormfront", "reuters": "Reuters", "trec": "TREC"},
}
MODEL_NAMES = {
    **{"bert-base-cased": "BERT", "opt-125m": "OPT", "gpt-neo-125m": "GPT-N"},
    **{"pythia-160m": "Pythia", "pythia-160m-deduped": "Pythia", "opt-1.3b": "OPT-1.3B"},
}
"""Short names of known models, as the paper has them and in its order."""

_KNOWN = {
    "wic": Look("#08306B", "o"),
    "rte": Look("#2171B5", "X"),
    "mrpc": Look("#4FA3D9", "s"),
    "cola": Look("#1D4E9E", "h"),
    "boolq": Look("#8CC4EA", "D"),
    "entailment": Look("#0B4A8F", "P"),
    "acceptability": Look("#56B4E9", "v"),
    "sst2": Look("#A63603", "d"),
    "sst5": Look("#E6550D", "^"),
    "emotion": Look("#F5A623", "p"),
    "reviews": Look("#D55E00", "<"),
    "implicithate": Look("#8E2A8B", "v"),
    "stormfront": Look("#D982B5", "H"),
    "reuters": Look("#00563F", "8"),
    "trec": Look("#10A37F", "*"),
    "questions": Look("#006D4F", "s"),
    "topics": Look("#4DBF94", "^"),
}
_TOL = (
    *("#332288", "#CC6677", "#44AA99", "#DDCC77", "#882255", "#88CCEE", "#117733", "#AA4499"),
    *("#999933", "#555555"),
)
"""The muted colours of Paul Tol, for what has no category."""
_FURTHER = [
    Look(colour, "oD^sv*PXdph<"[(place + turn) % 12])
    for turn in range(12)
    for place, colour in enumerate(_TOL)
]
"""Neighbours differ in colour and in marker."""
_FURTHER_TECHNIQUES = [Look(c, m) for m in "dp*8<>" for c in ("#7A5C00", "#332288", "#882255")]


@cache
def category(task: str) -> str:
    """The category of a task, as one of `CATEGORIES`."""
    known = named_tasks().get(task)
    return known.category if known is not None and known.category in CATEGORIES else OTHER


def task_order(tasks: Iterable[str]) -> list[str]:
    """By category and in the paper's order, then by name."""
    places = list(CATEGORIES)
    known = list(_KNOWN)

    def place(task: str) -> tuple[int, int, str]:
        rank = known.index(task) if task in _KNOWN else len(known)
        return places.index(category(task)), rank, task

    return sorted(set(tasks), key=place)


def task_looks(tasks: Iterable[str]) -> dict[str, Look]:
    """How each task is drawn; no two alike as long as there are looks left."""
    names = sorted(set(tasks))
    unknown = [task for task in names if task not in _KNOWN]
    return {task: _KNOWN[task] for task in names if task in _KNOWN} | _spread(unknown, _FURTHER)


def technique_looks(techniques: Iterable[str]) -> dict[str, Look]:
    """How each technique is drawn, also those of other packages."""
    found: dict[str, Look] = {}
    names = sorted(set(techniques))
    looks = _spread(names, _FURTHER_TECHNIQUES)
    for name in names:
        known = installed(name)
        if known is not None and known.colour is not None:
            found[name] = Look(known.colour, known.marker or looks[name].marker)
    return found | _spread([n for n in names if n not in found], _FURTHER_TECHNIQUES)


def model_looks(models: Iterable[str]) -> dict[str, Look]:
    """How each of the given models is drawn, in their order."""
    return {
        model: Look(
            MODEL_COLOURS[place % len(MODEL_COLOURS)], MODEL_MARKERS[place % len(MODEL_MARKERS)]
        )
        for place, model in enumerate(models)
    }


def _spread(names: list[str], looks: list[Look]) -> dict[str, Look]:
    """A look by name, so that it stays when other tasks come; the next one if it is taken."""
    found: dict[str, Look] = {}
    for name in names:
        start = zlib.crc32(name.encode()) % len(looks)
        order = [looks[(start + step) % len(looks)] for step in range(len(looks))]
        colours = {look.colour for look in found.values()}
        free = [look for look in order if look not in found.values()]
        new_colour = [look for look in free if look.colour not in colours]
        found[name] = [*new_colour, *free, *order][0]
    return found


def lighter(colour: str, share: float = 0.55) -> str:
    """A tint of a colour."""
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02X}" for part in parts)


def short_name(model: str) -> str | None:
    """The short name of a known model; None for others."""
    return MODEL_NAMES.get(model.lower())


def print_names(names: Iterable[str], known: dict[str, str], longest: int) -> dict[str, str]:
    """Short names, different for different things."""
    found: dict[str, str] = {}
    for name in names:
        short = known.get(name) or shorten(name, longest)
        number = 2
        while short in found.values():
            end = f"~{number}"
            short = shorten(name, longest - len(end)) + end
            number += 1
        found[name] = short
    return found


def shorten(name: str, longest: int) -> str:
    """Without what cannot be printed, and cut in the middle: ends tell names apart."""
    clean = " ".join("".join(c if c.isprintable() else " " for c in name).split()) or "?"
    if len(clean) > longest:
        tail = (longest - 1) // 2
        clean = f"{clean[: longest - 1 - tail]}…{clean[-tail:]}"
    # matplotlib leaves names that begin like this out of legends.
    return f"\u200a{clean}" if clean.startswith("_") else clean


def model_names(models: Iterable[str]) -> dict[str, str]:
    """The short name of a known model, or the name made short."""
    models = list(models)
    known = {model: short_name(model) or "" for model in models}
    return print_names(models, known, LONGEST)


def model_order(depths: dict[str, int]) -> list[str]:
    """Shallow models first, then the known ones in their order, then by name."""
    known = list(dict.fromkeys(MODEL_NAMES.values()))

    def place(model: str) -> tuple[int, int, str]:
        name = short_name(model)
        rank = known.index(name) if name in known else len(known)
        return depths[model], rank, model

    return sorted(depths, key=place)


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Parts of file names that every system can store, different for different things."""
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:50] or "x"
        unique, number = plain, 2
        while unique.lower() in {other.lower() for other in found.values()}:
            unique, number = f"{plain}-{number}", number + 1
        found[name] = unique
    return found
