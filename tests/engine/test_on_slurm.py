"""Jobs in workers of Slurm: by submitit's local executor, and by commands like those of Slurm."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memloc.config import Execution, Slurm
from memloc.engine import loop, on_slurm
from memloc.engine.job import Job
from memloc.engine.local import make_executor
from memloc.engine.loop import CannotGoOn
from memloc.engine.on_slurm import SlurmExecutor
from memloc.engine.store.locks import is_gone
from memloc.engine.store.store import Store
from memloc.errors import ClusterError
from tests.engine.same_results import (
    Recorder,
    assert_nothing_left,
    assert_same_results,
    compute_here,
    make_jobs,
    make_model,
    naps,
    riddle,
)

pytest.importorskip("submitit", reason="submitit is not installed: pip install 'memloc[slurm]'")
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _watch_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(on_slurm, "ASK_EVERY", 0.3)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs" / "store")


def slurm(store: Store, **config: Any) -> SlurmExecutor:
    """Two workers on this machine."""
    settings = Slurm(**{"cluster": "local", "workers": 2, **config})
    return SlurmExecutor(store, settings, store.root.parent / "slurm")


def logs(store: Store) -> list[str]:
    return [path.read_text() for path in (store.root.parent / "slurm").rglob("*.out")]


class Disturber(Recorder):
    """Does something once, when a job is seen to run."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self.action: Callable[[], None] | None = action

    def start(self, job: Job) -> None:
        super().start(job)
        action, self.action = self.action, None
        if action is not None:
            action()


def send(store: Store, what: signal.Signals) -> None:
    for pid in store.locks.holders().values():
        os.kill(pid, what)


def test_two_workers_give_the_tables_of_this_process(tmp_path: Path, store: Store) -> None:
    here, model = Store(tmp_path / "here"), make_model(tmp_path / "model")
    compute_here(make_jobs(model, here), here)
    jobs = make_jobs(model, store)
    with slurm(store) as executor:
        outcome = executor.execute(jobs, progress := Recorder())
    assert (outcome.computed, outcome.failed) == (len(jobs), {})
    assert_same_results(jobs, here, store)
    assert sorted(progress.finished) == sorted(job.title for job in jobs)
    assert len(logs(store)) == 2
    assert all("Job completed successfully" in log for log in logs(store))
    assert_nothing_left(store)


def test_workers_share_the_work_and_do_not_repeat_what_failed_in_another(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_slurm, "PATIENCE", 0.0)  # which is for workers that are cancelled
    wrong, first = riddle(), naps(10, 0.3)
    left_out = naps(1, 0, wrong, name="after the riddle")
    jobs = [*first, wrong, *left_out, *naps(2, 0.1, *first, name="last")]
    with slurm(store) as executor:
        outcome = executor.execute(jobs, progress := Recorder())
    assert outcome.computed == 12
    # Nobody is cancelled who is about to end, and would complain in the terminal.
    assert all("Job completed successfully" in log for log in logs(store))
    assert outcome.failed.keys() == {wrong.artefact}
    assert outcome.left_out == {left_out[0].artefact}
    assert progress.failed == [str(outcome.failed[wrong.artefact])]
    assert "riddle failed: TypeError: " in progress.failed[0]
    assert sorted(progress.finished) == sorted(j.title for j in jobs if "riddle" not in j.title)
    done = [re.findall(r"start: ((?:nap|last|riddle)[ \d]*)", log) for log in logs(store)]
    assert len(done) == 2
    assert all(done)  # both worked
    titles = [title.strip() for part in done for title in part]
    # A job may be begun by both, but only one of them gets the lock.
    assert set(titles) == {job.title for job in jobs} - {left_out[0].title}


def test_a_worker_that_runs_out_of_time_comes_back(store: Store) -> None:
    progress = Disturber(lambda: send(store, signal.SIGUSR2))  # as Slurm does before the end
    with slurm(store, workers=1) as executor:
        outcome = executor.execute(naps(2, 0.5), progress)
    assert (outcome.computed, outcome.failed) == (2, {})
    (log,) = logs(store)
    assert log.count("Requeued job") == 1
    assert log.count("Starting with JobEnvironment") == 2


def test_a_worker_that_dies_is_replaced_while_another_works(store: Store) -> None:
    def kill_one() -> None:
        os.kill(next(iter(store.locks.holders().values())), signal.SIGKILL)

    with slurm(store) as executor:
        outcome = executor.execute(naps(6, 0.5), progress := Disturber(kill_one))
    assert (outcome.computed, outcome.failed) == (6, {})
    assert progress.notes == ["1 Slurm workers ended early and are replaced"]
    assert len(logs(store)) == 3


def test_if_workers_cannot_work_the_sentence_names_their_log(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_slurm, "FRUITLESS", 1)
    monkeypatch.setattr(on_slurm, "write_plan", lambda folder, jobs: None)
    with pytest.raises(ClusterError) as error, slurm(store) as executor:
        executor.execute(naps(2, 0.1), Recorder())
    words = str(error.value)
    assert words.startswith("all Slurm workers ended; the log of one")
    assert "the plan" in words
    assert "cannot be read" in words
    assert Path(words.split("'")[1]).is_file()


def test_a_worker_that_cannot_store_anything_ends_all(store: Store) -> None:
    store.root.mkdir(parents=True)
    (store.root / "nap").write_text("in the way of the folder")
    with pytest.raises(CannotGoOn, match=r"nap \d failed: cannot write"), slurm(store) as executor:
        executor.execute(naps(2, 0.1), Recorder())


def test_an_interruption_cancels_the_workers_and_starting_again_goes_on(store: Store) -> None:
    jobs = naps(2, 2)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), slurm(store) as executor:
        try:
            executor.execute(jobs, Disturber(interrupt))
        finally:
            holders = store.locks.holders().values()
            workers, started = executor.array, time.monotonic()
    assert time.monotonic() - started < 5
    assert holders
    assert all(worker.done() for worker in workers)
    assert all(is_gone(pid) for pid in holders)
    assert_nothing_left(store)
    assert not any(store.has(*job.artefact) for job in jobs)
    with slurm(store, cpus=2) as executor:
        outcome = executor.execute(jobs, Recorder())
    assert (outcome.computed, outcome.failed) == (2, {})
    assert len(logs(store)) == 3  # one worker was enough, as it does two jobs at a time


SBATCH = """#!/bin/bash
# Runs an array as Slurm would, on this machine and all at once.
cp "$1" "$(dirname "$0")/submitted.sh"
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p' "$1")
if [ -z "$last" ]; then
  SLURM_JOB_ID=77 setsid bash "$1" >/dev/null 2>&1 </dev/null &
fi
[ -n "$last" ] && for i in $(seq 0 "$last"); do
  SLURM_ARRAY_JOB_ID=77 SLURM_ARRAY_TASK_ID=$i SLURM_JOB_ID=$((77 + i)) \\
    setsid bash "$1" >/dev/null 2>&1 </dev/null &
done
echo "Submitted batch job 77"
"""
SRUN = """#!/bin/bash
# srun --unbuffered --output FILE COMMAND ...
output=${3//%A/$SLURM_ARRAY_JOB_ID}; output=${output//%j/$SLURM_JOB_ID}
output=${output//%a/$SLURM_ARRAY_TASK_ID}
exec "${@:4}" >"${output//%t/0}" 2>&1
"""
SCANCEL = """#!/bin/bash
echo "$@" >>"$(dirname "$0")/cancelled"
"""
SQUEUE = """#!/bin/bash
# All of the array run until somebody says otherwise.
folder=$(dirname "$0")
[ -e "$folder/states" ] && cat "$folder/states" || for i in 0 1 2 3; do echo "77_$i RUNNING"; done
"""


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    # A cluster without accounting.
    sacct = "#!/bin/bash\necho 'accounting storage is disabled' >&2; exit 1\n"
    scripts = {"sbatch": SBATCH, "srun": SRUN, "scancel": SCANCEL, "squeue": SQUEUE, "sacct": sacct}
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_settings_become_options_of_sbatch_and_an_array_that_works(
    commands: Path, store: Store
) -> None:
    executor = slurm(
        store,
        cluster="slurm",
        workers=3,
        at_once=2,
        minutes=90,
        memory_gb=2.5,
        partition="long",
        setup=("export MARK=1",),
        options={"account": "lab", "mail_type": "END"},
    )
    with executor:
        outcome = executor.execute(naps(6, 0.2), Recorder())
    assert (outcome.computed, outcome.failed) == (6, {})
    script = (commands / "submitted.sh").read_text().splitlines()
    wanted = {
        *("array=0-2%2", "time=90", "mem=2560MB", "partition=long", "cpus-per-task=1"),
        *("account=lab", "mail-type=END", "job-name=memloc"),
    }
    assert wanted <= {line.removeprefix("#SBATCH --") for line in script}
    assert "export MARK=1" in script
    assert not any("gpus" in line for line in script)


def test_an_interruption_cancels_the_array(commands: Path, store: Store) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), slurm(store, cluster="slurm") as executor:
        executor.execute(naps(4, 0.3), Disturber(interrupt))
    assert (commands / "cancelled").read_text() == "77\n"


def test_a_cancelled_array_is_replaced_without_accounting(
    commands: Path, store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    def cancel() -> None:
        send(store, signal.SIGTERM)  # as scancel does
        (commands / "states").write_text("77_0 CANCELLED\n")  # and the other is forgotten
        (commands / "sbatch").write_text(SBATCH.replace("77", "88"))

    class Returning(Disturber):
        def note(self, words: str) -> None:
            super().note(words)
            (commands / "states").write_text("88_0 RUNNING\n88_1 RUNNING\n")

    with slurm(store, cluster="slurm") as executor:
        outcome = executor.execute(naps(6, 0.5), progress := Returning(cancel))
    assert (outcome.computed, outcome.failed) == (6, {})
    assert progress.notes == ["2 Slurm workers ended early and are replaced"]
    assert capfd.readouterr().err == ""  # nothing about accounting
    assert_nothing_left(store)


def test_what_sbatch_says_is_passed_on(commands: Path, store: Store) -> None:
    (commands / "sbatch").write_text("#!/bin/bash\necho 'invalid partition: lnog' >&2; exit 1\n")
    with (
        pytest.raises(
            ClusterError, match=r"did not accept the workers \(.*invalid partition: lnog"
        ),
        slurm(store, cluster="slurm") as executor,
    ):
        executor.execute(naps(1, 0.1), Recorder())


def test_without_sbatch_it_is_one_sentence(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="sbatch is not on this machine; start it where"):
        make_executor(Execution(executor="slurm"), store, tmp_path)


def test_without_submitit_the_sentence_says_what_to_install(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ClusterError, match=r"pip install 'memloc\[slurm\]'"):
        make_executor(Execution(executor="slurm"), store, tmp_path)
