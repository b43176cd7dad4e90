"""Claims: one holder at a time, and none beyond its life or its lease."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memloc.engine.store.leases import Claims, machine, process_start
from memloc.engine.store.store import Store
from memloc.errors import StoreError

KEY = "0" * 32


@pytest.fixture
def claims(tmp_path: Path) -> Claims:
    return Claims(tmp_path)


def files(claims: Claims) -> list[str]:
    return sorted(path.name for path in claims.folder.iterdir())


def pretend(claims: Claims, **changes: object) -> Path:
    """The claim of somebody else, who lives on another machine unless told otherwise."""
    claims.folder.mkdir(parents=True, exist_ok=True)
    who = {"host": "there", "machine": "there/1", "pid": 1, "started": "5", "title": "far away"}
    path = claims.folder / f"train-{KEY}.1"
    path.write_text(json.dumps(who | changes))
    return path


def make_old(path: Path, seconds: float) -> None:
    past = time.time() - seconds
    os.utime(path, (past, past))


def test_one_holder_at_a_time_and_nothing_left_behind(claims: Claims) -> None:
    with claims.hold("train", KEY, "θ_M") as first, claims.hold("train", KEY) as second:
        assert (first, second) == (True, False)
        holder = claims.holder("train", KEY)
        assert holder is not None
        assert (holder.pid, holder.title) == (os.getpid(), "θ_M")
        assert list(claims.all()) == [f"train-{KEY}"]
        with claims.hold("window", KEY) as other:
            assert other
    assert claims.holder("train", KEY) is None
    assert files(claims) == []


def test_a_claim_ends_with_an_error_too(claims: Claims) -> None:
    with pytest.raises(RuntimeError, match="bad luck"), claims.hold("train", KEY):
        raise RuntimeError("bad luck")
    assert files(claims) == []


def test_a_claim_of_another_machine_lasts_as_long_as_its_lease(claims: Claims) -> None:
    path = pretend(claims)
    with claims.hold("train", KEY) as ours:
        assert not ours
    make_old(path, claims.lease - 5)
    with claims.hold("train", KEY) as ours:
        assert not ours
    make_old(path, claims.lease + 5)
    assert claims.holder("train", KEY) is None
    with claims.hold("train", KEY) as ours:
        assert ours
        assert files(claims) == [f"train-{KEY}.1", f"train-{KEY}.2"]
    assert files(claims) == []


def test_a_holder_that_comes_back_late_does_not_take_the_claim_from_the_next(
    claims: Claims,
) -> None:
    with claims.hold("train", KEY) as first:
        assert first
        # It was asleep for longer than its lease.
        make_old(claims.folder / f"train-{KEY}.1", claims.lease + 5)
        other = Claims(claims.folder.parent)
        block = other.hold("train", KEY)
        assert block.__enter__()
    assert claims.holder("train", KEY) is not None
    with claims.hold("train", KEY) as third:
        assert not third
    block.__exit__(None, None, None)
    assert files(claims) == []


def test_a_claim_is_kept_alive_for_as_long_as_the_work_takes(tmp_path: Path) -> None:
    claims = Claims(tmp_path, lease=0.6)
    with claims.hold("train", KEY):
        time.sleep(1.0)
        assert claims.holder("train", KEY) is not None


def test_a_dead_process_of_this_machine_holds_nothing(claims: Claims) -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    started = process_start(process.pid)
    process.wait()
    path = pretend(claims, machine=machine(), pid=process.pid, started=started)
    assert claims.holder("train", KEY) is None
    claims.sweep()
    assert not path.exists()


def test_a_process_number_that_is_used_again_is_not_its_former_owner(claims: Claims) -> None:
    pretend(claims, machine=machine(), pid=os.getpid(), started="long ago")
    assert claims.holder("train", KEY) is None


def test_a_torn_claim_counts_until_its_lease_ends(claims: Claims) -> None:
    path = pretend(claims)
    path.write_text('{"host": "th')
    assert claims.holder("train", KEY) is not None
    make_old(path, claims.lease + 5)
    assert claims.holder("train", KEY) is None


def test_a_claim_from_the_future_has_ended(claims: Claims) -> None:
    make_old(pretend(claims), -24 * 3600)
    assert claims.holder("train", KEY) is None


def test_what_is_no_claim_does_no_harm(claims: Claims) -> None:
    claims.folder.mkdir()
    (claims.folder / "foo.1").write_bytes(b"\xff\xfe")
    (claims.folder / f"train-{KEY}.1").write_bytes(b"\xff\xfe")
    (claims.folder / ".1").touch()
    (claims.folder / "train-abc.1").mkdir()
    assert f"train-{KEY}" in claims.all()
    claims.sweep()
    with claims.hold("window", KEY) as ours:
        assert ours


def test_a_store_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / ".claims").write_text("in the way")
    with pytest.raises(StoreError, match="cannot write to"), Claims(tmp_path).hold("train", KEY):
        pass


ROUNDS = 60


def _race(root: Path, outcome: multiprocessing.Queue) -> None:
    """Claim key after key; while one is held, nobody else may hold it."""
    claims = Claims(root, lease=30)
    won = clashes = 0
    for number in range(ROUNDS):
        with claims.hold("train", f"{number:032d}") as ours:
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
    claims = Claims(tmp_path, lease=30)
    claims.folder.mkdir()
    for number in range(0, ROUNDS, 2):  # half of the keys have a claim that has ended
        path = claims.folder / f"train-{number:032d}.1"
        path.write_text('{"host": "th')
        make_old(path, 100)
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
    assert files(claims) == []


def test_a_suspended_writer_that_finishes_late_changes_nothing(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from memloc.engine.store.store import Store
from memloc.engine.store.leases import Claims
store = Store(Path(sys.argv[1]))
store.claims = Claims(store.root, lease=1.0)
with store.claims.hold("train", "0" * 32) as ours:
    assert ours
    with store.write("train", "0" * 32, {"a": 1}) as draft:
        draft.json("who.json", "first")
        print("writing", flush=True)
        time.sleep(1)
print("late", flush=True)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGSTOP)
    store = Store(tmp_path)
    store.claims = Claims(store.root, lease=1.0)
    deadline = time.monotonic() + 20
    while store.claims.holder("train", KEY) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with store.claims.hold("train", KEY) as ours:
        assert ours
        with store.write("train", KEY, {"a": 1}) as draft:
            draft.json("who.json", "second")
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == "late\n"
        assert store.claims.holder("train", KEY) is not None
    process.wait(timeout=10)
    assert store.open("train", KEY).json("who.json") == "second"
    assert files(store.claims) == []
    assert list((tmp_path / ".tmp").iterdir()) == []
