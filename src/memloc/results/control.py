"""The control benchmark: one in numbers and sentences, and many read back from disk."""

from __future__ import annotations

from typing import Any

import pandas as pd

import memloc
from memloc.analysis.control import score
from memloc.config import DEFAULT_TECHNIQUES, PARTS
from memloc.results.grid import records
from memloc.techniques import installed
from memloc.text import listed

WEAKER = ("gradients", "probing")
"""By these the paper compares models (Figure 2, right), as the others find nearly everything."""

NEARLY_ALWAYS = 0.9
HOW_OFTEN = ("nearly always", "more often than chance", "no more often than chance")


def summarise_control(about: dict[str, Any], tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Everything a reader asks first, as JSON data.

    `about` has held_back, auxiliary, seeds, learned_at and unit, from the settings.
    """
    layers, trainings = tables["layers"], tables["trainings"]
    scored = tables["accuracy"][~tables["accuracy"]["task"].isin(about["held_back"])]
    models = layers.drop_duplicates("model")[["model", "n_layers"]]
    techniques = list(dict.fromkeys(layers["technique"]))
    usual = [name for name in DEFAULT_TECHNIQUES if name in techniques] or techniques
    weaker = [name for name in WEAKER if name in techniques] or techniques
    cells = layers.drop_duplicates(["model", "task", "hidden", "seed"])
    summary: dict[str, Any] = {
        "memloc": memloc.__version__,
        "models": records(models),
        "tasks": list(dict.fromkeys(layers["task"])),
        "held_back": about["held_back"],
        "auxiliary": about["auxiliary"],
        "hidden": list(dict.fromkeys(cells["hidden"])),
        "seeds": about["seeds"],
        "control_models": len(cells),
        "chance": float(scored["chance"].mean()) if len(scored) else None,
        "by_technique": records(score(scored, "technique")),
        "by_task": {"techniques": usual, "scores": records(score(scored, "task", usual))},
        "by_model": {"techniques": weaker, "scores": records(score(scored, "model", weaker))},
        "trainings": _trainings(trainings, tables["attempts"]),
        "seconds_of_work": float(tables["costs"]["seconds"].sum()),
    }
    held_back = about["held_back"] or summary["tasks"]
    chosen = {
        name: table[table["task"].isin(held_back)]
        for name, table in tables.items()
        if "task" in table
    }
    for name in techniques:
        known = installed(name)
        summary |= {} if known is None else known.summarise_benchmark(chosen)
    summary["interpretation"] = _interpret(summary)
    summary["caveats"] = _caveats(summary, about)
    return summary


def _trainings(trainings: pd.DataFrame, attempts: pd.DataFrame) -> dict[str, Any]:
    """How well the main task was learned, and how often training had to be repeated."""
    main = trainings[trainings["state"] != "frozen"]
    cell = ["model", "task", "hidden", "seed", "state"]
    tried = attempts[attempts["state"] != "frozen"].groupby(cell).size()
    weak = main[~main["learned"].astype(bool)]
    return {
        "trained": len(main),
        "repeated": int((tried > 1).sum()),
        "lowest_accuracy": float(main["accuracy"].min()),
        "auxiliary_accuracy": float(trainings["auxiliary_accuracy"].mean()),
        "not_learned": records(weak[[*cell, "accuracy"]]),
    }


def _interpret(summary: dict[str, Any]) -> str:
    """Who finds the hidden layers."""
    found: dict[str, list[str]] = {how: [] for how in HOW_OFTEN}
    for row in summary["by_technique"]:
        name, low = row["technique"], row["low"] if row["low"] is not None else row["accuracy"]
        if row["k"] == 1 and not getattr(installed(name), "by_chance", False):
            rank = 0 if row["accuracy"] >= NEARLY_ALWAYS else 1 if low > row["chance"] else 2
            found[HOW_OFTEN[rank]].append(name)
    parts = [f"{listed(names)} {how}" for how, names in found.items() if names]
    if not parts:
        return ""
    first = next(names for names in found.values() if names)
    point = f"{listed(first)} point{'s' if len(first) == 1 else ''} to a hidden layer"
    text = "; ".join([parts[0].replace(listed(first), point, 1), *parts[1:]])
    return text[0].upper() + text[1:] + "."


def _caveats(summary: dict[str, Any], about: dict[str, Any]) -> list[str]:
    found = []
    weak = summary["trainings"]["not_learned"]
    if weak:
        lowest = min(weak, key=lambda row: row["accuracy"])
        found.append(
            f"{len(weak)} of {summary['trainings']['trained']} trainings did not get above "
            f"{about['learned_at']:g} accuracy on their labels (lowest: {lowest['task']}, "
            f"layers {lowest['hidden']}, {lowest['accuracy']:.3f}); what was not memorised cannot "
            "be found. Try more epochs or attempts."
        )
    part = PARTS.get(about["unit"])
    if part:
        found.append(
            f"memorisation was hidden in whole layers, but techniques were told to look at their "
            f"{part} alone."
        )
    if summary["control_models"] < 4:
        found.append("fewer than 4 control models: no intervals, and chance plays a large part.")
    return found
