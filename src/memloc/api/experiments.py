"""From settings to a result: the engine computes, `results` summarises and keeps it."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from memloc.api.result import Result
from memloc.config import ControlRun, Engine, Localisation, Run
from memloc.engine import control, experiment, given
from memloc.engine.device import pick_device
from memloc.engine.experiment import Findings, carry_out
from memloc.engine.job import one_thread
from memloc.engine.progress import Progress, Silent
from memloc.engine.store.store import Store
from memloc.engine.sweep import run_sweep
from memloc.engine.sweep_config import Sweep
from memloc.results.folders import check_folder, write_results
from memloc.results.summary import summarise, sweep_row
from memloc.techniques import find


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


def run(settings: Run, engine: Engine | None = None, progress: Progress | None = None) -> Result:
    """Flip labels, fine-tune, localise; whatever is already in the store is not computed again.

    Args:
        settings: What to do.
        engine: Where results go and how jobs run.
        progress: Where to show how far it is.

    Raises:
        MemlocError: If something the user gave cannot be used; nothing is lost then.
    """
    engine, progress = engine or Engine(), progress or Silent()
    findings = carry_out(
        lambda inputs: experiment.prepare(settings, inputs, progress),
        Store(engine.runs / "store"),
        engine,
        pick_device(settings.device),
        progress,
    )
    return _told(keep(findings, engine.runs / findings.name), findings)


def run_control(
    settings: ControlRun, engine: Engine | None = None, progress: Progress | None = None
) -> Result:
    """Train control models, apply the techniques, score them; arguments as for `run`."""
    engine, progress = engine or Engine(), progress or Silent()
    findings = carry_out(
        lambda inputs: control.prepare(settings, inputs, progress),
        Store(engine.runs / "store"),
        engine,
        pick_device(settings.device),
        progress,
    )
    return _told(keep(findings, engine.runs / findings.name), findings)


def localise_folders(
    settings: Localisation,
    out: Path | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Result:
    """Localise what one fine-tuned classifier stores and its twin does not.

    Args:
        settings: What to do.
        out: Folder for the result. Finished parts are kept in it, so that the same call goes on
            after an interruption. None keeps nothing.
        engine: How jobs run.
        progress: Where to show how far it is.

    Raises:
        MemlocError: If the models do not fit each other or the data.
    """
    engine, progress = engine or Engine(), progress or Silent()
    device = pick_device(settings.device)
    # Other processes must load everything again, which is only worth it for many windows.
    if engine.workers is None and not any(find(name).windowed for name in settings.techniques):
        engine = engine.replace(workers=1)
    if out is not None:
        check_folder(out)

    def compute(store: Path) -> Findings:
        with one_thread():
            return carry_out(
                lambda _: given.prepare(settings, progress, device),
                Store(store),
                engine,
                device,
                progress,
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
