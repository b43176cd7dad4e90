"""Labels that are only suspected: `memloc audit`, and `--suspects` of `run` and `localise`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from memloc import run
from memloc.data.files import read_table
from memloc.engine.store.store import Store
from tests.conftest import assert_one_sentence, labelled_rows
from tests.tiny_models import save_pair, tiny_model, tiny_tokenizer

QUICK = [
    *("--learning-rate", "3e-3", "--workers", "1", "--epochs", "4"),
    *("--model", "tiny"),
]
SWAP = [*QUICK, "--techniques", "swapping"]


@pytest.fixture
def words(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """A file `words.csv` of texts, whose label is their first word; some are wrong."""
    tiny_model("bert", layers=3).save_pretrained("tiny")
    tiny_tokenizer().save_pretrained("tiny")
    table = labelled_rows(72).rename(columns={"original_label": "gold"})
    table["flag"] = table["label"] != table["gold"]
    table.to_csv("words.csv", index=False)
    return table


def only_run() -> Path:
    (folder,) = (path.parent for path in Path("runs").glob("*/summary.json"))
    return folder


def test_an_audit_ranks_all_labels_and_leaves_the_file_as_it_was(memloc, words) -> None:
    before = Path("words.csv").read_bytes()
    code, out, err = memloc("audit", "words.csv", *QUICK, "--out", "found")
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    assert Path("words.csv").read_bytes() == before
    labels = pd.read_parquet("found/labels.parquet")
    assert labels["row"].tolist() == list(range(72))
    assert labels["label"].tolist() == words["label"].astype(str).tolist()
    assert sorted(labels["rank"]) == list(range(1, 73))
    assert (labels["suggested_label"] != labels["label"]).all()
    summary = json.loads(Path("found/summary.json").read_text())
    assert summary["wrong"]["low"] <= summary["wrong"]["estimate"] <= summary["wrong"]["high"]
    assert labels["suspect"].sum() == summary["suspects"] == summary["wrong"]["estimate"]
    corrected = read_table("found/corrected.csv")
    kept = corrected["suspect"] == "False"
    assert [*corrected.columns] == [*words.columns, "given_label", "suspect"]
    assert (corrected["label"] == corrected["given_label"])[kept].all()
    assert corrected["label"][~kept].tolist() == labels["suggested_label"][~kept].tolist()
    assert corrected["given_label"].tolist() == words["label"].astype(str).tolist()
    assert Path("found/report.html").is_file()

    code, out, _ = memloc("audit", "words.csv", *QUICK, "--out", "found", "--json")
    assert code == 0
    assert json.loads(out) == summary
    changed = [p for p in Path("found/store/train").iterdir() if p.is_dir()]
    assert len(changed) == 1


def test_labels_with_names_are_corrected_as_the_file_writes_them(memloc, words) -> None:
    named = words.assign(label_name=[f"class {label}" for label in words["label"]])
    named.to_csv("words.csv", index=False)
    code, _, err = memloc("audit", "words.csv", *QUICK, "--splits", "0", "--out", "found")
    assert code == 0, err
    corrected = pd.read_csv("found/corrected.csv")
    assert corrected["given_label"].tolist() == words["label"].tolist()
    assert (corrected["label"] != corrected["given_label"]).sum() == corrected["suspect"].sum() == 7
    assert corrected["label_name"].tolist() == [f"class {n}" for n in corrected["label"]]


def test_a_column_called_given_label_can_be_audited(memloc, words) -> None:
    words.rename(columns={"label": "given_label"}).to_csv("words.csv", index=False)
    column = ["--label-column", "given_label", "--splits", "0"]
    code, _, err = memloc("audit", "words.csv", *QUICK, *column, "--out", "found")
    assert code == 0, err
    changed = pd.read_csv("found/corrected.csv")["given_label"] != words["label"]
    assert changed.sum() == 7


def test_out_of_sample_probabilities_can_be_read_by_cleanlab(memloc, words) -> None:
    datalab = pytest.importorskip("cleanlab").Datalab
    code, _, err = memloc("audit", "words.csv", *QUICK, "--splits", "4", "--out", "found")
    assert code == 0, err
    found = pd.read_parquet("found/out_of_sample.parquet")
    assert found.to_numpy().sum(axis=1) == pytest.approx(np.ones(72), abs=1e-5)
    labels = pd.read_parquet("found/labels.parquet")
    own = [row[label] for label, (_, row) in zip(labels["label"], found.iterrows(), strict=True)]
    assert labels["self_confidence"].to_numpy() == pytest.approx(own)
    lab = datalab(data={"label": labels["label"].tolist()}, label_name="label", verbosity=0)
    lab.find_issues(pred_probs=found.to_numpy(), issue_types={"label": {}})
    theirs = lab.get_issues("label")["label_score"].to_numpy()
    assert theirs == pytest.approx(own)  # self-confidence, as cleanlab calls it


def test_without_half_splits_a_tenth_is_suspected_and_no_number_is_claimed(memloc, words) -> None:
    code, _, err = memloc("audit", "words.csv", *QUICK, "--splits", "0", "--out", "found")
    assert code == 0, err
    summary = json.loads(Path("found/summary.json").read_text())
    assert (summary["wrong"], summary["suspects"]) == (None, 7)
    assert not Path("found/out_of_sample.parquet").exists()
    assert_one_sentence(*memloc("repair", "found", "--out", "repaired"), "is of `memloc audit`")
    assert "self_confidence" not in pd.read_parquet("found/labels.parquet")


def test_wrong_labels_come_first_where_labels_can_be_learned(memloc) -> None:
    rows = [
        {"text": f"{first} {second} the", "label": kind}
        for kind, firsts in (("a", ("good", "nice", "great")), ("b", ("bad", "awful", "poor")))
        for first in firsts
        for second in ("film", "play", "book", "song", "story", "plot", "actor", "scene")
    ]
    wrong = [3, 11, 20, 27, 36, 44]
    table = pd.DataFrame(rows)
    table.loc[wrong, "label"] = ["b" if label == "a" else "a" for label in table["label"][wrong]]
    table.to_csv("films.csv", index=False)
    code, _, err = memloc("audit", "films.csv", "--out", "found", "--epochs", "6", "--workers", "1")
    assert code == 0, err
    labels = pd.read_parquet("found/labels.parquet")
    assert roc_auc_score(labels["row"].isin(wrong), labels["score"]) > 0.9


def test_a_run_on_a_column_of_suspects_trains_the_twin_without_them(memloc, words) -> None:
    code, out, err = memloc("run", "--task", "words.csv", "--suspects", "flag", *SWAP)
    assert code == 0, err
    summary = json.loads((only_run() / "summary.json").read_text())
    assert summary["noise"] == "suspected"
    assert "suspected labels" in out
    examples = pd.read_parquet(only_run() / "examples.parquet")
    flagged = np.flatnonzero(words["flag"])
    assert set(examples["example"]) <= set(flagged)
    assert summary["noisy_examples"] == len(examples)
    assert "original_label" not in examples
    # No suspect is in validation, and θ_O learned the others alone.
    assert summary["examples"] + summary["validation_examples"] < 72
    history = pd.read_parquet(only_run() / "history.parquet")
    last = history[history["epoch"] == 4].set_index(["state", "split"])["loss"]
    assert last["original", "train"] == pytest.approx(last["original", "clean"])
    assert last["original", "noisy"] > last["memorised", "noisy"]


def test_a_suggested_label_is_what_the_twin_may_learn_instead(memloc, words) -> None:
    words = words.rename(columns={"gold": "suggested_label"})
    words.to_csv("words.csv", index=False)
    arguments = ("--suspects", "flag", "--twin", "suggested", "--json")
    code, out, err = memloc("run", "--task", "words.csv", *arguments, *SWAP)
    assert code == 0, err
    summary = json.loads(out)
    examples = pd.read_parquet(Path(summary["folder"]) / "examples.parquet")
    expected = words["suggested_label"].astype(str)[examples["example"]].tolist()
    assert examples["original_label_name"].tolist() == expected
    assert "centroids" in {path.stem for path in Path(summary["folder"]).glob("*.parquet")}
    history = pd.read_parquet(Path(summary["folder"]) / "history.parquet")
    train = history.query("state == 'original' and split == 'train' and epoch == 4")["loss"]
    clean = history.query("state == 'original' and split == 'clean' and epoch == 4")["loss"]
    assert train.iloc[0] != clean.iloc[0]


@pytest.mark.parametrize("suspects", ["flag", "auto"])
def test_suspects_of_data_in_memory_are_those_of_a_file(words, suspects: str) -> None:
    words = words.rename(columns={"gold": "suggested_label"})
    result = run(
        task=words,
        model="tiny",
        data={"suspects": suspects},
        training={"epochs": 2},
        techniques=["swapping"],
        workers=1,
        progress=False,
    )
    assert result.summary["noise"] == "suspected"
    found = read_table(result.settings["data"]["task"])
    if suspects == "flag":
        assert [flag == "True" for flag in map(str, found["suspect"])] == words["flag"].tolist()
        assert {*found.columns} == {"text", "label", "suggested_label", "suspect"}


def test_automatic_suspects_are_those_of_an_audit_and_the_model_is_trained_once(
    memloc, words
) -> None:
    arguments = ("run", "--task", "words.csv", "--suspects", "auto", *SWAP)
    code, out, err = memloc(*arguments)
    assert code == 0, err
    summary = json.loads((only_run() / "summary.json").read_text())
    assert f"{summary['noisy_examples']} of {summary['examples']} labels are suspected" in err
    store = Store(Path("runs/store"))
    trained = [p for p in (store.root / "train").iterdir() if (p / "manifest.json").is_file()]
    assert len(trained) == 2  # θ_M, which was audited, and θ_O
    history = pd.read_parquet(only_run() / "history.parquet")
    splits = set(history.query("state == 'memorised'")["split"])
    assert splits == {"train", "noisy", "clean", "validation"}
    examples = pd.read_parquet(only_run() / "examples.parquet")
    assert (examples["original_label"] != examples["label"]).all()
    code, out, err = memloc(*arguments, "--json")
    assert json.loads(out)["jobs"]["computed"] == 0
    code, out, err = memloc("run", "--config", str(only_run() / "settings.json"), "--json")
    assert code == 0, err
    assert json.loads(out)["jobs"]["computed"] == 0


def test_given_models_take_a_column_of_suspects_too(memloc, tmp_path: Path) -> None:
    memorised, original = save_pair(tmp_path, "bert", layers=3)
    table = labelled_rows(24)
    table["flag"] = table["label"] != table.pop("original_label")
    table.to_csv("data.csv", index=False)
    code, _, err = memloc(
        *("localise", "--memorised", memorised, "--original", original, "--data", "data.csv"),
        *("--suspects", "flag", "--out", "found", "--workers", "1"),
    )
    assert code == 0, err
    examples = pd.read_parquet("found/examples.parquet")
    assert set(examples["example"]) == set(np.flatnonzero(table["flag"]))
    assert "original_answer" in examples
    assert json.loads(Path("found/summary.json").read_text())["noise"] == "suspected"


@pytest.mark.parametrize(
    ("column", "words_in_it"),
    [
        ([False] * 72, "flag is False for all 72 examples"),
        ([True] * 72, "flag is True for all 72 examples"),
        (["maybe", *[False] * 71], "flag is 'maybe' in row 0"),
    ],
)
def test_a_column_of_suspects_says_yes_of_some_and_no_of_others(
    memloc, words, column, words_in_it
) -> None:
    words.assign(flag=column).to_csv("words.csv", index=False)
    result = memloc("run", "--task", "words.csv", "--suspects", "flag", *SWAP)
    assert_one_sentence(*result, words_in_it)
    assert not Path("runs").exists() or not list(Path("runs").glob("*/summary.json"))


def test_every_class_keeps_two_examples_without_the_suspects(memloc, words) -> None:
    words.assign(flag=words["label"] == 2).to_csv("words.csv", index=False)
    result = memloc("run", "--task", "words.csv", "--suspects", "flag", *SWAP)
    assert_one_sentence(*result, "the class '2' of 'words' keeps 0 training examples")
    assert "--suspects" in result[2]


def test_suspects_and_flipped_labels_exclude_each_other(memloc, words) -> None:
    arguments = ("run", "--task", "words.csv", "--suspects", "flag", "--noise", "0.2")
    assert_one_sentence(*memloc(*arguments, *SWAP), "--noise")
    assert_one_sentence(
        *memloc("run", "--task", "words.csv", "--twin", "suggested", *SWAP), "without suspects"
    )


def test_one_epoch_does_not_say_how_labels_are_learned(memloc, words) -> None:
    quick = [*QUICK[:-4], "--epochs", "1", "--model", "tiny"]
    result = memloc("audit", "words.csv", *quick, "--out", "found")
    assert_one_sentence(*result, "one epoch does not say how labels are learned")
    assert not Path("found/labels.parquet").exists()


def test_a_missing_column_of_suspects_is_named(memloc, words) -> None:
    result = memloc("run", "--task", "words.csv", "--suspects", "flags", *SWAP)
    assert_one_sentence(*result, "no column 'flags'")
    assert "flag" in result[2]


def test_a_run_on_suspects_can_be_repaired_and_nobody_claims_to_know_their_true_labels(
    memloc, words
) -> None:
    code, _, err = memloc("run", "--task", "words.csv", "--suspects", "auto", *SWAP)
    assert code == 0, err
    code, out, err = memloc("repair", str(only_run()), "--out", "repaired", "--workers", "1")
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    exam = pd.read_parquet("repaired/exam.parquet").set_index(["candidate", "measure"])
    suspects = json.loads((only_run() / "summary.json").read_text())["noisy_examples"]
    assert exam.loc[("unchanged", "given"), "examples"] == suspects
    known = exam.reset_index().query("measure == 'true_accuracy'")["value"]
    assert known.isna().all()
    trained = [p for p in Path("runs/store/train").iterdir() if (p / "manifest.json").is_file()]
    assert len(trained) == 2  # the models of the run
