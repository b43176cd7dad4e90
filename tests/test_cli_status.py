"""`memloc status`: how far a sweep is, from its files."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from memloc.cli.status import _running
from memloc.engine import failures
from memloc.engine.job import Job
from memloc.engine.local import LocalExecutor
from memloc.engine.plan_file import write_plan
from memloc.engine.progress import Silent
from memloc.engine.status import SweepStatus, age_of, status_of
from memloc.engine.store.store import Store
from memloc.engine.tally import Left
from tests.conftest import assert_one_sentence


def naps(n: int, seconds: float = 0.02) -> list[Job]:
    """Jobs, and at last one that needs the first."""
    jobs = [Job("nap", f"nap {k}", {"k": k, "seconds": seconds}, cost=2.0) for k in range(n)]
    needs = {"first": jobs[0].artefact}
    return [*jobs, Job("nap", "needs the first", {"seconds": seconds}, needs, cost=2.0)]


class Sweep:
    """A sweep whose jobs are computed one by one."""

    def __init__(self, runs: Path, jobs: list[Job], name: str = "mine") -> None:
        self.runs, self.jobs = runs, jobs
        self.store = Store(runs / "store")
        self.folder = runs / "sweeps" / name
        write_plan(self.folder, jobs)

    def compute(self, *jobs: Job) -> None:
        with LocalExecutor(self.store, 1) as executor:
            assert executor.execute(jobs, Silent()).computed == len(jobs)

    def fail(self, job: Job, words: str, log: bool = True) -> None:
        error = RuntimeError(words) if log else None
        reason = f"{job.title} failed: RuntimeError: {words}"
        if log:
            reason += f" (details in {failures.log_of(self.store, job)})"
        failures.record(self.store, job, reason, error, "launch")


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path / "runs", naps(5))


def told(memloc, *arguments: object) -> dict:
    code, out, err = memloc("status", *arguments, "--json")
    assert (code, err) == (0, "")
    (found,) = json.loads(out)["sweeps"]
    return found


def test_done_running_failed_left_out_and_waiting_are_told_apart(memloc, sweep: Sweep) -> None:
    first, second, third = sweep.jobs[:3]
    sweep.compute(second)
    sweep.fail(first, "no memory")
    with sweep.store.claims.hold(*third.artefact, third.title):
        found = told(memloc, sweep.runs)
        code, out, _ = memloc("status", sweep.runs)
    assert found["name"] == "mine"
    expected = {"done": 1, "running": 1, "failed": 1, "left_out": 1, "waiting": 2}
    assert found["total"] == found["kinds"]["nap"] == expected
    (running,) = found["running"]
    assert (running["title"], running["process"]) == ("nap 2", os.getpid())
    assert running["host"] == os.uname().nodename
    (failed,) = found["failures"]
    assert failed["reason"] == "RuntimeError: no memory"
    assert failed["log"] == str(failures.log_of(sweep.store, first).absolute())
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "Sweep mine: 1 of 6 jobs done"
    assert lines[1].split() == ["done", "running", "failed", "left", "out", "waiting"]
    assert lines[2].split() == ["nap", "1", "1", "1", "1", "2"]
    assert lines[3] == "Running on 1 machine:"
    assert lines[4].endswith("nap 2")
    assert lines[5:8] == ["Failed:", "- nap 0: RuntimeError: no memory", f"  log: {failed['log']}"]
    assert lines[8].startswith("About 0 s left, with 1 at once")


def test_with_nobody_at_work_it_says_how_to_go_on(memloc, sweep: Sweep) -> None:
    assert (
        "Nothing is running; start `memloc sweep` again to go on."
        in memloc("status", sweep.folder)[1]
    )
    sweep.compute(sweep.jobs[0])
    assert "again to go on (about 0 s left, one job at a time)." in memloc("status", sweep.runs)[1]
    sweep.compute(*sweep.jobs[1:])
    assert memloc("status", sweep.runs)[1].splitlines()[-1] == "Everything is done."


def test_the_time_left_comes_from_what_finished_jobs_took(memloc, tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "runs", naps(9, seconds=0.2))
    sweep.compute(*sweep.jobs[:4])
    spent = [sweep.store.open(*job.artefact).manifest["costs"]["seconds"] for job in sweep.jobs[:4]]
    each = sum(spent) / 4
    assert each >= 0.2
    assert told(memloc, sweep.runs)["seconds_left"] == pytest.approx(6 * each)
    one, two = sweep.jobs[4:6]
    with sweep.store.claims.hold(*one.artefact), sweep.store.claims.hold(*two.artefact):
        found = told(memloc, sweep.runs)
    assert found["total"]["running"] == 2
    # Two at once; how much of theirs counts as done depends on how long asking took.
    assert 4 * each / 2 <= found["seconds_left"] <= 6 * each / 2 + 1e-6


def test_what_puts_windows_together_is_no_measure(memloc, tmp_path: Path) -> None:
    common = {"method": "retraining", "seconds": 0.0}
    windows = [Job("window", f"w{n}", {**common, "n": n}, cost=5.0, group="g") for n in range(4)]
    whole = [Job("localise", f"all {n}", {**common, "n": n}, cost=0.01, group="g") for n in (0, 1)]
    sweep = Sweep(tmp_path / "runs", [*windows, *whole])
    for job, seconds in ((windows[0], 10.0), (whole[0], 4000.0)):
        with sweep.store.write(*job.artefact, job.inputs, {"seconds": seconds}):
            pass
    assert told(memloc, sweep.runs)["seconds_left"] == pytest.approx(30.02)


def test_a_claim_whose_holder_is_gone_does_not_count(memloc, sweep: Sweep) -> None:
    job = sweep.jobs[0]
    with sweep.store.claims.hold(*job.artefact, job.title):
        (claim,) = sweep.store.claims.folder.glob("nap-*")
        text = claim.read_text()
    claim.write_text(text.replace(f'"pid": {os.getpid()}', '"pid": 999999999'))
    assert told(memloc, sweep.runs)["total"]["running"] == 0


def test_failures_before_this_start_of_the_sweep_are_tried_again(memloc, sweep: Sweep) -> None:
    sweep.fail(sweep.jobs[0], "no memory")
    record = failures.log_of(sweep.store, sweep.jobs[0]).with_suffix(".json")
    os.utime(record, (time.time() - 3600,) * 2)
    assert told(memloc, sweep.runs)["total"]["failed"] == 1  # and nobody is at work
    with sweep.store.claims.hold(*sweep.jobs[1].artefact):
        found = told(memloc, sweep.runs)["total"]
    assert (found["failed"], found["left_out"], found["waiting"]) == (0, 0, 5)


def test_failures_are_grouped_and_only_ten_reasons_are_shown(memloc, tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "runs", naps(40))
    for number, job in enumerate(sweep.jobs[:40]):
        sweep.fail(job, "no memory" if number < 20 else f"reason {number}", log=number < 20)
    (failures.log_of(sweep.store, sweep.jobs[30]).with_suffix(".json")).write_text("{")
    _, out, _ = memloc("status", sweep.runs)
    shown = [line for line in out.splitlines() if line.startswith("- ")]
    assert len(shown) == 11
    counted = sum(20 if "(and 19 more like it)" in line else 1 for line in shown[:-1])
    assert shown[-1] == f"- and {40 - counted} more"
    found = told(memloc, sweep.runs)["failures"]
    assert sum(failed["jobs"] for failed in found) == 40
    assert any("the reason cannot be read" in failed["reason"] for failed in found)


def test_several_sweeps_of_one_folder_are_shown_one_after_the_other(memloc, sweep: Sweep) -> None:
    Sweep(sweep.runs, sweep.jobs[:2], name="other")
    sweep.compute(sweep.jobs[0])
    _, out, _ = memloc("status", sweep.runs)
    assert "Sweep mine: 1 of 6 jobs done" in out
    assert "Sweep other: 1 of 2 jobs done" in out
    assert memloc("status", sweep.runs / "sweeps")[1] == out
    assert "mine" not in memloc("status", sweep.runs / "sweeps" / "other")[1]


def test_nothing_is_written(memloc, sweep: Sweep) -> None:
    sweep.compute(sweep.jobs[0])

    def files() -> dict[Path, int]:
        return {path: path.stat().st_size for path in sweep.runs.rglob("*") if path.is_file()}

    before = files()
    memloc("status", sweep.runs)
    assert files() == before


def test_bad_folders_are_one_sentence(memloc, sweep: Sweep, tmp_path: Path) -> None:
    assert_one_sentence(*memloc("status", tmp_path / "no"), "there is no folder")
    assert_one_sentence(*memloc("status", tmp_path), "one that has just begun is there once it is")
    assert_one_sentence(*memloc("status", sweep.folder / "plan.json.gz"), "there is no folder")
    plan = sweep.folder / "plan.json.gz"
    content = plan.read_bytes()
    for damaged in (b"", b"nonsense", content[: len(content) // 2]):
        plan.write_bytes(damaged)
        assert_one_sentence(*memloc("status", sweep.runs), "cannot be read")


def test_many_jobs_are_looked_at_quickly(tmp_path: Path) -> None:
    jobs = [Job("window", f"window {n}", {"n": n}, group=f"g{n // 78}") for n in range(10_000)]
    sweep = Sweep(tmp_path / "runs", jobs)
    for job in jobs[::20]:
        (sweep.store.root / job.kind / job.key).mkdir(parents=True)
    started = time.process_time()
    found = status_of(sweep.folder)
    assert time.process_time() - started < 1.5  # 0.4 on an idle machine
    assert found.sums == {"done": 500, "waiting": 9500}


def test_running_jobs_have_host_and_age_and_are_at_most_ten() -> None:
    holder = SimpleNamespace(host="node17.cluster", since=time.time() - 7200)
    nobody = SimpleNamespace(host="", since=None)
    assert age_of(nobody) is None  # type: ignore[arg-type]
    job = Job("train", f"θ_M {'long ' * 30}seed 3", {})
    running = [(job, holder)] * 12 + [(job, nobody)]
    status = SweepStatus("x", Path("x"), {}, running, [], 0, Left(None))  # type: ignore[arg-type]
    lines = _running(status, 80)
    assert len(lines) == 11
    assert lines[0].startswith("  node17.cluster  2 h 0 min  θ_M")
    assert lines[0].endswith("long seed 3")
    assert len(lines[0]) == 80
    assert lines[-1] == "  and 3 more"
