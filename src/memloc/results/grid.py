"""The results of many runs as tidy tables: tasks × models × techniques.

Layers of models of different depth are compared by relative depth, (layer − ½) / L: the middle of
the layer, where 0 is the input and 1 the output. Values are means over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.windows import centre_of_gravity
from memloc.config import DEFAULT_TECHNIQUES
from memloc.results.folders import Found, ResultsError, RunFolder, damaged, find_runs
from memloc.results.groups import (
    Group,
    Name,
    choose_group,
    describe_groups,
    group_runs,
    other_sections,
)
from memloc.tables import MEMORISED, NEARLY_ALL
from memloc.techniques import all_tables
from memloc.text import counted

UNMODIFIED = "memorised"
"""How tables call θ_M, as against θ_M with some layers swapped."""
IDENTITY = ["run", "task", "model", "layers"]
"""The first columns of every table of many runs."""


def read_tables(runs: Mapping[Name, RunFolder], name: str, columns: Sequence[str]) -> pd.DataFrame:
    """A table of all runs that have it, with `IDENTITY` in front; perhaps empty.

    A column `model` of the table itself (which state of the model) is called `state`.

    Raises:
        ResultsError: If one is damaged.
    """
    types = all_tables()[name].dtypes(columns)
    parts = [pd.DataFrame(columns=list(types)).astype(types).assign(run=0, layers=0)]
    for index, run in enumerate(runs.values()):
        table = run.table(name, columns)
        if table is not None and len(table):
            parts.append(table.assign(run=index, layers=run.n_layers))
    rows = pd.concat(parts[1:] or parts, ignore_index=True).rename(columns={"model": "state"})
    names = pd.DataFrame(list(runs), columns=["task", "model"])
    rows = rows.join(names, on="run")
    return rows[[*IDENTITY, *(column for column in rows if column not in IDENTITY)]]


def read_weights(runs: Mapping[Name, RunFolder]) -> pd.DataFrame:
    """technique, seed, layer, weight of every run.

    Raises:
        ResultsError: If a table is missing or damaged.
    """
    for run in runs.values():
        if not run.has("layers"):
            raise ResultsError(
                f"{str(run.path / 'layers.parquet')!r} is missing; move its folder away, or "
                "compute it again with `memloc run`"
            )
    weights = read_tables(runs, "layers", ["technique", "seed", "layer", "weight"])
    place = ["run", "technique", "seed", "layer"]
    repeated = weights[weights.duplicated(place)]
    if len(repeated):
        folder = list(runs.values())[repeated["run"].iloc[0]].path
        raise damaged(folder / "layers.parquet", "a layer has more than one weight")
    return weights.sort_values(place, kind="stable", ignore_index=True)


def centres_of(weights: pd.DataFrame) -> pd.DataFrame:
    """M-CoG per run, technique and seed, and its relative depth; NaN if all weights are zero."""
    by = [*IDENTITY, "technique", "seed"]
    ordered = weights.groupby(by, sort=False)["weight"]
    rows = [(*key, centre_of_gravity(values.to_numpy())) for key, values in ordered]
    table = pd.DataFrame(rows, columns=[*by, "m_cog"]).astype({"m_cog": "float64"})
    return table.assign(depth=relative_depth(table["m_cog"], table["layers"]))


def read_events(runs: Mapping[Name, RunFolder]) -> pd.DataFrame:
    """seed, event, layer of θ_M in every run; NaN if it never happens."""
    rows = read_tables(runs, "events", ["seed", "model", "event", "layer"])
    rows = rows[rows["state"] == UNMODIFIED].drop(columns="state")
    return rows.assign(layer=rows["layer"].to_numpy(dtype=float, na_value=math.nan))


def relative_depth(layer: Any, n_layers: Any) -> Any:
    """The middle of a layer as a share of the depth."""
    return (layer - 0.5) / n_layers


@dataclass(frozen=True)
class Grid:
    """What was found in all runs that are compared; every table starts with `IDENTITY`.

    Attributes:
        folder: Where the runs are.
        found: All results in that folder.
        groups: The groups of comparable runs.
        chosen: The number of the group used, from 1.
    """

    folder: Path
    found: Found
    groups: tuple[Group, ...]
    chosen: int

    @property
    def group(self) -> Group:
        """The runs that are compared."""
        return self.groups[self.chosen - 1]

    @property
    def controls(self) -> tuple[RunFolder, ...]:
        """Results of `memloc control` in the same folder."""
        return self.found.controls

    @property
    def models(self) -> list[str]:
        """Their names."""
        return sorted(self.runs["model"].unique())

    @property
    def part(self) -> str | None:
        """What of the layers the runs are about, in words; None for whole layers."""
        return self.group.part

    @property
    def techniques(self) -> list[str]:
        """Their names: those of the paper first."""
        names = sorted(self.weights["technique"].unique())
        return sorted(names, key=[*DEFAULT_TECHNIQUES, *names].index)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """folder, seeds, memorised_share, seconds, validation_score, generalisation_score."""
        costs = read_tables(self.group.runs, "costs", ["seconds"])
        seconds = {run: rows["seconds"].sum() for run, rows in costs.groupby("run")}
        rows = []
        for index, ((task, model), run) in enumerate(self.group.runs.items()):
            scores = run.summary.get("scores") or {}
            rows.append(
                {
                    **dict(zip(IDENTITY, (index, task, model, run.n_layers), strict=True)),
                    "folder": run.path.name,
                    "seeds": run.n_seeds,
                    "memorised_share": run.summary.get("memorised_share"),
                    "seconds": seconds.get(index),
                    "validation_score": (scores.get("validation_score") or {}).get("uniform"),
                    "generalisation_score": scores.get("generalisation_score"),
                }
            )
        table = pd.DataFrame(rows)
        return table.astype(dict.fromkeys(table.columns[6:], "float64"))

    @cached_property
    def seed_weights(self) -> pd.DataFrame:
        """technique, seed, layer, weight."""
        return read_weights(self.group.runs)

    @cached_property
    def weights(self) -> pd.DataFrame:
        """technique, layer, weight."""
        return _over_seeds(self.seed_weights, [*IDENTITY, "technique", "layer"])

    @cached_property
    def seed_centres(self) -> pd.DataFrame:
        """technique, seed, m_cog, depth; without weights that are all zero."""
        return centres_of(self.seed_weights).dropna(subset="m_cog")

    @cached_property
    def centres(self) -> pd.DataFrame:
        """technique, m_cog, depth."""
        return _over_seeds(self.seed_centres, [*IDENTITY, "technique"])

    @cached_property
    def windows(self) -> pd.DataFrame:
        """Of techniques that change windows of layers: single_layer, layers_to_revert, clean_error.

        The largest error of one layer (Figure 4), and the smallest size with which a layer undoes
        nearly everything (Figure 3); NaN if the sizes that it takes were not tried.
        """
        rows = []
        for index, ((task, model), run) in enumerate(self.group.runs.items()):
            for technique, result in run.summary["techniques"].items():
                if "full_error" in result:
                    matrix = np.array(result.get("error_by_size_and_layer") or [[None]], float)
                    enough = np.flatnonzero(matrix.max(axis=1) >= NEARLY_ALL)
                    known = len(enough) and np.isfinite(matrix).all()
                    rows.append(
                        {
                            **dict(zip(IDENTITY, (index, task, model, run.n_layers), strict=True)),
                            "technique": technique,
                            "single_layer": matrix[0].max(),
                            "layers_to_revert": enough[0] + 1 if known else math.nan,
                            "clean_error": result.get("clean_error"),
                        }
                    )
        numbers = ["single_layer", "layers_to_revert", "clean_error"]
        table = pd.DataFrame(rows, columns=[*IDENTITY, "technique", *numbers])
        return table.astype(dict.fromkeys(numbers, "float64"))

    @cached_property
    def events(self) -> pd.DataFrame:
        """event, layer, depth (both NaN if it never happens), seeds, missing."""
        grouped = read_events(self.group.runs).groupby([*IDENTITY, "event"], sort=False)
        table = grouped["layer"].agg(layer="mean", seeds="size", missing="count").reset_index()
        table["missing"] = table["seeds"] - table["missing"]
        table.insert(6, "depth", relative_depth(table["layer"], table["layers"]))
        return table

    @cached_property
    def positions(self) -> pd.DataFrame:
        """state, layer, mean (of the noisy examples between the two centroids)."""
        rows = read_tables(self.group.runs, "centroids", ["model", "layer", "group", "mean"])
        noisy = rows[rows["group"] == "noisy"]
        return noisy.groupby([*IDENTITY, "state", "layer"], as_index=False)[["mean"]].mean()

    @cached_property
    def examples(self) -> pd.DataFrame:
        """Single examples that cross: seed, largest_step.

        What never goes over to its new class was not memorised as far as centroids can tell.
        """
        rows = read_tables(self.group.runs, "crossings", ["seed", "crossing", "largest_step"])
        return rows[rows["crossing"].notna()].drop(columns="crossing")

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know about the choice of runs, in sentences."""
        notes = describe_groups(self.groups, self.chosen)
        if self.part:
            notes.append(f"Only the {self.part} of layers were looked at.")
        parts = [control for control in self.controls if not control.whole_layers]
        reasons = {
            "as another run of the same task and model has more techniques, seeds or scores, or is "
            "newer": sorted(self.group.left_out, key=lambda run: run.path.name),
            "as `memloc localise` knows no task or training": self.found.localised,
            "as they are not of whole layers": parts,
            "as they are not results of `memloc run`": self.found.others,
            "as they are not finished": self.found.unfinished,
        }
        for reason, folders in reasons.items():
            if folders:
                names = ", ".join(folder.path.name for folder in folders)
                notes.append(f"Left out, {reason}: {names}.")
        differing = ", ".join(other_sections(self.group.runs.values()))
        if differing:
            notes.append(f"The runs differ in {differing}; scores may not be comparable.")
        weak = self.runs[self.runs["memorised_share"] < MEMORISED]
        if len(weak):
            names = ", ".join(weak["task"] + " " + weak["model"])
            notes.append(f"Less than {MEMORISED:.0%} of the noisy labels were memorised: {names}.")
        return tuple(notes)


def _over_seeds(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    return table.drop(columns="seed").groupby(by, sort=False, as_index=False).mean()


def read_grid(folder: Path, number: int | None = None) -> Grid:
    """Find the runs in a folder that may be compared; their tables are read when they are needed.

    Args:
        folder: One run, or a folder of runs.
        number: Which group of comparable runs; by default the largest.

    Raises:
        ResultsError: If there is no finished run or no such group, or a file is damaged.
    """
    found = find_runs(folder)
    groups = group_runs(found.runs)
    return Grid(folder, found, tuple(groups), choose_group(groups, number))


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
    return {
        "folder": str(grid.folder),
        "group": grid.chosen,
        "groups": [
            {
                "group": number,
                "runs": [run.path.name for run in group.runs.values()],
                "left_out": [run.path.name for run in group.left_out],
                "differences": group.differences(grid.group),
            }
            for number, group in enumerate(grid.groups, start=1)
        ],
        "notes": list(grid.notes),
        "runs": records(grid.runs.drop(columns="run")),
    }


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON data; a missing number is null."""
    known: Any = table.astype(object).where(table.notna(), None)
    return list(known.to_dict("records"))
