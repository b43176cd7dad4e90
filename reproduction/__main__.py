"""Collect the results of sweeps, or write docs/reproduction.md from what was collected."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

import pandas as pd

from memloc.errors import MemlocError
from memloc.results.folders import ResultsError
from reproduction.tables import DOCS, TABLES, collect, read_runs, spread

FOLDER = Path("build/reproduction")
"""Result folders, spread out of the tables."""
FIGURES = {
    "fig2": "Accuracy in the control setup",
    "fig3": "Error by window size and layer",
    "fig5": "Layer weights by technique",
    "fig6": "M-CoG of retraining, model by model",
    "fig7": "M-CoG per task",
    "fig8": "Agreement on M-CoG",
    "fig9": "Agreement on layer weights",
    "fig10": "Noisy examples between the centroids of two classes",
    "fig12": "Events of centroids",
    "fig19": "M-CoG with all classes and with two",
    "fig20": "Events with all classes and with two",
}
"""What is drawn, by the name it has in `memloc figures`."""
SWEEPS = ("paper-mini", "more-models")


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    collecting = commands.add_parser("collect", help="results of sweeps into docs/reproduction/")
    collecting.add_argument("runs", type=Path, help="folder with the results of the sweeps")
    collecting.add_argument("--control", type=Path, help="folder with results of `memloc control`")
    arguments = parser.parse_args()
    try:
        if arguments.command == "collect":
            _collect(arguments.runs, arguments.control)
        else:
            write_page()
    except MemlocError as error:
        print(f"reproduction: {error}", file=sys.stderr)
        sys.exit(2)


def _collect(runs: Path, control: Path | None) -> None:
    import torch
    from benchmarks.machine import matmul_peak

    from reproduction.jobs import jobs_of

    there = [sweep for sweep in SWEEPS if (runs / "sweeps" / sweep).is_dir()]
    if not there:
        raise ResultsError(
            f"there is no sweep {' or '.join(SWEEPS)} in {str(runs)!r}; give the --runs of both"
        )
    collect([runs, *([control] if control else [])], TABLES)
    jobs = pd.concat([jobs_of(runs, sweep) for sweep in there], ignore_index=True)
    found = [run["summary"] for run in read_runs(TABLES).values()]
    finished = {(summary.get("task"), summary.get("model")) for summary in found}
    jobs = jobs[[pair in finished for pair in zip(jobs["task"], jobs["model"], strict=True)]]
    names = dict.fromkeys(("task", "model", "step"), "category")
    jobs.astype(names).to_parquet(TABLES / "jobs.parquet", compression="zstd", index=False)
    torch.set_num_threads(1)  # as jobs do
    machine = json.dumps({"matmul_peak": round(matmul_peak(3.0))})
    (TABLES / "machine.json").write_text(machine + "\n", encoding="utf-8")


def write_page(docs: Path = DOCS) -> str:
    """Spread the tables, and write the page and its figures.

    Args:
        docs: Where `reproduction.md` and the folder `reproduction` go.
    """
    from memloc.cli import app
    from memloc.results.grid import read_grid
    from reproduction.costs import cost_values
    from reproduction.page import TEMPLATE, fill
    from reproduction.results import result_values

    folder = spread(TABLES, FOLDER)
    figures = docs / "reproduction" / "figures"
    shutil.rmtree(figures, ignore_errors=True)
    options = ["--out", str(figures), "--format", "png", "--only", ",".join(FIGURES)]
    app(["figures", str(folder), *options], standalone_mode=False)
    (figures / "captions.md").unlink()  # would be a page of the site that nothing leads to
    values = {
        **result_values(read_grid(folder), read_runs(TABLES)),
        **cost_values(TABLES),
        **{name: _shown(figures, name, title) for name, title in FIGURES.items()},
    }
    page = fill(TEMPLATE.read_text(encoding="utf-8"), values)
    (docs / "reproduction.md").write_text(page, encoding="utf-8")
    return page


def _shown(figures: Path, name: str, title: str) -> str:
    """The pictures of a figure, often one per model."""
    found = [figures / f"{name}.png", *sorted(figures.glob(f"{name}-*.png"))]
    lines = []
    for path in found:
        if path.exists():
            of = path.stem.removeprefix(name).removeprefix("-")
            words = f"{title}, {of}" if of else title
            lines.append(f"![{words}](reproduction/figures/{path.name})")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
