"""Explanations and generalisation scores from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from memloc.analysis.generalisation import half_split
from tests.cli.test_experiments import QUICK
from tests.conftest import assert_one_sentence, labelled_rows
from tests.tiny_models import save_pair, tiny_model, tiny_tokenizer

SWAP = ("--techniques", "swapping")


def table(name: str, folder: str = "runs/*") -> pd.DataFrame:
    return pd.read_parquet(next(Path().glob(f"{folder}/{name}.parquet")))


def test_a_run_explains_itself_unless_told_not_to(memloc, tiny_folder: Path) -> None:
    code, out, err = memloc("run", "--model", tiny_folder, "--task", "topics", *QUICK, *SWAP)
    assert code == 0, err
    assert "How? Flipped examples between their two classes" in out
    assert "crossing: flipped examples nearer to the new class" in out
    assert "examples that cross for good" in out
    assert max(map(len, out.splitlines())) <= 80
    events = table("events")
    assert events.groupby("model")["event"].apply(set).to_dict() == {
        "memorised": {"crossing", "first_crossing", "initiation", "mem_gen", "f1_90"},
        "bottom_swapped": {"crossing", "first_crossing", "initiation"},
        "top_swapped": {"crossing", "first_crossing", "initiation"},
    }
    assert events["layer"].dropna().between(1, 3).all()
    code, out, _ = memloc(
        "run", "--model", tiny_folder, "--task", "topics", *QUICK, *SWAP, "--no-explain",
        "--runs", "plain",
    )  # fmt: skip
    assert code == 0
    assert "How?" not in out
    assert not list(Path("plain").glob("*/events.parquet"))


@pytest.mark.slow
def test_events_are_kept_per_seed(memloc, tiny_folder: Path) -> None:
    code, out, err = memloc(
        "run", "--model", tiny_folder, "--task", "topics", *QUICK, *SWAP, "--seeds", "1,2", "--json"
    )
    assert code == 0, err
    found = json.loads(out)["explanation"]["events"]["memorised"]["crossing"]
    assert len(found["per_seed"]) == 2
    known = [layer for layer in found["per_seed"] if layer is not None]
    assert found["missing"] == 2 - len(known)
    assert found["layer"] == (np.mean(known) if known else None)
    assert set(table("trajectories")["seed"]) == {1, 2}


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


def test_noisy_examples_between_classes_without_clean_ones_have_no_centroids(
    memloc, tiny_folder: Path, tmp_path: Path
) -> None:
    rows = labelled_rows(60, classes=2)
    rows["label"] = rows["original_label"].where(rows.index % 3 > 0, 2)  # no clean one is a 2
    rows.to_csv(tmp_path / "one.csv", index=False)
    command = ("run", "--model", tiny_folder, "--task", "one.csv", *QUICK[2:], *SWAP)
    code, out, err = memloc(*command)
    assert code == 0, err
    assert "left out: centroids need noisy examples between two classes" in " ".join(out.split())
    assert_one_sentence(*memloc(*command, "--explain"), "only 2 of 3 classes have clean examples")


def test_a_head_that_reads_no_single_token_has_no_trajectories(memloc, tmp_path: Path) -> None:
    tiny_model("modernbert", layers=2, classifier_pooling="mean").save_pretrained("mean")
    tiny_tokenizer().save_pretrained("mean")
    command = ("run", "--model", "./mean", "--task", "topics", *QUICK, *SWAP)
    code, out, err = memloc(*command)
    assert code == 0, err
    assert "left out: the head of this model does not read" in " ".join(out.split())
    assert_one_sentence(*memloc(*command, "--explain"), "there is no single state per layer")


def test_generalisation_scores_come_from_models_of_halves(memloc, tiny_folder: Path) -> None:
    command = (
        "run", "--model", tiny_folder, "--task", "topics", *QUICK, *SWAP, "--no-explain",
        "--generalisation", "--generalisation.splits", "4", "--generalisation.epochs", "1",
    )  # fmt: skip
    code, out, err = memloc(*command)
    assert code == 0, err
    assert "Held-out training examples (4 half-splits)" in out
    assert max(map(len, out.splitlines())) <= 80
    found = table("memorisation_map")
    assert len(found) == 90
    inside = np.stack([half_split(90, split, seed=1) for split in range(4)])
    np.testing.assert_array_equal(found["times_in"], inside.sum(axis=0))
    assert found["generalisation_score"].dropna().between(0, 1).all()
    assert found["generalisation_score"].isna().sum() == (inside.all(axis=0)).sum()
    difference = found["training_memorisation"] - found["generalisation_score"]
    np.testing.assert_allclose(found["counterfactual_memorisation"], difference)
    assert found["noisy"].sum() == 12
    code, out, _ = memloc(*command)
    assert "Nothing to compute" in out
    # More splits later: those that are there are kept.
    code, out, _ = memloc(*command[:-3], "5", *command[-2:], "--json")
    summary = json.loads(out)
    assert summary["jobs"]["computed"] == 1
    assert summary["generalisation"]["splits"] == 5
    assert summary["scores"]["generalisation_score"] == summary["generalisation"]["score"]


@pytest.mark.slow
def test_half_splits_stop_when_the_score_is_certain_enough(memloc, tiny_folder: Path) -> None:
    command = (
        "run", "--model", tiny_folder, "--task", "topics", *QUICK, *SWAP, "--no-explain",
        "--generalisation.splits", "22", "--generalisation.epochs", "1", "--json",
        "--generalisation.standard_error",
    )  # fmt: skip
    splits = {}
    for limit in ("0.9", "0.000001"):
        code, out, err = memloc(*command, limit)
        assert code == 0, err
        splits[limit] = json.loads(out)["generalisation"]
    assert splits["0.9"]["splits"] == 10
    # Untrained models give probabilities near 1/C: the score never becomes that certain.
    assert splits["0.000001"]["splits"] == 22
    assert splits["0.9"]["standard_error"] > 0


def test_localise_explains_given_models(memloc, tmp_path: Path) -> None:
    save_pair(tmp_path, "opt", layers=3)
    labelled_rows(60).to_csv(tmp_path / "data.csv", index=False)
    command = (
        "localise", "--memorised", "memorised", "--original", "original", "--data", "data.csv",
        "--out", "out", "--probing.epochs", "2", "--probing.seeds", "2",
    )  # fmt: skip
    code, out, err = memloc(*command)
    assert code == 0, err
    assert "How? Flipped examples between their two classes" in out
    assert set(table("centroids", "out")["model"]) == {"memorised", "bottom_swapped", "top_swapped"}
    assert len(table("class_probes", "out"))
    assert "seed" not in table("events", "out").columns
    code, out, _ = memloc(*command, "--no-explain")
    assert code == 0
    assert not Path("out/events.parquet").exists()


BAD = {
    "splits": (("--generalisation.splits", "1"), "--generalisation.splits 1 is not possible"),
    "epochs": (("--generalisation.epochs", "0"), "--generalisation.epochs 0 is not possible"),
    "rate": (
        ("--generalisation.learning_rate", "-1"),
        "--generalisation.learning_rate -1.0 is not possible",
    ),
    "error": (
        ("--generalisation.standard_error", "1.5"),
        "--generalisation.standard_error 1.5 is not possible",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_of_half_splits_are_one_sentence(case: str, memloc, tiny_folder: Path) -> None:
    options, words = BAD[case]
    found = memloc("run", "--model", tiny_folder, *QUICK, "--generalisation", *options)
    assert_one_sentence(*found, words)
    assert not Path("runs").exists()
