"""Which windows a repair changes, and what its exams say: rule and sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from memloc.analysis.correlation import interval_of_share
from memloc.analysis.windows import Window, all_windows
from memloc.results.folders import ResultsError
from memloc.results.repair import Exams, summarise_repair, windows_of
from memloc.tables import EXAM

SUSPECTS, KEPT, VALIDATION = 40, 200, 100
COUNTS = {
    "given": SUSPECTS,
    "relearned_kept": SUSPECTS,
    "relearned_tenth": SUSPECTS,
    "probe": SUSPECTS,
    "true_accuracy": SUSPECTS,
    "kept_accuracy": KEPT,
    "validation_accuracy": VALIDATION,
}
CLEAN = {**dict.fromkeys(COUNTS, 0.05), "kept_accuracy": 0.99, "validation_accuracy": 0.9}
MEMORISED = {
    **dict.fromkeys(COUNTS, 1.0),
    **{"true_accuracy": 0.0, "validation_accuracy": 0.75},
}
WINDOWS = {"swapped-window": (1, 2), "retrained-window": (1, 3), "control-window": (4, 5)}


def exams(**changes: dict[str, float | None]) -> Exams:
    """Exams in which everything is repaired except the controls; names have `_` for `-`."""
    shares: dict[str, dict[str, Any]] = {
        **dict.fromkeys(("swapped-window", "retrained-window", "trained-on", "twin"), CLEAN),
        **dict.fromkeys(("control-window", "unchanged"), MEMORISED),
    }
    for name, change in changes.items():
        key = name.replace("_", "-")
        shares[key] = {**shares[key], **change}
    rows = []
    for name, measures in shares.items():
        first, last = WINDOWS.get(name, (np.nan, np.nan))
        for measure, value in measures.items():
            row: dict[str, Any] = {"measure": measure, "value": np.nan, "examples": 0}
            if value is not None:
                count = COUNTS[measure]
                ends = interval_of_share([1.0] * round(value * count) + [0.0] * round(
                    (1 - value) * count))  # fmt: skip
                assert ends is not None
                row |= {"value": value, "low": ends[0], "high": ends[1], "examples": count}
            rows.append({"candidate": name, "first_layer": first, "last_layer": last, **row})
        rows.append({"candidate": name, "first_layer": first, "last_layer": last,
                     "measure": "seconds", "value": 1.5})  # fmt: skip
    return Exams(EXAM.frame(pd.DataFrame(rows)), n_layers=6)


def words(found: Exams, chosen: str = "twin", noise: Any = "flipped", **left_out: str) -> str:
    summary = summarise_repair(found, chosen, left_out, noise)  # type: ignore[arg-type]
    return "\n".join(summary["findings"])


# --- which windows ------------------------------------------------------------------------------


def tables(errors: dict[str, dict[Window, float]], seeds: tuple[int, ...] = (1,)) -> Any:
    """Of a result with three layers, in which every suspect was memorised."""
    windows, layers, examples = [], [], []
    for seed in seeds:
        for technique, of in errors.items():
            for window in all_windows(3):
                windows.append({
                    "seed": seed, "technique": technique, "first_layer": window.first,
                    "last_layer": window.last, "size": window.size, "clean_error": 0.0,
                    "noisy_error": of.get(window, 0.0) if seed == seeds[0] else 1.0,
                })  # fmt: skip
            for layer in (1, 2, 3):
                weight = float(sum(e for w, e in of.items() if layer in w.layers))
                layers.append({"seed": seed, "technique": technique, "layer": layer,
                               "weight": weight, "spread": 0.0})  # fmt: skip
            examples.append({"seed": seed, "technique": technique, "example": 0, "memorised": True,
                             "smallest_window": 1})  # fmt: skip
    made = {"windows": windows, "layers": layers, "examples": examples}
    return {name: pd.DataFrame(rows) for name, rows in made.items()}


UNDONE = {Window(1, 3): 1.0, Window(2, 3): 0.96, Window(1, 2): 0.5, Window(2, 2): 0.3}


def test_the_smallest_window_that_undoes_nearly_all_is_swapped_and_the_least_is_the_control() -> (
    None
):
    alone = {"swapping": UNDONE, "retraining": {Window(1, 3): 0.8, Window(3, 3): 0.79}}
    found = windows_of(tables(alone), 1, 3)
    assert found == {
        "swapped-window": Window(2, 3),
        "retrained-window": Window(3, 3),  # of what all layers undo
        "control-window": Window(1, 2),
    }
    # Without retraining, the same window is retrained.
    assert windows_of(tables({"swapping": UNDONE}), 1, 3)["retrained-window"] == Window(2, 3)


def test_windows_are_those_of_the_seed() -> None:
    of_both = tables({"swapping": UNDONE}, seeds=(1, 2))
    assert windows_of(of_both, 1, 3)["swapped-window"] == Window(2, 3)
    assert windows_of(of_both, 2, 3)["swapped-window"].size == 1  # type: ignore[union-attr]


def test_the_full_window_has_no_other_of_its_size() -> None:
    found = windows_of(tables({"swapping": {Window(1, 3): 1.0, Window(1, 2): 0.9}}), 1, 3)
    assert found["swapped-window"] == Window(1, 3)
    assert found["control-window"] == (
        "the swapped window has all layers, so there is no other of its size"
    )
    # If nothing is undone at all, no window is small enough.
    nothing = windows_of(tables({"swapping": {}}), 1, 3)
    assert nothing["swapped-window"] == nothing["retrained-window"] == Window(1, 3)


def test_layers_without_weights_have_no_least_important_window() -> None:
    unknown = tables({"swapping": UNDONE})
    unknown["layers"]["weight"] = np.nan
    assert "no weights" in str(windows_of(unknown, 1, 3)["control-window"])


def test_a_result_without_swapping_is_refused() -> None:
    with pytest.raises(ResultsError, match="the result has no swapping"):
        windows_of(tables({"retraining": UNDONE}), 1, 3)


# --- the rule -----------------------------------------------------------------------------------


def test_of_equally_good_repairs_the_one_that_changes_the_fewest_layers_is_the_best() -> None:
    assert exams().best == "swapped-window"
    assert exams(swapped_window={"validation_accuracy": 0.89}).best == "retrained-window"
    worse = {"validation_accuracy": 0.89}
    assert exams(swapped_window=worse, retrained_window=worse).best == "trained-on"
    assert exams(twin={"validation_accuracy": 0.91}).best == "twin"


@pytest.mark.parametrize("measure", ["given", "relearned_kept", "relearned_tenth", "probe"])
def test_what_keeps_more_of_the_labels_than_the_twin_does_not_pass(measure: str) -> None:
    for share, passes in ((0.05, True), (0.15, True), (0.35, False)):
        found = exams(swapped_window={measure: share, "validation_accuracy": 1.0})
        assert found.passes("swapped-window") == passes, share
        assert (found.best == "swapped-window") == passes
        assert found.traces("swapped-window") == ([] if passes else [measure])
    # It counts what the twin shows, not what would be little.
    both = exams(swapped_window={measure: 0.35}, twin={measure: 0.35})
    assert both.passes("swapped-window")


def test_a_single_suspect_more_than_the_twin_is_no_difference() -> None:
    one = exams(swapped_window={"given": 1 / SUSPECTS}, twin={"given": 0.0})
    assert one.passes("swapped-window")


def test_what_loses_more_than_two_points_of_the_kept_examples_does_not_pass() -> None:
    at_limit = exams(swapped_window={"kept_accuracy": 0.98})
    assert at_limit.passes("swapped-window")
    below = exams(swapped_window={"kept_accuracy": 0.975})
    assert not below.passes("swapped-window")
    assert below.best == "retrained-window"
    assert "2.5% of the kept examples have lost their label too" in words(below)


def test_what_is_not_known_does_not_count_against_a_candidate_and_is_said() -> None:
    changes: Any = {
        name: {"probe": None}
        for name in ("swapped_window", "retrained_window", "trained_on", "twin",
                     "control_window", "unchanged")
    }  # fmt: skip
    found = exams(**changes)
    assert found.best == "swapped-window"
    said = words(found)
    assert "no measure that is known is above the twin's" in said
    assert "What a probe can read from the states of any candidate is not known." in said


def test_controls_are_never_the_best_and_the_twin_is_if_nothing_passes() -> None:
    bad: Any = {"given": 0.9}
    found = exams(
        swapped_window=bad, retrained_window=bad, trained_on=bad, twin={"kept_accuracy": 0.9},
        unchanged={**CLEAN}, control_window={**CLEAN},
    )  # fmt: skip
    assert found.best == "twin"
    assert words(found).startswith("No candidate passes, so the best is the twin")


def test_without_validation_examples_the_kept_ones_decide() -> None:
    nothing: Any = {"validation_accuracy": None}
    names = ("retrained_window", "trained_on", "twin", "control_window", "unchanged")
    changes = dict.fromkeys(names, nothing)
    found = exams(**changes, swapped_window={**nothing, "kept_accuracy": 0.985})
    assert found.decides == "kept_accuracy"
    assert found.best == "retrained-window"
    said = words(found)
    assert "on kept examples it gives 99% correct answers" in said
    assert "On validation" not in said


# --- the sentences ------------------------------------------------------------------------------


def test_sentences_say_whether_labels_are_gone_hidden_or_still_given() -> None:
    said = words(exams(
        retrained_window={"probe": 0.6}, trained_on={"given": 0.8, "relearned_kept": 0.9},
    ))  # fmt: skip
    for sentence in (
        "The best is the swapped window (layers 1-2): on validation it gives 90% correct answers, "
        "the twin 90% and the unchanged model 75%.",
        "The swapped window (layers 1-2): the labels are gone, as far as 40 suspects can tell "
        "(no measure is above the twin's).",
        "The retrained window (layers 1-3): the labels are only hidden. Of the suspects, a probe "
        "reads it from the states of 60% (twin: 5%).",
        "The model trained on: the labels are not gone. Of the suspects, 80% still get the label "
        "(twin: 5%) and 90% get it again after an epoch on kept examples (twin: 5%).",
    ):
        assert sentence in said.split("\n"), said


@pytest.mark.parametrize(
    ("share", "sentence"),
    [
        (0.88, "is as good as the twin, as far as 100 examples can tell (88%, the twin 90%)."),
        (0.7, "is worse than the twin (70%, the twin 90%)."),
        (1.0, "is better than the twin (100%, the twin 90%)."),
    ],
)
def test_a_repair_is_compared_with_the_twin_on_validation(share: float, sentence: str) -> None:
    said = words(exams(swapped_window={"validation_accuracy": share}))
    assert f"On validation the swapped window (layers 1-2) {sentence}" in said


@pytest.mark.parametrize(("share", "beats"), [(1.0, True), (0.1, False), (0.0, False)])
def test_it_is_said_whether_the_named_window_beats_the_control(share: float, beats: bool) -> None:
    said = words(exams(control_window={"given": share}))
    does = "beats" if beats else "does not beat"
    assert (
        f"The window that the localisation names {does} the control window: with layers 1-2 "
        "swapped, 5% of the suspects still get the label; with layers 4-5, the least important of "
        f"that size, {share:.0%}." in said
    )


def test_another_candidate_is_written_if_asked_for_and_is_judged_too() -> None:
    said = words(exams(), "control-window")
    assert "What is written is the control window (layers 4-5), as asked for." in said
    assert "The control window (layers 4-5): the labels are not gone." in said
    assert "as asked for" not in words(exams(), "swapped-window")


def test_what_was_left_out_and_what_makes_it_less_sure_is_said() -> None:
    little: Any = {"given": 0.3}
    said = words(exams(unchanged=little), noise="suspected", trained_on="its training failed")
    assert "There is no trained_on: its training failed." in said
    assert "The unchanged model gives only 30% of the suspects the label in the data" in said
    assert "The labels are only suspected" in said
    assert "The labels are only suspected" not in words(exams())


def test_numbers_of_the_summary_are_json_data() -> None:
    summary = summarise_repair(exams(), "twin", {}, "flipped")
    (twin,) = [one for one in summary["candidates"] if one["candidate"] == "twin"]
    assert twin["layers"] is None
    assert twin["given"]["examples"] == SUSPECTS
    assert twin["seconds"] == 1.5
    (swapped,) = [one for one in summary["candidates"] if one["candidate"] == "swapped-window"]
    assert (swapped["layers"], swapped["passes"], swapped["traces"]) == ([1, 2], True, [])
