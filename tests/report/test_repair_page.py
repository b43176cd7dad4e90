"""The page of a repair as a file: what it has to say, and that names of others stay text."""

from __future__ import annotations

import json
from typing import Any

from memloc.config import Candidate
from memloc.report.repair import LEGEND, rows_of
from memloc.report.repair_page import page_data, repair_page
from memloc.results.repair import Exams, summarise_repair
from tests.report.folders import HOSTILE
from tests.report.pages import Seen, assert_self_contained, assert_strict_policy
from tests.results.test_repair import exams


def made_repair(
    found: Exams | None = None, chosen: Candidate = "swapped-window", **about: Any
) -> dict[str, Any]:
    """What `repair.json` has."""
    return {
        **{"memloc": "0.2.0", "model": "minilm", "task": "my data", "suspects": 40, "kept": 200},
        **{"seed": 1, "made_by": "memloc run --task my.csv", "command": "memloc repair DIR"},
        **summarise_repair(found or exams(), chosen, {}, "flipped"),
        **about,
    }


def test_the_page_is_one_file_that_runs_only_its_own_script() -> None:
    text = repair_page(made_repair())
    assert_self_contained(text)
    assert_strict_policy(text)
    assert "<title>memloc: minilm on my data, repaired</title>" in text


def test_names_of_others_stay_text() -> None:
    harmless = [tag for tag, _ in Seen(repair_page(made_repair())).elements]
    for text in HOSTILE:
        words = {"model": text, "task": text, "command": text, "findings": [text]}
        seen = Seen(repair_page(made_repair(**words)))
        assert [tag for tag, _ in seen.elements] == harmless
        ((_, found),) = [one for one in seen.of("script") if one[0].get("type")]
        data = json.loads(found)
        assert data["model"] == data["task"] == data["findings"][0] == data["commands"][1]


def test_the_page_has_the_cells_of_the_terminal_and_their_intervals() -> None:
    summary = made_repair()
    data = page_data(summary)
    assert [one["cells"] for one in data["candidates"]] == rows_of(summary)[1]
    assert data["heads"] == [
        *("candidate", "layers", "given", "after kept", "after tenth", "probe"),
        *("true label", "kept", "validation", "made in"),
    ]
    assert data["findings"] == summary["findings"]
    assert data["best"] == data["candidate"] == "swapped-window"
    found = {one["candidate"]: one for one in data["candidates"]}
    given = data["measures"].index("given")
    assert found["twin"]["shares"][given] == {
        "value": 0.05, "low": 0.0061, "high": 0.1692, "interval": "1–17%",
    }  # fmt: skip
    assert [name for name, one in found.items() if not one["repairs"]] == [
        *("control-window", "unchanged"),
    ]
    assert found["unchanged"]["traces"] == data["panels"]
    assert found["swapped-window"]["traces"] == []


def test_every_panel_is_of_a_measure_whose_meaning_is_known() -> None:
    data = page_data(made_repair())
    assert data["panels"] == ["given", "relearned_kept", "relearned_tenth", "probe"]
    names = [data["heads"][2 + data["measures"].index(panel)] for panel in data["panels"]]
    assert set(names) <= set(LEGEND)


def test_what_is_missing_of_one_candidate_is_null_and_never_0() -> None:
    data = page_data(made_repair(exams(trained_on={"probe": None})))
    place = data["measures"].index("probe")
    found = {one["candidate"]: one for one in data["candidates"]}
    missing = {"value": None, "low": None, "high": None, "interval": None}
    assert found["trained-on"]["shares"][place] == missing
    assert found["trained-on"]["cells"][2 + place] == "-"
    assert found["twin"]["shares"][place]["value"] == 0.05


def test_what_is_known_of_no_candidate_has_no_column_and_no_panel() -> None:
    nothing = {"probe": None, "validation_accuracy": None}
    names = ("swapped_window", "retrained_window", "trained_on", "twin")
    controls = ("control_window", "unchanged")
    found = exams(**dict.fromkeys((*names, *controls), nothing))
    data = page_data(made_repair(found))
    assert "probe" not in [*data["measures"], *data["panels"], *data["heads"]]
    assert "validation" not in data["heads"]
    assert any("What a probe can read" in sentence for sentence in data["findings"])
