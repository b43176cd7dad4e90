"""One look (name, colour, marker) for a task, a technique or a model, the same in every figure.

Tasks of one category share a hue, so that categories are told apart first and tasks by their marker
and shade. All colours were chosen from, or between, those of Okabe and Ito, which people with
colour-blindness can tell apart.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, count

from memloc.data.load import named_tasks
from memloc.techniques import installed
from memloc.text import one_line, shortened

OTHER = "other"
CATEGORIES = {
    "NLU": "NLU",
    "sentiment": "Sentiment",
    "hate speech": "Hate speech",
    "topic": "Topic classification",
    OTHER: "Other tasks",
}
"""Categories of tasks, in the paper's order, and as they are printed."""

CLASS_A, CLASS_B, NOISY = "#0072B2", "#E69F00", "#000000"
"""New class, old class, and the noisy examples on their way between them."""
GREY = "#777777"
LONGEST = 16
"""Letters of a name that every figure has room for."""


@dataclass(frozen=True)
class Look:
    """How something is called and drawn."""

    name: str
    colour: str
    marker: str


TASKS = {
    "wic": Look("WiC", "#08306B", "o"),
    "rte": Look("RTE", "#2171B5", "X"),
    "mrpc": Look("MRPC", "#4FA3D9", "s"),
    "cola": Look("CoLA", "#1D4E9E", "h"),
    "boolq": Look("BoolQ", "#8CC4EA", "D"),
    "entailment": Look("entailment", "#0B4A8F", "P"),
    "acceptability": Look("acceptability", "#56B4E9", "v"),
    "sst2": Look("SST-2", "#A63603", "d"),
    "sst5": Look("SST-5", "#E6550D", "^"),
    "emotion": Look("Emotion", "#F5A623", "p"),
    "reviews": Look("reviews", "#D55E00", "<"),
    "implicithate": Look("ImplicitHate", "#8E2A8B", "v"),
    "stormfront": Look("Stormfront", "#D982B5", "H"),
    "reuters": Look("Reuters", "#00563F", "8"),
    "trec": Look("TREC", "#10A37F", "*"),
    "questions": Look("questions", "#006D4F", "s"),
    "topics": Look("topics", "#4DBF94", "^"),
}
"""Known tasks, in the order in which they are shown."""
MODELS = {
    **{"bert-base-cased": "BERT", "opt-125m": "OPT", "gpt-neo-125m": "GPT-N"},
    **{"pythia-160m": "Pythia", "pythia-160m-deduped": "Pythia", "opt-1.3b": "OPT-1.3B"},
}
"""Short names of known models, as the paper has them and in its order."""
MODEL_COLOURS = ("#000000", "#56B4E9", "#D55E00", "#8A8A8A", "#009E73", "#CC79A7")
MODEL_MARKERS = "osD^vPXhd*"
_TOL = (
    *("#332288", "#CC6677", "#44AA99", "#DDCC77", "#882255", "#88CCEE", "#117733", "#AA4499"),
    *("#999933", "#555555"),
)
"""The muted colours of Paul Tol, for what has no colour of its own."""
_FURTHER = [
    (colour, "oD^sv*PXdph<"[(place + turn) % 12])
    for turn in range(12)
    for place, colour in enumerate(_TOL)
]
"""Neighbours differ in colour and in marker."""


@cache
def category(task: str) -> str:
    """The category of a task, as one of `CATEGORIES`."""
    known = named_tasks().get(task)
    return known.category if known is not None and known.category in CATEGORIES else OTHER


def short_name(model: str) -> str | None:
    """The short name of a known model; None for others."""
    return MODELS.get(model.lower())


def task_looks(tasks: Iterable[str]) -> dict[str, Look]:
    """By category and in the paper's order, then by name."""
    categories, known = list(CATEGORIES), list(TASKS)

    def place(task: str) -> tuple[int, int, str]:
        rank = known.index(task) if task in TASKS else len(known)
        return categories.index(category(task)), rank, task

    names = sorted(set(tasks), key=place)
    further = _further(task for task in names if task not in TASKS)
    return _told_apart({task: TASKS.get(task) or further[task] for task in names})


def technique_looks(techniques: Iterable[str]) -> dict[str, Look]:
    """In the given order, also those of other packages."""
    names = list(dict.fromkeys(techniques))
    found = _further(names)
    for name in names:
        known = installed(name)
        if known is not None and known.colour is not None:
            marker = known.marker or found[name].marker
            found[name] = replace(found[name], colour=known.colour, marker=marker)
    return _told_apart({name: found[name] for name in names})


def model_looks(depths: Mapping[str, int]) -> dict[str, Look]:
    """Shallow models first, then the known ones in their order, then by name."""
    known = list(dict.fromkeys(MODELS.values()))

    def place(model: str) -> tuple[int, int, str]:
        name = short_name(model)
        return depths[model], known.index(name) if name in known else len(known), model

    looks = {
        model: Look(
            short_name(model) or print_name(model),
            MODEL_COLOURS[number % len(MODEL_COLOURS)],
            MODEL_MARKERS[number % len(MODEL_MARKERS)],
        )
        for number, model in enumerate(sorted(depths, key=place))
    }
    return _told_apart(looks)


def only(looks: Mapping[str, Look], names: Iterable[str]) -> dict[str, Look]:
    """The looks of these names, in their order."""
    wanted = set(names)
    return {name: look for name, look in looks.items() if name in wanted}


def print_name(name: str) -> str:
    """Short and printable; matplotlib leaves names that begin with _ out of legends."""
    return shortened(one_line(name).lstrip("_") or "?", LONGEST)


def _told_apart(looks: Mapping[str, Look]) -> dict[str, Look]:
    """With another name, or a number, where two names are the same in print."""
    found: dict[str, Look] = {}
    for name, look in looks.items():
        taken = {one.name for one in found.values()}
        numbered = (f"{shortened(print_name(name), LONGEST - 3)} {n}" for n in count(2))
        names = chain((look.name, print_name(name)), numbered)
        found[name] = replace(look, name=next(one for one in names if one not in taken))
    return found


def _further(names: Iterable[str]) -> dict[str, Look]:
    """A look by name, so that it stays when others come; the next one if it is taken."""
    found: dict[str, int] = {}
    for name in sorted(names):
        place = zlib.crc32(name.encode()) % len(_FURTHER)
        while place in found.values() and len(found) < len(_FURTHER):
            place = (place + 1) % len(_FURTHER)
        found[name] = place
    return {name: Look(print_name(name), *_FURTHER[place]) for name, place in found.items()}


def lighter(colour: str, share: float = 0.55) -> str:
    """A tint of a colour."""
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02X}" for part in parts)
