"""Result folders as `memloc run` leaves them, written by hand: small, and with known answers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.control import accuracy_table
from memloc.config import Data, Model, Run, Training
from memloc.results.grid import VALIDATION_SCORES
from memloc.tables import CELL
from memloc.techniques import all_tables, make, settings_of

TECHNIQUES = ("swapping", "retraining", "gradients", "probing")
MODIFYING = ("swapping", "retraining")
Weights = Mapping[str, Sequence[Sequence[float]]]
"""By technique: the layer weights of each seed."""


def straight(layers: int, centre: float) -> list[float]:
    """Weights on a straight line whose centre of gravity is at this share of the depth.

    Centres from a third to two thirds of the depth can be had, as no weight is negative.
    """
    layer = np.arange(1, layers + 1)
    wanted, middle = centre * layers + 0.5, (layers + 1) / 2
    slope = (wanted - middle) / np.mean((layer - middle) ** 2)
    weights = 1 + slope * (layer - middle)
    assert weights.min() >= 0, f"no straight line has its centre at {centre} of {layers} layers"
    return [float(weight) for weight in weights]


def write_run(
    runs: Path,
    task: str = "topics",
    model: str = "minilm",
    layers: int = 6,
    seeds: Sequence[int] = (1,),
    classes: int = 4,
    weights: Weights | None = None,
    settings: Mapping[str, Any] | None = None,
    single_layer: float = 0.1,
    layers_to_revert: int | None = None,
    clean_error: float = 0.002,
    events: Mapping[str, Sequence[int | None]] | None = None,
    positions: Mapping[str, Sequence[float]] | None = None,
    steps: Sequence[float] | None = None,
    validation: float | Mapping[str, float] | None = None,
    generalisation: float | None = None,
    seconds: float = 60.0,
    memorised: float = 1.0,
    noisy: int = 60,
    caveats: Sequence[str] = (),
    windows: Sequence[Sequence[float]] | None = None,
    written: float = 1e9,
    name: str | None = None,
) -> Path:
    """Write one finished run.

    Args:
        runs: The folder of all runs.
        task: Name of the task.
        model: Name of the model.
        layers: Its depth.
        seeds: Model seeds.
        classes: Of the task; those left are two if the settings say `data.binarise`.
        weights: By default the same falling weights for all techniques and seeds.
        settings: Changes to the settings, by dotted name: ``{"data.noise": 0.3}``.
        single_layer: Share that the strongest single layer undoes.
        layers_to_revert: By default two thirds of the layers.
        clean_error: Mean over the windows.
        events: By event, its layer in each seed; None if it never happens.
        positions: By state of the model, the noisy mean in each layer.
        steps: Largest steps of single examples (NaN: never crosses).
        validation: Score of the task, or scores by their names in `VALIDATION_SCORES`.
        generalisation: Score of the task.
        seconds: What the run cost.
        memorised: Share of the noisy labels.
        noisy: How many noisy examples there are.
        caveats: Cautions of the run.
        windows: Error by size and layer, instead of what the numbers above make of it.
        written: When, in seconds; decides which run is the newest.
        name: Of the folder.
    """
    if weights is None:
        weights = {name: [straight(layers, 0.45)] * len(seeds) for name in TECHNIQUES}
    folder = runs / (name or f"{task}-{model}")
    folder.mkdir(parents=True)
    config = Run(
        data=Data(task=task),
        model=Model(name=model),
        training=Training(),
        seeds=tuple(seeds),
        techniques=settings_of(map(make, weights)),
    ).model_dump(mode="json")
    for key, value in (settings or {}).items():
        _set(config, key.split("."), value)
    costs = pd.DataFrame({"seed": seeds[:1], "job": "memorised", "seconds": [seconds]})
    tables = {"layers": _layers(weights, seeds), "costs": costs}
    if events is not None:
        tables["events"] = _events(events, seeds)
    if positions is not None:
        tables["centroids"] = _centroids(positions, seeds)
    if steps is not None:
        tables["crossings"] = _crossings(steps, layers)
    for table, rows in tables.items():
        rows.to_parquet(folder / f"{table}.parquet", index=False)
    techniques: dict[str, Any] = {name: {} for name in weights}
    for name in MODIFYING:
        if name in techniques:
            techniques[name] = {
                "full_error": 1.0,
                "clean_error": clean_error,
                "strongest_single_layer": {"layer": 1, "undoes": single_layer},
                "error_by_size_and_layer": windows
                or [
                    [single_layer] * layers,
                    *(
                        [1.0 if size >= (layers_to_revert or round(layers * 2 / 3)) else 0.4]
                        * layers
                        for size in range(2, layers + 1)
                    ),
                ],
            }
    summary: dict[str, Any] = {
        "task": task,
        "model": model,
        "classes": [f"class {n}" for n in range(2 if config["data"]["binarise"] else classes)],
        "layers": layers,
        "seeds": list(seeds),
        "techniques": techniques,
        "memorised_share": memorised,
        "noisy_examples": noisy,
        "caveats": list(caveats),
    }
    if validation is not None or generalisation is not None:
        scores: dict[str, dict[str, float | None]] = {"original": {}, "memorised": {}}
        for column in VALIDATION_SCORES:
            _, state, guess = column.split("_")
            known = validation.get(column) if isinstance(validation, Mapping) else validation
            scores[state][guess] = known
        summary["scores"] = {
            "validation_score": scores,
            "generalisation_score": generalisation,
        }
    (folder / "settings.json").write_text(json.dumps(config))
    (folder / "summary.json").write_text(json.dumps(summary))
    os.utime(folder / "summary.json", (written, written))
    return folder


def complete(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """With zeros in the columns that a table of a run needs and does not have."""
    needed = all_tables()[name].columns_in("run")
    absent = {
        column: pd.Series(0, table.index).astype(known.dtype)
        for column, known in needed.items()
        if column not in table and not known.optional
    }
    return table.assign(**absent)


def write_twins(
    runs: Path,
    task: str = "topics",
    model: str = "minilm",
    layers: int = 6,
    multi: Mapping[str, Any] | None = None,
    binary: Mapping[str, Any] | None = None,
    **same: Any,
) -> tuple[Path, Path]:
    """Two runs of one task: with all its classes, and with two.

    Args:
        runs: The folder of all runs.
        task: Name of the task.
        model: Name of the model.
        layers: Its depth.
        multi: What only the run with all classes gets, as for `write_run`.
        binary: What only the run with two classes gets.
        same: What both get.
    """
    settings = same.pop("settings", {})
    one, other = (
        write_run(
            runs,
            task,
            model,
            layers,
            settings={**settings, "data.binarise": binarise},
            name=f"{task}-{model}-{'binary' if binarise else 'multi'}",
            **{**same, **(own or {})},
        )
        for binarise, own in ((False, multi), (True, binary))
    )
    return one, other


def write_localised(runs: Path, name: str = "localised") -> Path:
    """What `memloc localise` leaves: its settings have no task and no seeds."""
    folder = write_run(runs, name=name)
    settings = {
        "memorised": "a",
        "original": "b",
        "data": "texts.csv",
        "techniques": {"swapping": {}},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    return folder


def _set(config: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    for key in keys[:-1]:
        config = config.setdefault(key, {})
    config[keys[-1]] = value


def _layers(weights: Weights, seeds: Sequence[int]) -> pd.DataFrame:
    rows = [
        (seed, technique, layer, weight)
        for technique, of_seeds in weights.items()
        for seed, profile in zip(seeds, of_seeds, strict=True)
        for layer, weight in enumerate(profile, start=1)
    ]
    return pd.DataFrame(rows, columns=["seed", "technique", "layer", "weight"]).assign(spread=0.0)


def _events(events: Mapping[str, Sequence[int | None]], seeds: Sequence[int]) -> pd.DataFrame:
    rows = [
        (seed, state, event, layer if state == "memorised" else 1)
        for event, layers in events.items()
        for seed, layer in zip(seeds, layers, strict=True)
        for state in ("memorised", "bottom_swapped")  # events of this one do not count
    ]
    table = pd.DataFrame(rows, columns=["seed", "model", "event", "layer"])
    return table.astype({"layer": "Int64"})


def _centroids(positions: Mapping[str, Sequence[float]], seeds: Sequence[int]) -> pd.DataFrame:
    rows = [
        (seed, state, layer, group, 10, mean if group == "noisy" else 0.0)
        for seed in seeds
        for state, means in positions.items()
        for layer, mean in enumerate(means, start=1)
        for group in ("noisy", "class_a", "class_b")
    ]
    table = pd.DataFrame(rows, columns=["seed", "model", "layer", "group", "count", "mean"])
    return table.assign(low=table["mean"] - 0.1, high=table["mean"] + 0.1)


def _crossings(steps: Sequence[float], layers: int) -> pd.DataFrame:
    crossing = [None if np.isnan(step) else layers for step in steps]
    return pd.DataFrame(
        {
            "seed": 1,
            "example": range(len(steps)),
            "crossing": pd.array(crossing, dtype="Int64"),
            "largest_step_layer": 2,
            "largest_step": [0.9 if np.isnan(step) else step for step in steps],
        }
    )


def write_control(
    runs: Path,
    found: Mapping[str, Sequence[bool]],
    model: str = "minilm",
    layers: int = 6,
    choices: Mapping[tuple[str, bool, bool], float | Sequence[float]] | None = None,
    held_back: Sequence[str] = (),
    tasks: Sequence[str] = ("topics", "questions"),
    written: float = 1e9,
    name: str = "control-1",
) -> Path:
    """What `memloc control` leaves.

    Args:
        runs: The folder of all results.
        found: By technique, whether it gives most weight to hidden layers, in each cell (tasks ×
            pairs of layers, the pairs 1+2, 3+4, ... in turn).
        model: Name of the model.
        layers: Its depth.
        choices: accuracy@2 of gradients by norm, subtract_clean and divide_by_frozen: one value
            for all, or one per task and pair of layers.
        held_back: Tasks that only choose the post-processing.
        tasks: Main tasks.
        written: When, in seconds.
        name: Of the folder.
    """
    folder = runs / name
    folder.mkdir(parents=True)
    pairs = [f"{first}+{first + 1}" for first in range(1, layers, 2)]
    cells = [(model, layers, task, pair, 1) for task in tasks for pair in pairs]
    weights, choice_rows = [], []
    for technique, successes in found.items():
        for cell, success in zip(cells, successes, strict=True):
            hidden = [int(layer) for layer in cell[3].split("+")]
            for layer in range(1, layers + 1):
                weights.append((*cell, technique, layer, float((layer in hidden) == success)))
    for (norm, clean, frozen), accuracy in (choices or {}).items():
        each = accuracy if isinstance(accuracy, Sequence) else [accuracy] * len(cells)
        for cell, value in zip(cells, each, strict=True):
            choice_rows.append((*cell, norm, clean, frozen, 2, value))
    table = pd.DataFrame(weights, columns=[*CELL, "technique", "layer", "weight"])
    table.assign(spread=0.0).to_parquet(folder / "layers.parquet", index=False)
    accuracy_table(table).to_parquet(folder / "accuracy.parquet", index=False)
    if choices is not None:
        columns = [*CELL, "norm", "subtract_clean", "divide_by_frozen", "k", "accuracy"]
        frame = pd.DataFrame(choice_rows, columns=columns)
        frame.to_parquet(folder / "gradient_choices.parquet", index=False)
    settings = {"control": {"tasks": list(tasks)}}
    (folder / "settings.json").write_text(json.dumps(settings))
    summary = {"control_models": len(cells), "held_back": list(held_back)}
    (folder / "summary.json").write_text(json.dumps(summary))
    os.utime(folder / "summary.json", (written, written))
    return folder
