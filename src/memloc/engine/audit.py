"""Which labels are likely wrong: `memloc audit`, and `memloc run --suspects auto`.

One model is trained on the labels as they are, as `memloc run` trains θ_M. How it learned each
label, and what models of random halves answer where they did not see it, says which labels to
doubt (`memloc.analysis.audit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from memloc import tables
from memloc.analysis.audit import (
    UNKNOWN_SHARE,
    Estimate,
    choose_suspects,
    estimate_wrong,
    rank_labels,
)
from memloc.analysis.dynamics import LEAST_EPOCHS, dynamics
from memloc.analysis.generalisation import half_split
from memloc.config import Audit, Generalisation, Run, Training, Windows
from memloc.data.noise import suspected
from memloc.data.task import Task, input_columns
from memloc.engine.inputs import InputCache
from memloc.engine.job import Artefact, Job
from memloc.engine.plan import DYNAMICS, SPLIT_SEED, Planner
from memloc.engine.store.store import Store
from memloc.errors import ConfigError, DataError


@dataclass(frozen=True)
class Audited:
    """What an audit found.

    Attributes:
        task: The examples, with suspects marked, and suggestions as their original labels.
        labels: The table `labels`.
        out_of_sample: [examples, classes] probabilities by models that did not see the example;
            None without half-splits.
        wrong: How many labels are likely wrong; None without half-splits.
        epochs: Of the training.
        artefacts: What it was made from.
    """

    task: Task
    labels: pd.DataFrame
    out_of_sample: np.ndarray | None
    wrong: Estimate | None
    epochs: int
    artefacts: list[Artefact]


def audit_labels(config: Audit, inputs: InputCache, label: str = "") -> Audited:
    """Train what is needed, and rank the labels.

    Args:
        config: What to do; its data are audited whoever is suspected.
        inputs: Has data and models, and computes.
        label: Added to titles.

    Raises:
        MemlocError: If something cannot be used, or a training fails.
    """
    task = inputs.task(config.data)
    _check_epochs(config.training)
    planner = inputs.planner(config.model, config.data, config.training, Windows(), label)
    trained, halves = _jobs(planner, config)
    outcome = inputs.executor.execute([trained, *halves], inputs.progress)
    for failure in outcome.failed.values():
        raise failure.error()
    store = inputs.store
    answers = store.open(*trained.artefact).arrays(f"{DYNAMICS}.safetensors")["logits"]
    given = task.train["label"].to_numpy()
    learned = dynamics(answers, given)
    unseen = _out_of_sample(store, halves, len(given)) if halves else None
    found = rank_labels(answers, given, learned, unseen)
    wrong = None if unseen is None else estimate_wrong(unseen, given)
    wanted = round(UNKNOWN_SHARE * len(given)) if wrong is None else wrong.estimate
    found["suspect"] = choose_suspects(found["rank"].to_numpy(), given, wanted)
    marked = task.train.assign(
        noisy=found["suspect"].to_numpy(),
        original_label=np.where(found["suspect"], found["suggested_label"], given),
    )
    return Audited(
        task.with_train(marked),
        _labels_table(task, found),
        unseen,
        wrong,
        len(answers),
        [job.artefact for job in (trained, *halves)],
    )


def find_suspects(config: Run, inputs: InputCache, label: str = "") -> None:
    """Audit the training examples of a run; from then on its suspects are marked.

    Raises:
        MemlocError: If the audit is not possible, or suspects nobody.
    """
    settings = Audit(
        data=config.data,
        model=config.model,
        training=config.training,
        seed=config.seeds[0],
        device=config.device,
    )
    found = audit_labels(settings, inputs, label)
    if not found.labels["suspect"].any():
        raise DataError(
            f"the audit suspects none of the {len(found.labels)} labels of {found.task.name!r}",
            setting="data.suspects",
            value=config.data.suspects,
            remedy="name a column that marks suspects, or leave it out to have some flipped",
        )
    inputs.progress.note(
        f"{int(found.labels['suspect'].sum())} of {len(found.labels)} labels are suspected"
    )
    inputs.suspect(config.data, suspected(found.task))


def _check_epochs(training: Training) -> None:
    if training.likely_epochs < LEAST_EPOCHS:
        raise ConfigError(
            "one epoch does not say how labels are learned",
            setting="training.epochs",
            value=training.epochs,
            remedy=f"give {LEAST_EPOCHS} or more",
        )


def _jobs(planner: Planner, config: Audit) -> tuple[Job, tuple[Job, ...]]:
    trained = planner.train("memorised", config.seed, "train on the labels as they are")
    if not config.splits:
        return trained, ()
    halves = Generalisation(
        splits=config.splits,
        epochs=config.split_epochs,
        learning_rate=config.training.learning_rate,
    )
    return trained, planner.splits(halves, paired=True)


def _out_of_sample(store: Store, halves: tuple[Job, ...], n: int) -> np.ndarray:
    """Mean probabilities by the models that did not see an example; half of them did not."""
    total = None
    for number, job in enumerate(halves):
        found = store.open(*job.artefact).arrays("probabilities.safetensors")["probabilities"]
        outside = ~half_split(n, number, SPLIT_SEED, paired=True)
        part = np.where(outside[:, None], found, 0.0)
        total = part if total is None else total + part
    assert total is not None
    mean: np.ndarray = total / (len(halves) / 2)
    return mean


def _labels_table(task: Task, found: pd.DataFrame) -> pd.DataFrame:
    names = np.array(task.labels, dtype=object)
    front: dict[str, Any] = {"row": task.train["example"]}
    front |= {name: task.train[name] for name in input_columns(task.train)}
    front["label"] = names[task.train["label"]]
    front["suggested_label"] = names[found["suggested_label"]]
    rest = found.drop(columns="suggested_label")
    table = pd.concat([pd.DataFrame(front), rest], axis=1)
    return tables.LABELS.frame(table)
