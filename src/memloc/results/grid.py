"""The results of many runs as tidy tables: tasks × models × techniques.

Layers of models of different depth are compared by relative depth, (layer − ½) / L: the middle of
the layer, where 0 is the input and 1 the output. Values are means over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.generalisation import GUESSES
from memloc.analysis.windows import centre_of_gravity, sizes_tried
from memloc.config import DEFAULT_TECHNIQUES
from memloc.results.folders import (
    ResultsError,
    RunFolder,
    damaged,
    look_through,
    need_results,
    unit_of,
)
from memloc.results.groups import Group, Name, group_runs, other_differences, twins_of
from memloc.tables import ACCURACY, CUT, MEMORISED, NEARLY_ALL
from memloc.techniques import all_tables, classes
from memloc.text import counted

UNMODIFIED = "memorised"
"""How tables call θ_M, as against θ_M with some layers swapped."""
IDENTITY = ["run", "task", "model", "layers"]
"""The first columns of every table of many runs."""
VALIDATION_SCORES = tuple(
    f"validation_{state}_{guess}" for state in ("original", "memorised") for guess in GUESSES
)
"""Validation accuracy of θ_O and of θ_M, rescaled by each way to guess; the paper names neither.

Where one is shown alone it is the first: what the model can do without wrong labels, relative to
the guessing that the generalisation score also uses."""


def read_tables(
    runs: Mapping[Name, RunFolder], name: str, columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """A table, or some columns of it, of all runs that have it; `IDENTITY` in front.

    A column `model` of the table itself (which state of the model) is called `state`.

    Raises:
        ResultsError: If one is damaged.
    """
    schema = all_tables()[name]
    types = schema.dtypes(columns or schema.columns_in("run"))
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
    columns = ["technique", "seed", "layer", "weight"]
    weights = read_tables(runs, "layers", columns)
    for index, run in enumerate(runs.values()):
        own = weights[weights["run"] == index]
        if own.empty or own.duplicated(columns[:3]).any():
            reason = "it is missing" if own.empty else "a layer has more than one weight"
            raise damaged(run.path / "layers.parquet", reason)
    return weights.sort_values(["run", *columns[:3]], kind="stable", ignore_index=True)


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
        mean_profile: M-CoG is that of the weights averaged over seeds, as in the program of the
            paper's authors, instead of the mean of the M-CoG of seeds.
        remarks: Why some of its runs are not looked at, in sentences.
    """

    folder: Path
    found: tuple[RunFolder, ...]
    groups: tuple[Group, ...]
    chosen: int
    mean_profile: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def group(self) -> Group:
        """The runs that are compared."""
        return self.groups[self.chosen - 1]

    def with_runs(self, names: Iterable[Name], *remarks: str) -> Grid:
        """The same with these of its runs alone, and why."""
        kept = set(names)
        runs = {name: run for name, run in self.group.runs.items() if name in kept}
        group = replace(self.group, runs=runs)
        groups = tuple(group if one is self.group else one for one in self.groups)
        return replace(self, groups=groups, remarks=(*self.remarks, *remarks))

    @cached_property
    def cautions(self) -> dict[str, list[str]]:
        """What keeps the numbers of single runs from meaning what they seem to mean, and of which.

        Sentences of `summary.json`; control benchmarks are named by their folder.
        """
        named = [(" ".join(name), run.summary) for name, run in self.group.runs.items()]
        found: dict[str, list[str]] = {}
        for name, summary in named + [
            (one.path.name, one.summary) for one in whole_controls(self.found)
        ]:
            for sentence in summary.get("caveats") or []:
                found.setdefault(sentence, []).append(name)
        return found

    @cached_property
    def control(self) -> dict[str, pd.DataFrame]:
        """Tables of the control benchmarks in the same folder; empty if there are none."""
        return read_controls(self.found)

    @cached_property
    def twins(self) -> dict[Name, RunFolder]:
        """The same tasks and models with two classes, or with all of them if these have two."""
        return twins_of(self.group, self.groups)

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
        """folder, seeds, and of each the numbers.

        These are memorised_share, cut_share, seconds, generalisation_score, `VALIDATION_SCORES`.
        """
        costs = read_tables(self.group.runs, "costs", ["seconds"])
        seconds = {run: rows["seconds"].sum() for run, rows in costs.groupby("run")}
        rows = []
        for index, ((task, model), run) in enumerate(self.group.runs.items()):
            scores = run.summary.get("scores") or {}
            of_state = scores.get("validation_score") or {}
            rows.append(
                {
                    **dict(zip(IDENTITY, (index, task, model, run.n_layers), strict=True)),
                    "folder": run.path.name,
                    "seeds": run.n_seeds,
                    "memorised_share": run.summary.get("memorised_share"),
                    "cut_share": run.summary.get("cut_share"),
                    "seconds": seconds.get(index),
                    "generalisation_score": scores.get("generalisation_score"),
                    **{
                        name: (of_state.get(state) or {}).get(guess)
                        for name in VALIDATION_SCORES
                        for _, state, guess in [name.split("_")]
                    },
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
        if self.mean_profile:
            centres = centres_of(self.weights.assign(seed=0)).dropna(subset="m_cog")
        else:
            centres = self.seed_centres
        return _over_seeds(centres, [*IDENTITY, "technique"])

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
                    tried = {*result.get("sizes_tried", sizes_tried(matrix))}
                    enough = np.flatnonzero(matrix.max(axis=1) >= NEARLY_ALL)[:1] + 1
                    known = len(enough) and tried >= {*range(1, enough[0] + 1)}
                    rows.append(
                        {
                            **dict(zip(IDENTITY, (index, task, model, run.n_layers), strict=True)),
                            "technique": technique,
                            "single_layer": matrix[0].max() if 1 in tried else math.nan,
                            "layers_to_revert": enough[0] if known else math.nan,
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
        notes = [*self._notes_on_groups(), *self.remarks]
        if self.mean_profile:
            notes.append("M-CoG is that of the layer weights averaged over seeds.")
        if self.part:
            notes.append(f"Only the {self.part} of layers were looked at.")
        finished = [one for one in self.found if one.summary]
        reasons = {
            "as another run of the same task and model has more techniques, seeds or scores, or is "
            "newer": sorted(self.group.left_out, key=lambda run: run.path.name),
            "as they are not of whole layers": parts_of_layers(finished),
            "as they are not results of `memloc run`": [
                one for one in finished if one.kind not in ("run", "control")
            ],
            "as they are not finished": [one for one in self.found if not one.summary],
        }
        for reason, folders in reasons.items():
            if folders:
                names = ", ".join(folder.path.name for folder in folders)
                notes.append(f"Left out, {reason}: {names}.")
        runs = list(self.group.runs.values())
        for sentence in sorted({run.outdated_words for run in runs} - {""}):
            old = [run.path.name for run in runs if run.outdated_words == sentence]
            places = "all runs" if len(old) == len(runs) else ", ".join(old)
            notes.append(f"In {places}: {sentence}")
        unknown = self.seed_weights[self.seed_weights["weight"].isna()]
        for technique, rows in unknown.groupby("technique"):
            new = [technique not in [one.name for one in runs[i].outdated] for i in rows["run"]]
            names = ", ".join(dict.fromkeys(rows[new]["task"] + " " + rows[new]["model"]))
            if names:
                notes.append(f"Some layers have no weight by {technique}, nor a centre: {names}.")
        differing = ", ".join(other_differences(self.group.runs.values()))
        if differing:
            notes.append(f"The runs differ in {differing}; scores may not be comparable.")
        weak = self.runs[self.runs["memorised_share"] < MEMORISED]
        if len(weak):
            names = ", ".join(weak["task"] + " " + weak["model"])
            notes.append(f"Less than {MEMORISED:.0%} of the noisy labels were memorised: {names}.")
        cut = self.runs[self.runs["cut_share"] > CUT]
        if len(cut):
            names = ", ".join(cut["task"] + " " + cut["model"])
            notes.append(f"More than {CUT:.0%} of the examples were too long and cut: {names}.")
        return tuple(notes)

    def _notes_on_groups(self) -> list[str]:
        """Which group is used, and how the others differ from it."""
        if len(self.groups) == 1:
            return []
        used = self.group
        words = [
            f"The runs have different settings; group {self.chosen} of {len(self.groups)} is used "
            f"({counted(len(used.runs), 'run')}); others can be chosen by number."
        ]
        pairs = {name: run for name, run in self.twins.items() if name in used.runs}
        several = [r for n, r in pairs.items() if max(r.n_classes, used.runs[n].n_classes) > 2]
        for number, group in enumerate(self.groups, start=1):
            if group is not used:
                differences = "; ".join(group.differences(used)) or "other models"
                if any(run in several for run in group.runs.values()):
                    differences += "; compared with the runs used, task by task"
                words.append(f"Group {number} ({counted(len(group.runs), 'run')}): {differences}.")
        return words


def _over_seeds(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    return table.drop(columns="seed").groupby(by, sort=False, as_index=False).mean()


def read_grid(folder: Path, number: int | None = None, mean_profile: bool = False) -> Grid:
    """Find the runs in a folder that may be compared; their tables are read when they are needed.

    By default it is the largest group of comparable runs, otherwise that of a number from 1.

    Raises:
        ResultsError: If there is no finished run or no such group, or a file is damaged.
    """
    found = look_through(folder)
    groups = tuple(group_runs(need_results(found, folder, "run")))
    if number is not None and not 1 <= number <= len(groups):
        there = "is only group 1" if len(groups) == 1 else f"are groups 1 to {len(groups)}"
        raise ResultsError(
            "it does not exist", setting="group", value=number, remedy=f"there {there}"
        )
    return Grid(folder, found, groups, number or 1, mean_profile)


def parts_of_layers(results: Iterable[RunFolder]) -> list[RunFolder]:
    """Control benchmarks whose techniques looked at parts of layers, unlike those of the paper."""
    controls = [one for one in results if one.kind == "control"]
    return [one for one in controls if unit_of(one.settings["control"]) != "layer"]


def whole_controls(results: Iterable[RunFolder]) -> list[RunFolder]:
    """Finished control benchmarks whose techniques looked at whole layers."""
    controls = [one for one in results if one.kind == "control" and one.summary]
    return [one for one in controls if one not in parts_of_layers(controls)]


def read_controls(results: Iterable[RunFolder]) -> dict[str, pd.DataFrame]:
    """All finished control benchmarks together: `accuracy`, and the tables of techniques.

    What was computed twice counts once, as the newest has it. Benchmarks of parts of layers are
    passed over: their scores are not of the same techniques.

    Raises:
        ResultsError: If a table is damaged or missing.
    """
    whole = whole_controls(results)
    own = [table for technique in classes().values() for table in technique.tables]
    found = {}
    for schema in (ACCURACY, *(table for table in own if "control" in table.of)):
        parts = []
        for one in sorted(whole, key=lambda folder: folder.written, reverse=True):
            table = one.table(schema.name)
            if table is None and schema == ACCURACY:
                raise damaged(one.path / "accuracy.parquet", "it is missing", "control")
            held_back = one.summary.get("held_back")
            # Tasks that were held back chose the settings of techniques, so they do not score them.
            if table is not None and held_back and schema.of == ("control",):
                chosen = table["task"].isin(held_back)
                table = table[~chosen if schema == ACCURACY else chosen]
            if table is not None and len(table):
                parts.append(table)
        if parts:
            joined = pd.concat(parts, ignore_index=True)
            place = joined.columns[joined.dtypes != "float64"].tolist()
            found[schema.name] = joined.drop_duplicates(place, ignore_index=True)
    return found


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
        "cautions": [
            {"caution": sentence, "runs": runs} for sentence, runs in grid.cautions.items()
        ],
        "runs": records(grid.runs.drop(columns="run")),
    }


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON data; a missing number is null."""
    known: Any = table.astype(object).where(table.notna(), None)
    return list(known.to_dict("records"))
