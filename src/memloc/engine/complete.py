"""Settings in full: read from files, with defaults that depend on the model and the techniques.

All front ends come through here with a tree of what was given: options and `--config` of the
command line, cells of a sweep, arguments in Python. Beside the settings of an experiment, a tree
may hold those of techniques by name: `{"training": {"epochs": 3}, "retraining": {"epochs": 1}}`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from memloc.config import (
    DEFAULT_TECHNIQUES,
    Audit,
    ControlRun,
    Localisation,
    Model,
    Run,
    Settings,
    TechniqueSettings,
    Training,
    merge,
)
from memloc.data.builtin import BUILTIN_TASKS
from memloc.errors import ConfigError, nearest
from memloc.models.names import known_training
from memloc.techniques import Technique, find, make, names

Tree = Mapping[str, Any]


class _Loader(yaml.SafeLoader):
    """Plain data; a key stands once in a mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} stands there twice", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


# YAML 1.1 takes 1e-5 for a text; nobody who writes a learning rate does.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+\Z"),
    list("-+0123456789"),
)


def parse_yaml(text: str, name: str) -> Any:
    """The data in a YAML text.

    Args:
        text: The text.
        name: Of the file, for complaints.

    Raises:
        ConfigError: If it is not YAML.
    """
    try:
        return yaml.load(text, _Loader)  # a safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{name} cannot be read: {where}{error.problem}") from None
    except RecursionError:
        raise ConfigError(f"{name} cannot be read: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{name} cannot be read: {' '.join(str(error).split())}") from None


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        ConfigError: If it cannot be read.
    """
    if path.exists() and not path.is_file():
        raise ConfigError(f"{str(path)!r} is not a file", remedy="give a file with text")
    if path.is_symlink() and not path.exists():
        raise ConfigError(f"{str(path)!r} is a link to a file that does not exist")
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        there = [one.name for one in path.parent.glob(f"*{path.suffix}") if one.is_file()]
        near = nearest(path.name, there)
        remedy = near if near and near.endswith("?") else "check the path"
        raise ConfigError(f"there is no file {str(path)!r}", remedy=remedy) from None
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{str(path)!r} is not a text file (UTF-8)") from None


def read_settings(path: Path, part: str | None = None) -> dict[str, Any]:
    """What a YAML file, or `settings.json` of a result, gives.

    Args:
        path: The file, or the folder of a result.
        part: Key below which the settings may be.

    Raises:
        ConfigError: If it cannot be read, or holds no settings.
    """
    file = path / "settings.json" if path.is_dir() else path
    found = parse_yaml(read_text(file), str(file))
    if not isinstance(found, dict):
        raise ConfigError(f"{str(file)!r} holds no settings", remedy="write them as `key: value`")
    inner = found.get(part) if set(found) == {part} else None
    if isinstance(inner, dict) and "tasks" in inner:
        found = inner
    return {str(key): value for key, value in found.items()}


def complete_run(given: Tree, strict: bool = True) -> Run:
    """An experiment.

    Args:
        given: What the user gave.
        strict: Refuse settings of techniques that are not chosen, as they have no effect.

    Raises:
        ConfigError: If a setting does not exist or is not possible.
    """
    tree, own = split_techniques(given, Run)
    usual = usual_training(_model_name(tree.get("model")), tree.get("checkpoints") is not None)
    tree["training"] = _training(tree.get("training"), usual)
    chosen = tree.pop("techniques", None)
    tree["techniques"] = choose_techniques(chosen, own, DEFAULT_TECHNIQUES, strict)
    run = Run(**tree)
    return run.replace(techniques=_suited(run.techniques, run.model.name, run.training))


def complete_audit(given: Tree) -> Audit:
    """An audit of labels.

    Raises:
        ConfigError: If a setting does not exist or is not possible.
    """
    tree = {key: _plain(value) for key, value in given.items()}
    usual = usual_training(_model_name(tree.get("model")), checkpoints=False)
    tree["training"] = _training(tree.get("training"), usual)
    return Audit(**tree)


def complete_localisation(given: Tree) -> Localisation:
    """An analysis of given models.

    Raises:
        ConfigError: If a setting does not exist or is not possible.
    """
    tree, own = split_techniques(given, Localisation)
    pretrained = tree.get("pretrained")
    tree["training"] = _training(tree.get("training"), known_training(str(pretrained or "")))
    usual = usual_techniques(pretrained)
    tree["techniques"] = choose_techniques(tree.pop("techniques", None) or None, own, usual)
    found = Localisation(**tree)
    return found.replace(techniques=_suited(found.techniques, str(pretrained), found.training))


def usual_techniques(pretrained: str | None) -> list[str]:
    """Those that given models are analysed with, unless others are chosen."""
    starts = ("pretrained", "frozen")
    return [
        name
        for name in DEFAULT_TECHNIQUES
        if pretrained or not any(need.endswith(starts) for need in find(name).needs)
    ]


def complete_control(given: Tree, strict: bool = True) -> ControlRun:
    """A control benchmark; settings of `model` and `training` are those of all models.

    Args:
        given: What the user gave; `model.name` may name several models.
        strict: See `complete_run`.

    Raises:
        ConfigError: If a setting does not exist or is not possible.
    """
    shared = {key: _plain(given[key]) for key in ("model", "training") if key in given}
    tree, own = split_techniques({k: v for k, v in given.items() if k not in shared}, ControlRun)
    model = dict(shared.get("model", {}))
    chosen = model.pop("name", None)
    listed = [_plain(entry) for entry in tree.get("models", ())]
    if chosen is not None or not listed:
        texts = chosen.split(",") if isinstance(chosen, str) else chosen or [Model().name]
        listed = [{"model": {"name": name.strip()}} for name in dict.fromkeys(texts)]

    def training(entry: Tree, given: Any) -> Any:
        said = merge(_plain(given or {}), shared.get("training", {}))
        return _training(said, known_training(_model_name(entry.get("model"))))

    tree["models"] = [
        {
            "model": merge(_plain(entry.get("model", {})), model),
            "training": training(entry, entry.get("training")),
            "exceptions": {
                task: training(entry, given) for task, given in entry.get("exceptions", {}).items()
            },
        }
        for entry in listed
    ]
    auxiliary = tree.get("auxiliary", ControlRun.model_fields["auxiliary"].default)
    tree.setdefault("tasks", [name for name in BUILTIN_TASKS if name != auxiliary])
    techniques = as_mapping(tree["techniques"]) if tree.get("techniques") else {}
    if not techniques:
        tree["all_techniques"] = True
    if tree.get("all_techniques"):
        techniques = merge({name: {} for name in own}, techniques)
    tree["techniques"] = choose_techniques(techniques, own, (), strict)
    return ControlRun(**tree)


def merge_given(one: Tree, other: Tree) -> dict[str, Any]:
    """Both; the second wins where both say something.

    If the second chooses techniques, those are the techniques, with the settings of both.
    """
    merged = merge(one, other)
    if other.get("techniques") and one.get("techniques"):
        before = as_mapping(one["techniques"])
        merged["techniques"] = {
            name: merge(before.get(name, {}), settings)
            for name, settings in as_mapping(other["techniques"]).items()
        }
    if other.get("techniques") and "all_techniques" not in other:
        merged.pop("all_techniques", None)
    return merged


def split_techniques(given: Tree, group: type[Settings]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of an experiment, and those of techniques, which stand beside them by name.

    Raises:
        ConfigError: If something is neither.
    """
    tree = {key: _plain(value) for key, value in given.items()}
    own: dict[str, Any] = {}
    for key in [key for key in tree if key not in group.model_fields]:
        if key not in names() and key not in names("explanation"):
            known = (*group.model_fields, *names(), *names("explanation"))
            raise ConfigError(
                "there is no such setting", setting=key, remedy=nearest(str(key), known)
            )
        own |= as_mapping({key: tree.pop(key)})
    return tree, own


def choose_techniques(
    chosen: Any, own: Tree, usual: Sequence[str], strict: bool = True
) -> TechniqueSettings:
    """Techniques in their order, with all their settings.

    Args:
        chosen: Names, in a list or a text with commas; techniques; or settings by name. None takes
            the usual ones.
        own: Settings by name.
        usual: Names.
        strict: See `complete_run`.

    Raises:
        ConfigError: If one does not exist, or its settings are not possible.
    """
    found = as_mapping(usual if chosen is None else chosen)
    for name, settings in own.items():
        if name not in found and find(name).kind == "technique":
            sharing = [one for one in names("explanation") if find(one).settings_from == name]
            if sharing:
                found |= {one: merge(own.get(one, {}), settings) for one in sharing}
            elif strict:
                raise ConfigError(
                    f"{name} is not among the techniques",
                    setting=next((f"{name}.{key}" for key in settings), name),
                    remedy="add it to them, or leave the setting out",
                )
            make(name, settings)
            continue
        found[name] = merge(found.get(name, {}), settings)
    return {
        name: make(name, settings).config.model_dump(mode="json")
        for name, settings in found.items()
    }


def as_mapping(chosen: Any) -> dict[str, dict[str, Any]]:
    """Techniques in any of the forms in which they can be given, as settings by name.

    Raises:
        ConfigError: If it is something else.
    """
    remedy = f"give names, such as {', '.join(DEFAULT_TECHNIQUES[:2])}"
    if isinstance(chosen, str):
        chosen = [part.strip() for part in chosen.split(",") if part.strip()]
    if isinstance(chosen, Mapping):
        entries = [
            (name, {} if settings is None else settings) for name, settings in chosen.items()
        ]
    else:
        listed = chosen if isinstance(chosen, Iterable) else [chosen]
        entries = [
            (one.name, one.config.given()) if isinstance(one, Technique) else (one, {})
            for one in listed
        ]
        if not entries:
            raise ConfigError("no technique is chosen", setting="techniques", remedy=remedy)
    for name, settings in entries:
        if not isinstance(name, str):
            raise ConfigError(
                "it is not a technique", setting="techniques", value=name, remedy=remedy
            )
        if not isinstance(settings, Mapping):
            raise ConfigError("its settings have to be a mapping", setting=name, value=settings)
    return {name: dict(settings) for name, settings in entries}


def usual_training(model: str, checkpoints: bool) -> dict[str, Any]:
    """How a run trains a model, if nothing else is said.

    It goes on until the labels are learned. Checkpoints need a number of epochs known before.
    """
    return known_training(model) | ({} if checkpoints else {"epochs": "auto"})


def _training(given: Any, usual: Tree) -> Any:
    """What is usual, unless something else was given."""
    plain = {} if given is None else _plain(given)
    return {**usual, **plain} if isinstance(plain, Mapping) else plain


def _suited(chosen: TechniqueSettings, model: str, training: Training) -> TechniqueSettings:
    """The same techniques; what was left open is what suits the model."""
    return {
        name: make(name, settings).suited_to(model, training).config.model_dump(mode="json")
        for name, settings in chosen.items()
    }


def _model_name(model: Any) -> str:
    plain = _plain(model)
    name = plain.get("name") if isinstance(plain, Mapping) else None
    return str(Model().name if name is None else name)


def _plain(value: Any) -> Any:
    """A group of settings as those that were given; all else as it is."""
    return value.given() if isinstance(value, Settings) else value
