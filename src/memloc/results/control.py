"""The control benchmark: one in numbers and sentences, and many read back from disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

import memloc
from memloc.analysis.control import score, score_choices
from memloc.config import DEFAULT_TECHNIQUES, PARTS
from memloc.results.folders import ControlFolder, ResultsError
from memloc.results.grid import records
from memloc.tables import CELL
from memloc.techniques import installed
from memloc.text import listed

WEAKER = ("gradients", "probing")
"""By these the paper compares models (Figure 2, right), as the others find nearly everything."""


def summarise_control(about: dict[str, Any], tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Everything a reader asks first, as JSON data.

    Args:
        about: held_back, auxiliary, seeds, learned_at and unit, from the settings.
        tables: What was found.
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
        "gradient_choices": _choices(about["held_back"], tables),
        "trainings": _trainings(trainings, tables["attempts"]),
        "seconds_of_work": float(tables["costs"]["seconds"].sum()),
    }
    summary["interpretation"] = _interpret(summary)
    summary["caveats"] = _caveats(summary, about)
    return summary


def _choices(held_back: list[str], tables: dict[str, pd.DataFrame]) -> list[dict[str, Any]]:
    choices = tables.get("gradient_choices")
    if choices is None:
        return []
    if held_back:
        choices = choices[choices["task"].isin(held_back)]
    return records(score_choices(choices))


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
    first = {
        row["technique"]: row
        for row in summary["by_technique"]
        if row["k"] == 1 and not getattr(installed(row["technique"]), "by_chance", False)
    }
    sure = [name for name, row in first.items() if row["accuracy"] >= 0.9]
    better = [n for n, row in first.items() if n not in sure and _beats_chance(row)]
    others = [name for name in first if name not in sure and name not in better]
    found = {
        "nearly always": sure,
        "more often than chance": better,
        "no more often than chance": others,
    }
    parts = [(names, how) for how, names in found.items() if names]
    if not parts:
        return ""
    names, how = parts[0]
    sentences = [f"{listed(names)} point{_s(names)} to a hidden layer {how}"]
    sentences += [f"{listed(names)} {how}" for names, how in parts[1:]]
    text = "; ".join(sentences)
    return text[0].upper() + text[1:] + "."


def _beats_chance(row: dict[str, Any]) -> bool:
    low = row["low"] if row["low"] is not None else row["accuracy"]
    return bool(low > row["chance"])


def _s(names: Sequence[str]) -> str:
    return "s" if len(names) == 1 else ""


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
            f"{part} alone (--unit {about['unit']})."
        )
    if summary["control_models"] < 4:
        found.append("fewer than 4 control models: no intervals, and chance plays a large part.")
    return found


KEYS = {
    "accuracy": ("technique", "k"),
    "layers": ("technique", "layer"),
    "gradient_choices": ("norm", "subtract_clean", "divide_by_frozen", "k"),
    "gradients": ("state", "gradient", "kind", "layer"),
}
"""Per table, the columns that say what a row is about, beside those of the cell."""
VALUES = {
    "accuracy": ("accuracy", "chance"),
    "layers": ("weight",),
    "gradient_choices": ("accuracy",),
    "gradients": ("norm",),
}
OPTIONAL = ("gradient_choices", "gradients")
"""There only if gradients were among the techniques."""


@dataclass(frozen=True)
class ControlResults:
    """All control benchmarks of a folder together.

    Attributes:
        accuracy: See `memloc.analysis.control.accuracy_table`.
        layers: Layer weights.
        gradient_choices: See `memloc.analysis.control.gradient_choices`; perhaps empty.
        gradients: Norms of gradients; perhaps empty.
    """

    accuracy: pd.DataFrame
    layers: pd.DataFrame
    gradient_choices: pd.DataFrame
    gradients: pd.DataFrame


def read_controls(folders: Sequence[ControlFolder]) -> ControlResults | None:
    """Read them, None if there are none; what was computed twice counts once, as the newest has it.

    Those of parts of layers are passed over: their scores are not of the same techniques.

    Raises:
        ResultsError: If a table is damaged or missing.
    """
    folders = [folder for folder in folders if folder.whole_layers]
    if not folders:
        return None
    newest_first = sorted(folders, key=lambda folder: folder.written, reverse=True)
    tables = {}
    for name, names in KEYS.items():
        joined = pd.concat([_table(folder, name) for folder in newest_first], ignore_index=True)
        tables[name] = joined.drop_duplicates([*CELL, *names], ignore_index=True)
    return ControlResults(**tables)


def _table(folder: ControlFolder, name: str) -> pd.DataFrame:
    columns = (*CELL, *KEYS[name], *VALUES[name])
    table = folder.table(name, columns)
    if table is None and name in OPTIONAL:
        table = pd.DataFrame(columns=list(columns)).astype(folder.dtypes(name, columns))
    if table is None:
        raise ResultsError(
            f"'{folder.path / name}.parquet' is missing; move its folder away, or compute it again "
            "with `memloc control`"
        )
    # Tasks that were held back chose the post-processing of gradients, so they do not score it.
    held_back = folder.settings["control"].get("held_back") or []
    if name == "accuracy":
        return table[~table["task"].isin(held_back)]
    if name == "gradient_choices" and held_back:
        return table[table["task"].isin(held_back)]
    return table
