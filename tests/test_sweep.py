"""Sweeps with tiny models: the results of single runs, everything computed once, nothing lost."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from memloc.analysis.generalisation import half_split
from memloc.api.experiments import run
from memloc.api.experiments import sweep as run_sweep
from memloc.config import Engine
from memloc.engine.compute import KINDS, train
from memloc.engine.job import Output, read_plan, read_task
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.engine.sweep import select, short_names
from memloc.engine.sweep_config import Sweep, SweepCell, parse_sweep
from memloc.training.loop import TrainingFailed
from tests.engine.test_local import assert_same_tables
from tests.tiny_models import tiny_model, tiny_tokenizer

QUICK = """
data: {limit: 40}
training: {epochs: 1, learning_rate: 1e-3}
explain: false
retraining: {epochs: 1}
execution: {workers: 1}
"""
GRID = """
name: small
models: [tiny-bert]
tasks: [questions, reviews]
grids:
- {techniques: [swapping, retraining]}
- {techniques: [swapping, gradients], tasks: [questions]}
control: {tasks: [topics], auxiliary: reviews, auxiliary_limit: 20, layers: [first],
          techniques: [swapping]}
"""


class Recorder(Progress):
    """What was computed, and what was said."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list = []
        self.notes: list[str] = []

    def start(self, job) -> None:
        super().start(job)
        self.started.append(job)

    def note(self, words: str) -> None:
        self.notes.append(words)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    tiny_model("bert", layers=3).save_pretrained(folder / "tiny-bert")
    tiny_tokenizer().save_pretrained(folder / "tiny-bert")
    return folder


def experiment(home: Path, text: str = GRID) -> Sweep:
    return parse_sweep(text + QUICK, "small.yaml", home)


@pytest.fixture(scope="module")
def done(home: Path) -> tuple[Recorder, dict]:
    recorder = Recorder()
    return recorder, run_sweep(experiment(home), home / "runs", recorder)


@pytest.fixture
def runs(home: Path, done: tuple[Recorder, dict], tmp_path: Path) -> Path:
    """The store with all models, but without what looks at them."""
    shutil.copytree(home / "runs" / "store", tmp_path / "store")
    shutil.rmtree(tmp_path / "store" / "localise")
    return tmp_path


def test_trainings_that_grids_share_are_computed_once(done: tuple[Recorder, dict]) -> None:
    recorder, summary = done
    artefacts = [job.artefact for job in recorder.started]
    assert len(set(artefacts)) == len(artefacts)
    kinds = Counter(job.kind for job in recorder.started)
    # θ_O and θ_M of each task, for three runs; and a frozen model where gradients look at it.
    assert kinds["train"] == 2 * 2 + 1
    assert kinds["window"] == 2 * 6
    assert kinds["control"] == 2
    # Swapping of the two grids is the same job.
    assert kinds["localise"] == 2 * 2 + 1 + 1
    assert summary["jobs"] == {"computed": len(artefacts), "failed": 0, "reused": 0}
    titles = [job.title for job in recorder.started]
    assert len(set(titles)) == len(titles)
    assert "θ_M: train on perturbed labels (reviews, tiny-bert)" in titles
    groups = {job.group for job in recorder.started if job.kind == "window"}
    assert groups == {f"retraining ({task}, tiny-bert)" for task in ("questions", "reviews")}


def assert_as_alone(cell: SweepCell, row: dict, elsewhere: Path) -> None:
    alone = run(cell.config, Engine(runs=elsewhere, workers=1))
    assert alone.folder.name == Path(row["folder"]).name
    assert_same_tables(alone.folder, Path(row["folder"]))
    settings = [(f / "settings.json").read_text() for f in (alone.folder, Path(row["folder"]))]
    assert settings[0] == settings[1]
    assert row["m_cog"] == {n: m["m_cog"] for n, m in alone.summary["techniques"].items()}
    assert row["noisy_accuracy"] == alone.summary["memorised_share"]


def test_a_sweep_gives_the_tables_of_a_single_run(
    home: Path, done: tuple[Recorder, dict], tmp_path: Path
) -> None:
    assert_as_alone(experiment(home).cells[-1], done[1]["runs"][-1], tmp_path)


@pytest.mark.slow
def test_a_sweep_gives_the_tables_of_all_its_runs_and_of_the_control_benchmark(
    home: Path, done: tuple[Recorder, dict], tmp_path: Path
) -> None:
    sweep, (_, summary) = experiment(home), done
    for cell, row in zip(sweep.cells, summary["runs"], strict=True):
        assert_as_alone(cell, row, tmp_path)
    assert sweep.control is not None
    alone = run(sweep.control, Engine(runs=tmp_path, workers=1))
    folder = Path(summary["control"]["folder"])
    assert alone.folder.name == folder.name
    for table in ("accuracy", "layers", "trainings", "attempts", "history"):
        mine, theirs = (pd.read_parquet(f / f"{table}.parquet") for f in (alone.folder, folder))
        pd.testing.assert_frame_equal(mine, theirs)


def test_what_a_sweep_writes_says_all_of_it(home: Path, done: tuple[Recorder, dict]) -> None:
    folder = home / "runs" / "sweeps" / "small"
    assert json.loads((folder / "summary.json").read_text()) == done[1]
    again = parse_sweep((folder / "experiment.yaml").read_text(), "experiment.yaml", Path("/"))
    assert [cell.config for cell in again.cells] == [c.config for c in experiment(home).cells]
    assert again.control == experiment(home).control
    (plan,) = folder.glob("plan-*.json.gz")
    jobs = read_plan(plan)
    assert [job.artefact for job in jobs if job.kind == "train"]
    assert {job.artefact for job in jobs} == {job.artefact for job in done[0].started}
    # Costs of all runs can be compared: those of longer texts are higher.
    cost = {job.title: job.cost for job in jobs if job.identity.get("state") == "memorised"}
    longer, shorter = (cost[f"θ_M: train on perturbed labels ({task}, tiny-bert)"]
                       for task in ("reviews", "questions"))  # fmt: skip
    assert longer > shorter > 1e6


def test_models_in_folders_are_called_by_what_distinguishes_them() -> None:
    text = "models: [./old/bert, ./new/bert, ./opt]\ntasks: [questions, rte]\n"
    sweep = parse_sweep(text, "small.yaml", Path("/models"))
    assert short_names(sweep.cells)[::2] == [
        ("questions", model) for model in ("./old/bert", "./new/bert", "opt")
    ]
    assert [cell.model for cell in select(sweep, "rte-./new/*").cells] == ["./new/bert"]
    assert len(select(sweep, "rte-bert").cells) == 2


def test_a_failure_leaves_the_other_runs_alone_and_only_it_is_tried_again(
    home: Path, done: tuple[Recorder, dict], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "models: [tiny-bert]\ntasks: [questions, reviews]\ntechniques: [swapping]\n"
    title = "θ_M: train on perturbed labels (reviews, tiny-bert)"
    missing = next(job for job in done[0].started if job.title == title)
    shutil.rmtree(runs / "store" / "train" / missing.key)

    def failing(job, store, report):
        raise TrainingFailed("the loss became nan")

    monkeypatch.setitem(KINDS, "train", failing)
    summary = run_sweep(experiment(home, text), runs)
    good, bad = summary["runs"]
    assert good["folder"] is not None
    assert bad["folder"] is None
    assert "the loss became nan" in bad["failures"][0]
    assert summary["failures"] == [f"{title} failed: the loss became nan"]
    assert summary["jobs"] == {"computed": 1, "failed": 2, "reused": 3}
    monkeypatch.setitem(KINDS, "train", train)
    recorder = Recorder()
    again = run_sweep(experiment(home, text), runs, recorder)
    assert [job.kind for job in recorder.started] == ["train", "localise"]
    assert again["failures"] == []
    assert again["runs"][0] == good


def test_what_turns_out_damaged_at_the_end_is_a_failure_that_the_same_command_mends(
    home: Path, runs: Path
) -> None:
    store = Store(runs / "store")

    class Vandal(Recorder):
        def finish(self, job) -> None:
            super().finish(job)
            if job.kind == "localise":
                table = store.root / job.kind / job.key / "windows.parquet"
                table.write_bytes(table.read_bytes()[::-1])

    text = "models: [tiny-bert]\ntasks: [questions]\ntechniques: [swapping]\n"
    summary = run_sweep(experiment(home, text), runs, Vandal())
    (failure,) = summary["failures"]
    assert "windows.parquet does not match its checksum" in failure
    assert "run the same command again" in failure
    assert summary["runs"][0]["folder"] is None
    again = run_sweep(experiment(home, text), runs)
    assert again["failures"] == []
    assert again["jobs"]["computed"] == 1


def test_half_splits_of_all_runs_are_planned_at_once(
    home: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quick(job, store, report):
        """As if a model of that half had been trained."""
        task = read_task(store, job.needs["data"])
        inside = half_split(len(task.train), job.identity["split"], job.identity["seed"])
        random = np.random.default_rng(job.identity["split"])
        answers = {"example": task.train["example"], "inside": inside, "predicted": 0}
        answers["probability"] = random.random(len(inside))
        return Output(tables={"answers": pd.DataFrame(answers)}, costs={"peak_memory_bytes": 1})

    monkeypatch.setitem(KINDS, "split", quick)
    text = (
        "models: [tiny-bert]\ntasks: [questions, reviews]\ntechniques: [swapping]\n"
        "generalisation: {splits: 3, epochs: 1}\n"
        "overrides: [{tasks: reviews, generalisation: {splits: 2}}]\n"
    )
    recorder = Recorder()
    summary = run_sweep(experiment(home, text), runs, recorder)
    counts = [
        json.loads((Path(row["folder"]) / "summary.json").read_text())["generalisation"]["splits"]
        for row in summary["runs"]
    ]
    assert counts == [3, 2]
    (plan,) = (runs / "sweeps" / "sweep").glob("plan-*.json.gz")
    assert sum(job.kind == "split" for job in read_plan(plan)) == 5
