"""What surrounds the work must not cost more than the work, even if jobs are short."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.executor_overhead import measure


@pytest.mark.slow
def test_short_jobs_take_little_longer_than_they_must(tmp_path: Path) -> None:
    # Two workers with 5 ms for every 10 ms of work. The clock is for `make bench`: here only
    # processor time counts, and the best of three, as other processes slow it down too.
    assert min(measure(700, 0.01, tmp_path / str(n)).processor_per_job for n in range(3)) < 0.005
