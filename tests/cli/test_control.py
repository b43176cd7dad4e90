"""`memloc control` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from memloc.analysis.control import accuracy_at
from tests.conftest import Finished, assert_one_sentence, labelled_rows

QUICK = [
    *("--limit", "90", "--aux-limit", "40", "--epochs", "2", "--learning-rate", "1e-3"),
    *("--workers", "1", "--probing.epochs", "2", "--probing.seeds", "2"),
    *("--probing.least_steps", "0", "--probing.fitted_at", "0"),
    *("--windows", "1", "--control.attempts", "1"),
]


def test_all_techniques_are_scored_and_everything_fits_80_columns(
    memloc, finished: Finished, tmp_path: Path
) -> None:
    finished.copy_to(tmp_path / "runs")
    code, out, err = memloc(*finished.control_words)
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    assert "Nothing to compute" in out
    tables = {path.stem: pd.read_parquet(path) for path in finished.control.glob("*.parquet")}
    summary = json.loads((finished.control / "summary.json").read_text())
    assert summary["hidden"] == ["1", "3"]
    assert summary["chance"] == pytest.approx(1 / 3)
    techniques = {
        *("swapping", "retraining", "gradients", "probing", "shapley", "patching"),
        *("weight-change", "random"),
    }
    assert set(tables["accuracy"]["technique"]) == techniques
    assert all(name in out for name in techniques)
    weights = tables["layers"].set_index(["hidden", "technique"]).sort_values("layer")
    for row in tables["accuracy"].to_dict("records"):
        profile = weights.loc[(row["hidden"], row["technique"]), "weight"].to_numpy()
        expected = accuracy_at(profile, [int(row["hidden"])], row["k"])
        assert row["accuracy"] == pytest.approx(expected, nan_ok=True)
    assert len(summary["gradient_choices"]) == 8
    # Only the hidden layer differs much between the two models.
    for hidden in ("1", "3"):
        change = weights.loc[(hidden, "weight-change"), "weight"].to_numpy()
        chosen = np.arange(1, 4) == int(hidden)
        assert change[chosen].min() > 2 * change[~chosen].max()
    assert "did not get above 0.99" in " ".join(out.split())
    listed = {tuple(pair) for pair in json.loads((finished.control / "artefacts.json").read_text())}
    assert {"control", "states", "window", "localise"} <= {kind for kind, _ in listed}


@pytest.mark.slow
def test_failed_attempts_are_repeated_and_another_task_reuses_the_rest(
    memloc, finished: Finished
) -> None:
    command = ("control", "--model", finished.model, "--layers", "1,3", *QUICK, "--techniques",
               "gradients,swapping", "--control.attempts", "2", "--tasks")  # fmt: skip
    code, _, err = memloc(*command, "topics,questions")
    assert code == 0, err
    folder = next(Path("runs").glob("control-*"))
    attempts = pd.read_parquet(folder / "attempts.parquet").groupby(["task", "hidden", "state"])
    reached = pd.read_parquet(folder / "trainings.parquet")
    reached = reached.set_index(["task", "hidden", "state"])["learning_rate"]
    assert attempts.size().max() == 2
    # A frozen reference per task has one attempt, and no layers.
    frozen = attempts.size().xs("frozen", level="state")
    assert set(frozen) == {1}
    assert set(frozen.index.get_level_values("hidden")) == {""}
    for (task, hidden, state), rates in attempts["learning_rate"].agg(list).items():
        if state == "original":  # begins where its twin ended
            assert rates[0] == reached[task, hidden, "memorised"]
    code, out, _ = memloc(*command, "topics,questions,reviews", "--json")
    assert code == 0
    # Of each task θ_M and θ_O for two layers, the frozen reference, and two techniques per layer.
    assert json.loads(out)["jobs"] == {"computed": 2 * 2 + 1 + 2 * 2, "reused": 2 * (5 + 4)}


def test_tasks_held_back_choose_the_post_processing_and_are_not_scored(
    memloc, finished: Finished
) -> None:
    labelled_rows(60).drop(columns="original_label").to_csv("mine.csv", index=False)
    code, out, err = memloc(
        "control", "--model", finished.model, "--tasks", "topics,mine.csv", "--held-back",
        "mine.csv", "--layers", "3", *QUICK, "--techniques", "gradients", "--json",
    )  # fmt: skip
    assert code == 0, err
    summary = json.loads(out)
    assert {row["task"] for row in summary["by_task"]["scores"]} == {"topics"}
    assert {row["n"] for row in summary["gradient_choices"]} == {1}


BAD = {
    "empty layers": (("--layers", ","), "--layers: nothing is named"),
    "own auxiliary": (("--tasks", "topics,entailment"), "it is among the tasks too"),
    "no aux": (("--aux-task", "entail"), "--aux-task 'entail' is not possible"),
    "held back": (("--held-back", "trec"), "it is not among the tasks questions"),
    "all held back": (("--tasks", "topics", "--held-back", "topics"), "no task is left to score"),
    "same file name": (("--tasks", "one.csv,sub/one.csv"), "--tasks: 'one' is named twice"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_sentence_and_leaves_nothing(
    memloc, tiny_folder: Path, tmp_path: Path, case: str
) -> None:
    labelled_rows(60)[["text", "label"]].to_csv(tmp_path / "one.csv", index=False)
    (tmp_path / "sub").mkdir()
    labelled_rows(60, seed=5)[["text", "label"]].to_csv(tmp_path / "sub" / "one.csv", index=False)
    arguments, words = BAD[case]
    assert_one_sentence(*memloc("control", "--model", tiny_folder, *QUICK, *arguments), words)
    left = {path.suffix for path in tmp_path.glob("runs/**/*")}
    assert not left & {".parquet", ".safetensors"}
