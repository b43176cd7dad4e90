"""`memloc.run`: the command line from Python, with the same numbers."""

from __future__ import annotations

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


def test_a_script_of_the_api_alone_reproduces_the_command_exactly(
    trained: Setup, memloc: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    import memloc as library

    write_model(tmp_path / "tiny", trained)
    # Without a guard: processes that it starts must not run the script again.
    (tmp_path / "script.py").write_text(
        "import memloc\n"
        "result = memloc.run('tiny', 'questions', data=memloc.Data(limit=60, noise=0.3),\n"
        "    training={'epochs': 1, 'learning_rate': 1e-3}, seeds=[2], windows={'sizes': [1]},\n"
        "    techniques=['swapping', memloc.Retraining(epochs=1), 'gradients',\n"
        "        memloc.Probing(seeds=1, epochs=27)],\n"
        "    workers=2, progress=False, runs='by_script')\n"
        "print(result.folder)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert script.returncode == 0, script.stderr
    assert script.stderr == ""
    assert len(script.stdout.splitlines()) == 1
    code, _, err = memloc(
        *("run", "--model", "tiny", "--task", "questions", "--limit", 60, "--noise", 0.3),
        *("--epochs", 1, "--seeds", 2, "--learning-rate", 1e-3, "--probing.seeds", 1),
        *("--probing.epochs", 27, "--retraining.epochs", 1, "--workers", 1, "--window-sizes", 1),
        *("--runs", "by_command"),
    )
    assert code == 0, err
    (by_command,) = (tmp_path / "by_command").glob("questions-*")
    by_script = library.load(tmp_path / script.stdout.strip())
    same_tables(by_script, library.load(by_command))
    assert by_script.folder is not None
    assert by_script.folder.name == by_command.name
    unlike = {"costs", "techniques", "versions"}
    one, other = by_script.summary, library.load(by_command).summary
    assert {k: v for k, v in one.items() if k not in unlike} == {
        k: v for k, v in other.items() if k not in unlike
    }
    assert by_script.settings == library.load(by_command).settings


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
    lists = memloc.run("tiny", texts=rows["text"].tolist(), labels=list(rows["label"]), **QUICK)
    columns = memloc.run("tiny", rows.to_dict(orient="list"), **QUICK)
    records = memloc.run("tiny", rows.to_dict(orient="records"), **QUICK)
    names = ClassLabel(names=["none", "one", "two"])
    dataset = memloc.run(
        "tiny",
        Dataset.from_pandas(rows, Features({"text": Value("string"), "label": names})),
        **QUICK,
    )
    for other in (frame, lists, columns, records):
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
    refuse("data 5 is not possible: it is not a group of settings; give a memloc.Data", data=5)
    refuse("training.epochz: there is no such setting; did you mean", training={"epochz": 3})
    refuse("task 'qestions' is not possible: there is no such task", task="qestions")
    refuse("technique 'swap' does not exist", techniques=["swap"])
    refuse("techniques 5 is not possible: it is not a technique", techniques=5)
    refuse("retraining.epochs 0 is not possible", techniques={"retraining": {"epochs": 0}})
    refuse("a seed is named twice", seeds=[1, 1])
    refuse("seeds 1.5 is not possible", seeds=1.5)
    refuse("windows.sizes 0 is not possible", windows={"sizes": 0})
    refuse("cache_memory 'much' is not possible", cache_memory="much")
    refuse("progress 'yes' is not possible", progress="yes", task=Path("none.csv"))
    refuse("runs 5 is not a path; give it as a text", runs=5)
    refuse("workers '2' is not possible", workers="2")
    refuse("workers 0 is not possible", workers=0)
    refuse("generalisation.splits 1 is not possible", generalisation={"splits": 1})
    refuse("'label' has 1 values but 'text' has 2", texts=["a", "b"], labels=[1])
    refuse("labels are missing", texts=["a", "b"])
    refuse("both a task and lists", task="reviews", texts=["a"], labels=[1])
    frame = pd.DataFrame({"text": ["a", "b"], "label": [1, None]})
    refuse("'label' in row 1 of task (rows count from 0) is missing", task=frame)
    refuse(
        "data.text_column: task has no column 'txt' (columns: text, label); did you mean 'text'?",
        task=frame,
        data={"text_column": "txt"},
    )
    refuse("label_column [1, 0] is not possible", task=frame, data={"label_column": [1, 0]})
    refuse("has a single example", task=frame.assign(label=[0, 1]))
    assert not (tmp_path / "runs" / "store").exists()
