"""`memloc control` as a user meets it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from memloc.analysis.control import accuracy_at
from tests.cli.test_experiments import files
from tests.conftest import assert_one_sentence, labelled_rows
from tests.tiny_models import tiny_model, tiny_tokenizer

QUICK = [
    *("--limit", "90", "--aux-limit", "40", "--epochs", "2", "--learning-rate", "1e-3"),
    *("--workers", "1", "--probing.epochs", "2", "--probing.seeds", "2"),
    *("--window-sizes", "1"),
]


@pytest.fixture
def four_layers(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny-four"
    tiny_model("bert", layers=4).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_all_techniques_are_scored_and_everything_fits_80_columns(
    memloc, four_layers: Path
) -> None:
    command = ("control", "--model", four_layers, "--tasks", "topics,questions",
               "--layers", "first,last", "--control.attempts", "2", *QUICK)  # fmt: skip
    code, out, err = memloc(*command)
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    assert (
        "10 × control training, 6 × states, 20 × retrained window" in err
    )  # 4 models × (4 layers and the full window)
    assert "with 1 worker" in err
    folder = next(Path("runs").glob("control-*"))
    tables = {path.stem: pd.read_parquet(path) for path in folder.glob("*.parquet")}
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["hidden"] == ["1+2", "3+4"]
    assert summary["chance"] == 0.5
    techniques = {
        *("swapping", "retraining", "gradients", "probing", "shapley", "patching"),
        *("weight-change", "random"),
    }
    assert set(tables["accuracy"]["technique"]) == techniques
    assert all(name in out for name in techniques)
    # Two tasks, two pairs, one seed: one row per technique and k.
    assert len(tables["accuracy"]) == 2 * 2 * len(techniques) * 2
    weights = tables["layers"].set_index(["task", "hidden", "technique"]).sort_values("layer")
    for row in tables["accuracy"].to_dict("records"):
        profile = weights.loc[(row["task"], row["hidden"], row["technique"]), "weight"]
        hidden = [int(layer) for layer in row["hidden"].split("+")]
        expected = accuracy_at(profile.to_numpy(), hidden, row["k"])
        assert row["accuracy"] == pytest.approx(expected, nan_ok=True)
    # Every attempt is recorded; a frozen reference per task has one, and no layers.
    attempts = tables["attempts"].groupby(["task", "hidden", "state"]).size()
    assert attempts.max() == 2
    assert set(attempts.xs("frozen", level="state")) == {1}
    assert set(attempts.xs("frozen", level="state").index.get_level_values("hidden")) == {""}
    twin = tables["attempts"].groupby(["task", "hidden", "state"])["learning_rate"].agg(list)
    reached = tables["trainings"].set_index(["task", "hidden", "state"])["learning_rate"]
    for task, hidden, state in twin.index:
        if state == "original":  # begins where its twin ended
            assert twin[task, hidden, state][0] == reached[task, hidden, "memorised"]
    assert len(summary["gradient_choices"]) == 8
    assert all(word in out for word in ("divide by frozen", "subtract clean", "both", "L2"))
    assert "did not get above 0.99" in " ".join(out.split())
    # The same again is there already, and with one task more only that is computed.
    code, out, err = memloc(*command)
    assert "Nothing to compute" in out
    assert "Note:" not in err
    code, out, _ = memloc(*command[:4], "topics,questions,reviews", *command[5:], "--json",
                          "--techniques", "random,swapping")  # fmt: skip
    assert code == 0
    # Of each task θ_M and θ_O for two pairs, the frozen reference, and two techniques per pair.
    assert json.loads(out)["jobs"] == {"computed": 2 * 2 + 1 + 2 * 2, "reused": 2 * (5 + 4)}


def test_only_the_hidden_layers_differ_much_between_the_two_models(
    memloc, four_layers: Path
) -> None:
    code, out, err = memloc(
        "control", "--model", four_layers, "--tasks", "topics", "--layers", "first,middle,last",
        "--control.attempts", "1", *QUICK, "--techniques", "weight-change", "--json",
    )  # fmt: skip
    assert code == 0, err
    folder = Path(json.loads(out)["folder"])
    layers = pd.read_parquet(folder / "layers.parquet")
    for hidden, profile in layers.groupby("hidden"):
        weights = profile.sort_values("layer")["weight"].to_numpy()
        chosen = np.isin(np.arange(1, 5), [int(layer) for layer in str(hidden).split("+")])
        assert weights[chosen].min() > 2 * weights[~chosen].max(), (hidden, weights)
    assert json.loads(out)["by_technique"][0]["accuracy"] == 1.0
    listed = {tuple(pair) for pair in json.loads((folder / "artefacts.json").read_text())}
    stored = {path.parts[-3:-1] for path in Path("runs/store").glob("*/*/manifest.json")}
    assert listed == {artefact for artefact in stored if artefact[0] != "speed"}


@pytest.mark.slow
def test_models_of_different_depth_have_their_own_layers_and_chance(
    memloc, four_layers: Path, tmp_path: Path
) -> None:
    deep = tmp_path / "tiny-deep"
    tiny_model("llama", layers=12).save_pretrained(deep)
    tiny_tokenizer().save_pretrained(deep)
    code, out, err = memloc(
        "control", "--model", f"{four_layers},{deep}", "--tasks", "topics", "--layers",
        "first,last", "--control.attempts", "1", *QUICK, "--techniques", "random,weight-change",
    )  # fmt: skip
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    assert "tiny-deep (12 layers)" in " ".join(out.split())
    accuracy = pd.read_parquet(next(Path("runs").glob("control-*")) / "accuracy.parquet")
    assert accuracy.groupby("model")["chance"].first().to_dict() == pytest.approx(
        {"tiny-four": 0.5, "tiny-deep": 2 / 12}
    )
    assert set(accuracy["hidden"]) == {"1+2", "3+4", "11+12"}


def test_tasks_held_back_choose_the_post_processing_and_are_not_scored(
    memloc, four_layers: Path
) -> None:
    code, out, err = memloc(
        "control", "--model", four_layers, "--tasks", "topics,reviews", "--held-back", "reviews",
        "--layers", "last", "--control.attempts", "1", *QUICK, "--techniques", "gradients",
        "--json",
    )  # fmt: skip
    assert code == 0, err
    summary = json.loads(out)
    assert {row["task"] for row in summary["by_task"]["scores"]} == {"topics"}
    assert {row["n"] for row in summary["gradient_choices"]} == {1}


def test_a_file_can_be_main_and_auxiliary_task(memloc, four_layers: Path, tmp_path: Path) -> None:
    labelled_rows(60)[["text", "label"]].to_csv(tmp_path / "mine.csv", index=False)
    code, _, err = memloc(
        "control", "--model", four_layers, "--tasks", "topics", "--aux-task", "mine.csv",
        "--layers", "last", "--control.attempts", "1", *QUICK, "--techniques", "random",
    )  # fmt: skip
    assert code == 0, err


BAD = {
    "out of range": (("--layers", "first,7+8"), "has layers 1 to 4"),
    "empty layers": (("--layers", ","), "--layers: nothing is named"),
    "no layers": (("--layers", "bottom"), "neither first, middle or last"),
    "all layers": (("--layers", "1+2+3+4"), "leaves nothing to find"),
    "own auxiliary": (("--tasks", "topics,entailment"), "it is among the tasks too"),
    "same texts": (("--tasks", "one.csv", "--aux-task", "two.csv"), "has the same texts"),
    "empty tasks": (("--tasks", " "), "--tasks: nothing is named"),
    "no task": (("--tasks", "topic"), "did you mean 'topics'"),
    "no aux": (("--aux-task", "entail"), "--aux-task 'entail' is not possible"),
    "held back": (
        ("--held-back", "trec"),
        "it is not among the tasks questions",
    ),
    "all held back": (("--tasks", "topics", "--held-back", "topics"), "no task is left to score"),
    "technique": (("--techniques", "swoping"), "did you mean 'swapping'"),
    "attempts": (("--control.attempts", "0"), "--control.attempts 0 is not possible"),
    "rate": (("--aux-rate", "-1"), "--aux-rate -1"),
    "learned": (("--control.learned_at", "1.5"), "--control.learned_at 1.5 is not possible"),
    "aux limit": (("--aux-limit", "0"), "--aux-limit 0 is not possible"),
    "model": (("--model", "./nowhere"), "does not exist"),
    "workers": (("--workers", "0"), "--workers 0"),
    "same file name": (("--tasks", "one.csv,sub/one.csv"), "--tasks: 'one' is named twice"),
    "same model name": (
        ("--model", "./tiny-four,./sub/tiny-four"),
        "--model: 'tiny-four' is named twice",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_sentence_and_leaves_nothing(
    memloc, four_layers: Path, tmp_path: Path, case: str
) -> None:
    for name in ("one", "two"):
        labelled_rows(60)[["text", "label"]].to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "sub").mkdir()
    labelled_rows(60, seed=5)[["text", "label"]].to_csv(tmp_path / "sub" / "one.csv", index=False)
    shutil.copytree(four_layers, tmp_path / "sub" / four_layers.name)
    before = files(tmp_path)
    arguments, words = BAD[case]
    assert_one_sentence(*memloc("control", "--model", four_layers, *QUICK, *arguments), words)
    left = files(tmp_path) - before
    assert not any(name.endswith((".parquet", "summary.json")) for name in left)
