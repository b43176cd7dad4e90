"""Complete result folders with made-up models: every table, and a summary from the real functions.

Whether a window undoes an example is decided by rule, so tests know the answers: example i has a
home layer, and a window undoes it if it holds the home layer and enough others.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.centroids import (
    HIGH,
    LOW,
    centroid_events,
    crossings_for_good,
    event_table,
    largest_steps,
)
from memloc.analysis.windows import all_windows, layer_table, window_tables
from memloc.api.experiments import keep
from memloc.config import Data, GivenData, Localisation, Model, Run, Training
from memloc.data.task import Task
from memloc.engine.collect import with_texts
from memloc.engine.experiment import Findings, describe
from memloc.techniques import make_techniques

CLASSES = ("animals", "plants", "stones")
EPOCHS = 6
"""Of the made-up training."""
NEAR_CEILING = 4
HOSTILE = (
    "<script>document.title = 'broken'; window.broken = true</script>",
    "</script><script>window.broken = true</script><!--",
    "<img src=x onerror='window.broken = true'>",
    "\"quoted\" 'text' `with` \\backslashes\\ ${window.broken = true} &lt;script&gt; &amp;",
    "emoji 👩‍👩‍👧‍👦 🏳️‍🌈 and \u202eright-to-left override\u202c",
    "שלום עולם, مرحبا بالعالم",
    "control \x00\x01\x07\x08\x0b\x0c\x1b[31m\x7f\x85 characters",
    "line\u2028and\u2029paragraph separators, \ufeff byte order mark",
    "x" * 10_000,
    "many words " * 1_000,
    "]]> <![CDATA[ --> {{ template }} @DATA@ @SCRIPT@",
    "",
)
"""What may stand in a data set and must stay text."""


def home_layers(n: int, layers: int, seed: int) -> np.ndarray:
    """Where each example is memorised; the same in all seeds but for every seventh."""
    homes = np.arange(n) % layers + 1
    moved = np.arange(n) % 7 == 3
    return np.where(moved, (homes + seed - 2) % layers + 1, homes)


def undoing(n: int, layers: int, seed: int, needed: int) -> np.ndarray:
    """[windows, examples]: whether the window holds the home layer and `needed` layers or more."""
    homes = home_layers(n, layers, seed)
    windows = np.array(all_windows(layers))
    first, last = windows[:, :1], windows[:, 1:]
    return (last - first + 1 >= needed) & (first <= homes) & (homes <= last)


def write_full_run(
    runs: Path,
    task: str = "topics",
    model: str = "minilm",
    layers: int = 4,
    noisy: int = 14,
    seeds: Sequence[int] = (1,),
    texts: Sequence[str] | None = None,
    classes: Sequence[str] = CLASSES,
    scores: bool = True,
    name: str | None = None,
    seed: int = 0,
) -> Path:
    """Write a result as `memloc run` does, but for models; returns its folder.

    Args:
        runs: The folder of all runs.
        task: Name of the task.
        model: Name of the model.
        layers: Its depth.
        noisy: Noisy examples; there are half as many clean ones.
        seeds: Model seeds.
        texts: Of the noisy examples, repeated if there are fewer.
        classes: Their names.
        scores: Whether there is a memorisation map.
        name: Of the folder.
        seed: Of what is random, such as the depth at which examples cross.
    """
    examples = _examples(noisy, classes, texts)
    tables: dict[str, list[pd.DataFrame]] = {}
    chance = np.random.default_rng(seed)
    middle = chance.uniform(0.35, 0.75) * layers
    for one in seeds:
        for key, table in _of_seed(examples, layers, one, chance, middle).items():
            tables.setdefault(key, []).append(pd.concat([_front(one, table), table], axis=1))
    joined = {key: pd.concat(parts, ignore_index=True) for key, parts in tables.items()}
    joined["examples"] = with_texts(joined["examples"], examples, classes)
    found = Task(task, "own", tuple(classes), examples, examples.drop(columns="noisy"))
    if scores:
        joined["memorisation_map"] = _map(examples, chance)
    config = Run(
        data=Data(task=task),
        model=Model(name=model),
        training=Training(),
        seeds=tuple(seeds),
    )
    halves = {"score": float(chance.uniform(0.5, 0.95))} if scores else None
    findings = Findings(
        "run",
        name or f"{task}-{model}",
        joined,
        config.model_dump(mode="json"),
        {
            **{"model": model, "task": task, "layers": layers, "seeds": list(seeds)},
            **{**describe(found), "generalisation": halves},
        },
        found,
        {one.name: one.all_settings(config.windows) for one in make_techniques(config.techniques)},
    )
    folder = keep(findings, runs / findings.name).folder
    assert folder is not None
    return folder


def write_full_localised(runs: Path, name: str = "localised", **settings: Any) -> Path:
    """The same as `memloc localise` leaves it: no seeds, no task, no training."""
    folder = write_full_run(runs, name=f"{name}-run", scores=False, **settings)
    there = runs / name
    shutil.copytree(folder, there)
    shutil.rmtree(folder)
    (there / "history.parquet").unlink()
    for file in there.glob("*.parquet"):
        pd.read_parquet(file).drop(columns="seed").to_parquet(file, index=False)
    change_summary(there, task=None, training=None, scores=None, generalisation=None, seeds=None)
    own = Localisation(memorised="a", original="b", data=GivenData(file="texts.csv"))
    (there / "settings.json").write_text(own.model_dump_json())
    return there


def change_summary(folder: Path, **values: Any) -> None:
    """Change what a summary says; None removes it."""
    path = folder / "summary.json"
    summary = {**json.loads(path.read_text(encoding="utf-8")), **values}
    kept = {key: value for key, value in summary.items() if value is not None}
    path.write_text(json.dumps(kept), encoding="utf-8")


def _front(seed: int, table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"seed": seed}, index=table.index)


def _examples(n: int, classes: Sequence[str], texts: Sequence[str] | None) -> pd.DataFrame:
    number = np.arange(n + n // 2)
    original = number % len(classes)
    flipped = (original + 1) % len(classes)
    is_noisy = number < n
    words = ("river", "lion", "oak", "granite", "moss", "falcon", "slate", "fern", "otter")
    own = [f"The {words[i % 9]} and the {words[(i // 9) % 9]}, number {i}" for i in number]
    if texts is not None:
        own = [texts[i % len(texts)] if i < n else own[i] for i in number]
    return pd.DataFrame(
        {
            "example": number * 3,  # rows of a larger file
            "text": own,
            "label": np.where(is_noisy, flipped, original),
            "original_label": original,
            "noisy": is_noisy,
        }
    )


def _of_seed(
    examples: pd.DataFrame, layers: int, seed: int, chance: np.random.Generator, middle: float
) -> dict[str, pd.DataFrame]:
    windows = all_windows(layers)
    is_noisy = examples["noisy"].to_numpy()
    labels, numbers = examples["label"].to_numpy(), examples["example"].to_numpy()
    n = int(is_noisy.sum())
    names = ("layers", "windows", "predictions", "examples")
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in names}
    for technique, needed in (("swapping", 1), ("retraining", 2)):
        wrong = np.zeros((len(windows), len(examples)), dtype=bool)
        wrong[:, is_noisy] = undoing(n, layers, seed, needed)
        predicted = np.where(wrong, examples["original_label"].to_numpy(), labels)
        unmodified = np.where(numbers == 0, -1, labels)  # the first was never memorised
        found = window_tables(technique, windows, predicted, unmodified, examples)
        if technique == "retraining":
            rows = found["predictions"]
            found["predictions"] = rows[rows["example"].isin(numbers[is_noisy])]
        for name, table in found.items():
            parts[name].append(table)
    for technique in ("gradients", "probing"):
        weights = chance.uniform(0, 1, layers) / np.arange(1, layers + 1)
        parts["layers"].append(layer_table(technique, weights / weights.sum()))
    tables = {key: pd.concat(of_key, ignore_index=True) for key, of_key in parts.items()}
    tables |= _movement(numbers[is_noisy], layers, chance, middle)
    tables["history"] = _history()
    tables["costs"] = pd.DataFrame(
        {
            "job": ["original", "memorised", "swapping", "retraining", "gradients", "probing"],
            "memorised_epoch": [None, NEAR_CEILING, None, None, None, None],
            "seconds": [10.0, 11.5, 2.25, 30.0, 1.0, 4.0],
            "peak_memory_bytes": 2**29,
            "block_passes": [None, None, 300.0, 900.0, 20.0, None],
        }
    )
    return tables


def _movement(
    numbers: np.ndarray, layers: int, chance: np.random.Generator, middle: float
) -> dict[str, pd.DataFrame]:
    layer = np.arange(1, layers + 1)
    own_middle = middle + chance.normal(0, layers / 8, (len(numbers), 1))
    noise = chance.normal(0, 0.05, (len(numbers), layers))
    ways = {
        "memorised": 1 / (1 + np.exp((layer - own_middle) * 12 / layers)) + noise,
        "bottom_swapped": np.full((len(numbers), layers), 0.95) + noise,
        "top_swapped": 0.5 + 0.4 / (1 + np.exp(layer - own_middle)) + noise,
    }
    centroids, trajectories, events = [], [], []
    for model, found in ways.items():
        rows = []
        for group, positions in (
            ("noisy", found),
            ("class_a", 0 + noise * 8 / layer),
            ("class_b", 1 + noise * 8 / layer),
        ):
            low, high = np.percentile(positions, [LOW, HIGH], axis=0)
            own = {"model": model, "layer": layer, "group": group, "count": len(numbers)}
            own |= {"mean": positions.mean(axis=0), "low": low, "high": high}
            rows.append(pd.DataFrame(own))
        centroids.append(pd.concat(rows, ignore_index=True))
        events.append(event_table(model, centroid_events(centroids[-1])))
        trajectories.append(
            pd.DataFrame(
                {
                    "model": model,
                    "example": np.repeat(numbers, layers),
                    "layer": np.tile(layer, len(numbers)),
                    "position": found.reshape(-1),
                }
            )
        )
    probes = {"mem_gen": min(layers, int(middle) + 1), "f1_90": max(1, int(middle / 2))}
    events.append(event_table("memorised", probes))
    crossings = crossings_for_good(ways["memorised"].T)
    steps = largest_steps(ways["memorised"].T)
    return {
        "centroids": pd.concat(centroids, ignore_index=True),
        "trajectories": pd.concat(trajectories, ignore_index=True),
        "events": pd.concat(events, ignore_index=True),
        "crossings": pd.DataFrame(
            {
                "example": numbers,
                "crossing": pd.array(crossings, dtype="Int64"),
                "largest_step_layer": pd.array([one or None for one in steps[0]], dtype="Int64"),
                "largest_step": steps[1],
            }
        ),
        "pairs": pd.DataFrame(
            {"label": [1, 0], "original_label": [0, 1], "noisy": [3, 2], "used": [True, False]}
        ),
    }


def _history() -> pd.DataFrame:
    ends = {
        ("memorised", "noisy"): 1.0,
        ("memorised", "clean"): 1.0,
        ("memorised", "validation"): 0.8,
        ("original", "clean"): 1.0,
        ("original", "validation"): 0.9,
        ("frozen", "noisy"): 0.25,
    }
    rows = [
        (state, epoch, split, 1.0, end * epoch / EPOCHS, end * epoch / EPOCHS)
        for (state, split), end in ends.items()
        for epoch in range(1, EPOCHS + 1)
    ]
    return pd.DataFrame(rows, columns=["state", "epoch", "split", "loss", "accuracy", "macro_f1"])


def _map(examples: pd.DataFrame, chance: np.random.Generator) -> pd.DataFrame:
    inside, outside = chance.uniform(0.7, 1, len(examples)), chance.uniform(0, 0.3, len(examples))
    return examples.drop(columns="text").assign(
        times_in=5,
        times_out=5,
        training_memorisation=inside,
        generalisation_score=outside,
        counterfactual_memorisation=inside - outside,
    )
