"""Collect the results of sweeps, or write docs/reproduction.md from what was collected."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pandas as pd

from reproduction.tables import DOCS, TABLES, collect, read_runs, spread

FOLDER = Path("build/reproduction")
"""Result folders, spread out of the tables."""
FIGURES = "fig3,fig5,fig7,fig8,fig9,fig10,fig12,fig2"
SWEEPS = ("paper-mini", "more-models")


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    collecting = commands.add_parser("collect", help="results of sweeps into docs/reproduction/")
    collecting.add_argument("runs", type=Path, help="folder with the results of the sweeps")
    collecting.add_argument("--control", type=Path, help="folder with results of `memloc control`")
    arguments = parser.parse_args()
    if arguments.command == "collect":
        _collect(arguments.runs, arguments.control)
    else:
        write_page()


def _collect(runs: Path, control: Path | None) -> None:
    from benchmarks.machine import matmul_peak

    from reproduction.jobs import jobs_of

    collect([runs, *([control] if control else [])], TABLES)
    there = [sweep for sweep in SWEEPS if (runs / "sweeps" / sweep).is_dir()]
    jobs = pd.concat([jobs_of(runs, sweep) for sweep in there], ignore_index=True)
    names = dict.fromkeys(("task", "model", "step"), "category")
    jobs.astype(names).to_parquet(TABLES / "jobs.parquet", compression="zstd", index=False)
    machine = json.dumps({"matmul_peak": round(matmul_peak(3.0))})
    (TABLES / "machine.json").write_text(machine + "\n", encoding="utf-8")


def write_page(docs: Path = DOCS) -> str:
    """Spread the tables, and write the page and its figures.

    Args:
        docs: Where `reproduction.md` and the folder `reproduction` go.
    """
    from memloc.analysis.grid import read_grid
    from memloc.cli import app
    from reproduction.costs import cost_values
    from reproduction.page import TEMPLATE, fill
    from reproduction.results import result_values

    folder = spread(TABLES, FOLDER)
    values = {**result_values(read_grid(folder), read_runs(TABLES)), **cost_values(TABLES)}
    page = fill(TEMPLATE.read_text(encoding="utf-8"), values)
    (docs / "reproduction.md").write_text(page, encoding="utf-8")
    out = docs / "reproduction" / "figures"
    options = ["--out", str(out), "--format", "png", "--only", FIGURES]
    app(["figures", str(folder), *options], standalone_mode=False)
    return page


if __name__ == "__main__":
    main()
