"""Single noisy examples on the page: what they are, how they move, which windows undo them."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.windows import Window
from memloc.report.page_tables import Result, View, naming, read_table

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
