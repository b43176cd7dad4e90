"""From settings to jobs: models, then the techniques and explanations that look at them.

A plan is a list of cells. A cell is one set of models with the jobs that look at them: a seed of a
run, one control model with its hidden layers, or the models that somebody gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

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
from memloc.engine.job import Job
from memloc.models.names import ModelSource
from memloc.techniques import Technique, make_usable, origin, place_of

TRAIN_REVISION = 1
"""Part of the key of trained models: raise it when the same settings would train another model."""
STATES_REVISION = 1
MODEL_REVISION = 4
SPLIT_REVISION = 1
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
class Cell:
    """One set of models, and the jobs that look at them.

    Attributes:
        seed: Model seed.
        trainings: By state: original, memorised, frozen. Cells may share the last.
        techniques: The job that has the result of a technique.
        explanations: The same for explanations.
        parts: What those need beside the trainings.
        snapshots: The weights of the models on their way.
        checkpoints: Cells by epoch. The last is the end of the training, so its jobs are the
            cell's own, as far as it has them.
        front: Columns that name the cell in tables, beside the seed.
    """

    seed: int
    trainings: dict[str, Job]
    techniques: dict[str, Job]
    explanations: dict[str, Job]
    parts: tuple[Job, ...] = ()
    snapshots: tuple[Job, ...] = ()
    checkpoints: dict[int, Cell] = field(default_factory=dict)
    front: dict[str, Any] = field(default_factory=dict)

    @property
    def results(self) -> dict[str, Job]:
        """Techniques and explanations."""
        return self.techniques | self.explanations


@dataclass(frozen=True)
class Plan:
    """All jobs of an experiment.

    Attributes:
        cells: What is computed.
        splits: Half-splits, of which perhaps not all are needed; they are not among the `jobs`.
    """

    cells: tuple[Cell, ...]
    splits: tuple[Job, ...] = ()

    @cached_property
    def usual(self) -> list[Job]:
        """All but those of checkpoints, in an order in which they could run."""
        trainings = [job for cell in self.cells for job in cell.trainings.values()]
        # All seeds share the frozen model. Names of result folders are a hash of this order.
        trainings.sort(key=lambda job: (job.kind, job.identity["state"]) == ("train", "frozen"))
        parts = [job for cell in self.cells for job in cell.parts]
        results = [job for cell in self.cells for job in cell.results.values()]
        return each_once([*trainings, *parts, *results])

    @cached_property
    def jobs(self) -> list[Job]:
        """Each once, in an order in which they could run one after another."""
        jobs = list(self.usual)
        for cell in self.cells:
            jobs += cell.snapshots
            for at in cell.checkpoints.values():
                jobs += [*at.parts, *at.results.values()]
        return each_once(jobs)

    @property
    def of_checkpoints(self) -> list[Job]:
        """The jobs that there would not be without checkpoints."""
        return self.jobs[len(self.usual) :]


def each_once(jobs: Iterable[Job]) -> list[Job]:
    """The first of all jobs that compute the same."""
    found: dict[Artefact, Job] = {}
    for job in jobs:
        found.setdefault(job.artefact, job)
    return list(found.values())


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
    """Makes the jobs on one data set and one pre-trained model.

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
        return self.job("train", title, {**identity, **self.trains})

    def cell(
        self,
        techniques: Sequence[Technique],
        explanations: Sequence[Technique],
        seed: int,
        trainings: dict[str, Job],
        of: str = "",
        front: dict[str, Any] | None = None,
    ) -> Cell:
        """Techniques and explanations that look at one set of models.

        Args:
            techniques: To apply.
            explanations: To compute.
            seed: Model seed.
            trainings: The jobs that train the models, by state; others are `given`.
            of: Added to titles.
            front: See `Cell`.
        """
        models = {state: job.artefact for state, job in trainings.items()}
        if "memorised" in models:
            models["near_ceiling"] = models["memorised"]
        results, parts = {}, []
        for technique in (*techniques, *explanations):
            results[technique.name], needed = self.apply(technique, seed, models, of)
            parts += needed
        return Cell(
            seed,
            trainings,
            {one.name: results[one.name] for one in techniques},
            {one.name: results[one.name] for one in explanations},
            tuple(each_once(parts)),
            front=front or {},
        )

    def control_cell(
        self,
        techniques: Sequence[Technique],
        hidden: tuple[int, ...],
        seed: int,
        auxiliary: Artefact,
        config: Control,
        of: str = "",
        size: float = 1.0,
        front: dict[str, Any] | None = None,
    ) -> Cell:
        """A model that could memorise in some layers only, and the techniques that look at it.

        Args:
            techniques: To apply.
            hidden: The layers.
            seed: Model seed.
            auxiliary: Data of the auxiliary task.
            config: Settings of the control setup.
            of: Added to titles.
            size: Cost of a pass of both tasks' data, in passes of the main task's.
            front: See `Cell`.
        """

        def train(state: str, seed: int, title: str, twin: Job | None = None) -> Job:
            identity = {
                "state": state,
                "layers": [] if state == "frozen" else list(hidden),
                "seed": seed,
                "revision": CONTROL_REVISION,
                "control": config.model_dump(),
                **self.trains,
            }
            needs = {"auxiliary": auxiliary}
            if twin is not None:
                needs["memorised"] = twin.artefact
            passes = size * costs.passes("control", identity, self.n_layers)
            return self.job("control", title, identity, needs, passes=passes)

        memorised = train("memorised", seed, f"θ_M{of}")
        trainings = {
            "memorised": memorised,
            "original": train("original", seed, f"θ_O{of}", memorised),
            "frozen": train("frozen", FROZEN_SEED, f"frozen reference{self.shared_label}"),
        }
        return self.cell(techniques, (), seed, trainings, of, front)

    def apply(
        self, technique: Technique, seed: int, models: Mapping[str, Artefact], of: str = ""
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
        place = place_of(name)
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
            together = f"θ_M{of}" if {"memorised", "near_ceiling"} & {*roles} else None
            return self.job(kind, title, whole, needs, roles, together, cost, place), parts
        group = f"{name}{of}"
        windows = {
            window: self.job(
                "window",
                f"{group}, {_in_words(window)}",
                {**identity, "window": list(window), **self.trains},
                needs,
                roles,
                group,
                technique.window_cost(self.n_layers, window),
                place,
            )
            for window in chosen_windows(self.n_layers, self.windows.sizes)
        }
        # By first layer, so that a process goes up through the layers with its stored states.
        parts += [windows[w] for w in sorted(windows, key=lambda w: (w.first, -w.last))]
        found = {f"window:{w.first}-{w.last}": job.artefact for w, job in windows.items()}
        title = f"{group}, all windows"
        return self.job("localise", title, whole, found, passes=cost, place=place), parts

    def splits(self, config: Generalisation) -> tuple[Job, ...]:
        """Models of random halves of the data."""
        # Models that need larger steps than the paper's to learn at all need them here too.
        rate = config.learning_rate or max(PAPER_SPLIT_RATE, self.training.learning_rate)
        training = self.training.replace(epochs=config.epochs, learning_rate=rate).model_dump()
        common = {"seed": SPLIT_SEED, "revision": SPLIT_REVISION, "training": training}
        return tuple(
            self.job(
                "split",
                f"generalisation, half-split {split + 1}",
                {"split": split, **common},
                group="generalisation",
            )
            for split in range(config.splits)
        )

    def _states(self, role: str, models: Mapping[str, Artefact], of: str) -> Job:
        swapped = role in SWAPPED_HALVES
        roles = ("memorised", "original") if swapped else (role,)
        needs = {name: models[name] for name in roles if name in models}
        whose = f"θ_P{self.shared_label}" if role == "pretrained" else f"θ_M{of}"
        if swapped:
            whose += f", {SWAPPED_HALVES[role]}"
        identity = {"role": role, "revision": STATES_REVISION, **self.looks}
        together = None if role == "pretrained" else f"θ_M{of}"
        return self.job("states", f"states of {whose}", identity, needs, roles, together)

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
    def _wheres(self) -> dict[Any, dict[str, Any]]:
        return {}

    def _where(self, given: tuple[str, ...], place: str | None) -> dict[str, Any]:
        """What jobs say in `where`, by the given models they look at and their technique."""
        if (given, place) not in self._wheres:
            self._wheres[given, place] = {
                **self.where,
                "source": asdict(self.source),
                "trust_remote_code": self.model.trust_remote_code,
                "models": {role: asdict(self.given[role]) for role in given},
                "layers": self.n_layers,
                **({} if place is None else {"technique": place}),
            }
        return self._wheres[given, place]

    def job(
        self,
        kind: str,
        title: str,
        identity: dict[str, Any],
        needs: Mapping[str, Artefact] | None = None,
        roles: tuple[str, ...] = (),
        group: str | None = None,
        passes: float | None = None,
        place: str | None = None,
    ) -> Job:
        """A job on these data and this model.

        Args:
            kind: Of the job.
            title: For people.
            identity: What determines the result, beside data and model.
            needs: What it reads beside the data.
            roles: The given models it looks at.
            group: Of jobs that look at the same models, and so travel together.
            passes: Forward passes of the data that take as long; None: as usual for its kind.
            place: Where other processes find its technique, if only this one knows it by name.
        """
        needs = needs or {}
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
            self._where(given, place),
            passes * self.pass_cost,
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
) -> Plan:
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
    cells = []
    for seed in config.seeds:
        of = f", seed {seed}" if len(config.seeds) > 1 else ""
        trainings = {
            "original": planner.train("original", seed, f"θ_O: train on original labels{of}"),
            "memorised": planner.train("memorised", seed, f"θ_M: train on perturbed labels{of}"),
            "frozen": frozen,
        }
        cell = planner.cell(techniques, explanations, seed, trainings, of)
        if config.checkpoints is not None:
            epochs = config.checkpoint_epochs
            cell = _with_checkpoints(planner, cell, epochs, *at_checkpoints, of, trained)
        cells.append(cell)
    splits = () if config.generalisation is None else planner.splits(config.generalisation)
    return Plan(tuple(cells), splits)


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
    cell: Cell,
    epochs: Sequence[int],
    techniques: Sequence[Technique],
    explanations: Sequence[Technique],
    of: str,
    trained: Callable[[Artefact], bool],
) -> Cell:
    """A cell, and those of its checkpoints; the last is the end of the training."""
    trainings, snapshots = dict(cell.trainings), {}
    before = [epoch for epoch in epochs if epoch < planner.training.epochs]
    for state in ("original", "memorised") if before else ():
        job = trainings[state]
        trainings[state] = replace(job, where={**job.where, "snapshots": before})
        snapshots[state] = snapshots_of(job, before)
        if not trained(job.artefact):
            snapshots[state] = replace(snapshots[state], cost=NEXT_TO_NOTHING * job.cost)
    checkpoints = {}
    for epoch in epochs:
        if epoch in before:
            at, models, title = replace(planner, epoch=epoch), snapshots, f"{of}, epoch {epoch}"
        else:  # planned like any run, so it is the same jobs
            at, models, title = planner, trainings, of
        checkpoints[epoch] = at.cell(techniques, explanations, cell.seed, models, title)
    return replace(
        cell, trainings=trainings, snapshots=tuple(snapshots.values()), checkpoints=checkpoints
    )


def _in_words(window: Window) -> str:
    if window.size == 1:
        return f"layer {window.first}"
    return f"layers {window.first}-{window.last}"
