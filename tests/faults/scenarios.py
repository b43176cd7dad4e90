"""What can happen to a sweep, and what must hold afterwards."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memloc.engine.store.locks import Locks
from tests.faults.sweeps import (
    Sweep,
    assert_same_tables,
    descendants,
    kill_tree,
    wait_until,
    workers_of,
)


def killed_as_a_whole(
    sweep: Sweep, reference: Sweep, kills: int, seed: int, latest: float = 20.0
) -> None:
    """kill -9 of the whole process tree at random moments, then finish.

    Whatever was finished before a kill is never begun again.

    Args:
        sweep: Is killed.
        reference: Was left in peace.
        kills: How often.
        seed: Of the moments.
        latest: Seconds after the start.
    """
    moments = random.Random(seed)
    done = 0
    while done < kills:
        while done < kills:
            before = sweep.finished()
            process = sweep.start()
            ended = True
            try:
                process.wait(timeout=moments.uniform(0.5, latest))
            except subprocess.TimeoutExpired:
                ended = False
                kill_tree(process)
                done += 1
            assert before.items() <= sweep.finished().items()
            if ended:
                break
        sweep.complete_rest()
        assert_same_tables(sweep, reference)
        assert sweep.leftovers() == []
        if done < kills:
            shutil.rmtree(sweep.runs)


def workers_killed(sweep: Sweep, reference: Sweep, kills: int, seed: int) -> None:
    """kill -9 of single workers at random moments; the sweep itself goes on."""
    moments = random.Random(seed)
    process = sweep.start()
    done = 0
    times: Counter[str] = Counter()
    while done < kills and process.poll() is None:
        time.sleep(moments.uniform(0.05, 0.5))
        workers = set(workers_of(process.pid))
        # A job that loses three workers counts as failed, so none loses more than two.
        busy = sorted(
            (pid, name)
            for name, pid in Locks(sweep.store).holders().items()
            if pid in workers and times[name] < 2
        )
        if busy:
            victim, name = moments.choice(busy)
            os.kill(victim, signal.SIGKILL)
            times[name] += 1
            done += 1
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert done, "the sweep was over before a worker could be killed"
    assert "is tried again" in errors or "ray" in sweep.options  # which does it without a word
    assert_same_tables(sweep, reference)
    assert sweep.leftovers() == []


def store_damaged(sweep: Sweep, reference: Sweep, cases: int, seed: int) -> None:
    """Flip a byte of, or cut, random files of a finished store: every case is found and mended."""
    draw = random.Random(seed)
    for number in range(cases):
        files = [p for p in sweep.store.glob("[a-z]*/*/*") if ".damaged-" not in p.parent.name]
        victims = draw.sample(sorted(files), k=min(5, len(files)))
        for path in victims:
            content = path.read_bytes()
            if (number + len(path.name)) % 2 and content:
                place = draw.randrange(len(content))
                content = content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :]
            else:
                content = content[: draw.randrange(len(content) + 1) - 1] if content else b"x"
            path.write_bytes(content)
        damaged = {path.parent for path in victims}
        process = sweep.start()
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        assert_same_tables(sweep, reference)
        aside = {p.parent / p.name.split(".")[0] for p in sweep.store.glob("*/*.damaged-*")}
        missed = damaged - aside
        assert not missed, f"damage was not found in {missed}"
        for folder in sweep.store.glob("*/*.damaged-*"):
            shutil.rmtree(folder)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """A file system of so many bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def disk_full(sweep: Sweep, reference: Sweep) -> None:
    """The disk fills up in the middle: one sentence, and with more room it goes on."""
    stored = [path.stat() for path in reference.store.rglob("*") if path.is_file()]
    pages = sum(-(-file.st_size // 4096) for file in stored)
    with small_disk(sweep.runs, pages * 4096 // 2):
        process = sweep.start()
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 2, (process.returncode, output, errors)
        assert "Traceback" not in errors, errors
        last = errors.strip().splitlines()[-1]
        assert last.startswith("memloc: "), errors
        assert "space" in last.lower(), last
        done = sweep.finished()
        assert done, "nothing fitted on the disk: the test needs a larger one"
        subprocess.run(["mount", "-o", "remount,size=400m", sweep.runs], check=True)
        sweep.complete_rest()
        assert_same_tables(sweep, reference)
        assert sweep.leftovers() == []


def two_at_once(sweep: Sweep, reference: Sweep) -> None:
    """Two sweeps started at once on one store share the work."""
    processes = [sweep.start(), sweep.start()]
    computed = 0
    for process in processes:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        computed += json.loads(output)["jobs"]["computed"]
    jobs = len(sweep.finished())
    assert computed == jobs, f"{computed} jobs computed for {jobs} artefacts"
    assert_same_tables(sweep, reference)
    assert sweep.leftovers() == []


def asked_to_stop(sweep: Sweep, reference: Sweep, how: signal.Signals, seed: int) -> None:
    """SIGTERM or Ctrl-C: a clean exit within 5 s; then it goes on."""
    process = sweep.start()
    assert wait_until(lambda: len(sweep.finished()) > 3, process)
    time.sleep(random.Random(seed).uniform(0.0, 2.0))
    below = descendants(process.pid)
    asked = time.monotonic()
    if how is signal.SIGINT:
        os.killpg(process.pid, how)  # as a terminal does
    else:
        process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    took = time.monotonic() - asked
    assert process.returncode == 128 + how, (process.returncode, errors)
    assert "Traceback" not in errors, errors
    assert took < 5, f"{took:.1f} s until it ended"
    # Whoever watches over the semaphores of multiprocessing notices a moment later.
    while any(Path(f"/proc/{pid}").exists() for pid in below):
        assert time.monotonic() - asked < 5, "a process outlived the sweep"
        time.sleep(0.05)
    assert [name for name in sweep.leftovers() if "@" in name or "." in name] == []
    sweep.complete_rest()
    assert_same_tables(sweep, reference)
