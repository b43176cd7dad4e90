"""Jobs that look at θ_M at several epochs of its training.

At each of them θ_M is compared with θ_O *of the same epoch*: both have seen as many steps of the
same schedule, in the same order, so that they differ by the flipped labels alone. The last one is
the end of the training, whose jobs a run has anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from memloc.engine.job import Job

if TYPE_CHECKING:
    from memloc.engine.plan import Artefact, Planner, SeedJobs
    from memloc.techniques import Technique

NEXT_TO_NOTHING = 0.01
"""Cost of snapshots that a training leaves on its way."""


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


def with_checkpoints(
    planner: Planner,
    jobs: SeedJobs,
    epochs: Sequence[int],
    techniques: Sequence[Technique],
    explanations: Sequence[Technique],
    of: str,
    trained: Callable[[Artefact], bool],
) -> SeedJobs:
    """The jobs of a seed, and those of its checkpoints.

    Args:
        planner: What the jobs have in common.
        jobs: Of the seed; with trainings.
        epochs: The checkpoints; the last is the end of the training.
        techniques: To apply at each.
        explanations: Likewise.
        of: Added to titles.
        trained: Whether a training is in the store already.
    """
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
