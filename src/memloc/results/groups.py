"""Which runs may be compared: those whose settings are equal where they have to be.

The same for all runs of a group: the settings of the data (how many labels were flipped, by which
seed, how many examples) and of the techniques. The same for all runs of one model: how it was
trained. Which task and which seeds is what the grid is about.

Runs with `--binarise` have a group of their own, the *twin* of that with all classes; these are
compared task by task (`memloc.results.agreement`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from memloc.config import PARTS, Data, Model, Training, Windows
from memloc.results.folders import ResultsError, RunFolder
from memloc.techniques import PluginFailed, find, make, names, settings_of
from memloc.text import counted

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
    # Memory; the results are the same.
    "training.micro_batch_size",
}
"""Settings that may differ between runs that are compared."""
BINARISE = "data.binarise"

Settings = dict[str, Any]
Name = tuple[str, str]
"""Task and model."""


@dataclass(frozen=True)
class Group:
    """Runs that may be compared, one per task and model.

    Attributes:
        runs: By task and model.
        left_out: Further runs of the same task and model.
        common: The settings all runs share.
        of_models: The settings all runs of a model share.
    """

    runs: dict[Name, RunFolder]
    left_out: tuple[RunFolder, ...]
    common: Settings
    of_models: dict[str, Settings]

    @property
    def binarised(self) -> bool:
        """Whether its tasks were cut to two classes."""
        return bool(self.common.get(BINARISE))

    @property
    def part(self) -> str | None:
        """What of the layers its techniques looked at, in words; None for whole layers."""
        return PARTS.get(str(self.common.get("windows.unit")))

    @property
    def worth(self) -> tuple[int, bool, float]:
        """By which groups are ordered: how many runs, whole layers or parts, and how new."""
        newest = max(run.written for run in self.runs.values())
        return len(self.runs), self.part is None, newest

    def is_twin_of(self, other: Group) -> bool:
        """Whether its runs are as those of `other`, but with or without `--binarise`."""
        return self.common == {**other.common, BINARISE: not other.binarised}

    def twins(self, other: Group) -> dict[Name, RunFolder]:
        """Runs of `other` that could be here but for `--binarise`, by task and model."""
        if not other.is_twin_of(self):
            return {}
        alike = {m for m, way in other.of_models.items() if self.of_models.get(m, way) == way}
        return {name: run for name, run in other.runs.items() if name[1] in alike}

    def differences(self, other: Group) -> list[str]:
        """What is other here than in `other`, in words."""
        words = _compare(self.common, other.common)
        for model in self.of_models.keys() & other.of_models.keys():
            of_model = _compare(self.of_models[model], other.of_models[model])
            words += [f"{sentence} for {model}" for sentence in of_model]
        return sorted(words)


def group_runs(runs: Sequence[RunFolder]) -> list[Group]:
    """The groups, the one with most runs first, then those of whole layers, then the newest.

    Binarised runs are there to be compared with those of all classes, so their group never comes
    before its twin, however many they are.

    A model trained in several ways is in one way in each group, those of most runs together. A
    model trained in fewer ways is in the further groups as it is in the one before.
    """
    named = _names(runs)
    groups: list[Group] = []
    for common, members in _split(runs, COMMON):
        ways: dict[str, list[tuple[Settings, list[RunFolder]]]] = {}
        for model in dict.fromkeys(named[run.path][1] for run in members):
            own = [run for run in members if named[run.path][1] == model]
            ways[model] = sorted(_split(own, OF_MODEL), key=_size, reverse=True)
        for rank in range(max(len(of_model) for of_model in ways.values())):
            chosen = {model: way[min(rank, len(way) - 1)] for model, way in ways.items()}
            together = [run for _, own in chosen.values() for run in own]
            best = _without_repeats(together, named)
            left_out = tuple(run for run in together if run is not best[named[run.path]])
            of_models = {model: settings for model, (settings, _) in chosen.items()}
            groups.append(Group(best, left_out, common, of_models))

    def rank_of(group: Group) -> tuple[tuple[int, bool, float], bool]:
        twins = [other.worth for other in groups if other.is_twin_of(group)]
        held_back = group.binarised and twins
        return min(group.worth, max(twins)) if held_back else group.worth, not group.binarised

    return sorted(groups, key=rank_of, reverse=True)


def choose_group(groups: Sequence[Group], number: int | None) -> int:
    """The number (from 1) of the group to use.

    Raises:
        ResultsError: If there is no such group.
    """
    if number is None:
        return 1
    if not 1 <= number <= len(groups):
        there = "is only group 1" if len(groups) == 1 else f"are groups 1 to {len(groups)}"
        raise ResultsError(
            "it does not exist", setting="group", value=number, remedy=f"there {there}"
        )
    return number


def describe_groups(groups: Sequence[Group], chosen: int) -> list[str]:
    """In words: which group is used, and how the others differ from it."""
    if len(groups) == 1:
        return []
    used = groups[chosen - 1]
    words = [
        f"The runs have different settings; group {chosen} of {len(groups)} is used "
        f"({counted(len(used.runs), 'run')}); others can be chosen by number."
    ]
    for number, group in enumerate(groups, start=1):
        if group is not used:
            differences = "; ".join(group.differences(used)) or "other models"
            twins = used.twins(group)
            shared = [(used.runs[name], twins[name]) for name in used.runs.keys() & twins.keys()]
            if any(max(run.n_classes for run in pair) > 2 for pair in shared):
                differences += "; compared with the runs used, task by task"
            words.append(f"Group {number} ({counted(len(group.runs), 'run')}): {differences}.")
    return words


def other_sections(runs: Iterable[RunFolder]) -> list[str]:
    """Settings beside those that decide the groups, in which the given runs differ, by name."""
    known = {*COMMON, *OF_MODEL, "seeds", "device"}
    seen: dict[str, set[str]] = {}
    for run in runs:
        for section, value in run.settings.items():
            if section not in known and isinstance(value, dict):
                for key, setting in _flat(section, value).items():
                    seen.setdefault(key, set()).add(repr(setting))
    return sorted(key for key, values in seen.items() if len(values) > 1)


def _split(
    runs: Sequence[RunFolder], sections: Sequence[str]
) -> list[tuple[Settings, list[RunFolder]]]:
    """The runs by equal settings in these sections."""
    defaults, free = _defaults()
    parts: dict[str, tuple[Settings, list[RunFolder]]] = {}
    for run in runs:
        settings: Settings = {}
        for section in sections:
            settings |= _flat(section, defaults[section])
            settings |= _flat(section, run.settings.get(section) or {})
        settings = {key: value for key, value in settings.items() if key not in free}
        parts.setdefault(repr(sorted(settings.items())), (settings, []))[1].append(run)
    return list(parts.values())


@cache
def _defaults() -> tuple[dict[str, dict[str, Any]], set[str]]:
    """What a setting is in runs that do not mention it; and settings that may differ.

    A run without a technique does not contradict others. Some settings of techniques only add
    tables.
    """
    installed = []
    for name in (*names(), *names("explanation")):
        with suppress(PluginFailed):
            installed.append(find(name))
    sections = {"data": Data(), "windows": Windows(), "training": Training(), "model": Model()}
    defaults = {name: section.model_dump(mode="json") for name, section in sections.items()}
    defaults["techniques"] = settings_of(make(one.name) for one in installed)
    idle = {f"techniques.{one.name}.{key}" for one in installed for key in one.without_effect}
    return defaults, FREE | idle


def _size(way: tuple[Settings, list[RunFolder]]) -> tuple[int, float]:
    tasks = {run.summary["task"] for run in way[1]}
    return len(tasks), max(run.written for run in way[1])


def _flat(prefix: str, values: Mapping[str, Any]) -> Settings:
    flat: Settings = {}
    for name, value in values.items():
        key = f"{prefix}.{name}"
        flat |= _flat(key, value) if isinstance(value, dict) else {key: value}
    return flat


def _without_repeats(
    runs: Sequence[RunFolder], named: Mapping[Path, Name]
) -> dict[Name, RunFolder]:
    """One run per task and model: that with most techniques, seeds and scores, then the newest."""

    def worth(run: RunFolder) -> tuple[float, ...]:
        extras = run.has("events") + run.has("memorisation_map")
        return len(run.techniques), run.n_seeds, extras, run.written

    best = {named[run.path]: run for run in sorted(runs, key=worth)}
    return dict(sorted(best.items()))


def _names(runs: Sequence[RunFolder]) -> dict[Path, Name]:
    """Task and model of each run; files or folders of the same name are told apart by where."""
    tasks = [(run.summary["task"], str(run.settings["data"]["task"])) for run in runs]
    models = [
        (run.summary["model"], str((run.settings.get("model") or {}).get("name", "")))
        for run in runs
    ]
    both = zip(runs, _told_apart(tasks), _told_apart(models), strict=True)
    return {run.path: (task, model) for run, task, model in both}


def _told_apart(names: Sequence[tuple[str, str]]) -> list[str]:
    """Names as they are shown, with a path beside them where two places have one name.

    A relative and an absolute path may be the same file: they are if one ends with the other.
    """
    places: dict[str, list[tuple[str, ...]]] = {}
    found = []
    for shown, typed in names:
        parts = PurePath(typed).parts
        is_file = len(parts) > 1 or bool(PurePath(typed).suffix)
        known = places.setdefault(shown, [])
        same = (p for p in known if all(a == b for a, b in zip(p[::-1], parts[::-1], strict=False)))
        place = next(same, parts) if is_file else None
        if place is not None and place not in known:
            known.append(place)
        found.append((shown, place))
    return [
        f"{shown} ({PurePath(*place)})" if place and len(places[shown]) > 1 else shown
        for shown, place in found
    ]


def _compare(own: Settings, other: Settings) -> list[str]:
    return [
        f"{key} is {_value(own.get(key))} instead of {_value(other.get(key))}"
        for key in own.keys() | other.keys()
        if own.get(key) != other.get(key)
    ]


def _value(value: Any) -> str:
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)
