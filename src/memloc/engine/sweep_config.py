"""Experiment files: from models × tasks, with exceptions, to one configuration per cell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from memloc.config import (
    DEFAULT_TECHNIQUES,
    ConfigError,
    ControlledModel,
    ControlRunConfig,
    DataConfig,
    GeneralisationConfig,
    ModelConfig,
    RunConfig,
    TechniqueSettings,
    TrainingConfig,
    Windows,
)
from memloc.data.load import is_downloaded
from memloc.engine.settings import ExecutionConfig
from memloc.engine.sweep_file import text as yaml_text
from memloc.engine.sweep_file.checks import (
    as_list,
    check_keys,
    check_mapping,
    check_seeds,
    check_settings,
    merge,
)
from memloc.engine.sweep_file.overrides import Override, apply_overrides
from memloc.engine.sweep_file.settings import GRID, WRITTEN, Reader, check_methods
from memloc.engine.sweep_file.words import in_settings
from memloc.engine.tally import KIND_WORDS
from memloc.errors import suggest
from memloc.models.names import known_training
from memloc.techniques import find
from memloc.techniques import names as technique_names

CONTROL = tuple(name for name in ControlRunConfig.model_fields if name != "device")


@dataclass(frozen=True)
class SweepCell:
    """A model and a task, as they are called in the file, and what to do with them."""

    model: str
    task: str
    config: RunConfig


@dataclass(frozen=True)
class Sweep:
    """An experiment: cells, perhaps a control benchmark, and where to compute them."""

    name: str
    cells: tuple[SweepCell, ...]
    control: ControlRunConfig | None
    execution: ExecutionConfig

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
        found: dict[str, Any] = {"name": self.name}
        for cell in self.cells:
            said = cell.config.model_dump(mode="json", exclude={"device"}, exclude_none=True)
            said["methods"] = [name for name in said["techniques"] if name in technique_names()]
            grid = {"models": [said.pop("model")], "tasks": [said.pop("data")], **said}
            found.setdefault("grids", []).append(grid)
        if self.control is not None:
            found["control"] = self.control.model_dump(
                mode="json", exclude={"device"}, exclude_none=True
            )
        found["execution"] = self.execution.model_dump(mode="json", exclude_none=True)
        return yaml_text.write(found)


def preset_names() -> list[str]:
    """Experiments that come with memloc."""
    folder = files("memloc") / "paper" / "presets"
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith("yaml"))


def preset_text(name: str) -> str:
    """The file of a preset.

    Raises:
        ConfigError: If there is none.
    """
    if name not in preset_names():
        hint = suggest(name, preset_names())
        raise ConfigError(f"there is neither a preset nor a file {name!r}{hint}")
    return (files("memloc") / "paper" / "presets" / f"{name}.yaml").read_text(encoding="utf-8")


def read_sweep(name: str, data_dir: Path | None = None) -> Sweep:
    """An experiment by the name of a preset, or from a file.

    Args:
        name: Of either.
        data_dir: Folder with local copies of the paper's tasks, whatever the file says.

    Raises:
        ConfigError: If the file is missing, or makes no sense.
    """
    path = Path(name)
    if name in preset_names():
        return parse_sweep(preset_text(name), name, Path.cwd(), name, data_dir)
    if not path.is_file() and not path.suffix and len(path.parts) == 1:
        preset_text(name)
    return parse_sweep(_read(path), path.name, path.resolve().parent, path.stem, data_dir)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(yaml_text.LARGEST_FILE + 1).decode("utf-8-sig")
    except FileNotFoundError:
        near = suggest(path.name, [p.name for p in path.parent.glob("*.y*ml")])
        hint = near if near.endswith("?") else f"; presets are: {', '.join(preset_names())}"
        raise ConfigError(f"there is no file {str(path)!r}{hint}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{str(path)!r} is not a text file (UTF-8)") from None


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
    top, root = yaml_text.parse(text, file), f"{file}:"
    if not isinstance(top, dict):
        raise ConfigError(
            f"{file} is not a mapping; it needs at least `models:` and `tasks:`, as in "
            "`memloc sweep builtin --show`"
        )
    check_keys(top, ("name", *GRID, "grids", "overrides", "control", "execution"), root)
    name = _name(top, name, root)
    reader = Reader(base)
    defaults = reader.settings({k: v for k, v in top.items() if k in GRID}, root)
    grids = [
        merge(defaults, reader.settings(check_mapping(grid, where), where))
        for where, grid in _numbered(top, "grids", root)
    ] or [defaults]
    overrides = [
        reader.override(check_mapping(one, where), where)
        for where, one in _numbered(top, "overrides", root)
    ]
    said = check_settings(top.get("execution", {}), ExecutionConfig, f"{root} execution")
    execution = ExecutionConfig(**said)
    kinds = ("default", *KIND_WORDS)
    check_keys(dict(execution.ray.resources), kinds, f"{root} execution.ray.resources")
    only_control = "control" in top and "grids" not in top and "tasks" not in top
    cells = () if only_control else _cells(grids, overrides, root, execution, data_dir)
    control = None
    if "control" in top:
        control = _control(top["control"], defaults, grids, overrides, reader, root)
        changed: dict[str, Any] = {"device": execution.device}
        if data_dir is not None:
            changed["data"] = control.data.replace(data_dir=data_dir)
        control = control.replace(**changed)
    return Sweep(name, cells, control, execution)


def _name(top: dict[str, Any], usual: str, root: str) -> str:
    given = "name" in top
    name = top.get("name", usual)
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]{0,99}", name):
        raise ConfigError(
            f"{root} {'name is' if given else 'without `name:`, the name of the file is used,'} "
            f"{name!r}, but {'' if given else 'it '}has to be a word of letters, digits, '.', '_' "
            f"and '-', as it names a folder{'' if given else '; add `name:`'}"
        )
    return name


def _numbered(top: dict[str, Any], key: str, root: str) -> list[tuple[str, Any]]:
    if key not in top:
        return []
    values = as_list(top[key], f"{root} {key}")
    return [(f"{root} {key}[{number}]", value) for number, value in enumerate(values)]


def _cells(
    grids: Sequence[dict[str, Any]],
    overrides: Sequence[Override],
    root: str,
    execution: ExecutionConfig,
    data_dir: Path | None,
) -> tuple[SweepCell, ...]:
    found: dict[str, SweepCell] = {}
    for number, grid in enumerate(grids):
        for key in ("models", "tasks"):
            if key not in grid:
                where = f"grids[{number}]" if len(grids) > 1 else "the experiment"
                raise ConfigError(f"{root} {where} names no {key}, so there is nothing to do")
        for model in grid["models"]:
            for task in grid["tasks"]:
                settings = {
                    **{key: grid.get(key, {}) for key in ("training", "techniques", "windows")},
                    **{key: grid.get(key) for key in ("seeds", "methods", "generalisation")},
                    "explain": grid.get("explain"),
                    "checkpoints": grid.get("checkpoints"),
                    "data": merge(grid.get("data", {}), task),
                    "model": model,
                }
                name = model[WRITTEN], task[WRITTEN]
                settings = apply_overrides(settings, *name, overrides)
                try:
                    config = _run_config(settings, execution, data_dir)
                except ConfigError as error:
                    raise ConfigError(f"{root} {in_settings(str(error))}") from None
                found.setdefault(config.model_dump_json(), SweepCell(*name, config))
    cells = tuple(found.values())
    for override in overrides:
        override.check_selects([(cell.model, cell.task) for cell in cells])
    return cells


def _run_config(
    settings: dict[str, Any], execution: ExecutionConfig, data_dir: Path | None
) -> RunConfig:
    data = {k: v for k, v in settings["data"].items() if k != WRITTEN}
    if data_dir is not None:
        data["data_dir"] = data_dir
    if not is_downloaded(data["task"]):  # local copies are of these alone
        data["data_dir"] = None
    halves = settings["generalisation"]
    seeds = {} if settings["seeds"] is None else {"seeds": tuple(settings["seeds"])}
    return RunConfig.make(
        data=DataConfig.make(**data),
        model=_model(settings["model"]),
        training=_training(settings["model"], settings["training"]),
        techniques=_techniques(settings["techniques"], settings["methods"] or DEFAULT_TECHNIQUES),
        windows=Windows.make(**settings["windows"]),
        explain=settings["explain"],
        checkpoints=settings["checkpoints"],
        generalisation=None if halves is None else GeneralisationConfig.make(**halves),
        device=execution.device,
        **seeds,
    )


def _techniques(settings: TechniqueSettings, names: Sequence[str]) -> TechniqueSettings:
    """Those of some techniques, and of all explanations."""
    kept = {n: s for n, s in settings.items() if n in technique_names("explanation")}
    found = {name: settings.get(name, {}) for name in names}
    for name in technique_names("explanation"):  # also of a technique that was not chosen
        shared = settings.get(find(name).settings_from or "")
        if shared is not None:
            kept.setdefault(name, shared)
    return {**found, **kept}


def _model(entry: dict[str, Any]) -> ModelConfig:
    return ModelConfig.make(**{k: v for k, v in entry.items() if k != WRITTEN})


def _training(model: dict[str, Any], said: dict[str, Any]) -> TrainingConfig:
    """What suits the model, unless the file says otherwise."""
    return TrainingConfig.make(**{**known_training(model[WRITTEN]), **said})


def _control(
    value: Any,
    defaults: dict[str, Any],
    grids: Sequence[dict[str, Any]],
    overrides: Sequence[Override],
    reader: Reader,
    root: str,
) -> ControlRunConfig:
    """The control benchmark; models, data, training and techniques are those of the sweep."""
    path = f"{root} control"
    said = check_mapping(value, path)
    check_keys(said, (*CONTROL, "training", "methods"), path)
    entries = as_list(said["models"], f"{path}.models") if "models" in said else None
    if entries and all(isinstance(entry, dict) and "model" in entry for entry in entries):
        return ControlRunConfig(**check_settings(said, ControlRunConfig, path))  # resolved already
    models = [model for grid in grids for model in grid.get("models", [])]
    if entries is not None:
        models = reader.models(entries, f"{path}.models")
    models = list({model["name"]: model for model in models}.values())
    for key, there in (("models", models), ("tasks", said.get("tasks"))):
        if not there:
            raise ConfigError(f"{path} names no {key}; add `{key}:` with a list of names")
    parts = ("data", "training", "techniques", "windows")
    own = reader.settings({k: v for k, v in said.items() if k in parts}, path)
    common = merge({k: v for k, v in defaults.items() if k in parts}, own)
    rest = {k: v for k, v in said.items() if k not in (*parts, "models")}
    for key in ("tasks", "layers", "held_back"):
        if key in rest:
            rest[key] = as_list(rest[key], f"{path}.{key}")
    if "seeds" in rest:
        rest["seeds"] = check_seeds(rest["seeds"], f"{path}.seeds")
    chosen = common.get("methods")
    if "methods" in rest:
        chosen = check_methods(rest.pop("methods"), f"{path}.methods")
    techniques = _techniques(common.get("techniques", {}), chosen or technique_names())
    check_settings(rest, ControlRunConfig, path)
    for key in ("tasks", "held_back"):
        rest[key] = [reader.place_task(name) for name in rest.get(key, [])]
    if "auxiliary" in rest:
        rest["auxiliary"] = reader.place_task(rest["auxiliary"])
    controlled = []
    for model in models:
        # A model is trained alike for all tasks here, so exceptions for tasks do not count.
        of_model = {"model": model, "training": common.get("training", {})}
        of_model = apply_overrides(of_model, model[WRITTEN], None, overrides)
        training = _training(model, of_model["training"])
        controlled.append(ControlledModel.make(model=_model(of_model["model"]), training=training))
    return ControlRunConfig(
        models=tuple(controlled),
        data=DataConfig.make(**common.get("data", {})),
        techniques=techniques,
        all_techniques=chosen is None,
        windows=Windows.make(**common.get("windows", {})),
        **rest,
    )
