"""The results of many runs as tidy tables: tasks × models × techniques.

Layers of models of different depth are compared by relative depth, (layer − ½) / L: the middle of
the layer, where 0 is the input and 1 the output. Values are means over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.windows import centre_of_gravity
from memloc.config import DEFAULT_TECHNIQUES
from memloc.results.folders import (
    ControlFolder,
    Found,
    ResultsError,
    RunFolder,
    damaged,
    find_runs,
)
from memloc.results.groups import (
    Group,
    choose_group,
    describe_groups,
    group_runs,
    other_sections,
)
from memloc.tables import MEMORISED, NEARLY_ALL
from memloc.text import counted

UNMODIFIED = "memorised"
"""How tables call θ_M, as against θ_M with some layers swapped."""
IDENTITY = ["run", "task", "model", "layers"]
"""The first columns of every table of the grid."""


@dataclass(frozen=True)
class Grid:
    """What was found in all runs that are compared; every table starts with `IDENTITY`.

    Attributes:
        folder: Where the runs are.
        runs: One row per run: folder, seeds, memorised_share, seconds, validation_score,
            generalisation_score.
        seed_centres: technique, seed, m_cog, depth.
        centres: technique, m_cog, depth.
        seed_weights: technique, seed, layer, weight.
        weights: technique, layer, weight.
        windows: technique, single_layer (largest error of one layer), layers_to_revert
            (smallest size with which a layer undoes nearly everything), clean_error.
        events: event, layer, depth (both NaN if it never happens), seeds, missing.
        positions: state, layer, mean (of the noisy examples between the two centroids).
        examples: Single examples that cross: seed, largest_step.
        groups: The groups of comparable runs.
        chosen: The number of the group used, from 1.
        controls: Results of `memloc control` in the same folder.
        notes: What a reader must know about the choice of runs, in sentences.
    """

    folder: Path
    runs: pd.DataFrame
    seed_centres: pd.DataFrame
    centres: pd.DataFrame
    seed_weights: pd.DataFrame
    weights: pd.DataFrame
    windows: pd.DataFrame
    events: pd.DataFrame
    positions: pd.DataFrame
    examples: pd.DataFrame
    groups: tuple[Group, ...]
    chosen: int
    controls: tuple[ControlFolder, ...]
    notes: tuple[str, ...]

    @property
    def models(self) -> list[str]:
        """Their names."""
        return sorted(self.runs["model"].unique())

    @property
    def part(self) -> str | None:
        """What of the layers the runs are about, in words; None for whole layers."""
        return self.groups[self.chosen - 1].part

    @property
    def techniques(self) -> list[str]:
        """Their names: those of the paper first."""
        names = sorted(self.weights["technique"].unique())
        ours = [name for name in DEFAULT_TECHNIQUES if name in names]
        return [*ours, *(name for name in names if name not in ours)]


def read_grid(folder: Path, number: int | None = None) -> Grid:
    """Read the runs in a folder that may be compared.

    Args:
        folder: One run, or a folder of runs.
        number: Which group of comparable runs; by default the largest.

    Raises:
        ResultsError: If there is no finished run or no such group, or a file is damaged.
    """
    found = find_runs(folder)
    groups = group_runs(found.runs)
    chosen = choose_group(groups, number)
    group = groups[chosen - 1]
    collected: dict[str, list[pd.DataFrame]] = {name: [] for name in _READERS}
    for index, ((task, model), run) in enumerate(group.runs.items()):
        identity = dict(zip(IDENTITY, (index, task, model, run.n_layers), strict=True))
        for name, read in _READERS.items():
            rows = pd.DataFrame(read(run), columns=list(_COLUMNS[name]))
            front = pd.DataFrame(identity, index=rows.index)
            collected[name].append(pd.concat([front, rows], axis=1))
    tables = {name: _joined(name, parts) for name, parts in collected.items()}
    by_technique = [*IDENTITY, "technique"]
    seed_centres = _seed_centres(tables["seed_weights"])
    return Grid(
        folder=folder,
        seed_centres=seed_centres,
        centres=_over_seeds(seed_centres, by_technique),
        weights=_over_seeds(tables["seed_weights"], [*by_technique, "layer"]),
        groups=tuple(groups),
        chosen=chosen,
        controls=found.controls,
        notes=tuple(_notes(found, groups, chosen, tables["runs"])),
        **tables,
    )


def relative_depth(layer: float, n_layers: int) -> float:
    """The middle of a layer as a share of the depth."""
    return (layer - 0.5) / n_layers


def _over_seeds(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    return table.drop(columns="seed").groupby(by, sort=False, as_index=False).mean()


def _joined(name: str, parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """One table; its types are known even if it is empty."""
    table = pd.concat(list(parts), ignore_index=True)
    types = {"run": "int64", "task": "object", "model": "object", "layers": "int64"}
    return table.astype(types | _COLUMNS[name])


def _run_row(run: RunFolder) -> list[dict[str, Any]]:
    scores = run.summary.get("scores")
    scores = scores if isinstance(scores, dict) else {}
    validation = scores.get("validation_score")
    uniform = validation.get("uniform") if isinstance(validation, dict) else None
    costs = run.table("costs", ["seconds"])
    return [
        {
            "folder": run.path.name,
            "seeds": run.n_seeds,
            "memorised_share": _number(run.summary.get("memorised_share")),
            "seconds": math.nan if costs is None else _number(float(costs["seconds"].sum())),
            "validation_score": _number(uniform),
            "generalisation_score": _number(scores.get("generalisation_score")),
        }
    ]


def seed_weights(run: RunFolder) -> pd.DataFrame:
    """technique, seed, layer, weight of one run.

    Raises:
        ResultsError: If the table is missing or damaged.
    """
    layers = run.table("layers", ["technique", "seed", "layer", "weight"])
    if layers is None:
        raise ResultsError(
            f"{str(run.path / 'layers.parquet')!r} is missing; move its folder away, or compute it "
            "again with `memloc run`"
        )
    place = ["technique", "seed", "layer"]
    if layers.duplicated(place).any():
        raise damaged(run.path / "layers.parquet", "a layer has more than one weight")
    return layers.sort_values(place, kind="stable")


def _seed_centres(weights: pd.DataFrame) -> pd.DataFrame:
    """M-CoG per seed; weights that are all zero have none."""
    by = [*IDENTITY, "technique", "seed"]
    rows = []
    for identity, layers in weights.groupby(by, sort=False):
        centre = centre_of_gravity(layers["weight"].to_numpy())
        if centre is not None:
            depth = relative_depth(centre, int(layers["layers"].iloc[0]))
            rows.append((*identity, centre, depth))
    table = pd.DataFrame(rows, columns=[*by, "m_cog", "depth"])
    return table.astype({"m_cog": "float64", "depth": "float64"})


def _window_rows(run: RunFolder) -> list[dict[str, Any]]:
    rows = []
    for technique, result in run.summary["techniques"].items():
        if "full_error" in result:
            matrix = _error_matrix(result)
            rows.append(
                {
                    "technique": technique,
                    # As in Figure 4; missing (NaN) if single layers were not tried.
                    "single_layer": float(np.max(matrix[0])) if matrix else math.nan,
                    "layers_to_revert": _layers_to_revert(matrix),
                    "clean_error": _number(result.get("clean_error")),
                }
            )
    return rows


def _error_matrix(result: dict[str, Any]) -> list[list[float]]:
    """E of a summary, with NaN where it has no number; empty if it has none."""
    matrix = result.get("error_by_size_and_layer")
    if not isinstance(matrix, list) or not all(isinstance(row, list) and row for row in matrix):
        return []
    return [[_number(value) for value in row] for row in matrix]


def _layers_to_revert(matrix: list[list[float]]) -> float:
    """As read off Figure 3: the first row of E with a cell of nearly 1; needs all sizes."""
    if any(math.isnan(value) for row in matrix for value in row):
        return math.nan
    enough = [size for size, row in enumerate(matrix, start=1) if max(row) >= NEARLY_ALL]
    return min(enough, default=math.nan)


def seed_events(run: RunFolder) -> pd.DataFrame:
    """seed, event, layer (missing if it never happens) of one run; empty if it has no events.

    Raises:
        ResultsError: If the table is damaged.
    """
    columns = {"seed": "int64", "model": "object", "event": "object", "layer": "Float64"}
    table = run.table("events", columns)
    if table is None:
        table = pd.DataFrame(columns=list(columns)).astype(columns)
    return table[table["model"] == UNMODIFIED].drop(columns="model")


def _event_rows(run: RunFolder) -> list[dict[str, Any]]:
    rows = []
    for event, of_seeds in seed_events(run).groupby("event", sort=False):
        known = of_seeds["layer"].dropna().to_numpy(dtype=float)
        layer = float(known.mean()) if len(known) else math.nan
        rows.append(
            {
                "event": event,
                "layer": layer,
                "depth": relative_depth(layer, run.n_layers),
                "seeds": len(of_seeds),
                "missing": len(of_seeds) - len(known),
            }
        )
    return rows


def _position_rows(run: RunFolder) -> pd.DataFrame | list[Any]:
    table = run.table("centroids", ["model", "layer", "group", "mean"])
    if table is None:
        return []
    noisy = table[table["group"] == "noisy"].rename(columns={"model": "state"})
    return noisy.groupby(["state", "layer"], as_index=False)[["mean"]].mean()


def _example_rows(run: RunFolder) -> pd.DataFrame | list[Any]:
    table = run.table("crossings", ["seed", "crossing", "largest_step"])
    # What never goes over to its new class was not memorised as far as centroids can tell.
    return [] if table is None else table[table["crossing"].notna()].drop(columns="crossing")


def _number(value: Any) -> float:
    """A number, or NaN for everything that is none."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and np.isfinite(value) else math.nan


def _notes(found: Found, groups: list[Group], chosen: int, runs: pd.DataFrame) -> list[str]:
    group = groups[chosen - 1]
    notes = describe_groups(groups, chosen)
    if group.part:
        notes.append(f"Only the {group.part} of layers were looked at.")
    if group.left_out:
        names = ", ".join(sorted(run.path.name for run in group.left_out))
        notes.append(
            f"Left out, as another run of the same task and model has more techniques, seeds or "
            f"scores, or is newer: {names}."
        )
    if found.localised:
        names = ", ".join(path.name for path in found.localised)
        notes.append(f"Left out, as `memloc localise` knows no task or training: {names}.")
    parts = [control.path.name for control in found.controls if not control.whole_layers]
    if parts:
        notes.append(f"Left out, as they are not of whole layers: {', '.join(parts)}.")
    if found.others:
        names = ", ".join(path.name for path in found.others)
        notes.append(f"Left out, as they are not results of `memloc run`: {names}.")
    if found.unfinished:
        names = ", ".join(path.name for path in found.unfinished)
        notes.append(f"Left out, as they are not finished: {names}.")
    differing = other_sections(group.runs.values())
    if differing:
        notes.append(f"The runs differ in {', '.join(differing)}; scores may not be comparable.")
    weak = runs[runs["memorised_share"] < MEMORISED]
    if len(weak):
        names = ", ".join(weak["task"] + " " + weak["model"])
        notes.append(f"Less than {MEMORISED:.0%} of the noisy labels were memorised: {names}.")
    return notes


def grid_title(grid: Grid) -> str:
    """How many runs, tasks and models."""
    runs, tasks = len(grid.runs), grid.runs["task"].nunique()
    seeds = sorted(set(grid.runs["seeds"]))
    each = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return (
        f"{counted(runs, 'run')}: {counted(tasks, 'task')}, {counted(len(grid.models), 'model')}, "
        f"{counted(len(grid.techniques), 'technique')}, "
        f"{each} seed{'s' if each != '1' else ''} each"
    )


def grid_data(grid: Grid) -> dict[str, Any]:
    """Which runs, and which were left out, as JSON data."""
    used = grid.groups[grid.chosen - 1]
    return {
        "folder": str(grid.folder),
        "group": grid.chosen,
        "groups": [
            {
                "group": number,
                "runs": [run.path.name for run in group.runs.values()],
                "left_out": [run.path.name for run in group.left_out],
                "differences": group.differences(used),
            }
            for number, group in enumerate(grid.groups, start=1)
        ],
        "notes": list(grid.notes),
        "runs": records(grid.runs.drop(columns="run")),
    }


def records(table: Any) -> list[dict[str, Any]]:
    """Rows as JSON data; a missing number is null."""
    return [
        {str(key): _plain(value) for key, value in row.items()} for row in table.to_dict("records")
    ]


def _plain(value: Any) -> Any:
    unknown = value is pd.NA or (isinstance(value, float) and not math.isfinite(value))
    return None if unknown else value


_READERS: dict[str, Callable[[RunFolder], pd.DataFrame | list[Any]]] = {
    "runs": _run_row,
    "seed_weights": seed_weights,
    "windows": _window_rows,
    "events": _event_rows,
    "positions": _position_rows,
    "examples": _example_rows,
}
_COLUMNS: dict[str, dict[str, str]] = {
    "runs": {
        "folder": "object",
        "seeds": "int64",
        **dict.fromkeys(
            ("memorised_share", "seconds", "validation_score", "generalisation_score"), "float64"
        ),
    },
    "seed_weights": {
        **{"technique": "object", "seed": "int64", "layer": "int64"},
        "weight": "float64",
    },
    "windows": {
        "technique": "object",
        **dict.fromkeys(("single_layer", "layers_to_revert", "clean_error"), "float64"),
    },
    "events": {
        "event": "object",
        **dict.fromkeys(("layer", "depth"), "float64"),
        **dict.fromkeys(("seeds", "missing"), "int64"),
    },
    "positions": {"state": "object", "layer": "int64", "mean": "float64"},
    "examples": {"seed": "int64", "largest_step": "float64"},
}
