"""How far a sweep is, from its files alone: any machine that sees the folder can ask, at any time.

The plan says what is to be done, the store what is done, claims who works on what, and records of
failures what went wrong.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memloc.engine.job import Job
from memloc.engine.plan_file import NAME, read_plan
from memloc.engine.store.leases import Holder
from memloc.engine.store.store import MANIFEST, Store
from memloc.engine.tally import Left, Rates, Setup, setup_of
from memloc.errors import MemlocError

MEASURED = 300
"""Finished jobs whose seconds are read, of all setups together."""
READ_FAILURES = 300
"""Records of failures that are read, the latest first."""


@dataclass(frozen=True)
class FailedAlike:
    """Jobs that failed for one reason."""

    title: str
    reason: str
    number: int
    log: Path | None
    host: str
    time: float


@dataclass(frozen=True)
class SweepStatus:
    """How far a sweep is.

    Attributes:
        name: Of the sweep.
        folder: Where its plan is.
        counts: For every kind of jobs, how many are in each of `memloc.engine.tally.STATES`.
        running: Jobs somebody works on now, and who.
        failures: The latest first.
        unread: Failed jobs whose reason was not read, as they are so many.
        left: The time left with as many jobs at once as now; with nobody at work, that of one.
    """

    name: str
    folder: Path
    counts: dict[str, Counter[str]]
    running: list[tuple[Job, Holder]]
    failures: list[FailedAlike]
    unread: int
    left: Left

    @property
    def sums(self) -> Counter[str]:
        """Jobs of all kinds, by state."""
        return sum(self.counts.values(), Counter())


def find_sweeps(folder: Path) -> list[Path]:
    """The folders of sweeps at or below a folder.

    Raises:
        MemlocError: If there are none.
    """
    if not folder.is_dir():
        raise MemlocError(
            f"there is no folder {str(folder)!r}; give the --runs folder of a sweep, or "
            "runs/sweeps/NAME"
        )
    if (folder / NAME).is_file():
        return [folder]
    found = sorted(
        path.parent for path in (*folder.glob(f"sweeps/*/{NAME}"), *folder.glob(f"*/{NAME}"))
    )
    if not found:
        raise MemlocError(
            f"there is no sweep in {str(folder)!r}; give the --runs folder of a sweep, or "
            "runs/sweeps/NAME (one that has just begun is there once it is planned)"
        )
    return found


def status_of(folder: Path) -> SweepStatus:
    """Look at one sweep.

    Args:
        folder: `runs/sweeps/NAME`.

    Raises:
        StoreError: If the plan cannot be read.
    """
    with _without_collector():
        jobs = {job.artefact: job for job in read_plan(folder)[0]}
        return _status(folder, jobs)


def _status(folder: Path, plan: dict[tuple[str, str], Job]) -> SweepStatus:
    jobs = list(plan.values())
    runs = folder.absolute().parent.parent
    store = Store(runs / "store")
    holders = store.claims.all()
    finished = {kind: _names(store.root / kind) for kind in {job.kind for job in jobs}}
    failed = _failed(runs / "failures")
    started = (folder / NAME).stat().st_mtime
    state: dict[tuple[str, str], str] = {}
    for job in jobs:
        name = f"{job.kind}-{job.key}"
        if job.key in finished[job.kind]:
            state[job.artefact] = "done"
        elif name in holders:
            state[job.artefact] = "running"
        elif name in failed:
            state[job.artefact] = "failed"
    running = [
        (job, f"{job.kind}-{job.key}") for job in jobs if state.get(job.artefact) == "running"
    ]
    if running:  # what failed before this start of the sweep is tried again by now, or soon
        for job in jobs:
            old = failed.get(f"{job.kind}-{job.key}", started) < started
            if state.get(job.artefact) == "failed" and old:
                del state[job.artefact]
    _leave_out(jobs, state)
    counts: dict[str, Counter[str]] = {}
    for job in jobs:
        counts.setdefault(job.kind, Counter())[state.get(job.artefact, "waiting")] += 1
    names = [f"{job.kind}-{job.key}" for job in jobs if state.get(job.artefact) == "failed"]
    names.sort(key=lambda name: -failed[name])
    return SweepStatus(
        folder.absolute().name,
        folder,
        counts,
        [(job, holders[name]) for job, name in running],
        _read_failures(runs / "failures", names[:READ_FAILURES]),
        len(names[READ_FAILURES:]),
        _left(jobs, state, store, [holders[name] for _, name in running]),
    )


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Python looks for garbage again and again while many objects are made; here is none."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _names(folder: Path) -> set[str]:
    """What is in a folder of the store: one look instead of one for every job."""
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()


def _failed(folder: Path) -> dict[str, float]:
    """Records of failures, and when they were written."""
    found = {}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".json"):
                with contextlib.suppress(OSError):  # the job has just succeeded
                    found[entry.name.removesuffix(".json")] = entry.stat().st_mtime
    return found


def _leave_out(jobs: Iterable[Job], state: dict[tuple[str, str], str]) -> None:
    """Mark what needs a failed job."""
    reached = [artefact for artefact, word in state.items() if word == "failed"]
    if not reached:
        return
    dependents: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for job in jobs:
        for need in job.needs.values():
            dependents.setdefault(need, []).append(job.artefact)
    while reached:
        for artefact in dependents.get(reached.pop(), ()):
            if artefact not in state:
                state[artefact] = "left out"
                reached.append(artefact)


def _read_failures(folder: Path, names: Sequence[str]) -> list[FailedAlike]:
    alike: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        record: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            record = found if isinstance(found, dict) else {}
        words = str(record.get("reason") or f"{name} failed: the reason cannot be read")
        words = words.partition(" (details in ")[0]
        title, _, reason = words.partition(" failed: ")
        record = {**record, "name": name, "title": record.get("title") or title}
        alike.setdefault(reason or words, []).append(record)
    return [
        FailedAlike(str(first["title"]), reason, len(same), _log(folder, first["name"]),
                    str(first.get("host", "")), _number(first.get("time")))
        for reason, same in alike.items()
        for first in same[:1]
    ]  # fmt: skip


def _log(folder: Path, name: str) -> Path | None:
    log = folder / f"{name}.log"
    return log if log.is_file() else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _left(
    jobs: Iterable[Job],
    state: dict[tuple[str, str], str],
    store: Store,
    holders: Sequence[Holder],
) -> Left:
    """From the seconds that finished jobs took."""
    finished: dict[Setup, list[Job]] = {}
    remaining: dict[Setup, float] = {}
    todo = ("running", "waiting") if holders else ("running", "waiting", "failed", "left out")
    for job in jobs:
        word = state.get(job.artefact, "waiting")
        setup = setup_of(job)
        if word == "done" and not (job.kind == "localise" and job.group):
            # What puts windows together is left out: it has the seconds of all windows.
            finished.setdefault(setup, []).append(job)
        elif word in todo:
            remaining[setup] = remaining.get(setup, 0.0) + job.cost
    rates = Rates()
    each = max(1, MEASURED // max(1, len(finished)))
    for setup, done in list(finished.items())[:MEASURED]:
        for job in done[:: -(-len(done) // each)]:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                text = (store.root / job.kind / job.key / MANIFEST).read_text(encoding="utf-8")
                rates.learn(setup, job.cost, float(json.loads(text)["costs"]["seconds"]))
    if not rates.jobs:
        return Left(None)
    work = {setup: cost * rates.of(setup) for setup, cost in remaining.items()}
    unknown = sum(seconds for setup, seconds in work.items() if not rates.knows(setup))
    total = sum(work.values())
    spent = sum(filter(None, (age_of(holder) for holder in holders)))
    left = max(0.0, total - spent) / max(1, len(holders))
    return Left(left, unknown > total / 2)


def age_of(holder: Holder) -> float | None:
    """For how many seconds somebody has been working on a job, if the claim says so."""
    since: float | None = getattr(holder, "since", None)
    return max(0.0, time.time() - since) if since else None
