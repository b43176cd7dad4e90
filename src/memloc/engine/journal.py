"""A line per event in a file: what began, ended or failed, and when. For looking back."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from memloc.engine.job import Job
from memloc.engine.progress import Progress


class Journal:
    """Writes every event to a file, then passes it on.

    Args:
        path: One JSON object per line is added; several processes may write to the same file.
        progress: What shows the events to a person.
    """

    def __init__(self, path: Path, progress: Progress) -> None:
        self.path, self.progress = path, progress

    @contextlib.contextmanager
    def showing(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Around all of the work."""
        self._line("begin", jobs=len(jobs))
        with self.progress.showing(jobs):
            yield
        self._line("end")

    def start(self, job: Job) -> None:
        """A job begins."""
        self._line("start", job)
        self.progress.start(job)

    def advance(self, job: Job, fraction: float) -> None:
        """A job has come so far; not worth a line."""
        self.progress.advance(job, fraction)

    def finish(self, job: Job) -> None:
        """A job is in the store."""
        self._line("done", job)
        self.progress.finish(job)

    def fail(self, job: Job, words: str) -> None:
        """A job cannot be computed."""
        self._line("failed", job, reason=words)
        self.progress.fail(job, words)

    def drop(self, job: Job) -> None:
        """A job is left out, because what it needs failed."""
        self._line("left out", job)
        self.progress.drop(job)

    def note(self, words: str) -> None:
        """Something the user should know."""
        self._line("note", words=words)
        self.progress.note(words)

    def _line(self, event: str, job: Job | None = None, **more: object) -> None:
        about = {} if job is None else {"kind": job.kind, "key": job.key, "title": job.title}
        when = {"time": round(time.time(), 3), "pid": os.getpid()}
        line = json.dumps({**when, "event": event, **about, **more}, ensure_ascii=False) + "\n"
        # A journal that cannot be written (the disk is full) must not stop the work.
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab", buffering=0) as stream:
                stream.write(line.encode())


def read_journal(path: Path) -> list[dict[str, object]]:
    """All whole lines; the last may be torn if its writer was killed."""
    found = []
    with contextlib.suppress(OSError):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found
