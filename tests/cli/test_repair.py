"""`memloc repair` as a user meets it: from a result to a model that anybody can load."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import memloc as library
from memloc import cli
from memloc.api.repair import _inputs
from memloc.config import Model, Run
from memloc.data.encode import encode
from memloc.data.task import Task
from memloc.engine.store.store import Store, sha256_of
from memloc.models.load import load_classifier
from memloc.models.names import resolve
from memloc.results.folders import write_results
from memloc.tables import EXAM
from tests.conftest import Finished, assert_one_sentence, labelled_rows
from tests.tiny_models import save_pair, tiny_model, tiny_tokenizer

NAMES = [
    *("swapped-window", "retrained-window", "trained-on", "twin", "control-window", "unchanged"),
]
MEASURES = {
    *("given", "kept_accuracy", "validation_accuracy", "true_accuracy", "probe"),
    *("relearned_kept", "relearned_tenth", "seconds"),
}
FILES = {
    *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
    *("README.md", "exam.parquet", "exam.png", "repair.json", "report.html"),
}


def checksums(folder: Path) -> dict[str, str]:
    """Of everything in a folder."""
    found = {path for path in folder.rglob("*") if path.is_file()}
    return {str(path.relative_to(folder)): sha256_of(path) for path in found}


def answers(folder: Path, texts: list[str]) -> list[str]:
    """What somebody gets who loads the model and knows nothing of memloc."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    batch = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        classes = model(**batch).logits.argmax(dim=-1)
    return [model.config.id2label[number] for number in classes.tolist()]


def value(exam: pd.DataFrame, candidate: str, measure: str) -> float:
    rows = exam[(exam["candidate"] == candidate) & (exam["measure"] == measure)]
    return float(rows["value"].iloc[0])


@dataclass(frozen=True)
class Repaired:
    """A run that was repaired; the result is not to be changed."""

    folder: Path
    result: Path
    out: str
    before: dict[str, str]
    """Checksums of the result and of the pre-trained model before the repair."""


@pytest.fixture(scope="module")
def repaired(finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> Repaired:
    base = tmp_path_factory.mktemp("repaired")
    result = finished.copy_to(base / "runs")
    before = {**checksums(result), **checksums(finished.model)}
    words = ["repair", str(result), "--out", str(base / "fixed"), "--workers", "1"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert not cli.app(words, standalone_mode=False)
    return Repaired(base / "fixed", result, out.getvalue(), before)


def test_a_repair_shows_a_table_of_80_columns_and_sentences(repaired: Repaired) -> None:
    out = repaired.out
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out  # nothing of the table is cut
    words = out.split()
    assert all(words.count(name) >= 1 for name in NAMES)
    said = " ".join(words)
    for part in ("11 suspects, 49 kept examples", "Is it gone, or only hidden?", "The best is the",
                 "the control window: with layers", f"Model: {repaired.folder}/",
                 f"Report: {repaired.folder}/report.html"):  # fmt: skip
        assert part in said


def test_the_exam_has_every_measure_of_every_candidate(repaired: Repaired) -> None:
    exam = pd.read_parquet(repaired.folder / "exam.parquet")
    assert exam.columns.tolist() == list(EXAM.columns)
    assert exam.dtypes.astype(str).to_dict() == EXAM.dtypes(EXAM.columns)
    found = exam.groupby("candidate", sort=False)["measure"].agg(set)
    assert found.index.tolist() == NAMES
    assert all(measures == MEASURES for measures in found)
    known = exam[exam["measure"] != "seconds"]
    assert (known["low"] <= known["value"]).all()
    assert (known["value"] <= known["high"]).all()
    # The model had learned everything by heart; the twin had seen none of it.
    assert value(exam, "unchanged", "given") == 1
    assert value(exam, "unchanged", "true_accuracy") == 0
    assert value(exam, "twin", "given") <= 0.1
    assert value(exam, "twin", "true_accuracy") >= 0.9
    assert value(exam, "unchanged", "seconds") == 0
    assert value(exam, "twin", "seconds") > value(exam, "swapped-window", "seconds") >= 0
    # A window that undoes nearly all the labels, and one of the same size.
    windows = exam.drop_duplicates("candidate").set_index("candidate")
    sizes = windows["last_layer"] - windows["first_layer"]
    assert sizes["swapped-window"] == sizes["control-window"]
    assert windows.loc["twin", ["first_layer", "last_layer"]].isna().all()


def test_the_model_is_an_ordinary_one_that_answers_as_the_candidate_did(
    repaired: Repaired, finished: Finished
) -> None:
    assert {path.name for path in repaired.folder.iterdir()} == FILES
    summary = json.loads((repaired.folder / "repair.json").read_text())
    examples = library.load(repaired.result).examples.query("technique == 'swapping' and seed == 1")
    found = answers(repaired.folder, examples["text"].tolist())
    exam = pd.read_parquet(repaired.folder / "exam.parquet")
    chosen = summary["candidate"]
    assert chosen == summary["best"]
    for column, measure in (("label_name", "given"), ("original_label_name", "true_accuracy")):
        share = (pd.Series(found) == examples[column].reset_index(drop=True)).mean()
        assert share == pytest.approx(value(exam, chosen, measure))


def test_the_card_can_be_read_and_its_code_runs(
    repaired: Repaired, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = (repaired.folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: text-classification\n")
    assert "![Exams of all candidates, with 95% intervals](exam.png)" in card
    assert all(f"| {name} |" in card for name in NAMES)
    code = card.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(repaired.folder)
    exec(code.replace("path/to/this/folder", "."), {})
    assert capsys.readouterr().out.strip() in ("['0']", "['1']", "['2']")
    assert (repaired.folder / "exam.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("pairs", ["joined", "native"])
def test_the_card_encodes_pairs_as_the_model_has_read_them(pairs: Any, tiny_folder: Path) -> None:
    config = Run(model=Model(name=str(tiny_folder), pair_format=pairs))
    classifier = load_classifier(resolve(config.model), config.model, n_labels=2)
    parts = {"text": ["its text", "a film"], "text_pair": ["its text_pair", "the king"]}
    table = pd.DataFrame({**parts, "label": 0})
    lines = _inputs(classifier, Task("own", "own", ("a", "b"), table, table), config)
    names: dict[str, Any] = {"tokenizer": classifier.codec.tokenizer}
    exec("\n".join(lines), names)
    expected = encode(table, classifier.codec, pairs).rows[0]
    assert names["batch"]["input_ids"][0].tolist() == expected["input_ids"]
    assert expected["input_ids"].count(classifier.codec.tokenizer.sep_token_id) == 2


def test_nothing_of_the_user_is_changed(repaired: Repaired, finished: Finished) -> None:
    assert {**checksums(repaired.result), **checksums(finished.model)} == repaired.before


def test_the_command_of_the_card_makes_the_same_model_again_from_the_store(
    repaired: Repaired, memloc: Any, tmp_path: Path
) -> None:
    summary = json.loads((repaired.folder / "repair.json").read_text())
    program, *words = shlex.split(summary["command"])
    assert program == "memloc"
    again = [str(tmp_path / "again") if word == str(repaired.folder) else word for word in words]
    code, out, err = memloc(*again)
    assert code == 0, err
    assert "Nothing to compute: all 10 jobs were in the store already." in out
    for name in ("model.safetensors", "exam.parquet", "exam.png", "config.json"):
        assert sha256_of(tmp_path / "again" / name) == sha256_of(repaired.folder / name), name


def test_another_candidate_is_written_if_it_is_asked_for(
    repaired: Repaired, memloc: Any, finished: Finished
) -> None:
    code, out, err = memloc("repair", repaired.result, "--out", "new/other", "--candidate",
                            "unchanged", "--json")  # fmt: skip
    assert code == 0, err
    summary = json.loads(out)
    assert (summary["candidate"], summary["folder"]) == ("unchanged", "new/other")
    assert summary["jobs"] == {"computed": 0, "reused": 10}
    assert "What is written is the unchanged model, as asked for." in summary["findings"]
    examples = library.load(repaired.result).examples.query("technique == 'swapping' and seed == 1")
    assert answers(Path("new/other"), examples["text"].tolist()) == examples["label_name"].tolist()


def test_python_does_the_same_for_another_seed(
    repaired: Repaired, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = library.repair(
        library.load(repaired.result), out="second", seed=2, workers=1, progress=False
    )
    assert found.summary["seed"] == 2
    assert found.summary["jobs"] == {"computed": 8, "reused": 2}
    assert Path("second/config.json").is_file()
    pd.testing.assert_frame_equal(found.exam, pd.read_parquet("second/exam.parquet"))
    assert repr(found).startswith(f"memloc repair: {found.candidate} in 'second'\n  The best is")
    with pytest.raises(library.MemlocError, match=r"^seed 3 is not possible: the result has no"):
        library.repair(repaired.result, out="third", seed=3, progress=False)


def test_lost_models_are_trained_again_and_give_the_same_exam(
    repaired: Repaired, memloc: Any, tmp_path: Path
) -> None:
    shutil.copytree(repaired.result, tmp_path / "runs" / repaired.result.name)
    store = repaired.result.parent / "store"
    shutil.copytree(store / "data", tmp_path / "runs" / "store" / "data")
    code, out, err = memloc("repair", tmp_path / "runs" / repaired.result.name, "--out", "fixed",
                            "--workers", "1", "--json")  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["jobs"] == {"computed": 10, "reused": 0}
    without = "measure != 'seconds'"
    pd.testing.assert_frame_equal(
        pd.read_parquet("fixed/exam.parquet").query(without),
        pd.read_parquet(repaired.folder / "exam.parquet").query(without),
    )


def test_an_interrupted_repair_goes_on_and_leaves_no_half_model(
    repaired: Repaired, finished: Finished, memloc: Any, tmp_path: Path
) -> None:
    result = finished.copy_to(tmp_path / "runs")
    command = ["repair", str(result), "--out", str(tmp_path / "fixed"), "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "memloc", *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    store, deadline = Store(tmp_path / "runs" / "store"), time.monotonic() + 120
    while not [*store.keys("candidate"), *store.keys("exam")]:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert errors.rstrip().endswith(
        "memloc: terminated; finished jobs are kept, the same command goes on"
    )
    assert not (tmp_path / "fixed").exists()
    code, out, err = memloc(*command[:-1], "1", "--json")
    assert code == 0, err
    assert json.loads(out)["jobs"]["computed"] < 8
    exam, expected = (
        pd.read_parquet(folder / "exam.parquet").query("measure != 'seconds'")
        for folder in (tmp_path / "fixed", repaired.folder)
    )
    pd.testing.assert_frame_equal(exam, expected)


def test_given_models_are_repaired_too(memloc: Any, tmp_path: Path) -> None:
    memorised, original = save_pair(tmp_path, "bert", layers=2)
    rows = labelled_rows(24)
    rows.to_csv("data.csv", index=False)
    code, _, err = memloc(
        *("localise", "--memorised", memorised, "--original", original, "--data", "data.csv"),
        *("--learning-rate", "1e-3", "--techniques", "swapping", "--out", "found"),
    )
    assert code == 0, err
    before = {**checksums(memorised), **checksums(original)}
    Path("fixed").mkdir()  # empty, so it may be used
    code, out, err = memloc("repair", "found", "--out", "fixed", "--workers", "1")
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    said = " ".join(out.split())
    assert "There is no retrained-window: the model before fine-tuning (pretrained) was not" in said
    assert "What a probe can read from the states of any candidate is not known." in said
    exam = pd.read_parquet("fixed/exam.parquet")
    assert exam.query("measure == 'validation_accuracy'")["value"].isna().all()
    assert pd.isna(exam.query("candidate == 'twin' and measure == 'seconds'")["value"].iloc[0])
    assert {**checksums(memorised), **checksums(original)} == before
    code, _, err = memloc(
        "repair", "found", "--out", "twin", "--candidate", "twin", "--workers", "1"
    )
    assert code == 0, err
    texts = rows["text"].tolist()
    assert answers(Path("twin"), texts) == answers(original, texts)
    assert answers(Path("twin"), texts) != answers(memorised, texts)


def test_a_model_of_one_layer_has_no_control_window(memloc: Any, tmp_path: Path) -> None:
    tiny_model("gpt_neox", layers=1).save_pretrained("tiny")
    tiny_tokenizer().save_pretrained("tiny")
    labelled_rows(30).to_csv("words.csv", index=False)
    code, _, err = memloc(
        *("run", "--model", "tiny", "--task", "words.csv", "--epochs", "2", "--workers", "1"),
        *("--learning-rate", "1e-3", "--techniques", "swapping", "--no-explain"),
    )
    assert code == 0, err
    result = next(Path("runs").glob("words-*"))
    code, out, err = memloc("repair", result, "--out", "fixed", "--workers", "1", "--json")
    assert code == 0, err
    summary = json.loads(out)
    assert [one["candidate"] for one in summary["candidates"]] == [
        name for name in NAMES if name != "control-window"
    ]
    why = "the swapped window has all layers, so there is no other of its size"
    assert summary["left_out"] == {"control-window": why}
    answer = memloc("repair", result, "--out", "other", "--candidate", "control-window")
    words = f"--candidate 'control-window' is not possible: {why}; choose another"
    assert_one_sentence(*answer, words)
    assert not Path("other").exists()


# --- bad input: one sentence, exit code 2, nothing written ---------------------------------------


def full(repaired: Repaired) -> tuple[Any, ...]:
    Path("full").mkdir()
    Path("full/mine.txt").touch()
    return repaired.result, "--out", "full"


def without_swapping(repaired: Repaired) -> tuple[Any, ...]:
    found = library.load(repaired.result)
    tables = {
        name: table[table["technique"] != "swapping"] if "technique" in table else table
        for name, table in found.tables.items()
    }
    write_results(Path("runs/bare"), tables, found.summary, found.settings, [])
    return "runs/bare", "--out", "new"


def in_memory(repaired: Repaired) -> tuple[Any, ...]:
    found = library.load(repaired.result)
    settings = {"memorised": "in memory", "data": "in memory", "in_memory": True}
    write_results(Path("memory"), dict(found.tables), found.summary, settings)
    return "memory", "--out", "new"


def copied(repaired: Repaired) -> tuple[Any, ...]:
    library.load(repaired.result).save("copy")
    return "copy", "--out", "new"


def changed(repaired: Repaired) -> tuple[Any, ...]:
    """The settings are those of another run than the one in artefacts.json."""
    found = library.load(repaired.result)
    settings = json.loads(json.dumps(found.settings))
    settings["training"]["learning_rate"] = 1e-3
    write_results(Path("runs/changed"), dict(found.tables), found.summary, settings, [])
    return "runs/changed", "--out", "new"


def gone(repaired: Repaired) -> tuple[Any, ...]:
    found = library.load(repaired.result)
    settings = json.loads(json.dumps(found.settings))
    settings["model"]["name"] = "/nowhere/tiny"
    write_results(Path("runs/gone"), dict(found.tables), found.summary, settings, [])
    return "runs/gone", "--out", "new"


def other_head(repaired: Repaired) -> tuple[Any, ...]:
    found = library.load(repaired.result)
    settings = json.loads(json.dumps(found.settings))
    settings["model"]["head"] = "paper"
    write_results(Path("runs/head"), dict(found.tables), found.summary, settings, [])
    return "runs/head", "--out", "new"


def empty(repaired: Repaired) -> tuple[Any, ...]:
    Path("nothing").mkdir()
    return "nothing", "--out", "new"


BAD = {
    "full": (full, "'full' is not empty; give a new folder for the repaired model"),
    "file": (
        lambda found: (found.result, "--out", found.folder / "README.md"),
        "is a file; give a folder",
    ),
    "inside": (
        lambda found: (found.result, "--out", found.result / "fixed"),
        "in which nothing is changed; give another folder",
    ),
    "no result": (empty, "'nothing' has no finished result (summary.json and settings.json)"),
    "no folder": (lambda found: ("nowhere", "--out", "new"), "there is no folder 'nowhere'"),
    "seed": (
        lambda found: (found.result, "--out", "new", "--seed", "7"),
        "--seed 7 is not possible: the result has no such seed; it has 1, 2",
    ),
    "candidate": (
        lambda found: (found.result, "--out", "new", "--candidate", "best"),
        "--candidate 'best' is not possible: it has to be 'swapped-window', 'retrained-window'",
    ),
    "swapping": (without_swapping, "the result has no swapping, which says which layers to swap"),
    "memory": (in_memory, "the models of this result were in memory"),
    "copy": (copied, "'copy' has no artefacts.json, which says where its models are; give the"),
    "changed": (changed, "the model, the data or memloc have changed since 'runs/changed' was"),
    "gone": (
        gone,
        "'runs/gone' cannot be repaired without its model and its data: model directory "
        "'/nowhere/tiny' does not exist",
    ),
    "head": (other_head, "the model has the head of the authors' program"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_repaired_is_one_sentence_and_leaves_nothing(
    case: str, repaired: Repaired, memloc: Any, tmp_path: Path
) -> None:
    make, words = BAD[case]
    answer = memloc("repair", *make(repaired), "--workers", "1")
    assert_one_sentence(*answer, words)
    assert not Path("new").exists()
    assert not list(tmp_path.rglob("*.safetensors"))


def test_the_control_benchmark_is_not_repaired(memloc: Any, finished: Finished) -> None:
    answer = memloc("repair", finished.control, "--out", "new")
    assert_one_sentence(*answer, "results of `memloc control` are of many models")


def test_a_candidate_that_fails_leaves_the_others_and_a_sentence(
    memloc: Any, finished: Finished, tmp_path: Path
) -> None:
    result = finished.copy_to(tmp_path / "runs")
    settings = json.loads((result / "settings.json").read_text())
    settings["techniques"]["retraining"]["learning_rate"] = 1e18
    found = library.load(result)
    write_results(result, dict(found.tables), found.summary, settings,
                  json.loads((result / "artefacts.json").read_text()))  # fmt: skip
    command = ("repair", result, "--workers", "1", "--out")
    code, out, err = memloc(*command, "fixed")
    assert code == 2
    failure = err.splitlines()[-1]
    assert "retrained-window failed: the loss became nan in epoch 1; lower it" in failure
    assert "retrained-window" not in out
    assert {path.name for path in Path("fixed").iterdir()} == FILES
    code, out, err = memloc(*command, "other", "--candidate", "retrained-window")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == failure
    assert not Path("other").exists()
