"""Plans: keys stay what they were, so that results of earlier versions remain valid."""

from __future__ import annotations

from memloc.config import ControlConfig, GeneralisationConfig, RunConfig
from memloc.engine.plan import Planner, RunPlan, plan_run
from memloc.engine.plan_control import ControlPlanner
from memloc.models.names import ModelSource
from memloc.techniques import make

SOURCE = ModelSource("some-model", "/somewhere/some-model", "f00d")
CONFIG = RunConfig(seeds=(1, 2), generalisation=GeneralisationConfig(splits=3))
WHERE = {"device": "cpu"}


def plan(**arguments) -> RunPlan:
    parts = [make("centroids"), make("class_probes")]
    return plan_run(CONFIG, ("data", "abc"), SOURCE, 4, WHERE, parts, **arguments)


def test_keys_are_those_of_the_version_before_sweeps() -> None:
    found = plan()
    jobs = {job.title: job.key for job in (*found.jobs, *found.splits)}
    assert found.frozen.key == "16bb17fe2a0c509ea4ff4540261ac2f2"
    expected = {
        "θ_O: train on original labels, seed 2": "19b53b1ba5ee4311905a707487b3a526",
        "θ_M: train on perturbed labels, seed 2": "d43b1377825f499afaa1814b6472a55b",
        "swapping, seed 2": "133bada93a12af61cde24a83bf0736a4",
        "retraining, seed 2, all windows": "325d445ee0b7c2056c038a731b7bd21d",
        "retraining, seed 2, layers 1-4": "2c6c85a696cc6fbd81e12813e8ad6745",
        "retraining, seed 2, layer 4": "8d77faf3e556965fb6e147d53ddef439",
        "gradients, seed 2": "5f88d358bfc07866cb7aad4f6aa929e2",
        "probing, seed 2": "8539eb64c285c30df2426c3893ff9369",
        "centroids, seed 2": "df2e976f1362b8c59d7fc86241fee5eb",
        "class probes, seed 2": "aedbc2969fcf0387b459b44806e5d500",
        "states of θ_M, seed 2": "b0038ab80a6c0bd7dfe44faa414870f1",
        "states of θ_P": "9e52b0541df61449ccb60c841eb39f6b",
        "states of θ_M, seed 2, top half swapped": "aea5277fc06ee31d5705be43ed6c9f5e",
        "generalisation, half-split 3": "d571c62eeecc513199170bc18158f895",
    }
    assert {title: jobs[title] for title in expected} == expected
    planner = Planner(
        ("data", "abc"), CONFIG.model, SOURCE, CONFIG.training, CONFIG.windows, 4, WHERE
    )
    control = ControlPlanner(planner, ("data", "def"), ControlConfig(), ("some-model", "t"))
    cell = control.cell([make("swapping")], (1, 2), 1, "", 2.0).jobs
    assert {state: job.key for state, job in cell.trainings.items()} == {
        "memorised": "a77aea6a9fce67576fc44ffacb4cb499",
        "original": "95e1c20a8916755a278a3815c00860a1",
        "frozen": "caf0d9fd28c0f78afcca24c8e2050ba1",
    }
    assert cell.techniques["swapping"].key == "4a19449593695c3c6c3842cc2e7eecde"


def test_labels_and_costs_of_a_plan_among_others_leave_its_keys_alone() -> None:
    alone, among = plan(), plan(label=" (task, model)", pass_cost=1e9)
    assert [job.key for job in alone.jobs] == [job.key for job in among.jobs]
    for one, other in zip(alone.jobs, among.jobs, strict=True):
        assert other.title == f"{one.title} (task, model)"
        assert other.cost == one.cost * 1e9
        assert other.group == (one.group and f"{one.group} (task, model)")
    # Tens of thousands of jobs say where their model is: once.
    assert len({id(job.where) for job in among.jobs}) == 1
