"""Memorisation over training time: in numbers, in words, and in a terminal of 80 columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memloc.analysis.over_time import MOVED, WEIGHTED, movement
from memloc.analysis.windows import ENOUGH
from memloc.text import listed

MOST_ROWS = 12
SHARES = ("memorised", "in_layers", "clean_accuracy", "validation_accuracy", "clean_error")
CENTRES = {"swapping": "swapping_m_cog", "probing": "probing_m_cog", "centroids": "crossing"}
"""The line through the layers that goes with a technique; of centroids, where examples cross."""


def summarise_checkpoints(tables: dict[str, pd.DataFrame], n_layers: int) -> dict[str, Any] | None:
    """What was found at the checkpoints, averaged over seeds; None if there are none."""
    table = tables.get("checkpoints")
    if table is None or not len(table):
        return None
    epochs = sorted(table["epoch"].unique().tolist())
    layers = tables.get("checkpoint_layers", pd.DataFrame())
    found = {
        "enough": ENOUGH,
        "epochs": [_epoch(rows) for _, rows in table.groupby("epoch", sort=True)],
        "techniques": _techniques(table, layers, epochs) if len(layers) else [],
        "starts": _starts(table, epochs),
        "movement": {name: _movement(table, name) for name in WEIGHTED},
    }
    found["words"] = over_time_words(found, n_layers)
    return found


def _epoch(rows: pd.DataFrame) -> dict[str, Any]:
    enough = rows["enough"].astype(bool)
    return {
        "epoch": int(rows["epoch"].iloc[0]),
        **{name: _mean(rows[name]) for name in SHARES},
        "seeds": len(rows),
        "seeds_with_enough": int(enough.sum()),
        **{name: _mean(rows[column]) for name, column in CENTRES.items()},
    }


def _techniques(
    table: pd.DataFrame, layers: pd.DataFrame, epochs: list[int]
) -> list[dict[str, Any]]:
    """Per technique: values [epoch][layer], and its line."""
    found = []
    for (technique, measure), rows in layers.groupby(["technique", "measure"], sort=False):
        means = rows.groupby(["epoch", "layer"])["value"].mean().unstack("layer").reindex(epochs)
        centres = table.groupby("epoch")[CENTRES[str(technique)]]
        found.append(
            {
                "technique": str(technique),
                "measure": str(measure),
                "values": [[_number(v) for v in row] for row in means.to_numpy()],
                "centres": [_mean(centres.get_group(epoch)) for epoch in epochs],
            }
        )
    return found


def _starts(table: pd.DataFrame, epochs: list[int]) -> list[dict[str, Any]]:
    """By seed: the first checkpoint with enough to localise, and the one before it."""
    found = []
    for seed, rows in table.groupby("seed", sort=False):
        first = rows.loc[rows["enough"].astype(bool), "epoch"].min()
        known = not pd.isna(first)
        before = [epoch for epoch in epochs if known and epoch < first]
        found.append(
            {
                "seed": int(str(seed)),
                "epoch": int(first) if known else None,
                "before": before[-1] if before else None,
            }
        )
    return found


def _movement(table: pd.DataFrame, technique: str) -> dict[str, Any] | None:
    """From the first centre of gravity to the last, over the seeds that have both."""
    by_seed = movement(table, technique)
    if not by_seed:
        return None
    shifts = [end - start for _, start, end in by_seed.values()]
    return {
        "seeds": list(by_seed),
        "first_epochs": [epoch for epoch, _, _ in by_seed.values()],
        "from": float(np.mean([start for _, start, _ in by_seed.values()])),
        "to": float(np.mean([end for _, _, end in by_seed.values()])),
        "shift": float(np.mean(shifts)),
        "shift_per_seed": shifts,
    }


def over_time_words(found: dict[str, Any], n_layers: int) -> list[str]:
    """Plain sentences: when memorisation starts, and whether it moves."""
    end = found["epochs"][-1]["epoch"]
    known = [start for start in found["starts"] if start["epoch"] is not None]
    if not known:
        return [
            f"At no checkpoint are {ENOUGH:.0%} of the flipped labels stored in the layers, so it "
            "cannot be said when memorisation starts, nor where."
        ]
    return [
        _start_words(known, len(found["starts"]), end),
        *(
            _movement_words(name, moved, n_layers)
            for name, moved in found["movement"].items()
            if moved is not None
        ),
    ]


def _start_words(known: list[dict[str, Any]], seeds: int, end: int) -> str:
    latest = max(start["epoch"] for start in known)
    before = [start["before"] for start in known]
    missing = "" if len(known) == seeds else f" (in {len(known)} of {seeds} seeds)"
    if None in before:
        when = "is there at the first checkpoint already" if len({*before}) == 1 else "starts"
        return f"Memorisation {when}, by epoch {latest} of {end}{missing}."
    return f"Memorisation starts between epochs {min(before)} and {latest} of {end}{missing}."


def _movement_words(name: str, moved: dict[str, Any], n_layers: int) -> str:
    firsts = sorted(set(moved["first_epochs"]))
    epoch = f"epoch{'s' if len(firsts) > 1 else ''} {listed([str(first) for first in firsts])}"
    centres = f"{moved['from']:.2f} at {epoch} and {moved['to']:.2f} at the end"
    shift, shifts = moved["shift"], moved["shift_per_seed"]
    begin = f"By {name}, its centre of gravity is {centres}"
    if abs(shift) < MOVED * n_layers:
        return f"{begin}: it stays (a shift of {shift:+.2f} of {n_layers} layers)."
    way = "up" if shift > 0 else "down"
    same = sum((one > 0) == (shift > 0) for one in shifts)
    how_sure = ""
    if len(shifts) > 1:
        how_sure = " in all seeds" if same == len(shifts) else f" in {same} of {len(shifts)} seeds"
    return f"{begin}: it moves {way} by {abs(shift):.2f} of {n_layers} layers{how_sure}."


def show_over_time(summary: dict[str, Any], console: Console) -> None:
    """Print what was found at the checkpoints, if there are any."""
    found = summary.get("over_time")
    if not found:
        return
    console.print(Text("\nWhen? Memorisation over training time", style="bold cyan"))
    console.print(Padding(checkpoint_rows(found["epochs"]), (0, 0, 0, 2), expand=False))


def checkpoint_rows(epochs: list[dict[str, Any]]) -> Table:
    """One line per checkpoint; of many, evenly spread ones with the first and the last."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    heads = ("\nepoch", "flipped\nlabels", "in the\nlayers", "clean\nlabels", "valida-\ntion")
    centres = ("M-CoG\nswapping", "M-CoG\nprobing", "crossing\n(layer)")
    for head in (*heads, *centres):
        table.add_column(head, justify="right", no_wrap=True)
    places = np.linspace(0, len(epochs) - 1, min(MOST_ROWS, len(epochs))).round().astype(int)
    for place in np.unique(places):
        one = epochs[int(place)]
        shares = ("memorised", "in_layers", "clean_accuracy", "validation_accuracy")
        missing = "-" if one["seeds_with_enough"] else "not yet"
        table.add_row(
            str(one["epoch"]),
            *("-" if one[name] is None else f"{one[name]:.0%}" for name in shares),
            *(missing if one[name] is None else f"{one[name]:.2f}" for name in WEIGHTED),
            "-" if one["centroids"] is None else f"{one['centroids']:.1f}".removesuffix(".0"),
        )
    return table


def _mean(values: pd.Series) -> float | None:
    known = values.dropna().astype(float)
    return _number(known.mean()) if len(known) else None


def _number(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
