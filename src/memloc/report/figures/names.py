"""Tasks, techniques and models as they are called in figures, tables and file names."""

from __future__ import annotations

import re
from collections.abc import Iterable

TASK_NAMES = {
    "wic": "WiC",
    "rte": "RTE",
    "mrpc": "MRPC",
    "cola": "CoLA",
    "boolq": "BoolQ",
    "sst2": "SST-2",
    "sst5": "SST-5",
    "emotion": "Emotion",
    "implicithate": "ImplicitHate",
    "stormfront": "Stormfront",
    "reuters": "Reuters",
    "trec": "TREC",
}
LONGEST = 16
"""Letters of a name that every figure has room for."""
MODEL_NAMES = {
    "bert-base-cased": "BERT",
    "opt-125m": "OPT",
    "gpt-neo-125m": "GPT-N",
    "pythia-160m": "Pythia",
    "pythia-160m-deduped": "Pythia",
    "opt-1.3b": "OPT-1.3B",
}
"""Short names of known models, as the paper has them and in its order."""


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
