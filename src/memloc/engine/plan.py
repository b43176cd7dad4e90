"""From settings to jobs: models, then the techniques and explanations that look at them.

A plan is a list of cells. A cell is one set of models with the jobs that look at them: a seed of a
run, one control model with its hidden layers, or the models that somebody gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.windows import Window, chosen_sizes, chosen_windows
from memloc.config import (
    PAPER_SPLIT_RATE,
    Control,
    Generalisation,
    Model,
    Run,
    Training,
    Twin,
    Windows,
)
from memloc.data.task import input_columns
from memloc.engine.job import Artefact, Job
from memloc.models.names import ModelSource
from memloc.techniques import Technique, make_techniques, origin, place_of

TRAIN_REVISION = 1
"""Part of the key of trained models: raise it when the same settings would train another model."""
STATES_REVISION = 1
MODEL_REVISION = 5
SPLIT_REVISION = 1
CONTROL_REVISION = 1
PARTS_REVISION = 1
"""Part of the key of all that reads examples of several parts in one text: how they are cut."""
SPLIT_SEED = 1
"""Decides the halves; the same for all models, so that their scores are of the same examples."""
SWAPPED_HALVES = {"bottom_swapped": "bottom half swapped", "top_swapped": "top half swapped"}
FROZEN_SEED = 1
"""Of the head of the frozen model: the same for all model seeds, so that they can share it."""
DYNAMICS = "dynamics"
"""File with the logits of all training examples after every epoch."""
VALIDATION = "validation_accuracy"
"""File with the validation accuracy of a model in the middle of its training."""
NEXT_TO_NOTHING = 0.01
"""Cost of the weights of an epoch, in trainings: a training leaves them on its way."""
EPOCH_PASSES = 4.5
"""Forward passes that take as long as an epoch of training with its evaluations."""
TOKENS_PER_WORD, EXTRA_TOKENS = 1.3, 2
"""Of usual tokenisers on English; what matters is that tasks can be compared."""


@dataclass(frozen=True)
class Cell:
    """One set of models, and the jobs that look at them.

    Attributes:
        seed: Model seed.
        trainings: By state: original, memorised, frozen. Cells may share the last.
        results: The job that has the result of a technique or an explanation, by its name.
        parts: What those need beside the trainings.
        checkpoints: Cells by epoch. The last is the end of the training, so its jobs are the
            cell's own, as far as it has them.
        front: Columns that name the cell in tables, beside the seed.
    """

    seed: int
    trainings: dict[str, Job]
    results: dict[str, Job]
    parts: tuple[Job, ...] = ()
    checkpoints: dict[int, Cell] = field(default_factory=dict)
    front: dict[str, Any] = field(default_factory=dict)

    @property
    def techniques(self) -> dict[str, Job]:
        """Those of the results that weigh layers."""
        return {name: job for name, job in self.results.items() if job.kind != "explain"}


@dataclass(frozen=True)
class Plan:
    """All jobs of an experiment.

    Attributes:
        cells: Models, and what looks at them.
        splits: Models of random halves of the data.
    """

    cells: tuple[Cell, ...]
    splits: tuple[Job, ...] = ()

    @cached_property
    def usual(self) -> list[Job]:
        """All that look at trained models, in an order in which they could run."""
        trainings = [job for cell in self.cells for job in cell.trainings.values()]
        # All seeds share the frozen model. Names of result folders are a hash of this order.
        trainings.sort(key=lambda job: (job.kind, job.identity["state"]) == ("train", "frozen"))
        trainings.sort(key=lambda job: job.kind == "train" and "memorised" in job.needs)
        parts = [job for cell in self.cells for job in cell.parts]
        results = [job for cell in self.cells for job in cell.results.values()]
        return each_once([*trainings, *parts, *results])

    @cached_property
    def of_checkpoints(self) -> list[Job]:
        """The jobs that there would not be without checkpoints."""
        jobs = list(self.usual)
        for cell in self.cells:
            jobs += [job for at in cell.checkpoints.values() for job in at.trainings.values()]
            for at in cell.checkpoints.values():
                jobs += [*at.parts, *at.results.values()]
        return each_once(jobs)[len(self.usual) :]

    @cached_property
    def jobs(self) -> list[Job]:
        """Each once, in an order in which they could run one after another."""
        return [*self.usual, *self.of_checkpoints, *self.splits]


def each_once(jobs: Iterable[Job]) -> list[Job]:
    """The first of all jobs that compute the same."""
    found: dict[Artefact, Job] = {}
    for job in jobs:
        found.setdefault(job.artefact, job)
    return list(found.values())


def model_job(
    config: Model, source: ModelSource, data: Artefact | None = None, max_tokens: int = 512
) -> Job:
    """Look at a model, before the rest can be planned; perhaps at how it reads some data."""
    reading = {"max_tokens": max_tokens, "pair_format": config.pair_format} if data else {}
    return Job(
        "model",
        "look at the model",
        {
            "fingerprint": source.fingerprint,
            "blocks": config.blocks,
            "revision": MODEL_REVISION,
            **_head(config),
            **reading,
        },
        {"data": data} if data else {},
        where={"source": asdict(source), "trust_remote_code": config.trust_remote_code},
    )


def _head(config: Model) -> dict[str, Any]:
    """For the identity of jobs; the usual head is not mentioned, as it was there first."""
    return {} if config.head == "own" else {"head": config.head}


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
        pass_cost: Of a pass of the data through the model, where those of many plans are compared.
        joined: Whether examples have several parts in one text, of which the longest is cut first.
        changes: Settings that a model which changes itself gets by reading the data.
        twin: What θ_O learns where labels are suspected; None where they are flipped or wrong.
        plain: The examples before anybody was suspected, if θ_M was trained on these.
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
    pass_cost: float = 1.0
    joined: bool = False
    changes: dict[str, Any] | None = None
    twin: Twin | None = None
    plain: Artefact | None = None

    def train(self, state: str, seed: int, title: str, twin: Job | None = None) -> Job:
        """Fine-tune a model; one that goes on as long as its twin waits for it."""
        training = self.training
        identity = {"state": state, "seed": seed, "revision": TRAIN_REVISION, **self.trains}
        needs = {}
        if state == "memorised" and self.plain is not None:
            needs["data"] = self.plain
        if state == "original" and self.twin == "without":
            identity["without"] = "suspects"
        if twin is not None and training.epochs == "auto":
            needs["memorised"] = twin.artefact
        passes = EPOCH_PASSES * training.likely_epochs
        if state == "frozen":
            training = training.with_fixed_epochs()
            identity["training"] = training.identity(state)
            passes = 2 + (1.5 if training.frozen_dropout else 0.1) * training.likely_epochs
        return self.job("train", title, identity, passes, needs)

    def cell(
        self,
        looking: Sequence[Technique],
        seed: int,
        trainings: dict[str, Job],
        of: str = "",
        front: dict[str, Any] | None = None,
    ) -> Cell:
        """Techniques and explanations that look at one set of models.

        Args:
            looking: What looks at them.
            seed: Model seed.
            trainings: The jobs that train the models, by state; others are `given`.
            of: Added to titles.
            front: See `Cell`.
        """
        models = {state: job.artefact for state, job in trainings.items()}
        if "memorised" in models:
            models["near_ceiling"] = models["memorised"]
        results, parts = {}, []
        for technique in looking:
            results[technique.name], needed = self.apply(technique, seed, models, of)
            parts += needed
        return Cell(seed, trainings, results, tuple(each_once(parts)), front=front or {})

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
                "control": config.identity(),
                **self.trains,
            }
            needs = {"auxiliary": auxiliary}
            if twin is not None:
                needs["memorised"] = twin.artefact
            passes = size * EPOCH_PASSES * self.training.likely_epochs
            return self.job("control", title, identity, passes, needs)

        memorised = train("memorised", seed, f"θ_M{of}")
        original = train("original", seed, f"θ_O{of}", memorised)
        trainings = {"memorised": memorised, "original": original}
        if needs_frozen(techniques):
            trainings["frozen"] = train("frozen", FROZEN_SEED, "frozen reference")
        return self.cell(techniques, seed, trainings, of, front)

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
            "settings": technique.identity(),
        }
        if origin(name) is not None:
            identity["origin"] = origin(name)
        if technique.uses_unit:
            identity["unit"] = self.windows.unit
        whole = {**identity, **self.looks}
        if technique.uses_windows:
            sizes = chosen_sizes(self.n_layers, self.windows.sizes)
            whole["window_sizes"] = None if len(sizes) == self.n_layers else list(sizes)
            if technique.uses_clean:
                whole["clean"] = self.windows.clean
        cost = technique.cost(self.n_layers)
        if not technique.windowed:
            kind = "localise" if technique.kind == "technique" else "explain"
            title = f"{name.replace('_', ' ')}{of}"
            together = f"θ_M{of}" if {"memorised", "near_ceiling"} & {*roles} else None
            return self.job(kind, title, whole, cost, needs, roles, together, place), parts
        windows = {
            group: self.job(
                "window",
                f"{name}{of}, {_in_words(group)}",
                {**identity, **_windows_of(group), **self.trains},
                sum(technique.window_cost(self.n_layers, window) for window in group),
                needs,
                roles,
                f"{name}{of}",
                place,
            )
            for group in technique.together(chosen_windows(self.n_layers, self.windows.sizes))
        }
        # By first layer, so that a process goes up through the layers with its stored states.
        parts += [windows[g] for g in sorted(windows, key=lambda g: (g[0].first, -g[0].last))]
        found = {window_role(group): job.artefact for group, job in windows.items()}
        title = f"{name}{of}, all windows"
        return self.job("localise", title, whole, cost, found, place=place), parts

    def splits(self, config: Generalisation, paired: bool = False) -> tuple[Job, ...]:
        """Models of random halves of the data; of pairs, one has the examples the other lacks."""
        more = {"paired": True} if paired else {}
        # Models that need larger steps than the paper's to learn at all need them here too.
        rate = config.learning_rate or max(PAPER_SPLIT_RATE, self.training.learning_rate)
        training = self.training.replace(epochs=config.epochs, learning_rate=rate).identity()
        common = {"seed": SPLIT_SEED, "revision": SPLIT_REVISION, "training": training}
        return tuple(
            self.job(
                "split",
                f"generalisation, half-split {split + 1}",
                {"split": split, **common, **more},
                1.5 * config.epochs + 1,
                group="generalisation",
            )
            for split in range(config.splits)
        )

    def _states(self, role: str, models: Mapping[str, Artefact], of: str) -> Job:
        swapped = role in SWAPPED_HALVES
        roles = ("memorised", "original") if swapped else (role,)
        needs = {name: models[name] for name in roles if name in models}
        whose = "θ_P" if role == "pretrained" else f"θ_M{of}"
        if swapped:
            whose += f", {SWAPPED_HALVES[role]}"
        identity = {"role": role, "revision": STATES_REVISION, **self.looks}
        together = None if role == "pretrained" else f"θ_M{of}"
        return self.job("states", f"states of {whose}", identity, 1.5, needs, roles, together)

    # Plans have tens of thousands of jobs: what these have in common is made once, and shared.

    @cached_property
    def trains(self) -> dict[str, Any]:
        """For the identity of jobs that train something."""
        return {"training": self.training.identity()}

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
            # Results of single texts, which are cut as ever, keep their keys.
            **({"parts": PARTS_REVISION} if self.joined else {}),
            **_head(self.model),
            **({} if self.changes is None else {"changes": self.changes}),
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
        passes: float,
        needs: Mapping[str, Artefact] | None = None,
        roles: tuple[str, ...] = (),
        group: str | None = None,
        place: str | None = None,
    ) -> Job:
        """A job on these data and this model.

        Args:
            kind: Of the job.
            title: For people.
            identity: What determines the result, beside data and model.
            passes: Forward passes of the data that take as long.
            needs: What it reads beside the data.
            roles: The given models it looks at.
            group: Of jobs that look at the same models, and so travel together.
            place: Where other processes find its technique, if only this one knows it by name.
        """
        given = tuple(role for role in roles if role in self.given)
        common: dict[str, Any] = {"model": self._model_identity}
        if given:
            common["models"] = {role: self.given[role].fingerprint for role in given}
        return Job(
            kind,
            f"{title}{self.label}",
            {**common, **identity},
            {"data": self.data, **(needs or {})},
            self._where(given, place),
            passes * self.pass_cost,
            group and f"{group}{self.label}",
        )


def plan_run(
    config: Run,
    planner: Planner,
    explanations: Sequence[Technique] = (),
    at_checkpoints: Sequence[Technique] = (),
) -> Plan:
    """Describe everything that a run computes.

    Args:
        config: What to do.
        planner: Makes the jobs.
        explanations: To compute.
        at_checkpoints: What looks at the checkpoints.
    """
    looking = [*make_techniques(config.techniques), *explanations]
    frozen = {}
    if needs_frozen(looking):
        frozen["frozen"] = planner.train("frozen", FROZEN_SEED, "frozen model: layers stay closed")
    cells = []
    for seed in config.seeds:
        of = f", seed {seed}" if len(config.seeds) > 1 else ""
        memorised = planner.train("memorised", seed, f"θ_M: train on perturbed labels{of}")
        others = "without the suspects" if planner.twin == "without" else "on original labels"
        original = planner.train("original", seed, f"θ_O: train {others}{of}", memorised)
        cell = planner.cell(
            looking, seed, {"original": original, "memorised": memorised, **frozen}, of
        )
        if config.checkpoints is not None:
            cell = _with_checkpoints(planner, cell, config.checkpoint_epochs, at_checkpoints, of)
        cells.append(cell)
    splits = () if config.generalisation is None else planner.splits(config.generalisation)
    return Plan(tuple(cells), splits)


def needs_frozen(techniques: Iterable[Technique]) -> bool:
    """Whether any of them looks at the frozen model."""
    return any("frozen" in technique.needed for technique in techniques)


def snapshot_of(training: Job, epoch: int) -> Job:
    """The job whose artefact has the weights of a training after one of its epochs.

    A training that is told so in its `where` leaves that artefact on its way, so this job is only
    computed (by training again) if the training was done before anybody asked. It waits for the
    training, as both at once would be the same work twice. The key of the training itself does not
    change: whatever was made from it stays valid.
    """
    return replace(
        training,
        title=f"{training.title}, epoch {epoch}",
        identity={**training.identity, "snapshot": epoch},
        needs={**training.needs, "trained": training.artefact},
        cost=NEXT_TO_NOTHING * training.cost * epoch / training.identity["training"]["epochs"],
    )


def _with_checkpoints(
    planner: Planner, cell: Cell, epochs: Sequence[int], looking: Sequence[Technique], of: str
) -> Cell:
    """A cell, and those of its checkpoints; the last is the end of the training."""
    *before, end = epochs
    trainings = dict(cell.trainings)
    for state in ("original", "memorised"):
        job = trainings[state]
        trainings[state] = replace(job, where={**job.where, "snapshots": before})
    checkpoints = {}
    for epoch in before:
        there = {state: snapshot_of(trainings[state], epoch) for state in ("original", "memorised")}
        title = f"{of}, epoch {epoch}"
        checkpoints[epoch] = planner.cell(looking, cell.seed, there, title)
    # Planned like any run, so it is the same jobs.
    checkpoints[end] = planner.cell(looking, cell.seed, trainings, of)
    return replace(cell, trainings=trainings, checkpoints=checkpoints)


def _windows_of(group: Sequence[Window]) -> dict[str, Any]:
    """For the identity of a job on one window, or on several that it looks at together."""
    if len(group) == 1:
        return {"window": list(group[0])}
    return {"windows": [list(window) for window in group]}


def window_role(group: Sequence[Window]) -> str:
    """What a job on windows is called among the needs of the one that puts all together."""
    return "window:" + ",".join(f"{window.first}-{window.last}" for window in group)


def windows_in(role: str) -> list[Window]:
    """The windows that `window_role` names."""
    pairs = [name.split("-") for name in role.removeprefix("window:").split(",")]
    return [Window(int(first), int(last)) for first, last in pairs]


def _in_words(group: Sequence[Window]) -> str:
    window = group[0]
    if len(group) > 1:
        return f"windows from layer {window.first}"
    if window.size == 1:
        return f"layer {window.first}"
    return f"layers {window.first}-{window.last}"


# --- what a pass of the data costs --------------------------------------------------------------


def rough_lengths(examples: pd.DataFrame, max_tokens: int) -> np.ndarray:
    """Tokens of each example, guessed from the number of its words."""
    words = np.zeros(len(examples))
    for column in input_columns(examples):
        words += [len(text.split()) for text in examples[column].tolist()]
    return np.asarray(np.minimum(TOKENS_PER_WORD * words + EXTRA_TOKENS, max_tokens))


def pass_flops(facts: Mapping[str, Any], lengths: np.ndarray) -> float:
    """Floating-point operations of one forward pass of examples of these lengths.

    Every token meets every weight of the layers once, and every other token of its text.

    Args:
        facts: Layers, their parameters and width, as the job `model` finds them.
        lengths: Tokens of each example.
    """
    weights = 2.0 * facts["layer_parameters"] * lengths.sum()
    attention = 4.0 * facts["layers"] * facts["width"] * np.square(lengths, dtype=float).sum()
    return float(weights + attention)
