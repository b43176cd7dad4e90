"""Experiment files: from models × tasks, with exceptions, to the settings of every cell.

The keys of a file are the settings (`memloc.config`, and those of techniques by name), once for all
cells, in `grids` for some of them, and in `overrides` for exceptions. Every complaint says where in
the file it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memloc.config import (
    MOST_EPOCHS,
    ControlRun,
    Data,
    Execution,
    Model,
    Run,
    Settings,
    leaves,
    merge,
)
from memloc.data.load import is_downloaded, named_tasks
from memloc.engine import settings_file
from memloc.engine.complete import as_mapping, complete_control, complete_run, merge_given
from memloc.engine.progress import KIND_WORDS
from memloc.errors import ConfigError, MemlocError, nearest
from memloc.models.names import KNOWN_MODELS
from memloc.techniques import make, names

Tree = dict[str, Any]
CELLS = tuple(name for name in Run.model_fields if name not in ("model", "device"))
"""What a file, a grid or an exception can say about its cells, beside settings of techniques."""
SHARED = ("data", "training", "windows")
"""What the control benchmark takes from the sweep."""
WRITTEN = "written"
"""Key under which an entry keeps what its model or task is called in the file."""


@dataclass(frozen=True)
class SweepCell:
    """A model and a task, as they are called in the file, and what to do with them."""

    model: str
    task: str
    config: Run


@dataclass(frozen=True)
class Sweep:
    """An experiment: cells, perhaps a control benchmark, and where to compute them."""

    name: str
    cells: tuple[SweepCell, ...]
    control: ControlRun | None
    execution: Execution

    def replace_execution(self, **values: Any) -> Sweep:
        """The same elsewhere; ``None`` means 'leave as it is'."""
        execution = self.execution.replace(**values)
        cells = tuple(
            replace(cell, config=cell.config.replace(device=execution.device))
            for cell in self.cells
        )
        control = self.control and self.control.replace(device=execution.device)
        return replace(self, execution=execution, cells=cells, control=control)

    def resolved(self) -> str:
        """As an experiment file that leaves nothing open: every cell is a grid."""
        found: Tree = {"name": self.name}
        for cell in self.cells:
            said = _dump(cell.config)
            grid = {"models": [said.pop("model")], "tasks": [said.pop("data")], **said}
            found.setdefault("grids", []).append(grid)
        if self.control is not None:
            found["control"] = _dump(self.control)
        found["execution"] = self.execution.model_dump(mode="json", exclude_none=True)
        return settings_file.write(found)


def _dump(settings: Settings) -> Tree:
    return settings.model_dump(mode="json", exclude={"device"}, exclude_none=True)


def read_sweep(path: Path, data_dir: Path | None = None) -> Sweep:
    """An experiment from a file.

    Args:
        path: The file.
        data_dir: Folder with local copies of tasks, whatever the file says.

    Raises:
        ConfigError: If the file is missing, or makes no sense.
    """
    text = settings_file.read_text(path)
    return parse_sweep(text, path.name, path.resolve().parent, path.stem, data_dir)


def parse_sweep(
    text: str, file: str, base: Path, name: str = "sweep", data_dir: Path | None = None
) -> Sweep:
    """An experiment from the text of a file.

    Args:
        text: YAML.
        file: What the file is called in complaints.
        base: Relative paths in the file start here.
        name: Of the sweep, if the file gives none.
        data_dir: As for `read_sweep`.

    Raises:
        ConfigError: If it makes no sense.
    """
    top = settings_file.parse(text, file)
    try:
        return _Reader(base, data_dir).sweep(top, name)
    except MemlocError as error:
        # A file is a front end of its own: its settings are written as they are.
        raise ConfigError(f"{file}: {error}") from None


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Complaints inside are about a place in the file, or a setting below it."""
    try:
        yield
    except MemlocError as error:
        if error.setting is None:
            error.setting = place or None
        elif place:
            error.below(place)
        raise


@dataclass(frozen=True)
class _Override:
    """Settings of some cells; it wins over others if it names both models and tasks."""

    place: str
    models: tuple[str, ...] | None
    tasks: tuple[str, ...] | None
    changed: Tree

    def selects(self, model: str, task: str | None) -> bool:
        """Whether it is about a cell; without a task, whether it is about a model everywhere."""
        return (self.models is None or model in self.models) and (
            self.tasks is None or task in self.tasks
        )

    def check_selects(self, cells: Sequence[SweepCell]) -> None:
        """It is about at least one cell, by every name it has."""
        for key, said, there in (
            ("models", self.models, dict.fromkeys(cell.model for cell in cells)),
            ("tasks", self.tasks, dict.fromkeys(cell.task for cell in cells)),
        ):
            for name in said or ():
                if name not in there:
                    raise ConfigError(
                        f"no cell has {name!r}",
                        setting=f"{self.place}.{key}",
                        remedy=nearest(name, there),
                    )
        if not any(self.selects(cell.model, cell.task) for cell in cells):
            raise ConfigError(
                "it is about no cell: its models and tasks are never together in a grid",
                setting=self.place,
            )


def _apply(overrides: Sequence[_Override], settings: Tree, model: str, task: str | None) -> Tree:
    """The settings of a cell, or of a model everywhere, with their exceptions."""
    ours = [one for one in overrides if one.selects(model, task)]
    specific = [one.models is not None and one.tasks is not None for one in ours]
    for wanted in (False, True):
        same = [one for one, both in zip(ours, specific, strict=True) if both == wanted]
        said: dict[str, tuple[Any, _Override]] = {}
        for override in same:
            for key, value in leaves(override.changed):
                before, other = said.setdefault(key, (value, override))
                if before != value:
                    cell = f"{model} on {task}" if task else model
                    raise ConfigError(
                        f"{other.place} and {override.place} contradict each other: {key} of "
                        f"{cell} is {before!r} in one and {value!r} in the other",
                        remedy="name models and tasks in the one that shall win",
                    )
            settings = merge_given(settings, override.changed)
    return settings


@dataclass(frozen=True)
class _Reader:
    """Reads a file; relative paths in it start at `base`."""

    base: Path
    data_dir: Path | None

    def sweep(self, top: Any, usual_name: str) -> Sweep:
        if not isinstance(top, dict):
            raise ConfigError(
                "it is not a mapping",
                remedy="it needs at least `models:` and `tasks:`, as in `memloc sweep builtin "
                "--show`",
            )
        above = ("name", "grids", "overrides", "control", "execution")
        name = _checked_name(top.get("name", usual_name), "name" in top)
        said = {key: value for key, value in top.items() if key not in above}
        defaults = self.scope(said, "", more=above)
        grids = [
            merge_given(defaults, self.scope(grid, place))
            for place, grid in _numbered(top, "grids")
        ] or [defaults]
        overrides = [self.override(one, place) for place, one in _numbered(top, "overrides")]
        with _at("execution"):
            execution = Execution(**_mapping(top.get("execution", {})))
            kinds = ("default", *KIND_WORDS)
            for kind in execution.ray.resources:
                if kind not in kinds:
                    raise ConfigError(
                        "there is no such kind of jobs",
                        setting=f"ray.resources.{kind}",
                        remedy=nearest(kind, kinds),
                    )
        only_control = "control" in top and "grids" not in top and "tasks" not in top
        cells = () if only_control else self.cells(grids, overrides, execution)
        control = None
        if "control" in top:
            control = self.control(top["control"], defaults, grids, overrides)
            control = control.replace(device=execution.device)
        return Sweep(name, cells, control, execution)

    def scope(self, said: Any, place: str, more: Sequence[str] = ()) -> Tree:
        """What a file, a grid or an exception says; every setting is checked by itself."""
        found: Tree = {}
        with _at(place):
            for key, value in _mapping(said).items():
                found[key] = self.setting(key, value, more)
        return found

    def setting(self, key: str, value: Any, more: Sequence[str]) -> Any:
        if key == "models":
            return self.models(value)
        if key == "tasks":
            return [self.task(entry, at) for at, entry in _entries(value, "tasks")]
        if key == "techniques":
            chosen = as_mapping(value if isinstance(value, list | dict) else [value])
            for name, settings in chosen.items():
                make(name, settings)
            return chosen
        if key in (*names(), *names("explanation")):
            with _at(key):
                own = _mapping(value)
            make(key, own)
            return own
        if key not in CELLS:
            known = ("models", "tasks", *CELLS, *more, *names(), *names("explanation"))
            raise ConfigError("there is no such setting", setting=key, remedy=nearest(key, known))
        # One checkpoint per epoch at most: how many epochs there are shows in the cells.
        room = {"training": {"epochs": MOST_EPOCHS}} if key == "checkpoints" else {}
        Run(**{**room, key: value})
        return self.placed(value) if key == "data" else value

    def models(self, value: Any) -> list[Tree]:
        return [self.model(entry, at) for at, entry in _entries(value, "models")]

    def model(self, entry: Any, place: str) -> Tree:
        with _at(place):
            said = _named(entry, "name", Model)
        name = said["name"]
        local = name not in KNOWN_MODELS and (name[0] in "./~" or (self.base / name).is_dir())
        return {**said, "name": self.path(name) if local else name, WRITTEN: name}

    def task(self, entry: Any, place: str) -> Tree:
        with _at(place):
            said = _named(entry, "task", Data)
        return {**self.placed(said), WRITTEN: said["task"]}

    def placed(self, data: Any) -> Tree:
        """The same with absolute paths."""
        found = dict(data)
        for key in ("validation", "data_dir"):
            if found.get(key) is not None:
                found[key] = self.path(str(found[key]))
        if "task" in found:
            found["task"] = self.placed_task(found["task"])
        return found

    def placed_task(self, name: str) -> str:
        """A file's absolute path; other names as they are."""
        is_file = len(Path(name).parts) > 1 or Path(name).suffix or (self.base / name).exists()
        return self.path(name) if is_file and name not in named_tasks() else name

    def path(self, name: str) -> str:
        return str(self.base / Path(name).expanduser())

    def override(self, said: Any, place: str) -> _Override:
        """For which cells, and what."""
        with _at(place):
            tree = _mapping(said)
            models, tasks = (
                tuple(_checked_text(name, at) for at, name in _entries(tree[key], key))
                if key in tree
                else None
                for key in ("models", "tasks")
            )
            if models is None and tasks is None:
                raise ConfigError(
                    "it does not say for which cells", remedy="add models, tasks or both"
                )
            model = _mapping(tree.get("model", {}))
            with _at("model"):
                if "name" in model:
                    raise ConfigError("it cannot be changed here", setting="name")
                Model(**model)
            if "task" in _mapping(tree.get("data", {})):
                raise ConfigError(
                    "it cannot be changed here", setting="data.task", remedy="add a grid for it"
                )
        rest = {k: v for k, v in tree.items() if k not in ("models", "tasks", "model")}
        changed = self.scope(rest, place, more=("model",))
        if model:
            changed["model"] = model
        if not changed:
            raise ConfigError(
                "it changes nothing", setting=place, remedy="add training, data or other settings"
            )
        return _Override(place, models, tasks, changed)

    def cells(
        self, grids: Sequence[Tree], overrides: Sequence[_Override], execution: Execution
    ) -> tuple[SweepCell, ...]:
        found: dict[str, SweepCell] = {}
        for number, grid in enumerate(grids):
            for key in ("models", "tasks"):
                if key not in grid:
                    where = f"grids[{number}]" if len(grids) > 1 else "the experiment"
                    raise ConfigError(f"{where} names no {key}, so there is nothing to do")
            shared = {k: v for k, v in grid.items() if k not in ("models", "tasks")}
            for model in grid["models"]:
                for task in grid["tasks"]:
                    names_ = model[WRITTEN], task[WRITTEN]
                    data = merge(grid.get("data", {}), task)
                    settings = _apply(overrides, {**shared, "model": model, "data": data}, *names_)
                    settings["data"] = self.local_copies(_without_names(settings["data"]))
                    settings["model"] = _without_names(settings["model"])
                    settings["device"] = execution.device
                    config = complete_run(settings, strict=False)
                    found.setdefault(config.model_dump_json(), SweepCell(*names_, config))
        cells = tuple(found.values())
        for override in overrides:
            override.check_selects(cells)
        return cells

    def local_copies(self, data: Tree) -> Tree:
        """Local copies are of downloaded tasks alone."""
        if not is_downloaded(data["task"]):
            return {**data, "data_dir": None}
        return data if self.data_dir is None else {**data, "data_dir": self.data_dir}

    def control(
        self,
        value: Any,
        defaults: Tree,
        grids: Sequence[Tree],
        overrides: Sequence[_Override],
    ) -> ControlRun:
        """The control benchmark; models, data, training and techniques are those of the sweep."""
        with _at("control"):
            said = _mapping(value)
            tree = {key: each for key, each in said.items() if key != "models"}
            models = [model for grid in grids for model in grid.get("models", [])]
            trained: Mapping[str, Tree] = {}
            if "models" in said:
                entries = [entry for _, entry in _entries(said["models"], "models")]
                resolved = [e for e in entries if isinstance(e, dict) and "model" in e]
                models = self.models([e.get("model") for e in resolved] or entries)
                trained = {str(e["model"]["name"]): e.get("training", {}) for e in resolved}
            models = list({model["name"]: model for model in models}.values())
            for key, there in (("models", models), ("tasks", tree.get("tasks"))):
                if not there:
                    raise ConfigError(f"it names no {key}", remedy=f"add `{key}:` with names")
            for key in ("tasks", "held_back"):
                if tree.get(key, []) != []:  # no task held back is the usual case
                    tree[key] = [self.placed_task(str(e)) for _, e in _entries(tree[key], key)]
            if isinstance(tree.get("auxiliary"), str):
                tree["auxiliary"] = self.placed_task(tree["auxiliary"])
            if "data" in tree:
                tree["data"] = self.placed(_mapping(tree["data"]))
            chosen = defaults.get("techniques")
            own = {k: v for k, v in defaults.items() if k in (*names(), *names("explanation"))}
            settings = merge({k: v for k, v in (chosen or {}).items() if v}, own)
            shared = {k: v for k, v in defaults.items() if k in SHARED}
            tree = merge_given(merge(settings, shared), tree)
            training = tree.pop("training", {})
            tree["models"] = []
            for model in models:
                # A model is trained alike for all tasks here, so exceptions for tasks do not count.
                of_model = {"model": model, "training": trained.get(model["name"], training)}
                changed = _apply(overrides, of_model, model[WRITTEN], None)
                tree["models"].append(
                    {"model": _without_names(changed["model"]), "training": changed["training"]}
                )
            if self.data_dir is not None:
                tree["data"] = {**tree.get("data", {}), "data_dir": self.data_dir}
            return complete_control(tree, strict=False)


def _checked_name(name: Any, given: bool) -> str:
    if isinstance(name, str) and re.fullmatch(r"\w[\w.-]{0,99}", name):
        return name
    remedy = None if given else "without a name, that of the file is used; add `name:`"
    raise ConfigError(
        "it has to be a word of letters, digits, '.', '_' and '-', as it names a folder",
        setting="name",
        value=name,
        remedy=remedy,
    )


def _mapping(value: Any) -> Tree:
    if not isinstance(value, dict):
        raise ConfigError(f"it is {value!r:.40}, but has to be a mapping (`key: value`)")
    return {str(key): inner for key, inner in value.items()}


def _entries(value: Any, key: str) -> list[tuple[str, Any]]:
    """The entries of a list, and where they are; a single value is a list of one."""
    values = value if isinstance(value, list) else [value]
    if not values or value is None:
        raise ConfigError("it is empty", setting=key, remedy="name at least one, or leave it out")
    return [(f"{key}[{number}]", entry) for number, entry in enumerate(values)]


def _numbered(top: Tree, key: str) -> Iterable[tuple[str, Any]]:
    return _entries(top[key], key) if key in top else []


def _named(entry: Any, key: str, group: type[Settings]) -> Tree:
    """A model or a task with its settings: a name, or a mapping that has one."""
    said = _mapping(entry) if isinstance(entry, dict) else {key: _checked_text(entry, "")}
    group(**said)
    if not said.get(key):
        raise ConfigError(f"it has no {key}", remedy=f"add `{key}:`")
    return said


def _checked_text(name: Any, place: str) -> str:
    if isinstance(name, str):
        return name
    with _at(place):
        if isinstance(name, bool):
            raise ConfigError(
                f"it is {str(name).lower()}, as YAML takes yes, no, on and off for true and false",
                remedy="put the name in quotes",
            )
        raise ConfigError(f"it is {name!r:.40}, but has to be a name or a mapping")


def _without_names(entry: Tree) -> Tree:
    return {key: value for key, value in entry.items() if key != WRITTEN}
