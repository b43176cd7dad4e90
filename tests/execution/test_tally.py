"""Counts by kind, and an estimate that learns from what has finished."""

from __future__ import annotations

import heapq
import random

import pytest

from memloc.engine.job import Job
from memloc.engine.tally import STATES, Left, Rates, Tally, duration, in_order, setup_of


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def job(kind: str, number: int, cost: float, model: str = "m", data: str = "d") -> Job:
    return Job(
        kind,
        f"{kind} {number}",
        {"number": number, "model": {"fingerprint": model}},
        {"data": ("data", data)},
        cost=cost,
    )


def simulate(jobs: list[Job], seconds: dict[str, float], workers: list[tuple[float, int]]):
    """Work on jobs in their order; yields the estimate now and then, and at last the end.

    Args:
        jobs: In their order.
        seconds: By key.
        workers: From when on how many work at once.
    """
    clock = Clock()
    tally = Tally(jobs, clock)
    begin = clock.time
    waiting = list(reversed(jobs))
    running: list[tuple[float, int, Job]] = []
    found = []
    while waiting or running:
        at_once = [n for since, n in workers if since <= clock.time - begin][-1]
        while waiting and len(running) < at_once:
            nxt = waiting.pop()
            tally.start(nxt)
            heapq.heappush(running, (clock.time + seconds[nxt.key], id(nxt), nxt))
        until, _, first = heapq.heappop(running)
        clock.time = until
        tally.end(first, "done")
        for end, _, other in running:
            tally.advance(other, 1 - (end - clock.time) / seconds[other.key])
        found.append((clock.time - begin, tally.left()))
    return found, clock.time - begin


def test_the_estimate_learns_how_long_each_kind_takes() -> None:
    chance = random.Random(0)
    # What costs the same on paper takes 20 times as long as a training, or a fifth of it.
    jobs = [job("train", n, 50.0) for n in range(20)]
    jobs += [job("window", n, chance.uniform(2, 8)) for n in range(300)]
    jobs += [job("localise", n, 10.0) for n in range(20)]
    chance.shuffle(jobs)
    true = {"train": 1.0, "window": 20.0, "localise": 0.2}
    seconds = {j.key: j.cost * true[j.kind] * chance.uniform(0.9, 1.1) for j in jobs}
    found, end = simulate(jobs, seconds, [(0, 4)])
    assert found[0][1].seconds is None
    later = [(at, left) for at, left in found if 0.1 * end < at < 0.9 * end]
    assert len(later) > 100
    for at, left in later:
        assert left.seconds == pytest.approx(end - at, rel=0.2)
        assert not left.rough


def test_models_of_different_size_are_told_apart() -> None:
    small = [job("train", n, 10.0, "small") for n in range(60)]
    large = [job("train", n, 10.0, "large") for n in range(20)]
    jobs = [*large[:4], *small, *large[4:]]
    seconds = {j.key: 100.0 if j in large else 5.0 for j in jobs}
    found, end = simulate(jobs, seconds, [(0, 2)])
    for at, left in found[20:60]:  # all of them are small, what is left is mostly large
        assert left.seconds == pytest.approx(end - at, rel=0.15)


def test_more_workers_are_noticed() -> None:
    jobs = [job("window", n, 1.0) for n in range(4000)]
    seconds = {j.key: 10.0 for j in jobs}
    found, end = simulate(jobs, seconds, [(0, 2), (2000, 16)])
    at, left = next((at, left) for at, left in found if at > 3300)
    assert left.seconds == pytest.approx(end - at, rel=0.3)
    _, before = next((at, left) for at, left in found if at > 1900)
    assert before.seconds == pytest.approx((4000 - 2 * 190) * 10 / 2, rel=0.1)


def test_what_was_never_measured_makes_the_estimate_rough() -> None:
    jobs = [*(job("train", n, 10.0) for n in range(5)), *(job("window", n, 5) for n in range(100))]
    seconds = {j.key: j.cost for j in jobs}
    found, _ = simulate(jobs, seconds, [(0, 1)])
    assert found[3][1].rough
    assert found[3][1].words == "roughly 8 min left"
    assert not found[10][1].rough


def test_every_job_is_in_one_state_whatever_happens() -> None:
    jobs = [job(kind, n, 1.0) for kind in ("train", "window") for n in range(20)]
    tally = Tally(jobs)
    chance = random.Random(3)
    state = {j.key: "waiting" for j in jobs}
    for _ in range(1000):
        one = chance.choice(jobs)
        what = chance.choice(["running", "done", "failed", "left out"])
        state[one.key] = what
        if what == "running":
            tally.start(one)
        else:
            tally.end(one, what)
        tally.advance(chance.choice(jobs), chance.random())
        for kind in ("train", "window"):
            words = [state[j.key] for j in jobs if j.kind == kind]
            assert {s: tally.counts[kind][s] for s in STATES} == {s: words.count(s) for s in STATES}
        assert set(tally.running) == {key for key, word in state.items() if word == "running"}
    done = sum(1.0 for word in state.values() if word == "done")
    assert sum(tally.done.values()) == pytest.approx(done)


def test_a_job_that_was_in_the_store_but_damaged_is_counted_when_it_starts() -> None:
    tally = Tally([])
    tally.start(job("train", 1, 2.0))
    assert tally.sums == {"running": 1}


def test_nothing_is_said_of_the_time_left_too_early() -> None:
    clock = Clock()
    jobs = [job("train", n, 1.0) for n in range(9)]
    tally = Tally(jobs, clock)
    for one in jobs[:5]:
        tally.start(one)
        tally.end(one, "done")
    clock.time += 5
    assert tally.left() == Left(None)
    clock.time += 60
    assert tally.left() == Left(None)  # they took no time at all, as another process had them
    assert tally.left().words == "estimating the time left"


def test_rates_fall_back_to_the_kind_and_then_to_all() -> None:
    rates = Rates()
    rates.learn(setup_of(job("train", 1, 1.0, "small")), cost=2.0, seconds=6.0)
    assert rates.of(setup_of(job("train", 2, 1.0, "small"))) == 3
    assert rates.of(setup_of(job("train", 2, 1.0, "large"))) == 3
    assert rates.of(setup_of(job("window", 2, 1.0, "large"))) == 3
    rates.learn(setup_of(job("train", 1, 1.0, "large")), cost=1.0, seconds=30.0)
    assert rates.of(setup_of(job("train", 2, 1.0, "small"))) == 3
    assert rates.of(setup_of(job("train", 2, 1.0, "large"))) == 30
    assert rates.of(setup_of(job("train", 2, 1.0, "other"))) == 12
    assert not rates.knows(setup_of(job("window", 2, 1.0)))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3570, "1 h 0 min"),
        (12_000, "3 h 20 min"),
        (187_200, "2 d 4 h"),
        (30 * 86_400, "30 d 0 h"),
    ],
)
def test_durations_are_as_exact_as_needed(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_kinds_come_in_the_order_of_the_work_and_unknown_ones_last() -> None:
    assert in_order(["zzz", "localise", "train", "nap"]) == ["train", "localise", "nap", "zzz"]
