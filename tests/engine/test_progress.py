"""One counter: counts by kind, an estimate that learns from what has finished, lines in a log."""

from __future__ import annotations

import heapq
import io
import random
import re

import pytest

from memloc.engine.job import Failure, Job
from memloc.engine.progress import STATES, TOLD_FAILURES, Progress, Rates, Setup, setup_of
from memloc.engine.views import SHORTEST, LogLines
from tests.engine.same_results import Recorder

STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[(\d+:)?\d+:\d\d\] ")


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def job(kind: str, number: int, cost: float = 1.0, model: str = "m", data: str = "d") -> Job:
    return Job(
        kind,
        f"{kind} {number}",
        {"number": number, "model": {"fingerprint": model}},
        {"data": ("data", data)},
        cost=cost,
    )


def setup(one: Job) -> Setup:
    return setup_of(one.kind, one.inputs)


def failure(one: Job, reason: str, log: str | None = None) -> Failure:
    return Failure(one.title, reason, log=log)


def simulate(jobs: list[Job], seconds: dict[str, float], workers: list[tuple[float, int]]):
    """Work on jobs in their order; the estimates on the way, and the end.

    Args:
        jobs: In their order.
        seconds: By key.
        workers: From when on how many work at once.
    """
    clock = Clock()
    progress = Progress(now=clock)
    begin = clock.time
    waiting = list(reversed(jobs))
    running: list[tuple[float, int, Job]] = []
    found = []
    with progress.showing(jobs):
        while waiting or running:
            at_once = [n for since, n in workers if since <= clock.time - begin][-1]
            while waiting and len(running) < at_once:
                nxt = waiting.pop()
                progress.start(nxt)
                heapq.heappush(running, (clock.time + seconds[nxt.key], id(nxt), nxt))
            until, _, first = heapq.heappop(running)
            clock.time = until
            progress.finish(first)
            for end, _, other in running:
                progress.advance(other, 1 - (end - clock.time) / seconds[other.key])
            found.append((clock.time - begin, progress.left()))
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
    later = [(at, left) for at, left in found if 0.1 * end < at < 0.9 * end]
    assert len(later) > 100
    for at, left in later:
        assert left == pytest.approx(end - at, rel=0.2)


def test_more_workers_are_noticed() -> None:
    jobs = [job("window", n) for n in range(4000)]
    seconds = {j.key: 10.0 for j in jobs}
    found, end = simulate(jobs, seconds, [(0, 2), (2000, 16)])
    at, left = next((at, left) for at, left in found if at > 2300)
    assert left == pytest.approx(end - at, rel=0.3)
    _, before = next((at, left) for at, left in found if at > 1900)
    assert before == pytest.approx((4000 - 2 * 190) * 10 / 2, rel=0.1)


def test_one_long_job_under_way_is_enough_for_an_estimate() -> None:
    clock = Clock()
    progress = Progress(now=clock)
    jobs = [job("train", n) for n in range(3)]
    with progress.showing(jobs):
        progress.start(jobs[0])
        clock.time += 100
        progress.advance(jobs[0], 0.01)
        assert progress.left() is None
        progress.advance(jobs[0], 0.25)
        assert progress.left() == pytest.approx(2.75 * 400)
        assert progress.fraction == pytest.approx(0.25 / 3)


def test_every_job_is_in_one_state_whatever_happens() -> None:
    jobs = [job(kind, n) for kind in ("train", "window") for n in range(20)]
    progress = Progress()
    chance = random.Random(3)
    state = {j.key: "waiting" for j in jobs}
    steps = {
        "running": progress.start,
        "done": progress.finish,
        "failed": lambda one: progress.fail(one, failure(one, "bad luck")),
        "left_out": progress.drop,
        "waiting": progress.wait,
    }
    with progress.showing(jobs):
        for _ in range(1000):
            one = chance.choice(jobs)
            what = chance.choice(STATES)
            state[one.key] = what
            steps[what](one)
            progress.advance(chance.choice(jobs), chance.random())
            for kind in ("train", "window"):
                words = [state[j.key] for j in jobs if j.kind == kind]
                expected = {s: words.count(s) for s in STATES}
                assert {s: progress.counts[kind][s] for s in STATES} == expected
            running = {key for key, word in state.items() if word == "running"}
            assert {key for _, key in progress.running} == running
            todo = sum(word in ("running", "waiting") for word in state.values())
            assert sum(progress.todo.values()) == pytest.approx(todo)


def test_jobs_of_dead_workers_wait_and_interrupted_ones_too() -> None:
    progress = Progress()
    jobs = [job("train", n) for n in range(3)]
    with pytest.raises(KeyboardInterrupt), progress.showing(jobs):
        progress.start(jobs[0])
        progress.start(jobs[1])
        progress.wait(jobs[0])
        assert progress.sums == {"running": 1, "waiting": 2}
        raise KeyboardInterrupt
    assert progress.sums == {"waiting": 3}
    assert progress.last_words().startswith("stopped: 0 of 3 done in ")


def test_what_was_stored_is_done_and_further_rounds_are_added() -> None:
    progress = Progress()
    jobs = [job("train", n) for n in range(5)]
    with progress.showing(jobs[1:3], finished=jobs[:1]):
        assert progress.fraction == 0
        for one in jobs[1:3]:
            progress.start(one)
            progress.finish(one)
    with progress.showing(jobs[3:4]):
        progress.start(jobs[0])  # it was in the store, but damaged
        assert progress.sums == {"done": 2, "running": 1, "waiting": 1}


def test_rates_fall_back_to_the_kind_and_then_to_all() -> None:
    rates = Rates()
    rates.learn(setup(job("train", 1, model="small")), cost=2.0, seconds=6.0)
    assert rates.of(setup(job("train", 2, model="small"))) == 3
    assert rates.of(setup(job("train", 2, model="large"))) == 3
    assert rates.of(setup(job("window", 2, model="large"))) == 3
    rates.learn(setup(job("train", 1, model="large")), cost=1.0, seconds=30.0)
    assert rates.of(setup(job("train", 2, model="small"))) == 3
    assert rates.of(setup(job("train", 2, model="large"))) == 30
    assert rates.of(setup(job("train", 2, model="other"))) == 12
    assert not rates.knows(setup(job("window", 2))[0])


def test_many_failures_for_one_reason_are_told_a_few_times() -> None:
    progress = Recorder()
    jobs = [job("window", n) for n in range(50)]
    with progress.showing(jobs):
        for one in jobs:
            progress.fail(one, failure(one, "no memory"))
    told = [f"window {n} failed: no memory" for n in range(TOLD_FAILURES)]
    assert progress.failed[:TOLD_FAILURES] == told
    assert not any("no memory" in words for words in progress.failed[TOLD_FAILURES:])
    assert progress.notes == ["further failures for this reason are only counted"]
    assert len(progress.failures["no memory"]) == 50


def test_a_log_says_what_there_is_to_do_how_far_it_is_and_the_end() -> None:
    stream, clock = io.StringIO(), Clock()
    log = LogLines(stream)
    progress = Progress(log, now=clock)
    jobs = [*(job("train", n) for n in range(3)), *(job("window", n) for n in range(2000))]
    with progress.showing(jobs):
        progress.start(jobs[0])
        clock.time += SHORTEST - 1
        log.update(progress)  # too early
        progress.note("two\nlines and \x1b[31mred\x1b[0m\r and a bell\a")
        progress.finish(jobs[0])
        progress.start(jobs[1])
        clock.time += SHORTEST
        log.update(progress)
        progress.fail(jobs[1], failure(jobs[1], "x\ty"))
    lines = stream.getvalue().splitlines()
    assert all(STAMP.match(line) for line in lines)
    assert all(c.isprintable() for line in lines for c in line)
    assert [STAMP.sub("", line) for line in lines] == [
        "begin: 2,003 jobs (3 × training, 2,000 × retrained window)",
        "note: two lines and [31mred [0m and a bell",
        "1 of 2,003 done, 1 running, about 7 hours and 47 minutes left",
        "train 1 failed: x y",
        "stopped: 1 of 2,003 done, 1 failed in 29 seconds",
    ]
