"""The control benchmark: hide memorisation in known layers, then score every technique.

The engine of `memloc control` (section 3.2 of the paper). It is planned here, and goes the way of
all experiments from there (`memloc.engine.experiment`).
"""

from __future__ import annotations

from collections.abc import Sequence

from memloc.analysis.control import hidden_layers, hidden_name
from memloc.config import ControlledModel, ControlRun, Data, TechniqueSettings
from memloc.data.builtin import BUILTIN_TASKS
from memloc.data.load import is_downloaded
from memloc.data.task import Task
from memloc.engine.experiment import Experiment, Findings
from memloc.engine.inputs import InputCache
from memloc.engine.plan import Plan, model_job
from memloc.errors import ConfigError, MemlocError
from memloc.techniques import (
    Circumstances,
    PluginFailed,
    Technique,
    check_possible,
    find,
    make_techniques,
    names,
    possible,
    settings_of,
)

AUXILIARY_SIZE = 100
"""Training examples of a built-in auxiliary task: enough to change all layers, at little cost."""


def prepare(config: ControlRun, inputs: InputCache, label: str = "") -> Experiment:
    """A benchmark: its input is checked first, then its models are looked at.

    Arguments are those of `experiment.prepare`. If there is a label, there are other experiments,
    and titles say all that tells jobs from theirs.

    Raises:
        MemlocError: If something cannot be used, or a model does not allow what was asked for.
    """
    techniques = make_techniques(_all_techniques(config, inputs) or config.techniques)
    config = config.replace(
        techniques=settings_of(techniques), all_techniques=config.every_technique
    )
    main, auxiliary = _data_of_tasks(config)
    tasks = {_task(inputs, data, "tasks").name: data for data in main}
    other = _task(inputs, auxiliary, "auxiliary")
    _check_different("tasks", [*(inputs.task(data).name for data in main), other.name])
    sources = [inputs.source(one.model) for one in config.models]
    _check_different("model.name", [source.name for source in sources])
    for data in main:
        check_possible(techniques, Circumstances(inputs.task(data).train))
    cells = []
    for one, source in zip(config.models, sources, strict=True):
        allowed = _possible(config, techniques, inputs, one)
        extra = inputs.pass_cost(one.model, auxiliary, one.training.max_tokens)
        for task, data in tasks.items():
            of_task = f"{source.name}, {task}" if len(sources) > 1 or label else task
            training = one.exceptions.get(data.task, one.training)
            planner = inputs.planner(
                one.model, data, training, config.windows, f" ({of_task})", auxiliary
            )
            hiding = [hidden_layers(spec, planner.n_layers, source.name) for spec in config.layers]
            # In a shallow model, first, middle and last may be the same pair.
            for hidden in dict.fromkeys(hiding):
                for seed in config.seeds:
                    of_seed = f", seed {seed}" if len(config.seeds) > 1 else ""
                    front = {"model": source.name, "n_layers": planner.n_layers, "task": task}
                    cells.append(
                        planner.control_cell(
                            allowed,
                            hidden,
                            seed,
                            inputs.data(auxiliary),
                            config.control,
                            f", hidden in {hidden_name(hidden)}{of_seed}",
                            1 + extra / planner.pass_cost,
                            {**front, "hidden": hidden_name(hidden)},
                        )
                    )
    outline = Findings(
        "control",
        "control",
        about={
            "held_back": [name for name, data in tasks.items() if data.task in config.held_back],
            "auxiliary": config.auxiliary,
            "seeds": list(config.seeds),
            "learned_at": config.control.learned_at,
            "unit": config.windows.unit,
        },
    )
    looks = [model_job(one.model, inputs.source(one.model)) for one in config.models]
    return Experiment(config, Plan(tuple(cells)), outline, looks)


def _all_techniques(config: ControlRun, inputs: InputCache) -> TechniqueSettings:
    """All that can be imported, with their settings, if all are wanted; else none.

    A technique nobody asked for by name is no failure if it cannot be imported.
    """
    found = {}
    for name in names() if config.every_technique else ():
        try:
            find(name)
        except PluginFailed as error:
            inputs.progress.note(str(error))
        else:
            found[name] = config.techniques.get(name, {})
    return found


def _possible(
    config: ControlRun, techniques: Sequence[Technique], inputs: InputCache, one: ControlledModel
) -> list[Technique]:
    """The techniques that a model allows; only those that were asked for by name must be."""
    model = one.model
    facts = inputs.facts(model)
    there, chosen = Circumstances(pooling=facts["pooling"]), list(techniques)
    if config.every_technique:
        chosen, reasons = possible(techniques, there)
        for name, reason in reasons.items():
            inputs.progress.note(f"{name} is left out for {inputs.source(model).name}: {reason}")
    check_possible(chosen, there, config.windows.unit, facts.get("unit_problem"))
    return [technique.suited_to(model.name, one.training) for technique in chosen]


def _data_of_tasks(config: ControlRun) -> tuple[list[Data], Data]:
    """The main tasks and the auxiliary one.

    Raises:
        ConfigError: If no task would be left, or the auxiliary task is a main task too.
    """
    for name in config.held_back:
        if name not in config.tasks:
            raise ConfigError(
                f"it is not among the tasks {', '.join(config.tasks)}",
                setting="held_back",
                value=name,
            )
    if set(config.held_back) >= set(config.tasks):
        raise ConfigError(
            "no task is left to score the techniques on", setting="held_back", remedy="name fewer"
        )
    if config.auxiliary in config.tasks:
        raise ConfigError(
            "it is among the tasks too, and a task cannot be its own auxiliary",
            setting="auxiliary",
            value=config.auxiliary,
            remedy="choose another",
        )

    def of_task(name: str, limit: int | None) -> Data:
        data = config.data.replace(task=name, limit=limit)
        if not is_downloaded(name):  # local copies are of these alone
            data = data.model_copy(update={"data_dir": None})
        return data

    size = config.auxiliary_limit
    if size is None and config.auxiliary in BUILTIN_TASKS:
        size = AUXILIARY_SIZE
    return [of_task(name, None) for name in config.tasks], of_task(config.auxiliary, size)


def _task(inputs: InputCache, data: Data, setting: str) -> Task:
    """One of the tasks; what is wrong with its name is wrong with the setting it came from."""
    try:
        return inputs.task(data)
    except MemlocError as error:
        if error.setting == "data.task":
            error.setting = setting
        raise


def _check_different(setting: str, names: Sequence[str]) -> None:
    """Results are told apart by name.

    Raises:
        ConfigError: If two have the same.
    """
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"{name!r} is named twice, and results could not be told apart",
                setting=setting,
                remedy="rename one, or leave it out",
            )
