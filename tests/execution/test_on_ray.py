"""Jobs on a real Ray cluster of two worker processes: the same results, whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from memloc.engine import on_ray
from memloc.engine.choose import make_executor
from memloc.engine.job import Job
from memloc.engine.local import LocalExecutor
from memloc.engine.on_ray import RayExecutor
from memloc.engine.progress import Silent
from memloc.engine.ray_cluster import connect
from memloc.engine.ray_worker import RayWorker
from memloc.engine.settings import ExecutionConfig, RayConfig, Resources
from memloc.engine.store.store import Store
from memloc.errors import ClusterError
from tests.execution.same_results import (
    Recorder,
    assert_nothing_left,
    assert_same_results,
    compute_here,
    first_holder,
    make_jobs,
    make_model,
    naps,
    riddle,
)

try:
    import ray
except ImportError:
    pytest.skip("Ray is not installed: pip install 'memloc[ray]'", allow_module_level=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Two cores on this machine; executors of this process join it. Gives the address."""
    connect(ray, None, 2)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Job], Store, Path]:
    """The plan, and its results as computed in this process."""
    folder = tmp_path_factory.mktemp("here")
    store, model = Store(folder / "store"), make_model(folder / "model")
    jobs = make_jobs(model, store)
    compute_here(jobs, store)
    return jobs, store, model


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs" / "store")


class Spy(Recorder):
    """Also keeps which processes there were."""

    executor: RayExecutor

    def __init__(self) -> None:
        super().__init__()
        self.pids: set[int] = set()
        self.most = 0

    def finish(self, job: Job) -> None:
        super().finish(job)
        self.pids |= {each.about["pid"] for each in self.executor.workers if each.about}
        self.most = max(self.most, len(self.executor.workers))


def execute(
    store: Store, jobs: list[Job], workers: int | None = None, **config: Any
) -> tuple[Any, Spy]:
    progress = Spy()
    with RayExecutor(store, RayConfig(**config), workers) as executor:
        progress.executor = executor
        outcome = executor.execute(jobs, progress)
    return outcome, progress


@contextlib.contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=action)
    thread.start()
    yield
    thread.join()


def kill_holder(store: Store, kind: str) -> None:
    deadline = time.monotonic() + 60
    while (holder := first_holder(store, kind)) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(holder.pid, signal.SIGKILL)


def test_tables_are_those_of_this_process_though_a_worker_was_killed_in_the_middle_of_a_job(
    cluster: str, here: tuple[list[Job], Store, Path], store: Store
) -> None:
    _, there, model = here
    jobs = make_jobs(model, store)
    with meanwhile(lambda: kill_holder(store, "train")):
        outcome, progress = execute(store, jobs)
    assert progress.failed == []
    assert (outcome.computed, outcome.failed) == (len(jobs), {})
    assert_same_results(jobs, there, store)
    assert len(progress.pids) >= 2
    assert os.getpid() not in progress.pids
    (note,) = progress.notes
    assert "is tried again: its Ray worker on" in note
    assert_nothing_left(store)


def test_models_and_data_are_loaded_once_per_worker(
    cluster: str, here: tuple[list[Job], Store, Path], tmp_path: Path
) -> None:
    model = make_model(tmp_path / "model")
    store = Store(tmp_path / "store")
    jobs = make_jobs(model, store)
    windows = [job for job in jobs if job.kind == "window"]
    compute_here([job for job in jobs if job.kind in ("train", "states")], store)

    class Thief(Recorder):
        def finish(self, job: Job) -> None:
            super().finish(job)
            model.rename(tmp_path / "gone") if model.exists() else None

    with RayExecutor(store, RayConfig(), 1) as executor:
        outcome = executor.execute(windows, progress := Thief())
    assert not outcome.failed  # whoever loads the model again does not find it
    assert len(progress.finished) == len(windows) == 3


def test_what_fails_is_said_once_and_the_rest_goes_on(cluster: str, store: Store) -> None:
    wrong, others = riddle(), naps(4, 0.05)
    left_out = naps(1, 0.05, wrong, name="after the riddle")
    outcome, progress = execute(store, [wrong, *left_out, *others])
    assert outcome.computed == 4
    assert outcome.failed.keys() == {wrong.artefact, left_out[0].artefact}
    assert progress.failed == [outcome.failed[wrong.artefact]]
    assert "riddle failed: TypeError: " in progress.failed[0]
    record = next((store.root.parent / "failures").glob("*.json"))
    assert json.loads(record.read_text())["reason"] == progress.failed[0]


def test_two_executors_on_one_store_compute_nothing_twice(cluster: str, store: Store) -> None:
    jobs = naps(16, 0.2)
    found: list[Any] = []
    with meanwhile(lambda: found.append(execute(store, jobs)[0])):
        deadline = time.monotonic() + 60
        while not store.claims.all() and time.monotonic() < deadline:  # until Ray has begun
            time.sleep(0.02)
        with LocalExecutor(store, 1) as executor:
            found.append(executor.execute(jobs, Silent()))
    assert sum(outcome.computed for outcome in found) == 16
    assert all(outcome.computed > 0 and not outcome.failed for outcome in found)


def test_kinds_of_jobs_have_their_own_resources(cluster: str, store: Store) -> None:
    jobs = naps(8, 0.3)
    other = Job("unheard of", "something else", {})
    half = {"nap": Resources(cpus=0.5), "unheard of": Resources(cpus=2)}
    outcome, progress = execute(store, [*jobs, other], resources=half)
    assert outcome.computed == 8
    assert outcome.failed.keys() == {other.artefact}  # all others had to make room for it
    assert progress.most == 4


def test_resources_that_no_machine_has_are_one_sentence(cluster: str, store: Store) -> None:
    with pytest.raises(ClusterError, match=r"99 cpus and 0 gpus for jobs of kind 'nap'; ask for"):
        execute(store, naps(1, 0.1), resources={"default": Resources(cpus=99)})
    on_gpu = [Job("nap", "nap", {"seconds": 0.1}, where={"device": "cuda"})]
    with pytest.raises(ClusterError, match="1 cpus and 1 gpus"):
        execute(store, on_gpu)


SCRIPT = """
import sys
from pathlib import Path
from memloc.engine.job import Job
from memloc.engine.on_ray import RayExecutor
from memloc.engine.progress import Silent
from memloc.engine.settings import RayConfig
from memloc.engine.store.store import Store
jobs = [Job("nap", f"nap {number}", {"seconds": 60, "number": number}) for number in range(4)]
try:
    with RayExecutor(Store(Path(sys.argv[1])), RayConfig(address=sys.argv[2])) as executor:
        executor.execute(jobs, Silent())
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_an_interrupted_program_leaves_the_cluster_at_once_and_nothing_behind(
    cluster: str, store: Store
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(store.root), cluster],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while len(store.claims.all()) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    holders = store.claims.all().values()
    assert len(holders) == 2
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    output, _ = process.communicate(timeout=30)
    assert time.monotonic() - started < 5
    assert (process.returncode, output) == (130, "")
    assert_nothing_left(store)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", r"cannot be reached \(Connection refused\); start one"),
        ("ray://127.0.0.1:1", "cannot be reached"),
        ("nowhere.invalid:6379", "cannot be reached"),
        ("somewhere", "give `auto`, HOST:PORT or ray://HOST:PORT"),
        ("127.0.0.1:99999", "cannot be reached"),
    ],
)
def test_an_unreachable_cluster_is_one_sentence_soon(
    store: Store, address: str, words: str
) -> None:
    started = time.monotonic()
    config = ExecutionConfig(executor="ray", ray=RayConfig(address=address))
    with pytest.raises(ClusterError, match=words) as error:
        make_executor(config, store, store.root)
    assert time.monotonic() - started < 10
    assert repr(address) in str(error.value)


def test_nothing_is_shown_before_the_cluster_is_reached(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*given: object) -> None:
        raise ClusterError("away")

    class Shown(Recorder):
        def showing(self, jobs: object) -> NoReturn:
            raise AssertionError("shown")

    # A cluster is there for the other tests, and an `auto` one may happen to be.
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(on_ray, "connect", away)
    config = ExecutionConfig(executor="ray", ray=RayConfig(address="auto"))
    with (
        pytest.raises(ClusterError, match="away"),
        make_executor(config, store, store.root) as executor,
    ):
        executor.execute(naps(1, 0), Shown())


def test_without_ray_the_sentence_says_what_to_install(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install 'memloc\[ray\]'"):
        make_executor(ExecutionConfig(executor="ray"), store, store.root)


def test_a_worker_that_does_not_see_the_store_is_one_sentence(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    token = tmp_path / "token"
    worker = RayWorker(str(store.root), "launch", str(token), True)
    with pytest.raises(ClusterError, match=f"on {socket.gethostname()} does not see the store"):
        on_ray._checked(json.loads(worker.introduce()), store)
    token.write_text("launch")
    about = json.loads(worker.introduce())
    assert on_ray._checked(about, store) == about
    with pytest.raises(ClusterError, match=r"has memloc 0\.0\.0, this machine has"):
        on_ray._checked({**about, "version": "0.0.0"}, store)
    # Without a GPU of its own a worker sees none.
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    RayWorker(str(store.root), "launch", str(token), False)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
