"""Locks: one holder at a time, whoever dies, sleeps or leaves rubbish."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memloc.engine.store.locks import Locks, is_gone
from memloc.errors import StoreError

KEY = "0" * 32
HOLD = """
import sys, time
from pathlib import Path
from memloc.engine.store.locks import Locks
with Locks(Path(sys.argv[1]), lease=float(sys.argv[2])).hold("train", "0" * 32) as ours:
    assert ours
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def locks(tmp_path: Path) -> Locks:
    return Locks(tmp_path)


def files(locks: Locks) -> list[str]:
    return sorted(path.name for path in locks.folder.iterdir())


def holder(locks: Locks) -> subprocess.Popen[str]:
    """Another process that has the lock."""
    command = [sys.executable, "-c", HOLD, str(locks.folder.parent), str(locks.lease)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_one_holder_at_a_time_and_nothing_left_behind(locks: Locks) -> None:
    with locks.hold("train", KEY) as first, locks.hold("train", KEY) as second:
        assert (first, second) == (True, False)
        assert locks.held("train", KEY)
        assert locks.holders() == {f"train-{KEY}": os.getpid()}
        with locks.hold("window", KEY) as other:
            assert other
    assert not locks.held("train", KEY)
    assert files(locks) == []


def test_a_dead_process_of_this_machine_holds_nothing(locks: Locks) -> None:
    process = holder(locks)
    with locks.hold("train", KEY) as ours:
        assert not ours
    process.kill()
    assert not is_gone(os.getpid())
    while not is_gone(process.pid):  # a zombie counts as dead
        time.sleep(0.01)
    assert locks.holders() == {}
    locks.sweep()
    assert files(locks) == []
    process.wait()
    again = holder(locks)
    again.kill()
    again.wait()
    with locks.hold("train", KEY) as ours:
        assert ours
    assert files(locks) == []


def test_a_lock_lasts_while_its_holder_renews_it_and_then_for_a_lease(tmp_path: Path) -> None:
    locks = Locks(tmp_path, lease=1.0)
    process = holder(locks)
    started = time.monotonic()
    while time.monotonic() < started + 2.0:
        assert locks.held("train", KEY)
        time.sleep(0.1)
    process.send_signal(signal.SIGSTOP)  # as a machine that is away
    stopped = time.monotonic()
    while locks.held("train", KEY):
        assert time.monotonic() < stopped + 20
        time.sleep(0.1)
    assert time.monotonic() > stopped + 0.5
    with locks.hold("train", KEY) as ours:
        assert ours
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait()
        assert locks.held("train", KEY)  # who comes back late takes nothing away
    assert files(locks) == []


def test_a_store_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / ".locks").write_text("in the way")
    with pytest.raises(StoreError, match="cannot write to"), Locks(tmp_path).hold("train", KEY):
        pass


ROUNDS = 60


def _race(root: Path, outcome: multiprocessing.Queue) -> None:
    """Lock key after key; while one is held, nobody else may hold it."""
    locks = Locks(root)
    won = clashes = 0
    for number in range(ROUNDS):
        with locks.hold("train", f"{number:032d}") as ours:
            if ours:
                won += 1
                mark = root / f"held-{number}"
                try:
                    mark.touch(exist_ok=False)
                except FileExistsError:
                    clashes += 1
                time.sleep(0.002)
                mark.unlink()
    outcome.put((won, clashes))


def test_of_many_takers_one_wins_also_when_the_former_holder_has_died(tmp_path: Path) -> None:
    locks = Locks(tmp_path)
    dead = holder(locks)
    dead.kill()
    dead.wait()
    text = (locks.folder / f"train-{KEY}").read_text()
    for number in range(0, ROUNDS, 2):  # half of the keys have a lock of a dead process
        (locks.folder / f"train-{number:032d}").write_text(text)
    context = multiprocessing.get_context("fork")
    outcome = context.Queue()
    takers = [context.Process(target=_race, args=(tmp_path, outcome)) for _ in range(4)]
    for taker in takers:
        taker.start()
    found = [outcome.get(timeout=60) for _ in takers]
    for taker in takers:
        taker.join()
    assert sum(clashes for _, clashes in found) == 0
    assert sum(won for won, _ in found) >= ROUNDS
    assert files(locks) == []
