"""The one front door to the data: from settings to a task with its noise settled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from memloc.config import DataConfig
from memloc.data.files import load_file
from memloc.data.noise import known_noise, perturb
from memloc.data.subset import binarise, check_limit, limit
from memloc.data.tables import SUFFIXES, data_suffix
from memloc.data.task import Task
from memloc.errors import DataError, suggest
from memloc.paper.tasks import PAPER_TASKS, load_paper

BUILTIN_SIZE = 400
"""Training examples of a built-in task, unless a limit says otherwise."""

CONTENT_SEED = 1
"""Seed of the texts of built-in tasks: the data seed only decides who is noisy."""

_FILE_SETTINGS = (
    *("validation", "text_column", "pair_column", "label_column", "original_label_column"),
)


@dataclass(frozen=True)
class TaskInfo:
    """One line of the list of tasks.

    Attributes:
        name: What to give as the task.
        category: Its kind, such as 'sentiment'.
        classes: How many.
        source: 'built-in' or 'paper'.
        train_size: Training examples (for a built-in task: without a limit), if known.
        note: Licence, or what else to mind.
        description: What is to be told apart.
    """

    name: str
    category: str
    classes: int
    source: str
    train_size: int | None
    note: str
    description: str


def load_task(config: DataConfig) -> Task:
    """Load a task, make it smaller if asked to, and settle who is noisy.

    Args:
        config: Which examples, and which of their labels are flipped.

    Returns:
        A task with `original_label` and `noisy` in its training table.

    Raises:
        DataError: If the data are missing, malformed or unsuitable.
    """
    from memloc.data.builtin import BUILTIN_TASKS

    _check_file_settings(config, names=[*BUILTIN_TASKS, *PAPER_TASKS])
    size = config.limit
    if config.task in BUILTIN_TASKS:
        size = size or BUILTIN_SIZE
        task = _generate(config, size)
    elif config.task in PAPER_TASKS:
        task = load_paper(PAPER_TASKS[config.task], config.data_dir)
    elif _is_file(config.task):
        task = load_file(config)
    else:
        hint = suggest(config.task, [*BUILTIN_TASKS, *PAPER_TASKS])
        end = "" if hint.endswith("?") else f", or a file ({', '.join(SUFFIXES)})"
        raise DataError(f"there is no task {config.task!r}{hint}{end}")
    if config.data_dir is not None and config.task not in PAPER_TASKS:
        raise DataError(
            f"--data-dir {config.data_dir} has no meaning for the task {config.task!r}; "
            "leave it out"
        )
    if "original_label" in task.train.columns and config.noise != DataConfig().noise:
        raise DataError(
            f"--noise {config.noise} has no meaning, as {config.task!r} has original labels; "
            "leave it out"
        )
    if config.binarise:
        task = binarise(task)
    if task.validation.empty:
        raise DataError(
            f"{config.task!r} has no validation examples of the classes {', '.join(task.labels)}; "
            f"add some"
        )
    if size is not None:
        task = limit(task, size, config.seed)
    if "original_label" in task.train.columns:
        return known_noise(task)
    return perturb(task, config.noise, config.seed)


def list_tasks() -> list[TaskInfo]:
    """Every task that has a name: the built-in ones first, then those of the paper."""
    from memloc.data.builtin import BUILTIN_TASKS

    built_in = [
        TaskInfo(
            name=task.name,
            category=task.category,
            classes=len(task.labels),
            source="built-in",
            train_size=BUILTIN_SIZE,
            note="generated, no download",
            description=task.description,
        )
        for task in BUILTIN_TASKS.values()
    ]
    paper = [
        TaskInfo(
            name=row.name,
            category=row.category,
            classes=len(row.labels),
            source="paper",
            train_size=row.train_size,
            note=row.licence,
            description=row.description,
        )
        for row in PAPER_TASKS.values()
    ]
    return built_in + paper


def _generate(config: DataConfig, size: int) -> Task:
    from memloc.data.builtin import BUILTIN_TASKS, generate

    classes = len(BUILTIN_TASKS[config.task].labels)
    check_limit(config.task, size, 2 if config.binarise else classes)
    # Two classes of a larger number must make up the whole size once the others are gone.
    n_train = size * -(-classes // 2) if config.binarise else size
    n_validation = min(1000, max(100, n_train // 2))
    return generate(config.task, n_train, n_validation, seed=CONTENT_SEED)


def _is_file(task: str) -> bool:
    """Whether a file is meant, be it there or not."""
    path = Path(task)
    return data_suffix(path) in SUFFIXES or path.exists() or len(path.parts) > 1


def _check_file_settings(config: DataConfig, names: list[str]) -> None:
    if config.task not in names:
        return
    for setting in _FILE_SETTINGS:
        value = getattr(config, setting)
        if value is not None:
            option = "--" + setting.replace("_", "-")
            raise DataError(
                f"{option} {value} has no meaning for the task {config.task!r}; "
                f"leave it out, or give a file as --task"
            )
