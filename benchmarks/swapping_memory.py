"""How much memory does swapping take, with two models in memory and with --low-memory?

Run it with `python -m benchmarks.swapping_memory` (Linux only). Two random models of one shape are
swapped as by `memloc localise` in a process of its own, once each way; the peak is what the system
says of that process, less what it needed before it loaded a model of any size. Both ways must
predict the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.table import Table
from tests.tiny_models import WORDS, save_pair, tiny_tokenizer
from transformers import BertConfig, BertForSequenceClassification

from memloc.api.experiments import run
from memloc.config import Engine, GivenData, Localisation
from memloc.models.blocks import BlockModel
from memloc.models.load import parameter_counts, swapping_bytes

ROLES = ("memorised", "original")


def main() -> None:
    """A table of two rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=20000)
    parser.add_argument("--tokens", type=int, default=8, help="of every text")
    parser.add_argument("--examples", type=int, default=2)
    parser.add_argument("--swap", choices=("two_models", "low_memory"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.swap:
        print(json.dumps(swap(arguments.folder, arguments.swap == "low_memory")))
        return
    with tempfile.TemporaryDirectory() as folder:
        parameters = make_models(Path(folder), arguments)
        found = {way: measure(Path(folder), way) for way in ("two_models", "low_memory")}
    assert found["two_models"]["predictions"] == found["low_memory"]["predictions"]
    one = 4 * parameters["all"]
    estimate = swapping_bytes(parameters)
    console = Console(width=80, highlight=False)
    console.print(
        f"{arguments.layers} layers of width {arguments.width}: one model has {one / 2**20:.0f} MB "
        f"of weights, of which {4 * sum(parameters['layers']) / one:.0%} in the layers; texts of "
        f"{arguments.tokens} tokens\n"
    )
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for title in ("peak, in models", "measured", "estimated", "measured MB"):
        table.add_column(title, justify="left" if not table.columns else "right")
    for way, title in (("two_models", "two models"), ("low_memory", "--low-memory")):
        peak, guess = found[way]["peak"], estimate[way]
        table.add_row(title, f"{peak / one:.2f}", f"{guess / one:.2f}", f"{peak / 2**20:.0f}")
    console.print(table)


def make_models(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Two models with the same embeddings, and texts of one length with some wrong labels."""
    config = BertConfig(
        vocab_size=arguments.vocabulary, hidden_size=arguments.width,
        num_hidden_layers=arguments.layers, num_attention_heads=arguments.width // 64,
        intermediate_size=4 * arguments.width, num_labels=3, initializer_range=0.05, pad_token_id=0,
    )  # fmt: skip
    for seed, role in enumerate(ROLES):
        torch.manual_seed(0)
        model = BertForSequenceClassification(config)
        torch.manual_seed(seed + 1)
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed" not in name:
                torch.nn.init.normal_(parameter, std=0.05)
        model.save_pretrained(folder / role)
        tokenizer = tiny_tokenizer()
        tokenizer.model_max_length = 512
        tokenizer.save_pretrained(folder / role)
    random = np.random.default_rng(0)
    n = arguments.examples
    texts = [" ".join(random.choice(WORDS, arguments.tokens - 2)) for _ in range(n)]
    labels = random.integers(0, 3, n)
    original = np.where(np.arange(n) % 2, labels, (labels + 1) % 3)
    pd.DataFrame({"text": texts, "label": labels, "original_label": original}).to_csv(
        folder / "data.csv", index=False
    )
    return parameter_counts(BlockModel(model.eval()))


def measure(folder: Path, way: str) -> dict[str, Any]:
    """In a process of its own."""
    command = [sys.executable, "-m", "benchmarks.swapping_memory", "--folder", str(folder)]
    answer = subprocess.run([*command, "--swap", way], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


def swap(folder: Path, low_memory: bool) -> dict[str, Any]:
    """All windows; the peak beyond what the program needs without a model of any size."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as small:  # so that everything is imported
        save_pair(Path(small), "bert", layers=1)
        localise(Path(small), folder / "data.csv", low_memory)
    before = resident("VmRSS")
    tables = localise(folder, folder / "data.csv", low_memory)
    return {
        "peak": resident("VmHWM") - before,
        "predictions": tables["predictions"]["predicted"].tolist(),
    }


def localise(folder: Path, data: Path, low_memory: bool) -> dict[str, pd.DataFrame]:
    """Swapping alone."""
    memorised, original = (str(folder / role) for role in ROLES)
    config = Localisation(
        memorised=memorised,
        original=original,
        data=GivenData(file=data),
        techniques={"swapping": {}},
        explain=False,
    )
    with tempfile.TemporaryDirectory() as aside:
        return run(config, Engine(low_memory=low_memory), out=Path(aside)).tables


def resident(which: str) -> int:
    """Bytes of this process in memory: VmRSS now, VmHWM at the peak.

    Not from `getrusage`: what it calls the peak begins with the size of the process that started
    this one.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith(which))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
