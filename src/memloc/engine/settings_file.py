"""Files of settings: YAML in and out, and `settings.json` of results.

Files come from other people, so nothing in one may run code, repeat a key unnoticed, or be made to
swell: plain data only, of bounded size, aliases counted as often as they are used.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from memloc.errors import ConfigError, nearest

LARGEST_FILE = 2_000_000
"""Bytes."""
MOST_VALUES = 200_000
"""Values in a file, with aliases written out."""


class _Loader(yaml.SafeLoader):
    """Plain data; a key stands once in a mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key has to be a single word", key_node.start_mark
                )
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key_node.value!r} stands there twice", key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


# YAML 1.1 takes 1e-5 for a text; nobody who writes a learning rate does.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+\Z"),
    list("-+0123456789"),
)


def parse(text: str, name: str) -> Any:
    """The data in a YAML text.

    Args:
        text: The text.
        name: Of the file, for complaints.

    Raises:
        ConfigError: If it is not YAML, or more than an experiment can need.
    """
    if len(text) > LARGEST_FILE:
        raise ConfigError(
            f"{name} has more than {LARGEST_FILE:,} characters; is it the right file?"
        )
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > MOST_VALUES:
            raise ConfigError(
                f"{name} has more than {MOST_VALUES:,} values once its aliases are written out; "
                "is it the right file?"
            )
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{name} cannot be read: {where}{error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{name} cannot be read: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{name} is nested too deeply; is it the right file?") from None


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Values below a node; one that contains itself never ends (RecursionError)."""
    if id(node) not in known:
        below = []
        if isinstance(node, yaml.SequenceNode):
            below = node.value
        elif isinstance(node, yaml.MappingNode):
            below = [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(_size(part, known) for part in below)
    return known[id(node)]


def write(data: Any) -> str:
    """Data as YAML, in its order."""
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        ConfigError: If it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return stream.read(LARGEST_FILE + 1).decode("utf-8-sig")
    except FileNotFoundError:
        near = nearest(path.name, [p.name for p in path.parent.glob(f"*{path.suffix}")])
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
    found = parse(read_text(file), str(file))
    if part is not None and isinstance(found, dict) and isinstance(found.get(part), dict):
        inner = found[part]
        found = inner if set(found) == {part} and "tasks" in inner else found
    if not isinstance(found, dict):
        raise ConfigError(f"{str(file)!r} holds no settings", remedy="write them as `key: value`")
    return {str(key): value for key, value in found.items()}
