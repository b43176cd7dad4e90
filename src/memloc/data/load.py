"""The one front door to the data: from settings to a task with its noise settled."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from memloc.config import AUTO, Columns, Data
from memloc.data.files import SUFFIXES, data_suffix, load_file
from memloc.data.noise import binarise, known_noise, limit, perturb, suspected, trusted
from memloc.data.task import NamedTask, Task
from memloc.errors import DataError, nearest

GROUP = "memloc.tasks"
"""Entry points of packages that bring tasks."""
OWN_TASKS = (
    EntryPoint("built-in", "memloc.data.builtin:tasks", GROUP),
    EntryPoint("paper", "memloc.paper.tasks:tasks", GROUP),
)
"""Those that come with memloc, also where no metadata of it are installed."""
FILE_SETTINGS = ("validation", *Columns.model_fields)
"""Settings that only files have."""


def load_task(config: Data, hold_out: bool = True) -> Task:
    """Load a task, make it smaller if asked to, and settle who is noisy.

    Args:
        config: Which examples, and which of their labels are flipped.
        hold_out: Whether examples for validation are needed, and set aside of a file without any.

    Returns:
        A task with `original_label` and `noisy` in its training table.

    Raises:
        DataError: If the data are missing, malformed or unsuitable.
    """
    names = named_tasks()
    named = names.get(config.task)
    if named is not None:
        for setting in FILE_SETTINGS:
            value = getattr(config, setting)
            if value is not None and (setting, value) != ("suspects", AUTO):
                raise _no_meaning(setting, config, f"for the task {config.task!r}")
        task = named.load(config)
    elif _is_file(config.task):
        task = load_file(config, hold_out)
        if task.name in names:  # results are told apart by the name, and looks chosen by it
            task = replace(task, name=Path(config.task).name)
    else:
        raise DataError(
            f"there is no such task, and no such file ({', '.join(SUFFIXES)})",
            setting="data.task",
            value=config.task,
            remedy=nearest(config.task, names),
        )
    if config.data_dir is not None and (named is None or not named.downloaded):
        raise _no_meaning("data_dir", config, f"for the task {config.task!r}")
    if "original_label" in task.train.columns and config.noise != Data().noise:
        raise _no_meaning("noise", config, f"as {config.task!r} has original labels")
    if config.suspects is None and config.twin != Data().twin:
        raise _no_meaning("twin", config, "without suspects")
    if config.suspects is not None and config.noise != Data().noise:
        raise _no_meaning("noise", config, "with suspects, as no label is flipped then")
    if config.suspects == AUTO:
        task = trusted(task)
    if config.binarise:
        task = binarise(task)
    if task.validation.empty and hold_out:
        raise DataError(
            f"{config.task!r} has no validation examples of the classes {', '.join(task.labels)}; "
            f"add some"
        )
    size = config.limit
    if named is not None and named.source == "built-in":
        size = size or named.train_size
    if size is not None:
        task = limit(task, size, config.seed)
    if config.suspects == AUTO:
        return task
    if config.suspects is not None:
        return suspected(task)
    if "original_label" in task.train.columns:
        return known_noise(task)
    return perturb(task, config.noise, config.seed)


@cache
def named_tasks() -> dict[str, NamedTask]:
    """Every task that has a name: the built-in ones first, then those that packages bring.

    A package brings tasks with a function that returns `NamedTask`s, and makes it known with

        [project.entry-points."memloc.tasks"]
        my-tasks = "my_package.module:tasks"

    Raises:
        DataError: If the tasks of a package cannot be had.
    """
    found: dict[str, NamedTask] = {}
    for point in (*OWN_TASKS, *entry_points(group=GROUP)):
        try:
            brought = {task.name: task for task in point.load()()}
        except Exception as error:  # whatever a foreign module does when it is imported
            raise DataError(
                f"the tasks {point.name!r} of {point.value} cannot be had: "
                f"{type(error).__name__}: {error}; mend or uninstall that package"
            ) from None
        found |= {name: task for name, task in brought.items() if name not in found}
    return found


def is_downloaded(name: str) -> bool:
    """Whether a task has a name, and its data come from the hub or from a local copy."""
    return name in named_tasks() and named_tasks()[name].downloaded


def _is_file(task: str) -> bool:
    """Whether a file is meant, be it there or not."""
    path = Path(task)
    return data_suffix(path) in SUFFIXES or path.exists() or len(path.parts) > 1


def _no_meaning(setting: str, config: Data, why: str) -> DataError:
    return DataError(
        f"it has no meaning {why}",
        setting=f"data.{setting}",
        value=getattr(config, setting),
        remedy="leave it out",
    )
