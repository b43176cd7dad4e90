"""Ctrl-C and SIGTERM: work ends soon, cleanly, and with a sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from memloc.cli.output import interruptible
from memloc.engine.store.store import Store

COMMAND = [
    *(sys.executable, "-m", "memloc", "run", "--task", "reviews", "--limit", "60"),
    *("--epochs", "500", "--learning-rate", "1e-3", "--techniques", "swapping"),
]


def stop_and_check(
    model: Path, runs: Path, workers: int, signals: list[signal.Signals]
) -> tuple[int, str]:
    """Start a run, stop it in the middle of a training, and see that nothing is left over."""
    process = subprocess.Popen(
        [*COMMAND, "--model", str(model), "--runs", str(runs), "--workers", str(workers)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    store = Store(runs / "store")
    deadline = time.monotonic() + 120
    while not any(name.startswith("train-") for name in store.locks.holders()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    started = time.monotonic()
    for number in signals:
        process.send_signal(number)
        time.sleep(0.1)
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - started < 5
    assert not list((runs / "store" / ".tmp").glob("*"))
    assert not list((runs / "store" / ".locks").glob("*"))
    assert "Traceback" not in errors
    return process.returncode, errors


def test_sigterm_ends_a_run_with_workers_in_one_sentence(tiny_folder: Path, tmp_path: Path) -> None:
    code, errors = stop_and_check(tiny_folder, tmp_path / "runs", 2, [signal.SIGTERM])
    assert code == 143
    last = errors.rstrip().splitlines()[-1]
    assert last == "memloc: terminated; finished jobs are kept, the same command goes on"


@pytest.mark.parametrize(
    ("number", "code", "how"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_further_signals_do_not_disturb_the_clean_up(
    capsys: pytest.CaptureFixture[str], number: signal.Signals, code: int, how: str
) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    cleaned = []
    with pytest.raises(typer.Exit) as stopped, interruptible("all is well"):
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)
            cleaned.append(True)
    assert stopped.value.exit_code == code
    assert cleaned
    assert capsys.readouterr().err == f"\nmemloc: {how}; all is well\n"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible("nothing happens"):
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
