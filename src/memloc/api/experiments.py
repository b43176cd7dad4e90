"""From settings to a result: the engine computes, `results` summarises and keeps it."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from memloc.api.result import Result
from memloc.config import ControlRunConfig, RunConfig
from memloc.engine import control, experiment
from memloc.engine.device import pick_device
from memloc.engine.experiment import Findings, carry_out
from memloc.engine.given import GivenModels, prepare_given
from memloc.engine.local import default_workers
from memloc.engine.progress import Progress, Silent
from memloc.engine.store.store import Store
from memloc.engine.sweep import run_sweep
from memloc.engine.sweep_config import Sweep
from memloc.results.folder import write_results
from memloc.results.summary import summarise, sweep_row


def keep(findings: Findings, folder: Path) -> Result:
    """Summarise what was computed, and write it to a folder.

    Raises:
        StoreError: If the folder cannot be written.
    """
    summary = summarise(findings)
    write_results(folder, findings.tables, summary, findings.settings, findings.artefacts)
    return Result(findings.tables, summary, findings.settings, folder)


def _told(result: Result, findings: Findings) -> Result:
    """What follows is about this call, not about the result."""
    result.summary["folder"] = str(result.folder)
    result.summary["jobs"] = findings.jobs
    result.summary["seconds"] = findings.seconds
    return result


def run(
    config: RunConfig,
    runs: Path = Path("runs"),
    workers: int | None = None,
    progress: Progress | None = None,
    cache_memory: int | None = None,
    low_memory: bool = False,
) -> Result:
    """Flip labels, fine-tune, localise; whatever is already in the store is not computed again.

    Args:
        config: What to do.
        runs: Folder for the store and the results.
        workers: Processes, each with one thread; None takes one per core.
        progress: Where to show how far it is.
        cache_memory: Bytes of states that a process keeps in memory; more go to a file.
        low_memory: Keep the layers of θ_O in a file until they are needed; same results.

    Raises:
        MemlocError: If something the user gave cannot be used; nothing is lost then.
    """
    progress, device = progress or Silent(), pick_device(config.device)
    findings = carry_out(
        lambda inputs: experiment.prepare(config, inputs, progress),
        Store(runs / "store"),
        progress,
        device,
        workers or default_workers(device),
        cache_memory,
        low_memory,
    )
    return _told(keep(findings, runs / findings.name), findings)


def run_control(
    config: ControlRunConfig,
    runs: Path = Path("runs"),
    workers: int | None = None,
    progress: Progress | None = None,
    cache_memory: int | None = None,
    low_memory: bool = False,
) -> Result:
    """Train control models, apply the techniques, score them; arguments as for `run`."""
    progress, device = progress or Silent(), pick_device(config.device)
    findings = carry_out(
        lambda inputs: control.prepare(config, inputs, progress),
        Store(runs / "store"),
        progress,
        device,
        workers or default_workers(device),
        cache_memory,
        low_memory,
    )
    return _told(keep(findings, runs / findings.name), findings)


def localise_folders(
    config: GivenModels,
    out: Path | None = None,
    workers: int = 1,
    progress: Progress | None = None,
    device: str = "cpu",
    cache_memory: int | None = None,
    low_memory: bool = False,
) -> Result:
    """Localise what one fine-tuned classifier stores and its twin does not.

    Args:
        config: What to do.
        out: Folder for the result. Finished parts are kept in it, so that the same call goes on
            after an interruption. None keeps nothing.
        workers: Processes, each with one thread.
        progress: Where to show how far it is.
        device: Where to compute.
        cache_memory: Bytes of states that a process keeps in memory; more go to a file.
        low_memory: Keep the layers of θ_O in a file until they are needed; same results.

    Raises:
        MemlocError: If the models do not fit each other or the data.
    """
    progress = progress or Silent()

    def compute(store: Path) -> Findings:
        return carry_out(
            lambda _: prepare_given(config, progress, device),
            Store(store),
            progress,
            device,
            workers,
            cache_memory,
            low_memory,
        )

    if out is None:
        with tempfile.TemporaryDirectory() as aside:
            findings = compute(Path(aside))
        return Result(findings.tables, summarise(findings), findings.settings)
    findings = compute(out / "store")
    return _told(keep(findings, out), findings)


def sweep(sweep: Sweep, runs: Path = Path("runs"), progress: Progress | None = None) -> Any:
    """Many experiments at once; returns a summary, which is also in `sweeps/<name>`.

    Args:
        sweep: What to do.
        runs: Folder for the store, the results and `sweeps/<name>`.
        progress: Where to show how far it is.

    Raises:
        MemlocError: If something that was asked for is not possible; nothing is computed then.
    """
    return run_sweep(sweep, runs, partial(_row, runs), progress)


def _row(runs: Path, findings: Findings) -> dict[str, Any]:
    result = keep(findings, runs / findings.name)
    return {**sweep_row(result.summary), "folder": str(result.folder)}
