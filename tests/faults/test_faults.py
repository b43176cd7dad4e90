"""The fault campaign; ``make faults`` runs it with many more kills and cases."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

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

KILLS = int(os.environ.get("MEMLOC_KILLS", "3"))
"""Of the whole process tree; other numbers follow from it."""
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="looks for processes in /proc"
)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> NapSweep:
    sweep = NapSweep(tmp_path_factory.mktemp("faults") / "reference")
    sweep.complete()
    return sweep


@pytest.fixture
def sweep(tmp_path: Path) -> NapSweep:
    return NapSweep(tmp_path / "runs")


def test_kills_of_the_whole_process_tree_lose_nothing_that_was_done(
    sweep: Sweep, reference: Sweep
) -> None:
    killed_as_a_whole(sweep, reference, KILLS, seed=3, latest=4.0)


def test_a_sweep_outlives_its_workers(sweep: Sweep, reference: Sweep) -> None:
    workers_killed(sweep, reference, min(KILLS, 8), seed=1)


@pytest.mark.slow
def test_a_sweep_outlives_its_workers_on_ray(tmp_path: Path, reference: Sweep) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'memloc[ray]'")
    options = ("--executor", "ray", "--workers", "2")
    workers_killed(NapSweep(tmp_path / "runs", options=options), reference, 4, seed=1)


def test_every_damage_in_the_store_is_found_and_mended(sweep: Sweep, reference: Sweep) -> None:
    shutil.copytree(reference.runs, sweep.runs)
    store_damaged(sweep, reference, cases=min(KILLS, 10), seed=1)


@pytest.mark.skipif(os.getuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_one_sentence_and_no_loss(sweep: Sweep, reference: Sweep) -> None:
    disk_full(sweep, reference)


def test_two_sweeps_at_once_compute_everything_once(sweep: Sweep, reference: Sweep) -> None:
    two_at_once(sweep, reference)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_sweep_that_is_asked_to_stop_does_so_at_once(
    how: signal.Signals, sweep: Sweep, reference: Sweep
) -> None:
    asked_to_stop(sweep, reference, how, seed=1)


@pytest.mark.slow
def test_a_real_sweep_that_is_killed_goes_on_to_the_same_tables(tmp_path: Path) -> None:
    experiment = make_experiment(tmp_path, tasks=("reviews",), models=("bert",))
    undisturbed = Sweep(tmp_path / "undisturbed", experiment)
    undisturbed.complete()
    killed_as_a_whole(Sweep(tmp_path / "runs", experiment), undisturbed, min(KILLS, 5), seed=1)
