"""Progress of runs: sums that are kept up to date say what adding everything up says."""

from __future__ import annotations

import io
import random
import time

import pytest
from rich.console import Console

from memloc.engine.job import Job
from memloc.engine.progress import COUNTED, LogProgress, _Estimate

KINDS = ("train", "window", "split", "localise")


def many_jobs(n: int, groups: int = 20, seed: int = 0) -> list[Job]:
    chance = random.Random(seed)
    jobs = []
    for number in range(n):
        kind = chance.choice(KINDS)
        group = None if kind == "train" else f"group {chance.randrange(groups)}"
        identity = {"number": number}
        jobs.append(Job(kind, f"job {number}", identity, cost=chance.random() * 9, group=group))
    return jobs


def added_up(jobs: list[Job], fractions: dict[str, float], group: str | None) -> tuple[float, str]:
    """The oracle: look at every job."""
    ours = [job for job in jobs if group is None or job.group == group]
    share = sum(job.cost * fractions[job.key] for job in ours) / sum(job.cost for job in ours)
    counted = [job for job in ours if job.kind in COUNTED]
    done = sum(fractions[job.key] == 1 for job in counted)
    return share, f"{done}/{len(counted)}" if counted else ""


def test_sums_that_are_kept_say_the_same_as_adding_up_all_jobs() -> None:
    jobs = many_jobs(300)
    estimate = _Estimate(jobs)
    fractions = {job.key: 0.0 for job in jobs}
    chance = random.Random(1)
    for _ in range(2000):
        job = chance.choice(jobs)
        fraction = chance.choice([0.0, 0.25, 0.7, 1.0, 1.0])  # back to 0: a worker died
        fractions[job.key] = fraction
        estimate.set(job, fraction)
        assert estimate.fraction == pytest.approx(added_up(jobs, fractions, None)[0])
        if job.group is not None:
            share, words = estimate.of_bar(job)
            assert (pytest.approx(share), words) == added_up(jobs, fractions, job.group)


def test_a_group_without_a_job_that_puts_it_together_ends_with_its_last_job() -> None:
    jobs = [Job("split", f"half {n}", {"n": n}, group="halves") for n in range(3)]
    estimate = _Estimate(jobs)
    ends = []
    for job in jobs:
        estimate.set(job, 1.0)
        ends.append(estimate.ends_group(job))
    assert ends == [False, False, True]


def test_a_job_that_was_thought_to_be_in_the_store_joins_later() -> None:
    known, damaged = (Job("train", f"train {n}", {"n": n}) for n in range(2))
    estimate = _Estimate([known])
    estimate.set(known, 1.0)
    assert estimate.fraction == 1
    estimate.set(damaged, 0.5)
    assert estimate.fraction == pytest.approx(0.75)


def test_a_message_about_one_of_30000_jobs_takes_microseconds() -> None:
    jobs = many_jobs(30_000)
    progress = LogProgress(Console(file=io.StringIO()))
    with progress.showing(jobs):
        progress.last = time.monotonic() + 3600  # no lines
        started = time.process_time()
        for job in jobs:
            progress.advance(job, 0.5)
        spent = time.process_time() - started
    assert spent / len(jobs) < 20e-6
