"""Run jobs on a Ray cluster: an existing one, or one on this machine.

A bundle of jobs is a Ray task: Ray decides where it runs, and tries again if a worker or a machine
is lost. Jobs and replies travel as text; what a job needs and leaves is in the store, which all
machines must see.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from importlib.metadata import version
from pathlib import Path
from typing import Any

from memloc.config import Ray, Resources
from memloc.engine.job import Job, Tell, jobs_from_text, jobs_to_text, work_through
from memloc.engine.local import default_workers
from memloc.engine.loop import Executor, WorkerLost
from memloc.engine.progress import Progress
from memloc.engine.store.store import TEMPORARY, Store
from memloc.errors import ClusterError

REACH = 5.0
"""Seconds for a cluster to accept a connection."""
JOIN = 60.0
"""Seconds to join a cluster that accepts connections, or to start one."""
PATIENCE = 2.0
"""Seconds for workers to drop their jobs; then they are killed."""
SILENCE = 30.0
"""Seconds without any worker after which the user hears of it."""
RETRIES = 3
MOST_TASKS = 1000
"""Tasks that wait in the queue of Ray."""


class RayExecutor(Executor):
    """Tasks of a Ray cluster.

    The store is on a file system that all machines of the cluster share. At most so many `workers`
    are tasks at once; None: as many as fit. A cluster on this machine gets a core for each, by
    default all.

    Raises:
        ClusterError: If Ray is not installed, or nobody listens at the address.
    """

    attempts = 1  # Ray has tried several times by itself
    reports = False

    def __init__(self, store: Store, config: Ray, workers: int | None = None) -> None:
        super().__init__(store)
        self.config, self.most = config, workers
        self.ray = import_ray()
        if config.address not in (None, "auto"):
            _check_address(str(config.address))
        self.slots = workers or MOST_TASKS
        self.tasks: set[Any] = set()
        self.joined = self.ours = False
        # Shows workers that they see the same store; swept if this process is killed.
        owner = f"{socket.gethostname()}@{os.getpid()}"
        self.token = store.root.absolute() / TEMPORARY / f"ray{id(self):x}@{owner}"

    def connect(self, jobs: Sequence[Job]) -> None:
        """Join the cluster, or start one."""
        self.token.mkdir(parents=True, exist_ok=True)
        if not self.joined:
            self.ours = not self.ray.is_initialized()  # else by a notebook, say: leave it running
            if self.ours:
                join_cluster(self.ray, self.config.address, self.most or default_workers("cpu"))
            self.joined = True
            self.task = self.ray.remote(_make_task())
        there = self.ray.cluster_resources()
        self.workers = self.most or max(1, int(there.get("CPU", 1)))
        self.gpus = there.get("GPU", 0)
        self.quiet_until = time.monotonic() + SILENCE

    def submit(self, bundle: Sequence[Job], tell: Tell) -> Future[None]:
        """As one task."""
        needs = self._needs(bundle[0])
        task = self.task.options(
            num_cpus=needs.cpus, num_gpus=needs.gpus, max_retries=RETRIES
        ).remote(
            jobs_to_text(bundle),
            str(self.store.root.absolute()),
            str(self.token),
            version("memloc"),
            needs.gpus > 0,
        )
        self.tasks.add(task)
        future: Future[None] = Future()

        def pass_on(done: Future[str]) -> None:  # in a thread of Ray
            self.tasks.discard(task)
            try:
                answer = json.loads(done.result())
            except Exception as error:  # there are many ways in which Ray can fail
                future.set_exception(WorkerLost(self._why_lost(error)))
                return
            if "problem" in answer:
                future.set_exception(ClusterError(**answer))
                return
            for job in bundle:
                if job.key in answer:  # unless the disk is full
                    tell(job, answer[job.key])
            future.set_result(None)

        task.future().add_done_callback(pass_on)
        return future

    def _needs(self, job: Job) -> Resources:
        """What a job occupies: as configured, else a core, and a GPU if it computes on one."""
        device = job.where.get("device")
        on_gpu = device == "cuda" or (device == "auto" and self.gpus > 0)
        given = self.config.resources
        usual = given.get("default", Resources(cpus=1, gpus=1 if on_gpu else 0))
        return given.get(job.kind, usual)

    def _why_lost(self, error: Exception) -> str:
        if isinstance(error, self.ray.exceptions.OutOfMemoryError):
            return (
                "its Ray worker was ended for lack of memory; let fewer run at once with more cpus "
                "per job in `ray: resources`"
            )
        if isinstance(error, self.ray.exceptions.NodeDiedError):
            return "the machine of its Ray worker was lost"
        return f"its Ray worker was lost ({type(error).__name__})"

    def poll(self, progress: Progress) -> None:
        """Say so if nobody has begun for long."""
        if time.monotonic() > self.quiet_until:
            self.quiet_until = float("inf")
            if not self.store.locks.holders():
                progress.note(
                    "no worker of the Ray cluster could start yet: it is busy, has no machine with "
                    "the cpus and gpus that `ray: resources` asks for, or its machines do not "
                    "reach this one"
                )

    def stop(self) -> None:
        """Have workers drop what they do, end them, and leave the cluster."""
        with contextlib.suppress(OSError):
            self.token.rmdir()
        if not self.joined:
            return
        for force in (False, True):
            tasks = list(self.tasks)
            with contextlib.suppress(self.ray.exceptions.RayError):
                for task in tasks:
                    self.ray.cancel(task, force=force)
                self.ray.wait(tasks, num_returns=len(tasks), timeout=PATIENCE) if tasks else None
        if self.ours:
            self.ray.shutdown()
        self.joined = False
        self.store.sweep_leftovers()


def _make_task() -> Callable[[str, str, str, str, bool], str]:
    """The function of a task; as it is nested, Ray sends its code, also to where memloc is not."""

    def work(bundle: str, root: str, token: str, version: str, gpu: bool) -> str:
        import json
        import socket

        try:
            from memloc.engine.on_ray import work_here
        except ImportError as error:
            problem = f"the Ray worker on {socket.gethostname()} cannot import memloc ({error})"
            remedy = "install the same version of memloc on all machines of the cluster"
            return json.dumps({"problem": problem, "remedy": remedy})
        return json.dumps(work_here(bundle, root, token, version, gpu))

    return work


def work_here(bundle: str, root: str, token: str, wanted: str, gpu: bool) -> dict[str, Any]:
    """Work through a bundle in a process of Ray.

    Args:
        bundle: Jobs as text.
        root: Folder of the store.
        token: A folder of whoever submitted this, to see whether this machine has the same store.
        wanted: Their version of memloc.
        gpu: Whether the task has one; if not, it must not use those of others.

    Returns:
        Replies, by key; or `problem` and `remedy`.
    """
    worker = f"the Ray worker on {socket.gethostname()}"
    if version("memloc") != wanted:
        problem = f"{worker} has memloc {version('memloc')}, this machine has {wanted}"
        return {"problem": problem, "remedy": "install the same version on all machines"}
    if not Path(token).is_dir():
        remedy = "choose a folder for the runs on a file system that all its machines share"
        return {"problem": f"{worker} does not see the store {root!r}", "remedy": remedy}
    if not gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    last: dict[str, Any] = {}
    work_through(
        jobs_from_text(bundle), Store(Path(root)), lambda job, news: last.update({job.key: news})
    )
    return last


# --- reaching a cluster ---


def import_ray() -> Any:
    """Ray, told to be quiet.

    Raises:
        ClusterError: If it is not installed.
    """
    # Before the import: Ray reads them then. No reports home, and no minutes of waiting for a port
    # at which something else listens.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "5")
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ClusterError(
            "executor 'ray' needs Ray, which is not installed",
            remedy="get it with: pip install 'memloc[ray]'",
        ) from None


def _check_address(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rstrip("/").rpartition(":")
    try:
        if not (host and port.isdecimal()):
            raise OSError("it has no port")
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, error) from None


def join_cluster(ray: Any, address: str | None, cores: int) -> None:
    """Join a cluster, or start one on this machine.

    Raises:
        ClusterError: If that is not possible.
    """
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        # Ray would reserve a third of the memory for objects; ours are in the store.
        options |= {
            "num_cpus": cores,
            "include_dashboard": False,
            "object_store_memory": 80 * 2**20,
        }
    # In a thread, because Ray may wait without end, and would replace the handlers of signals. The
    # thread remains, because the processes of a new cluster end with it.
    joined: Future[None] = Future()

    def join() -> None:
        try:
            ray.init(address or "local", **options)
        except BaseException as error:
            joined.set_exception(error)
        else:
            joined.set_result(None)
            threading.Event().wait()

    threading.Thread(target=join, daemon=True).start()
    try:
        joined.result(timeout=JOIN)
    except TimeoutError:
        raise ClusterError(
            f"the Ray cluster {address!r} accepts connections but does not answer",
            remedy="if its head listens at 127.0.0.1 only, start it with "
            "`ray start --head --node-ip-address=ADDRESS`, an address that all machines see",
        ) from None
    except Exception as error:
        if address is not None and _asks_for_token(ray, address):
            raise ClusterError(
                f"the Ray cluster {address!r} asks for a token",
                remedy="set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to a file with the token "
                "of the cluster",
            ) from None
        raise _unreachable(address, error) from None
    # Ray prints a paragraph on standard output for every worker and machine that dies.
    internals: Any = importlib.import_module("ray._private.worker")
    internals.print_to_stdstream = lambda *given, **named: None


def _asks_for_token(ray: Any, address: str) -> bool:
    """Whether that is why a cluster cannot be joined, of which `ray.init` says nothing."""
    try:
        importlib.import_module("ray._raylet").GcsClient(address=address)
    except Exception as error:
        return isinstance(error, getattr(ray.exceptions, "AuthenticationError", ()))
    return False


def _unreachable(address: str | None, error: Exception) -> ClusterError:
    reason = (getattr(error, "strerror", None) or str(error)).strip().splitlines()[0].rstrip(".")
    if address is None:
        return ClusterError(f"a Ray cluster could not be started on this machine: {reason}")
    return ClusterError(
        f"the Ray cluster {address!r} cannot be reached ({reason})",
        remedy="start one with `ray start --head`, give `auto`, HOST:PORT or ray://HOST:PORT, or "
        "leave it out to start one on this machine",
    )
