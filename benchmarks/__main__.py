"""`make bench`: print ratios between fast paths and their oracles, and write bench.json."""

from __future__ import annotations

import argparse
import resource
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import steps
from benchmarks.machine import matmul_peak
from benchmarks.subjects import make_subjects, write_json

STEPS = {
    "swapping": ("swapping, all windows", steps.swapping, (3.0, 4.0)),
    "retraining": ("retraining, all windows", steps.retraining, (3.0, 3.0)),
    "gradients": ("gradients, noisy and clean", steps.gradients, (4.0, 4.0)),
    "probing": ("probing with its states", steps.probing, (6.0, 6.0)),
    "states": ("states of all layers", steps.hidden_states, (20.0, 40.0)),
    "training": ("fine-tuning, batch 8", steps.fine_tuning, None),
}
"""Title, function, and the ratio to reach with 6 and 12 layers."""


def main() -> None:
    """Measure everything, one thread, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--steps", default=",".join(STEPS), help="some of: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    arguments = parser.parse_args()
    chosen = arguments.steps.split(",")
    for name in chosen:
        if name not in STEPS:
            parser.error(f"unknown step {name!r}; choose some of {', '.join(STEPS)}")
    torch.set_num_threads(1)
    console = Console(width=80, highlight=False)
    rows: list[dict[str, Any]] = []
    peaks = []
    for name in chosen:
        title, measure, targets = STEPS[name]
        for index, subject in enumerate(make_subjects(arguments.examples)):
            peaks.append(matmul_peak())  # of the moment: others may use the machine too
            row = {
                "step": title,
                "model": subject.name,
                "layers": 6 * (index + 1),
                **measure(subject),
            }
            if "oracle_seconds" in row:
                row["ratio"] = row["oracle_seconds"] / row["fast_seconds"]
            row["target"] = None if targets is None else targets[index]
            row["share_of_peak"] = row["useful_flops"] / row["fast_seconds"] / peaks[-1]
            row["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            rows.append(row)
            console.print(f"measured {title}, {row['layers']} layers", style="dim")
    peak = max(peaks)
    console.print(f"\none thread, matrix-multiply peak {peak / 1e9:.0f} GFLOP/s")
    console.print(as_table(rows))
    write_json(arguments.out, {"matmul_peak": peak, "examples": arguments.examples, "rows": rows})
    console.print(f"written to {arguments.out}")


def as_table(rows: list[dict[str, Any]]) -> Table:
    """One line per step and model."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    columns = ("step", "layers", "ratio", "target", "passes", "plain", "of peak", "memory")
    for column in columns:
        table.add_column(column, justify="left" if column == "step" else "right", no_wrap=True)
    for row in rows:
        ratio = f"{row['ratio']:.1f} ×" if "ratio" in row else "-"
        target = f"{row['target']:.0f} ×" if row["target"] else "-"
        passes = [
            f"{row[k]:.0f}" if k in row else "-" for k in ("block_passes", "block_passes_plain")
        ]
        table.add_row(
            row["step"], str(row["layers"]), ratio, target, *passes,
            f"{row['share_of_peak']:.0%}", f"{row['peak_memory_bytes'] / 2**30:.1f} GB",
        )  # fmt: skip
    return table


if __name__ == "__main__":
    main()
