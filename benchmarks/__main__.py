"""`make bench`: the whole analysis by the authors' recipe, by memloc's defaults and by `--exact`.

Prints how long each step takes and whether the results agree, and writes bench.json. Long steps are
timed on a sample and scaled, see `benchmarks.steps`.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers
from rich.console import Console
from rich.table import Table

from benchmarks.steps import PAPER_EPOCHS, Bench, Sample, Sizes, Step
from benchmarks.subjects import make_subject
from memloc.config import Data, Training

TARGETS = {"exact": 4.5, "defaults": 10.0}
"""Times faster than the authors' recipe."""
SIDES = ("authors", *TARGETS)


def main() -> None:
    """Measure everything, one thread, one after the other."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--data-dir", type=Path, help="local copies of the paper's tasks")
    parser.add_argument("--task", help="trec if there is a --data-dir, otherwise questions")
    parser.add_argument("--model", help="a folder with a BERT (minilm with every layer twice)")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    console = Console(width=80, highlight=False)
    began = time.perf_counter()
    task = arguments.task or ("trec" if arguments.data_dir else "questions")
    data = Data(task=task, data_dir=arguments.data_dir, limit=arguments.examples)
    subject = make_subject(data, arguments.model)
    training = Training(epochs="auto", learning_rate=arguments.learning_rate, batch_size=8)
    steps = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(subject, Sizes(training), Path(folder))
        for step in bench.steps():
            steps.append(step)
            console.print(f"{time.perf_counter() - began:4.0f} s  {step.name}", style="dim")
    seconds = time.perf_counter() - began
    facts = {
        "model": subject.name,
        "layers": bench.n_layers,
        "task": subject.task.name,
        "examples": len(subject.train),
        "noisy": len(bench.noisy),
        "epochs": bench.epochs,
        "memorised": bench.memorised,
        "matmul_peak": max(bench.peaks),
        "seconds": seconds,
    }
    console.print()
    for part in report(facts, steps):
        console.print(part)
    arguments.out.write_text(json.dumps(as_json(facts, steps), indent=1), encoding="utf-8")
    console.print(f"{seconds / 60:.0f} minutes; written to {arguments.out}")


def report(facts: dict[str, Any], steps: Sequence[Step]) -> list[str | Table]:
    """What to print: the table of times, what was timed, and whether results agree."""
    return [
        f"{facts['model']}, {facts['layers']} layers; {facts['task']}, {facts['examples']} "
        f"examples, {facts['noisy']} flipped labels, of which θ_M learned "
        f"{facts['memorised']:.0%} in {facts['epochs']} epochs. One thread, "
        f"{facts['matmul_peak'] / 1e9:.0f} GFLOP/s at best.\n",
        times(steps),
        f"\nThe defaults trained for {facts['epochs']} epochs. With {PAPER_EPOCHS} they would be "
        f"{ratio_at_full_length(steps):.1f} × faster than the authors.",
        "\nSeconds that were timed, and how often the whole analysis takes them:\n",
        samples(steps),
        "\nDo results agree, and does the fit of the windows hold?\n",
        agreement(steps),
        "",
    ]


def times(steps: Sequence[Step]) -> Table:
    """Seconds of the whole analysis, one line per step."""
    table = _table("seconds", "authors", "exact", "faster", "defaults", "faster", "of peak")
    for step in steps:
        cells = []
        for side in TARGETS:
            sample: Sample = getattr(step, side)
            ratio = f"{step.authors.total / sample.total:.1f} ×" if step.authors else ""
            cells += [_seconds(sample.total), ratio]
        slow = _seconds(step.authors.total) if step.authors else ""
        table.add_row(step.name, slow, *cells, f"{step.share_of_peak:.0%}")
    sums = totals(steps)
    ratios = {side: sums["authors"] / sums[side] for side in TARGETS}
    cells = [cell for side in TARGETS for cell in (_seconds(sums[side]), f"{ratios[side]:.1f} ×")]
    table.add_row("all of it", _seconds(sums["authors"]), *cells, "", style="bold")
    table.add_row("target", "", *(c for t in TARGETS.values() for c in ("", f"{t:.1f} ×")), "")
    return table


def samples(steps: Sequence[Step]) -> Table:
    """What was timed in each step, and the factor of each."""
    table = _table("step", "side", "timed", "seconds", "times", "all")
    for column in table.columns[1:3]:
        column.justify = "left"
    for step in steps:
        name = step.name
        for side in SIDES:
            sample: Sample | None = getattr(step, side)
            if sample is None:
                continue
            table.add_row(name, side, sample.what, *_scaled(sample))
            for part in sample.parts:
                table.add_row("", "", f"  {part.what}", *_scaled(part))
            name = ""
    return table


def agreement(steps: Sequence[Step]) -> Table:
    """How far results are apart, between the sides and between the settings of memloc."""
    table = _table("step", "compared", "")
    table.columns[1].justify = "left"
    for step in steps:
        for what, value in step.agreement.items():
            table.add_row(step.name, what, "-" if math.isnan(value) else f"{value:.4f}")
    return table


def totals(steps: Sequence[Step]) -> dict[str, float]:
    """Seconds of the whole analysis on each side."""
    return {
        side: sum(sample.total for step in steps if (sample := getattr(step, side)) is not None)
        for side in SIDES
    }


def ratio_at_full_length(steps: Sequence[Step]) -> float:
    """How much faster the defaults would be if they trained for as many epochs as the authors.

    How soon a model knows the flipped labels depends on model, data and learning rate.
    """
    sums = totals(steps)
    more = sum(
        step.exact.total - step.defaults.total
        for step in steps
        if step.name in ("fine-tuning", "frozen model")
    )
    return sums["authors"] / (sums["defaults"] + more)


def as_json(facts: dict[str, Any], steps: Sequence[Step]) -> dict[str, Any]:
    """All numbers."""
    sums = totals(steps)
    rows = []
    for step in steps:
        row = asdict(step)
        for side in SIDES:
            if row[side] is not None:
                row[side]["total"] = getattr(step, side).total
        rows.append(row)
    return {
        **facts,
        "totals": sums,
        "ratios": {side: sums["authors"] / sums[side] for side in TARGETS},
        "ratio_of_defaults_at_full_length": ratio_at_full_length(steps),
        "targets": TARGETS,
        "steps": rows,
    }


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, justify="right" if table.columns else "left", no_wrap=True)
    return table


def _scaled(sample: Sample) -> tuple[str, str, str]:
    return _seconds(sample.seconds), f"{sample.times:,.1f}", _seconds(sample.total)


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


if __name__ == "__main__":
    main()
