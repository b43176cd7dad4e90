"""The command line as a user meets it: results, and one sentence for every kind of bad input."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pandas as pd
import pytest
import torch

from memloc.results.folders import write_results
from tests.conftest import assert_one_sentence, labelled_rows
from tests.tiny_models import save_pair, tiny_model, tiny_tokenizer

QUICK = [
    *("--limit", "90", "--epochs", "2", "--learning-rate", "1e-3", "--workers", "1"),
    *("--probing.epochs", "2", "--probing.seeds", "2"),
]


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


def test_run_shows_a_summary_of_80_columns_and_keeps_the_tables(memloc, tiny_folder: Path) -> None:
    code, out, _ = memloc("run", "--model", tiny_folder, "--task", "topics", *QUICK)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    for words in ("flipped labels", "validation", "size  3", "M-CoG", "Results: runs/topics-"):
        assert words in out
    folder = next(Path("runs").glob("topics-*"))
    assert f"Report: {folder}/report.html\n  open it in a browser, or add --open" in out
    assert "<title>memloc: tiny-bert on topics</title>" in (folder / "report.html").read_text()
    tables = {path.stem: pd.read_parquet(path) for path in folder.glob("*.parquet")}
    assert set(tables) == {
        *("windows", "layers", "predictions", "examples", "history", "costs"),
        *("retraining", "gradients", "probes"),
        *("centroids", "trajectories", "events", "crossings", "pairs", "class_probes"),
    }
    summary = json.loads((folder / "summary.json").read_text())
    noisy = summary["noisy_examples"]
    assert noisy == 12
    assert len(tables["windows"]) == 2 * 6
    assert len(tables["predictions"]) == 6 * 90 + 6 * 2 * noisy  # swapping sees all examples
    assert tables["layers"].groupby("technique").size().to_dict() == dict.fromkeys(
        ["swapping", "retraining", "gradients", "probing"], 3
    )
    assert len(tables["probes"]) == 2 * (3 + 2) * 2  # MLP and linear, layers 0-3 and θ_P, 2 seeds
    code, out, _ = memloc("run", "--model", tiny_folder, "--task", "topics", *QUICK)
    assert "Nothing to compute: all 19 jobs were in the store already." in out


def test_json_is_the_only_thing_on_standard_output(memloc, tiny_folder: Path) -> None:
    code, out, err = memloc("run", "--model", tiny_folder, *QUICK, "--seeds", "1,2", "--json",
                            "--techniques", "swapping", "--no-explain")  # fmt: skip
    assert code == 0
    summary = json.loads(out)
    result = summary["techniques"]["swapping"]
    assert Path(summary["report"]).is_file()
    assert len(result["m_cog_per_seed"]) == 2
    assert len(result["error_by_size_and_layer"]) == summary["layers"] == 3
    assert re.search(r" end: (\d+) of \1 done in ", err)


def test_known_noise_is_used_as_it_is(memloc, tiny_folder: Path, tmp_path: Path) -> None:
    rows = labelled_rows(60).rename(columns={"original_label": "gold"})
    rows.to_csv(tmp_path / "mine.csv", index=False)
    code, out, err = memloc(
        "run", "--model", tiny_folder, "--task", "mine.csv", "--original-label-column", "gold",
        "--epochs", "2", "--workers", "1", "--techniques", "swapping", "--json",
    )  # fmt: skip
    assert code == 0, err
    summary = json.loads(out)
    examples = pd.read_parquet(Path(summary["folder"]) / "examples.parquet")
    noisy = rows[rows["label"] != rows["gold"]]
    assert set(examples["example"]) <= set(noisy.index)
    assert examples["text"].tolist() == rows.loc[examples["example"], "text"].tolist()


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
    assert pd.read_parquet("found/layers.parquet")["layer"].tolist() == [1, 2, 3]
    assert "Report: found/report.html" in out
    assert Path("found/report.html").is_file()
    stored = {path.parts[-3:-1] for path in Path("found/store").glob("*/*/manifest.json")}
    assert {tuple(pair) for pair in json.loads(Path("found/artefacts.json").read_text())} == stored
    assert memloc("store", "export", "found", "-o", "found.tar")[0] == 0  # the store is its own
    assert memloc("store", "import", "found.tar", "--runs", "theirs")[0] == 0
    assert memloc("report", "theirs/found")[0] == 0


QUICK_LOCALISE = [
    *("--workers", "1", "--probing.epochs", "3", "--probing.seeds", "2"),
    *("--learning-rate", "1e-3", "--epochs", "2"),
]


def test_localise_applies_all_techniques_when_it_has_the_pretrained_model(
    memloc, tmp_path: Path
) -> None:
    memorised, original = save_pair(tmp_path, "gpt_neox", layers=4)
    for seed, name in ((7, "pretrained"), (8, "early")):
        tiny_model("gpt_neox", layers=4, seed=seed).save_pretrained(name)
        tiny_tokenizer().save_pretrained(name)
    rows = labelled_rows(48)
    rows.to_csv("data.csv", index=False)
    arguments = ("localise", "--memorised", memorised, "--original", original, "--data", "data.csv",
                 "--pretrained", "pretrained", "--out", "found", *QUICK_LOCALISE)  # fmt: skip
    code, out, err = memloc(*arguments, "--json")
    assert code == 0, err
    summary = json.loads(out)
    assert list(summary["techniques"]) == ["swapping", "retraining", "gradients", "probing"]
    assert len(summary["agreement"]["pairs"]) == 6
    layers = pd.read_parquet("found/layers.parquet")
    assert layers.groupby("technique").size().tolist() == [4] * 4
    costs = pd.read_parquet("found/costs.parquet").set_index("job")
    assert (costs.loc[["swapping", "retraining", "gradients"], "block_passes"] > 0).all()
    # Another θ_M1 changes the gradients and nothing else; what is done is not done again.
    code, out, err = memloc(*arguments, "--near-ceiling", "early")
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
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
    code, out, err = memloc(*arguments, "--techniques", "swapping,retraining", "--out", "found")
    assert_one_sentence(
        code,
        out,
        err,
        "--pretrained: retraining needs the model before fine-tuning; give it, or leave",
    )
    assert not Path("found").exists()


def test_window_sizes_limit_the_work_and_keep_the_full_window(memloc, tiny_folder: Path) -> None:
    run = ("run", "--model", tiny_folder, *QUICK, "--techniques", "swapping,retraining")
    run = (*run, "--retraining.epochs", "1")
    code, _, err = memloc(*run, "--window-sizes", "1")
    assert code == 0, err
    windows = pd.read_parquet(next(Path("runs").glob("*/windows.parquet")))
    assert windows.groupby("technique")["size"].apply(list).to_dict() == {
        "retraining": [1, 1, 1, 3],
        "swapping": [1, 1, 1, 3],
    }
    # All windows later: those of size 1 and the full one are there already.
    code, out, err = memloc(*run, "--json")
    assert json.loads(out)["jobs"] == {"computed": 4, "reused": 12}


def test_a_small_cache_memory_gives_the_same_result_from_a_file(memloc, tiny_folder: Path) -> None:
    run = ("run", "--model", tiny_folder, *QUICK, "--techniques", "retraining", "--no-explain")
    run = (*run, "--retraining.epochs", "1", "--window-sizes", "1")
    for folder, limit in (("one", "1GB"), ("two", "0KB")):
        assert memloc(*run, "--runs", folder, "--cache-memory", limit)[0] == 0
    tables = [pd.read_parquet(next(Path(f).glob("*/predictions.parquet"))) for f in ("one", "two")]
    pd.testing.assert_frame_equal(*tables)
    assert not list(Path("two/store/.cache").iterdir())


def test_models_that_pad_differently_give_the_same_gradients(memloc, tmp_path: Path) -> None:
    memorised, original = save_pair(tmp_path, "llama", layers=3)
    for name, pad in (("same", 0), ("other", 4)):
        tiny_model("llama", layers=3, seed=7, pad_token_id=pad).save_pretrained(name)
        tokenizer = tiny_tokenizer()
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(pad)
        tokenizer.save_pretrained(name)
    labelled_rows(48).to_csv("data.csv", index=False)
    weights = []
    for name in ("same", "other"):
        code, _, err = memloc(
            *("localise", "--memorised", memorised, "--original", original, "--data", "data.csv"),
            *("--pretrained", name, "--out", name + "-found", *QUICK_LOCALISE),
            *("--techniques", "gradients", "--no-explain"),
        )
        assert code == 0, err
        weights.append(pd.read_parquet(name + "-found/layers.parquet")["weight"])
    pd.testing.assert_series_equal(*weights, rtol=1e-4)


def test_tables_of_an_earlier_call_do_not_stay_beside_new_ones(memloc, tmp_path: Path) -> None:
    memorised, original = save_pair(tmp_path, "bert", layers=3)
    labelled_rows(48).to_csv("data.csv", index=False)
    Path("found").mkdir()
    write("found/mine.parquet", b"not yours")
    arguments = ("localise", "--memorised", memorised, "--original", original, "--data", "data.csv",
                 "--pretrained", original, "--out", "found", "--no-explain", *QUICK_LOCALISE)  # fmt: skip  # noqa: E501
    assert memloc(*arguments, "--techniques", "gradients")[0] == 0
    assert Path("found/gradients.parquet").exists()
    assert memloc(*arguments, "--techniques", "swapping")[0] == 0
    assert not Path("found/gradients.parquet").exists()
    assert Path("found/windows.parquet").exists()
    assert Path("found/mine.parquet").exists()


def test_a_head_that_reads_no_single_token_cannot_be_probed(memloc, tmp_path: Path) -> None:
    tiny_model("modernbert", layers=3, classifier_pooling="mean").save_pretrained("mean")
    tiny_tokenizer().save_pretrained("mean")
    answer = memloc("run", "--model", "./mean", *QUICK)
    assert_one_sentence(*answer, "probing is not possible: the head of this model does not read")
    assert not list(Path("runs").rglob("*.safetensors"))
    code, _, err = memloc("run", "--model", "./mean", *QUICK, "--window-sizes", "1", "--techniques",
                          "swapping,retraining,gradients", "--retraining.epochs", "1")  # fmt: skip
    assert code == 0, err


def test_a_technique_that_fails_leaves_the_results_of_the_others(memloc, tmp_path: Path) -> None:
    memorised, original = save_pair(tmp_path, "bert", layers=3)
    broken = tiny_model("bert", layers=3, seed=5)
    with torch.no_grad():
        # Finite, so that it can be loaded, but too large to compute with; and only a text with the
        # last word of the vocabulary shows it.
        broken.bert.embeddings.word_embeddings.weight[-1] = 3e38
    broken.save_pretrained("broken")
    tiny_tokenizer().save_pretrained("broken")
    labelled_rows(48).to_csv("data.csv", index=False)
    code, out, err = memloc(
        *("localise", "--memorised", memorised, "--original", original, "--data", "data.csv"),
        *("--pretrained", memorised, "--near-ceiling", "broken", "--out", "found", *QUICK_LOCALISE),
        *("--techniques", "swapping,gradients"),
    )
    assert code == 2
    assert "gradients failed: the loss of the model is nan" in err.splitlines()[-1]
    assert "swapping" in out
    assert set(pd.read_parquet("found/layers.parquet")["technique"]) == {"swapping"}


def test_class_names_of_the_model_may_stand_in_the_file(memloc, tmp_path: Path) -> None:
    for seed, name in enumerate(("a", "b")):
        model = tiny_model("bert", seed=seed)
        model.config.id2label = {0: "zero", 1: "one", 2: "two"}
        model.save_pretrained(tmp_path / name)
        tiny_tokenizer().save_pretrained(tmp_path / name)
    rows = labelled_rows(24)
    arguments = ("--memorised", "a", "--original", "b", "--json")
    rows.to_csv("numbers.csv", index=False)
    _, numbers, _ = memloc("localise", *arguments, "--data", "numbers.csv", "--out", "n")
    names = {0: "zero", 1: "one", 2: "two"}
    rows["label"] = rows["label"].map(names)
    rows["original_label"] = rows["original_label"].map(names)
    rows.to_csv("names.csv", index=False)
    _, named, _ = memloc("localise", *arguments, "--data", "names.csv", "--out", "n")
    call = {"jobs", "seconds"}  # about the call, not about the result
    one, other = json.loads(numbers), json.loads(named)
    assert {k: v for k, v in one.items() if k not in call} == {
        k: v for k, v in other.items() if k not in call
    }


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
    albert = tiny_model("albert", hidden_size=32, num_attention_heads=4, intermediate_size=48,
                        embedding_size=16)  # fmt: skip
    albert.save_pretrained("albert")
    tiny_tokenizer().save_pretrained("albert")
    code, _, err = memloc("models", "check", "./albert")
    assert code == 2
    assert "same weights in every layer" in err


def test_a_tokeniser_without_padding_token_is_handled(memloc, tmp_path: Path) -> None:
    model = tiny_model("llama", pad_token_id=None)
    model.save_pretrained("llama")
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"eos_token": "[EOS]"})
    tokenizer.pad_token = None
    tokenizer.save_pretrained("llama")
    code, out, err = memloc("models", "check", "./llama", "--json")
    assert code == 0, err
    assert json.loads(out)["padding_token"] == "[EOS]"
    code, out, err = memloc("run", "--model", "./llama", *QUICK, "--window-sizes", "1",
                            "--retraining.epochs", "1")  # fmt: skip
    assert code == 0, err


# --- bad input: one sentence, exit code 2, nothing written ---------------------------------------


def write(name: str, text: str | bytes) -> str:
    Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    return name


GOOD = "text,label\n" + "".join(f"some words {i},{'ab'[i % 2]}\n" for i in range(40))

BAD_DATA = {
    "missing file": (lambda: "nothere.csv", "there is no file nothere.csv"),
    "empty file": (lambda: write("e.csv", ""), "e.csv is empty"),
    "header only": (lambda: write("h.csv", "text,label\n"), "h.csv has no rows"),
    "pipe": (lambda: os.mkfifo("p.csv") or "p.csv", "p.csv is not a regular file"),
    "one class": (lambda: write("o.csv", "text,label\nx y,a\nz w,a\n"), "one class only"),
    "single example": (
        lambda: write("s.csv", GOOD + "lonely,c\n"),
        "the class 'c' has a single example",
    ),
    "empty text": (lambda: write("t.csv", GOOD + '"  ",a\n'), "row 40 of t.csv"),
    "not text": (
        lambda: write("n.jsonl", '{"text": 3, "label": "a"}\n'),
        "is 3, which is not a text",
    ),
    "broken line": (
        lambda: write("b.jsonl", '{"text": "x", "label": "a"}\n{"text": \n'),
        "broken JSON in line 2",
    ),
    "wrong encoding": (
        lambda: write("l.csv", "text,label\ncaf\xe9,a\n".encode("latin1")),
        "l.csv is not UTF-8",
    ),
    "unknown task": (lambda: "questoins", "did you mean 'questions'"),
    "unreadable ending": (lambda: write("x.xlsx", "x"), "x.xlsx has an ending"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_is_one_sentence(case: str, memloc, tiny_folder: Path, tmp_path: Path) -> None:
    make, words = BAD_DATA[case]
    task = make()
    before = files(tmp_path)
    answer = memloc("run", "--model", tiny_folder, "--task", task)
    assert_one_sentence(*answer, words)
    assert files(tmp_path) == before


BAD_OPTIONS = {
    "misspelt column": (["--task", "good.csv", "--text-column", "txt"], "did you mean 'text'"),
    "noise above one": (["--noise", "1.5"], "--noise 1.5 is not possible"),
    "noise of zero": (["--noise", "0"], "--noise 0"),
    "no example noisy": (["--limit", "30"], "makes no example of 'questions' noisy"),
    "unknown model": (["--model", "minilmm"], "did you mean 'minilm'"),
    "missing model": (["--model", "./nowhere"], "model directory 'nowhere' does not exist"),
    "empty model": (["--model", "./empty"], "has no config.json"),
    "no weights": (["--model", "./noweights"], "has no weights"),
    "no tokeniser": (["--model", "./notokeniser"], "has no tokeniser"),
    "broken config": (
        ["--model", "./brokenconfig"],
        "config.json in model directory 'brokenconfig' is damaged",
    ),
    "broken weights": (
        ["--model", "./brokenweights"],
        "is damaged (Error while deserializing header",
    ),
    "unknown technique": (["--techniques", "swaping"], "did you mean 'swapping'"),
    "no technique": (["--techniques", ","], "--techniques: no technique is chosen"),
    "bad seeds": (["--seeds", "one"], "--seeds 'one' is not possible: it is not a list of whole"),
    "same seeds": (["--seeds", "1,1"], "a seed is named twice"),
    "no workers": (["--workers", "0"], "--workers 0 is not possible"),
    "absent device": (["--device", "mps"], "--device 'mps' is not possible: it is not available"),
    "long name": (["--task", "x" * 300 + ".csv"], "File name too long"),
    "infinite rate": (["--learning-rate", "inf"], "--learning-rate inf is not possible"),
    "useless folder": (
        ["--data-dir", "empty"],
        "--data-dir empty is not possible: it has no meaning",
    ),
    "useless noise": (
        ["--task", "known.csv", "--noise", "0.3"],
        "--noise 0.3 is not possible: it has no meaning as 'known.csv' has original labels",
    ),
    "epochs": (["--epochs", "0"], "--epochs 0 is not possible"),
    "one of several methods": (
        ["--techniques", "swapping,retaining"],
        "technique 'retaining' does not exist; did you mean 'retraining'?",
    ),
    "window too large": (
        ["--window-sizes", "2,4"],
        "--window-sizes 4 is not possible: the model has 3 layers, so windows have 1 to 3 layers",
    ),
    "window too small": (
        ["--window-sizes", "0-2"],
        "--window-sizes 0 is not possible: input should be greater",
    ),
    "window not a number": (
        ["--window-sizes", "all"],
        "--window-sizes 'all' is not possible: it is not a list",
    ),
    "cache memory": (
        ["--cache-memory", "much"],
        "'much' is not possible: it is not a size such as",
    ),
    "retrain epochs": (["--retraining.epochs", "0"], "--retraining.epochs 0 is not possible"),
    "probe seeds": (["--probing.seeds", "0"], "--probing.seeds 0 is not possible"),
    "too few to probe": (
        ["--limit", "40"],
        "probing is not possible: at least 10 noisy examples are needed and there are 4; leave the "
        "technique out",
    ),
    "mostly noise": (
        ["--limit", "90", "--noise", "0.6"],
        "retraining is not possible: more clean examples than noisy ones are needed",
    ),
    "unwritable": (["--runs", "good.csv"], "cannot write to 'good.csv/store'"),
    "wrong blocks": (["--blocks", "encoder.layers"], "did you mean 'encoder.layer'"),
    "labels absent in training": (
        ["--task", "good.csv", "--validation", "other.csv"],
        "the label 'zzz' in row 0 of other.csv",
    ),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_bad_options_are_one_sentence(case: str, memloc, tiny_folder: Path, tmp_path: Path) -> None:
    write("good.csv", GOOD)
    write("other.csv", "text,label\nx,zzz\ny,a\n")
    labelled_rows(30).to_csv("known.csv", index=False)
    Path("empty").mkdir()
    for name, missing in {
        "noweights": "model.safetensors",
        "notokeniser": "tokenizer",
        "brokenconfig": None,
        "brokenweights": None,
    }.items():
        Path(name).mkdir()
        for file in tiny_folder.iterdir():
            if missing is None or not file.name.startswith(missing):
                (Path(name) / file.name).write_bytes(file.read_bytes())
    write("brokenconfig/config.json", "{")
    write("brokenweights/model.safetensors", b"\xff" * 100)
    options, words = BAD_OPTIONS[case]
    model = [] if "--model" in options else ["--model", tiny_folder]
    limit = [] if "--limit" in options else ["--limit", "90"]
    limit = [] if "--task" in options else limit
    before = files(tmp_path)
    workers = [] if "--workers" in options else ["--workers", "1"]
    code, out, err = memloc("run", *model, *limit, *workers, *options)
    assert_one_sentence(code, out, err, words)
    left = {
        name for name in files(tmp_path) - before if name.endswith((".parquet", ".safetensors"))
    }
    assert not left


BAD_PAIRS = {
    "other depth": ({"layers": 3}, "number of layers is 4 in 'memorised' but 3 in 'other'"),
    "other classes": ({"labels": 2}, "number of classes is 3 in 'memorised' but 2 in 'other'"),
    "other width": ({"intermediate_size": 40}, "shape of bert.encoder.layer.0"),
    "other architecture": (
        {"architecture": "roberta"},
        "architecture is BertForSequenceClassification",
    ),
}


@pytest.mark.parametrize("case", BAD_PAIRS)
def test_models_that_do_not_fit_are_one_sentence(case: str, memloc, tmp_path: Path) -> None:
    save_pair(tmp_path, "bert")
    changes, words = BAD_PAIRS[case]
    settings = {"architecture": "bert", **changes}
    tiny_model(**settings).save_pretrained("other")
    tiny_tokenizer().save_pretrained("other")
    labelled_rows(20).to_csv("data.csv", index=False)
    answer = memloc("localise", "--memorised", "memorised", "--original", "other",
                    "--data", "data.csv", "--out", "out")  # fmt: skip
    code, out, err = answer
    assert_one_sentence(code, out, err[err.index("memloc: ") :], words)
    assert not Path("out").exists()


BAD_LOCALISE_DATA = {
    "no original labels": ("text,label\na film,0\ngood,1\n", "no column with the original labels"),
    "nothing noisy": (
        "text,label,original_label\na film,0,0\ngood,1,1\n",
        "differs from its original label",
    ),
    "unknown class": (
        "text,label,original_label\na film,0,1\ngood,7,1\n",
        "label '7' in row 1 of data.csv",
    ),
    "missing": (None, "--data data.csv is not possible: there is no such file"),
}


@pytest.mark.parametrize("case", BAD_LOCALISE_DATA)
def test_bad_data_for_localise_is_one_sentence(case: str, memloc, tmp_path: Path) -> None:
    save_pair(tmp_path, "bert")
    text, words = BAD_LOCALISE_DATA[case]
    if text is not None:
        write("data.csv", text)
    code, out, err = memloc("localise", "--memorised", "memorised", "--original", "original",
                            "--data", "data.csv", "--out", "out")  # fmt: skip
    message = err[err.index("memloc: ") :]
    assert_one_sentence(code, out, message, words)
    assert not Path("out").exists()


def test_class_names_that_are_numbers_are_names(memloc, tmp_path: Path) -> None:
    for seed, name in enumerate(("a", "b")):
        model = tiny_model("bert", seed=seed)
        model.config.id2label = {0: "1", 1: "2", 2: "3"}
        model.save_pretrained(name)
        tiny_tokenizer().save_pretrained(name)
    rows = labelled_rows(24)
    rows[["label", "original_label"]] += 1
    rows.to_csv("data.csv", index=False)
    arguments = ("localise", "--memorised", "a", "--original", "b", "--data", "data.csv")
    code, out, err = memloc(*arguments, "--out", "out", "--json")
    assert code == 0, err
    assert json.loads(out)["noisy_examples"] == (rows["label"] != rows["original_label"]).sum()
    examples = pd.read_parquet("out/examples.parquet")
    assert (examples["label"] + 1 == examples["label_name"].astype(int)).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("names", "list of class names is"),
        ("tokeniser", "have different vocabularies"),
    ],
)
def test_models_that_mean_other_things_are_refused(
    change: str, words: str, memloc, tmp_path: Path
) -> None:
    save_pair(tmp_path, "bert")
    model, tokenizer = tiny_model("bert", seed=1), tiny_tokenizer()
    if change == "names":
        model.config.id2label = {0: "x", 1: "y", 2: "z"}
    else:
        tokenizer.add_tokens(["zebra"])
    model.save_pretrained("other")
    tokenizer.save_pretrained("other")
    labelled_rows(20).to_csv("data.csv", index=False)
    answer = memloc("localise", "--memorised", "memorised", "--original", "other",
                    "--data", "data.csv", "--out", "out")  # fmt: skip
    assert_one_sentence(*answer, words)


def test_results_that_cannot_all_be_written_leave_the_old_ones(memloc, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_results(folder, {"t": pd.DataFrame({"a": [1]})}, {"x": 1}, {})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_results(folder, {"t": pd.DataFrame({"a": [2]})}, {"x": float("nan")}, {})
    assert pd.read_parquet(folder / "t.parquet")["a"].tolist() == [1]
    assert files(folder) == {"t.parquet", "summary.json", "settings.json"}


def test_an_odd_folder_name_is_printed_as_it_is(memloc, tiny_folder: Path) -> None:
    code, out, err = memloc("run", "--model", tiny_folder, *QUICK, "--runs", "r[/x]",
                            "--techniques", "swapping", "--no-explain")  # fmt: skip
    assert code == 0, err
    assert "Results: r[/x]/questions" in out


def test_an_unexpected_error_is_one_sentence_and_exit_code_1(
    memloc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memloc.data.load.named_tasks", lambda: 1 / 0)
    code, _, err = memloc("tasks")
    assert code == 1
    assert err.startswith("memloc: unexpected ZeroDivisionError")
    assert err.count("\n") == 1


def test_a_model_without_a_trained_head_is_refused(memloc, tmp_path: Path) -> None:
    save_pair(tmp_path, "bert")
    tiny_model("bert").bert.save_pretrained("headless")
    tiny_tokenizer().save_pretrained("headless")
    labelled_rows(20).to_csv("data.csv", index=False)
    code, _, err = memloc("localise", "--memorised", "headless", "--original", "original",
                          "--data", "data.csv", "--out", "out")  # fmt: skip
    assert code == 2
    assert "give a fine-tuned sequence-classification model" in err
