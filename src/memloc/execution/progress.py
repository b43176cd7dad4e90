"""What a waiting person sees: bars with an estimate in a terminal, plain lines in a log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from memloc.execution.job import Job

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

    def note(self, words: str) -> None:
        """Nothing."""


class _Estimate:
    """Remaining time from the share of the work that is done."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.started = time.monotonic()
        self.fractions = {job.key: 0.0 for job in jobs}
        self.costs = {job.key: job.cost for job in jobs}

    @property
    def fraction(self) -> float:
        done = sum(self.costs[key] * fraction for key, fraction in self.fractions.items())
        return done / sum(self.costs.values())

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


class TerminalProgress:
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
        """A new bar."""
        self.ids[job.key] = self.bars.add_task(job.title, total=1.0, words="")

    def advance(self, job: Job, fraction: float) -> None:
        """A longer bar."""
        self.bars.update(self.ids[job.key], completed=fraction)
        self._update_total(job, fraction)

    def finish(self, job: Job) -> None:
        """A full bar."""
        self.bars.update(self.ids[job.key], completed=1.0, words="done")
        self._update_total(job, 1.0)

    def note(self, words: str) -> None:
        """A line above the bars."""
        self.bars.console.print(f"Note: {words}", markup=False, highlight=False)

    def _update_total(self, job: Job, fraction: float) -> None:
        self.estimate.fractions[job.key] = fraction
        self.bars.update(self.total, completed=self.estimate.fraction, words=self.estimate.words)


class LogProgress:
    """A line when a job begins and ends, and now and then one in between."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.last = 0.0

    @contextlib.contextmanager
    def showing(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Lines while the work goes on."""
        self.estimate = _Estimate(jobs)
        yield

    def start(self, job: Job) -> None:
        """A line."""
        self._line(f"start  {job.title}")

    def advance(self, job: Job, fraction: float) -> None:
        """A line, if the last one is long ago."""
        self.estimate.fractions[job.key] = fraction
        if time.monotonic() - self.last > LOG_EVERY:
            self._line(f"{self.estimate.fraction:4.0%} done, {self.estimate.words}")

    def finish(self, job: Job) -> None:
        """A line."""
        self.estimate.fractions[job.key] = 1.0
        self._line(f"done   {job.title}")

    def note(self, words: str) -> None:
        """A line."""
        self.console.print(f"Note: {words}", markup=False, highlight=False, soft_wrap=True)

    def _line(self, text: str) -> None:
        self.last = time.monotonic()
        self.console.print(
            f"[{clock(self.estimate.elapsed):>5}] {text}", markup=False, highlight=False
        )


@contextlib.contextmanager
def simple_bar(console: Console, title: str) -> Iterator[Callable[[float], None]]:
    """A bar for a single piece of work in this process, shown from its first report on.

    So input that is found wrong before the work begins is answered by its one sentence alone.
    """
    progress = make_progress(console)
    job = Job("bar", title, {})
    with contextlib.ExitStack() as shown:
        started = False

        def report(fraction: float) -> None:
            nonlocal started
            if not started:
                started = True
                shown.enter_context(progress.showing([job]))
                progress.start(job)
            progress.advance(job, fraction)

        yield report
        if started:
            progress.finish(job)
