"""A small sweep to be ill-treated: built-in tasks, tiny models, several kinds of jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

NAME = "faults"
CHANGING = {"seconds", "peak_memory_bytes"}
"""Columns that no two runs have in common."""
PATIENCE = 300


def make_experiment(folder: Path, *, tasks: Sequence[str], models: Sequence[str]) -> Path:
    """Write tiny models and an experiment file that uses them.

    Trainings are long enough to be met in the middle by a kill, and save their state all the time.

    Args:
        folder: For both.
        tasks: Names of tasks.
        models: Architectures.
    """
    from tests.tiny_models import tiny_model, tiny_tokenizer

    for model in models:
        tiny_model(model, layers=2).save_pretrained(folder / model)
        tiny_tokenizer().save_pretrained(folder / model)
    experiment = {
        "name": NAME,
        "models": [{"name": str(folder / model)} for model in models],
        "tasks": list(tasks),
        "seeds": [1],
        "techniques": {"swapping": {}, "retraining": {"epochs": 1}},
        "data": {"limit": 90},
        "training": {"epochs": 10, "learning_rate": 1e-3},
        "explain": False,
        "execution": {"save_every": 0.01},
    }
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(experiment))
    return path


@dataclass
class Sweep:
    """A sweep that can be started again and again on one folder."""

    runs: Path
    experiment: Path = Path()
    options: tuple[str, ...] = ("--workers", "2")

    @property
    def command(self) -> list[str]:
        memloc = [sys.executable, "-m", "memloc"]
        return [*memloc, "sweep", str(self.experiment), "--runs", str(self.runs), "--json"]

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Begin, in a process group of its own."""
        return subprocess.Popen(
            [*self.command, *self.options, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=_mind_interrupts,
        )

    def complete(self, *options: str) -> dict[str, Any]:
        """Begin and wait until it ends well; its summary."""
        process = self.start(*options)
        output, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors, errors
        found: dict[str, Any] = json.loads(output)
        return found

    @property
    def store(self) -> Path:
        return self.runs / "store"

    def finished(self) -> dict[tuple[str, str], int]:
        """Kind and key of the results of jobs that are stored, and when they were written."""
        found = {}
        for path in self.store.glob("[a-z]*/*/manifest.json"):  # drafts are below .tmp
            kind, key = path.parts[-3:-1]
            if kind not in ("data", "model", "resume") and ".damaged-" not in key:
                found[kind, key] = path.stat().st_mtime_ns
        return found

    def complete_rest(self) -> None:
        """Go on to the end; what was finished is not computed again."""
        before = self.finished()
        computed = self.complete()["jobs"]["computed"]
        after = self.finished()
        assert before.items() <= after.items()
        assert computed == len(after) - len(before)

    def tables(self) -> dict[str, Any]:
        """All tables of all results, without what depends on the machine."""
        found = {}
        for path in sorted(self.runs.glob("*/*.parquet")):
            table = pd.read_parquet(path)
            found[f"{path.parent.name}/{path.stem}"] = table.drop(
                columns=[column for column in table.columns if column in CHANGING]
            )
        return found

    def leftovers(self) -> list[str]:
        """Files that should not be there when nobody works."""
        hidden = [self.store / ".tmp", self.store / ".locks", self.store / "resume"]
        return sorted(
            path.name for folder in hidden if folder.is_dir() for path in folder.iterdir()
        )


def _mind_interrupts() -> None:
    """What runs in the background of a shell ignores Ctrl-C, and so would whatever it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def assert_same_tables(one: Sweep, other: Sweep) -> None:
    """Every table of every result, bit for bit."""
    tables, others = one.tables(), other.tables()
    assert tables
    assert tables.keys() == others.keys()
    for name, table in tables.items():
        if isinstance(table, pd.DataFrame):
            pd.testing.assert_frame_equal(table, others[name], check_exact=True, obj=name)
        else:
            assert table == others[name], name


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def workers_of(pid: int) -> list[int]:
    """The worker processes of a sweep, not the helpers of multiprocessing."""
    found = []
    for child in descendants(pid):
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        if b"memloc.engine.local" in words or b"ray::" in words:
            found.append(child)
    return found


def kill_tree(process: subprocess.Popen[str]) -> None:
    """SIGKILL to a process and everything below it, at once."""
    for pid in [process.pid, *descendants(process.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.communicate(timeout=30)


def wait_until(condition: Any, process: subprocess.Popen[str], seconds: float = 120) -> bool:
    """Until it holds, or the process has ended; whether it holds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        if process.poll() is not None:
            return bool(condition())
        time.sleep(0.02)
    raise AssertionError("nothing happened")
