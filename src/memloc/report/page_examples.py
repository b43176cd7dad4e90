"""The tables of one result as the page needs them, and what it shows of single noisy examples.

A *view* is what the page shows at a time: one seed, or all of them together (means, and for single
examples what holds in more than half of the seeds).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.windows import Window
from memloc.results.folders import RunFolder, damaged
from memloc.techniques import at_checkpoints

ALL = "all"
"""Key of the view of all seeds."""
NO_SEED = 0
"""Seed of results of `memloc localise`, which have none."""
SMALLEST, LARGEST = -(2**31), 2**31
"""Numbers of layers, epochs and examples beyond these are damage, not data."""

COLUMNS: dict[str, dict[str, str]] = {
    "layers": {"technique": "str", "layer": "int64", "weight": "float64", "spread": "float64"},
    "windows": {
        **{"technique": "str", "first_layer": "int64", "last_layer": "int64", "size": "int64"},
        **{"noisy_error": "float64", "clean_error": "float64"},
    },
    "examples": {
        **{"technique": "str", "example": "int64", "memorised": "bool"},
        **{"smallest_window": "Int64", "first_layer": "Int64", "last_layer": "Int64"},
        **{"word": "object", "text": "object", "text_pair": "object"},
        **{"label": "int64", "original_label": "int64"},
        **{"label_name": "str", "original_label_name": "str"},
    },
    "probes": {
        **{"technique": "str", "probe": "str", "model": "str", "layer": "int64"},
        "f1": "float64",
    },
    "history": {"state": "str", "epoch": "int64", "split": "str", "accuracy": "float64"},
    "costs": {
        **{"job": "str", "memorised_epoch": "float64", "seconds": "float64"},
        **{"peak_memory_bytes": "float64", "block_passes": "float64"},
    },
    "centroids": {
        **{"model": "str", "layer": "int64", "group": "str"},
        **{"mean": "float64", "low": "float64", "high": "float64"},
    },
    "trajectories": {"model": "str", "example": "int64", "layer": "int64", "position": "float64"},
    "events": {"model": "str", "event": "str", "layer": "Float64"},
    "crossings": {"example": "int64", "crossing": "Int64", "largest_step": "float64"},
    "pairs": {"label": "int64", "original_label": "int64", "used": "bool"},
    "checkpoints": {
        **{"epoch": "int64", "memorised": "float64", "in_layers": "float64", "enough": "bool"},
        **{"clean_accuracy": "float64", "validation_accuracy": "float64"},
        "clean_error": "float64",
        **{f"{name}_m_cog": "Float64" for name in at_checkpoints()},
        "crossing": "Int64",
    },
    "checkpoint_layers": {
        **{"epoch": "int64", "technique": "str", "layer": "int64", "measure": "str"},
        "value": "float64",
    },
    "class_probes": {
        **{"labels": "str", "layer": "int64", "noisy_f1": "float64", "clean_f1": "float64"},
    },
}
"""The columns the page reads, by table."""
OPTIONAL = {
    "examples": ("word", "text_pair", "original_label", "original_label_name"),
    "costs": ("seed", "job", "memorised_epoch", "peak_memory_bytes", "block_passes"),
}


@dataclass(frozen=True)
class View:
    """One seed, or all of them."""

    key: str
    label: str
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Result:
    """One result with its tables, which all have a seed."""

    run: RunFolder
    tables: dict[str, pd.DataFrame]
    views: tuple[View, ...]

    def of(self, view: View) -> dict[str, pd.DataFrame]:
        """The tables of a view."""
        return {
            name: table[table["seed"].isin(view.seeds)]
            for name, table in self.tables.items()
            if len(table) and table["seed"].isin(view.seeds).any()
        }

    def path(self, table: str) -> Path:
        """Where a table is, to be named if it is damaged."""
        return self.run.path / f"{table}.parquet"


def read_result(run: RunFolder) -> Result:
    """Read and check all tables but the predictions, which may be long.

    Raises:
        ResultsError: If a table is damaged.
    """
    tables = {}
    for name, columns in COLUMNS.items():
        table = read_table(run, name, columns, OPTIONAL.get(name, ()))
        if table is not None:
            _check_layers(run, name, table)
            tables[name] = table
    seeds = _seeds(run, tables)
    views = [View(str(seed), f"seed {seed}", (seed,)) for seed in seeds]
    if len(seeds) > 1:
        views.insert(0, View(ALL, f"all {len(seeds)} seeds", seeds))
    return Result(run, tables, tuple(views))


def read_table(
    run: RunFolder,
    name: str,
    columns: dict[str, str],
    optional: Sequence[str] = (),
    examples: Sequence[int] | None = None,
) -> pd.DataFrame | None:
    """A table with a seed in front, whoever wrote it."""
    front = {"seed": "int64"} if run.trained else {}
    table = run.table(name, front | columns, optional, examples)
    if table is not None and "seed" not in table:
        table.insert(0, "seed", NO_SEED)
    return table


def _seeds(run: RunFolder, tables: dict[str, pd.DataFrame]) -> tuple[int, ...]:
    if not run.trained:
        return (NO_SEED,)
    # The frozen model has a seed of its own, which is not one of the run.
    found = tables.get("layers")
    seeds = [] if found is None else found["seed"].unique().tolist()
    return tuple(seeds) or (NO_SEED,)


def _check_layers(run: RunFolder, name: str, table: pd.DataFrame) -> None:
    lowest = 0 if name == "probes" else 1  # probes also look at what enters layer 1
    for column in ("layer", "first_layer", "last_layer", "size"):
        if column in table and not table[column].dropna().between(lowest, run.n_layers).all():
            raise damaged(
                run.path / f"{name}.parquet", f"{column} is not among the {run.n_layers} layers"
            )
    for column in ("example", "epoch", "label", "original_label", "seed"):
        if column in table and not table[column].between(SMALLEST, LARGEST).all():
            raise damaged(run.path / f"{name}.parquet", f"{column} is out of all range")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """What goes wrong inside comes from this file: say so.

    Tables have been checked for columns and types, so this is for contents that contradict each
    other, in whichever way they do.

    Raises:
        ResultsError: Naming the file.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from None


LOWEST, HIGHEST, STEPS = -1.0, 2.0, 254
"""Positions between two classes become bytes: 0..254, and 255 if there is none."""
MISSING = 255
LONGEST_LABEL = 200
MODELS = ("memorised", "bottom_swapped", "top_swapped")
PREDICTIONS = {
    **{"technique": "str", "first_layer": "int64", "last_layer": "int64"},
    **{"example": "int64", "predicted": "int64"},
}


@dataclass(frozen=True)
class Detail:
    """How much of single examples is shown; less of it where the page would become too large.

    Attributes:
        text: Characters of a text.
        seeds: Also for every single seed, if there are several.
        swapped: Ways of single examples also with half of the layers swapped.
        examples: At most so many of them.
    """

    text: int = 2000
    seeds: bool = True
    swapped: bool = True
    examples: int = 20_000


DETAILS = (
    Detail(),
    Detail(seeds=False),
    Detail(600, seeds=False, swapped=False, examples=10_000),
    Detail(300, seeds=False, swapped=False, examples=2_000),
    Detail(200, seeds=False, swapped=False, examples=300),
    Detail(200, seeds=False, swapped=False, examples=0),
)
"""From all to none."""


@dataclass(frozen=True)
class Noisy:
    """The noisy examples of a result, in the order of the page."""

    table: pd.DataFrame
    places: pd.Series[int]
    """Position on the page by number of the example."""

    def __len__(self) -> int:
        """How many."""
        return len(self.table)


def noisy_examples(result: Result, most: int) -> Noisy:
    """All noisy examples that some table knows, the first `most` of them."""
    parts = []
    if "examples" in result.tables:
        parts.append(result.tables["examples"].drop(columns=["seed", "technique", "memorised"]))
    if "crossings" in result.tables:
        parts.append(result.tables["crossings"][["example"]])
    known = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"example": []})
    known = known.drop_duplicates("example").astype({"example": "int64"})
    known = known.sort_values("example", kind="stable").head(most).reset_index(drop=True)
    return Noisy(known, pd.Series(known.index, index=known["example"], dtype="int64"))


def example_columns(result: Result, noisy: Noisy, length: int) -> dict[str, Any]:
    """What is the same in all views: numbers, texts, labels."""
    table = noisy.table
    columns: dict[str, Any] = {"example": table["example"].tolist()}
    if "text" not in table:
        return columns
    texts = [_joined(row) for row in table.reindex(columns=["word", "text", "text_pair"]).values]
    columns["text"] = [visible(text[:length]) for text in texts]
    columns["cut"] = {str(i): len(text) for i, text in enumerate(texts) if len(text) > length}
    for column in ("label", "original_label"):
        names = table.get(f"{column}_name", pd.Series([None] * len(table)))
        columns[column] = [None if pd.isna(n) else visible(str(n)[:LONGEST_LABEL]) for n in names]
    with naming(result.path("memorisation_map")):
        scores = result.run.table(
            "memorisation_map", {"example": "int64", "counterfactual_memorisation": "float64"}
        )
        if scores is not None:
            by_example = scores.set_index("example")["counterfactual_memorisation"]
            columns["counterfactual"] = by_example.reindex(table["example"]).tolist()
    return columns


def _joined(parts: np.ndarray) -> str:
    return " ⏐ ".join(str(part) for part in parts if not pd.isna(part))


def visible(text: str) -> str:
    """Control characters as their pictures, so that none of them does anything."""
    return "".join(_picture(character) for character in text)


def _picture(character: str) -> str:
    code = ord(character)
    if character in "\n\t":
        return character
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return "\ufffd" if 0x80 <= code < 0xA0 or 0xD800 <= code < 0xE000 else character


def view_examples(result: Result, view: View, noisy: Noisy, swapped: bool) -> dict[str, Any]:
    """Where each example crosses, and its way through the layers."""
    found: dict[str, Any] = {}
    tables = result.of(view)
    if "crossings" in tables:
        with naming(result.path("crossings")):
            found["crossing"] = _crossings(tables["crossings"], noisy)
    if "trajectories" in tables:
        with naming(result.path("trajectories")):
            found["positions"] = {
                model: _ways(rows, noisy, result.run.n_layers)
                for model, rows in tables["trajectories"].groupby("model", sort=False)
                if model == MODELS[0] or (swapped and model in MODELS)
            }
    return found


def _crossings(table: pd.DataFrame, noisy: Noisy) -> list[int | None]:
    """The layer; of several seeds the (lower) median, where most never cross none."""
    layers = table.assign(crossing=table["crossing"].astype("Float64").fillna(np.inf))
    by_example = layers.astype({"crossing": "float64"}).groupby("example")["crossing"]
    middle = by_example.quantile(0.5, interpolation="lower").reindex(noisy.table["example"])
    return [int(layer) if np.isfinite(layer) else None for layer in middle]


def _ways(table: pd.DataFrame, noisy: Noisy, n_layers: int) -> str:
    """Positions of all examples after all layers as bytes, examples after each other."""
    table = table[table["example"].isin(noisy.places.index)]
    means = table.groupby(["example", "layer"])["position"].mean()
    ways = np.full((len(noisy), n_layers), np.nan)
    rows = noisy.places[means.index.get_level_values("example")].to_numpy()
    ways[rows, means.index.get_level_values("layer") - 1] = means.to_numpy()
    share = (np.clip(ways, LOWEST, HIGHEST) - LOWEST) / (HIGHEST - LOWEST)
    steps = np.where(np.isfinite(share), np.rint(share * STEPS), MISSING)
    return text_of(steps.astype(np.uint8))


@dataclass(frozen=True)
class Undone:
    """For one technique, which windows undo which examples, in every seed."""

    windows: list[Window]
    by_seed: dict[int, np.ndarray]
    """[windows, examples]: whether the memorised label is no longer predicted."""
    memorised: dict[int, np.ndarray]

    def of(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """What holds in more than half of the seeds of a view: undone, memorised."""
        seeds = [seed for seed in view.seeds if seed in self.by_seed]
        shape = (len(self.windows), len(next(iter(self.memorised.values()))))
        undone, memorised = np.zeros(shape, dtype=int), np.zeros(shape[1], dtype=int)
        for seed in seeds:
            undone += self.by_seed[seed]
            memorised += self.memorised[seed]
        return 2 * undone > len(seeds), 2 * memorised > len(seeds)


def read_undone(result: Result, noisy: Noisy) -> dict[str, Undone]:
    """By technique; only those that predict with changed windows."""
    examples = result.tables.get("examples")
    if examples is None or not len(noisy):
        return {}
    wanted = noisy.table["example"].tolist()
    predictions = read_table(result.run, "predictions", PREDICTIONS, (), wanted)
    if predictions is None:
        return {}
    with naming(result.path("predictions")):
        return {
            str(technique): _undone(
                rows, examples[examples["technique"] == technique], noisy, result.run.n_layers
            )
            for technique, rows in predictions.groupby("technique", sort=False)
            if (examples["technique"] == technique).any()
        }


def _undone(
    predictions: pd.DataFrame, examples: pd.DataFrame, noisy: Noisy, n_layers: int
) -> Undone:
    pairs = predictions[["first_layer", "last_layer"]].drop_duplicates()
    windows = sorted(
        (Window(int(a), int(b)) for a, b in pairs.itertuples(index=False)),
        key=lambda window: (window.size, window.first),
    )
    if not all(1 <= w.first <= w.last <= n_layers for w in windows):
        raise ValueError("a window is not within the layers")
    row_of = np.zeros((n_layers + 1, n_layers + 1), dtype=int)
    for row, window in enumerate(windows):
        row_of[window] = row
    labels = noisy.table["label"].to_numpy()
    by_seed, memorised = {}, {}
    for seed in predictions["seed"].unique().tolist():
        rows = predictions[predictions["seed"] == seed]
        places = noisy.places[rows["example"]].to_numpy()
        wrong = np.zeros((len(windows), len(noisy)), dtype=bool)
        changed = rows["predicted"].to_numpy() != labels[places]
        wrong[row_of[rows["first_layer"], rows["last_layer"]], places] = changed
        known = examples[(examples["seed"] == seed) & examples["example"].isin(noisy.places.index)]
        own = np.zeros(len(noisy), dtype=bool)
        own[noisy.places[known["example"]].to_numpy()] = known["memorised"].to_numpy()
        by_seed[seed], memorised[seed] = wrong & own, own
    return Undone(windows, by_seed, memorised)


def undone_data(undone: Undone, view: View) -> dict[str, Any]:
    """Bits per window and example, and the first (smallest, lowest) window of each example."""
    wrong, memorised = undone.of(view)
    first = np.where(wrong.any(axis=0), wrong.argmax(axis=0), -1)
    return {
        "windows": [[window.first, window.last] for window in undone.windows],
        "bits": text_of(np.packbits(wrong, axis=1, bitorder="little")),
        "smallest": first.tolist(),
        "memorised": text_of(np.packbits(memorised, bitorder="little")),
    }


def text_of(array: np.ndarray) -> str:
    """Bytes as they can stand in JSON."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
