"""What jobs will take: from what earlier ones took, else from a measurement, else not known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memloc.config import Data, Run
from memloc.data.load import load_task
from memloc.engine.dry_run import Estimator, speed_job
from memloc.engine.job import write_task
from memloc.engine.local import LocalExecutor
from memloc.engine.plan import model_job, pass_flops, rough_lengths
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.models.names import ModelSource, resolve
from tests.engine.same_results import plan_of
from tests.engine.test_local import TASK, config

FACTS = {
    "layers": 4,
    "width": 8,
    "layer_parameters": 1000,
    "trained_parameters": 1200,
    "pooling": "first",
}
SOURCE = ModelSource("m", "/m", "f00d")


def test_a_pass_costs_what_every_token_meets() -> None:
    def slowly(lengths: list[int]) -> float:
        total = 0
        for length in lengths:
            for _ in range(length):  # every token
                total += 2 * FACTS["layer_parameters"]  # multiplied and added
                for _ in range(length):  # looks at every other, in every layer
                    total += FACTS["layers"] * 2 * (2 * FACTS["width"])  # keys, then values
        return total

    assert pass_flops(FACTS, np.array([3, 5])) == slowly([3, 5])


def plan_on(store: Store, limit: int, **changes):
    task = load_task(Data(task="reviews", limit=limit))
    artefact = write_task(store, task)
    cost = pass_flops(FACTS, rough_lengths(task.train, 512))
    settings = Run(techniques={"swapping": {}, "retraining": {}}, **changes)
    return plan_of(settings, artefact, SOURCE, 4, {"device": "cpu"}, pass_cost=cost), artefact


def test_times_of_earlier_jobs_are_scaled_by_cost(tmp_path: Path) -> None:
    store = Store(tmp_path)
    earlier, _ = plan_on(store, 60)
    for job in earlier.jobs:
        seconds = 10.0 if job.kind == "train" else 2.0
        costs = {"seconds": seconds, "cost": job.cost}
        with store.write(job.kind, job.key, job.inputs, costs) as draft:
            draft.json("weights.json", "x" * 1000)
    plan, artefact = plan_on(store, 120)
    estimator = Estimator(store, {"f00d": FACTS}, {artefact[1]: 120})
    estimator.learn(plan.jobs)
    assert not estimator.speeds, "nothing had to be measured"
    before = {job.title: job for job in earlier.jobs}
    for job in plan.jobs:
        found = estimator.of_job(job)
        assert 1000 < found.size < 3000
        if "all windows" in job.title:
            assert found.seconds == 0
            continue
        if job.kind == "train":
            assert found.seconds == pytest.approx(10 * job.cost / before[job.title].cost)
            assert 15 < found.seconds < 25  # twice the examples
    windows = [job for job in plan.jobs if job.kind == "window"]
    total = sum(estimator.of_job(job).seconds for job in windows)
    assert total == pytest.approx(2 * len(windows) * windows[0].cost / earlier_cost(earlier, plan))


def earlier_cost(earlier, plan) -> float:
    first = next(job for job in plan.jobs if job.kind == "window")
    return next(job for job in earlier.jobs if job.title == first.title).cost


def test_jobs_in_tf32_are_other_jobs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    plain, fast = (plan_on(store, 60, training={"dtype": d})[0].jobs for d in ("float32", "tf32"))
    assert [job.title for job in plain] == [job.title for job in fast]
    assert not {job.key for job in plain} & {job.key for job in fast}


def test_where_nothing_is_known_no_time_is_given(tmp_path: Path) -> None:
    store = Store(tmp_path)
    plan, artefact = plan_on(store, 60)
    estimator = Estimator(store, {"f00d": FACTS}, {artefact[1]: 60})
    trainings = plan.cells[0].trainings
    assert estimator.of_job(trainings["original"]).seconds is None
    assert estimator.of_job(trainings["original"]).size == 4 * 1200
    assert estimator.of_job(trainings["memorised"]).size == 2 * 4 * 1200
    estimator.speeds["f00d"] = {
        "flops_per_second": 1e6,
        "seconds_to_load": 1.0,
        "longer": {artefact[1]: 2.0},
    }
    job = trainings["original"]
    found = estimator.of_job(job)
    assert found.seconds == pytest.approx(1 + 2 * job.cost / 1e6)


def test_a_model_is_measured_in_a_moment(tiny_folder: Path, tmp_path: Path) -> None:
    store, settings = Store(tmp_path), config(tiny_folder)
    source = resolve(settings.model)
    other = load_task(Data(task="topics", limit=60))
    data = [write_task(store, TASK), write_task(store, other)]
    look = model_job(settings.model, source)
    like = plan_of(settings, data[0], source, 3, {"device": "auto"}).jobs[0]
    job = speed_job(like, data)
    with LocalExecutor(store, 1) as executor:
        assert executor.execute([look, job], Progress()).failed == {}
    facts = store.open(*look.artefact).json("facts.json")
    assert facts["layers"] == 3
    assert facts["width"] == 32
    # Attention has four matrices of 32 × 32 and the MLP two of 32 × 48.
    matrices = 3 * (4 * 32 * 32 + 2 * 32 * 48)
    assert matrices < facts["layer_parameters"] < 1.1 * matrices
    found = store.open(*job.artefact).json("speed.json")
    assert found["flops_per_second"] > 1e6
    assert set(found["longer"]) == {key for _, key in data}
    for ratio in found["longer"].values():
        assert 0.5 < ratio < 2
    assert store.open(*job.artefact).manifest["costs"]["seconds"] < 20
