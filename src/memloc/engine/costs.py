"""What jobs cost in floating-point operations, and how long they will take.

Costs are rough, but good enough for the order of jobs and, once it is known how long a few of them
took, for an estimate.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from memloc import techniques
from memloc.analysis.windows import Window
from memloc.data.task import input_columns
from memloc.engine.job import Artefact, Job
from memloc.engine.local import LocalExecutor, pick_device
from memloc.engine.progress import Progress, Rates, Sort, setup_of
from memloc.engine.store.store import MANIFEST, Store
from memloc.errors import MALFORMED, MemlocError

TOKENS_PER_WORD, EXTRA_TOKENS = 1.3, 2
"""Of usual tokenisers on English; what matters is that tasks can be compared."""
SPEED_REVISION = 2
LOOKED_AT = 400
"""Artefacts of each kind that are looked at."""
SMALL_RESULT = 30_000
"""Bytes of a result without weights or states, if none is known."""


def passes(kind: str, identity: Mapping[str, Any], n_layers: int) -> float:
    """Forward passes of the data that take as long as a job.

    Args:
        kind: Of the job.
        identity: Its settings. Of `control`, both tasks together count as the data.
        n_layers: Of the model.
    """
    if kind in ("train", "control"):
        epochs = float(max(identity.get("snapshots") or [identity["training"]["epochs"]]))
        head_only = kind == "train" and identity["state"] == "frozen"
        return 2 + 0.1 * epochs if head_only else 4.5 * epochs
    if kind == "split":
        return 1.5 * float(identity["training"]["epochs"]) + 1
    if kind == "states":
        return 1.5
    try:
        technique = techniques.make(identity["technique"], identity["settings"])
    except (MemlocError, KeyError):  # in the store, but no longer there
        return 5.0
    if kind == "window":
        return technique.window_cost(n_layers, Window(*identity["window"]))
    return technique.cost(n_layers)


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


class Estimate(NamedTuple):
    """What a job will take: seconds on one worker, and bytes; None: not known."""

    seconds: float | None
    size: float | None


class Estimator:
    """How long jobs will take, and how much disk.

    How many operations a second does is known from jobs of the same technique and model in the
    store; failing that, from a few batches that are sent through the model here.

    Args:
        store: Has earlier jobs.
        facts: On models, by fingerprint.
        examples: In data sets, by key.
    """

    def __init__(
        self, store: Store, facts: Mapping[str, Mapping[str, Any]], examples: Mapping[str, int]
    ) -> None:
        self.store, self.facts, self.examples = store, facts, examples
        self.rates = Rates()
        self.sizes: defaultdict[tuple[Sort, str], list[int]] = defaultdict(list)
        self.speeds: dict[str, dict[str, Any]] = {}
        """What measuring found out about models, by fingerprint."""
        self.problems: dict[str, str] = {}
        """Why a model could not be measured."""

    def learn(self, jobs: Sequence[Job]) -> None:
        """Read what the store says about such jobs, and measure models of which it says nothing."""
        for kind in dict.fromkeys(job.kind for job in jobs):
            for manifest in islice((self.store.root / kind).glob(f"*/{MANIFEST}"), LOOKED_AT):
                with contextlib.suppress(OSError, *MALFORMED):
                    self._learn_from(kind, json.loads(manifest.read_text(encoding="utf-8")))
        unknown: dict[str, list[Job]] = {}
        for job in jobs:
            if self.of_job(job).seconds is None:
                unknown.setdefault(model_of(job), []).append(job)
        for model, those in unknown.items():
            self._measure(model, those)

    def _learn_from(self, kind: str, manifest: dict[str, Any]) -> None:
        setup = setup_of(kind, manifest["inputs"])
        self.sizes[setup[:2]].append(sum(manifest["sizes"].values()))
        if not setup[0][2]:  # what puts windows together bears their time
            costs = manifest["costs"]
            self.rates.learn(setup, float(costs["cost"]), float(costs["seconds"]))

    def _measure(self, fingerprint: str, jobs: Sequence[Job]) -> None:
        job = speed_job(jobs[0], [job.needs["data"] for job in jobs])
        with LocalExecutor(self.store, 1) as executor:
            outcome = executor.execute([job], Progress())
        if outcome.failed:
            self.problems[fingerprint] = str(outcome.failed[job.artefact])
        else:
            self.speeds[fingerprint] = self.store.open(*job.artefact).json("speed.json")

    def of_job(self, job: Job) -> Estimate:
        """Seconds on one worker, and bytes."""
        setup = setup_of(job.kind, job.inputs)
        size = self._size(job, setup[:2])
        if setup[0][2]:
            return Estimate(0.0, size)  # it only puts windows together
        if self.rates.knows(setup[:2]):
            return Estimate(job.cost * self.rates.of(setup), size)
        speed = self.speeds.get(setup[1])
        if speed is None:
            return Estimate(None, size)
        # Costs are of guessed lengths; of these data the tokens were counted on a sample.
        longer = speed["longer"].get(job.needs["data"][1], 1.0)
        seconds = job.cost * longer / speed["flops_per_second"]
        # Jobs of a group find the model in memory, others load it first.
        start = 0.0 if job.group else float(speed["seconds_to_load"])
        return Estimate(start + seconds, size)

    def _size(self, job: Job, like: tuple[Sort, str]) -> float | None:
        if like in self.sizes:
            return sum(self.sizes[like]) / len(self.sizes[like])
        facts = self.facts.get(like[1])
        if facts is None:
            return None
        if job.kind in ("train", "control"):
            state = job.identity["state"]
            if state == "frozen" and job.kind == "train":
                return SMALL_RESULT  # a head alone
            # θ_M is stored twice: when it had just learned the labels, and at the end.
            copies = len(job.identity.get("snapshots") or ()) or 1 + (state == "memorised")
            return float(4 * facts["trained_parameters"] * copies)
        if job.kind == "states":
            n = self.examples.get(job.needs["data"][1])
            return None if n is None else float(4 * (facts["layers"] + 1) * n * facts["width"])
        return SMALL_RESULT


def model_of(job: Job) -> str:
    """Fingerprint of its model."""
    return str(job.identity["model"]["fingerprint"])
