"""What a sweep shows for hours and days: a table in a terminal, a line now and then in a log."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from memloc.engine.job import Job
from memloc.engine.progress import Progress, clock
from memloc.engine.tally import STATES, Running, Tally, duration, in_order, in_words

DRAWINGS_PER_SECOND = 2.0
SHOWN_JOBS = 6
"""Running jobs in the table; of the others, only the number is shown."""
ROOM = 2
"""Columns that stay free: a terminal writes ^C there, which must not begin another line."""
LIKE_IT = 5
"""Failures for one and the same reason that are told one by one."""
SHORTEST, LONGEST = 30.0, 600.0
"""Seconds between two lines in a log: at first, and after hours."""


def make_sweep_progress(console: Console) -> Progress:
    """A table that changes if there is a terminal, lines with the time otherwise."""
    return SweepTable(console) if console.is_terminal else SweepLog(console)


def one_line(words: str) -> str:
    """Without line ends and control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())


class _SweepView(ABC):
    """What table and log have in common: they count, and tell at once what the user should know.

    Another thread draws, or writes a line now and then, also while no message comes.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.lock = threading.RLock()
        self.tally = Tally(())
        self.reasons: Counter[str] = Counter()

    def start(self, job: Job) -> None:
        """A job begins."""
        with self.lock:
            self.tally.start(job)

    def advance(self, job: Job, fraction: float) -> None:
        """A job has come so far."""
        with self.lock:
            self.tally.advance(job, fraction)

    def finish(self, job: Job) -> None:
        """A job is in the store."""
        with self.lock:
            self.tally.end(job, "done")

    def fail(self, job: Job, words: str) -> None:
        """Say why, unless many others failed for the same reason."""
        with self.lock:
            self.tally.end(job, "failed")
            reason = words.partition(" failed: ")[2].partition(" (details in ")[0] or words
            self.reasons[reason] += 1
            times = self.reasons[reason]
        if times <= LIKE_IT:
            self.tell(words)
        if times == LIKE_IT:
            self.tell("further failures for this reason are only counted")

    def drop(self, job: Job) -> None:
        """A job is left out, because what it needs failed."""
        with self.lock:
            self.tally.end(job, "left out")

    def note(self, words: str) -> None:
        """Something the user should know."""
        self.tell(f"note: {words}")

    @abstractmethod
    def tell(self, words: str) -> None:
        """A line, at once."""

    def print(self, line: str) -> None:
        """One line of the output, however long, and nothing in it that is not text."""
        self.console.print(one_line(line), markup=False, highlight=False, soft_wrap=True)


def cut(words: str, width: int) -> str:
    """Without its middle if it is too long: what tells titles apart is mostly at their end."""
    if len(words) <= width:
        return words
    head = width // 3
    return f"{words[:head]}…{words[len(words) - (width - head - 1) :]}"


def _sums(tally: Tally, *states: str) -> str:
    """`1,234 of 30,000 done, 2 running, 3 failed, 1 left out`."""
    sums = tally.sums
    parts = [f"{sums['done']:,} of {sums.total():,} done"]
    return ", ".join(parts + [f"{sums[state]:,} {state}" for state in states if sums[state]])


def _last_words(tally: Tally) -> str:
    sums = tally.sums
    words = f"{_sums(tally, 'failed', 'left out')} in {duration(tally.elapsed)}"
    if sums["waiting"] or sums["running"]:
        return f"stopped: {words}"
    if sums["failed"]:
        return f"end: {words}; running again tries what failed once more"
    return f"end: {words}"


class SweepTable(_SweepView):
    """In a terminal: one row per kind, the running jobs below, the time left."""

    @contextlib.contextmanager
    def showing(self, jobs: Sequence[Job]) -> Iterator[None]:
        """The table is there as long as work goes on; then one line remains."""
        self.tally = Tally(jobs)
        self.reasons.clear()
        live = Live(
            get_renderable=self.picture,
            console=self.console,
            refresh_per_second=DRAWINGS_PER_SECOND,
            transient=True,
        )
        try:
            with live:
                yield
        finally:
            self.print(f"[{clock(self.tally.elapsed)}] {_last_words(self.tally)}")

    def tell(self, words: str) -> None:
        """A line above the table."""
        elapsed = clock(self.tally.elapsed)
        self.console.print(one_line(f"[{elapsed}] {words}"), markup=False, highlight=False)

    def picture(self) -> RenderableType:
        """The table as it is now, never wider than the terminal nor much of its height."""
        with self.lock:
            tally = self.tally
            first = Text(
                f"{clock(tally.elapsed)}  {_sums(tally, *STATES[1:4])}, {tally.left().words}",
                style="bold", no_wrap=True, overflow="ellipsis",
            )  # fmt: skip
            rows = max(1, min(SHOWN_JOBS, self.console.height - len(tally.counts) - 8))
            return Group(
                first, count_table(tally.counts), *_running(tally, rows, self.console.width)
            )


def count_table(counts: Mapping[str, Counter[str]]) -> Table:
    """One row per kind of jobs: how many are done, running, failed, left out, waiting."""
    left_out = any(of_kind["left out"] for of_kind in counts.values())
    states = [state for state in STATES if state != "left out" or left_out]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for state in states:
        table.add_column(state, justify="right", no_wrap=True)
    for kind in in_order(counts):
        numbers = [(state, counts[kind][state]) for state in states]
        cells = [Text(f"{n:,}" if n else "·", style=_style(state, n)) for state, n in numbers]
        table.add_row(in_words(kind), *cells)
    return table


def _style(state: str, count: int) -> str:
    if not count:
        return "dim"
    return {"running": "cyan", "failed": "bold red", "left out": "red", "done": "green"}.get(
        state, ""
    )


def _running(tally: Tally, rows: int, width: int) -> Iterator[RenderableType]:
    found: list[Running] = list(tally.running.values())
    shown = found if len(found) <= rows else found[: rows - 1]
    for running in shown:
        words = f"{running.fraction:4.0%} {clock(tally.now() - running.since):>8}  "
        title = cut(one_line(running.job.title), width - len(words) - ROOM)
        yield Text(words + title, no_wrap=True, overflow="ellipsis")
    if len(found) > len(shown):
        yield Text(f"  and {len(found) - len(shown):,} more are running", style="dim")


class SweepLog(_SweepView):
    """In a log file: lines with clock time and elapsed time."""

    shortest = SHORTEST

    @contextlib.contextmanager
    def showing(self, jobs: Sequence[Job]) -> Iterator[None]:
        """What is to be done, lines while it goes on, what became of it."""
        self.tally = Tally(jobs)
        self.reasons.clear()
        kinds = self.tally.counts
        parts = [f"{kinds[kind].total():,} × {in_words(kind)}" for kind in in_order(kinds)]
        s = "s" * (len(jobs) != 1)
        self.tell(f"begin: {len(jobs):,} job{s} ({', '.join(parts)})")
        ended = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(ended,), daemon=True)
        ticker.start()
        try:
            yield
        finally:
            ended.set()
            self.tell(_last_words(self.tally))

    def tell(self, words: str) -> None:
        """A line."""
        now = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        self.print(f"{now} [{clock(self.tally.elapsed)}] {words}")

    def _tick(self, ended: threading.Event) -> None:
        while not ended.wait(max(self.shortest, min(LONGEST, self.tally.elapsed / 30))):
            self.tell(self.line())

    def line(self) -> str:
        """How far it is, and what is being worked on."""
        with self.lock:
            tally = self.tally
            kinds = [kind for kind in in_order(tally.counts) if tally.counts[kind]["running"]]
            now = [
                f"{in_words(kind)} {tally.counts[kind]['done']:,}/{tally.counts[kind].total():,}"
                for kind in kinds
            ]
            at = f" ({', '.join(now)})" if now and len(tally.counts) > 1 else ""
            return f"{_sums(tally, *STATES[1:4])}, {tally.left().words}{at}"
