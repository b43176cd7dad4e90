"""What runs in a worker process of Ray: jobs come as text, replies go as text."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from importlib.metadata import version
from pathlib import Path
from types import FrameType

from memloc.engine.executor import attempt
from memloc.engine.job import Job
from memloc.engine.store.store import Store

LOOK_EVERY = 0.3
"""Seconds between two looks whether the work goes on."""

DROP = signal.SIGUSR2


class RayWorker:
    """One process that does one job after the other, and keeps models and data between them.

    An actor rather than tasks: it stays on its GPU, and is given jobs that need the same models.

    Args:
        root: Folder of the store.
        launch: See `Executor`.
        token: A file of whoever started this; when it is removed, the job in progress is dropped.
        gpu: Whether it has one; if not, it must not use those of others.
    """

    def __init__(self, root: str, launch: str, token: str, gpu: bool) -> None:
        if not gpu:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self.store, self.launch, self.token = Store(Path(root)), launch, Path(token)
        self.busy = False
        signal.signal(DROP, _drop)

    def introduce(self) -> str:
        """Who this is, and whether it sees the store of whoever started it."""
        sees = self.token.is_file() and self.token.read_text() == self.launch
        if sees:
            threading.Thread(target=self._watch, daemon=True).start()
        about = {"sees": sees, "host": socket.gethostname(), "pid": os.getpid()}
        return json.dumps({**about, "version": version("memloc")})

    def work(self, job: str) -> str:
        """Try a job."""
        self.busy = True
        try:
            return json.dumps(
                attempt(Job.from_json(job), self.store, lambda fraction: None, self.launch)
            )
        except KeyboardInterrupt:
            return json.dumps(["interrupted", None])
        finally:
            self.busy = False

    def _watch(self) -> None:
        """Drop the job in a way that leaves no claim and no draft behind."""
        while True:
            time.sleep(LOOK_EVERY)
            try:
                self.token.stat()
            except FileNotFoundError:
                if self.busy:
                    os.kill(os.getpid(), DROP)  # also ends a system call, unlike interrupt_main
                return
            except OSError:  # the file system hiccups
                pass


def _drop(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
