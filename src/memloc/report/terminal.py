"""The summary of a run in a terminal of 80 columns; readable without colour."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WIDTH = 80
BAR = 32
SHADES = " ░▒▓█"
# Dark to light, ordered in lightness, so that it also works for the colour-blind.
RAMP = ("#20204a", "#3b2f7d", "#6d3f92", "#a34f8e", "#d4667b", "#f28f6b", "#fbc87a")


def show_run(summary: dict[str, Any], console: Console) -> None:
    """Print everything `memloc run` has to say."""
    training = summary["training"]
    console.print()
    console.print(
        Text.assemble(
            ("memloc", "bold"),
            f"  {summary['model']} ({summary['layers']} layers) on {summary['task']}: "
            f"{summary['examples']} examples, {summary['noisy_examples']} with a flipped label",
        )
    )
    console.print(_section("Did it memorise, did it generalise?"))
    console.print(Padding(_accuracies(training), (0, 0, 0, 2), expand=False))
    _show_methods(summary, console)


def show_localisation(summary: dict[str, Any], console: Console) -> None:
    """Print everything `memloc localise` has to say."""
    console.print()
    console.print(
        Text.assemble(
            ("memloc", "bold"),
            f"  {summary['model']} ({summary['layers']} layers): {summary['examples']} examples, "
            f"{summary['noisy_examples']} noisy, {summary['memorised_examples']} of them memorised",
        )
    )
    _show_methods(summary, console)


def _show_methods(summary: dict[str, Any], console: Console) -> None:
    for name, result in summary["methods"].items():
        if result["m_cog"] is None:
            continue
        console.print(
            _section(f"Where? {name}: % of memorisation undone, by window size and layer")
        )
        console.print(
            Padding(heat_map(result["error_by_size_and_layer"]), (0, 0, 0, 2), expand=False)
        )
        console.print(_section("Layer weights (mean of each column)"))
        console.print(Padding(weight_bars(result["layer_weights"]), (0, 0, 0, 2), expand=False))
        console.print(Padding(_facts(result), (1, 0, 0, 2), expand=False))
    if summary["sample_examples"]:
        console.print(_section("Which examples? Some, with the smallest window that undoes each"))
        for example in summary["sample_examples"]:
            console.print(_example_line(example))
    console.print()
    console.print(Text(summary["interpretation"], style="bold"))
    for caveat in summary["caveats"]:
        console.print(Text(f"Caution: {caveat}", style="yellow"))


def _example_line(example: dict[str, Any]) -> Text:
    first, last = example["first_layer"], example["last_layer"]
    window = f"layer {first}" if first == last else f"layers {first}-{last}"
    labels = f"{example['label']} (was {example['original_label']})"
    line = Text(f"  {window:<12}{labels}: ")
    text = " ".join(example["text"].split())
    line.append(text, style="dim")
    line.truncate(WIDTH - 1, overflow="ellipsis")
    return line


def show_files(folder: str, console: Console, jobs: dict[str, int] | None, seconds: float) -> None:
    """Where the results are, and how much of them is new."""
    console.print()
    if jobs and not jobs["computed"]:
        console.print(f"Nothing to compute: all {jobs['reused']} jobs were in the store already.")
    elif jobs and jobs["reused"]:
        console.print(
            f"{jobs['computed']} jobs computed, {jobs['reused']} reused, in {seconds:.0f} s."
        )
    else:
        console.print(f"Computed in {seconds:.0f} s.")
    console.print(f"Results: {folder}/", soft_wrap=True, highlight=False, markup=False)
    console.print(
        "  summary.json, layers, windows, examples, predictions (.parquet) and more",
        style="dim",
        highlight=False,
    )


def _section(title: str) -> Text:
    return Text(f"\n{title}", style="bold cyan")


def _accuracies(training: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("accuracy")
    for column in ("flipped labels", "clean labels", "validation"):
        table.add_column(column, justify="right")
    rows: tuple[tuple[str | None, ...], ...] = (
        ("fine-tuned on flipped labels", "noisy_accuracy", "clean_accuracy", "validation_accuracy"),
        ("on original labels", None, "original_accuracy", "original_validation_accuracy"),
        ("on flipped labels, head only", "frozen_noisy_accuracy", None, None),
    )
    for title, *keys in rows:
        table.add_row(title, *("" if key is None else f"{training[key]:.3f}" for key in keys))
    return table


def _facts(result: dict[str, Any]) -> Table:
    seeds = [centre for centre in result["m_cog_per_seed"] if centre is not None]
    spread = f"  (seeds: {', '.join(f'{c:.2f}' for c in seeds)})" if len(seeds) > 1 else ""
    best = result["strongest_single_layer"]
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 3, 0, 0))
    table.add_row(
        "centre of gravity (M-CoG)", f"{result['m_cog']:.2f} of {result['layers']}{spread}"
    )
    table.add_row("strongest single layer", f"{best['layer']}, undoes {best['undoes']:.0%}")
    table.add_row("layers to undo 95%", f"{result['layers_to_undo']} of {result['layers']}")
    one = result["examples_undone_by_one_layer"]
    if one is not None:
        table.add_row("examples one layer undoes", f"{one:.0%} of those memorised")
    if result["clean_error"] is not None:
        table.add_row("clean labels lost (mean)", f"{result['clean_error']:.1%}")
    return table


def heat_map(matrix: list[list[float | None]]) -> RenderableType:
    """E as a grid: window size downwards, layer to the right, in per cent."""
    n = len(matrix)
    room = WIDTH - 10
    wide = 5 if n * 5 <= room else 4 if n * 4 <= room else 3 if n * 3 <= room else 1
    lines = []
    if wide > 1:
        header = Text().append("layer   ", style="dim")
        header.append("".join(_padded(str(layer), wide) for layer in range(1, n + 1)))
        lines.append(header)
    else:
        lines.append(Text(f"layers 1 to {n}; fuller is more", style="dim"))
    for size in range(n, 0, -1):
        line = Text().append(f"size {size:>2} ", style="dim")
        for value in matrix[size - 1]:
            line.append(*_cell(value, wide))
        lines.append(line)
    return Group(*lines)


def _cell(value: float | None, wide: int) -> tuple[str, str]:
    if value is None:
        return "·".rjust(wide), "dim"
    level = min(1.0, max(0.0, value))
    if wide == 1:
        return SHADES[round(level * (len(SHADES) - 1))], ""
    step = round(level * (len(RAMP) - 1))
    ink = "#ffffff" if step < 4 else "#000000"
    number = f"{value * 100:.0f}"
    return _padded(number, wide), f"{ink} on {RAMP[step]}"


def _padded(number: str, wide: int) -> str:
    """Right-justified, with a gap behind where there is room for one."""
    return f"{number:>{wide - 1}} " if wide > 3 else f"{number:>{wide}}"


def weight_bars(weights: list[float | None]) -> RenderableType:
    """One bar per layer."""
    known = [weight for weight in weights if weight is not None]
    top = max(known, default=0.0) or 1.0
    lines = []
    for layer, weight in enumerate(weights, start=1):
        line = Text().append(f"layer {layer:>2} ", style="dim")
        if weight is not None:
            line.append("█" * max(0, round(weight / top * BAR)), style="cyan")
            line.append(f" {weight:.3f}")
        lines.append(line)
    return Group(*lines)
