"""`memloc sweep` as a user meets it: a summary, exit codes, and sentences for bad input."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memloc.config import Data
from memloc.engine import inputs as inputs_module
from memloc.engine.compute import KINDS
from memloc.engine.dry_run import PlaceholderInputs
from memloc.engine.local import LocalExecutor
from memloc.engine.store.store import Store
from memloc.engine.sweep import plan_sweep
from memloc.errors import DataError, ModelError
from memloc.paper.presets import preset_text, read_experiment
from memloc.training.loop import TrainingFailed
from tests.conftest import assert_one_sentence
from tests.test_sweep import QUICK

SMALL = f"models: [tiny-bert]\ntasks: [questions]\ntechniques: [swapping]\n{QUICK}"


@pytest.fixture
def small(tiny_folder: Path) -> Path:
    path = tiny_folder.parent / "small.yaml"
    path.write_text(SMALL)
    return path


def test_a_dry_run_then_the_sweep_then_another_dry_run(memloc, small: Path) -> None:
    code, out, err = memloc("sweep", small, "--dry-run")
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    assert "training" in out
    assert "3 jobs of 1 run, 3 to compute." in out
    assert "From what earlier jobs took, or a measurement" in out
    assert not Path("runs/store/train").exists()

    code, out, err = memloc("sweep", small)
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    for words in ("questions tiny-bert", "swapping", "Results: runs/", "Next: memloc claims runs"):
        assert words in out
    assert "begin: 3 jobs" in err
    assert "end: 3 of 3 done" in err

    # Other labels, other trainings: what these take is known by now.
    small.write_text(SMALL.replace("limit: 40", "limit: 50"))
    code, out, err = memloc("sweep", small, "--dry-run", "--json", "--only", "quest*-tiny*")
    found = json.loads(out)
    assert (found["jobs"], found["in_store"]) == (3, 0)
    assert found["without_time"] == 0
    rows = {row["kind"]: row for row in found["kinds"]}
    assert set(rows) == {"train", "localise"}
    assert found["flops"] > 1e6
    # Operations per second of an A100 by its data sheet.
    assert found["a100_hours"]["float32"] == pytest.approx(found["flops"] / 19.5e12 / 3600)
    assert found["a100_hours"]["tf32"] == pytest.approx(found["flops"] / 156e12 / 3600)
    took = [
        json.loads(path.read_text())["costs"]["seconds"]
        for path in Path("runs/store/train").glob("*/manifest.json")
    ]
    assert sum(took) < rows["train"]["seconds"] < 2 * sum(took)  # a quarter more examples
    assert rows["train"]["bytes"] > 4 * 3 * 4 * 32**2 * 3  # weights of three models at least
    small.write_text(SMALL)
    code, out, _ = memloc("sweep", small, "--dry-run")
    assert "3 jobs of 1 run, 0 to compute." in out
    assert memloc("sweep", small)[1].count("Nothing to compute: all 3 jobs were in the store") == 1


def test_failed_jobs_are_told_and_the_exit_code_is_1(
    memloc, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(job, store, report):
        raise TrainingFailed(
            "the loss became nan", setting="training.learning_rate", remedy="lower it"
        )

    monkeypatch.setitem(KINDS, "train", failing)
    code, out, err = memloc("sweep", small)
    assert code == 1
    assert "failed" in out
    assert "Nothing was computed, 0 reused, in " in out
    assert "3 jobs failed or were left out for that; the same command tries only them again" in (
        " ".join(out.split())
    )
    assert (
        "memloc: training.learning_rate: θ_O: train on original labels (questions, tiny-bert) "
        "failed: the loss became nan; lower it (and 1 more like it)\n"
    ) in err
    assert err.count("failed: the loss became nan; lower it") == 2 + 1
    code, out, err = memloc("sweep", small, "--json")
    assert code == 1
    summary = json.loads(out)
    assert summary["runs"][0]["folder"] is None
    assert len(summary["failures"]) == 1


BAD = [
    (["sweep", "papr"], None, "neither a preset nor a file 'papr'; did you mean 'paper'?"),
    (["sweep", "small.yaml", "--show"], SMALL, "only presets are printed, and 'small.yaml' is"),
    (["sweep", "smal.yaml"], SMALL, "there is no file 'smal.yaml'; did you mean 'small.yaml'?"),
    (["sweep", "small.yaml"], SMALL.replace("questions", "quetsions"),
     "quetsions, tiny-bert: data.task 'quetsions' is not possible: there is no such task"),
    (["sweep", "small.yaml"], SMALL.replace("limit: 40", "limit: 5"),
     "questions, tiny-bert: a limit of 5 is too small"),
    (["sweep", "small.yaml", "--only", "nothing-*"], SMALL, "--only 'nothing-*' is not poss"),
    (["sweep", "small.yaml", "--save-every", "-1"], SMALL, "--save-every '-1' is not possible"),
    (["sweep", "small.yaml", "--executor", "cloud"], SMALL, "--executor 'cloud' is not possible"),
    (["sweep", "small.yaml"], SMALL + "control: {tasks: [topics], layers: [first], auxiliary: up}",
     "control: auxiliary 'up' is not possible: there is no such task"),
    # Where there is no Slurm, that is known before anything is planned.
    (["sweep", "small.yaml", "--executor", "slurm"], SMALL.replace("questions", "quetsions"),
     "quetsions" if shutil.which("sbatch") else "sbatch is not on this machine"),
    (["sweep", "small.yaml", "--executor", "ray"],
     SMALL.replace("{workers: 1}", "{ray: {address: nowhere}}").replace("questions", "quetsions"),
     "the Ray cluster 'nowhere' cannot be reached (it has no port)"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "text", "words"), BAD)
def test_bad_input_is_one_sentence_before_anything_is_computed(
    memloc, tiny_folder: Path, arguments: list[str], text: str | None, words: str
) -> None:
    if text is not None:
        Path("small.yaml").write_text(text)
    assert_one_sentence(*memloc(*arguments), words)
    assert not Path("runs/store/train").exists()


def test_presets_can_be_listed_and_copied(memloc) -> None:
    code, out, _ = memloc("sweep")
    assert code == 0
    assert len(out.splitlines()) == 4 + 2  # none is broken
    assert "paper-mini" in out
    code, out, _ = memloc("sweep", "paper", "--show")
    assert out == preset_text("paper")
    Path("copy.yaml").write_text(out)
    assert read_experiment("copy.yaml").cells == read_experiment("paper").cells


def away(config, *_) -> None:
    error = DataError if isinstance(config, Data) else ModelError
    raise error("the hub cannot be reached")


def test_the_paper_is_counted_as_in_its_appendix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs_module, "load_task", away)
    monkeypatch.setattr(inputs_module, "resolve", away)
    inputs = PlaceholderInputs(LocalExecutor(Store(tmp_path / "store"), 1), {})
    planned = plan_sweep(read_experiment("paper"), inputs)
    for model in ("bert-base-cased", "opt-125m", "pythia-160m-deduped", "gpt-neo-125m"):
        main = [
            run for _, run in planned.runs
            if run.outline.about["model"] == model and not run.config.data.binarise
        ]  # fmt: skip
        assert len(main) == 12
        jobs = {job.artefact: job for run in main for job in run.jobs}.values()
        assert sum(job.kind == "train" for job in jobs) == 84
        assert sum(job.kind == "window" for job in jobs) == 2808
        assert sum(job.kind == "split" for job in jobs) == 360
        cells = [c for c in planned.benchmark.plan.cells if c.front["model"] == model]
        control = {j.artefact for cell in cells for j in cell.trainings.values()}
        assert len(control) == 77
        assert sum(j.kind == "window" for cell in cells for j in cell.parts) == 33 * 78
        binarised = [
            run for _, run in planned.runs
            if run.outline.about["model"] == model and run.config.data.binarise
        ]  # fmt: skip
        assert sum(job.kind == "train" for run in binarised for job in run.jobs) == 10
    assert len(planned.jobs) == 25_776
    large = plan_sweep(read_experiment("paper-large"), inputs)
    assert {run.outline.about["model"] for _, run in large.runs} == {"opt-1.3b"}
    assert {run.outline.about["layers"] for _, run in large.runs} == {24}
    assert sum(job.kind == "train" for job in large.jobs) == 24
    assert len(large.jobs) == 96


PLAN = """
import sys, time
from pathlib import Path
from memloc.engine.job import write_plan
from memloc.engine.local import LocalExecutor
from memloc.engine.dry_run import PlaceholderInputs
from memloc.engine.store.store import Store
from memloc.engine.sweep import plan_sweep
from memloc.paper.presets import read_experiment
from memloc.engine import inputs
from memloc.errors import DataError, ModelError
def no_data(config, *_): raise DataError("away")
def no_model(config): raise ModelError("away")
inputs.load_task, inputs.resolve = no_data, no_model
store = Store(Path(sys.argv[1]) / "store")
began = time.process_time()
inputs = PlaceholderInputs(LocalExecutor(store, 1), {"device": "cpu"})
jobs = plan_sweep(read_experiment("paper"), inputs).jobs
write_plan(Path(sys.argv[1]), jobs)
missing = sum(not store.has(*job.artefact) for job in jobs)
seconds = time.process_time() - began
# Not ru_maxrss, which begins with that of the process that started this one.
status = Path("/proc/self/status")
lines = status.read_text().splitlines() if status.exists() else []
peak = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")]
print(missing, seconds, *(peak or [0]))
"""


@pytest.mark.slow
def test_the_whole_paper_is_planned_within_5_seconds_and_500_megabytes(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PLAN, str(tmp_path)], capture_output=True, text=True, check=True
    )
    jobs, seconds, peak = map(float, result.stdout.split())
    assert jobs == 25_776
    assert seconds < 5  # of this process, so that a busy machine does not matter
    assert peak < 500e6
