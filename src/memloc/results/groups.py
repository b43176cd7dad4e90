"""Which runs may be compared: those whose settings do not contradict each other.

The same for all runs of a group: the settings of the data (how many labels were flipped, by which
seed, how many examples) and of the techniques. The same for all runs of one model: how it was
trained. Which task and which seeds is what the grid is about. What a run does not mention, such as
the settings of a technique that it does not have, contradicts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from typing import Any

from memloc.config import PARTS, leaves
from memloc.results.folders import RunFolder
from memloc.techniques import classes

COMMON = ("data", "windows", "techniques")
"""Sections of settings that all runs of a group share."""
OF_MODEL = ("training", "model")
"""Those that all runs of a model share."""
FREE = {
    # Which task, and where its examples are found.
    *("data.task", "data.data_dir", "data.validation", "data.text_column", "data.pair_column"),
    *("data.label_column", "data.original_label_column"),
    # Which model.
    *("model.name", "model.trust_remote_code"),
    # Memory and time; the results are the same, up to rounding.
    *("training.micro_batch_size", "training.compile"),
}
"""Settings that may differ between runs that are compared."""
BINARISE = "data.binarise"

Settings = dict[str, Any]
"""By dotted name; those of single models as `training.epochs for minilm`."""
Name = tuple[str, str]
"""Task and model."""


@dataclass(frozen=True)
class Group:
    """Runs that may be compared, one per task and model, and what they share."""

    runs: dict[Name, RunFolder]
    left_out: tuple[RunFolder, ...]
    """Further runs of the same task and model."""
    settings: Settings

    @property
    def binarised(self) -> bool:
        """Whether its tasks were cut to two classes."""
        return bool(self.settings.get(BINARISE))

    @property
    def part(self) -> str | None:
        """What of the layers its techniques looked at, in words; None for whole layers."""
        return PARTS.get(str(self.settings.get("windows.unit")))

    def differences(self, other: Group) -> list[str]:
        """What is other here than in `other`, in words."""
        return [
            f"{key} is {_value(self.settings[key])} instead of {_value(other.settings[key])}"
            for key in sorted(self.settings.keys() & other.settings.keys())
            if self.settings[key] != other.settings[key]
        ]


def group_runs(runs: Sequence[RunFolder]) -> list[Group]:
    """The groups, the one with most runs first, then those of whole layers, then the newest.

    Binarised runs are there to be compared with those of all classes, so they come last.

    A model trained in several ways is in one way in each group, those of most runs together. What
    contradicts none of them is in several groups.
    """
    names = dict(zip((run.path for run in runs), _names(runs), strict=True))
    ways: dict[str, tuple[Settings, list[RunFolder]]] = {}
    for run in runs:
        settings = compared_settings(run, names[run.path][1])
        ways.setdefault(repr(sorted(settings.items())), (settings, []))[1].append(run)
    largest_first = sorted(
        ways.values(),
        key=lambda way: (len({names[run.path] for run in way[1]}), _newest(way[1])),
        reverse=True,
    )
    groups, left = [], largest_first
    while left:
        shared: Settings = {}
        together: list[RunFolder] = []
        for settings, members in [*left, *(way for way in largest_first if way not in left)]:
            if agree(settings, shared):
                shared |= settings
                together += members
        left = [way for way in left if not agree(way[0], shared)]
        best = {names[run.path]: run for run in sorted(together, key=_worth)}
        left_out = tuple(run for run in together if run is not best[names[run.path]])
        groups.append(Group(dict(sorted(best.items())), left_out, shared))

    def rank(group: Group) -> tuple[Any, ...]:
        newest = _newest(group.runs.values())
        return not group.binarised, len(group.runs), group.part is None, newest

    return sorted(groups, key=rank, reverse=True)


def twins_of(group: Group, others: Iterable[Group]) -> dict[Name, RunFolder]:
    """Runs that could be in a group but for `data.binarise`, by task and model."""
    flipped = {**group.settings, BINARISE: not group.binarised}
    found: dict[Name, RunFolder] = {}
    for other in others:
        for name, run in other.runs.items():
            if agree(compared_settings(run, name[1]), flipped):
                found.setdefault(name, run)
    return found


def agree(one: Settings, other: Settings) -> bool:
    """Whether no setting of both is different."""
    return all(one[key] == other[key] for key in one.keys() & other.keys())


def compared_settings(run: RunFolder, model: str) -> Settings:
    """The settings of a run that decide with which others it may be compared."""
    found: Settings = {}
    for section in (*COMMON, *OF_MODEL):
        for key, value in leaves(run.settings.get(section) or {}, section):
            if key not in FREE | _settings("without_effect"):
                shared = section in COMMON and key not in _settings("of_model")
                found[key if shared else f"{key} for {model}"] = value
    return found


def other_differences(runs: Iterable[RunFolder]) -> list[str]:
    """Settings beside those that decide the groups, in which runs differ, by name."""
    known = {*COMMON, *OF_MODEL, "seeds", "device"}
    seen: dict[str, set[str]] = {}
    for run in runs:
        for section, values in run.settings.items():
            if section not in known and isinstance(values, dict):
                for key, value in leaves(values, section):
                    seen.setdefault(key, set()).add(repr(value))
    return sorted(key for key, values in seen.items() if len(values) > 1)


@cache
def _settings(kind: str) -> set[str]:
    """Those settings of techniques that only add tables, or those that belong to a model."""
    return {
        f"techniques.{technique.name}.{key}"
        for technique in classes().values()
        for key in getattr(technique, kind)
    }


def _newest(runs: Iterable[RunFolder]) -> float:
    return max(run.written for run in runs)


def _worth(run: RunFolder) -> tuple[float, ...]:
    """Of several runs of a task and model, the one with most techniques, seeds and scores counts.

    Then the newest.
    """
    extras = run.has("events") + run.has("memorisation_map")
    return len(run.techniques), run.n_seeds, extras, run.written


def _names(runs: Sequence[RunFolder]) -> list[Name]:
    """Task and model of each run; files or folders of the same name are told apart by where."""
    tasks = [(run.summary["task"], str(run.settings["data"]["task"])) for run in runs]
    models = [
        (run.summary["model"], str((run.settings.get("model") or {}).get("name", "")))
        for run in runs
    ]
    return list(zip(_told_apart(tasks), _told_apart(models), strict=True))


def _told_apart(names: Sequence[tuple[str, str]]) -> list[str]:
    """Names as they are shown, with a path beside them where two places have one name."""
    places: dict[str, set[str]] = {}
    for shown, typed in names:
        path = PurePath(typed)
        if len(path.parts) > 1 or path.suffix:
            places.setdefault(shown, set()).add(typed)
    return [
        f"{shown} ({typed})" if len(of := places.get(shown, set())) > 1 and typed in of else shown
        for shown, typed in names
    ]


def _value(value: Any) -> str:
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)
