"""Result folders with everything that figures are drawn from, written by hand."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

import memloc
from memloc.analysis.windows import all_windows
from tests.result_folders import complete, straight, write_run

TECHNIQUES = (
    *("swapping", "retraining", "gradients", "probing", "shapley", "patching"),
    *("weight-change", "random"),
)


def write_full_run(
    runs: Path,
    task: str = "topics",
    model: str = "minilm",
    layers: int = 6,
    seeds: Sequence[int] = (1, 2),
    techniques: Sequence[str] = TECHNIQUES,
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

    def weights() -> list[float]:
        return straight(layers, float(np.clip(deep + random.normal(0, 0.02), 0.34, 0.66)))

    middle = max(1, min(layers - 1, round(layers * deep)))
    events: dict[str, list[int | None]] = {
        event: [int(np.clip(middle + shift + random.integers(-1, 2), 1, layers)) for _ in seeds]
        for event, shift in (("crossing", 1), ("initiation", 0), ("mem_gen", 1), ("f1_90", -1))
    }
    falling = 1 - _rising(layers, deep)
    folder = write_run(
        runs,
        task,
        model,
        layers=layers,
        seeds=seeds,
        weights={technique: [weights() for _ in seeds] for technique in techniques},
        settings={"data.binarise": binarise},
        events=events,
        positions={"memorised": falling.tolist()},
        validation=float(deep + random.normal(0, 0.05)),
        generalisation=float(deep + random.normal(0, 0.05)) if generalisation else None,
        name=name,
    )
    for table, rows in _tables(layers, seeds, techniques, deep, random).items():
        rows.to_parquet(folder / f"{table}.parquet", index=False)
    if generalisation:
        held = random.beta(3, 2, 400)
        seen = held + (1 - held) * random.uniform(0.6, 1, 400)
        columns = {"example": range(400), "noisy": np.arange(400) < 60}
        columns |= {"training_memorisation": seen, "generalisation_score": held}
        found = complete("memorisation_map", pd.DataFrame(columns))
        found.to_parquet(folder / "memorisation_map.parquet", index=False)
        columns |= {"seed": 1, "confidence": held, "variability": held * (1 - held)}
        found = complete("dynamics", pd.DataFrame(columns).iloc[:, [0, 1, 4, 5, 6]])
        found.to_parquet(folder / "dynamics.parquet", index=False)
    classes = 2 if binarise or task in ("wic", "rte", "mrpc", "cola", "boolq", "sst2") else 6
    summary = json.loads((folder / "summary.json").read_text())
    summary |= {"memloc": memloc.__version__, "examples": 5400, "noisy_examples": 810}
    summary |= {"classes": [f"class {number}" for number in range(classes)]}
    for technique in {"swapping", "retraining"} & set(techniques):
        found = summary["techniques"][technique]
        found["error_by_size_and_layer"] = error_matrix(layers, deep).tolist()
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def error_matrix(layers: int, deep: float) -> np.ndarray:
    """E that grows with the size of windows, most around the given depth."""
    size = np.arange(1, layers + 1)[:, None] / layers
    distance = np.abs((np.arange(1, layers + 1)[None, :] - 0.5) / layers - deep)
    grown = 1 / (1 + np.exp(-6 * (size - 0.45 - 0.3 * distance)))
    grown[-1] = 1
    return np.asarray(np.clip(grown / grown.max(), 0, 1))


def _rising(layers: int, deep: float) -> np.ndarray:
    """From 0 to 1 over the layers, half of it at the given depth."""
    places = (np.arange(1, layers + 1) - 0.5) / layers
    return np.asarray(1 / (1 + np.exp(-9 * (places - deep))))


def _tables(
    layers: int,
    seeds: Sequence[int],
    techniques: Sequence[str],
    deep: float,
    random: np.random.Generator,
) -> dict[str, pd.DataFrame]:
    """The tables that `write_run` does not write."""
    every, windows, rising = np.arange(1, layers + 1), all_windows(layers), _rising(layers, deep)
    parts: dict[str, list[pd.DataFrame]] = {}

    def add(name: str, **columns: object) -> None:
        if columns.get("technique") in (None, *techniques):
            parts.setdefault(name, []).append(pd.DataFrame(columns))

    for seed in seeds:
        layer = {"seed": seed, "layer": every}
        matrix = error_matrix(layers, deep) * random.uniform(0.95, 1, (layers, layers))
        for technique in ("swapping", "retraining"):
            errors = [matrix[w.size - 1, [layer - 1 for layer in w.layers]].mean() for w in windows]
            edges = np.array(windows)
            add(
                "windows", technique=technique, seed=seed, first_layer=edges[:, 0],
                last_layer=edges[:, 1], size=edges[:, 1] - edges[:, 0] + 1, noisy_error=errors,
                clean_error=0.002,
            )  # fmt: skip
        for probe_seed in range(2):
            f1 = 0.2 + 0.6 * np.append(0, rising) + random.normal(0, 0.02, layers + 1)
            probe = {"technique": "probing", "probe": "mlp", "model": "memorised", "seed": seed}
            add(
                "probes",
                **probe,
                layer=np.arange(layers + 1),
                probe_seed=probe_seed,
                f1=f1,
                train_f1=1.0,
                fitted=True,
            )
        for state, gradient in product(
            ("near_ceiling", "frozen"), ("noisy", "clean", "difference")
        ):
            norm = random.uniform(0.8, 1.2, layers) * (1 + every / layers)
            named = {"technique": "gradients", "model": state, "gradient": gradient}
            add("gradients", **layer, **named, norm=norm)
        add("shapley", **layer, technique="shapley", value=random.uniform(0, 0.3, layers))
        for direction in ("restore", "implant"):
            add("patching", **layer, technique="patching", direction=direction, flipped=rising)
        for labels, noisy in (("original", 0.75 - 0.6 * rising), ("perturbed", 0.1 + 0.8 * rising)):
            add(
                "class_probes",
                **layer,
                labels=labels,
                noisy_f1=noisy,
                clean_f1=0.8,
                train_f1=1.0,
                fitted=True,
            )
        for state, noisy in (
            ("memorised", 1 - rising),
            ("bottom_swapped", 0.9 + 0 * rising),
            ("top_swapped", np.maximum(0.45, 1 - rising)),
        ):
            apart = 0.9 - 0.75 * every / layers
            for group, mean in (
                ("noisy", noisy),
                ("class_a", 0 * every),
                ("class_b", 0 * every + 1),
            ):
                position = {"mean": mean, "low": mean - apart, "high": mean + apart}
                add("centroids", **layer, model=state, group=group, **position)
        for epoch in (10, 20, 30, 40, 50):
            early = epoch == 10  # nothing to localise yet
            centre = None if early else (deep + 0.2 - epoch / 250) * layers
            add(
                "checkpoints", seed=seed, epoch=[epoch],
                swapping_m_cog=pd.array([centre], dtype="Float64"),
                probing_m_cog=pd.array([centre], dtype="Float64"),
                crossing=pd.array([None if early else layers - epoch // 25], dtype="Int64"),
            )  # fmt: skip
            weight = np.exp(-(((every - (centre or 0)) / layers) ** 2) / 0.05)
            weight = np.full(layers, np.nan) if early else weight
            for technique, value in (
                ("swapping", weight),
                ("probing", weight),
                ("centroids", np.clip(1 - epoch / 50 * every / layers, 0, 1)),
            ):
                rows = pd.DataFrame({**layer, "epoch": epoch, "technique": technique})
                parts.setdefault("checkpoint_layers", []).append(rows.assign(value=value))
    joined = {name: pd.concat(tables, ignore_index=True) for name, tables in parts.items()}
    return {name: complete(name, table) for name, table in joined.items()}


def write_grid(
    runs: Path, models: Mapping[str, int], tasks: Sequence[str], seeds: Sequence[int]
) -> None:
    """Runs of all tasks with all models (their depths)."""
    for (model, layers), task in product(models.items(), tasks):
        write_full_run(runs, task, model, layers, seeds)


def write_control(
    runs: Path,
    models: Mapping[str, int] = MappingProxyType({"minilm": 6}),
    tasks: Sequence[str] = ("questions",),
    seeds: Sequence[int] = (1,),
) -> Path:
    """What `memloc control` leaves."""
    folder = runs / "control-constructed"
    folder.mkdir(parents=True)
    random = np.random.default_rng(7)
    parts: dict[str, list[pd.DataFrame]] = {}
    for model, n in models.items():
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
        ).assign(technique="gradients"),
    }
