"""`memloc.run`: the command line from Python, with the same numbers."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Value

import memloc
from memloc.errors import MemlocError
from tests.api.conftest import Setup, clean_rows


def write_model(folder: Path, setup: Setup) -> None:
    setup.pretrained.save_pretrained(folder)
    setup.tokenizer.save_pretrained(folder)


def same_tables(one: memloc.Result, other: memloc.Result) -> None:
    assert one.tables.keys() == other.tables.keys()
    for name in one.tables:
        if name != "costs":
            pd.testing.assert_frame_equal(one.tables[name], other.tables[name], check_exact=True)


def test_a_task_with_a_word_and_two_texts_runs_to_its_end(
    trained: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "tiny", trained)
    texts = clean_rows(40)["text"]
    rows = pd.DataFrame(
        {
            "word": texts.str.split().str[0],
            "text": texts,
            "text_pair": texts[::-1].to_numpy(),
            "label_name": ["False", "True"] * 20,
        }
    )
    (tmp_path / "copies" / "wic").mkdir(parents=True)
    for part in ("train", "validation"):
        rows.to_json(f"copies/wic/{part}.jsonl", orient="records", lines=True)
    data = QUICK["data"] | {"data_dir": tmp_path / "copies"}
    result = memloc.run("tiny", "wic", **QUICK | {"data": data})
    assert set(result.examples["word"]) <= set(rows["word"])
    assert result.folder is not None
    kept = memloc.load(result.folder).examples
    assert kept["word"].tolist() == result.examples["word"].tolist()


@pytest.mark.slow
def test_a_script_of_the_api_alone_is_the_command(
    trained: Setup, memloc: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    write_model(tmp_path / "tiny", trained)
    # Without a guard: processes that it starts must not run the script again.
    (tmp_path / "script.py").write_text(
        "import memloc\n"
        "result = memloc.run('tiny', 'questions', data=memloc.Data(limit=40, noise=0.3),\n"
        "    training={'epochs': 1, 'learning_rate': 1e-3}, seeds=[2], windows={'sizes': [1]},\n"
        "    techniques=['swapping', memloc.Retraining(epochs=1)], explain=False, workers=2,\n"
        "    progress=False)\n"
        "print(result.folder)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert script.returncode == 0, script.stderr
    assert script.stderr == ""
    folder = Path(script.stdout.strip())
    settings = json.loads((tmp_path / folder / "settings.json").read_text())
    code, out, err = memloc(
        *("run", "--model", "tiny", "--task", "questions", "--limit", 40, "--noise", 0.3),
        *("--epochs", 1, "--seeds", 2, "--learning-rate", 1e-3, "--retraining.epochs", 1),
        *("--techniques", "swapping,retraining", "--no-explain", "--windows", 1, "--json"),
        *("--workers", 1),
    )
    assert code == 0, err
    # The same jobs, so the same result: nothing was left to compute.
    assert json.loads(out)["jobs"]["computed"] == 0
    assert json.loads(out)["folder"] == str(folder)
    assert json.loads((tmp_path / folder / "settings.json").read_text()) == settings


QUICK: dict[str, Any] = {
    "training": {"epochs": 1, "learning_rate": 1e-3},
    "techniques": "swapping",
    "explain": False,
    "workers": 1,
    "progress": False,
    "data": {"noise": 0.2},
}


def test_a_task_may_be_a_file_a_frame_a_dataset_or_lists(
    trained: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "tiny", trained)
    rows = clean_rows(40)[["text", "gold"]].rename(columns={"gold": "label"})
    rows.to_csv("rows.csv", index=False)
    state = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    threads = torch.get_num_threads()
    file = memloc.run("tiny", "rows.csv", **QUICK)
    frame = memloc.run("tiny", rows, **QUICK)
    records = memloc.run("tiny", rows.to_dict(orient="records"), **QUICK)
    names = ClassLabel(names=["none", "one", "two"])
    dataset = memloc.run(
        "tiny",
        Dataset.from_pandas(rows, Features({"text": Value("string"), "label": names})),
        **QUICK,
    )
    for other in (frame, records):
        same_tables(other, file)
    assert dataset.summary["classes"] == ["none", "one", "two"]
    pd.testing.assert_frame_equal(dataset.windows, file.windows)
    assert torch.equal(torch.get_rng_state(), state[0])
    assert np.random.get_state()[1].tolist() == state[1]
    assert random.getstate() == state[2]
    assert torch.get_num_threads() == threads
    # The examples were kept, so the command line could repeat the run.
    assert Path(frame.settings["data"]["task"]).is_file()


def test_unusable_arguments_are_refused_by_their_names(
    trained: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def refuse(words: str, **arguments: Any) -> None:
        with pytest.raises(MemlocError) as caught:
            memloc.run(**{"progress": False, **arguments})
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
        assert "--" not in str(caught.value)

    refuse("data.limit 0 is not possible", data={"limit": 0})
    refuse("training.epochz: there is no such setting; did you mean", training={"epochz": 3})
    refuse("task 'qestions' is not possible: there is no such task", task="qestions")
    refuse("technique 'swap' does not exist", techniques=["swap"])
    refuse("workers 0 is not possible", workers=0)
    refuse("'label' has 1 values but 'text' has 2", task={"text": ["a", "b"], "label": [1]})
    refuse("validation in memory goes with a task in memory", validation=[{"text": "a"}])
    frame = pd.DataFrame({"text": ["a", "b"], "label": [1, None]})
    refuse("'label' in row 1 of task (rows count from 0) is missing", task=frame)
    refuse(
        "data.text_column: task has no column 'txt' (columns: text, label); did you mean 'text'?",
        task=frame,
        data={"text_column": "txt"},
    )
    refuse("has a single example", task=frame.assign(label=[0, 1]))
    assert not (tmp_path / "runs" / "store").exists()
