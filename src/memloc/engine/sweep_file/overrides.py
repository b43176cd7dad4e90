"""Exceptions: what is different for some models, some tasks, or some pairs of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memloc.config import ConfigError
from memloc.engine.sweep_file.checks import leaves, merge
from memloc.errors import suggest


@dataclass(frozen=True)
class Override:
    """Settings of some cells.

    Attributes:
        path: Where it is in the file.
        models: Names of models; None: all.
        tasks: Names of tasks; None: all.
        changed: The settings.
    """

    path: str
    models: tuple[str, ...] | None
    tasks: tuple[str, ...] | None
    changed: dict[str, Any]

    @property
    def specific(self) -> bool:
        """Whether it names both; it wins over those that do not."""
        return self.models is not None and self.tasks is not None

    def selects(self, model: str, task: str | None) -> bool:
        """Whether it is about a cell; without a task, whether it is about a model everywhere."""
        return (self.models is None or model in self.models) and (
            self.tasks is None or task in self.tasks
        )

    def check_selects(self, cells: Sequence[tuple[str, str]]) -> None:
        """It is about at least one cell (model and task), by every name it has.

        Raises:
            ConfigError: If not, with a suggestion.
        """
        for key, names, there in (
            ("models", self.models, dict.fromkeys(model for model, _ in cells)),
            ("tasks", self.tasks, dict.fromkeys(task for _, task in cells)),
        ):
            for name in names or ():
                if name not in there:
                    hint = suggest(name, there)
                    raise ConfigError(f"{self.path}.{key}: no cell has {name!r}{hint}")
        if not any(self.selects(*cell) for cell in cells):
            raise ConfigError(
                f"{self.path} is about no cell: its models and tasks are never together in a grid"
            )


def apply_overrides(
    settings: dict[str, Any], model: str, task: str | None, overrides: Sequence[Override]
) -> dict[str, Any]:
    """The settings of a cell, with its exceptions.

    Args:
        settings: Of the grid; exceptions count only for what is there.
        model: As it is called in the file.
        task: As it is called in the file; None for what concerns all tasks of a model.
        overrides: All of them.

    Raises:
        ConfigError: If two that are equally specific contradict each other.
    """
    ours = [one for one in overrides if one.selects(model, task)]
    for same in ([o for o in ours if not o.specific], [o for o in ours if o.specific]):
        _check_agree(same, model, task)
        for override in same:
            changed = {k: v for k, v in override.changed.items() if k in settings}
            settings = merge(settings, changed)
    return settings


def _check_agree(overrides: Sequence[Override], model: str, task: str | None) -> None:
    said: dict[str, tuple[Any, Override]] = {}
    for override in overrides:
        for key, value in leaves(override.changed):
            before, other = said.setdefault(key, (value, override))
            if before != value:
                cell = f"{model} on {task}" if task else model
                raise ConfigError(
                    f"{other.path} and {override.path.split()[-1]} contradict each other: {key} of "
                    f"{cell} is {before!r} in one and {value!r} in the other; name models and "
                    "tasks in the one that shall win"
                )
