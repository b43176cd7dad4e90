"""Does dropout in frozen layers change what retraining finds?

Run it with `python -m benchmarks.frozen_dropout`.

Retrains all windows of `minilm` on the built-in tasks twice, with frozen layers deterministic (the
default) and with dropout in all layers (the authors' behaviour), and compares the layer weights.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from scipy.stats import spearmanr

import memloc
from memloc.data.builtin import BUILTIN_TASKS


def main() -> None:
    """One line per task."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", default=",".join(BUILTIN_TASKS))
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    arguments = parser.parse_args()
    console = Console(width=80, highlight=False)
    lines = []
    for task in arguments.tasks.split(","):
        results = []
        for dropout in (False, True):
            found = memloc.run(
                task=task,
                seeds=arguments.seeds,
                techniques=[memloc.Retraining(frozen_dropout=dropout)],
                runs=arguments.runs,
            )
            results.append(found.summary["techniques"]["retraining"])
        rho = spearmanr(*(result["layer_weights"] for result in results)).statistic
        off, on = (
            f"{result['m_cog']:.2f} [{' '.join(f'{w:.2f}' for w in result['layer_weights'])}]"
            for result in results
        )
        lines.append(f"{task:<14} ρ {rho:.2f}  off {off}  on {on}")
        console.print(lines[-1], soft_wrap=True)


if __name__ == "__main__":
    main()
