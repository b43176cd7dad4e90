"""Claims about the control benchmark, in results made for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memloc.paper.claims import CLAIMS, Finding, judge
from memloc.paper.measures import gather
from memloc.results.folders import ResultsError, look_through
from memloc.results.grid import read_controls, read_grid
from tests.result_folders import write_control, write_run

TASKS = tuple("abcdefghi")
"""As many as the paper has, with three pairs of layers each."""
ALL, HALF, NONE = [True] * 27, [True, False] * 13 + [True], [False] * 27
MOST = [True] * 24 + [False] * 3
BOTH = {("L1", True, True): 0.8, ("L1", True, False): 0.7, ("L2", True, True): 0.6}


def findings(runs: Path) -> dict[str, Finding]:
    """Of the claims about control models, which come first."""
    if not (runs / "topics-minilm").exists():
        write_run(runs)
    evidence = gather(read_grid(runs))
    return {name: judge(claim, evidence) for name, claim in list(CLAIMS.items())[:6]}


@pytest.mark.parametrize(
    ("claim", "found", "expected"),
    [
        ("control-swapping", {"swapping": ALL}, "holds"),
        ("control-swapping", {"swapping": HALF}, "does not hold"),
        ("control-swapping", {"swapping": MOST}, "not enough data"),  # .89, may be .9
        ("control-retraining", {"retraining": ALL}, "holds"),
        ("control-retraining", {"retraining": NONE}, "does not hold"),
        ("control-gradients", {"gradients": MOST}, "holds"),
        ("control-gradients", {"gradients": HALF}, "not enough data"),  # may be chance, a third
        ("control-probing", {"probing": ALL}, "holds"),
        ("control-probing", {"probing": NONE}, "does not hold"),
        ("control-probing", {"swapping": ALL}, "not enough data"),
    ],
)
def test_each_technique_is_judged_by_its_own_accuracy(
    tmp_path: Path, claim: str, found: dict, expected: str
) -> None:
    write_control(tmp_path, found, tasks=TASKS)
    assert findings(tmp_path)[claim].verdict == expected


@pytest.mark.parametrize(
    ("weaker", "expected"), [(HALF, "holds"), (ALL, "does not hold"), (NONE, "holds")]
)
def test_swapping_and_retraining_are_compared_with_the_others(
    tmp_path: Path, weaker: list[bool], expected: str
) -> None:
    write_control(
        tmp_path,
        {"swapping": ALL, "retraining": ALL, "gradients": weaker, "probing": weaker},
        tasks=TASKS,
    )
    assert findings(tmp_path)["control-surer"].verdict == expected


@pytest.mark.parametrize(
    ("change", "gap", "expected"),
    [
        ({}, 0.1, "holds"),
        ({("L1", False, False): 0.9}, -0.1, "does not hold"),
        (
            {("L2", False, False): [1.0] * 14 + [0.5] * 13},
            0.04,
            "not enough data",
        ),  # sometimes better
    ],
)
def test_the_best_post_processing_is_sought_among_all(
    tmp_path: Path, change: dict, gap: float, expected: str
) -> None:
    write_control(tmp_path, {"gradients": HALF}, choices=BOTH | change, tasks=TASKS)
    finding = findings(tmp_path)["gradient-corrections"]
    assert finding.verdict == expected
    assert finding.measured.value == pytest.approx(gap, abs=0.001)
    assert finding.measured.words.startswith("accuracy@2 0.80; best other 0.")


def test_9_of_9_tasks_is_no_certainty_and_more_models_of_a_task_do_not_make_it_one(
    tmp_path: Path,
) -> None:
    write_control(tmp_path, {"swapping": ALL}, tasks=TASKS)
    one = findings(tmp_path)["control-swapping"].measured
    assert (one.value, one.n, one.tasks) == (1.0, 27, 9)
    assert one.interval == pytest.approx((0.6637, 1.0), abs=1e-4)
    write_control(tmp_path, {"swapping": ALL}, model="other", tasks=TASKS, name="control-2")
    two = findings(tmp_path)["control-swapping"].measured
    assert (two.n, two.interval) == (54, one.interval)


def test_control_models_of_another_depth_are_not_put_together_unless_named(tmp_path: Path) -> None:
    write_control(tmp_path, {"swapping": ALL}, tasks=TASKS)
    deep = [False] * 54
    write_control(tmp_path, {"swapping": deep}, model="deep", layers=12, tasks=TASKS, name="deep")
    write_run(tmp_path)
    write_run(tmp_path, model="deep", layers=12)
    grid, claim = read_grid(tmp_path), CLAIMS["control-swapping"]
    assert judge(claim, gather(grid)).measured.value == 0.0  # most control models are deep
    assert judge(claim, gather(grid, ["minilm"])).measured.value == 1.0
    assert judge(claim, gather(grid, ["minilm", "deep"])).measured.value == pytest.approx(1 / 3)


def test_without_a_benchmark_the_claims_say_what_is_missing(tmp_path: Path) -> None:
    for finding in findings(tmp_path).values():
        assert finding.verdict == "not enough data"
        assert finding.reason == "needs results of `memloc control`"


def test_benchmarks_are_put_together_and_the_newest_counts(tmp_path: Path) -> None:
    write_control(tmp_path, {"swapping": NONE[:6]}, written=1e9, name="control-old")
    write_control(tmp_path, {"swapping": ALL[:6]}, written=2e9, name="control-new")
    write_control(tmp_path, {"swapping": NONE[:6]}, model="other", name="control-other")
    results = read_controls(look_through(tmp_path))
    first = results["accuracy"][results["accuracy"]["k"] == 1]
    assert first.groupby("model")["accuracy"].agg(["mean", "size"]).to_dict("index") == {
        "minilm": {"mean": 1.0, "size": 6},
        "other": {"mean": 0.0, "size": 6},
    }


def test_tasks_held_back_choose_and_are_not_scored(tmp_path: Path) -> None:
    write_control(tmp_path, {"gradients": ALL[:6]}, choices=BOTH, held_back=["topics"])
    results = read_controls(look_through(tmp_path))
    assert set(results["accuracy"]["task"]) == {"questions"}
    assert set(results["gradient_choices"]["task"]) == {"topics"}


def test_a_benchmark_is_no_run(tmp_path: Path) -> None:
    folder = write_control(tmp_path, {"swapping": ALL[:6]})
    with pytest.raises(ResultsError, match="only 1 of `memloc control`"):
        read_grid(tmp_path)
    write_run(tmp_path)
    assert not any("control" in note for note in read_grid(tmp_path).notes)
    (folder / "accuracy.parquet").write_bytes(b"damaged")
    with pytest.raises(ResultsError, match=r"accuracy\.parquet.*`memloc control`"):
        findings(tmp_path)
    (folder / "accuracy.parquet").unlink()
    with pytest.raises(ResultsError, match=r"accuracy\.parquet.*it is missing"):
        findings(tmp_path)


def test_controls_of_parts_of_layers_do_not_score_those_of_whole_layers(tmp_path: Path) -> None:
    write_control(tmp_path, {"swapping": ALL[:6]}, written=1e9, name="control-whole")
    parts = write_control(tmp_path, {"swapping": NONE[:6]}, written=2e9, name="control-parts")
    settings = json.loads((parts / "settings.json").read_text())
    settings["control"]["windows"] = {"unit": "attention"}
    (parts / "settings.json").write_text(json.dumps(settings))
    results = read_controls(look_through(tmp_path))
    top = results["accuracy"][results["accuracy"]["k"] == 1]
    assert top["accuracy"].mean() == 1.0
    assert read_controls(look_through(parts)) == {}
    write_run(tmp_path)
    assert read_grid(tmp_path).notes == (
        "Left out, as they are not of whole layers: control-parts.",
    )
