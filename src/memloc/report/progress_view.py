"""What a terminal shows of many jobs: before they run, while they do, and afterwards."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from memloc.engine.job import Job
from memloc.engine.progress import (
    STATES,
    Progress,
    View,
    in_order,
    in_words,
    kind_in_words,
    summary,
    time_left,
)
from memloc.engine.views import LogLines
from memloc.report.terminal import columns, decimal, show_jobs
from memloc.text import clock, counted, duration, one_line, shortened, size

DRAWINGS_PER_SECOND = 2.0
SHOWN_JOBS = 6
"""Running jobs in the table; of the others, only the number is shown."""
ROOM = 2
"""Columns that stay free: a terminal writes ^C there, which must not begin another line."""
STYLES = {"running": "cyan", "failed": "bold red", "left_out": "red", "done": "green"}


def make_progress(console: Console | None = None) -> Progress:
    """Progress with a live table if there is a terminal or a notebook, and with lines otherwise."""
    console = console or Console(stderr=True, markup=False, emoji=False)
    live = console.is_terminal
    if console.is_jupyter:
        live = importlib.util.find_spec("ipywidgets") is not None
    return Progress(LiveTable(console) if live else LogLines(console.file))


class LiveTable(View):
    """The picture of how far it is, as long as work goes on; notes and failures stay above it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live: Live | None = None

    def update(self, progress: Progress) -> None:
        """Begin or end; while work goes on, the table asks for itself. One line remains."""
        if progress.working and self.live is None:
            self.live = Live(
                get_renderable=lambda: picture(progress.snapshot(), self.console),
                console=self.console,
                refresh_per_second=DRAWINGS_PER_SECOND,
                transient=True,
            )
            self.live.start()
        elif not progress.working and self.live is not None:
            self.live.stop()
            self.live = None
            _say(self.console, f"[{clock(progress.elapsed)}] {progress.last_words()}")

    def event(self, progress: Progress, what: str, job: Job | None, text: str) -> None:
        """What the user should know."""
        if text:
            _say(self.console, f"Note: {text}" if what == "note" else text)


def picture(status: dict[str, Any], console: Console) -> RenderableType:
    """A bar for the whole, one row per kind of jobs, and the running jobs.

    Never wider than the terminal, nor much of its height. The status is from `Progress.snapshot`,
    perhaps by way of the file for `memloc status`.
    """
    total = status["total"]
    bar = Table.grid(padding=(0, 1), expand=False)
    times = f"{clock(status['elapsed'])}, {time_left(status['seconds_left'])}"
    line = ProgressBar(total=1.0, completed=status["fraction"], width=20)
    bar.add_row(line, f"{status['fraction']:4.0%}", Text(times, no_wrap=True))
    words = summary(total)
    if status["working"] and not total["running"]:
        words += "; waiting for workers"
    if status["workers"]:
        words += f"; {status['workers']}"
    rows = max(1, min(SHOWN_JOBS, console.height - len(status["kinds"]) - 9))
    return Group(
        bar,
        Text(words, style="bold", no_wrap=True, overflow="ellipsis"),
        _count_table(status["kinds"]),
        *_running_lines(status["running"], total["running"], console.width, rows),
    )


def _running_lines(
    jobs: Sequence[dict[str, Any]], total: int, width: int, most: int
) -> Iterator[Text]:
    """How far running jobs are, for how long they have been running, and what they are."""
    shown = jobs[:most] if total <= most else jobs[: most - 1]
    for job in shown:
        words = f"{job['fraction']:4.0%} {clock(job['seconds']):>8}  "
        title = shortened(one_line(job["title"]), width - len(words) - ROOM)
        yield Text(words + title, no_wrap=True, overflow="ellipsis")
    if total > len(shown):
        yield Text(f"  and {total - len(shown):,} more are running", style="dim")


def _count_table(counts: Mapping[str, Mapping[str, int]]) -> Table:
    """One row per kind of jobs: how many are done, running, failed, left out, waiting."""
    left_out = any(of_kind["left_out"] for of_kind in counts.values())
    states = [state for state in STATES if state != "left_out" or left_out]
    rows: list[list[str | Text]] = []
    for kind in in_order(counts):
        numbers = {state: counts[kind][state] for state in states}
        cells = [
            Text(f"{n:,}" if n else "·", style=STYLES.get(state, "") if n else "dim")
            for state, n in numbers.items()
        ]
        rows.append([kind_in_words(kind), *cells])
    return columns(("", *map(in_words, states)), rows, 2)


def show_status(status: dict[str, Any], console: Console) -> None:
    """What the file of a sweep or run says; one line if all is done."""
    title, jobs = f"{status['what'].capitalize()} {status['name']}", sum(status["total"].values())
    if not status["working"] and status["total"]["done"] == jobs:
        _say(console, f"{title}: all {jobs:,} jobs done")
        return
    _say(console, title, "bold")
    console.print(picture(status, console))
    for failed in status["failures"]:
        more = f" (and {failed['jobs'] - 1:,} more like it)" if failed["jobs"] > 1 else ""
        log = f"; log: {failed['log']}" if failed["log"] else ""
        _say(console, f"Failed: {failed['title']}: {failed['reason']}{more}{log}")
    again = f"start `memloc {status['what']}` again to"
    if status["elsewhere"]:
        others = counted(status["elsewhere"], "job is", "jobs are")
        _say(console, f"The command is gone, but {others} being computed; {again} watch.")
    elif not status["working"]:
        _say(console, f"Nothing is running; {again} go on.")


# --- `memloc sweep` -------------------------------------------------------------------------------


def show_sweep(summary: dict[str, Any], runs: Path, console: Console) -> None:
    """A line per run, what is missing, where the results are, and what to do with them."""
    rows = summary["runs"]
    if rows:
        console.print(_table(rows))
        console.print(
            "learnt: accuracy on flipped labels (! not memorised); then M-CoG per technique",
            style="dim",
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
            "From what earlier jobs took, or a measurement; a busy machine takes longer.",
            style="dim",
        )
    hours = found["a100_hours"]
    if hours["float32"] >= 1:
        plain, fast = (duration(3600 * hours[dtype]) for dtype in ("float32", "tf32"))
        console.print(
            f"At the peak of one A100 GPU: {plain} in FP32, the default, or {fast} with dtype "
            "tf32. Expect several times that.",
            highlight=False,
        )
    for sentence in found["not_known"]:
        console.print(f"Not known: {sentence}.", markup=False, highlight=False)


def _amount(words: str, unknown: int, left: int) -> str:
    """What is known, and that something is not."""
    if not left:
        return "-"
    return "not known" if unknown == left else f"{words}{' + ?' if unknown else ''}"
