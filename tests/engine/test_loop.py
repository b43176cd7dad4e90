"""The loop: order, bundles, what a failure takes along, other processes, damaged inputs, losses."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import pytest

from memloc.engine import loop
from memloc.engine.job import Failure, Job, Reply, Tell, attempt, read_failure, record_failure
from memloc.engine.loop import CannotGoOn, Executor, Outcome, WorkerLost
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.errors import DataError
from tests.engine.same_results import Recorder

DONE: Reply = {"state": "done"}
Answers = dict[str, list[Reply | Exception]]


def job(title: str, *needs: Job, cost: float = 1.0, group: str | None = None) -> Job:
    wanted = {str(index): need.artefact for index, need in enumerate(needs)}
    return Job("nap", title, {"title": title, "seconds": 0}, wanted, cost=cost, group=group)


class Pretending(Executor):
    """Answers at once, without computing anything.

    Args:
        store: Of the loop.
        answers: What becomes of a job each time it is tried, by title; then it is done.
        slots: Bundles at once.
    """

    def __init__(self, store: Store, answers: Answers | None = None, slots: int = 1) -> None:
        super().__init__(store)
        self.answers = answers or {}
        self.slots = self.workers = slots
        self.bundles: list[list[str]] = []

    def submit(self, bundle: Sequence[Job], tell: Tell) -> Future[None]:
        self.bundles.append([each.title for each in bundle])
        # From another thread, so that the loop hears of it once all slots are taken.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._answer, bundle, tell)

    def _answer(self, bundle: Sequence[Job], tell: Tell) -> None:
        for each in bundle:
            following = self.answers.get(each.title)
            answer = following.pop(0) if following else DONE
            tell(each, 0.0)
            if isinstance(answer, Exception):
                raise answer
            tell(each, answer)

    def stop(self) -> None:
        pass


def failed(one: Job, reason: str = "too bad") -> Reply:
    return {"state": "failed", "failure": asdict(Failure(one.title, reason))}


def damaged(one: Job) -> Reply:
    return {"state": "damaged", "artefact": list(one.artefact), "problem": "model is damaged"}


def write(store: Store, *jobs: Job) -> None:
    for one in jobs:
        with store.write(*one.artefact, one.inputs) as draft:
            draft.json("nap.json", {})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs" / "store")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "LOOK_EVERY", 0.02)


def run(
    store: Store, *jobs: Job, slots: int = 1, **answers: list[Reply | Exception]
) -> tuple[Outcome, Recorder, list[list[str]]]:
    executor = Pretending(store, answers, slots)
    outcome = executor.execute(jobs, progress := Recorder())
    return outcome, progress, executor.bundles


def test_a_job_comes_after_all_it_needs_and_before_shorter_ones(store: Store) -> None:
    model, other = job("model", cost=5), job("other", cost=3)
    window = job("window", model, cost=4)
    outcome, progress, bundles = run(store, window, other, model)
    assert bundles == [["model"], ["window"], ["other"]]
    assert outcome == Outcome(3)
    assert progress.started == progress.finished == ["model", "window", "other"]


def test_a_group_counts_as_its_average_job_and_keeps_its_order(store: Store) -> None:
    jobs = [
        job("small", cost=1),
        job("window 2", cost=5, group="windows"),
        job("window 1", cost=8, group="windows"),
        job("window 3", cost=2, group="windows"),
        job("large", cost=6),
    ]
    _, progress, _ = run(store, *jobs)
    assert progress.started == ["large", "window 2", "window 1", "window 3", "small"]


def test_jobs_of_a_group_travel_together_in_bundles_that_get_smaller(store: Store) -> None:
    jobs = [job(f"{n}", group="windows") for n in range(20)]
    _, _, bundles = run(store, *jobs, slots=2)
    assert [len(bundle) for bundle in bundles] == [5, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1]
    assert [title for bundle in bundles for title in bundle] == [one.title for one in jobs]


def test_what_is_in_the_store_is_not_computed(store: Store) -> None:
    model = job("model")
    window = job("window", model)
    write(store, model)
    assert run(store, model, window)[0] == Outcome(1)
    write(store, window)
    assert run(store, model, window)[::2] == (Outcome(0), [])


def test_a_failure_takes_only_those_with_it_that_need_the_result(store: Store) -> None:
    model, other = job("model", cost=9), job("other")
    states = job("states", model)
    both = job("both", model, states)
    outcome, progress, bundles = run(store, model, states, both, other, model=[failed(model)])
    assert outcome.computed == 1
    assert [str(each) for each in outcome.failed.values()] == ["model failed: too bad"]
    assert outcome.left_out == {states.artefact, both.artefact}
    assert outcome.missing == {model.artefact, states.artefact, both.artefact}
    assert bundles == [["model"], ["other"]]
    assert progress.failed == ["model failed: too bad"]
    assert sorted(progress.dropped) == ["both", "states"]


def test_a_damaged_input_is_computed_anew_before_those_that_found_the_damage(store: Store) -> None:
    model = job("model")
    windows = [job(f"window{n}", model) for n in range(3)]
    write(store, model)
    outcome, progress, bundles = run(
        store, model, *windows, slots=2, window0=[damaged(model)], window1=[damaged(model)]
    )
    assert progress.notes[0] == "window0 is tried again: model is damaged"
    assert bundles.count(["model"]) == 1
    assert outcome == Outcome(4)
    # The third is not tried without its input.
    assert sorted(bundles[-3:]) == [["window0"], ["window1"], ["window2"]]
    assert len(bundles) == 6
    assert sorted(progress.finished) == ["model", "window0", "window1", "window2"]


def test_a_damaged_input_that_nobody_can_compute_is_a_failure(store: Store) -> None:
    window = job("window")
    outcome, _, _ = run(store, window, window=[damaged(job("elsewhere"))])
    assert [str(each) for each in outcome.failed.values()] == ["window failed: model is damaged"]


def test_an_artefact_that_is_damaged_again_and_again_is_given_up(store: Store) -> None:
    model = job("model")
    window = job("window", model)
    write(store, model)
    outcome, _, bundles = run(store, model, window, window=[damaged(model)] * 100)
    assert outcome.failed.keys() == {window.artefact}
    assert bundles.count(["window"]) == loop.REPAIRS
    assert str(outcome.failed[window.artefact]).endswith("model is damaged, 5 times")


def test_a_job_whose_workers_die_is_tried_three_times(store: Store) -> None:
    model, other = job("model"), job("other")
    window = job("window", model)
    lost = WorkerLost("its worker process died")
    outcome, progress, bundles = run(store, model, window, other, model=[lost] * 5, other=[lost])
    assert bundles.count(["model"]) == 3
    assert bundles.count(["other"]) == 2
    assert outcome.computed == 1
    (failure,) = outcome.failed.values()
    assert str(failure) == "model failed: its worker process died, 3 times"
    assert failure == read_failure(store, model)
    assert sorted(progress.waited) == ["model", "model", "other"]


def test_of_a_bundle_only_the_job_in_progress_pays_for_a_lost_worker(store: Store) -> None:
    jobs = [job(f"window{n}", group="windows") for n in range(8)]
    outcome, progress, bundles = run(store, *jobs, window2=[WorkerLost("died")])
    assert bundles[0] == ["window0", "window1", "window2", "window3"]
    assert outcome == Outcome(8)
    assert progress.notes == ["window2 is tried again: died"]
    assert sum("window0" in bundle for bundle in bundles) == 1


def test_what_another_process_computes_is_waited_for(store: Store) -> None:
    model = job("model")
    window = job("window", model)

    with store.locks.hold(*model.artefact):
        executor = Pretending(store, {"model": [{"state": "elsewhere"}]})
        progress = Recorder()
        looks = 0
        held = store.locks.held

        def look(kind: str, key: str) -> bool:
            nonlocal looks
            looks += 1
            if looks == 3:
                write(store, model)
            return held(kind, key)

        store.locks.held = look  # type: ignore[method-assign]
        outcome = executor.execute([model, window], progress)
    assert outcome == Outcome(1)
    assert progress.finished == ["model", "window"]
    assert progress.notes == []


def test_what_another_process_gave_up_is_taken_over(store: Store) -> None:
    model = job("model")
    outcome, _, bundles = run(store, model, model=[{"state": "elsewhere"}])
    assert outcome == Outcome(1)
    assert bundles == [["model"], ["model"]]


class Watched(Executor):
    """Workers elsewhere that say nothing: what they do is seen in the store."""

    reports = False
    slots = 100

    def __init__(self, store: Store, *steps: Callable[[], None]) -> None:
        super().__init__(store)
        self.steps = list(steps)

    def submit(self, bundle: Sequence[Job], tell: Tell) -> Future[None]:
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def poll(self, progress: Progress) -> None:
        self.steps.pop(0)()

    def stop(self) -> None:
        pass


def test_workers_elsewhere_are_followed_through_the_store(store: Store) -> None:
    done, dies, fails = job("done"), job("dies"), job("fails")
    after = job("after", fails)
    record_failure(store, fails, DataError("long ago"))  # by an earlier command
    stack = ExitStack()
    progress = Recorder()
    executor = Watched(
        store,
        lambda: stack.enter_context(store.locks.hold(*dies.artefact)),
        stack.close,
        lambda: write(store, done, dies),
        lambda: record_failure(store, fails, DataError("too bad")),
    )
    outcome = executor.execute([done, dies, fails, after], progress)
    assert progress.started == progress.waited == ["dies"]
    assert sorted(progress.finished) == ["dies", "done"]
    assert outcome.computed == 2
    assert [str(each) for each in outcome.failed.values()] == ["fails failed: too bad"]
    assert outcome.left_out == {after.artefact}


def test_a_store_that_is_full_ends_everything(store: Store) -> None:
    model = job("model", cost=2)
    full: Reply = {"state": "full", "problem": "no space", "remedy": "free some"}
    with pytest.raises(CannotGoOn, match="model failed: no space; free some"):
        run(store, model, job("other"), model=[full])


def test_choosing_the_next_job_takes_no_longer_with_many_jobs(store: Store) -> None:
    models = [job(f"model {m}", cost=100 + m) for m in range(100)]
    windows = [
        job(f"window {m} {w}", models[m], cost=1 + m / 1000, group=f"group {m % 50}")
        for m in range(100)
        for w in range(200)
    ]
    for one in (*models, *windows):
        assert one.key  # computed once, not here
    started = time.process_time()
    outcome, progress, _ = run(store, *models, *windows)
    spent = time.process_time() - started
    assert outcome.computed == 20_100
    assert progress.started[0] == "model 99"
    assert spent < 4.0, f"{spent / 20_100 * 1e6:.0f} µs per job"


# --- one attempt ---


def test_an_attempt_stores_the_result_or_keeps_why_it_failed(store: Store) -> None:
    riddle = Job("nap", "riddle", {"seconds": "many"})
    reply = attempt(riddle, store, lambda fraction: None)
    assert reply["state"] == "failed"
    failure = Failure(**reply["failure"])
    assert failure.reason.startswith("TypeError: ")
    assert failure == read_failure(store, riddle)
    assert "Traceback" in Path(str(failure.log)).read_text()
    good = job("good")
    assert attempt(good, store, lambda fraction: None) == DONE
    assert attempt(good, store, lambda fraction: None) == {"state": "there"}
    with store.locks.hold(*job("other").artefact):
        assert attempt(job("other"), store, lambda fraction: None) == {"state": "elsewhere"}


def test_what_failed_is_tried_again_by_a_new_command_but_not_by_another_worker(
    store: Store,
) -> None:
    one = job("one")
    record_failure(store, one, DataError("it was bad", remedy="wait"))
    reply = attempt(one, store, lambda fraction: None)
    assert str(Failure(**reply["failure"])) == "one failed: it was bad; wait"
    assert run(store, one)[0] == Outcome(1)
    assert read_failure(store, one) is None


def test_what_leads_to_the_first_answer_comes_before_longer_jobs(store: Store) -> None:
    training, long = job("training"), job("long", cost=9)
    states = job("states", training)
    answer, other = job("answer", states), job("other", training, cost=5)
    executor = Pretending(store)
    everything = [long, other, training, states, answer]
    executor.execute(everything, Progress(), first=[answer.artefact])
    order = ["training", "states", "answer", "long", "other"]
    assert executor.bundles == [[title] for title in order]
