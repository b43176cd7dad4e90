"""Result folders with everything that figures are drawn from, written by hand."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

import memloc
from memloc.analysis.windows import all_windows
from tests.result_folders import straight, write_run

PAPER_TASKS = (
    *("wic", "rte", "mrpc", "cola", "boolq", "sst2", "sst5", "emotion"),
    *("implicithate", "stormfront", "reuters", "trec"),
)
PAPER_MODELS = {
    "bert-base-cased": 12,
    "opt-125m": 12,
    "gpt-neo-125m": 12,
    "pythia-160m-deduped": 12,
}
METHODS = (
    *("swapping", "retraining", "gradients", "probing", "shapley", "patching"),
    *("weight-change", "random"),
)


def write_full_run(
    runs: Path,
    task: str = "topics",
    model: str = "minilm",
    layers: int = 6,
    seeds: Sequence[int] = (1, 2),
    techniques: Sequence[str] = METHODS,
    generalisation: bool = True,
    binarise: bool = False,
    name: str | None = None,
) -> Path:
    """One run with all tables; its numbers depend on task and model alone, and look like real ones.

    Args:
        runs: The folder of all runs.
        task: Name of the task.
        model: Name of the model.
        layers: Its depth.
        seeds: Model seeds.
        techniques: Techniques.
        generalisation: Whether there is a memorisation map.
        binarise: Whether only two classes were kept.
        name: Of the folder.
    """
    random = np.random.default_rng(zlib.crc32(f"{task} {model} {binarise}".encode()))
    deep = np.random.default_rng(zlib.crc32(task.encode())).uniform(0.38, 0.62)
    weights = {
        method: [
            straight(layers, float(np.clip(deep + random.normal(0, 0.02), 0.34, 0.66)))
            for _ in seeds
        ]
        for method in techniques
    }
    middle = max(1, min(layers - 1, round(layers * deep)))
    events: dict[str, list[int | None]] = {
        event: [int(np.clip(middle + shift + random.integers(-1, 2), 1, layers)) for _ in seeds]
        for event, shift in (("crossing", 1), ("initiation", 0), ("mem_gen", 1), ("f1_90", -1))
    }
    folder = write_run(
        runs,
        task,
        model,
        layers=layers,
        seeds=seeds,
        weights=weights,
        settings={"data.binarise": binarise},
        events=events,
        positions={"memorised": _falling(layers, deep)},
        validation=float(deep + random.normal(0, 0.05)),
        generalisation=float(deep + random.normal(0, 0.05)) if generalisation else None,
        name=name,
    )
    write_tables(folder, layers, seeds, techniques, deep, random, generalisation)
    classes = 2 if binarise or task in ("wic", "rte", "mrpc", "cola", "boolq", "sst2") else 6
    summary = json.loads((folder / "summary.json").read_text())
    summary |= {"memloc": memloc.__version__, "examples": 5400, "noisy_examples": 810}
    summary |= {"classes": [f"class {number}" for number in range(classes)]}
    matrix = error_matrix(layers, deep)
    for method in ("swapping", "retraining"):
        if method in summary["techniques"]:
            summary["techniques"][method]["error_by_size_and_layer"] = matrix.tolist()
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def error_matrix(layers: int, deep: float) -> np.ndarray:
    """E that grows with the size of windows, most around the given depth."""
    size = np.arange(1, layers + 1)[:, None] / layers
    distance = np.abs((np.arange(1, layers + 1)[None, :] - 0.5) / layers - deep)
    grown = 1 / (1 + np.exp(-6 * (size - 0.45 - 0.3 * distance)))
    grown[-1] = 1
    return np.asarray(np.clip(grown / grown.max(), 0, 1))


def write_tables(
    folder: Path,
    layers: int,
    seeds: Sequence[int],
    techniques: Sequence[str],
    deep: float,
    random: np.random.Generator,
    generalisation: bool = True,
) -> None:
    """The tables that `write_run` does not write."""
    every = np.arange(1, layers + 1)
    parts: dict[str, list[pd.DataFrame]] = {}

    def add(name: str, seed: int, **columns: object) -> None:
        parts.setdefault(name, []).append(pd.DataFrame({"seed": seed, **columns}))

    windows = all_windows(layers)
    matrix = error_matrix(layers, deep)
    for seed in seeds:
        for method in [m for m in techniques if m in ("swapping", "retraining")]:
            errors = [matrix[w.size - 1, [layer - 1 for layer in w.layers]].mean() for w in windows]
            add(
                "windows", seed, technique=method,
                first_layer=[w.first for w in windows], last_layer=[w.last for w in windows],
                size=[w.size for w in windows],
                noisy_error=np.clip(errors * (1 + random.normal(0, 0.05, len(windows))), 0, 1),
                clean_error=0.002,
            )  # fmt: skip
        if "probing" in techniques:
            for probe_seed in range(2):
                f1 = 0.2 + 0.6 / (1 + np.exp(-8 * (np.arange(layers + 1) / layers - deep)))
                f1 = f1 + random.normal(0, 0.02, layers + 1)
                add(
                    "probes", seed, technique="probing", probe="mlp", model="memorised",
                    layer=np.arange(layers + 1), probe_seed=probe_seed, f1=f1,
                )  # fmt: skip
        if "gradients" in techniques:
            for state in ("near_ceiling", "frozen"):
                for gradient in ("noisy", "clean", "difference"):
                    norm = random.uniform(0.8, 1.2, layers) * (1 + every / layers)
                    add(
                        "gradients", seed, technique="gradients", model=state, gradient=gradient,
                        layer=every, norm=norm,
                    )  # fmt: skip
        if "shapley" in techniques:
            value = np.exp(-(((every - 0.5) / layers - deep) ** 2) / 0.05)
            value = value / value.sum() + random.normal(0, 0.01, layers)
            add("shapley", seed, technique="shapley", layer=every, value=value)
        if "patching" in techniques:
            for direction, end in (("restore", 1.0), ("implant", 0.9)):
                share = end / (1 + np.exp(-9 * (every / layers - deep)))
                add(
                    "patching", seed, technique="patching", direction=direction, layer=every,
                    flipped=share,
                )  # fmt: skip
        for labels in ("original", "perturbed"):
            for probe_seed in range(2):
                rises = 1 / (1 + np.exp(-10 * (every / layers - deep)))
                noisy = 0.75 - 0.6 * rises if labels == "original" else 0.1 + 0.8 * rises
                add(
                    "class_probes", seed, labels=labels, layer=every, probe_seed=probe_seed,
                    noisy_f1=noisy + random.normal(0, 0.02, layers),
                    clean_f1=0.6 + 0.3 * np.sqrt(every / layers), guessing_f1=0.3,
                )  # fmt: skip
        for state, falls in (
            ("memorised", _falling(layers, deep)),
            ("bottom_swapped", [0.9] * layers),
            ("top_swapped", [max(0.45, value) for value in _falling(layers, deep)]),
        ):
            apart = 0.9 - 0.75 * every / layers
            for group, mean in (
                ("noisy", np.array(falls)),
                ("class_a", np.zeros(layers)),
                ("class_b", np.ones(layers)),
            ):
                add(
                    "centroids", seed, model=state, layer=every, group=group, count=50,
                    mean=mean + random.normal(0, 0.02, layers), low=mean - apart, high=mean + apart,
                )  # fmt: skip
        for epoch in (10, 20, 30, 40, 50):
            early = epoch == 10  # nothing to localise yet
            centre = None if early else (deep + 0.2 - epoch / 250) * layers
            add(
                "checkpoints", seed, epoch=[epoch],
                swapping_m_cog=pd.array([centre], dtype="Float64"),
                probing_m_cog=pd.array([centre], dtype="Float64"),
                crossing=pd.array([None if early else layers - epoch // 25], dtype="Int64"),
            )  # fmt: skip
            for technique, measure in (
                ("swapping", "weight"),
                ("probing", "weight"),
                ("centroids", "position"),
            ):
                value = np.exp(-(((every - (centre or 0)) / layers) ** 2) / 0.05)
                if technique == "centroids":
                    value = np.clip(1 - epoch / 50 * every / layers, 0, 1)
                add(
                    "checkpoint_layers", seed, epoch=epoch, technique=technique, layer=every,
                    measure=measure,
                    value=np.nan if early and measure == "weight" else value,
                )  # fmt: skip
    if generalisation:
        n = 400
        noisy = np.arange(n) < 60
        held = np.where(noisy, random.beta(1, 5, n), random.beta(5, 1.5, n))
        parts["memorisation_map"] = [
            pd.DataFrame(
                {
                    "example": range(n),
                    "noisy": noisy,
                    "training_memorisation": held + (1 - held) * random.uniform(0.6, 1, n),
                    "generalisation_score": held,
                }
            )
        ]
    for table, rows in parts.items():
        pd.concat(rows, ignore_index=True).to_parquet(folder / f"{table}.parquet", index=False)


def write_paper_grid(
    runs: Path,
    models: dict[str, int] | None = None,
    tasks: Sequence[str] = PAPER_TASKS,
    seeds: Sequence[int] = (1, 2, 3),
    generalisation: bool = True,
) -> Path:
    """Runs of all tasks with all models."""
    for model, layers in (PAPER_MODELS if models is None else models).items():
        for task in tasks:
            write_full_run(runs, task, model, layers, seeds, generalisation=generalisation)
    return runs


def write_control(
    runs: Path,
    models: dict[str, int] | None = None,
    tasks: Sequence[str] = PAPER_TASKS,
    seeds: Sequence[int] = (1,),
) -> Path:
    """What `memloc control` leaves."""
    folder = runs / "control-constructed"
    folder.mkdir(parents=True)
    random = np.random.default_rng(7)
    parts: dict[str, list[pd.DataFrame]] = {}
    for model, n in (PAPER_MODELS if models is None else models).items():
        for task, first, seed in product(tasks, (1, n // 2, n - 1), seeds):
            setup = {"model": model, "n_layers": n, "task": task, "hidden": f"{first}+{first + 1}"}
            setup["seed"] = seed
            for name, rows in _control_tables(n, first, random).items():
                front = pd.DataFrame(setup, index=rows.index)
                parts.setdefault(name, []).append(pd.concat([front, rows], axis=1))
    for name, tables in parts.items():
        pd.concat(tables).to_parquet(folder / f"{name}.parquet", index=False)
    (folder / "settings.json").write_text(json.dumps({"control": {}, "data": {}, "seeds": [1]}))
    (folder / "summary.json").write_text(json.dumps({"memloc": memloc.__version__}))
    return folder


def _control_tables(n: int, first: int, random: np.random.Generator) -> dict[str, pd.DataFrame]:
    """The tables of one setup: memorisation is hidden in this layer and the next."""
    every = np.arange(1, n + 1)
    hidden = np.isin(every, (first, first + 1))
    finds = {"swapping": 0.97, "retraining": 0.98, "gradients": 0.65, "probing": 0.55}
    accuracy = [
        (technique, k, float((random.random(k) < share).mean()), 2 / n)
        for (technique, share), k in product(finds.items(), (1, 2))
    ]
    layers = [
        (technique, layer, weight, np.nan)
        for technique in finds
        for layer, weight in zip(every, np.where(hidden, 1.0, 0.1), strict=True)
    ]
    choices = [
        (norm, subtract, divide, 2, float(random.choice([0, 0.5, 1])))
        for norm, subtract, divide in product(("L1", "L2"), (False, True), (False, True))
    ]
    gradients = [
        (state, gradient, kind, layer, norm)
        for state, gradient, kind in product(
            ("near_ceiling", "frozen"), ("noisy", "clean", "difference"), ("L1", "L2")
        )
        for layer, norm in zip(
            every,
            np.where(hidden & (state == "near_ceiling"), 3.0, 1.0)
            * (900 if kind == "L1" else 1)
            * (1 + every / n)
            * random.uniform(0.8, 1.2, n),
            strict=True,
        )
    ]
    return {
        "accuracy": pd.DataFrame(accuracy, columns=["technique", "k", "accuracy", "chance"]),
        "layers": pd.DataFrame(layers, columns=["technique", "layer", "weight", "spread"]),
        "gradient_choices": pd.DataFrame(
            choices, columns=["norm", "subtract_clean", "divide_by_frozen", "k", "accuracy"]
        ),
        "gradients": pd.DataFrame(
            gradients, columns=["state", "gradient", "kind", "layer", "norm"]
        ),
    }


def _falling(layers: int, deep: float) -> list[float]:
    """The mean of the noisy examples: from the old class to the new one."""
    places = (np.arange(1, layers + 1) - 0.5) / layers
    return [float(value) for value in 1 / (1 + np.exp(9 * (places - deep)))]
