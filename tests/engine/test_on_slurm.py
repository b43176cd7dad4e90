"""What Slurm is asked for, and how a worker ends; with a real Slurm: `test_real_slurm`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memloc.config import Execution, Slurm
from memloc.engine.job import write_plan
from memloc.engine.local import make_executor
from memloc.engine.on_slurm import SlurmExecutor
from memloc.engine.store.store import Store
from memloc.errors import ClusterError
from tests.engine.same_results import Recorder, assert_nothing_left, naps

pytest.importorskip("submitit", reason="submitit is not installed: pip install 'memloc[slurm]'")
WORKER = """
import sys
from memloc.engine.on_slurm import SlurmWorker
SlurmWorker(sys.argv[1], sys.argv[2], 1, 1)()
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs" / "store")


def test_a_worker_that_is_asked_to_end_again_and_again_leaves_nothing_behind(
    store: Store, tmp_path: Path
) -> None:
    plan = write_plan(tmp_path / "plan", naps(2, 60.0))
    command = [sys.executable, "-c", WORKER, str(store.root), str(plan)]
    worker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not store.locks.holders():
        assert worker.poll() is None
        time.sleep(0.02)
    while worker.poll() is None:  # as Slurm does: to the job, and to its step
        worker.send_signal(signal.SIGTERM)
    assert_nothing_left(store)


def test_settings_become_options_of_sbatch_and_what_it_says_is_passed_on(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "submitted.sh"
    sbatch = f"#!/bin/bash\ncp $1 {script}; echo 'invalid partition: lnog' >&2; exit 1\n"
    for name in ("sbatch", "srun", "scancel"):
        (tmp_path / name).write_text(sbatch)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    settings = {
        **{"workers": 3, "at_once": 2, "minutes": 90, "memory_gb": 2.5},
        **{"partition": "lnog", "setup": ("export MARK=1",)},
        "options": {"account": "lab", "mail_type": "END"},
    }
    problem = r"did not accept the workers \(.*invalid partition: lnog"
    with (
        pytest.raises(ClusterError, match=problem),
        SlurmExecutor(store, Slurm(**settings), tmp_path) as executor,
    ):
        executor.execute(naps(6, 0.2), Recorder())
    lines = script.read_text().splitlines()
    wanted = {
        *("array=0-2%2", "time=90", "mem=2560MB", "partition=lnog", "cpus-per-task=1"),
        *("account=lab", "mail-type=END", "job-name=memloc"),
    }
    assert wanted <= {line.removeprefix("#SBATCH --") for line in lines}
    assert "export MARK=1" in lines
    assert not any("gpus" in line for line in lines)


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
