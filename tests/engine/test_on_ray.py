"""Jobs on a real Ray cluster of two worker processes: the same results, whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from memloc.config import Execution, Ray, Resources
from memloc.engine import on_ray
from memloc.engine.job import Job, read_failure
from memloc.engine.local import make_executor
from memloc.engine.on_ray import RayExecutor
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.errors import ClusterError
from tests.engine.same_results import Recorder, assert_nothing_left, naps, riddle

try:
    import ray
except ImportError:
    pytest.skip("Ray is not installed: pip install 'memloc[ray]'", allow_module_level=True)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Two cores on this machine; executors of this process join it. Gives the address."""
    on_ray.join_cluster(ray, None, 2)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs" / "store")


def execute(
    store: Store, jobs: list[Job], workers: int | None = None, **config: Any
) -> tuple[Any, Recorder]:
    progress = Recorder()
    with RayExecutor(store, Ray(**config), workers) as executor:
        outcome = executor.execute(jobs, progress)
    return outcome, progress


@contextlib.contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=action)
    thread.start()
    yield
    thread.join()


def test_what_fails_is_said_once_and_the_rest_goes_on(cluster: str, store: Store) -> None:
    wrong, others = riddle(), naps(4, 0.05)
    left_out = naps(1, 0.05, wrong, name="after the riddle")
    outcome, progress = execute(store, [wrong, *left_out, *others])
    assert outcome.computed == 4
    assert outcome.failed.keys() == {wrong.artefact}
    assert outcome.left_out == {left_out[0].artefact}
    assert progress.failed == [str(outcome.failed[wrong.artefact])]
    assert "riddle failed: TypeError: " in progress.failed[0]
    assert read_failure(store, wrong) == outcome.failed[wrong.artefact]


def test_kinds_of_jobs_have_their_own_resources(cluster: str, store: Store) -> None:
    jobs = naps(3, 0.3)
    most = 0

    def count() -> None:
        nonlocal most
        while not all(store.has(*job.artefact) for job in jobs):
            most = max(most, len(store.locks.holders()))
            time.sleep(0.02)

    with meanwhile(count):
        outcome, _ = execute(store, jobs, resources={"nap": Resources(cpus=2)})
    assert outcome.computed == 3
    assert most == 1


def test_a_cluster_on_which_nothing_can_start_is_noted(
    cluster: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(Recorder):
        def note(self, text: str) -> None:
            super().note(text)
            raise KeyboardInterrupt

    monkeypatch.setattr(on_ray, "SILENCE", 1.0)
    large = Ray(resources={"default": Resources(cpus=99)})
    progress = Interrupted()
    with pytest.raises(KeyboardInterrupt), RayExecutor(store, large) as executor:
        executor.execute(naps(1, 0.1), progress)
    assert "has no machine with the cpus and gpus that `ray: resources`" in progress.notes[0]


SCRIPT = """
import sys
from pathlib import Path
from memloc.engine.job import Job
from memloc.engine.on_ray import RayExecutor
from memloc.engine.progress import Progress
from memloc.config import Ray
from memloc.engine.store.store import Store
jobs = [Job("nap", f"nap {number}", {"seconds": 60, "number": number}) for number in range(4)]
try:
    with RayExecutor(Store(Path(sys.argv[1])), Ray(address=sys.argv[2])) as executor:
        executor.execute(jobs, Progress())
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
    while len(store.locks.holders()) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    holders = store.locks.holders().values()
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
        ("somewhere", r"\(it has no port\); .* give `auto`, HOST:PORT or ray://HOST:PORT"),
    ],
)
def test_an_unreachable_cluster_is_one_sentence_soon(
    store: Store, address: str, words: str
) -> None:
    started = time.monotonic()
    config = Execution(executor="ray", ray=Ray(address=address))
    with pytest.raises(ClusterError, match=words) as error:
        make_executor(config, store, store.root)
    assert time.monotonic() - started < 10
    assert repr(address) in str(error.value)


def test_without_ray_the_sentence_says_what_to_install(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install 'memloc\[ray\]'"):
        make_executor(Execution(executor="ray"), store, store.root)


def test_a_worker_that_does_not_see_the_store_is_one_sentence(
    cluster: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = RayExecutor(store, Ray())
    executor.token = Path("/nowhere/token")
    monkeypatch.setattr(executor, "connect", lambda jobs: None)
    executor.joined, executor.gpus, executor.workers = True, 0, 2
    executor.quiet_until = float("inf")
    executor.task = ray.remote(on_ray._make_task())
    with (
        pytest.raises(ClusterError, match=f"on {socket.gethostname()} does not see the store"),
        executor,
    ):
        executor.execute(naps(1, 0), Progress())


def test_a_worker_without_memloc_or_with_another_version_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    token = tmp_path / "token"
    token.mkdir()
    found = on_ray.work_here("[]", str(tmp_path), str(token), "0.0.0", True)
    assert "has memloc " in found["problem"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    ours = version("memloc")
    assert on_ray.work_here("[]", str(tmp_path), str(token), ours, False) == {}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""  # without a GPU of its own it sees none
    monkeypatch.setitem(sys.modules, "memloc.engine.on_ray", None)
    found = json.loads(on_ray._make_task()("[]", str(tmp_path), str(token), ours, True))
    assert "cannot import memloc" in found["problem"]


def test_a_cluster_that_does_not_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silence:
        exceptions = ray.exceptions

        def init(self, *given: object, **options: object) -> None:
            time.sleep(2)

    monkeypatch.setattr(on_ray, "JOIN", 0.1)
    with pytest.raises(ClusterError, match=r"'127\.0\.0\.1:6379' accepts connections but does not"):
        on_ray.join_cluster(Silence(), "127.0.0.1:6379", 1)


def test_what_became_of_lost_workers_is_said_in_words(store: Store) -> None:
    executor = RayExecutor(store, Ray())
    for error, words in {
        ray.exceptions.OutOfMemoryError("x"): "lack of memory",
        ray.exceptions.NodeDiedError("x"): "the machine of its Ray worker was lost",
        ray.exceptions.WorkerCrashedError(): r"was lost \(WorkerCrashedError\)",
    }.items():
        assert re.search(words, executor._why_lost(error))
