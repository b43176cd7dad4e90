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
from dataclasses import dataclass, replace
from functools import cache
from pathlib import PurePath
from typing import Any

from memloc.config import PARTS, Data, Model, Training, Windows
from memloc.results.folders import ResultsError, RunFolder
from memloc.techniques import PluginFailed, find, make, names, settings_of
from memloc.text import counted

DEFAULTS: dict[str, dict[str, Any]] = {
    "data": Data().model_dump(mode="json"),
    "windows": Windows().model_dump(mode="json"),
    "training": Training().model_dump(mode="json"),
    "model": Model().model_dump(mode="json"),
}
"""What a setting is in runs that do not mention it."""
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


@dataclass(frozen=True)
class Group:
    """Runs that may be compared, one per task and model.

    Attributes:
        runs: By task and model.
        left_out: Further runs of the same task and model.
        common: The settings all runs share.
        of_models: The settings all runs of a model share.
    """

    runs: dict[tuple[str, str], RunFolder]
    left_out: tuple[RunFolder, ...]
    common: Settings
    of_models: dict[str, Settings]

    @property
    def newest(self) -> float:
        """When its last run was written."""
        return max(run.written for run in self.runs.values())

    @property
    def binarised(self) -> bool:
        """Whether its tasks were cut to two classes."""
        return bool(self.common.get(BINARISE))

    @property
    def part(self) -> str | None:
        """What of the layers its techniques looked at, in words; None for whole layers."""
        return PARTS.get(str(self.common.get("windows.unit")))

    def is_twin_of(self, other: Group) -> bool:
        """Whether its runs are as those of `other`, but with or without `--binarise`."""
        return self.common == {**other.common, BINARISE: not other.binarised}

    def twins(self, other: Group) -> dict[tuple[str, str], RunFolder]:
        """Runs of `other` that could be here but for `--binarise`, by task and model."""
        if not other.is_twin_of(self):
            return {}
        theirs = other.of_models
        trained_alike = {model for model in theirs if self.of_models.get(model) == theirs[model]}
        unknown_here = theirs.keys() - self.of_models.keys()
        models = trained_alike | unknown_here
        return {name: run for name, run in other.runs.items() if name[1] in models}

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
    names = _names(runs)
    groups: list[Group] = []
    for common, members in _split(runs, ("data", "windows", "techniques")):
        ways: dict[str, list[tuple[Settings, list[RunFolder]]]] = {}
        for model in dict.fromkeys(names[run.path][1] for run in members):
            own = [run for run in members if names[run.path][1] == model]
            ways[model] = sorted(_split(own, ("training", "model")), key=_size, reverse=True)
        for rank in range(max(len(of_model) for of_model in ways.values())):
            chosen = {model: way[min(rank, len(way) - 1)] for model, way in ways.items()}
            together = [run for _, own in chosen.values() for run in own]
            group = _without_repeats(together, names)
            groups.append(
                replace(group, common=common, of_models={m: own for m, (own, _) in chosen.items()})
            )
    return sorted(groups, key=lambda group: _rank(group, groups), reverse=True)


def _rank(group: Group, groups: Sequence[Group]) -> tuple[tuple[int, bool, float], bool]:
    worth = _worth(group)
    twins = [_worth(other) for other in groups if other.is_twin_of(group)]
    if group.binarised and twins:
        worth = min(worth, max(twins))
    return worth, not group.binarised


def _worth(group: Group) -> tuple[int, bool, float]:
    return len(group.runs), group.part is None, group.newest


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
    known = {*DEFAULTS, "techniques", "seeds", "device"}
    seen: dict[str, list[Any]] = {}
    for run in runs:
        for section, value in run.settings.items():
            if section not in known and isinstance(value, dict):
                for key, setting in _flat(section, value).items():
                    values = seen.setdefault(key, [])
                    values += [] if setting in values else [setting]
    return sorted(key for key, values in seen.items() if len(values) > 1)


def _split(
    runs: Sequence[RunFolder], sections: tuple[str, ...]
) -> list[tuple[Settings, list[RunFolder]]]:
    """The runs by equal settings in these sections."""
    parts: list[tuple[Settings, list[RunFolder]]] = []
    for run in runs:
        settings: Settings = {}
        for section in sections:
            own = run.settings.get(section)
            usual = _usual_techniques() if section == "techniques" else DEFAULTS[section]
            settings |= _flat(section, usual)
            settings |= _flat(section, own if isinstance(own, dict) else {})
        free = FREE | _without_effect()
        settings = {key: value for key, value in settings.items() if key not in free}
        same = next((members for other, members in parts if other == settings), None)
        if same is None:
            parts.append((settings, [run]))
        else:
            same.append(run)
    return parts


@cache
def _usual_techniques() -> dict[str, dict[str, Any]]:
    """Settings of all techniques and explanations; a run without one does not contradict others."""
    return settings_of(make(name) for name in _importable())


@cache
def _without_effect() -> set[str]:
    """Settings of techniques that only add tables."""
    return {
        f"techniques.{n}.{setting}" for n in _importable() for setting in find(n).without_effect
    }


def _importable() -> list[str]:
    found = []
    for name in (*names(), *names("explanation")):
        with suppress(PluginFailed):
            found.append(find(name).name)
    return found


def _size(way: tuple[Settings, list[RunFolder]]) -> tuple[int, float]:
    tasks = {run.summary["task"] for run in way[1]}
    return len(tasks), max(run.written for run in way[1])


def _flat(prefix: str, values: Mapping[str, Any]) -> Settings:
    flat: Settings = {}
    for name, value in values.items():
        key = f"{prefix}.{name}"
        flat |= _flat(key, value) if isinstance(value, dict) else {key: value}
    return flat


def _without_repeats(runs: Sequence[RunFolder], names: Mapping[PurePath, tuple[str, str]]) -> Group:
    """One run per task and model: that with most techniques, seeds and scores, then the newest."""
    best: dict[tuple[str, str], RunFolder] = {}

    def worth(run: RunFolder) -> tuple[float, ...]:
        extras = run.explained + run.has_generalisation
        return len(run.techniques), run.n_seeds, extras, run.written

    ranked = sorted(runs, key=worth, reverse=True)
    for run in ranked:
        best.setdefault(names[run.path], run)
    kept = {run.path for run in best.values()}
    left_out = tuple(run for run in runs if run.path not in kept)
    return Group(dict(sorted(best.items())), left_out, {}, {})


def _names(runs: Sequence[RunFolder]) -> dict[PurePath, tuple[str, str]]:
    """Task and model of each run; files or folders of the same name are told apart by where."""
    tasks = _told_apart(
        [(run.summary["task"], str(run.settings["data"].get("task", ""))) for run in runs]
    )
    models = []
    for run in runs:
        model = run.settings.get("model")
        typed = str(model.get("name", "")) if isinstance(model, dict) else ""
        models.append((run.summary["model"], typed))
    named = zip(runs, tasks, _told_apart(models), strict=True)
    return {run.path: (task, model) for run, task, model in named}


def _told_apart(names: Sequence[tuple[str, str]]) -> list[str]:
    """Names as they are shown, with a path beside them where two places have one name."""
    places: dict[str, list[tuple[str, ...]]] = {}
    for shown, typed in names:
        parts = PurePath(typed).parts
        if _is_file(parts) and not _known_place(parts, places.get(shown, [])):
            places.setdefault(shown, []).append(parts)
    found = []
    for shown, typed in names:
        place = _known_place(PurePath(typed).parts, places.get(shown, []))
        ambiguous = len(places.get(shown, [])) > 1 and place is not None
        found.append(f"{shown} ({PurePath(*place)})" if ambiguous and place else shown)
    return found


def _known_place(
    parts: tuple[str, ...], known: Sequence[tuple[str, ...]]
) -> tuple[str, ...] | None:
    """The place that a path may be: relative and absolute, it may be the same file."""
    if not _is_file(parts):
        return None
    for other in known:
        shorter = min(len(parts), len(other))
        if parts[-shorter:] == other[-shorter:]:
            return other
    return None


def _is_file(parts: tuple[str, ...]) -> bool:
    """Whether something typed is a file or folder, not the name of a known task or model."""
    return len(parts) > 1 or (len(parts) == 1 and bool(PurePath(parts[0]).suffix))


def _compare(own: Settings, other: Settings) -> list[str]:
    keys = own.keys() | other.keys()
    return [
        f"{key} is {_value(own.get(key))} instead of {_value(other.get(key))}"
        for key in keys
        if own.get(key) != other.get(key)
    ]


def _value(value: Any) -> str:
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)
