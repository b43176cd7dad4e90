"""The jobs of the control benchmark: for every set of layers its models, then the techniques."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memloc.analysis.control import hidden_name
from memloc.config import ControlConfig
from memloc.engine.job import Job
from memloc.engine.plan import FROZEN_SEED, Artefact, Planner, SeedJobs
from memloc.techniques import Technique

CONTROL_REVISION = 1
"""Part of the key of control models: raise it when the same settings would train another model."""


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
    config: ControlConfig
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
        title = f"frozen reference{self.planner.shared_label or f' ({self._task})'}"
        frozen = self._train("frozen", (), FROZEN_SEED, title, passes)
        memorised = self._train("memorised", hidden, seed, f"θ_M{of}", passes)
        original = self._train("original", hidden, seed, f"θ_O{of}", passes, memorised)
        trainings = {"memorised": memorised, "original": original, "frozen": frozen}
        models = {role: job.artefact for role, job in trainings.items()}
        models["near_ceiling"] = memorised.artefact
        jobs = self.planner.seed_jobs(techniques, (), seed, models, of, trainings)
        return Cell(self.names[0], self.planner.n_layers, self._task, hidden, jobs)

    @property
    def _task(self) -> str:
        return self.names[1]

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
