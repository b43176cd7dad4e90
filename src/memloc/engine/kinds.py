"""The kinds of jobs, and how each is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import pandas as pd
from scipy.special import softmax

from memloc.analysis.generalisation import half_split
from memloc.analysis.windows import Window
from memloc.config import ModelConfig, TrainingConfig
from memloc.data.encode import encode, evaluation_batches
from memloc.engine.control_kinds import control, facts_of, speed
from memloc.engine.inputs import (
    context_for,
    forget_context,
    load,
    on_this_machine,
    resume_point,
)
from memloc.engine.job import Job, Output, Report, peak_memory
from memloc.engine.store.store import Store
from memloc.engine.tasks import read_task
from memloc.engine.train_kind import train
from memloc.models.load import load_classifier
from memloc.models.names import ModelSource, StatesOf
from memloc.models.states import EVALUATION_BATCH, states_of
from memloc.techniques import Technique, make
from memloc.training.loop import train_on_part


def model(job: Job, store: Store, report: Report) -> Output:
    """Look at a pre-trained model: what planning must know about it."""
    source = on_this_machine(ModelSource(**job.where["source"]))
    classifier = load_classifier(
        source,
        ModelConfig(
            name=source.location,
            blocks=job.identity["blocks"],
            trust_remote_code=job.where["trust_remote_code"],
        ),
        n_labels=2,
    )
    return Output(values={"facts": facts_of(classifier.blocks)})


def states(job: Job, store: Store, report: Report) -> Output:
    """States of all layers where the head reads them, for everything that looks at states."""
    context = context_for(job, store)
    of = cast(StatesOf, job.identity["role"])
    found = states_of(of, context.model, context.encoded, report)
    batches = len(list(evaluation_batches(context.encoded, EVALUATION_BATCH)))
    costs = {"block_passes": (len(found) - 1) * batches, "peak_memory_bytes": peak_memory()}
    return Output(tensors={"states": {"states": found}}, costs=costs)


def window(job: Job, store: Store, report: Report) -> Output:
    """One window of a technique: identity has technique, revision, settings and the window."""
    context = replace(context_for(job, store), resume=resume_point(job, store))
    found = _technique(job).window(context, Window(*job.identity["window"]), report)
    return Output(tables=found, costs={"peak_memory_bytes": peak_memory()})


def localise(job: Job, store: Store, report: Report) -> Output:
    """Apply a technique, or put together what was found on its windows."""
    context, technique = context_for(job, store), _technique(job)
    parts = {role: need for role, need in job.needs.items() if role.startswith("window:")}
    if not parts:
        tables, costs = technique.compute(context, report)
        return Output(tables=tables, costs={**costs, "peak_memory_bytes": peak_memory()})
    windows = [Window(*(int(n) for n in role.split(":")[1].split("-"))) for role in parts]
    artefacts = [store.open(*need) for need in parts.values()]
    found = [
        {name.removesuffix(".parquet"): a.table(name) for name in a.manifest["files"]}
        for a in artefacts
    ]
    result = technique.combine(context, windows, found)
    spent = [artefact.manifest["costs"] for artefact in artefacts]
    costs = {
        "seconds": round(sum(cost["seconds"] for cost in spent), 3),
        "peak_memory_bytes": max(cost["peak_memory_bytes"] for cost in spent),
    }
    return Output(tables=dict(result.tables), costs={**result.costs, **costs})


def _technique(job: Job) -> Technique:
    return make(job.identity["technique"], job.identity["settings"])


def split(job: Job, store: Store, report: Report) -> Output:
    """Train on a random half of the training data and ask for the labels of all of it."""
    forget_context()
    task = read_task(store, job.needs["data"])
    config = TrainingConfig(**job.identity["training"])
    number, seed = job.identity["split"], job.identity["seed"]
    source = ModelSource(**job.where["source"])
    classifier = load(job, task, source, new_head=True, seed=number)
    encoded = encode(task.train, classifier.codec, job.identity["model"]["pair_format"])
    inside = half_split(len(encoded), number, seed)
    labels = task.train["label"].to_numpy(copy=True)
    resume = resume_point(job, store).part("training")
    logits = train_on_part(
        classifier.blocks, encoded, inside, labels, config, number, report, resume
    )
    probabilities = softmax(logits.astype(np.float64), axis=1)
    answers = pd.DataFrame(
        {
            "example": task.train["example"],
            "inside": inside,
            "predicted": logits.argmax(axis=1),
            "probability": probabilities[np.arange(len(labels)), labels],
        }
    )
    return Output(tables={"answers": answers}, costs={"peak_memory_bytes": peak_memory()})


KINDS: dict[str, Callable[[Job, Store, Report], Output]] = {
    "model": model,
    "train": train,
    "states": states,
    "window": window,
    "localise": localise,
    "explain": localise,
    "split": split,
    "control": control,
    "speed": speed,
}
