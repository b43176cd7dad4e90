"""What the control benchmark works on, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memloc.config import ConfigError, ControlRunConfig, DataConfig
from memloc.data.builtin import BUILTIN_TASKS
from memloc.data.load import is_downloaded
from memloc.data.task import Task
from memloc.engine.progress import Progress
from memloc.engine.supplies import Supplies
from memloc.models.names import ModelSource
from memloc.techniques import (
    Circumstances,
    Technique,
    check_possible,
    make_usable,
    names,
    settings_of,
)

AUXILIARY_SIZE = 100
"""Training examples of a built-in auxiliary task: enough to change all layers, at little cost."""


@dataclass(frozen=True)
class PreparedControl:
    """A benchmark whose input is usable.

    Attributes:
        config: What to do.
        techniques: Those that can be imported.
        broken: Sentences on those that cannot.
        data: Of the main tasks, by name, and of the auxiliary one.
        auxiliary: Name of the auxiliary task.
        sources: The models.
    """

    config: ControlRunConfig
    techniques: list[Technique]
    broken: list[str]
    data: dict[str, DataConfig]
    auxiliary: str
    sources: list[ModelSource]

    @property
    def tasks(self) -> list[str]:
        """Names of the main tasks."""
        return [name for name in self.data if name != self.auxiliary]


def prepare(config: ControlRunConfig, supplies: Supplies, progress: Progress) -> PreparedControl:
    """Find what can be wrong with the input, as far as that shows without a look at the models.

    Raises:
        MemlocError: If something cannot be used.
    """
    chosen = config.techniques
    if config.every_technique:
        chosen = {name: chosen.get(name, {}) for name in names()}
    techniques, broken = make_usable(chosen)
    config = config.replace(
        techniques=settings_of(techniques), all_techniques=config.every_technique
    )
    for sentence in broken:
        progress.note(sentence)
    main, auxiliary = _data_of_tasks(config)
    tasks, other = [supplies.task(data) for data in main], supplies.task(auxiliary)
    _check_texts(config, tasks, other)
    _check_names("--tasks", [task.name for task in (*tasks, other)])
    for task in tasks:
        check_possible(techniques, Circumstances(task.train))
    sources = [supplies.source(one.model) for one in config.models]
    _check_names("--model", [source.name for source in sources])
    data = {supplies.task(one).name: one for one in (*main, auxiliary)}
    return PreparedControl(config, techniques, broken, data, other.name, sources)


def _data_of_tasks(config: ControlRunConfig) -> tuple[list[DataConfig], DataConfig]:
    """The main tasks and the auxiliary one.

    Raises:
        ConfigError: If the auxiliary task is a main task too.
    """
    for name in config.held_back:
        if name not in config.tasks:
            raise ConfigError(f"--held-back {name} is not among --tasks {','.join(config.tasks)}")
    if set(config.held_back) >= set(config.tasks):
        raise ConfigError("--held-back leaves no task to score the techniques on; name fewer")
    if config.auxiliary in config.tasks:
        raise ConfigError(
            f"--aux-task {config.auxiliary} is among --tasks too; a task cannot be its own "
            "auxiliary, so choose another"
        )

    def of_task(name: str, limit: int | None) -> DataConfig:
        data = config.data.replace(task=name, limit=limit)
        if not is_downloaded(name):  # local copies are of these alone
            data = data.model_copy(update={"data_dir": None})
        return data

    size = config.auxiliary_limit
    if size is None and config.auxiliary in BUILTIN_TASKS:
        size = AUXILIARY_SIZE
    return [of_task(name, None) for name in config.tasks], of_task(config.auxiliary, size)


def _check_texts(config: ControlRunConfig, tasks: Sequence[Task], auxiliary: Task) -> None:
    """The auxiliary task must teach something else.

    Raises:
        ConfigError: If it is a main task under another name.
    """
    texts = set(auxiliary.train["text"])
    for task in tasks:
        if len(texts & set(task.train["text"])) > len(texts) / 2:
            raise ConfigError(
                f"--aux-task {config.auxiliary} has the same texts as {task.name!r}; choose "
                "another auxiliary task"
            )


def _check_names(flag: str, names: Sequence[str]) -> None:
    """Results are told apart by name.

    Raises:
        ConfigError: If two have the same.
    """
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"{flag} names {name!r} twice, and results could not be told apart; rename one, or "
                "leave it out"
            )
