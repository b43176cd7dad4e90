"""The command line as a user meets it: results, and one sentence for every kind of bad input."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from memloc.results.folders import write_results
from tests.conftest import Finished, assert_one_sentence, labelled_rows
from tests.tiny_models import save_pair, tiny_model, tiny_tokenizer

QUICK = [
    *("--limit", "90", "--epochs", "2", "--learning-rate", "1e-3", "--workers", "1"),
    *("--probing.epochs", "2", "--probing.seeds", "2"),
    *("--probing.least_steps", "0", "--probing.fitted_at", "0"),
]
QUICK_LOCALISE = [
    *("--workers", "1", "--probing.epochs", "3", "--probing.seeds", "2"),
    *("--probing.least_steps", "0", "--probing.fitted_at", "0"),
    *("--learning-rate", "1e-3", "--epochs", "2"),
]


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


def save_model(name: str, architecture: str, **settings: object) -> None:
    tiny_model(architecture, **settings).save_pretrained(name)
    tiny_tokenizer().save_pretrained(name)


def test_run_shows_a_summary_of_80_columns_and_keeps_the_tables(
    memloc, finished: Finished, tmp_path: Path
) -> None:
    folder = finished.copy_to(tmp_path / "runs")
    code, out, _ = memloc(*finished.run_words)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    for words in ("flipped labels", "validation", "size  3", "M-CoG", "Results: runs/words-"):
        assert words in out
    assert f"Report: runs/{folder.name}/report.html\n  open it in a browser, or add --open" in out
    assert "<title>memloc: tiny-bert on words</title>" in (folder / "report.html").read_text()
    assert re.search(r"Nothing to compute: all \d+ jobs were in the store already.", out)
    tables = {path.stem: pd.read_parquet(path) for path in finished.run.glob("*.parquet")}
    assert set(tables) == {
        *("windows", "layers", "predictions", "examples", "history", "dynamics", "costs"),
        *("retraining", "gradients", "probes"),
        *("centroids", "trajectories", "events", "crossings", "pairs", "class_probes"),
    }
    noisy = json.loads((folder / "summary.json").read_text())["noisy_examples"]
    assert noisy == 11
    seeds, windows = 2, 6
    assert len(tables["windows"]) == seeds * 2 * windows
    # Swapping and retraining see the noisy examples and as many clean ones.
    assert len(tables["predictions"]) == seeds * windows * 2 * (2 * noisy)
    assert tables["layers"].groupby("technique").size().to_dict() == dict.fromkeys(
        ["swapping", "retraining", "gradients", "probing"], seeds * 3
    )
    # MLP and linear probes, layers 0-3 and θ_P, two seeds of probes.
    assert len(tables["probes"]) == seeds * 2 * (3 + 2) * 2


def test_by_default_both_models_train_until_the_labels_are_learned(memloc) -> None:
    save_model("tiny", "bert")
    labelled_rows(60).to_csv("words.csv", index=False)
    code, out, err = memloc(
        *("run", "--model", "tiny", "--task", "words.csv", "--learning-rate", "3e-3"),
        *("--training.memorised_at", "0.4", "--training.most_epochs", "30", "--workers", "1"),
        *("--techniques", "swapping,gradients", "--no-explain", "--seeds", "1,2"),
    )
    assert code == 0, err
    folder = next(Path("runs").glob("words-*"))
    history = pd.read_parquet(folder / "history.parquet")
    ends = history.groupby(["seed", "state"])["epoch"].max()
    for seed in (1, 2):
        rows = history.query("seed == @seed and state == 'memorised' and split == 'train'")
        learned = rows.loc[rows["accuracy"] > 0.4, "epoch"].min()
        end = learned + max(3, -(-learned // 2))
        assert ends[seed, "memorised"] == ends[seed, "original"] == end < 30
    assert ends[1, "frozen"] == 30
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["training"]["epochs"] == max(ends[:, "memorised"])
    last = history[history["epoch"] == history.groupby(["seed", "state"])["epoch"].transform("max")]
    noisy = last.query("state == 'memorised' and split == 'noisy'")["accuracy"]
    assert summary["training"]["noisy_accuracy"] == pytest.approx(noisy.mean())
    assert json.loads((folder / "settings.json").read_text())["training"]["epochs"] == "auto"
    code, out, err = memloc("run", "--config", str(folder / "settings.json"), "--json")
    assert json.loads(out)["jobs"]["computed"] == 0


def test_json_is_the_only_thing_on_standard_output(
    memloc, finished: Finished, tmp_path: Path
) -> None:
    finished.copy_to(tmp_path / "runs")
    code, out, err = memloc(*finished.run_words, "--json")
    assert code == 0, err
    summary = json.loads(out)
    result = summary["techniques"]["swapping"]
    assert Path(summary["report"]).is_file()
    assert len(result["m_cog_per_seed"]) == 2
    assert len(result["error_by_size_and_layer"]) == summary["layers"] == 3
    attention, mlp, norms = 4 * (32 * 32 + 32), 32 * 48 + 48 + 48 * 32 + 32, 2 * 2 * 32
    assert (summary["width"], summary["layer_parameters"]) == (32, 3 * (attention + mlp + norms))


def test_localise_writes_the_tables_it_promises(memloc, tmp_path: Path) -> None:
    memorised, original = save_pair(tmp_path, "bert", layers=3)
    labelled_rows(24).to_json(tmp_path / "data.jsonl", orient="records", lines=True)
    arguments = ("--memorised", memorised, "--original", original, "--data", "data.jsonl")
    code, out, err = memloc("localise", *arguments, "--out", "found")
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    columns = {
        "windows": "technique first_layer last_layer size noisy_error clean_error",
        "predictions": "technique first_layer last_layer example predicted",
        "layers": "technique layer weight spread",
    }
    for name, expected in columns.items():
        table = pd.read_parquet(tmp_path / "found" / f"{name}.parquet")
        assert table.columns.tolist() == expected.split()
    assert "Report: found/report.html" in out
    stored = {path.parts[-3:-1] for path in Path("found/store").glob("*/*/manifest.json")}
    assert {tuple(pair) for pair in json.loads(Path("found/artefacts.json").read_text())} == stored
    assert memloc("store", "export", "found", "-o", "found.tar")[0] == 0  # the store is its own
    assert memloc("store", "import", "found.tar", "--runs", "theirs")[0] == 0
    assert memloc("report", "theirs/found")[0] == 0


@pytest.mark.slow
def test_localise_applies_all_techniques_when_it_has_the_pretrained_model(
    memloc, tmp_path: Path
) -> None:
    memorised, original = save_pair(tmp_path, "gpt_neox", layers=2)
    save_model("pretrained", "gpt_neox", layers=2, seed=7)
    save_model("early", "gpt_neox", layers=2, seed=8)
    labelled_rows(48).to_csv("data.csv", index=False)
    arguments = ("localise", "--memorised", memorised, "--original", original, "--data", "data.csv",
                 "--pretrained", "pretrained", "--out", "found", *QUICK_LOCALISE,
                 "--retraining.epochs", "1", "--no-explain")  # fmt: skip
    code, out, err = memloc(*arguments, "--json")
    assert code == 0, err
    summary = json.loads(out)
    assert list(summary["techniques"]) == ["swapping", "retraining", "gradients", "probing"]
    assert len(summary["agreement"]["pairs"]) == 6
    layers = pd.read_parquet("found/layers.parquet")
    costs = pd.read_parquet("found/costs.parquet").set_index("job")
    assert (costs.loc[["swapping", "retraining", "gradients"], "block_passes"] > 0).all()
    # Another θ_M1 changes the gradients and nothing else; what is done is not done again.
    code, out, err = memloc(*arguments, "--near-ceiling", "early")
    assert code == 0, err
    again = pd.read_parquet("found/layers.parquet")
    same = (layers["weight"] == again["weight"]).groupby(layers["technique"]).all()
    assert same.to_dict() == {
        **dict.fromkeys(("swapping", "retraining", "probing"), True),
        "gradients": False,
    }


def test_techniques_that_need_the_pretrained_model_say_so(memloc, tmp_path: Path) -> None:
    memorised, original = save_pair(tmp_path, "bert", layers=3)
    labelled_rows(48).to_csv("data.csv", index=False)
    arguments = ("localise", "--memorised", memorised, "--original", original, "--data", "data.csv")
    answer = memloc(*arguments, "--techniques", "swapping,retraining", "--out", "found")
    words = "--pretrained: retraining needs the model before fine-tuning; give it, or leave"
    assert_one_sentence(*answer, words)
    assert not Path("found").exists()


def test_tasks_lists_the_built_in_and_the_paper_tasks(memloc) -> None:
    code, out, _ = memloc("tasks")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    for name in ("questions", "entailment", "wic", "stormfront", "trec"):
        assert name in out
    assert len(json.loads(memloc("tasks", "--json")[1])) == 17


def test_models_check_describes_and_refuses_in_words(memloc, tiny_folder: Path) -> None:
    code, out, _ = memloc("models", "check", tiny_folder)
    assert code == 0
    for words in ("3, in encoder.layer", "the first token", "fast: shared"):
        assert words in out
    assert re.search(r"swapping needs +about [\d.]+ MB; in low-memory mode [\d.]+ MB", out)
    width = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    save_model("albert", "albert", embedding_size=16, **width)
    answer = memloc("models", "check", "./albert")
    assert answer[0] == 2
    assert "same weights in every layer" in answer[2]


def test_results_replace_those_before_completely_or_not_at_all(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [1]})
    write_results(tmp_path, {"gradients": table, "both": table}, {"x": 1}, {})
    (tmp_path / "mine.parquet").touch()
    write_results(tmp_path, {"both": table}, {"x": 1}, {})
    expected = {"both.parquet", "mine.parquet"}
    expected |= {"summary.json", "settings.json", "checksums.json"}
    assert files(tmp_path) == expected
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_results(tmp_path, {"both": table + 1}, {"x": float("nan")}, {})
    assert pd.read_parquet(tmp_path / "both.parquet")["a"].tolist() == [1]
    assert files(tmp_path) == expected


# --- bad input: one sentence, exit code 2, nothing written ---------------------------------------

BAD_OPTIONS = {
    "epochs are a word": (
        ["--epochs", "many"],
        "--epochs 'many' is not possible: it has to be a whole number or auto",
    ),
    "checkpoints of an open end": (
        ["--epochs", "auto", "--checkpoints", "2"],
        "--epochs 'auto' is not possible: checkpoints need a number of epochs that is known "
        "before; give a number",
    ),
    "missing file": (["--task", "nothere.csv"], "there is no file nothere.csv"),
    "unknown task": (["--task", "questoins"], "did you mean 'questions'"),
    "useless noise": (
        ["--task", "known.csv", "--noise", "0.3"],
        "--noise 0.3 is not possible: it has no meaning as 'known.csv' has original labels",
    ),
    "unknown model": (["--model", "minilmm"], "did you mean 'minilm'"),
    "missing model": (["--model", "./nowhere"], "model directory 'nowhere' does not exist"),
    "no tokeniser": (["--model", "./notokeniser"], "is not a directory with a tokeniser"),
    "unknown technique": (
        ["--techniques", "swapping,retaining"],
        "technique 'retaining' does not exist; did you mean 'retraining'?",
    ),
    "absent device": (["--device", "mps"], "--device 'mps' is not possible: it is not available"),
    "window too large": (
        ["--windows", "2,4"],
        "--windows 4 is not possible: the model has 3 layers, so windows have 1 to 3 layers",
    ),
    "too few to probe": (
        ["--limit", "40"],
        "probing is not possible: at least 10 noisy examples are needed and there are 4; leave the "
        "technique out",
    ),
    "mostly noise": (
        ["--limit", "90", "--noise", "0.6"],
        "retraining is not possible: more clean examples than noisy ones are needed",
    ),
    "unwritable": (["--runs", "known.csv"], "cannot write to 'known.csv/store'"),
    "wrong blocks": (["--blocks", "encoder.layers"], "did you mean 'encoder.layer'"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_bad_options_are_one_sentence(case: str, memloc, tiny_folder: Path, tmp_path: Path) -> None:
    labelled_rows(30).to_csv("known.csv", index=False)
    options, words = BAD_OPTIONS[case]
    if "./notokeniser" in options:
        shutil.copytree(tiny_folder, "notokeniser", ignore=shutil.ignore_patterns("tokenizer*"))
    limit = [] if {"--limit", "--task"} & set(options) else ["--limit", "90"]
    before = files(tmp_path)
    answer = memloc("run", "--model", tiny_folder, *limit, "--workers", "1", *options)
    assert_one_sentence(*answer, words)
    left = files(tmp_path) - before
    assert not any(name.endswith((".parquet", ".safetensors")) for name in left)


def save_foreign(name: str) -> None:
    """A model whose tokeniser knows one more word."""
    save_model(name, "bert", layers=2)
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["zebra"])
    tokenizer.save_pretrained(name)


def save_headless(name: str) -> None:
    tiny_model("bert", layers=2).bert.save_pretrained(name)
    tiny_tokenizer().save_pretrained(name)


BAD_TWINS: dict[str, tuple[Callable[[str], None], str]] = {
    "other classes": (
        lambda name: save_model(name, "bert", layers=2, labels=2),
        "number of classes is 3 in 'memorised' but 2 in 'other'",
    ),
    "other architecture": (
        lambda name: save_model(name, "roberta", layers=2),
        "architecture is BertForSequenceClassification",
    ),
    "other vocabulary": (save_foreign, "have different vocabularies"),
    "no head": (save_headless, "give a fine-tuned sequence-classification model"),
}


@pytest.mark.parametrize("case", BAD_TWINS)
def test_models_that_do_not_fit_are_one_sentence(case: str, memloc, tmp_path: Path) -> None:
    save_pair(tmp_path, "bert", layers=2)
    save, words = BAD_TWINS[case]
    save("other")
    labelled_rows(20).to_csv("data.csv", index=False)
    code, out, err = memloc("localise", "--memorised", "memorised", "--original", "other",
                            "--data", "data.csv", "--out", "out")  # fmt: skip
    assert_one_sentence(code, out, err[err.index("memloc: ") :], words)
    assert not Path("out").exists()


BAD_LOCALISE_DATA = {
    "no original labels": ("text,label\na film,0\ngood,1\n", "no column with the original labels"),
    "unknown class": (
        "text,label,original_label\na film,0,1\ngood,7,1\n",
        "label '7' in row 1 of data.csv",
    ),
    "missing": (None, "there is no file data.csv; check the path"),
}


@pytest.mark.parametrize("case", BAD_LOCALISE_DATA)
def test_bad_data_for_localise_is_one_sentence(case: str, memloc, tmp_path: Path) -> None:
    save_pair(tmp_path, "bert", layers=2)
    text, words = BAD_LOCALISE_DATA[case]
    if text is not None:
        Path("data.csv").write_text(text)
    code, out, err = memloc("localise", "--memorised", "memorised", "--original", "original",
                            "--data", "data.csv", "--out", "out")  # fmt: skip
    assert_one_sentence(code, out, err[err.index("memloc: ") :], words)
    assert not Path("out").exists()


def test_a_defect_is_one_sentence_and_exit_code_1(memloc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memloc.data.load.named_tasks", lambda: 1 / 0)
    code, _, err = memloc("tasks")
    assert code == 1
    assert err.startswith("memloc: unexpected ZeroDivisionError")
    assert err.count("\n") == 1


def test_the_details_of_a_defect_go_to_a_new_file_and_never_through_a_link(
    memloc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    temporary, victim = tmp_path / "temporary", tmp_path / "victim"
    temporary.mkdir()
    victim.write_text("precious")
    (temporary / "memloc-error.log").symlink_to(victim)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr("memloc.data.load.named_tasks", lambda: 1 / 0)
    logs = [Path(memloc("tasks")[2].split()[-1]) for _ in range(2)]
    assert victim.read_text() == "precious"
    assert logs[0] != logs[1]
    for log in logs:
        assert "ZeroDivisionError" in log.read_text()
        assert log.stat().st_mode & 0o077 == 0


def test_texts_that_are_cut_are_counted_and_wrong_labels_not_called_flipped(
    memloc, tiny_folder: Path
) -> None:
    rows = labelled_rows(90).assign(text_pair="the king")
    rows.loc[:44, "text"] = rows["text"] + " the city" * 20
    rows.to_csv("pairs.csv", index=False)
    short = (
        "--training.max_tokens",
        "16",
        "--techniques",
        "swapping",
        "--pair-column",
        "text_pair",
    )
    code, out, err = memloc("run", "--model", tiny_folder, "--task", "pairs.csv", *QUICK, *short)
    assert code == 0, err
    said = " ".join(out.split())
    folder = next(Path("runs").glob("pairs-*"))
    summary = json.loads((folder / "summary.json").read_text())
    share = summary["cut_share"]
    assert 0.4 < share < 0.7  # half of the examples, a fifth of which is for validation
    assert f"Caution: {share:.0%} of the examples were too long and were cut" in said
    costs = pd.read_parquet(folder / "costs.parquet").set_index("job")
    assert costs.loc["memorised", "cut_share"] == share
    assert summary["noise"] == "wrong"
    assert "fine-tuned on wrong labels" in said
    assert "flipped" not in said
    data = (folder / "report.html").read_text().split('id="data"')[1].split("</script>")[0]
    assert "flipped" not in data
    validation = re.search(r"Validation accuracy is [\d.]+% with the wrong labels and", said)
    assert validation is not None
