"""What a waiting person sees: a table that changes in a terminal, lines otherwise."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator, Mapping

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from memloc.engine.job import Job
from memloc.engine.progress import (
    STATES,
    LogLines,
    Progress,
    View,
    in_order,
    kind_in_words,
)
from memloc.text import clock, one_line, shortened

DRAWINGS_PER_SECOND = 2.0
SHOWN_JOBS = 6
"""Running jobs in the table; of the others, only the number is shown."""
ROOM = 2
"""Columns that stay free: a terminal writes ^C there, which must not begin another line."""
STYLES = {"running": "cyan", "failed": "bold red", "left out": "red", "done": "green"}


def make_progress(console: Console | None = None) -> Progress:
    """Progress with a live table if there is a terminal or a notebook, and with lines otherwise."""
    console = console or Console(stderr=True)
    live = console.is_terminal
    if console.is_jupyter:
        live = importlib.util.find_spec("ipywidgets") is not None
    return Progress(LiveTable(console) if live else LogLines(console.file))


class LiveTable(View):
    """A bar for the whole, one row per kind of jobs, the running jobs, and the time left."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live: Live | None = None

    def begin(self, progress: Progress) -> None:
        """The table is there as long as work goes on."""
        self.live = Live(
            get_renderable=lambda: self.picture(progress),
            console=self.console,
            refresh_per_second=DRAWINGS_PER_SECOND,
            transient=True,
        )
        self.live.start()

    def event(self, progress: Progress, what: str, job: Job | None, text: str) -> None:
        """Notes and failures stay above the table."""
        if text:
            line = f"Note: {text}" if what == "note" else text
            self.console.print(line, markup=False, highlight=False)

    def end(self, progress: Progress) -> None:
        """One line remains."""
        if self.live is not None:
            self.live.stop()
        line = f"[{clock(progress.elapsed)}] {progress.last_words()}"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def picture(self, progress: Progress) -> RenderableType:
        """How it looks now, never wider than the terminal nor much of its height."""
        with progress.lock:
            rows = max(1, min(SHOWN_JOBS, self.console.height - len(progress.counts) - 9))
            words = progress.summary(*STATES[1:4])
            if progress.workers:
                words += f"; {progress.workers}"
            return Group(
                self._bar(progress),
                Text(one_line(words), style="bold", no_wrap=True, overflow="ellipsis"),
                count_table(progress.counts),
                *self._running(progress, rows),
            )

    def _bar(self, progress: Progress) -> Table:
        grid = Table.grid(padding=(0, 1), expand=False)
        bar = ProgressBar(total=1.0, completed=progress.fraction, width=20)
        times = f"{clock(progress.elapsed)}, {progress.left()}"
        grid.add_row(bar, f"{progress.fraction:4.0%}", Text(times, no_wrap=True))
        return grid

    def _running(self, progress: Progress, rows: int) -> Iterator[RenderableType]:
        found = list(progress.running.values())
        shown = found if len(found) <= rows else found[: rows - 1]
        for one in shown:
            yield running_line(
                one.fraction, progress.now() - one.since, one.job.title, self.console.width
            )
        if len(found) > len(shown):
            yield Text(f"  and {len(found) - len(shown):,} more are running", style="dim")


def running_line(fraction: float, seconds: float, title: str, width: int) -> Text:
    """How far a job is, for how long it has been running, and what it is."""
    words = f"{fraction:4.0%} {clock(seconds):>8}  "
    title = shortened(one_line(title), width - len(words) - ROOM)
    return Text(words + title, no_wrap=True, overflow="ellipsis")


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
        cells = [
            Text(f"{n:,}" if n else "·", style=STYLES.get(state, "") if n else "dim")
            for state, n in numbers
        ]
        table.add_row(kind_in_words(kind), *cells)
    return table
