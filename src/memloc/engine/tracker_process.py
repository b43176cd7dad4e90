"""The process that talks to trackio or Weights & Biases, so that they cannot disturb a sweep.

They wait for networks, ask for keys, print, handle signals, and wait again when the interpreter
ends. Here they may do all that: their messages go to a file, nobody answers, and the sweep can stop
this process at any time.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

FINISH = 20.0
"""Seconds that a tracker gets at the end."""


class TrackerError(Exception):
    """What the tracker complained of."""


class TrackerProcess:
    """The sweep's end of it.

    Args:
        package: trackio or wandb.
        log: File for everything that the tracker prints.
    """

    def __init__(self, package: str, log: Path) -> None:
        self.package, self.log_file = package, log
        self.process: subprocess.Popen[str] | None = None

    def init(self, *, project: str, name: str, config: dict[str, Any]) -> None:
        """Begin."""
        folder = self.log_file.absolute().parent
        folder.mkdir(parents=True, exist_ok=True)
        environment = {"WANDB_DIR": str(folder), "WANDB_CONSOLE": "off", **os.environ}
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, self.package],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                encoding="utf-8", env=environment, start_new_session=True,
            )  # fmt: skip
        self._send("init", {"project": project, "name": name, "config": config})

    def log(self, values: dict[str, Any]) -> None:
        """Send values."""
        self._send("log", values)

    def finish(self) -> None:
        """Send what is left, and end."""
        process = self._running()
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        if process.wait() != 0:
            raise TrackerError(self._complaint())

    def stop(self) -> None:
        """End it, whatever it does."""
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def _running(self) -> subprocess.Popen[str]:
        if self.process is None:
            raise TrackerError("it was never started")
        return self.process

    def _send(self, what: str, values: dict[str, Any]) -> None:
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps([what, values]) + "\n")
            process.stdin.flush()
        except OSError:
            raise TrackerError(self._complaint()) from None

    def _complaint(self) -> str:
        process = self._running()
        assert process.stdout is not None
        return process.stdout.read().strip() or f"{self.package} ended, see {self.log_file}"


def main(package: str, messages: IO[str], complaints: IO[str]) -> int:
    """The other end: pass messages on until there are no more."""
    try:
        tracker = importlib.import_module(package)
        for line in messages:
            what, values = json.loads(line)
            if what == "init":
                tracker.init(**values)
            else:
                tracker.log(values)
        guard = threading.Timer(FINISH, os._exit, [1])
        guard.daemon = True
        guard.start()
        tracker.finish()
    except BaseException as error:  # trackers also end with SystemExit
        print(" ".join(str(error).split()) or type(error).__name__, file=complaints, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    ours = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what trackers print is not for the sweep
    sys.exit(main(sys.argv[1], sys.stdin, ours))
