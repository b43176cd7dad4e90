"""What surrounds the work must not cost more than the work, even if jobs are short."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.executor_overhead import measure


@pytest.mark.slow
def test_two_thousand_short_jobs_take_little_longer_than_they_must(tmp_path: Path) -> None:
    found = measure(2000, 0.01, tmp_path)
    # Two workers with 5 ms for every 10 ms of work. Unlike the clock (`make bench`), processor time
    # does not depend on who else is at work.
    assert found.processor_per_job < 0.005
