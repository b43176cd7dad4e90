"""One result as the page shows it: JSON data, in the order in which a reader asks."""

from __future__ import annotations

import math
import shlex
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from memloc.config import PARTS
from memloc.errors import MemlocError
from memloc.report.page_examples import (
    DETAILS,
    Detail,
    Noisy,
    Result,
    View,
    example_columns,
    naming,
    noisy_examples,
    read_result,
    read_undone,
    undone_data,
    view_examples,
    visible,
)
from memloc.report.reproduce import command_of
from memloc.results.folders import RunFolder, unit_of
from memloc.results.narrative import (
    acting,
    clean_lost,
    found_something,
    lead_technique,
    of_all,
    part_of,
    undone_by_all,
)
from memloc.results.summary import (
    summarise_checkpoints,
    summarise_explanation,
    summarise_techniques,
)
from memloc.techniques import installed
from memloc.text import percent

CURVES = (
    ("memorised", "noisy"),
    ("memorised", "clean"),
    ("memorised", "validation"),
    ("original", "validation"),
    ("frozen", "noisy"),
)
"""State and split of the learning curves."""


def result_data(run: RunFolder, detail: Detail = DETAILS[0]) -> dict[str, Any]:
    """All that the page shows of one result.

    Raises:
        ResultsError: If a file is damaged.
    """
    result = read_result(run)
    with naming(run.path / "summary.json"):
        data = _facts(run)
    noisy = noisy_examples(result, detail.examples)
    undone = read_undone(result, noisy)
    data["views"] = []
    for view in result.views:
        single = view_data(result, view)
        if len(noisy) and (detail.seeds or view is result.views[0]):
            single["ways"] = view_examples(result, view, noisy, detail.swapped)
            single["undone"] = {name: undone_data(one, view) for name, one in undone.items()}
        data["views"].append(single)
    data["examples"] = example_columns(result, noisy, detail.text) if len(noisy) else None
    data["made"] = _made(result)
    data["left_out"] = _left_out(result, noisy, detail)
    short: dict[str, Any] = rounded(data)
    return short


def _facts(run: RunFolder) -> dict[str, Any]:
    """Names, numbers and sentences from the summary; older summaries have fewer."""
    summary = run.summary
    words = [
        summary.get("interpretation"),
        (summary.get("agreement") or {}).get("words"),
        *((summary.get("explanation") or {}).get("words") or []),
    ]
    caveats = [*(summary.get("caveats") or []), *(summary.get("failures") or [])]
    return {
        "folder": run.path.absolute().name,
        "trained": run.trained,
        "task": visible(summary["task"]) if run.trained else None,
        "model": visible(summary["model"]),
        "layers": run.n_layers,
        "part": PARTS.get(unit_of(run.settings)),
        "classes": [visible(str(name)) for name in summary.get("classes") or []],
        "n_examples": summary.get("examples"),
        "n_noisy": summary.get("noisy_examples"),
        "words": [visible(str(sentence)) for sentence in words if sentence],
        "caveats": [visible(str(sentence)) for sentence in caveats],
        "figures": key_figures(summary),
    }


def view_data(result: Result, view: View) -> dict[str, Any]:
    """The charts of a view."""
    tables = result.of(view)
    data: dict[str, Any] = {"key": view.key, "label": view.label}
    with naming(result.path("history")):
        data["curves"] = _curves(result, view)
    wanted = ("layers", "windows", "examples")
    needed = {str(name): tables[name] for name in wanted if name in tables}
    if "layers" in needed:
        with naming(result.path(list(needed)[-1])):
            techniques = summarise_techniques(needed)
            data["techniques"] = [_technique(name, found) for name, found in techniques.items()]
            if "windows" in needed:
                data["maps"] = _maps(techniques, needed["windows"], _clean_accuracy(data["curves"]))
    data["explanation"] = _explanation(result, tables)
    if "checkpoints" in tables:
        with naming(result.path("checkpoints")):
            data["over_time"] = summarise_checkpoints(tables, result.run.n_layers)
    return data


def _technique(name: str, found: dict[str, Any]) -> dict[str, Any]:
    wanted = ("m_cog", "m_cog_per_seed", "m_cog_spread", "layer_weights", "layer_weights_spread")
    return {"name": visible(name), **{key: found[key] for key in wanted}}


def _clean_accuracy(curves: dict[str, Any] | None) -> float | None:
    """Of θ_M at its end, if its training is known."""
    for line in (curves or {}).get("lines", ()):
        if (line["state"], line["split"]) == ("memorised", "clean"):
            return float(line["accuracy"][-1])
    return None


def _maps(
    techniques: dict[str, Any], table: pd.DataFrame, clean_accuracy: float | None
) -> list[dict[str, Any]]:
    """Per technique what windows undo, and errors of the single ones beside those of θ_M."""
    maps = []
    by = ["size", "first_layer", "last_layer"]
    for name, found in techniques.items():
        if "full_error" not in found:
            continue
        windows = table[table["technique"] == name]
        means = windows.groupby(by)[["noisy_error", "clean_error"]].mean().reset_index()
        maps.append(
            {
                "technique": visible(name),
                "about": _about(name),
                "matrix": found["undone_by_size_and_layer"],
                "undone": found["undone"],
                "own_error": found["full_error"] - found["undone"],
                "own_clean_error": None if clean_accuracy is None else 1 - clean_accuracy,
                "windows": means[["first_layer", "last_layer", "noisy_error", "clean_error"]]
                .to_numpy(dtype=object)
                .tolist(),
            }
        )
    return maps


def _about(name: str) -> str | None:
    """What a technique does; None if it is of a package that is not here."""
    technique = installed(name)
    return None if technique is None else technique.about()


def _curves(result: Result, view: View) -> dict[str, Any] | None:
    """Accuracy per epoch: mean over the seeds, and the lowest and highest of them."""
    history, costs = result.tables.get("history"), result.tables.get("costs")
    if history is None or not len(history):
        return None
    lines = []
    for state, split in CURVES:
        rows = history[(history["state"] == state) & (history["split"] == split)]
        if state != "frozen":  # of which there is one for all seeds, with a seed of its own
            rows = rows[rows["seed"].isin(view.seeds)]
        if len(rows):
            by_epoch = rows.groupby("epoch")["accuracy"]
            ends = [by_epoch.min(), by_epoch.max()] if rows["seed"].nunique() > 1 else []
            lines.append(
                {
                    "state": state,
                    "split": split,
                    "epoch": by_epoch.mean().index.tolist(),
                    "accuracy": by_epoch.mean().tolist(),
                    "range": [end.tolist() for end in ends] or None,
                }
            )
    return {"lines": lines, "near_ceiling": _near_ceiling(costs, view), "end": _last(history)}


def _last(history: pd.DataFrame) -> int:
    return int(history["epoch"].max())


def _near_ceiling(costs: pd.DataFrame | None, view: View) -> list[int | None]:
    """The epoch of θ_M1 in each seed."""
    if costs is None or not {"job", "memorised_epoch"} <= set(costs):
        return []
    rows = costs[(costs["job"] == "memorised") & costs["seed"].isin(view.seeds)]
    return [None if math.isnan(epoch) else int(epoch) for epoch in rows["memorised_epoch"]]


def _explanation(result: Result, tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Centroids, events and single examples, if noisy examples were followed."""
    needed = ("events", "centroids", "crossings", "class_probes")
    chosen = {name: tables[name] for name in needed if name in tables}
    if "centroids" in chosen:
        none = pd.DataFrame({"label": [], "original_label": [], "used": []})
        chosen["pairs"] = tables.get("pairs", none)
    else:
        chosen.pop("crossings", None)
    if not chosen:
        return {}
    with naming(result.path(next(iter(chosen)))):
        found = summarise_explanation(chosen)
    return {key: value for key, value in found.items() if value}


def _made(result: Result) -> dict[str, Any]:
    run = result.run
    costs = result.tables.get("costs")
    return {
        "memloc": run.summary.get("memloc"),
        "versions": run.summary.get("versions") or {},
        "written": run.written,
        "seeds": [seed for view in result.views[-1:] for seed in view.seeds]
        if not run.trained
        else run.settings["seeds"],
        "settings": _flat(run.settings),
        "command": _command(run),
        "report": "result.report(…)"
        if run.settings.get("in_memory")
        else f"memloc report {shlex.quote(str(run.path))}",
        "costs": _costs(costs) if costs is not None else [],
    }


def _command(run: RunFolder) -> str | None:
    """The command that makes it again; None if an older memloc had other settings."""
    with suppress(MemlocError):
        return command_of(run.settings, run.trained, run.path)
    return None


def _flat(values: dict[str, Any], prefix: str = "") -> list[list[str]]:
    """Settings as pairs of a dotted name and a value in print."""
    rows: list[list[str]] = []
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            rows += _flat(value, f"{key}.")
        else:
            rows.append([visible(key), visible(_printed(value))])
    return rows


def _printed(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "–" if value is None or value == {} else str(value)


def _costs(costs: pd.DataFrame) -> list[dict[str, Any]]:
    """Per kind of job, over all seeds."""
    if "job" not in costs:
        return []
    rows = []
    for job, of_job in costs.groupby("job", sort=False):
        memory = of_job.get("peak_memory_bytes", pd.Series([np.nan])).max()
        rows.append(
            {
                "job": visible(str(job)),
                "times": len(of_job),
                "seconds": float(of_job["seconds"].sum()),
                "megabytes": None if math.isnan(memory) else round(memory / 2**20),
            }
        )
    return rows


def _left_out(result: Result, noisy: Noisy, detail: Detail) -> list[str]:
    """What is not on the page for its size, in sentences."""
    words = []
    total = len(noisy_examples(result, 2**62))
    if len(noisy) < total:
        some = f"Only the first {len(noisy):,}" if len(noisy) else "None"
        words.append(f"{some} of {total:,} noisy examples are on this page, to keep it small.")
    if len(noisy) and not detail.seeds and len(result.views) > 1:
        words.append("Single examples are shown for all seeds together, to keep the page small.")
    if len(noisy) and not detail.swapped and "trajectories" in result.tables:
        words.append(
            "Ways of single examples are shown without swapping only, to keep the page small."
        )
    return words


def key_figures(summary: dict[str, Any]) -> list[dict[str, str]]:
    """Label, value and meaning of what a reader asks first; only what is known."""
    figures = [*_training(summary), *_localisation(summary), *_movement(summary)]
    return [
        {"label": label, "value": value, "meaning": meaning}
        for label, value, meaning in figures
        if value is not None
    ]


Figure = tuple[str, str | None, str]


def _training(summary: dict[str, Any]) -> list[Figure]:
    training = summary.get("training") or {}
    noisy = summary.get("noisy_examples")
    validation, original = (
        training.get(key) for key in ("validation_accuracy", "original_validation_accuracy")
    )
    beside = (
        "" if original is None else f" A twin trained on the original labels has {original:.0%}."
    )
    scores = summary.get("scores") or {}
    return [
        (
            "memorised",
            percent(summary.get("memorised_share")),
            f"Share of the {noisy} flipped labels that the fine-tuned model gives. Near 100%: "
            "it has learned them by heart.",
        ),
        (
            "validation accuracy",
            percent(validation),
            "Share of unseen examples it gets right although some of its training labels were "
            f"wrong.{beside}",
        ),
        (
            "generalisation score",
            percent(scores.get("generalisation_score")),
            "Share of training examples whose label models that were not trained on them find "
            "more likely than by guessing.",
        ),
    ]


def _localisation(summary: dict[str, Any]) -> list[Figure]:
    techniques = summary["techniques"]
    if not techniques:
        return []
    name = lead_technique(summary)
    result, layers = techniques[name], summary["layers"]
    something = found_something(summary, result)
    centre = result["m_cog"] if something else None
    best = (result.get("strongest_single_layer") if something else None) or {}
    needed = result.get("layers_to_undo") if something else None
    does, part = acting(name, result), part_of(result)
    lost = clean_lost(summary, result)
    return [
        (
            "centre of gravity",
            None if centre is None else f"{centre:.2f} of {layers}",
            f"M-CoG by {name}: the mean layer, weighted by how much it matters. {_middle(layers)} "
            "would be the middle; lower means that lower layers matter more.",
        ),
        (
            "strongest single layer",
            f"layer {best['layer']}: {of_all(best['undoes'])}" if "undoes" in best else None,
            f"What {does} this layer alone undoes, of all that {does} every layer undoes.",
        ),
        (
            f"undone by all {part or 'layers'}",
            percent(undone_by_all(summary, result)) if part or not something else None,
            f"Share of the flipped labels that {does} every layer undoes; other shares are "
            "relative to it.",
        ),
        (
            "layers to undo 95%",
            f"{needed} of {layers}" if needed else None,
            f"The smallest number of adjacent layers with which {name} undoes nearly all "
            + (f"that {does} every layer undoes." if part else "memorisation."),
        ),
        (
            "clean labels lost",
            percent(lost, 1),
            f"Mean share of clean examples that {name} breaks. Near 0%: what it undoes is "
            "memorisation, not knowledge of the task.",
        ),
        (
            "clean labels wrong",
            percent(result.get("clean_error"), 1) if lost is None else None,
            f"Mean share of clean examples that are wrong after {name}, those included that were "
            "wrong before. Near 0%: what it undoes is memorisation, not knowledge of the task.",
        ),
    ]


def _movement(summary: dict[str, Any]) -> list[Figure]:
    events = ((summary.get("explanation") or {}).get("events") or {}).get("memorised") or {}
    crossing = (events.get("crossing") or {}).get("layer")
    return [
        (
            "crossing",
            None if crossing is None else f"layer {crossing:.1f}".removesuffix(".0"),
            "The layer after which flipped examples are on average nearer to their new class than "
            "to their old one.",
        )
    ]


def _middle(layers: int) -> str:
    return f"{(layers + 1) / 2:g}"


def rounded(value: Any, digits: int = 4) -> Any:
    """JSON data with short numbers; what is not finite is null."""
    if isinstance(value, dict):
        return {str(key): rounded(one, digits) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one, digits) for one in value]
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return None
        short = round(value, digits)
        return int(short) if short.is_integer() else short
    return value
