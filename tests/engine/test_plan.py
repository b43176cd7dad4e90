"""Plans: keys stay what they were, so that a store remains valid; and what travels together."""

from __future__ import annotations

from memloc.analysis.windows import Window
from memloc.config import Control, Generalisation, Run, Training, Unit, Windows
from memloc.engine.loop import Ready
from memloc.engine.plan import Plan, Planner, window_role, windows_in
from memloc.models.names import ModelSource
from memloc.techniques import find, make, names
from tests.engine.same_results import plan_of

SOURCE = ModelSource("some-model", "/somewhere/some-model", "f00d")
CONFIG = Run(seeds=(1, 2), generalisation=Generalisation(splits=3))
WHERE = {"device": "cpu"}


def plan(**arguments) -> Plan:
    parts = [make("centroids"), make("class_probes")]
    return plan_of(CONFIG, ("data", "abc"), SOURCE, 4, WHERE, parts, **arguments)


def test_keys_of_models_and_states_are_those_of_the_first_version() -> None:
    found = plan()
    jobs = {job.title: job.key for job in found.jobs}
    expected = {
        "frozen model: layers stay closed": "16bb17fe2a0c509ea4ff4540261ac2f2",
        "θ_O: train on original labels, seed 2": "19b53b1ba5ee4311905a707487b3a526",
        "θ_M: train on perturbed labels, seed 2": "d43b1377825f499afaa1814b6472a55b",
        "states of θ_M, seed 2": "b0038ab80a6c0bd7dfe44faa414870f1",
        "states of θ_P": "9e52b0541df61449ccb60c841eb39f6b",
        "states of θ_M, seed 2, top half swapped": "aea5277fc06ee31d5705be43ed6c9f5e",
        "generalisation, half-split 3": "d571c62eeecc513199170bc18158f895",
    }
    assert {title: jobs[title] for title in expected} == expected
    planner = Planner(
        ("data", "abc"), CONFIG.model, SOURCE, CONFIG.training, CONFIG.windows, 4, WHERE
    )
    cell = planner.control_cell([make("gradients")], (1, 2), 1, ("data", "def"), Control())
    assert {state: job.key for state, job in cell.trainings.items()} == {
        "memorised": "a77aea6a9fce67576fc44ffacb4cb499",
        "original": "95e1c20a8916755a278a3815c00860a1",
        "frozen": "caf0d9fd28c0f78afcca24c8e2050ba1",
    }
    wider = planner.control_cell([], (1, 2), 1, ("data", "def"), Control(tail="all"))
    assert wider.trainings.keys() == {"memorised", "original"}  # nobody looks at the frozen one
    assert wider.trainings["memorised"].key != cell.trainings["memorised"].key


def test_a_frozen_model_is_trained_only_for_techniques_that_look_at_it() -> None:
    def states(techniques: dict) -> set[str]:
        config = Run(seeds=(1, 2), techniques=techniques)
        found = plan_of(config, ("data", "abc"), SOURCE, 4, WHERE)
        return {job.identity["state"] for job in found.jobs if job.kind == "train"}

    assert states({"gradients": {}}) == {"memorised", "original", "frozen"}
    assert states({"gradients": {"divide_by_frozen": False}}) == {"memorised", "original"}
    assert states({"swapping": {}, "probing": {}}) == {"memorised", "original"}


def test_settings_of_the_frozen_model_and_of_heads_change_the_keys_that_depend_on_them() -> None:
    def keys(training: Training = CONFIG.training, **model: str) -> dict[str, str]:
        config = CONFIG.replace(training=training, model=CONFIG.model.replace(**model))
        return {j.title: j.key for j in plan_of(config, ("data", "abc"), SOURCE, 4, WHERE).jobs}

    usual = keys()
    frozen = {title for title in usual if "frozen" in title}
    for changed in ({"frozen_tail": "all"}, {"frozen_dropout": True}):
        found = keys(CONFIG.training.replace(**changed))
        others = {title for title in usual if found[title] != usual[title]}
        assert others == frozen | {"gradients, seed 1", "gradients, seed 2"}
    paper = keys(head="paper")
    assert not set(paper.values()) & set(usual.values())


def test_labels_and_costs_of_a_plan_among_others_leave_its_keys_alone() -> None:
    alone, among = plan(), plan(label=" (task, model)", pass_cost=1e9)
    assert [job.key for job in alone.jobs] == [job.key for job in among.jobs]
    for one, other in zip(alone.jobs, among.jobs, strict=True):
        assert other.title == f"{one.title} (task, model)"
        assert other.cost == one.cost * 1e9
        assert other.group == (one.group and f"{one.group} (task, model)")
    # Tens of thousands of jobs say where their model is: once.
    assert len({id(job.where) for job in among.jobs}) == 1


def test_parts_of_layers_have_keys_of_their_own_where_they_matter() -> None:
    def keys(unit: Unit) -> tuple[dict[str, str], dict[str, str]]:
        config = Run(techniques={n: {} for n in names()}, windows=Windows(unit=unit))
        jobs = plan_of(config, ("data", "abc"), SOURCE, 2, WHERE).cells[0]
        parts = {job.title: job.key for job in jobs.parts}
        results = {name: job.key for name, job in jobs.techniques.items()}
        return results | parts, {state: job.key for state, job in jobs.trainings.items()}

    (whole, trained), (attention, _), (mlp, others) = map(keys, ("layer", "attention", "mlp"))
    changed = {name for name in whole if attention[name] != whole[name]}
    windows = {"retraining, layers 1-2", "retraining, layer 1", "retraining, layer 2"}
    assert changed == {name for name in names() if find(name).uses_unit} | windows
    assert {name for name in whole if attention[name] != mlp[name]} == changed
    assert trained == others


def test_trainings_come_first_and_windows_last_from_the_bottom_up() -> None:
    techniques = {"retraining": {"epochs": 1}, "swapping": {}, "gradients": {}}
    techniques["probing"] = {"seeds": 1, "epochs": 1}
    config = Run(training=Training(epochs=50), techniques=techniques)
    jobs = plan_of(config, ("data", "abc"), SOURCE, 3, WHERE).jobs
    ready = Ready(jobs)
    for job in jobs:
        ready.add(job)
    bundles = []
    while ready:
        bundles.append([job.title for job in ready.take(1)])
    assert bundles == [
        ["θ_O: train on original labels"],
        ["θ_M: train on perturbed labels"],
        ["frozen model: layers stay closed"],
        ["probing"],
        # They look at the same model.
        ["states of θ_M", "swapping", "gradients"],
        # A process goes up through the layers with its stored states.
        [f"retraining, {w}" for w in ("layers 1-3", "layers 1-2")],
        [f"retraining, {w}" for w in ("layer 1", "layers 2-3")],
        ["retraining, layer 2"],
        ["retraining, layer 3"],
        ["states of θ_P"],
        ["retraining, all windows"],
    ]


def test_windows_that_are_one_model_are_one_job_and_others_keep_their_keys() -> None:
    def windows(**settings) -> dict[str, str]:
        config = Run(techniques={"retraining": settings})
        jobs = plan_of(config, ("data", "abc"), SOURCE, 3, WHERE).jobs
        return {job.title: job.key for job in jobs if job.title.startswith("retraining")}

    usual = {
        "retraining, layers 1-3": "4f1d59d969ad551911e77a9a6d1f9331",
        "retraining, layers 1-2": "568fb97c783c22182601f5944e9e54a7",
        "retraining, layer 1": "231418696ffacb51bf243101c73df9ed",
        "retraining, layers 2-3": "5dcf393720db56665573714c3d504e6b",
        "retraining, layer 2": "caa59dc27105ae2c0f325c678a74a6dc",
        "retraining, layer 3": "d4fef9a94af77c288e49d799636a8047",
        "retraining, all windows": "e00aede5b0eefe75a7378f5f0a3cf356",
    }
    assert windows() == windows(batched=False) == usual
    batched = windows(batched=True)
    assert list(batched) == [
        "retraining, windows from layer 1",
        "retraining, windows from layer 2",
        "retraining, layer 3",
        "retraining, all windows",
    ]
    # With dropout, they have other results.
    assert not {*batched.values()} & {*usual.values()}


def test_a_role_names_the_windows_of_a_job() -> None:
    assert window_role((Window(2, 5),)) == "window:2-5"
    group = (Window(3, 12), Window(3, 7), Window(3, 3))
    assert windows_in(window_role(group)) == list(group)


def test_examples_of_several_parts_have_keys_of_their_own() -> None:
    """They are cut in another way than before; single texts are not, and keep their results."""
    alone, joined = plan(), plan(joined=True)
    assert not {job.key for job in alone.jobs} & {job.key for job in joined.jobs}
