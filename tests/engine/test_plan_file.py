"""Plans on disk: read back as they were, and damage is one sentence."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from memloc.engine.job import Job
from memloc.engine.plan_file import NAME, read_plan, write_plan
from memloc.errors import StoreError

JOBS = [
    Job("train", "θ_M", {"seed": 1, "n": None}, {"data": ("data", "a" * 32)}, {"device": "cpu"}, 3),
    Job("train", "θ_O", {"seed": 2}, {}, {"device": "cpu"}, 0.5, "group"),
    Job("window", "layers 1-2", {"window": [1, 2]}, {"m": ("train", "b" * 32)}, {"device": "auto"}),
]


def test_jobs_are_read_back_with_their_keys(tmp_path: Path) -> None:
    write_plan(tmp_path / "sweep", JOBS, {"name": "mine"})
    jobs, about = read_plan(tmp_path / "sweep")
    assert jobs == JOBS
    assert [job.key for job in jobs] == [job.key for job in JOBS]
    assert about == {"name": "mine"}
    assert [path.name for path in (tmp_path / "sweep").iterdir()] == [NAME]


def test_jobs_survive_the_way_as_text() -> None:
    for job in JOBS:
        again = Job.from_json(job.to_json())
        assert again == job
        assert again.key == job.key


DAMAGED = {
    "empty": b"",
    "no gzip": b"no gzip",
    "no plan": gzip.compress(b"{}"),
    "no job": gzip.compress(b'{"jobs": [1], "where": []}'),
    "needs a list": gzip.compress(
        b'{"jobs": [{"key": "1", "where": 0, "needs": []}], "where": [{}]}'
    ),
    "too deep": gzip.compress(b"[" * 100_000),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_plan_is_one_sentence(tmp_path: Path, how: str) -> None:
    (tmp_path / NAME).write_bytes(DAMAGED[how])
    with pytest.raises(StoreError, match=r"cannot be read .*start the sweep again"):
        read_plan(tmp_path)


def test_a_plan_that_is_cut_off_is_one_sentence(tmp_path: Path) -> None:
    path = write_plan(tmp_path, JOBS)
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    with pytest.raises(StoreError, match="cannot be read"):
        read_plan(tmp_path)
    for place in range(40, len(content) - 8, 7):  # flipped bytes, wherever
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        with pytest.raises(StoreError, match="cannot be read"):
            read_plan(tmp_path)


def test_a_plan_of_other_jobs_under_the_same_name_is_kept(tmp_path: Path) -> None:
    write_plan(tmp_path, JOBS[:2])
    write_plan(tmp_path, JOBS[:2])
    write_plan(tmp_path, JOBS)  # has all of those before
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    write_plan(tmp_path, JOBS[2:])
    write_plan(tmp_path, JOBS)
    write_plan(tmp_path, JOBS[2:])
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert len(kept) == 2
    assert kept[1] == NAME
    assert [job.title for job in read_plan(tmp_path)[0]] == ["layers 1-2"]
