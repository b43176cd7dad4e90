"""How long jobs will take, and how much disk: from what earlier ones took, or a measurement.

Costs of jobs are in floating-point operations (`memloc.engine.costs`). How many a second does is
known from jobs of the same technique and model in the store; failing that, from a few batches that
are sent through the model here; failing that, it is not known, and that is what we say.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memloc.engine.job import Job
from memloc.engine.local import LocalExecutor
from memloc.engine.plan import speed_job
from memloc.engine.progress import Progress, Rates, Sort, setup_of
from memloc.engine.store.store import MANIFEST, Store

LOOKED_AT = 400
"""Artefacts of each kind that are looked at."""
SMALL_RESULT = 30_000
"""Bytes of a result without weights or states, if none is known."""


@dataclass(frozen=True)
class Estimate:
    """What a job will take.

    Attributes:
        seconds: On one worker; None: not known.
        size: Bytes; None: not known.
        measured: Whether the seconds come from a measurement, not from earlier jobs.
    """

    seconds: float | None
    size: float | None
    measured: bool = False


class Estimator:
    """Estimates jobs.

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
            for manifest, size in _manifests(self.store.root / kind):
                with contextlib.suppress(KeyError, TypeError, ValueError):
                    setup = setup_of(kind, manifest["inputs"])
                    self.sizes[setup[:2]].append(size)
                    if not setup[0][2]:  # what puts windows together bears their time
                        costs = manifest["costs"]
                        self.rates.learn(setup, float(costs["cost"]), float(costs["seconds"]))
        for fingerprint in self.unknown(jobs):
            self._measure(fingerprint, [job for job in jobs if model_of(job) == fingerprint])

    def unknown(self, jobs: Sequence[Job]) -> list[str]:
        """Models (fingerprints) of jobs whose time is not known."""
        kinds = {setup_of(job.kind, job.inputs)[:2]: job for job in jobs}
        unknown = [key[1] for key, job in kinds.items() if self.of_job(job).seconds is None]
        return list(dict.fromkeys(unknown))

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
            # It only puts windows together.
            return Estimate(0.0, size, setup[1] in self.speeds)
        rate = self.rates.of_model(setup)
        if rate is not None:
            return Estimate(job.cost * rate, size)
        speed = self.speeds.get(setup[1])
        if speed is None:
            return Estimate(None, size)
        # Costs are of guessed lengths; of these data the tokens were counted on a sample.
        longer = speed["longer"].get(job.needs["data"][1], 1.0)
        seconds = job.cost * longer / speed["flops_per_second"]
        # Jobs of a group find the model in memory, others load it first.
        start = 0.0 if job.group else float(speed["seconds_to_load"])
        return Estimate(start + seconds, size, measured=True)

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


def _manifests(folder: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """What is known about artefacts, and their bytes."""
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number == LOOKED_AT:
                return
            with contextlib.suppress(OSError, ValueError):
                manifest = json.loads(Path(entry.path, MANIFEST).read_text(encoding="utf-8"))
                yield manifest, sum(file.stat().st_size for file in Path(entry.path).iterdir())
