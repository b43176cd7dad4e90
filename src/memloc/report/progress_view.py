"""What a terminal shows of many jobs: before they run, while they do, and afterwards."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from memloc.engine.job import Job
from memloc.engine.progress import STATES, Progress, View, in_order, kind_in_words, time_left
from memloc.engine.views import LogLines
from memloc.report.terminal import columns, decimal, show_jobs
from memloc.text import clock, counted, duration, one_line, shortened, size

DRAWINGS_PER_SECOND = 2.0
SHOWN_JOBS = 6
"""Running jobs in the table; of the others, only the number is shown."""
ROOM = 2
"""Columns that stay free: a terminal writes ^C there, which must not begin another line."""
SHOWN_FAILURES = 10
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
            jobs = [
                (one.fraction, progress.now() - one.since, one.job.title)
                for one in progress.running.values()
            ]
            words = progress.summary(*STATES[1:4])
            if progress.workers:
                words += f"; {progress.workers}"
            return Group(
                self._bar(progress),
                Text(one_line(words), style="bold", no_wrap=True, overflow="ellipsis"),
                count_table(progress.counts),
                *running_lines(jobs, len(jobs), self.console.width, rows),
            )

    def _bar(self, progress: Progress) -> Table:
        grid = Table.grid(padding=(0, 1), expand=False)
        bar = ProgressBar(total=1.0, completed=progress.fraction, width=20)
        times = f"{clock(progress.elapsed)}, {time_left(progress.left())}"
        grid.add_row(bar, f"{progress.fraction:4.0%}", Text(times, no_wrap=True))
        return grid


def running_lines(
    jobs: Sequence[tuple[float, float, str]], total: int, width: int, most: int = SHOWN_JOBS
) -> Iterator[Text]:
    """How far running jobs are, for how long they have been running, and what they are."""
    shown = jobs[:most] if total <= most else jobs[: most - 1]
    for fraction, seconds, title in shown:
        words = f"{fraction:4.0%} {clock(seconds):>8}  "
        title = shortened(one_line(title), width - len(words) - ROOM)
        yield Text(words + title, no_wrap=True, overflow="ellipsis")
    if total > len(shown):
        yield Text(f"  and {total - len(shown):,} more are running", style="dim")


def count_table(counts: Mapping[str, Counter[str]]) -> Table:
    """One row per kind of jobs: how many are done, running, failed, left out, waiting."""
    left_out = any(of_kind["left out"] for of_kind in counts.values())
    states = [state for state in STATES if state != "left out" or left_out]
    rows: list[list[str | Text]] = []
    for kind in in_order(counts):
        numbers = {state: counts[kind][state] for state in states}
        cells = [
            Text(f"{n:,}" if n else "·", style=STYLES.get(state, "") if n else "dim")
            for state, n in numbers.items()
        ]
        rows.append([kind_in_words(kind), *cells])
    return columns(("", *states), rows, 2)


# --- `memloc status` ------------------------------------------------------------------------------


def show_status(status: dict[str, Any], console: Console) -> None:
    """What the file of a sweep or run says; one line if all is done."""
    total = status["total"]
    title, jobs = f"{status['what'].capitalize()} {status['name']}", sum(total.values())
    if not status["working"] and total["done"] == jobs:
        _say(console, f"{title}: all {jobs:,} jobs done")
        return
    _say(console, f"{title}: {total['done']:,} of {jobs:,} jobs", "bold")
    counts = {
        kind: Counter({state: of_kind[state.replace(" ", "_")] for state in STATES})
        for kind, of_kind in status["kinds"].items()
    }
    console.print(count_table(counts))
    jobs_now = [(one["fraction"], one["seconds"], one["title"]) for one in status["running"]]
    for line in running_lines(jobs_now, total["running"], console.width):
        console.print(line)
    if status["failures"]:
        _say(console, "Failed:", "bold")
    for failed in status["failures"][:SHOWN_FAILURES]:
        more = f" (and {failed['jobs'] - 1:,} more like it)" if failed["jobs"] > 1 else ""
        log = f"; log: {failed['log']}" if failed["log"] else ""
        _say(console, f"- {failed['title']}: {failed['reason']}{more}{log}")
    if len(status["failures"]) > SHOWN_FAILURES:
        _say(console, f"- and {len(status['failures']) - SHOWN_FAILURES:,} more reasons")
    _say(console, _outlook(status))


def _outlook(status: dict[str, Any]) -> str:
    left = time_left(status["seconds_left"])
    words = f"{left[0].upper()}{left[1:]}"
    workers = f"; {status['workers']}" if status["workers"] else ""
    if status["total"]["running"]:
        return f"{words}, with {status['total']['running']:,} at once{workers}."
    if status["working"]:
        return f"No job is running now{workers or '; waiting for workers'}. {words}."
    return f"Nothing is running; start `memloc {status['what']}` again to go on."


# --- `memloc sweep` -------------------------------------------------------------------------------


def show_sweep(summary: dict[str, Any], runs: Path, console: Console) -> None:
    """A line per run, what is missing, where the results are, and what to do with them."""
    rows = summary["runs"]
    if rows:
        console.print(_table(rows))
        console.print(
            "[dim]learnt: accuracy on flipped labels (! not memorised); then M-CoG per "
            "technique[/dim]"
        )
    benchmark = summary["control"]
    if benchmark is not None:
        words = benchmark.get("interpretation") or "no result"
        console.print(f"Control: {words}", markup=False)
    show_jobs(summary["jobs"], summary["seconds"], console)
    failed = summary["jobs"]["failed"]
    if failed:
        console.print(
            f"{counted(failed, 'job')} failed or {'was' if failed == 1 else 'were'} left out for "
            f"that; the same command tries only {'it' if failed == 1 else 'them'} again."
        )
    _say(console, f"Results: {runs}/ (one folder per run); this summary: {summary['folder']}/")
    if any(row["folder"] for row in rows):
        _say(
            console,
            f"Next: memloc claims {runs}\n"
            f"      memloc agreement {runs}\n"
            f"      memloc figures {runs}\n"
            f"      memloc report {runs}",
        )


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    techniques = list(dict.fromkeys(name for row in rows for name in row.get("m_cog", {})))
    lines = []
    for row in rows:
        task = row["task"] + (" (2)" if row["binarised"] else "")
        if row["folder"] is None:
            lines.append([task, row["model"], "failed"])
        else:
            learnt = f"{row['noisy_accuracy']:.2f}{' ' if row['memorised'] else '!'}"
            centres = [decimal(row["m_cog"].get(name), 2) for name in techniques]
            lines.append([task, row["model"], learnt, *centres])
    return columns(("task", "model", "learnt", *techniques), lines, 1, left=(0, 1))


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, soft_wrap=True, highlight=False)


def show_dry_run(found: dict[str, Any], console: Console) -> None:
    """A line per kind of jobs, the sums, and what is not known."""
    rows = []
    for row in found["kinds"]:
        left = row["jobs"] - row["in_store"]
        cells = [
            _amount(words(row[what]), row[f"without_{unknown}"], left)
            for words, what, unknown in ((duration, "seconds", "time"), (size, "bytes", "size"))
        ]
        rows.append([row["name"], f"{row['jobs']:,}", f"{row['in_store']:,}", *cells])
    console.print(columns(("jobs", "number", "in store", "time on one worker", "disk"), rows, 2))
    left = found["jobs"] - found["in_store"]
    jobs, runs = counted(found["jobs"], "job"), counted(found["runs"], "run")
    console.print(f"\n{jobs} of {runs}, {left:,} to compute.")
    if left and found["without_time"] < left:
        least = "At least " if found["without_time"] else "About "
        together = ""
        if found["workers"]:
            time = duration(found["seconds"] / found["workers"])
            together = f": {time} with {counted(found['workers'], 'worker')}"
        time, room = duration(found["seconds"]), size(found["bytes"])
        console.print(f"{least}{time} of work{together}; {room} of disk.")
        console.print(
            "[dim]From what earlier jobs took, or a measurement; a busy machine takes longer.[/dim]"
        )
    for sentence in found["not_known"]:
        console.print(f"Not known: {sentence}.", markup=False, highlight=False)


def _amount(words: str, unknown: int, left: int) -> str:
    """What is known, and that something is not."""
    if not left:
        return "-"
    return "not known" if unknown == left else f"{words}{' + ?' if unknown else ''}"
