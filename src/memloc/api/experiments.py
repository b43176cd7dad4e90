"""From settings to a result: the engine computes, `results` summarises and keeps it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from memloc.api.result import Result
from memloc.config import ControlRun, Engine, Localisation, Run
from memloc.engine import control, experiment, given
from memloc.engine.experiment import Findings, carry_out
from memloc.engine.job import one_thread
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.engine.sweep import run_sweep
from memloc.engine.sweep_config import Sweep
from memloc.results.folders import check_folder, write_results
from memloc.results.summary import summarise, sweep_row
from memloc.techniques import find


def keep(findings: Findings, folder: Path, told: bool = False) -> Result:
    """Summarise what was computed, and write it to a folder.

    Args:
        findings: What was computed.
        folder: Where to write it.
        told: Add what is about this call, not about the result, to the summary that is returned.

    Raises:
        StoreError: If the folder cannot be written.
    """
    summary = summarise(findings)
    write_results(folder, findings.tables, summary, findings.settings, findings.artefacts)
    if told:
        summary |= {"folder": str(folder), "jobs": findings.jobs, "seconds": findings.seconds}
    return Result(findings.tables, summary, findings.settings, folder)


def run(
    settings: Run | ControlRun, engine: Engine | None = None, progress: Progress | None = None
) -> Result:
    """A run, or a control benchmark; whatever is already in the store is not computed again.

    Args:
        settings: What to do.
        engine: Where results go and how jobs run.
        progress: Where to show how far it is.

    Raises:
        MemlocError: If something the user gave cannot be used; nothing is lost then.
    """
    engine, progress = engine or Engine(), progress or Progress()
    store = Store(engine.runs / "store")
    if isinstance(settings, ControlRun):
        findings = carry_out(control.prepare, settings, store, engine, progress)
    else:
        findings = carry_out(experiment.prepare, settings, store, engine, progress)
    return keep(findings, engine.runs / findings.name, told=True)


def localise_folders(
    settings: Localisation,
    out: Path,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Result:
    """Localise what one fine-tuned classifier stores and its twin does not.

    Args:
        settings: What to do.
        out: Folder for the result. Finished parts are kept in it, so that the same call goes on
            after an interruption.
        engine: How jobs run.
        progress: Where to show how far it is.

    Raises:
        MemlocError: If the models do not fit each other or the data.
    """
    engine, progress = engine or Engine(), progress or Progress()
    # Other processes must load everything again, which is only worth it for many windows.
    if engine.workers is None and not any(find(name).windowed for name in settings.techniques):
        engine = engine.replace(workers=1)
    check_folder(out)
    with one_thread():
        findings = carry_out(given.prepare, settings, Store(out / "store"), engine, progress)
    return keep(findings, out, told=True)


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
