"""Run jobs on a Ray cluster: an existing one, or one on this machine.

Workers are actors, one process each. They get jobs as text and reply as text; what a job needs and
leaves is in the store, which all machines must see. A worker that is lost loses at most its job in
progress, which is tried again by another.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import time
from collections import Counter
from importlib.metadata import version
from typing import Any, Literal

from memloc.engine.executor import LOOK_EVERY, Executor
from memloc.engine.job import Job
from memloc.engine.local import default_workers
from memloc.engine.queue import JobQueue
from memloc.engine.ray_cluster import check_address, connect, import_ray
from memloc.engine.settings import RayConfig, Resources
from memloc.engine.store.store import TEMPORARY, Store
from memloc.errors import ClusterError

WAIT = 0.2
"""Seconds to wait for a reply; Ray does not notice Ctrl-C before they are over."""
PATIENCE = 2.0
"""Seconds for workers to drop their jobs; then they are killed."""
SILENCE = 30.0
"""Seconds without any worker after which the user hears of it."""
FALSE_STARTS = 3
"""Workers that may die while they start."""


class RayExecutor(Executor):
    """Workers on a Ray cluster; they start when there is work.

    Args:
        store: Where results go, on a file system that all machines of the cluster share.
        config: Which cluster, and what jobs occupy.
        workers: At most so many at once; None: as many as fit. A cluster on this machine gets a
            core for each, by default all.
        launch: See `Executor`.

    Raises:
        ClusterError: If Ray is not installed, or the cluster cannot be reached.
    """

    def __init__(
        self,
        store: Store,
        config: RayConfig,
        workers: int | None = None,
        launch: str | None = None,
    ) -> None:
        super().__init__(store, launch)
        self.config, self.most = config, workers
        self.ray = import_ray()
        self.workers: list[_Worker] = []
        self.connection: Literal["none", "ours", "there before"] = "none"
        self.false_starts = 0
        self.cpus = self.gpus = 0.0  # of the whole cluster
        self.known_needs: dict[tuple[str, str], Resources] = {}
        owner = f"{socket.gethostname()}@{os.getpid()}"  # so that it is swept if this is killed
        self.token = store.root / TEMPORARY / f"ray-{self.launch[:8]}@{owner}" / "token"
        check_address(config.address)

    def work(self, queue: JobQueue) -> None:
        """Hand out jobs and wait for replies."""
        self._check_fit(queue)
        started = looked = time.monotonic()
        warned = False
        while not queue.over:
            for worker in self.workers:
                if worker.idle and (job := queue.take(worker.before, self._fits(worker))):
                    worker.send(job)
            self._start_workers(queue)
            self._receive(queue)
            now = time.monotonic()
            if now - looked > LOOK_EVERY:
                looked = now
                queue.look_elsewhere()
                self._look_at_cluster()
            if not warned and now - started > SILENCE and not any(w.about for w in self.workers):
                warned = True
                queue.progress.note("the Ray cluster is busy: no worker could start yet")

    def stop(self) -> None:
        """Have workers drop what they do, end them, and leave the cluster."""
        shutil.rmtree(self.token.parent, ignore_errors=True)
        if self.connection == "none":
            return
        busy = [worker.reply for worker in self.workers if worker.job]
        if busy:
            with contextlib.suppress(self.ray.exceptions.RayError):
                self.ray.wait(busy, num_returns=len(busy), timeout=PATIENCE)
        for worker in self.workers:
            self.ray.kill(worker.actor)
        self.workers.clear()
        if self.connection == "ours":
            self.ray.shutdown()
        self.connection = "none"
        self.store.sweep_leftovers()

    def needs(self, job: Job) -> Resources:
        """What a job occupies: as configured, else a core, and a GPU if it computes on one."""
        key = job.kind, str(job.where.get("device"))
        if key not in self.known_needs:
            given, (kind, device) = self.config.resources, key
            on_gpu = device == "cuda" or (device == "auto" and self.gpus > 0)
            usual = given.get("default", Resources(cpus=1, gpus=1 if on_gpu else 0))
            self.known_needs[key] = given.get(kind, usual)
        return self.known_needs[key]

    # --- workers ---

    def _fits(self, worker: _Worker) -> Any:
        return lambda job: self.needs(job) == worker.occupies

    def _start_workers(self, queue: JobQueue) -> None:
        """Where jobs could run now that no worker has: more workers, as far as there is room."""
        if not self._idle() and not any(map(self._has_room, self.known_needs.values())):
            return
        spare = Counter(_key(w.occupies) for w in self.workers if w.idle or not w.about)
        full: set[tuple[float, float]] = set()
        for job in queue.ready_jobs():
            needs = self.needs(job)
            if spare[_key(needs)] > 0:
                spare[_key(needs)] -= 1
            elif _key(needs) not in full and not self._start_worker(needs):
                full.add(_key(needs))

    def _start_worker(self, needs: Resources) -> bool:
        """A worker with these resources, perhaps in place of idle ones with others."""
        while not self._has_room(needs):
            if not (idle := self._idle()):
                return False
            self.workers.remove(idle[0])
            self.ray.kill(idle[0].actor)
        from memloc.engine.ray_worker import RayWorker

        options = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "max_restarts": 0}
        actor = (
            self.ray.remote(RayWorker)
            .options(**options)
            .remote(
                str(self.store.root.absolute()),
                self.launch,
                str(self.token.absolute()),
                needs.gpus > 0,
            )
        )
        self.workers.append(_Worker(actor, needs))
        return True

    def _idle(self) -> list[_Worker]:
        """Those for whom there is no job now."""
        return [worker for worker in self.workers if worker.idle]

    def _has_room(self, needs: Resources) -> bool:
        taken = [worker.occupies for worker in self.workers]
        return (
            (self.most is None or len(taken) < self.most)
            and sum(each.cpus for each in taken) + needs.cpus <= self.cpus + 1e-6
            and sum(each.gpus for each in taken) + needs.gpus <= self.gpus + 1e-6
        )

    def _receive(self, queue: JobQueue) -> None:
        """One reply, if any comes soon."""
        waiting = {worker.reply: worker for worker in self.workers if worker.reply is not None}
        if not waiting:
            time.sleep(WAIT)
            return
        for reply in self.ray.wait(list(waiting), timeout=WAIT)[0]:
            worker = waiting[reply]
            job, worker.reply, worker.job = worker.job, None, None
            try:
                answer = json.loads(self.ray.get(reply))
            except self.ray.exceptions.RayError as error:
                self.workers.remove(worker)
                if job is None:
                    self._false_start(error)
                else:
                    where = f" on {worker.about['host']}" if worker.about else ""
                    queue.lost(
                        job,
                        f"its Ray worker{where} died, perhaps for lack of memory; if so, let "
                        "fewer run at once with more cpus per job in `ray: resources`",
                    )
                continue
            if job is None:
                worker.about = _checked(answer, self.store)
            elif answer[0] == "interrupted":
                queue.lost(job, "its Ray worker was told to stop")
            else:
                queue.settle(job, (answer[0], answer[1]))

    def _false_start(self, error: Exception) -> None:
        self.false_starts += 1
        words = str(error).strip().splitlines()
        if "ModuleNotFoundError" in words[-1] or self.false_starts >= FALSE_STARTS:
            raise ClusterError(
                f"a Ray worker could not start ({words[-1].strip()}); memloc must be installed on "
                "all machines of the cluster, as it is here"
            ) from None

    # --- the cluster ---

    def connect(self) -> None:
        """Join the cluster, or start one."""
        self.store.check_writable()
        self.token.parent.mkdir(parents=True, exist_ok=True)
        self.token.write_text(self.launch)
        if self.connection != "none":
            return
        if self.ray.is_initialized():  # by a notebook, say: leave it running afterwards
            self.connection = "there before"
        else:
            connect(self.ray, self.config.address, self.most or default_workers("cpu"))
            self.connection = "ours"
        self._look_at_cluster()

    def _look_at_cluster(self) -> None:
        there = self.ray.cluster_resources()
        self.cpus, self.gpus = there.get("CPU", 0.0), there.get("GPU", 0.0)

    def _check_fit(self, queue: JobQueue) -> None:
        """Ray would wait forever for a machine that is large enough."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        for job in {job.kind: job for job in queue.jobs.values()}.values():
            needs = self.needs(job)
            if not any(
                node.get("CPU", 0) >= needs.cpus and node.get("GPU", 0) >= needs.gpus
                for node in nodes
            ):
                raise ClusterError(
                    f"no machine of the Ray cluster has {needs.cpus:g} cpus and {needs.gpus:g} "
                    f"gpus for jobs of kind {job.kind!r}; ask for less in `ray: resources`, or "
                    "start the cluster with more"
                )


class _Worker:
    """An actor and what it is busy with; at first, with starting."""

    def __init__(self, actor: Any, occupies: Resources) -> None:
        self.actor, self.occupies = actor, occupies
        self.about: dict[str, Any] = {}
        self.job: Job | None = None
        self.before: Job | None = None
        self.reply: Any = actor.introduce.remote()

    @property
    def idle(self) -> bool:
        return self.reply is None

    def send(self, job: Job) -> None:
        self.job = self.before = job
        self.reply = self.actor.work.remote(job.to_json())


def _key(needs: Resources) -> tuple[float, float]:
    return needs.cpus, needs.gpus


def _checked(about: dict[str, Any], store: Store) -> dict[str, Any]:
    if not about["sees"]:
        raise ClusterError(
            f"the Ray worker on {about['host']} does not see the store {str(store.root)!r}; choose "
            "a folder on a file system that all machines of the cluster share with --runs DIR"
        )
    if about["version"] != version("memloc"):
        raise ClusterError(
            f"the Ray worker on {about['host']} has memloc {about['version']}, this machine has "
            f"{version('memloc')}; install the same version on all machines"
        )
    return about
