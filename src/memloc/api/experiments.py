"""From settings to a result: the engine computes, `results` summarises and keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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

PREPARE: dict[type[Any], Any] = {
    Run: experiment.prepare,
    Localisation: given.prepare,
    ControlRun: control.prepare,
}


First = Callable[[Result, Sequence[str]], None]
"""Is told what the first technique found, and what is still being computed, in words."""


def keep(findings: Findings, folder: Path, page_follows: bool = False) -> Result:
    """Summarise what was computed, and write it to a folder.

    What is about this call, not about the result, is only in the summary that is returned.

    Args:
        findings: What was computed.
        folder: Where it goes.
        page_follows: See `write_results`.

    Raises:
        StoreError: If the folder cannot be written.
    """
    summary = summarise(findings)
    write_results(
        folder, findings.tables, summary, findings.settings, findings.artefacts, page_follows
    )
    summary |= {"folder": str(folder), "jobs": findings.jobs, "seconds": findings.seconds}
    return Result(findings.tables, summary, findings.settings, folder)


def run(
    settings: Run | Localisation | ControlRun,
    engine: Engine | None = None,
    progress: Progress | None = None,
    out: Path | None = None,
    first: First | None = None,
) -> Result:
    """An experiment; whatever is already in the store is not computed again.

    Args:
        settings: What to do.
        engine: How jobs run, and where results go.
        progress: Where to show how far it is.
        out: Folder for the result and its own store; without it, results share the store in
            `engine.runs`.
        first: Is told of the first technique as soon as it is done, if others are not. It may write
            a page to the folder, and has to write it again at the end.

    Raises:
        MemlocError: If something the user gave cannot be used; nothing is lost then.
    """
    engine, progress = engine or Engine(), progress or Progress()
    # Other processes must load given models again, which is only worth it for many windows.
    given_models = isinstance(settings, Localisation)
    if given_models and engine.workers is None and not _has_windows(settings.techniques):
        engine = engine.replace(workers=1)
    if out is not None:
        check_folder(out)
    store = Store((out or engine.runs) / "store")

    def tell(findings: Findings) -> None:
        assert first is not None
        folder, summary = out or engine.runs / findings.name, summarise(findings)
        first(Result(findings.tables, summary, findings.settings, folder), findings.pending)

    with one_thread():
        findings = carry_out(
            PREPARE[type(settings)], settings, store, engine, progress, first and tell
        )
    return keep(findings, out or engine.runs / findings.name, page_follows=first is not None)


def _has_windows(techniques: Iterable[str]) -> bool:
    return any(find(name).windowed for name in techniques)


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
