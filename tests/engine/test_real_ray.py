"""Jobs on a real Ray cluster of two nodes, of which one is killed in the middle.

Both nodes are on this machine, in a network of their own: elsewhere Ray takes all for one node.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from memloc.config import Ray
from memloc.engine.on_ray import RayExecutor
from memloc.engine.store.store import Store
from tests.engine.same_results import (
    Recorder,
    assert_nothing_left,
    assert_same_results,
    compute_here,
    make_jobs,
    make_model,
)

PORT = 7379
NEEDED = [name for name in ("unshare", "ip") if shutil.which(name) is None]
pytest.importorskip("ray", reason="Ray is not installed: pip install 'memloc[ray]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(NEEDED) or os.getuid() != 0,
        reason=f"a network of its own needs root, unshare and ip (missing: {NEEDED})",
    ),
]


def test_tables_are_those_of_this_process_though_a_node_was_killed(tmp_path: Path) -> None:
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    model = make_model(tmp_path / "model")
    compute_here(make_jobs(model, here), here)
    inside = f"ip link set lo up && exec {sys.executable} -m {__spec__.name} {tmp_path}"
    done = subprocess.run(
        ["unshare", "--net", "bash", "-c", inside],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    jobs = make_jobs(model, there)
    assert found == {"computed": len(jobs), "failed": [], "notes": []}
    assert_same_results(jobs, here, there)
    assert_nothing_left(there)


def inside_network(folder: Path) -> None:
    """Start two nodes, have them compute, and kill the one that does not lead."""
    ray = Path(sys.executable).with_name("ray")
    head = ["--head", "--node-ip-address=127.0.0.1", f"--port={PORT}", "--include-dashboard=false"]
    nodes = {20000: head, 21000: [f"--address=127.0.0.1:{PORT}"]}
    raylets: list[int] = []
    try:
        for ports, options in nodes.items():
            ranges = [f"--min-worker-port={ports}", f"--max-worker-port={ports + 100}"]
            command = [ray, "start", *options, "--num-cpus=1", *ranges]
            subprocess.run(command, check=True, timeout=100, stdout=subprocess.DEVNULL)
            raylets += [pid for pid in processes("raylet") if pid not in raylets]
        store = Store(folder / "there")
        jobs = make_jobs(folder / "model", store)

        def kill() -> None:
            while not any(name.startswith("train-") for name in store.locks.holders()):
                time.sleep(0.02)
            os.kill(raylets[-1], signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()
        with RayExecutor(store, Ray(address=f"127.0.0.1:{PORT}")) as executor:
            outcome = executor.execute(jobs, progress := Recorder())
        failed = [str(failure) for failure in outcome.failed.values()]
        print(json.dumps({"computed": outcome.computed, "failed": failed, "notes": progress.notes}))
    finally:
        for pid in processes():  # `ray stop` would end every Ray of this machine
            if pid != os.getpid():
                os.kill(pid, signal.SIGKILL)


def processes(name: str | None = None) -> list[int]:
    """Processes in this network, or those whose program is called so."""
    mine = os.readlink("/proc/self/ns/net")
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            wanted = name is None or (folder / "comm").read_text().strip() == name
            if wanted and os.readlink(folder / "ns" / "net") == mine:
                found.append(int(folder.name))
    return found


if __name__ == "__main__":
    inside_network(Path(sys.argv[1]))
