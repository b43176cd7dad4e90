"""From settings to jobs: models, then the techniques and explanations that look at them.

A run trains its models. Checkpoints look at them on their way, with snapshots that a training
leaves. The control benchmark trains models that could memorise in known layers only.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from memloc.analysis.control import hidden_name
from memloc.analysis.windows import Window, chosen_windows
from memloc.config import (
    PAPER_SPLIT_RATE,
    Control,
    Generalisation,
    Model,
    Run,
    Training,
    Windows,
)
from memloc.engine import costs
from memloc.engine.device import pick_device
from memloc.engine.job import Job
from memloc.models.names import ModelSource
from memloc.techniques import Technique, make_usable, origin, place_of

TRAIN_REVISION = 1
"""Part of the key of trained models: raise it when the same settings would train another model."""
STATES_REVISION = 1
MODEL_REVISION = 4
SPLIT_REVISION = 1
SPEED_REVISION = 2
CONTROL_REVISION = 1
SPLIT_SEED = 1
"""Decides the halves; the same for all models, so that their scores are of the same examples."""
SWAPPED_HALVES = {"bottom_swapped": "bottom half swapped", "top_swapped": "top half swapped"}
FROZEN_SEED = 1
"""Of the head of the frozen model: the same for all model seeds, so that they can share it."""
NEXT_TO_NOTHING = 0.01
"""Cost of snapshots that a training leaves on its way."""
Artefact = tuple[str, str]


@dataclass(frozen=True)
class SeedJobs:
    """The jobs of one model seed."""

    seed: int
    trainings: dict[str, Job]
    """By state: original, memorised."""
    techniques: dict[str, Job]
    """The job that has the result of a technique."""
    explanations: dict[str, Job]
    parts: tuple[Job, ...] = ()
    """What those need."""
    snapshots: tuple[Job, ...] = ()
    """The models on their way."""
    checkpoints: dict[int, SeedJobs] = field(default_factory=dict)
    """By epoch; the last ones are jobs of the seed itself, as far as it has them."""

    @property
    def all(self) -> list[Job]:
        """Those of the checkpoints too, in an order in which they could run."""
        of_checkpoints = [job for one in self.checkpoints.values() for job in one.all]
        results = (*self.techniques.values(), *self.explanations.values())
        return [*self.trainings.values(), *self.parts, *results, *self.snapshots, *of_checkpoints]


@dataclass(frozen=True)
class RunPlan:
    """All jobs of a run."""

    frozen: Job | None
    seeds: tuple[SeedJobs, ...]
    splits: tuple[Job, ...] = ()
    """Half-splits, of which perhaps not all are needed; they are not among the `jobs`."""

    @property
    def jobs(self) -> list[Job]:
        """In an order in which they could run one after another."""
        trainings = [job for s in self.seeds for job in s.trainings.values()]
        frozen = [] if self.frozen is None else [self.frozen]
        # Seeds share the states of the frozen model.
        parts = {job.key: job for s in self.seeds for job in s.parts}
        results = [
            job for s in self.seeds for job in (*s.techniques.values(), *s.explanations.values())
        ]
        jobs = [*trainings, *frozen, *parts.values(), *results]
        there = {job.key for job in jobs}
        more = {job.key: job for s in self.seeds for job in s.all if job.key not in there}
        return [*jobs, *more.values()]


def model_job(config: Model, source: ModelSource) -> Job:
    """Look at a model, before the rest can be planned."""
    return Job(
        "model",
        "look at the model",
        {
            "fingerprint": source.fingerprint,
            "blocks": config.blocks,
            "revision": MODEL_REVISION,
        },
        where={"source": asdict(source), "trust_remote_code": config.trust_remote_code},
    )


@dataclass(frozen=True)
class Planner:
    """What all jobs on one data set and one pre-trained model have in common.

    Attributes:
        data: The prepared examples.
        model: The configuration of the model.
        source: The pre-trained model.
        training: How models are fine-tuned, and windows retrained.
        windows: Which windows the techniques change.
        n_layers: Of the model.
        where: Further data on where to compute, without influence on results.
        given: Fine-tuned models that need no training, by role.
        label: Added to the titles of jobs and groups, where there are many plans at once.
        shared_label: Added to the titles of jobs that belong to no single trained model.
        pass_cost: Of a pass of the data through the model, where those of many plans are compared.
        epoch: After which the trained models are looked at; None: at the end.
    """

    data: Artefact
    model: Model
    source: ModelSource
    training: Training
    windows: Windows
    n_layers: int
    where: dict[str, Any]
    given: dict[str, ModelSource] = field(default_factory=dict)
    label: str = ""
    shared_label: str = ""
    pass_cost: float = 1.0
    epoch: int | None = None

    def train(self, state: str, seed: int, title: str) -> Job:
        """Fine-tune a model."""
        identity = {"state": state, "seed": seed, "revision": TRAIN_REVISION}
        return self.job("train", title, {**identity, **self.trains}, {})

    def seed_jobs(
        self,
        techniques: Sequence[Technique],
        explanations: Sequence[Technique],
        seed: int,
        models: dict[str, Artefact],
        of: str = "",
        trainings: dict[str, Job] | None = None,
    ) -> SeedJobs:
        """Techniques and explanations of one model seed.

        Args:
            techniques: To apply.
            explanations: To compute.
            seed: Model seed.
            models: Trained models by role; others are `given`.
            of: Added to titles.
            trainings: Jobs that train the models.
        """
        parts: dict[str, Job] = {}
        results: dict[str, Job] = {}
        for technique in (*techniques, *explanations):
            result, needed = self.apply(technique, seed, models, of)
            place = place_of(technique.name)
            if place is not None:  # only this process knows it by name
                result = replace(result, where={**result.where, "technique": place})
                needed = [replace(job, where={**job.where, "technique": place}) for job in needed]
            results[technique.name] = result
            parts |= {job.key: job for job in needed}
        return SeedJobs(
            seed,
            trainings or {},
            {one.name: results[one.name] for one in techniques},
            {one.name: results[one.name] for one in explanations},
            tuple(parts.values()),
        )

    def apply(
        self, technique: Technique, seed: int, models: dict[str, Artefact], of: str = ""
    ) -> tuple[Job, list[Job]]:
        """The job that has the result of a technique or an explanation, and those that it needs."""
        name, parts = technique.name, []
        needs: dict[str, Artefact] = {}
        for need in technique.needed:
            role = need.removeprefix("states:")
            if role == need and role in models:
                needs[need] = models[need]
            elif role != need and (self.n_layers > 1 or role not in SWAPPED_HALVES):
                parts.append(self._states(role, models, of))
                needs[need] = parts[-1].artefact
        # States come from jobs of their own, whose keys stand for the models behind them.
        roles = tuple(need for need in technique.needed if ":" not in need)
        identity: dict[str, Any] = {
            "technique": name,
            "revision": technique.revision,
            "seed": seed,
            "settings": technique.config.model_dump(mode="json"),
        }
        if origin(name) is not None:
            identity["origin"] = origin(name)
        if technique.uses_unit:
            identity["unit"] = self.windows.unit
        whole = {**identity, **self.looks}
        if technique.uses_windows:
            whole["window_sizes"] = self.windows.sizes and list(self.windows.sizes)
        cost = technique.cost(self.n_layers)
        if not technique.windowed:
            kind = "localise" if technique.kind == "technique" else "explain"
            title = f"{name.replace('_', ' ')}{of}"
            return self.job(kind, title, whole, needs, roles, passes=cost), parts
        windows = {
            f"window:{window.first}-{window.last}": self.job(
                "window",
                f"{name}{of}, {_in_words(window)}",
                {**identity, "window": list(window), **self.trains},
                needs,
                roles,
                group=f"{name}{of}",
                passes=technique.window_cost(self.n_layers, window),
            )
            for window in chosen_windows(self.n_layers, self.windows.sizes)
        }
        # By first layer, so that a process goes up through the layers with its stored states.
        parts += sorted(
            windows.values(),
            key=lambda job: (job.identity["window"][0], -job.identity["window"][1]),
        )
        found = {role: job.artefact for role, job in windows.items()}
        title, group = f"{name}{of}, all windows", f"{name}{of}"
        return self.job("localise", title, whole, found, group=group, passes=cost), parts

    def splits(self, config: Generalisation) -> tuple[Job, ...]:
        """Models of random halves of the data."""
        # Models that need larger steps than the paper's to learn at all need them here too.
        rate = config.learning_rate or max(PAPER_SPLIT_RATE, self.training.learning_rate)
        training = self.training.replace(epochs=config.epochs, learning_rate=rate)
        return tuple(
            self.job(
                "split",
                f"generalisation, half-split {split + 1}",
                {
                    "split": split,
                    "seed": SPLIT_SEED,
                    "revision": SPLIT_REVISION,
                    "training": training.model_dump(),
                },
                {},
                group="generalisation",
            )
            for split in range(config.splits)
        )

    def _states(self, role: str, models: dict[str, Artefact], of: str) -> Job:
        swapped = role in SWAPPED_HALVES
        roles = ("memorised", "original") if swapped else (role,)
        needs = {name: models[name] for name in roles if name in models}
        whose = f"θ_P{self.shared_label}" if role == "pretrained" else f"θ_M{of}"
        if swapped:
            whose += f", {SWAPPED_HALVES[role]}"
        identity = {"role": role, "revision": STATES_REVISION, **self.looks}
        return self.job("states", f"states of {whose}", identity, needs, roles)

    # Plans have tens of thousands of jobs: what these have in common is made once, and shared.

    @cached_property
    def trains(self) -> dict[str, Any]:
        """For the identity of jobs that train something."""
        return {"training": self.training.model_dump()}

    @cached_property
    def looks(self) -> dict[str, Any]:
        """For the identity of jobs that only look at trained models."""
        return {"training": self.training.model_dump(include={"max_tokens", "dtype"})}

    @cached_property
    def _model_identity(self) -> dict[str, Any]:
        return {
            "fingerprint": self.source.fingerprint,
            "blocks": self.model.blocks,
            "pair_format": self.model.pair_format,
        }

    @cached_property
    def _wheres(self) -> dict[tuple[str, ...], dict[str, Any]]:
        """What jobs say in `where`, by the given models they look at."""
        return {}

    def _where(self, given: tuple[str, ...]) -> dict[str, Any]:
        if given not in self._wheres:
            self._wheres[given] = {
                **self.where,
                "source": asdict(self.source),
                "trust_remote_code": self.model.trust_remote_code,
                "models": {role: asdict(self.given[role]) for role in given},
                "layers": self.n_layers,
            }
        return self._wheres[given]

    def job(
        self,
        kind: str,
        title: str,
        identity: dict[str, Any],
        needs: Mapping[str, Artefact],
        roles: tuple[str, ...] = (),
        group: str | None = None,
        size: float = 1.0,
        passes: float | None = None,
    ) -> Job:
        """A job on these data and this model.

        Args:
            kind: Of the job.
            title: For people.
            identity: What determines the result, beside data and model.
            needs: What it reads beside the data.
            roles: The given models it looks at.
            group: Of jobs that are shown together.
            size: What goes through the model, in data sets.
            passes: Forward passes of it that take as long as the job; None: as usual for its kind.
        """
        if passes is None:
            passes = costs.passes(kind, identity, self.n_layers)
        given = tuple(role for role in roles if role in self.given)
        common: dict[str, Any] = {"model": self._model_identity}
        if given:
            common["models"] = {role: self.given[role].fingerprint for role in given}
        if self.epoch is not None and any(kind == "train" for kind, _ in needs.values()):
            common["epoch"] = self.epoch
        return Job(
            kind,
            f"{title}{self.label}",
            {**common, **identity},
            {"data": self.data, **needs},
            self._where(given),
            passes * size * self.pass_cost,
            group and f"{group}{self.label}",
        )


def plan_run(
    config: Run,
    data: Artefact,
    source: ModelSource,
    n_layers: int,
    where: dict[str, Any],
    explanations: Sequence[Technique] = (),
    label: str = "",
    pass_cost: float = 1.0,
    at_checkpoints: tuple[Sequence[Technique], Sequence[Technique]] = ((), ()),
    trained: Callable[[Artefact], bool] = lambda _: False,
) -> RunPlan:
    """Describe everything that a run computes.

    Args:
        config: What to do.
        data: The prepared examples.
        source: The pre-trained model.
        n_layers: Of the model.
        where: See `Planner`.
        explanations: To compute.
        label: See `Planner`.
        pass_cost: See `Planner`.
        at_checkpoints: Techniques and explanations that look at the checkpoints.
        trained: Whether a training is in the store already.
    """
    planner = Planner(
        data,
        config.model,
        source,
        config.training,
        config.windows,
        n_layers,
        where,
        label=label,
        pass_cost=pass_cost,
    )
    techniques, _ = make_usable(config.techniques)
    frozen = planner.train("frozen", FROZEN_SEED, "frozen model: train the head alone")
    seeds = []
    for seed in config.seeds:
        of = f", seed {seed}" if len(config.seeds) > 1 else ""
        original = planner.train("original", seed, f"θ_O: train on original labels{of}")
        memorised = planner.train("memorised", seed, f"θ_M: train on perturbed labels{of}")
        models = {
            "original": original.artefact,
            "memorised": memorised.artefact,
            "near_ceiling": memorised.artefact,
            "frozen": frozen.artefact,
        }
        trainings = {"original": original, "memorised": memorised}
        jobs = planner.seed_jobs(techniques, explanations, seed, models, of, trainings)
        if config.checkpoints is not None:
            epochs = config.checkpoint_epochs
            jobs = _with_checkpoints(planner, jobs, epochs, *at_checkpoints, of, trained)
        seeds.append(jobs)
    splits = () if config.generalisation is None else planner.splits(config.generalisation)
    return RunPlan(frozen, tuple(seeds), splits)


def snapshots_of(training: Job, epochs: Sequence[int]) -> Job:
    """The job whose artefact has the weights of a training after some of its epochs.

    A training that is told so in its `where` leaves that artefact beside its own, so this job is
    only computed (by training again) if the training was done before anybody asked. It waits for
    the training, as both at once would be the same work twice. The key of the training itself does
    not change: whatever was made from it stays valid.
    """
    return replace(
        training,
        title=f"{training.title}, checkpoints",
        identity={**training.identity, "snapshots": sorted(epochs)},
        needs={**training.needs, "trained": training.artefact},
        cost=training.cost * max(epochs) / training.identity["training"]["epochs"],
    )


def file_of(epoch: int) -> str:
    """Name of the file with the weights after an epoch, without its ending."""
    return f"epoch-{epoch}"


def _with_checkpoints(
    planner: Planner,
    jobs: SeedJobs,
    epochs: Sequence[int],
    techniques: Sequence[Technique],
    explanations: Sequence[Technique],
    of: str,
    trained: Callable[[Artefact], bool],
) -> SeedJobs:
    """The jobs of a seed, and those of its checkpoints; the last is the end of the training."""
    trainings, snapshots = {}, {}
    before = [epoch for epoch in epochs if epoch < planner.training.epochs]
    for state, job in jobs.trainings.items():
        trainings[state] = job
        if before:
            later = snapshots_of(job, before)
            if not trained(job.artefact):
                later = replace(later, cost=NEXT_TO_NOTHING * later.cost)
            trainings[state] = replace(job, where={**job.where, "snapshots": before})
            snapshots[state] = later
    end = {state: job.artefact for state, job in trainings.items()}
    on_the_way = {state: job.artefact for state, job in snapshots.items()}
    checkpoints = {}
    for epoch in epochs:
        early = epoch in before
        # The last one is planned like any run, so it is the same jobs.
        at = replace(planner, epoch=epoch) if early else planner
        title = f"{of}, epoch {epoch}" if early else of
        models = on_the_way if early else end
        checkpoints[epoch] = at.seed_jobs(techniques, explanations, jobs.seed, models, title)
    return replace(
        jobs, trainings=trainings, snapshots=tuple(snapshots.values()), checkpoints=checkpoints
    )


@dataclass(frozen=True)
class Cell:
    """One control model with what looks at it.

    Attributes:
        model: Name of the model.
        n_layers: Its depth.
        task: Name of the main task.
        hidden: The layers that the main task may change.
        jobs: `trainings` has memorised, original and frozen (shared by all cells of a task).
    """

    model: str
    n_layers: int
    task: str
    hidden: tuple[int, ...]
    jobs: SeedJobs

    @property
    def seed(self) -> int:
        """Model seed."""
        return self.jobs.seed


@dataclass(frozen=True)
class ControlPlanner:
    """Plans the cells of one model and one task.

    Attributes:
        planner: Of the model and the main task.
        auxiliary: Data of the auxiliary task.
        config: Settings of the control setup.
        names: Model and task, for people.
    """

    planner: Planner
    auxiliary: Artefact
    config: Control
    names: tuple[str, str]

    def cell(
        self,
        techniques: Sequence[Technique],
        hidden: tuple[int, ...],
        seed: int,
        of: str,
        passes: float,
    ) -> Cell:
        """All jobs of one set of layers.

        Args:
            techniques: To apply.
            hidden: The layers.
            seed: Model seed.
            of: Added to titles.
            passes: Cost of a pass of both tasks' data, in passes of the main task's.
        """
        title = f"frozen reference{self.planner.shared_label or f' ({self.names[1]})'}"
        frozen = self._train("frozen", (), FROZEN_SEED, title, passes)
        memorised = self._train("memorised", hidden, seed, f"θ_M{of}", passes)
        original = self._train("original", hidden, seed, f"θ_O{of}", passes, memorised)
        trainings = {"memorised": memorised, "original": original, "frozen": frozen}
        models = {role: job.artefact for role, job in trainings.items()}
        models["near_ceiling"] = memorised.artefact
        jobs = self.planner.seed_jobs(techniques, (), seed, models, of, trainings)
        return Cell(self.names[0], self.planner.n_layers, self.names[1], hidden, jobs)

    def _train(
        self,
        state: str,
        hidden: tuple[int, ...],
        seed: int,
        title: str,
        passes: float,
        twin: Job | None = None,
    ) -> Job:
        needs = {"auxiliary": self.auxiliary}
        if twin is not None:
            needs["memorised"] = twin.artefact
        identity = {
            "state": state,
            "layers": list(hidden),
            "seed": seed,
            "revision": CONTROL_REVISION,
            "control": self.config.model_dump(),
            **self.planner.trains,
        }
        return self.planner.job("control", title, identity, needs, size=passes)


def all_jobs(cells: Sequence[Cell]) -> list[Job]:
    """Every job once, in an order in which they could run one after another."""
    jobs = [cell.jobs for cell in cells]
    trainings = [job for of_cell in jobs for job in of_cell.trainings.values()]
    parts = [job for of_cell in jobs for job in of_cell.parts]
    results = [job for of_cell in jobs for job in of_cell.techniques.values()]
    return list({job.key: job for job in (*trainings, *parts, *results)}.values())


def title_of(model: str | None, task: str, hidden: tuple[int, ...], seed: int | None) -> str:
    """` (questions, layers 1+2)`: what distinguishes a cell."""
    parts = [model, task, f"layers {hidden_name(hidden)}", None if seed is None else f"seed {seed}"]
    return f" ({', '.join(part for part in parts if part)})"


def speed_job(like: Job, data: Sequence[Artefact]) -> Job:
    """How fast the model of a job is on this machine, and how long texts of data are for it."""
    training = {name: like.identity["training"][name] for name in ("max_tokens", "dtype")}
    identity = {
        "model": like.identity["model"],
        "training": training,
        "host": socket.gethostname(),
        "revision": SPEED_REVISION,
    }
    needs = {f"data {number}": one for number, one in enumerate(dict.fromkeys(data), 1)}
    where = {**like.where, "device": pick_device(like.where["device"])}
    return Job("speed", "measure the model", identity, needs, where)


def _in_words(window: Window) -> str:
    if window.size == 1:
        return f"layer {window.first}"
    return f"layers {window.first}-{window.last}"
