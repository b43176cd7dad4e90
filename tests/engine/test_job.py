"""Jobs and plans as data: read back as they were, and damage is one sentence."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from memloc.engine.job import Job, read_plan, write_plan
from memloc.errors import StoreError

JOBS = [
    Job("train", "θ_M", {"seed": 1, "n": None}, {"data": ("data", "a" * 32)}, {"device": "cpu"}, 3),
    Job("train", "θ_O", {"seed": 2}, {}, {"device": "cpu"}, 0.5, "group"),
    Job("window", "layers 1-2", {"window": [1, 2]}, {"m": ("train", "b" * 32)}, {"device": "auto"}),
]


def test_jobs_are_read_back_with_their_keys_and_other_plans_are_kept(tmp_path: Path) -> None:
    first = write_plan(tmp_path / "sweep", JOBS)
    write_plan(tmp_path / "sweep", JOBS[:2])
    assert write_plan(tmp_path / "sweep", JOBS) == first
    assert len(list((tmp_path / "sweep").iterdir())) == 2
    jobs = read_plan(first)
    assert jobs == JOBS
    assert [job.key for job in jobs] == [job.key for job in JOBS]


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b'{"jobs": [1]}'), None],
    ids=["empty", "no gzip", "no job", "cut off"],
)
def test_a_damaged_plan_is_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    path = write_plan(tmp_path, JOBS)
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)
    with pytest.raises(StoreError, match=r"cannot be read .*start the sweep again"):
        read_plan(path)
