"""The queue: order, what a failure takes along, what other processes do, damaged inputs, losses."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from memloc.engine.failures import failure_of
from memloc.engine.job import Job
from memloc.engine.progress import Silent
from memloc.engine.queue import CannotGoOn, JobQueue
from memloc.engine.store.store import Store


def job(title: str, *needs: Job, cost: float = 1.0, group: str | None = None) -> Job:
    wanted = {str(index): need.artefact for index, need in enumerate(needs)}
    return Job("nap", title, {"title": title}, wanted, cost=cost, group=group)


class Notes(Silent):
    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, words: str) -> None:
        self.notes.append(words)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def queue_of(*jobs: Job, store: Store, finished: tuple[Job, ...] = ()) -> JobQueue:
    return JobQueue(jobs, {one.artefact for one in finished}, store, Notes())


def write(store: Store, one: Job) -> None:
    with store.write(*one.artefact, one.inputs) as draft:
        draft.json("nap.json", {})


def titles(queue: JobQueue) -> list[str]:
    """Everything that can run, each finishing at once."""
    found = []
    while (one := queue.take()) is not None:
        found.append(one.title)
        queue.settle(one, ("done", None))
    return found


def test_a_job_is_ready_as_soon_as_its_own_needs_are_there(store: Store) -> None:
    model, other = job("model", cost=5), job("other", cost=9)
    window = job("window", model)
    queue = queue_of(window, model, other, store=store)
    assert queue.take() == other
    assert queue.take() == model
    assert queue.take() is None
    queue.settle(model, ("done", None))
    assert queue.take() == window  # `other` still runs
    assert not queue.over
    queue.settle(window, ("done", None))
    queue.settle(other, ("there", None))
    assert queue.over
    assert queue.computed == {model.artefact, window.artefact}


def test_what_is_in_the_store_is_not_taken(store: Store) -> None:
    model = job("model")
    window = job("window", model)
    assert titles(queue_of(model, window, store=store, finished=(model,))) == ["window"]


def test_a_worker_stays_with_the_models_it_has_unless_a_longer_job_waits(store: Store) -> None:
    first = [job(f"first {n}", cost=3, group="first") for n in range(3)]
    second = [job(f"second {n}", cost=2, group="second") for n in range(3)]
    training = job("training", cost=50)
    queue = queue_of(*first, *second, training, store=store)
    assert queue.take(after=second[0]) == training
    assert queue.take(after=second[0]) == second[0]
    assert queue.take() == first[0]
    assert queue.take(after=second[0]) == second[1]
    assert queue.take(after=second[1]) == second[2]
    assert queue.take(after=second[2]) == first[1]


def test_what_another_process_computes_is_waited_for(store: Store) -> None:
    model = job("model")
    window = job("window", model)
    queue = queue_of(model, window, store=store)
    with store.claims.hold(*model.artefact):
        assert queue.take() == model
        queue.settle(model, ("elsewhere", None))
        queue.look_elsewhere()
        assert queue.take() is None
        assert not queue.over
        write(store, model)
        queue.look_elsewhere()
    assert queue.take() == window
    assert queue.computed == set()


def test_what_another_process_gave_up_is_taken_over(store: Store) -> None:
    model = job("model")
    queue = queue_of(model, store=store)
    with store.claims.hold(*model.artefact):
        queue.settle(queue.take() or model, ("elsewhere", None))
    queue.look_elsewhere()
    assert queue.take() == model


def test_a_damaged_input_is_computed_anew_before_all_that_need_it(store: Store) -> None:
    model = job("model")
    windows = [job(f"window {n}", model) for n in range(3)]
    queue = queue_of(model, *windows, store=store, finished=(model,))
    taken = queue.take()
    assert taken == windows[0]
    words = "stored nap 1234 is damaged (x) and was set aside as y; run the same command again"
    queue.settle(taken, ("damaged", [*model.artefact, words]))
    assert isinstance(queue.progress, Notes)
    assert queue.progress.notes == [
        "stored nap 1234 is damaged (x) and was set aside as y; it is computed anew"
    ]
    # The other windows were ready before, and are not now.
    assert queue.take() == model
    assert queue.take() is None
    queue.settle(model, ("done", None))
    assert titles(queue) == ["window 0", "window 1", "window 2"]
    assert queue.over
    assert not queue.failed


def test_two_jobs_that_find_the_same_input_damaged_have_it_computed_once(store: Store) -> None:
    model = job("model")
    one, two = job("one", model), job("two", model)
    queue = queue_of(model, one, two, store=store, finished=(model,))
    assert [queue.take(), queue.take()] == [one, two]
    for each in (one, two):
        queue.settle(each, ("damaged", [*model.artefact, "gone"]))
    assert titles(queue) == ["model", "one", "two"]
    assert queue.computed == {model.artefact, one.artefact, two.artefact}


def test_a_damaged_input_that_nobody_can_compute_is_a_failure(store: Store) -> None:
    window = job("window")
    queue = queue_of(window, store=store)
    queue.settle(queue.take() or window, ("damaged", ["data", "0" * 32, "data are damaged"]))
    assert queue.failed == {window.artefact: "window failed: data are damaged"}


def test_a_job_whose_workers_die_is_tried_three_times(store: Store) -> None:
    model = job("model")
    window = job("window", model)
    queue = queue_of(model, window, store=store)
    for _ in range(3):
        assert queue.take() == model
        queue.lost(model, "its worker process died")
    assert queue.over
    assert queue.failed == {
        model.artefact: "model failed 3 times: its worker process died",
        window.artefact: "",
    }


def test_what_is_known_to_fail_is_not_tried(store: Store) -> None:
    model, other = job("model"), job("other")
    window = job("window", model)
    known = {model.artefact: "model failed: too bad"}
    queue = JobQueue(
        [model, window, other], set(), store, Notes(), lambda one: known.get(one.artefact)
    )
    assert titles(queue) == ["other"]
    assert queue.failed == {model.artefact: "model failed: too bad", window.artefact: ""}


def test_a_store_that_is_full_ends_everything(store: Store) -> None:
    model = job("model")
    queue = queue_of(model, store=store)
    with pytest.raises(CannotGoOn, match="no space"):
        queue.settle(queue.take() or model, ("cannot go on", "model failed: no space"))


def test_choosing_the_next_job_takes_no_longer_with_many_jobs(store: Store) -> None:
    models = [job(f"model {m}", cost=100 + m) for m in range(100)]
    windows = [
        job(f"window {m} {w}", models[m], cost=1 + m / 1000, group=f"group {m}")
        for m in range(100)
        for w in range(200)
    ]
    for one in (*models, *windows):
        assert one.key  # computed once, not here
    started = time.process_time()
    found = titles(queue_of(*models, *windows, store=store))
    spent = time.process_time() - started
    assert len(found) == 20_100
    assert found[0] == "model 99"
    assert spent < 2.0, f"{spent / 20_100 * 1e6:.0f} µs per job"


def test_a_job_whose_input_failed_while_it_ran_is_left_out(store: Store) -> None:
    model = job("model")
    first, second = job("first", model), job("second", model)
    last = job("last", second)
    queue = queue_of(model, first, second, last, store=store, finished=(model,))
    assert [queue.take(), queue.take()] == [first, second]
    queue.settle(first, ("damaged", [*model.artefact, "damaged"]))
    assert queue.take() == model
    queue.settle(model, ("failed", "model failed: too bad"))
    queue.settle(second, ("damaged", [*model.artefact, "damaged"]))
    assert queue.over
    assert queue.failed == {
        model.artefact: "model failed: too bad",
        **dict.fromkeys((first.artefact, second.artefact, last.artefact), ""),
    }


def test_an_artefact_that_is_damaged_again_and_again_is_given_up(store: Store) -> None:
    model = job("model")
    window = job("window", model)
    queue = queue_of(model, window, store=store, finished=(model,))
    rounds = 0
    while (one := queue.take()) is not None:
        rounds += 1
        assert rounds < 100
        reply = ("done", None) if one == model else ("damaged", [*model.artefact, "damaged"])
        queue.settle(one, reply)
    assert queue.over
    assert queue.failed == {window.artefact: "window failed: damaged"}


def test_failures_that_no_worker_could_record_are_recorded(store: Store) -> None:
    model, other = job("model"), job("other")
    queue = JobQueue([model, other], set(), store, Notes(), launch="this")
    for _ in range(3):
        queue.lost(queue.take() or model, "its worker process died")
        queue.waiting.pop(other.artefact, None)
    found = failure_of(store, model)
    assert found is not None
    assert found["reason"] == "model failed 3 times: its worker process died"
    assert found["launch"] == "this"
