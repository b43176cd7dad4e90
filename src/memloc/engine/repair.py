"""From a result back to its models: candidates without the wrong labels, and their exams.

The settings of a result make its plan again, and so the keys of its models, which are in the store
or are trained once more. What a repair computes are ordinary jobs: two candidates have to be
trained, and each of them has an exam (`memloc.training.exam`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from memloc.analysis.windows import Window
from memloc.config import Candidate, Engine, Localisation, Repair, Run
from memloc.data.task import Task
from memloc.engine.experiment import Experiment, one_of_each
from memloc.engine.inputs import InputCache, working
from memloc.engine.job import Artefact, Job, JobFailed
from memloc.engine.loop import Outcome
from memloc.engine.plan import EPOCH_PASSES
from memloc.engine.progress import Progress
from memloc.engine.store.admin import references
from memloc.engine.store.store import Store
from memloc.engine.views import run_status
from memloc.errors import ConfigError, MemlocError, ModelError, StoreError
from memloc.models.names import ModelSource
from memloc.tables import EXAM
from memloc.techniques.probing import Probing
from memloc.techniques.retraining import Retraining
from memloc.techniques.swapping import Swapping

REVISION = 1
"""Part of the key of candidates and exams: raise it when the same input would give others."""
NO_START = "the model before fine-tuning (pretrained) was not given"
EXAM_EPOCHS = 3.0
"""What an exam takes beside its probes, in epochs of training."""


@dataclass(frozen=True)
class Planned:
    """A candidate.

    Attributes:
        window: Its layers, if it is not a whole model.
        training: The job that trains it, if it takes one of its own.
        exam: The job that examines it.
    """

    window: Window | None
    training: Job | None
    exam: Job


@dataclass(frozen=True)
class RepairPlan:
    """All that a repair computes.

    Attributes:
        models: The jobs that train θ_M and θ_O, by state; none of given models.
        candidates: Those that are possible, in the order of `Candidate`.
        left_out: Why the others are not.
    """

    models: Mapping[str, Job]
    candidates: Mapping[Candidate, Planned]
    left_out: Mapping[Candidate, str]

    @property
    def jobs(self) -> list[Job]:
        """In an order in which they could run."""
        trainings = [one.training for one in self.candidates.values() if one.training is not None]
        return [*self.models.values(), *trainings, *(p.exam for p in self.candidates.values())]


@dataclass(frozen=True)
class Examined:
    """What became of all candidates.

    Attributes:
        plan: What was computed.
        table: The schema is `EXAM`.
        task: The examples.
        source: The model before fine-tuning, or θ_M if that is not known.
        failures: A sentence on everything that failed.
        jobs: How many were computed, and how many were in the store already.
        seconds: What it took.
    """

    plan: RepairPlan
    table: pd.DataFrame
    task: Task
    source: ModelSource
    failures: list[str]
    jobs: dict[str, int]
    seconds: float


def plan_repair(
    experiment: Experiment, seed: int, windows: Mapping[Candidate, Window | str]
) -> RepairPlan:
    """Describe everything that a repair computes.

    Args:
        experiment: Whose models are repaired: a run, or given models.
        seed: Which of its seeds.
        windows: Of the candidates that have one; a text says why there is none.
    """
    config, planner, task = experiment.config, experiment.planner, experiment.outline.task
    assert isinstance(config, Run | Localisation)
    assert planner is not None
    assert task is not None
    cell = next(cell for cell in experiment.plan.cells if cell.seed == seed)
    states = ("memorised", "original")
    models = {state: cell.trainings[state] for state in states if state in cell.trainings}
    start = config.model.name if isinstance(config, Run) else str(config.pretrained)
    own = Retraining(**config.techniques.get(Retraining.name, {}))
    retraining = own.suited_to(start, config.training)
    probing = Probing(**config.techniques.get(Probing.name, {}))
    assert isinstance(retraining.config, Retraining.Config)
    longer = config.training.replace(epochs=retraining.config.epochs)
    common = {"seed": seed, "revision": REVISION}
    if isinstance(config, Localisation) and config.pretrained is None:
        windows = {**windows, "retrained-window": NO_START}
    left_out = {name: why for name, why in windows.items() if isinstance(why, str)}

    def job(kind: str, name: Candidate, identity: dict[str, Any], passes: float, *roles: str,
            **needs: Artefact) -> Job:  # fmt: skip
        """A job on the models of some roles."""
        needs |= {role: models[role].artefact for role in roles if role in models}
        title = name if kind == "candidate" else f"exam of {name}"
        identity = {"candidate": name, **identity, **common}
        return planner.job(kind, title, identity, passes, needs, roles)

    candidates: dict[Candidate, Planned] = {}
    for name in get_args(Candidate):
        window, training = windows.get(name), None
        if isinstance(window, str):
            continue
        if name == "trained-on":
            passes = EPOCH_PASSES * longer.likely_epochs
            training = job("candidate", name, {"training": longer.identity()}, passes, "memorised")
        changed = {} if window is None else {"window": list(window), "unit": config.windows.unit}
        if window is not None and name == "retrained-window":
            how = {"settings": retraining.identity(), "technique_revision": retraining.revision}
            training = job(
                "candidate",
                name,
                {**changed, **how, **planner.trains},
                retraining.window_cost(planner.n_layers, window),
                *("memorised", "pretrained"),
            )
            changed = {}  # its weights are those that were trained
        asked = {
            "true_labels": task.noise != "suspected" and "original_label" in task.train,
            "probing": probing.identity(),
        }
        exam = job(
            "exam",
            name,
            {**changed, **asked, **planner.trains},
            EXAM_EPOCHS * EPOCH_PASSES + planner.n_layers,
            *(("memorised", "original") if changed or name == "twin" else ("memorised",)),
            **({} if training is None else {"candidate": training.artefact}),
        )
        candidates[name] = Planned(window, training, exam)
    return RepairPlan(models, candidates, left_out)


def carry_out(
    prepare: Callable[[Any, InputCache], Experiment],
    config: Run | Localisation,
    folder: Path,
    seed: int,
    windows: Mapping[Candidate, Window | str],
    store: Store,
    engine: Engine,
    settings: Repair,
    progress: Progress,
) -> Examined:
    """Make all candidates and examine them; what is already in the store is not computed again.

    Args:
        prepare: Makes the experiment of the settings.
        config: Settings of the result.
        folder: Of the result.
        seed: Which of its seeds.
        windows: See `plan_repair`.
        store: Has the models, or gets them once more.
        engine: How jobs run.
        settings: Of the repair.
        progress: Where to show how far it is.

    Raises:
        MemlocError: If the models of the result cannot be had, or their exams failed.
    """
    started = time.perf_counter()
    with working(store, engine, settings.device, progress) as inputs:
        experiment = _same_again(prepare, config, folder, inputs, seed)
        plan = plan_repair(experiment, seed, windows)
        wanted = settings.candidate
        if wanted is not None and wanted in plan.left_out:
            why = plan.left_out[wanted]
            raise ConfigError(why, setting="candidate", value=wanted, remedy="choose another")
        whole = f"repair-{folder.resolve().name}" if experiment.name else ""
        with progress.also(*run_status(store, whole, "repair")):
            outcome = inputs.executor.execute(plan.jobs, progress)
    failures = one_of_each(list(outcome.failed.values()))
    needed: tuple[Candidate, ...] = ("twin", "unchanged", wanted or "twin")
    for name in needed:
        if plan.candidates[name].exam.artefact in outcome.missing:
            raise JobFailed(failures[0])
    assert experiment.outline.task is not None
    assert experiment.planner is not None
    return Examined(
        plan,
        collect(plan, store, outcome),
        experiment.outline.task,
        experiment.planner.source,
        failures,
        {
            "computed": outcome.computed,
            "reused": len(plan.jobs) - outcome.computed - len(outcome.missing),
        },
        round(time.perf_counter() - started, 1),
    )


def _same_again(
    prepare: Callable[[Any, InputCache], Experiment],
    config: Run | Localisation,
    folder: Path,
    inputs: InputCache,
    seed: int,
) -> Experiment:
    """The experiment of a result.

    Raises:
        ModelError: If model or data are gone, or are others than those of the result.
    """
    made_from = references(folder)
    try:
        experiment = prepare(config, inputs)
    except StoreError:
        raise
    except MemlocError as error:
        raise ModelError(
            f"{str(folder)!r} cannot be repaired without its model and its data: {error}"
        ) from None
    cell = next(cell for cell in experiment.plan.cells if cell.seed == seed)
    swapping = cell.results.get(Swapping.name)
    if swapping is None or swapping.artefact not in made_from:
        raise ModelError(
            f"the model, the data or memloc have changed since {str(folder)!r} was made",
            remedy="make the result again, then repair it",
        )
    return experiment


def collect(plan: RepairPlan, store: Store, outcome: Outcome) -> pd.DataFrame:
    """The exams of all candidates, and the seconds that it took to make each."""
    parts = []
    for name, planned in plan.candidates.items():
        if planned.exam.artefact in outcome.missing:
            continue
        artefact = store.open(*planned.exam.artefact)
        seconds = artefact.manifest["costs"]["seconds_to_make"]
        made_by = plan.models.get("original") if name == "twin" else planned.training
        if made_by is not None:
            seconds = store.open(*made_by.artefact).manifest["costs"]["seconds"]
        elif name == "twin":
            seconds = np.nan  # somebody else has trained it
        row = {"measure": "seconds", "value": seconds}
        rows = pd.concat([artefact.table("exam.parquet"), pd.DataFrame([row])])
        first, last = planned.window or (np.nan, np.nan)
        parts.append(rows.assign(candidate=name, first_layer=first, last_layer=last))
    return EXAM.frame(pd.concat(parts, ignore_index=True))
