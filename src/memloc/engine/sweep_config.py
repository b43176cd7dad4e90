"""Experiment files: from models × tasks, with exceptions, to the settings of every cell.

The keys of a file are the settings (`memloc.config`, and those of techniques by name), once for all
cells, in `grids` for some of them, and in `overrides` for exceptions. Every complaint says where in
the file it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, Field

from memloc.config import AUTO, ControlRun, Data, Execution, Run, Settings, leaves, merge
from memloc.data.load import is_downloaded, named_tasks
from memloc.engine.complete import (
    as_mapping,
    complete_control,
    complete_run,
    merge_given,
    parse_yaml,
)
from memloc.engine.local import pick_device
from memloc.engine.progress import KIND_WORDS
from memloc.errors import ConfigError, MemlocError, nearest
from memloc.models.names import KNOWN_MODELS
from memloc.techniques import names

Tree = dict[str, Any]
NAMES = {"models": "name", "tasks": "task"}
"""Lists in a file, and the setting that names one of their entries."""
SHARED = ("data", "training", "windows")
"""What the control benchmark takes from the sweep."""


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

    @property
    def where(self) -> dict[str, Any]:
        """For `Job.where`; workers elsewhere know best what device they have."""
        device = self.execution.device
        here = self.execution.executor == "local"
        return self.execution.where(pick_device(device) if here else device)

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
        return yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=100)


def _dump(settings: Settings) -> Tree:
    return settings.model_dump(mode="json", exclude={"device"}, exclude_none=True)


# --- what a file can say -----------------------------------------------------------------------


def _check_name(name: str) -> str:
    if re.fullmatch(r"\w[\w.-]{0,99}", name):
        return name
    raise ValueError(
        "it has to be a word of letters, digits, '.', '_' and '-', as it names a folder; without "
        "`name:`, that of the file is used"
    )


class _File(Settings):
    """What a file says beside the settings of all its cells."""

    name: Annotated[str, AfterValidator(_check_name)]
    grids: tuple[Tree, ...] = Field(({},), min_length=1)
    overrides: tuple[Tree, ...] = ()
    control: Tree | None = None
    execution: Execution = Execution()


def _entries(value: Any, key: str) -> list[Tree]:
    """The models or tasks of a part: names, or mappings that have one; one may stand for a list."""
    name = NAMES[key]
    values = value if isinstance(value, list) else [value]
    found = [{name: entry} if isinstance(entry, str) else entry for entry in values]
    for entry in found:
        if not isinstance(entry, dict) or not isinstance(entry.get(name), str):
            raise ConfigError(
                f"{entry!r:.40} is neither a name nor a mapping with a {name}",
                setting=key,
                remedy="put a name such as no in quotes",
            )
    if not found:
        raise ConfigError("nothing is named", setting=key)
    return found


def _check_part(said: Tree) -> Tree:
    """What a file, a grid or an override says about its cells, with lists of models and tasks."""
    lists: Tree = {key: _entries(said[key], key) for key in NAMES if key in said}
    settings = {str(key): value for key, value in said.items() if key not in lists}
    for wrong in ("model.name", "data.task", "device"):
        if wrong in dict(leaves(settings)):
            raise ConfigError(
                "it cannot be set here",
                setting=wrong,
                remedy="use models, tasks or execution.device of the file",
            )
    # Whether there are epochs enough for all checkpoints shows in the cells.
    complete_run({k: v for k, v in settings.items() if k != "checkpoints"}, strict=False)
    return {**settings, **lists}


def parse_sweep(
    text: str, file: str, base: Path, name: str = "sweep", data_dir: Path | None = None
) -> Sweep:
    """An experiment from the text of a file.

    Args:
        text: YAML.
        file: What the file is called in complaints.
        base: Relative paths in the file start here.
        name: Of the sweep, if the file gives none.
        data_dir: Folder with local copies of tasks, whatever the file says.

    Raises:
        ConfigError: If it makes no sense.
    """
    top = parse_yaml(text, file)
    try:
        if not isinstance(top, dict):
            raise ConfigError(
                "it is not a mapping",
                remedy="it needs at least `models:` and `tasks:`, see docs/sweeps.md",
            )
        return _read({"name": name, **top}, _Paths(base, data_dir))
    except MemlocError as error:
        # A file is a front end of its own: its settings are written as they are.
        raise ConfigError(f"{file}: {error}") from None


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Complaints inside are about a place in the file, or a setting below it."""
    try:
        yield
    except MemlocError as error:
        error.setting = f"{place}.{error.setting}" if error.setting else place
        raise


# --- from a file to cells ----------------------------------------------------------------------


def _read(top: Tree, paths: _Paths) -> Sweep:
    file = _File(**{key: top[key] for key in _File.model_fields if key in top})
    kinds = ("default", *KIND_WORDS)
    for kind in file.execution.ray.resources:
        if kind not in kinds:
            raise ConfigError(
                "there is no such kind of jobs",
                setting=f"execution.ray.resources.{kind}",
                remedy=nearest(kind, kinds),
            )
    defaults = _check_part({k: v for k, v in top.items() if k not in _File.model_fields})
    parts: dict[str, list[Tree]] = {"grids": [], "overrides": []}
    for key, found in parts.items():
        for number, said in enumerate(getattr(file, key)):
            with _at(f"{key}[{number}]"):
                found.append(_check_part(said))
    grids, overrides = [merge_given(defaults, grid) for grid in parts["grids"]], parts["overrides"]
    only_control = file.control and "grids" not in top and "tasks" not in defaults
    cells = () if only_control else _cells(grids, overrides, paths)
    control = None
    if file.control is not None:
        with _at("control"):
            control = _control(file.control, defaults, grids, overrides, paths)
    return Sweep(file.name, cells, control, file.execution)


def _cells(
    grids: Sequence[Tree], overrides: Sequence[Tree], paths: _Paths
) -> tuple[SweepCell, ...]:
    found: dict[str, SweepCell] = {}
    for number, grid in enumerate(grids):
        for key in NAMES:
            if key not in grid:
                where = f"grids[{number}]" if len(grids) > 1 else "the experiment"
                raise ConfigError(f"{where} names no {key}, so there is nothing to do")
        for model, task in product(grid["models"], grid["tasks"]):
            settings = merge(_settings(grid), {"model": model, "data": task})
            settings = _overridden(settings, overrides, paths, model["name"], task["task"])
            config = complete_run(settings, strict=False)
            if config.data.suspects == AUTO:
                raise ConfigError(
                    "a sweep does not look for suspects",
                    setting="data.suspects",
                    value=AUTO,
                    remedy="audit the labels first, then name the column that marks suspects",
                )
            config = config.model_copy(update={"data": paths.of_cell(config.data)})
            cell = SweepCell(model["name"], task["task"], config)
            found.setdefault(config.model_dump_json(), cell)
    for number, one in enumerate(overrides):
        for key, name in NAMES.items():
            known = dict.fromkeys(getattr(cell, key[:-1]) for cell in found.values())
            for entry in one.get(key, ()):
                if entry[name] not in known:
                    raise ConfigError(
                        f"no cell has {entry[name]!r}",
                        setting=f"overrides[{number}].{key}",
                        remedy=nearest(entry[name], known),
                    )
    return tuple(found.values())


def _settings(part: Tree) -> Tree:
    return {key: value for key, value in part.items() if key not in NAMES}


def _overridden(
    settings: Tree, overrides: Sequence[Tree], paths: _Paths, model: str, task: str | None
) -> Tree:
    """The settings of a cell, or of a model everywhere; of two overrides, the later wins."""
    for one in overrides:
        models, tasks = ([e[name] for e in one.get(key, ())] for key, name in NAMES.items())
        if (not models or model in models) and (not tasks or task in tasks):
            settings = merge_given(settings, _settings(one))
    return {**settings, "model": {**settings["model"], "name": paths.model(model)}}


def _control(
    said: Tree,
    defaults: Tree,
    grids: Sequence[Tree],
    overrides: Sequence[Tree],
    paths: _Paths,
) -> ControlRun:
    """The control benchmark; models, data, training and settings of techniques are the sweep's."""
    own = {k: v for k, v in defaults.items() if k in (*names(), *names("explanation"))}
    chosen = as_mapping(defaults.get("techniques", {}))
    settings = merge({k: v for k, v in chosen.items() if v}, own)
    shared = {k: v for k, v in defaults.items() if k in SHARED}
    tree = merge_given(merge(settings, shared), said)
    models = [{"model": model} for grid in grids for model in grid.get("models", ())]
    if "models" in tree:
        listed = tree["models"] if isinstance(tree["models"], list) else [tree["models"]]
        models = []
        for entry in listed:
            trained = isinstance(entry, dict) and "model" in entry
            (model,) = _entries(entry["model"] if trained else entry, "models")
            models.append({**(entry if trained else {}), "model": model})
    if not models:
        raise ConfigError("it names no models", remedy="add `models:` with names")
    training, tree["models"] = tree.pop("training", {}), []
    named = {entry["task"] for one in overrides for entry in one.get("tasks", ())}
    for name, one in {one["model"]["name"]: one for one in models}.items():
        begin = merge({"model": defaults.get("model", {}), "training": training}, one)
        usual = _overridden(begin, overrides, paths, name, None)
        of_tasks = {
            paths.task(task): _overridden(begin, overrides, paths, name, task)["training"]
            for task in sorted(named & {*tree.get("tasks", named)})
        }
        changed = {task: how for task, how in of_tasks.items() if how != usual["training"]}
        how = {key: usual[key] for key in ("model", "training")}
        tree["models"].append({**how, "exceptions": {**one.get("exceptions", {}), **changed}})
    config = complete_control({"tasks": (), **tree}, strict=False)
    return config.model_copy(
        update={
            "data": paths.of_data(config.data),
            "auxiliary": paths.task(config.auxiliary),
            "tasks": tuple(map(paths.task, config.tasks)),
            "held_back": tuple(map(paths.task, config.held_back)),
        }
    )


@dataclass(frozen=True)
class _Paths:
    """Relative paths in a file start at `base`; `data_dir` goes before what the file says."""

    base: Path
    data_dir: Path | None

    def model(self, name: str) -> str:
        """A folder's absolute path; other names as they are."""
        local = name not in KNOWN_MODELS and (name[:1] in "./~" or (self.base / name).is_dir())
        return str(self.absolute(name)) if local else name

    def task(self, name: str) -> str:
        """A file's absolute path; other names as they are."""
        is_file = len(Path(name).parts) > 1 or Path(name).suffix or (self.base / name).exists()
        return str(self.absolute(name)) if is_file and name not in named_tasks() else name

    def of_data(self, data: Data) -> Data:
        """The same with absolute paths."""
        paths = {
            "data_dir": self.data_dir or (data.data_dir and self.absolute(data.data_dir)),
            "validation": data.validation and self.absolute(data.validation),
        }
        return data.model_copy(update=paths)

    def of_cell(self, data: Data) -> Data:
        """The same for the data of one cell; local copies are of downloaded tasks alone."""
        task = self.task(data.task)
        there = {} if is_downloaded(task) else {"data_dir": None}
        return self.of_data(data).model_copy(update={"task": task, **there})

    def absolute(self, path: Path | str) -> Path:
        return self.base / Path(path).expanduser()
