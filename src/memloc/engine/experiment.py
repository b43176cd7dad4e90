"""One engine for all experiments: from settings to tables.

Every experiment goes the same way, whether its models are trained (`memloc run`), given
(`memloc localise`) or trained to hide something (`memloc control`): its `prepare` finds what is
wrong with the input and lists the jobs, an executor computes those that are not in the store, and
`collect` puts the tables together. `memloc sweep` takes many experiments this way at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from memloc import tables
from memloc.config import (
    AUTO,
    ControlRun,
    Engine,
    Localisation,
    Run,
)
from memloc.data.task import Task
from memloc.engine.audit import find_suspects
from memloc.engine.collect import collect
from memloc.engine.inputs import InputCache, working
from memloc.engine.job import Artefact, Failure, Job, JobFailed
from memloc.engine.loop import Outcome
from memloc.engine.plan import Plan, Planner, model_job, plan_run
from memloc.engine.progress import OPEN, Progress, View
from memloc.engine.store.store import DamagedArtefact, Store, key_of
from memloc.engine.views import run_status
from memloc.techniques import (
    Circumstances,
    Technique,
    at_checkpoints,
    check_possible,
    make,
    make_techniques,
    names,
    possible,
    possible_explanations,
    settings_of,
)
from memloc.text import counted, one_line


@dataclass(frozen=True)
class Findings:
    """What an experiment computed; `memloc.results` summarises it.

    Attributes:
        kind: Of the experiment.
        name: Of the folder that its results go to.
        tables: By name.
        settings: What was asked for, as JSON data.
        about: What there is to say beside the tables: names and counts, as JSON data.
        task: The examples, if all tables are about the same ones.
        techniques: The settings of each technique, as JSON data.
        failures: A sentence on everything that failed.
        unexplained: A sentence on every explanation that is not possible.
        pending: What is still being computed, in words; empty when all is done.
        artefacts: What it was made from; None if nothing of it is in a store.
        jobs: How many were computed, and how many were in the store already.
        seconds: What it took.
    """

    kind: tables.Experiment
    name: str
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    task: Task | None = None
    techniques: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    failures: Sequence[str] = ()
    unexplained: Sequence[str] = ()
    pending: Sequence[str] = ()
    artefacts: list[Artefact] | None = None
    jobs: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Experiment:
    """An experiment whose input is usable, with all its jobs.

    Attributes:
        config: What was asked for, with all settings of the techniques.
        plan: What to compute.
        outline: The findings, without what has to be computed. Their name begins that of the
            result folder; it is empty if that is not below the runs.
        looks: The jobs that looked at its models.
        planner: Makes further jobs on its models; none if they are of many tasks.
    """

    config: Run | Localisation | ControlRun
    plan: Plan
    outline: Findings
    looks: Sequence[Job] = ()
    planner: Planner | None = None

    @property
    def jobs(self) -> list[Job]:
        """All of them."""
        return self.plan.jobs

    @property
    def name(self) -> str:
        """Of the folder that the results go to."""
        kind, begins = self.outline.kind, self.outline.name
        key = key_of(kind, [job.key for job in self.jobs])
        return f"{begins}-{key[:8]}" if begins else ""

    def collect(self, store: Store, outcome: Outcome, finished: bool = True) -> Findings:
        """Put together what was computed.

        Args:
            store: Has the results of the jobs.
            outcome: What became of them; those of other experiments do not matter.
            finished: Whether all results have to be there that did not fail.

        Raises:
            JobFailed: If there is no result.
            DamagedArtefact: If an artefact turned out damaged (it is set aside then) or is gone.
        """
        mine = {job.artefact for job in self.jobs}
        gone = [
            job
            for cell in self.plan.cells
            for job in cell.results.values()
            if job.artefact not in outcome.missing and not store.has(*job.artefact)
        ]
        if gone and finished:
            raise DamagedArtefact(
                f"{gone[0].title} was computed, but is gone from {str(store.root)!r}",
                *gone[0].artefact,
            )
        failures = one_of_each([why for job, why in outcome.failed.items() if job in mine])
        results = {job.artefact for cell in self.plan.cells for job in cell.techniques.values()}
        if results <= outcome.missing:
            more = f" (and {len(failures) - 1} other jobs failed)" if len(failures) > 1 else ""
            raise JobFailed(failures[0] + more)
        outline = self.outline
        found, splits = collect(self.plan, store, outline.kind, outline.task)
        settings = self.config.model_dump(mode="json")
        everything = (*self.looks, *self.jobs)
        used = {a for job in everything for a in (job.artefact, *job.needs.values())}
        return replace(
            outline,
            name=self.name or outline.kind,
            tables=found,
            settings={"control": settings} if outline.kind == "control" else settings,
            about={**outline.about, "generalisation": splits} if splits else outline.about,
            failures=failures,
            artefacts=sorted(artefact for artefact in used if store.has(*artefact)),
        )


class FirstAnswer(View):
    """Hands over what the first technique found, as soon as that is there and others are not.

    This is the first technique in the order in which they were chosen, of the first models; if it
    fails, the next one. It runs beside the loop, which keeps the workers busy meanwhile.

    Args:
        experiment: Whose techniques they are.
        store: Has their results.
        tell: Is told once, or never if everything is there at the same time.
    """

    def __init__(
        self, experiment: Experiment, store: Store, tell: Callable[[Findings], None]
    ) -> None:
        self.experiment, self.store, self.tell = experiment, store, tell
        self.techniques = list(experiment.plan.cells[0].techniques.values())
        self.told = False

    def update(self, progress: Progress) -> None:
        """Look whether it is there; an answer that cannot be given now does not end the work."""
        states = [progress.states.get(job.artefact) for job in self.techniques]
        known = next((state for state in states if state not in ("failed", "left_out")), None)
        if self.told or known != "done" or not progress.working:
            return
        self.told = True
        pending = self._pending(progress)
        if not pending:
            return
        try:
            found = self.experiment.collect(self.store, Outcome(), finished=False)
            self.tell(replace(found, pending=pending))
        except Exception as error:
            reason = one_line(str(error)) or type(error).__name__
            progress.note(f"the first answer cannot be shown yet: {reason}")

    def _pending(self, progress: Progress) -> list[str]:
        """Techniques and explanations by name, of so many models if of some they are done."""
        plan = self.experiment.plan

        def still_open(jobs: Iterable[Job]) -> int:
            return sum(progress.states.get(job.artefact) in OPEN for job in jobs)

        found = []
        for name in dict.fromkeys(name for cell in plan.cells for name in cell.results):
            jobs = [cell.results[name] for cell in plan.cells if name in cell.results]
            left = still_open(jobs)
            if left:
                some = f" of {counted(left, 'more seed')}" if left < len(jobs) else ""
                found.append(name.replace("_", " ") + some)
        beside = {"checkpoints": plan.of_checkpoints, "generalisation": plan.splits}
        return found + [what for what, jobs in beside.items() if still_open(jobs)]


def carry_out(
    prepare: Callable[[Any, InputCache], Experiment],
    settings: Run | Localisation | ControlRun,
    store: Store,
    engine: Engine,
    progress: Progress,
    first: Callable[[Findings], None] | None = None,
) -> Findings:
    """One experiment on this machine; whatever is already in the store is not computed again.

    Args:
        prepare: Checks the input, and lists the jobs.
        settings: What to do.
        store: Where results go.
        engine: How jobs run.
        progress: Where to show how far it is.
        first: Is told what there is as soon as the first technique is done; see `FirstAnswer`.

    Raises:
        MemlocError: If something the user gave cannot be used; nothing is lost then.
    """
    started = time.perf_counter()
    with working(store, engine, settings.device, progress) as inputs:
        experiment = prepare(settings, inputs)
        status = run_status(store, experiment.name, experiment.outline.kind)
        early = [] if first is None else [FirstAnswer(experiment, store, first)]
        leading = [job.artefact for view in early for job in view.techniques[:1]]
        with progress.also(*status, *early):
            outcome = inputs.executor.execute(experiment.jobs, progress, first=leading)
    findings = experiment.collect(store, outcome)
    reused = len(experiment.jobs) - outcome.computed - len(outcome.missing)
    counts = {"computed": outcome.computed, "reused": reused}
    return replace(findings, jobs=counts, seconds=round(time.perf_counter() - started, 1))


def one_of_each(failures: Sequence[Failure]) -> list[str]:
    """Jobs that failed for the same reason in one sentence, with their number."""
    reasons: dict[str, list[Failure]] = {}
    for failure in failures:
        reasons.setdefault(failure.reason, []).append(failure)
    return [
        str(same[0]) + (f" (and {len(same) - 1} more like it)" if len(same) > 1 else "")
        for same in reasons.values()
    ]


def prepare(config: Run, inputs: InputCache, label: str = "") -> Experiment:
    """A run: its input is checked first, then its model is looked at.

    The same arguments make all experiments (`memloc.engine.control`, `memloc.engine.given`).

    Args:
        config: What to do.
        inputs: Has data and models.
        label: Added to titles, where there are many experiments at once.

    Raises:
        MemlocError: If something cannot be used, or a model does not allow what was asked for.
    """
    techniques = make_techniques(config.techniques)
    explaining = {n: s for n, s in config.techniques.items() if n in names("explanation")}
    config = config.replace(techniques={**settings_of(techniques), **explaining})
    if config.data.suspects == AUTO:
        find_suspects(config, inputs, label)
    task = inputs.task(config.data)
    if config.data.binarise and not task.binarised:
        inputs.progress.note(
            f"{task.name!r} has two classes anyway, so there is nothing to binarise"
        )
        # The result is that of a run without it, and must not pass for a binarised one.
        config = config.replace(data=config.data.replace(binarise=False))
    source = inputs.source(config.model)
    check_possible(techniques, Circumstances(task.train))
    facts = inputs.facts(config.model)
    planner = inputs.planner(config.model, config.data, config.training, config.windows, label)
    there = Circumstances(task.train, facts["pooling"])
    check_possible(techniques, there, config.windows.unit, facts.get("unit_problem"))
    explanations, unexplained = possible_explanations(config.explain, there, config.techniques)
    looking: list[Technique] = []
    if config.checkpoints is not None:
        wanted = [make(name, config.techniques.get(name)) for name in at_checkpoints()]
        looking, reasons = possible(wanted, there)
        examined, _ = possible_explanations(None, there, config.techniques)
        looking += [one for one in examined if one.at_checkpoints]
        unexplained += [
            f"{name} does not look at checkpoints: {reason}" for name, reason in reasons.items()
        ]
    outline = Findings(
        "run",
        f"{task.name[:60]}-{source.name[:60]}",
        about={
            "model": source.name,
            "task": task.name,
            **describe(task),
            "layers": planner.n_layers,
            "width": facts["width"],
            "layer_parameters": facts["layer_parameters"],
            "seeds": list(config.seeds),
            "generalisation": None,
        },
        task=task,
        techniques={one.name: one.all_settings(config.windows) for one in techniques},
        unexplained=unexplained,
    )
    plan = plan_run(config, planner, explanations, looking)
    return Experiment(config, plan, outline, [model_job(config.model, source)], planner)


def describe(task: Task) -> dict[str, Any]:
    """Classes, numbers of examples and what noisy labels are, as JSON data."""
    return {
        "classes": list(task.labels),
        "examples": len(task.train),
        "noisy_examples": int(task.train["noisy"].sum()),
        "validation_examples": len(task.validation),
        "noise": task.noise,
    }
