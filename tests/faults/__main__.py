"""The fault campaign, long form (``make faults``): a line per scenario; a failure ends it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.naps import NapSweep
from tests.faults.scenarios import (
    asked_to_stop,
    disk_full,
    killed_as_a_whole,
    store_damaged,
    two_at_once,
    workers_killed,
)
from tests.faults.sweeps import Sweep, make_experiment


def main() -> None:
    """Run all scenarios, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of the whole process tree")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*", help="scenarios; default: all")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memloc-faults-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        reference = NapSweep(folder / "reference")
        say("reference", lambda: f"{reference.complete()['jobs']['computed']} jobs, undisturbed")

        def fresh(title: str, *options: str) -> NapSweep:
            return NapSweep(folder / title, options=options or ("--workers", "2"))

        def real() -> str:
            experiment = make_experiment(folder, tasks=("reviews",), models=("bert", "llama"))
            undisturbed = Sweep(folder / "undisturbed", experiment)
            undisturbed.complete()
            return killed_as_a_whole(Sweep(folder / "real", experiment), undisturbed, 5, seed)

        seed, kills = arguments.seed, arguments.kills
        ray = ("--executor", "ray", "--workers", "2")
        scenarios: dict[str, Callable[[], str]] = {
            "kill-tree": lambda: killed_as_a_whole(fresh("tree"), reference, kills, seed, 6.0),
            "kill-real": real,
            "kill-workers": lambda: workers_killed(fresh("workers"), reference, 8, seed),
            "kill-ray-workers": lambda: workers_killed(fresh("ray", *ray), reference, 4, seed),
            "damage": lambda: store_damaged(copy_of(reference, folder), reference, 10, seed),
            "disk-full": lambda: disk_full(fresh("full"), reference),
            "two-at-once": lambda: two_at_once(fresh("two"), reference),
            "sigterm": lambda: asked_to_stop(fresh("term"), reference, signal.SIGTERM, seed),
            "ctrl-c": lambda: asked_to_stop(fresh("int"), reference, signal.SIGINT, seed),
        }
        if importlib.util.find_spec("ray") is None:
            del scenarios["kill-ray-workers"]
        if os.getuid() != 0:
            del scenarios["disk-full"]  # mounting needs root
        unknown = set(arguments.names) - set(scenarios)
        if unknown:
            sys.exit(f"no scenario {', '.join(sorted(unknown))}; there are: {', '.join(scenarios)}")
        for title in arguments.names or scenarios:
            say(title, scenarios[title])


def copy_of(sweep: NapSweep, folder: Path) -> NapSweep:
    """The same results in another folder."""
    shutil.copytree(sweep.runs, folder / "damaged")
    return NapSweep(folder / "damaged")


def say(title: str, scenario: Callable[[], str]) -> None:
    """Run one and print what it found."""
    started = time.monotonic()
    found = scenario()
    print(f"{title:16} {found} ({time.monotonic() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
