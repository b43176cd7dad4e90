"""Jobs that fine-tune a model, and what they keep of the way there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping

from torch import Tensor

from memloc.config import TrainingConfig
from memloc.data.encode import encode
from memloc.engine.checkpoints import file_of, snapshots_of
from memloc.engine.inputs import forget_context, load, resume_point
from memloc.engine.job import Job, Output, Report, peak_memory
from memloc.engine.store.store import Store
from memloc.engine.tasks import read_task
from memloc.errors import StoreError
from memloc.models.names import ModelSource
from memloc.training.learners import HeadOnly, WholeModel
from memloc.training.loop import fine_tune, training_data
from memloc.training.snapshots import Snapshots


def train(job: Job, store: Store, report: Report) -> Output:
    """Fine-tune: identity has state (original, memorised, frozen), model, training and seed.

    With `snapshots` in the identity the result is the weights after these epochs; in `where` they
    are left as the artefact of `snapshots_of`.
    """
    forget_context()
    started = time.perf_counter()
    task = read_task(store, job.needs["data"])
    config = TrainingConfig(**job.identity["training"])
    state: str = job.identity["state"]
    source = ModelSource(**job.where["source"])
    classifier = load(job, task, source, new_head=True, seed=job.identity["seed"])
    pair_format = job.identity["model"]["pair_format"]
    sets = tuple(encode(t, classifier.codec, pair_format) for t in (task.train, task.validation))
    learner = (HeadOnly if state == "frozen" else WholeModel)(classifier.blocks, *sets)
    data = training_data(task, state)
    point = resume_point(job, store)
    own: list[int] | None = job.identity.get("snapshots")
    beside: list[int] | None = job.where.get("snapshots") if own is None else None
    snapshots = Snapshots(point, own or beside or ())
    trained = fine_tune(
        learner,
        data,
        config,
        job.identity["seed"],
        report,
        resume=point.part("training"),
        snapshots=snapshots,
        last_epoch=max(own) if own else None,
    )
    parameters = dict(classifier.blocks.model.named_parameters())
    # A new pooler under a frozen model is not trained, but no checkpoint holds it either.
    untrained = {name: parameters[name] for name in classifier.fresh - trained.final.keys()}
    costs = {"peak_memory_bytes": peak_memory()}
    files = _OneByOne(snapshots, untrained)
    if own:
        if not snapshots.complete():
            # A training that went on from its state would not pass the missing epochs again.
            point.part("training").forget()
        return Output(tensors=files, costs=costs)
    if beside:
        spent = {"seconds": round(time.perf_counter() - started, 3), **costs}
        _leave(snapshots_of(job, beside), store, files, spent)
    tensors = {"final": {**trained.final, **untrained}}
    if state == "memorised":
        # If the score is never reached, θ_M1 is θ_M2, and the outcome says so (no epoch).
        tensors["near_ceiling"] = trained.memorised_at or trained.final
    return Output(
        tables={"history": trained.history},
        tensors=tensors,
        values={"outcome": {"memorised_epoch": trained.memorised_epoch, "steps": trained.steps}},
        costs=costs,
    )


class _OneByOne(Mapping[str, dict[str, Tensor]]):
    """The weights of all epochs by file, each read when it is written, as models are large."""

    def __init__(self, snapshots: Snapshots, untrained: Mapping[str, Tensor]) -> None:
        self.snapshots, self.untrained = snapshots, untrained
        self.epochs = {file_of(epoch): epoch for epoch in snapshots.epochs}

    def __getitem__(self, name: str) -> dict[str, Tensor]:
        weights = self.snapshots.read(self.epochs[name])
        if weights is None:
            raise StoreError(
                f"the weights of epoch {self.epochs[name]} could not be kept; free some space and "
                "run the same command again"
            )
        return {**weights, **self.untrained}

    def __iter__(self) -> Iterator[str]:
        return iter(self.epochs)

    def __len__(self) -> int:
        return len(self.epochs)


def _leave(job: Job, store: Store, files: _OneByOne, costs: dict[str, float]) -> None:
    """Write the artefact of another job; if that is not possible, it is computed in its turn."""
    with (
        contextlib.suppress(StoreError),
        store.write(job.kind, job.key, job.inputs, costs) as draft,
    ):
        for name, weights in files.items():
            draft.tensors(f"{name}.safetensors", weights)
