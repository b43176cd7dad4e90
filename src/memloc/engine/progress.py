"""What a waiting person sees: bars with an estimate in a terminal, plain lines in a log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from memloc.engine.job import Job

LOG_EVERY = 15.0
"""Seconds between two lines in a log."""


class Progress(Protocol):
    """Told about jobs as they run."""

    def showing(self, jobs: Sequence[Job]) -> contextlib.AbstractContextManager[None]:
        """Around all of the work."""
        ...

    def start(self, job: Job) -> None:
        """A job begins."""
        ...

    def advance(self, job: Job, fraction: float) -> None:
        """A job has come so far."""
        ...

    def finish(self, job: Job) -> None:
        """A job is in the store."""
        ...

    def fail(self, job: Job, words: str) -> None:
        """A job cannot be computed."""
        ...

    def drop(self, job: Job) -> None:
        """A job is left out, because what it needs failed."""
        ...

    def note(self, words: str) -> None:
        """Something the user should know."""
        ...


def make_progress(console: Console) -> Progress:
    """Bars if there is a terminal, lines otherwise."""
    return TerminalProgress(console) if console.is_terminal else LogProgress(console)


class Silent:
    """Shows nothing."""

    @contextlib.contextmanager
    def showing(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Nothing."""
        yield

    def start(self, job: Job) -> None:
        """Nothing."""

    def advance(self, job: Job, fraction: float) -> None:
        """Nothing."""

    def finish(self, job: Job) -> None:
        """Nothing."""

    def fail(self, job: Job, words: str) -> None:
        """Nothing."""

    def drop(self, job: Job) -> None:
        """Nothing."""

    def note(self, words: str) -> None:
        """Nothing."""


COUNTED = ("window", "split")
"""Kinds of jobs of which a group has many; what puts them together does not count."""


@dataclass
class _Part:
    """Jobs that are shown together, as sums, which cost the same however many jobs there are."""

    cost: float = 0.0
    done_cost: float = 0.0
    jobs: int = 0
    done: int = 0
    counted: int = 0
    counted_done: int = 0
    last: set[str] = field(default_factory=set)
    """What puts the counted jobs together."""

    @property
    def share(self) -> float:
        return min(1.0, self.done_cost / self.cost) if self.cost else self.done / (self.jobs or 1)


class _Estimate:
    """How far all jobs and each group of jobs are, and the remaining time."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.started = time.monotonic()
        self.fractions: dict[str, float] = {}
        self.all = _Part()
        self.groups: dict[str, _Part] = {}
        for job in jobs:
            self._add(job)

    def _add(self, job: Job) -> None:
        if job.key in self.fractions:
            return
        self.fractions[job.key] = 0.0
        for part in self._parts(job):
            part.cost += job.cost
            part.jobs += 1
            part.counted += job.kind in COUNTED
            if job.kind not in COUNTED and part is not self.all:
                part.last.add(job.key)

    def _parts(self, job: Job) -> list[_Part]:
        if job.group is None:
            return [self.all]
        return [self.all, self.groups.setdefault(job.group, _Part())]

    def set(self, job: Job, fraction: float) -> None:
        """A job has come so far."""
        self._add(job)  # what was in the store but turned out damaged is not known yet
        before = self.fractions[job.key]
        self.fractions[job.key] = fraction
        ends = int(fraction == 1) - int(before == 1)
        for part in self._parts(job):
            part.done_cost += job.cost * (fraction - before)
            part.done += ends
            if job.kind in COUNTED:
                part.counted_done += ends

    @property
    def fraction(self) -> float:
        return self.all.share

    def of_bar(self, job: Job) -> tuple[float, str]:
        """Fraction of a job's bar, and words: how many of its group are done."""
        if job.group is None:
            return self.fractions[job.key], "done" if self.fractions[job.key] == 1 else ""
        group = self.groups[job.group]
        return group.share, f"{group.counted_done}/{group.counted}" if group.counted else ""

    def ends_group(self, job: Job) -> bool:
        """Whether a group is done with this job: that which puts it together, else the last."""
        assert job.group is not None
        group = self.groups[job.group]
        return job.key in group.last if group.last else group.done == group.jobs

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    @property
    def words(self) -> str:
        if self.fraction < 0.02 or self.elapsed < 5:
            return "estimating"
        return f"{clock(self.elapsed / self.fraction * (1 - self.fraction))} left"


def clock(seconds: float) -> str:
    """1:05, or 2:01:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Shown:
    """What bars and lines do alike with jobs that bring no result."""

    def fail(self: Progress, job: Job, words: str) -> None:
        """Say why; for the estimate it is done."""
        self.note(words)
        self.advance(job, 1.0)

    def drop(self: Progress, job: Job) -> None:
        """For the estimate it is done."""
        self.advance(job, 1.0)


class TerminalProgress(_Shown):
    """A bar for every running job, and one for the whole."""

    def __init__(self, console: Console) -> None:
        self.bars = Bars(
            TextColumn("{task.description}", table_column=None),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[words]}"),
            console=console,
            transient=True,
        )
        self.ids: dict[str, TaskID] = {}

    @contextlib.contextmanager
    def showing(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Bars while the work goes on; they vanish at its end."""
        self.estimate = _Estimate(jobs)
        with self.bars:
            self.total = self.bars.add_task("[bold]all", total=1.0, words="estimating")
            yield

    def start(self, job: Job) -> None:
        """A new bar, unless its group has one."""
        name = job.group or job.key
        if name not in self.ids:
            self.ids[name] = self.bars.add_task(job.group or job.title, total=1.0, words="")

    def advance(self, job: Job, fraction: float) -> None:
        """A longer bar."""
        self.estimate.set(job, fraction)
        share, words = self.estimate.of_bar(job)
        if (job.group or job.key) in self.ids:
            self.bars.update(self.ids[job.group or job.key], completed=share, words=words)
        self.bars.update(self.total, completed=self.estimate.fraction, words=self.estimate.words)

    def finish(self, job: Job) -> None:
        """A full bar."""
        self.advance(job, 1.0)

    def note(self, words: str) -> None:
        """A line above the bars."""
        self.bars.console.print(f"Note: {words}", markup=False, highlight=False)


class LogProgress(_Shown):
    """A line when a job begins and ends, and now and then one in between."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.last = 0.0
        self.begun: set[str] = set()

    @contextlib.contextmanager
    def showing(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Lines while the work goes on."""
        self.estimate = _Estimate(jobs)
        yield

    def start(self, job: Job) -> None:
        """A line; of a group, only its first job has one."""
        if job.group is None:
            self._line(f"start  {job.title}")
        elif job.group not in self.begun:
            self.begun.add(job.group)
            self._line(f"start  {job.group}")

    def advance(self, job: Job, fraction: float) -> None:
        """A line, if the last one is long ago."""
        self.estimate.set(job, fraction)
        if time.monotonic() - self.last > LOG_EVERY:
            windows = f" ({job.group} {self.estimate.of_bar(job)[1]})" if job.group else ""
            self._line(f"{self.estimate.fraction:4.0%} done, {self.estimate.words}{windows}")

    def finish(self, job: Job) -> None:
        """A line, or of a group a count now and then."""
        self.advance(job, 1.0)
        if job.group is None:
            self._line(f"done   {job.title}")
        elif self.estimate.ends_group(job):
            self._line(f"done   {job.group}")

    def note(self, words: str) -> None:
        """A line."""
        self.console.print(f"Note: {words}", markup=False, highlight=False, soft_wrap=True)

    def _line(self, text: str) -> None:
        self.last = time.monotonic()
        self.console.print(
            f"[{clock(self.estimate.elapsed):>5}] {text}", markup=False, highlight=False
        )
