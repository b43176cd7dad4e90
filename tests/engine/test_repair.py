"""Candidates of a repair have the weights they should have, and their jobs can be interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from memloc.analysis.windows import Window
from memloc.api.result import load
from memloc.config import Candidate, Engine
from memloc.engine.complete import complete_run
from memloc.engine.compute import forget_context, repaired
from memloc.engine.experiment import Experiment, prepare
from memloc.engine.inputs import InputCache
from memloc.engine.job import Job, run_job
from memloc.engine.local import LocalExecutor
from memloc.engine.repair import RepairPlan, plan_repair
from memloc.engine.store.store import Store
from tests.conftest import Finished
from tests.engine.test_resume import NEVER, assert_nothing_left, content, run_until
from tests.oracles.swapping import mixed_state_dict

WINDOWS: dict[Candidate, Window | str] = {
    "swapped-window": Window(1, 2),
    "retrained-window": Window(2, 3),
    "control-window": Window(2, 3),
}


@dataclass(frozen=True)
class Bench:
    """A run with its plan of repair, in which both trainings are done."""

    finished: Finished
    folder: Path
    experiment: Experiment
    plan: RepairPlan
    store: Store

    def model(self, state: str) -> Any:
        """θ_M or θ_O, put together by hand from what is in the store."""
        model = AutoModelForSequenceClassification.from_pretrained(
            self.finished.model, num_labels=3
        )
        job = self.plan.models[state]
        trained = load_file(self.store.folder(*job.artefact) / "final.safetensors")
        model.load_state_dict({**model.state_dict(), **trained})
        return model

    def candidate(self, name: Candidate) -> dict[str, torch.Tensor]:
        """The weights that are examined, and written."""
        classifier, _ = repaired(self.plan.candidates[name].exam, self.store)
        return classifier.blocks.model.state_dict()

    def new_store(self, number: int) -> Store:
        """A store with all but candidates and exams."""
        runs = self.folder.parent.parent / f"runs-{number}"
        self.finished.copy_to(runs)
        return Store(runs / "store")


@pytest.fixture(scope="module")
def bench(finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    runs = tmp_path_factory.mktemp("repair") / "runs"
    folder = finished.copy_to(runs)
    store = Store(runs / "store")
    with LocalExecutor(store, 1) as executor:
        inputs = InputCache(executor, Engine().where("cpu"))
        experiment = prepare(complete_run(load(folder).settings), inputs)
    plan = plan_repair(experiment, 1, WINDOWS)
    for one in plan.candidates.values():
        if one.training is not None:
            run_job(one.training, store, lambda _: None)
    yield Bench(finished, folder, experiment, plan, store)
    forget_context()


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("name", ["swapped-window", "control-window", "twin", "unchanged"])
def test_a_candidate_is_what_one_would_put_together_by_hand(bench: Bench, name: Candidate) -> None:
    memorised, original = bench.model("memorised"), bench.model("original")
    if name == "twin":
        expected = original.state_dict()
    else:
        window = WINDOWS.get(name, Window(1, 0))
        assert isinstance(window, Window)
        expected = mixed_state_dict(memorised, original, "bert.encoder.layer", window.layers)
    assert_equal(bench.candidate(name), expected)


def test_only_a_part_of_layers_is_swapped_if_the_result_is_about_that_part(bench: Bench) -> None:
    job = bench.plan.candidates["swapped-window"].exam
    parts = replace(job, identity={**job.identity, "unit": "attention"})
    found = repaired(parts, bench.store)[0].blocks.model.state_dict()
    both = bench.model("memorised"), bench.model("original")
    assert_equal(found, mixed_state_dict(*both, "bert.encoder.layer", (1, 2), "attention"))


def test_a_trained_candidate_differs_where_it_was_trained_and_nowhere_else(bench: Bench) -> None:
    memorised, found = bench.model("memorised").state_dict(), bench.candidate("retrained-window")
    changed = {name for name, value in memorised.items() if not torch.equal(found[name], value)}
    layers = {name for name in memorised if ".layer.1." in name or ".layer.2." in name}
    # A bias of keys has no influence, and so no gradient; θ_P has none of those of θ_M.
    assert changed <= layers | {"classifier.weight", "classifier.bias"}
    assert {name for name in layers if "weight" in name} < changed
    whole = bench.candidate("trained-on")
    changed = {name for name, value in memorised.items() if not torch.equal(whole[name], value)}
    assert not any("embeddings" in name for name in changed)
    assert {"classifier.weight", "bert.pooler.dense.weight"} < changed
    assert all(any(f".layer.{layer}." in name for name in changed) for layer in range(3))


def test_all_candidates_are_planned_once_and_models_are_those_of_the_run(bench: Bench) -> None:
    assert list(bench.plan.candidates) == [
        *("swapped-window", "retrained-window", "trained-on", "twin", "control-window"),
        "unchanged",
    ]
    kinds = [job.kind for job in bench.plan.jobs]
    assert kinds == [*["train"] * 2, *["candidate"] * 2, *["exam"] * 6]
    assert all(bench.store.has(*job.artefact) for job in bench.plan.models.values())
    keys = {job.key for job in bench.plan.jobs}
    assert len(keys) == 10
    assert not keys & {job.key for job in plan_repair(bench.experiment, 2, WINDOWS).jobs}


def test_suspected_labels_have_no_known_truth(bench: Bench) -> None:
    def asked(experiment: Experiment) -> set[bool]:
        plan = plan_repair(experiment, 1, WINDOWS)
        return {one.exam.identity["true_labels"] for one in plan.candidates.values()}

    assert asked(bench.experiment) == {True}
    task = bench.experiment.outline.task
    assert task is not None
    suspected = replace(bench.experiment.outline, task=replace(task, noise="suspected"))
    assert asked(replace(bench.experiment, outline=suspected)) == {False}


def test_candidates_that_are_not_possible_are_left_out_and_the_others_stay(bench: Bench) -> None:
    plan = plan_repair(bench.experiment, 1, {**WINDOWS, "control-window": "there is no other"})
    assert plan.left_out == {"control-window": "there is no other"}
    assert [job.key for job in plan.jobs] == [
        job.key for job in bench.plan.jobs if job.identity.get("candidate") != "control-window"
    ]


def jobs(plan: RepairPlan) -> dict[str, Job]:
    found = {}
    for name, one in plan.candidates.items():
        found[f"exam of {name}"] = one.exam
        if one.training is not None:
            found[name] = one.training
    return found


@pytest.mark.parametrize("name", ["retrained-window", "trained-on", "exam of swapped-window"])
def test_an_interrupted_job_goes_on_and_leaves_the_same_files(bench: Bench, name: str) -> None:
    job, steps = jobs(bench.plan)[name], list[float]()
    reference = bench.new_store(2 * len(name))
    run_job(replace(job, where={**job.where, "save_every": NEVER}), reference, steps.append)
    store = bench.new_store(2 * len(name) + 1)
    assert len(steps) >= 4
    seen = run_until(job, store, 2)
    # What an exam asks before its longest training is asked again.
    seen += run_until(job, store, len(steps) - 2)
    seen += run_until(job, store, 1000)
    assert content(store, job) == content(reference, job)
    if not name.startswith("exam"):
        assert seen == steps
    assert_nothing_left(store)
