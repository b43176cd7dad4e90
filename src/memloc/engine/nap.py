"""A job that only takes its time: for measuring what surrounds the work, and for fault tests."""

from __future__ import annotations

import time

from memloc.engine.job import Job, Output, Report
from memloc.engine.store.store import Store


def nap(job: Job, store: Store, report: Report) -> Output:
    """Wait for `identity["seconds"]`, without torch, and leave a small file."""
    time.sleep(job.identity["seconds"])
    report(1.0)
    return Output(values={"nap": {"seconds": job.identity["seconds"]}})
