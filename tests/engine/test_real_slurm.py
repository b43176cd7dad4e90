"""Jobs on a real Slurm of two nodes, of which workers are cancelled in the middle."""

from __future__ import annotations

import getpass
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memloc.config import Slurm
from memloc.engine import on_slurm
from memloc.engine.job import Job
from memloc.engine.loop import CannotGoOn
from memloc.engine.on_slurm import SlurmExecutor
from memloc.engine.store.store import Store
from memloc.errors import ClusterError
from tests.engine.real_slurm import MISSING, real_slurm, run
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
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(MISSING), reason=f"Slurm is not installed ({', '.join(MISSING)}): apt-get install "
        "slurm-wlm munge",
    ),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with real_slurm(tmp_path_factory.mktemp("slurm")):
        yield


@pytest.fixture(autouse=True)
def _ask_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_slurm, "ASK_EVERY", 1.0)
    while run("squeue", "-h"):  # workers of the test before
        time.sleep(0.1)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs" / "store")


def execute(
    store: Store, jobs: list[Job], disturb: Callable[[], None], **config: Any
) -> tuple[Any, Recorder]:
    settings = Slurm(**{"workers": 2, "memory_gb": 0.5, "minutes": 10, **config})
    thread = threading.Thread(target=disturb)
    thread.start()
    with SlurmExecutor(store, settings, store.root.parent / "slurm") as executor:
        outcome = executor.execute(jobs, progress := Recorder())
    thread.join()
    return outcome, progress


def wait_for_locks(store: Store, kind: str = "") -> None:
    while not any(name.startswith(kind) for name in store.locks.holders()):
        time.sleep(0.05)


def logs(store: Store) -> list[str]:
    return [path.read_text() for path in (store.root.parent / "slurm").rglob("*.out")]


def running() -> str:
    """A worker."""
    return run("squeue", "-h", "-r", "-t", "R", "-o", "%i").split()[0]


def test_workers_share_the_work_and_do_not_repeat_what_failed_in_another(store: Store) -> None:
    wrong, first = riddle(), naps(10, 0.3)
    left_out = naps(1, 0, wrong, name="after the riddle")
    jobs = [*first, wrong, *left_out, *naps(2, 0.1, *first, name="last")]
    outcome, progress = execute(store, jobs, lambda: None)
    assert outcome.computed == 12
    assert outcome.failed.keys() == {wrong.artefact}
    assert outcome.left_out == {left_out[0].artefact}
    assert progress.failed == [str(outcome.failed[wrong.artefact])]
    assert "riddle failed: TypeError: " in progress.failed[0]
    assert sum(log.count("start: riddle") for log in logs(store)) == 1
    assert execute(store, jobs, lambda: None)[0].failed.keys() == {wrong.artefact}
    assert sum(log.count("start: riddle") for log in logs(store)) == 2  # a new start tries again


def test_a_worker_that_runs_out_of_time_comes_back(store: Store) -> None:
    def warn() -> None:
        wait_for_locks(store)
        worker = running()
        run("scancel", "--signal=USR2", worker)  # as Slurm does before the end
        while run("squeue", "-h", "-t", "PD") == "":
            time.sleep(0.1)
        time.sleep(2)  # a job that starts in the second of its end is refused by its node
        run("scontrol", "update", f"JobId={worker}", "StartTime=now")  # instead of in two minutes

    outcome, progress = execute(store, naps(3, 1.0), warn, workers=1)
    assert (outcome.computed, outcome.failed, progress.notes) == (3, {}, [])
    assert "Exiting gracefully after preemption/timeout" in "".join(logs(store))


def test_if_workers_cannot_work_the_sentence_names_their_log(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_slurm, "FRUITLESS", 1)
    monkeypatch.setattr(on_slurm, "write_plan", lambda folder, jobs: folder / "no plan")
    with pytest.raises(ClusterError) as error:
        execute(store, naps(2, 0.1), lambda: None)
    words = str(error.value)
    assert words.startswith("all Slurm workers ended; the log of one")
    assert Path(words.split("'")[1]).is_file()


def test_a_worker_that_cannot_store_anything_ends_all(store: Store) -> None:
    store.root.mkdir(parents=True)
    (store.root / "nap").write_text("in the way of the folder")
    with pytest.raises(CannotGoOn, match=r"nap \d failed: cannot write"):
        execute(store, naps(2, 0.1), lambda: None)


def test_a_cancelled_worker_is_replaced_and_leaves_no_lock(store: Store) -> None:
    def cancel() -> None:
        wait_for_locks(store)
        run("scancel", running())

    outcome, progress = execute(store, naps(20, 1.0), cancel)
    assert (outcome.computed, outcome.failed) == (20, {})
    assert progress.notes == ["1 Slurm worker ended early and will be replaced"]
    assert_nothing_left(store)


def test_an_array_cancelled_before_its_first_result_is_replaced(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    def cancel() -> None:
        wait_for_locks(store)
        run("scancel", "--user", getpass.getuser())

    outcome, progress = execute(store, naps(4, 3.0), cancel)
    assert (outcome.computed, outcome.failed) == (4, {})
    assert all("ended early and will be replaced" in note for note in progress.notes)
    assert progress.notes
    assert capfd.readouterr().err == ""  # nothing about accounting, which there is none of


def test_an_interruption_cancels_the_array_within_five_seconds(store: Store) -> None:
    class Interrupted(Recorder):
        def start(self, job: Job) -> None:
            raise KeyboardInterrupt

    settings = Slurm(workers=2, memory_gb=0.5, minutes=10)
    with (
        pytest.raises(KeyboardInterrupt),
        SlurmExecutor(store, settings, store.root.parent / "slurm") as executor,
    ):
        try:
            executor.execute(naps(4, 30.0), Interrupted())
        finally:
            asked = time.monotonic()
    assert time.monotonic() - asked < 5
    while run("squeue", "-h"):
        time.sleep(0.1)
    assert_nothing_left(store)


def test_workers_that_wait_in_the_queue_are_told(store: Store) -> None:
    outcome, progress = execute(store, naps(16, 1.0), lambda: None, workers=4)
    assert outcome.computed == 16
    assert "2 Slurm workers run, 2 wait in the queue" in progress.said


def test_tables_are_those_of_this_process_though_a_worker_was_cancelled(
    tmp_path: Path, store: Store
) -> None:
    here, model = Store(tmp_path / "here"), make_model(tmp_path / "model")
    compute_here(make_jobs(model, here), here)
    jobs = make_jobs(model, store)

    def cancel() -> None:
        wait_for_locks(store, "window")
        run("scancel", running())

    outcome, _ = execute(store, jobs, cancel)
    assert (outcome.computed, outcome.failed) == (len(jobs), {})
    assert_same_results(jobs, here, store)
    assert_nothing_left(store)
