"""How long jobs will take, and how much disk: from what earlier ones took, or a measurement.

Costs of jobs are in floating-point operations (`memloc.engine.costs`). How many a second does is
known from jobs of the same kind and model in the store; failing that, from a few batches that are
sent through the model here; failing that, it is not known, and that is what we say.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from memloc.engine.costs import pass_flops, passes, rough_lengths
from memloc.engine.job import Job
from memloc.engine.store.store import MANIFEST, Store

LOOKED_AT = 400
"""Artefacts of each kind that are looked at."""
SMALL_RESULT = 30_000
"""Bytes of a result without weights or states, if none is known."""

Sort = tuple[str, str, str]
"""Kind, fingerprint of the model, and technique or state: such jobs take alike per operation."""


@dataclass
class Spent:
    """What jobs of a sort took."""

    flops: float = 0.0
    seconds: float = 0.0
    size: int = 0
    jobs: int = 0


def sort_of(kind: str, identity: Mapping[str, Any]) -> Sort:
    """What tells fast jobs from slow ones, beside their cost."""
    named = ("snapshots", "technique", "role", "state")
    what = next((identity[k] for k in named if k in identity), "")
    return kind, identity["model"]["fingerprint"], str(what)


@dataclass
class History:
    """What earlier jobs took.

    Args:
        store: Where they are.
        facts: On models, by fingerprint; jobs of other models do not count.
    """

    store: Store
    facts: Mapping[str, Mapping[str, Any]]
    spent: dict[Sort, Spent] = field(default_factory=dict)
    _flops: dict[tuple[str, str, int], float | None] = field(default_factory=dict)

    def look(self, kinds: Sequence[str]) -> None:
        """Read what the store says about some kinds of jobs."""
        for kind in kinds:
            for manifest in _manifests(self.store.root / kind):
                with contextlib.suppress(KeyError, TypeError, ValueError):
                    self._add(kind, manifest)

    def _add(self, kind: str, manifest: dict[str, Any]) -> None:
        inputs, costs = manifest["inputs"], manifest["costs"]
        sort = sort_of(kind, inputs)
        facts = self.facts.get(sort[1])
        if facts is None:
            return
        needs = inputs["needs"]
        roles = ("data", "auxiliary") if kind == "control" else ("data",)
        of_pass = [self._pass(sort[1], needs[r], inputs["training"]["max_tokens"]) for r in roles]
        spent = self.spent.setdefault(sort, Spent())
        spent.size += manifest["size"]
        spent.jobs += 1
        # What puts windows together bears their time.
        if None not in of_pass and not any(role.startswith("window:") for role in needs):
            n_layers = int(facts["layers"])
            spent.flops += passes(kind, inputs, n_layers) * sum(f for f in of_pass if f)
            spent.seconds += costs["seconds"]

    def _pass(self, fingerprint: str, data: str, max_tokens: int) -> float | None:
        key = fingerprint, data, max_tokens
        if key not in self._flops:
            path = self.store.root / "data" / data / "train.parquet"
            self._flops[key] = None
            with contextlib.suppress(OSError, ValueError):
                lengths = rough_lengths(pd.read_parquet(path), max_tokens)
                self._flops[key] = pass_flops(self.facts[fingerprint], lengths)
        return self._flops[key]


def _manifests(folder: Path) -> Iterator[dict[str, Any]]:
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number == LOOKED_AT:
                return
            with contextlib.suppress(OSError, ValueError):
                manifest = json.loads(Path(entry.path, MANIFEST).read_text(encoding="utf-8"))
                manifest["size"] = sum(file.stat().st_size for file in Path(entry.path).iterdir())
                yield manifest


@dataclass(frozen=True)
class Estimate:
    """What a job will take.

    Attributes:
        seconds: None: not known.
        size: Bytes; None: not known.
        source: Where the seconds come from: `earlier`, `measured` or nothing.
    """

    seconds: float | None
    size: float | None
    source: str = ""


@dataclass
class Estimator:
    """Estimates jobs.

    Args:
        history: What earlier jobs took.
        facts: On models, by fingerprint.
        examples: In data sets, by key.
        measured: What `speed` found out about models, by fingerprint.
    """

    history: History
    facts: Mapping[str, Mapping[str, Any]]
    examples: Mapping[str, int]
    measured: dict[str, dict[str, Any]] = field(default_factory=dict)

    def unknown(self, jobs: Sequence[Job]) -> list[str]:
        """Models (fingerprints) of jobs on which the store says nothing."""
        sorts = {sort_of(job.kind, job.identity): job for job in jobs}
        found = [sort[1] for sort, job in sorts.items() if self.of_job(job).seconds is None]
        return list(dict.fromkeys(found))

    def of_job(self, job: Job) -> Estimate:
        """Seconds on one worker, and bytes."""
        size = self._size(job)
        if any(role.startswith("window:") for role in job.needs):
            return Estimate(0.0, size)  # it only puts windows together
        earlier = self._earlier(job)
        if earlier is not None:
            return Estimate(job.cost / earlier, size, "earlier")
        found = self.measured.get(job.identity["model"]["fingerprint"])
        if found is None:
            return Estimate(None, size)
        # Costs are of guessed lengths; of these data the tokens were counted on a sample.
        longer = found["longer"].get(job.needs["data"][1], 1.0)
        seconds = job.cost * longer / found["flops_per_second"]
        # Jobs of a group find the model in memory, others load it first.
        start = 0.0 if job.group else float(found["seconds_to_load"])
        return Estimate(start + seconds, size, "measured")

    def _earlier(self, job: Job) -> float | None:
        """Operations per second of such jobs."""
        spent = self.history.spent.get(sort_of(job.kind, job.identity))
        return spent.flops / spent.seconds if spent and spent.seconds and spent.flops else None

    def _size(self, job: Job) -> float | None:
        spent = self.history.spent.get(sort_of(job.kind, job.identity))
        if spent and spent.jobs:
            return spent.size / spent.jobs
        facts = self.facts.get(job.identity["model"]["fingerprint"])
        if facts is None:
            return None
        if job.kind in ("train", "control"):
            state = job.identity["state"]
            if state == "frozen" and job.kind == "train":
                return SMALL_RESULT  # a head alone
            if "snapshots" in job.identity:
                return float(4 * facts["trained_parameters"] * len(job.identity["snapshots"]))
            # θ_M is stored twice: when it had just learned the labels, and at the end.
            return float(4 * facts["trained_parameters"] * (2 if state == "memorised" else 1))
        if job.kind == "states":
            n = self.examples.get(job.needs["data"][1])
            return None if n is None else float(4 * (facts["layers"] + 1) * n * facts["width"])
        return SMALL_RESULT
