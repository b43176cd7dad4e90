"""Complaints about experiment files: every one says where in the file, and what to do."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import ValidationError

from memloc.config import ConfigError, Settings
from memloc.errors import suggest


def check_mapping(value: Any, path: str) -> dict[str, Any]:
    """The value, if it is a mapping.

    Raises:
        ConfigError: If it is not.
    """
    if not isinstance(value, dict):
        raise ConfigError(f"{path} is {_short(value)}, but has to be a mapping (`key: value`)")
    return value


def check_not_switch(name: Any, path: str) -> None:
    """A name is not `no` or `on`, which YAML takes for false and true.

    Raises:
        ConfigError: If it is.
    """
    if isinstance(name, bool):
        raise ConfigError(
            f"{path} is {str(name).lower()}, as YAML takes yes, no, on and off for true and false; "
            "put the name in quotes"
        )


def check_keys(value: dict[str, Any], known: Iterable[str], path: str) -> None:
    """All keys are known.

    Raises:
        ConfigError: If one is not, with a suggestion.
    """
    known = list(known)
    for key in value:
        if key not in known:
            where = path_of(path, str(key))
            raise ConfigError(f"{where} is not a setting{suggest(str(key), known)}")


def check_settings(
    value: Any, shape: type[Settings], path: str, without: Iterable[str] = ()
) -> dict[str, Any]:
    """Some settings of a kind, as far as they are given: names and values make sense.

    Args:
        value: From the file.
        shape: The settings it may have; all of them have defaults.
        path: Where in the file.
        without: Settings that cannot be given here.

    Raises:
        ConfigError: If a name is not known, or a value not possible.
    """
    given = check_mapping(value, path)
    fields = {n: f for n, f in shape.model_fields.items() if n not in without}
    check_keys(given, fields, path)
    for name, part in given.items():
        inner = fields[name].annotation
        if inspect.isclass(inner) and issubclass(inner, Settings):
            check_settings(part, inner, path_of(path, name))
    try:
        shape(**given)
    except ValidationError as error:
        first = error.errors()[0]
        where = path
        for part in first["loc"]:
            where = f"{where}[{part}]" if isinstance(part, int) else path_of(where, str(part))
        reason = first["msg"][0].lower() + first["msg"][1:]
        raise ConfigError(f"{where} is {_short(first['input'])}: {reason}") from None
    return given


def as_list(value: Any, path: str) -> list[Any]:
    """A list; a single value is a list of one.

    Raises:
        ConfigError: If there is nothing in it.
    """
    values = value if isinstance(value, list) else [value]
    if not values or value is None:
        raise ConfigError(f"{path} is empty; name at least one, or leave it out")
    return values


def check_seeds(value: Any, path: str) -> list[int]:
    """Different whole numbers from 0 to 2³² - 1.

    Raises:
        ConfigError: If they are something else.
    """
    seeds = as_list(value, path)
    for seed in seeds:
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
            raise ConfigError(
                f"{path} has {_short(seed)}; seeds are whole numbers from 0 to {2**32 - 1}"
            )
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"{path} names a seed twice; leave one of them out")
    return seeds


def path_of(path: str, key: str) -> str:
    """`grids[1].training`: where a key is; a path that ends with a colon names the file alone."""
    return f"{path} {key}" if path.endswith(":") else f"{path}.{key}"


def merge(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Both, the second where both say something; mappings are merged key by key."""
    merged = dict(one)
    for key, value in other.items():
        before = merged.get(key)
        both = isinstance(before, dict) and isinstance(value, dict)
        merged[key] = merge(before, value) if both else value  # type: ignore[arg-type]
    return merged


def leaves(value: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """`training.epochs` and its value, for all that a mapping says."""
    for key, inner in value.items():
        where = f"{path}.{key}" if path else key
        if isinstance(inner, dict) and inner:
            yield from leaves(inner, where)
        else:
            yield where, inner


def _short(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
