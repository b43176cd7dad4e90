"""Results of a newer memloc may mean something that this one does not know."""

from __future__ import annotations

import re
from collections.abc import Iterable

import memloc
from memloc.analysis.run_folders import ResultsError, RunFolder


def refuse_newer(runs: Iterable[RunFolder]) -> None:
    """Complain about results that were written by a newer version than this one.

    Raises:
        ResultsError: If there are any.
    """
    for run in runs:
        written_by = run.summary.get("memloc")
        if isinstance(written_by, str) and _numbers(written_by) > _numbers(memloc.__version__):
            raise ResultsError(
                f"{str(run.path)!r} was written by memloc {written_by}, and this is "
                f"{memloc.__version__}; install the newer version to read it"
            )


def _numbers(version: str) -> tuple[int, ...]:
    """`1.2.3.dev4` as (1, 2, 3); what follows the numbers does not count."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
