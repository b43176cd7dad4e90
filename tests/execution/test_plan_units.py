"""The keys of jobs: what is stored stays valid as long as they do not change."""

from __future__ import annotations

from typing import Any

from memloc.config import RunConfig, Windows
from memloc.engine.plan import RunPlan, plan_run
from memloc.models.names import ModelSource

METHODS = (
    *("swapping", "retraining", "gradients", "probing", "shapley", "patching"),
    *("weight-change", "random"),
)
WITHOUT_UNITS = {
    "swapping": "50087f02f73aa5c586a0080dd760799e",
    "retraining": "3d5aa5090f64d2e1bcb67f3d26ac69ed",
    "gradients": "2350ace914fc64c38e82dbba6b7790d8",
    "probing": "6dbf0b6137cfe74df51edd8470b47355",
    "shapley": "66832981a744b1368148b03890aeab7c",
    "patching": "abd3704fb182f8f20002cd68f242be72",
    "weight-change": "1a226cef6917e405c0d40a6e85b59d3c",
    "random": "4a5c3a4f418e7f7116c22809cbb0d104",
    "retraining, layers 1-2": "429aae55c09d4e246709f0a8ddc1479e",
    "retraining, layer 1": "3a98d50229921c6456edd0bdac46589b",
    "retraining, layer 2": "e3d6830e298b7576836be8e03ae2246c",
    "states of θ_M": "0be3c1930376fc6eb3461f1762f53320",
    "states of θ_P": "4b43c03f388eff112e52b04eb66d986b",
}
"""As they were before parts of layers could be looked at."""


def plan(**windows: Any) -> RunPlan:
    config = RunConfig(techniques={name: {} for name in METHODS}, windows=Windows(**windows))
    return plan_run(config, ("data", "0" * 8), ModelSource("minilm", "somewhere", "f" * 8), 2, {})


def keys(found: RunPlan) -> dict[str, str]:
    jobs = found.seeds[0]
    return {name: job.key for name, job in jobs.techniques.items()} | {
        job.title: job.key for job in jobs.parts
    }


def test_results_of_whole_layers_have_the_keys_they_always_had() -> None:
    # If a technique or its settings change, its key must: then change it here too.
    assert keys(plan()) == keys(plan(unit="layer")) == WITHOUT_UNITS


def test_parts_of_layers_have_keys_of_their_own_where_they_matter() -> None:
    whole, attention, mlp = (keys(plan(unit=unit)) for unit in ("layer", "attention", "mlp"))
    changed = {name for name in whole if attention[name] != whole[name]}
    windows = {"retraining, layers 1-2", "retraining, layer 1", "retraining, layer 2"}
    assert changed == {
        *("swapping", "retraining", "gradients", "shapley", "weight-change"), *windows,
    }  # fmt: skip
    assert {name for name in whole if attention[name] != mlp[name]} == changed
    trained = [plan(unit=unit).seeds[0].trainings for unit in ("layer", "mlp")]
    assert {n: j.key for n, j in trained[0].items()} == {n: j.key for n, j in trained[1].items()}
