"""The settings in an experiment file: checked, and brought into one form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memloc.config import (
    ConfigError,
    DataConfig,
    GeneralisationConfig,
    ModelConfig,
    RunConfig,
    Settings,
    TrainingConfig,
    Windows,
)
from memloc.data.load import named_tasks
from memloc.engine.sweep_file.checks import (
    as_list,
    check_keys,
    check_mapping,
    check_not_switch,
    check_seeds,
    check_settings,
    merge,
    path_of,
)
from memloc.engine.sweep_file.overrides import Override
from memloc.models.names import KNOWN_MODELS
from memloc.techniques import UnknownTechnique, find, names

PARTS: dict[str, type[Settings]] = {
    "data": DataConfig,
    "training": TrainingConfig,
    "windows": Windows,
    "generalisation": GeneralisationConfig,
}
SETTINGS = ("seeds", "methods", "techniques", "explain", "checkpoints", "binarise", *PARTS)
"""What a sweep, a grid or an exception can say about its cells."""
GRID = ("models", "tasks", *SETTINGS)
WRITTEN = "written"
"""Key under which an entry keeps what its model or task is called in the file."""


@dataclass(frozen=True)
class Reader:
    """Reads settings of a file; relative paths in it start at `base`."""

    base: Path

    def settings(self, said: dict[str, Any], path: str) -> dict[str, Any]:
        """What a sweep or a grid says.

        Raises:
            ConfigError: If something is not known or not possible.
        """
        check_keys(said, GRID, path)
        found = dict(said)
        for key, shape in PARTS.items():
            where = path_of(path, key)
            if key == "generalisation" and isinstance(said.get(key), bool):
                found[key] = {} if said[key] else None
            elif key in said:
                found[key] = check_settings(said[key], shape, where)
        for key in ("explain", "binarise"):
            if key in said and not isinstance(said[key], bool):
                raise ConfigError(f"{path_of(path, key)} is {said[key]!r}; give true or false")
        if "checkpoints" in said:
            try:
                RunConfig.check_checkpoints(said["checkpoints"])
            except ConfigError as error:
                wrong = str(error).replace("--checkpoints ", f"{path_of(path, 'checkpoints')}: ", 1)
                raise ConfigError(wrong) from None
        if "binarise" in found:
            found["data"] = merge({"binarise": found.pop("binarise")}, found.get("data", {}))
        if "data" in found:
            found["data"] = self._placed(found["data"])
        if "seeds" in said:
            found["seeds"] = check_seeds(said["seeds"], path_of(path, "seeds"))
        if "techniques" in said:
            found |= _techniques(said, path)
        if "methods" in said:
            found["methods"] = check_methods(said["methods"], path_of(path, "methods"))
        if "models" in said:
            found["models"] = self.models(said["models"], path_of(path, "models"))
        if "tasks" in said:
            where = path_of(path, "tasks")
            entries = enumerate(as_list(said["tasks"], where))
            found["tasks"] = [self._task(entry, f"{where}[{n}]") for n, entry in entries]
        return found

    def override(self, said: dict[str, Any], path: str) -> Override:
        """For which cells, and what.

        Raises:
            ConfigError: If something is not known or not possible.
        """
        check_keys(said, ("models", "tasks", "model", *SETTINGS), path)
        models, tasks = (
            None if key not in said else _names(said[key], path_of(path, key))
            for key in ("models", "tasks")
        )
        if models is None and tasks is None:
            raise ConfigError(f"{path} does not say for which cells; add models, tasks or both")
        changed = self.settings({k: v for k, v in said.items() if k in SETTINGS}, path)
        if "model" in said:
            where = path_of(path, "model")
            changed["model"] = check_settings(said["model"], ModelConfig, where, ["name"])
        if "task" in changed.get("data", {}):
            raise ConfigError(f"{path}.data.task cannot be changed here; add a grid for it")
        if not changed:
            raise ConfigError(f"{path} changes nothing; add training, data or other settings")
        return Override(path, models, tasks, changed)

    def models(self, value: Any, path: str) -> list[dict[str, Any]]:
        """Models as settings of `ModelConfig`, with what they are called in the file.

        Raises:
            ConfigError: If something is not known or not possible.
        """
        entries = enumerate(as_list(value, path))
        return [self._model(entry, f"{path}[{number}]") for number, entry in entries]

    def _model(self, entry: Any, path: str) -> dict[str, Any]:
        check_not_switch(entry, path)
        said = {"name": entry} if isinstance(entry, str) else entry
        said = check_settings(said, ModelConfig, path)
        name = said.get("name")
        if not name:
            raise ConfigError(f"{path} has no name; add `name:` with a model")
        local = name not in KNOWN_MODELS and (name[0] in "./~" or (self.base / name).is_dir())
        return {**said, "name": self._path(name) if local else name, WRITTEN: name}

    def _task(self, entry: Any, path: str) -> dict[str, Any]:
        check_not_switch(entry, path)
        said = {"task": entry} if isinstance(entry, str) else entry
        said = check_settings(said, DataConfig, path)
        if not said.get("task"):
            raise ConfigError(f"{path} has no task; add `task:` with a name or a file")
        return {**self._placed(said), WRITTEN: said["task"]}

    def _placed(self, data: dict[str, Any]) -> dict[str, Any]:
        """The same with absolute paths."""
        found = dict(data)
        for key in ("validation", "data_dir"):
            if found.get(key) is not None:
                found[key] = self._path(str(found[key]))
        if "task" in found:
            found["task"] = self.place_task(found["task"])
        return found

    def place_task(self, name: str) -> str:
        """A file's absolute path; other names as they are."""
        known = name in named_tasks()
        is_file = len(Path(name).parts) > 1 or Path(name).suffix or (self.base / name).exists()
        return self._path(name) if is_file and not known else name

    def _path(self, name: str) -> str:
        return str(self.base / Path(name).expanduser())


def _names(value: Any, path: str) -> tuple[str, ...]:
    names = as_list(value, path)
    for number, name in enumerate(names):
        check_not_switch(name, f"{path}[{number}]")
    return tuple(map(str, names))


def _techniques(said: dict[str, Any], path: str) -> dict[str, Any]:
    """A list chooses techniques; a mapping has settings by name."""
    where = path_of(path, "techniques")
    if isinstance(said["techniques"], list):
        return {"methods": check_methods(said["techniques"], where), "techniques": {}}
    given = dict(check_mapping(said["techniques"], where))
    windows = {
        new: given.pop(old)
        for old, new in (("window_sizes", "sizes"), ("unit", "unit"))
        if old in given
    }
    check_keys(given, (*names(), *names("explanation")), where)
    found: dict[str, Any] = {
        "techniques": {
            name: check_settings(
                {} if settings is None else settings, find(name).Config, f"{where}.{name}"
            )
            for name, settings in given.items()
        }
    }
    if windows:
        found["windows"] = merge(check_settings(windows, Windows, where), said.get("windows", {}))
    return found


def check_methods(value: Any, path: str) -> list[str]:
    """Names of techniques, each once.

    Raises:
        ConfigError: If one does not exist.
    """
    chosen = [str(name) for name in as_list(value, path)]
    try:
        for name in chosen:
            find(name)
    except UnknownTechnique as error:
        raise ConfigError(f"{path}: {error}") from None
    return list(dict.fromkeys(chosen))
