"""Explanations and generalisation scores from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from memloc.analysis.generalisation import half_split
from tests.cli.test_experiments import QUICK
from tests.conftest import Finished, assert_one_sentence, labelled_rows
from tests.tiny_models import tiny_model, tiny_tokenizer

SWAP = ("--techniques", "swapping")


def table(name: str, folder: str = "runs/*") -> pd.DataFrame:
    return pd.read_parquet(next(Path().glob(f"{folder}/{name}.parquet")))


def test_a_run_explains_itself_unless_told_not_to(
    memloc, finished: Finished, tmp_path: Path
) -> None:
    finished.copy_to(tmp_path / "runs")
    code, out, err = memloc(*finished.run_words)
    assert code == 0, err
    assert "How? Noisy examples between their two classes" in out
    assert "crossing: nearer to the new class" in out
    assert "examples that cross for good" in out
    events = pd.read_parquet(finished.run / "events.parquet")
    assert events.groupby("model")["event"].apply(set).to_dict() == {
        "memorised": {"crossing", "first_crossing", "initiation", "mem_gen", "f1_90"},
        "bottom_swapped": {"crossing", "first_crossing", "initiation"},
        "top_swapped": {"crossing", "first_crossing", "initiation"},
    }
    assert events["layer"].dropna().between(1, 3).all()
    found = json.loads((finished.run / "summary.json").read_text())
    crossing = found["explanation"]["events"]["memorised"]["crossing"]
    known = [layer for layer in crossing["per_seed"] if layer is not None]
    assert crossing["missing"] == 2 - len(known)
    assert crossing["layer"] == (np.mean(known) if known else None)
    code, out, _ = memloc(*finished.run_words, "--no-explain", "--json")
    assert code == 0
    assert not (Path(json.loads(out)["folder"]) / "events.parquet").exists()


def test_what_cannot_be_explained_is_left_out_with_a_caution(
    memloc, tiny_folder: Path, tmp_path: Path
) -> None:
    rows = labelled_rows(30)
    rows["label"] = rows["original_label"].where(rows.index >= 4, (rows["original_label"] + 1) % 3)
    rows.to_csv(tmp_path / "few.csv", index=False)
    command = ("run", "--model", tiny_folder, "--task", "few.csv", *QUICK[2:], *SWAP)
    code, out, err = memloc(*command)
    assert code == 0, err
    assert "left out: at least 10 noisy examples are needed" in " ".join(out.split())
    assert not list(Path("runs").glob("*/class_probes.parquet"))
    assert len(table("centroids"))
    assert_one_sentence(
        *memloc(*command, "--explain"), "--explain: at least 10 noisy examples are needed"
    )


def test_explanations_that_are_asked_for_and_not_possible_are_refused(memloc) -> None:
    tiny_model("modernbert", layers=2, classifier_pooling="mean").save_pretrained("mean")
    tiny_tokenizer().save_pretrained("mean")
    answer = memloc("run", *QUICK, *SWAP, "--explain", "--model", "./mean")
    assert_one_sentence(*answer, "there is no single state per layer")


def test_generalisation_scores_come_from_models_of_halves(
    memloc, finished: Finished, tmp_path: Path
) -> None:
    finished.copy_to(tmp_path / "runs")
    command = (
        *finished.run_words, *SWAP, "--no-explain", "--generalisation", "--generalisation.epochs",
        "1", "--generalisation.splits",
    )  # fmt: skip
    code, out, err = memloc(*command, "4")
    assert code == 0, err
    assert "Held-out training examples (4 half-splits)" in out
    assert max(map(len, out.splitlines())) <= 80
    found = table("memorisation_map")
    assert len(found) == 60
    inside = np.stack([half_split(60, split, seed=1) for split in range(4)])
    np.testing.assert_array_equal(found["times_in"], inside.sum(axis=0))
    assert found["generalisation_score"].dropna().between(0, 1).all()
    assert found["generalisation_score"].isna().sum() == (inside.all(axis=0)).sum()
    difference = found["training_memorisation"] - found["generalisation_score"]
    np.testing.assert_allclose(found["counterfactual_memorisation"], difference)
    assert found["noisy"].sum() == 11
    # More splits later: those that are there are kept.
    code, out, _ = memloc(*command, "5", "--json")
    summary = json.loads(out)
    assert summary["jobs"]["computed"] == 1
    assert summary["generalisation"]["splits"] == 5
    assert summary["scores"]["generalisation_score"] == summary["generalisation"]["score"]
    chance = 1 / len(summary["classes"])
    for state, accuracy in (
        ("original", "original_validation_accuracy"),
        ("memorised", "validation_accuracy"),
    ):
        expected = (summary["training"][accuracy] - chance) / (1 - chance)
        assert summary["scores"]["validation_score"][state]["uniform"] == pytest.approx(expected)
