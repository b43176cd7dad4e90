"""`make bench`: print ratios between fast paths and their oracles, and write bench.json."""

from __future__ import annotations

import argparse
import json
import resource
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import swapping
from benchmarks.machine import matmul_peak


def main() -> None:
    """Measure everything, one thread, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=80, highlight=False)
    peak = matmul_peak()
    console.print(f"one thread, matrix-multiply peak {peak / 1e9:.0f} GFLOP/s")
    rows = []
    for build, name in ((swapping.minilm, "minilm"), (swapping.twelve_layers, "random BERT")):
        row = swapping.measure(build, name, arguments.examples)
        row["share_of_peak"] = row["useful_flops_per_second"] / peak
        row["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        rows.append(row)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("step", "layers", "oracle/fast", "block passes", "plain", "of peak", "memory"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for row in rows:
        table.add_row(
            row["step"], str(row["layers"]), f"{row['ratio']:.1f} ×", str(row["block_passes"]),
            str(row["block_passes_plain"]), f"{row['share_of_peak']:.0%}",
            f"{row['peak_memory_bytes'] / 2**30:.1f} GB",
        )  # fmt: skip
    console.print(table)
    arguments.out.write_text(json.dumps({"matmul_peak": peak, "rows": rows}, indent=1))
    console.print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
