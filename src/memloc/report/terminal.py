"""The summary of a run in a terminal of 80 columns; readable without colour."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memloc.results.narrative import SWAPPED, clean_lost, of_all, part_of, undone_by_all
from memloc.techniques import at_checkpoints
from memloc.text import counted, duration, percent

WIDTH = 80
BAR = 24
MOST_SIDE_BY_SIDE = 5
"""Techniques in a row."""
MOST_CELLS = 24
"""Of a heat map, in each direction."""
STRIP = 41
"""Columns between the two classes."""
LOWEST, HIGHEST = -0.25, 1.25
MOST_COLUMNS = 12
MOST_ROWS = 12
EVENTS = {
    "crossing": "crossing: flipped examples nearer to the new class",
    "initiation": "classification initiation: classes apart",
    "mem_gen": "mem≫gen: probes find the flipped label better",
    "f1_90": "90% F1: probes nearly as good as they get",
}
# Dark to light, ordered in lightness, so that it also works for the colour-blind.
RAMP = ("#20204a", "#3b2f7d", "#6d3f92", "#a34f8e", "#d4667b", "#f28f6b", "#fbc87a")


def show_run(summary: dict[str, Any], console: Console) -> None:
    """Print everything `memloc run` has to say."""
    training = summary["training"]
    console.print()
    console.print(
        Text.assemble(
            ("memloc", "bold"),
            f"  {summary['model']} ({counted(summary['layers'], 'layer')}) on {summary['task']}: "
            f"{summary['examples']} examples, {summary['noisy_examples']} with a flipped label",
        )
    )
    _show_parts(summary, console)
    console.print(section("Did it memorise, did it generalise?"))
    console.print(Padding(_accuracies(training), (0, 0, 0, 2), expand=False))
    _show_techniques(summary, console)


def show_localisation(summary: dict[str, Any], console: Console) -> None:
    """Print everything `memloc localise` has to say."""
    console.print()
    console.print(
        Text.assemble(
            ("memloc", "bold"),
            f"  {summary['model']} ({counted(summary['layers'], 'layer')}): "
            f"{summary['examples']} examples, "
            f"{summary['noisy_examples']} noisy, {summary['memorised_examples']} of them memorised",
        )
    )
    _show_parts(summary, console)
    _show_techniques(summary, console)


def _show_parts(summary: dict[str, Any], console: Console) -> None:
    parts = {part_of(result) for result in summary["techniques"].values()} - {""}
    for part in parts:
        console.print(f"        of the layers, only the {part} are changed (--unit)", style="dim")


def _show_techniques(summary: dict[str, Any], console: Console) -> None:
    techniques = summary["techniques"]
    if any(result["m_cog"] is not None for result in techniques.values()):
        console.print(section("Where? Layer weights by technique"))
        console.print(Padding(profiles(techniques), (0, 0, 0, 2), expand=False))
    windowed = {n: r for n, r in techniques.items() if undone_by_all(summary, r)}
    for name, result in windowed.items():
        what = ", ".join(filter(None, (name.capitalize(), part_of(result))))
        undone = "% of what all layers undo" if part_of(result) else "% of memorisation undone"
        console.print(section(f"{what}: {undone}, by window size and layer"))
        console.print(
            Padding(heat_map(result["undone_by_size_and_layer"]), (0, 0, 0, 2), expand=False)
        )
    if windowed:
        console.print(Padding(_facts(windowed, summary), (1, 0, 0, 2), expand=False))
    show_explanation(summary, console)
    show_over_time(summary, console)
    show_generalisation(summary, console)
    if summary["sample_examples"]:
        console.print(section("Which examples? Some, with the smallest window that undoes each"))
        for example in summary["sample_examples"]:
            console.print(_example_line(example))
    console.print()
    console.print(Text(summary["interpretation"], style="bold"))
    if summary["agreement"]["words"]:
        console.print(Text(summary["agreement"]["words"]))
    over_time = (summary.get("over_time") or {}).get("words", [])
    for sentence in (*summary["explanation"]["words"], *over_time):
        console.print(Text(sentence))
    for caveat in summary["caveats"]:
        console.print(Text(f"Caution: {caveat}", style="yellow"))


def _example_line(example: dict[str, Any]) -> Text:
    first, last = example["first_layer"], example["last_layer"]
    window = f"layer {first}" if first == last else f"layers {first}-{last}"
    before = example["original_label"]
    labels = example["label"] if before is None else f"{example['label']} (was {before})"
    line = Text(f"  {window:<12} {labels}: ")
    text = " ".join(example["text"].split())
    line.append(text, style="dim")
    line.truncate(WIDTH - 1, overflow="ellipsis")
    return line


def show_files(folder: str, console: Console, jobs: dict[str, int] | None, seconds: float) -> None:
    """Where the results are, and how much of them is new."""
    show_jobs(jobs, seconds, console)
    console.print(f"Results: {folder}/", soft_wrap=True, highlight=False, markup=False)
    console.print(
        "  summary.json, layers, windows, examples, predictions (.parquet) and more",
        style="dim",
        highlight=False,
    )


def show_jobs(jobs: dict[str, int] | None, seconds: float, console: Console) -> None:
    """How much was computed now, and how much earlier."""
    console.print()
    if jobs and not jobs["computed"] and jobs.get("failed"):
        console.print(f"Nothing was computed, {jobs['reused']} reused, in {duration(seconds)}.")
    elif jobs and not jobs["computed"]:
        console.print(f"Nothing to compute: all {jobs['reused']} jobs were in the store already.")
    elif jobs and jobs["reused"]:
        computed = counted(jobs["computed"], "job")
        console.print(f"{computed} computed, {jobs['reused']} reused, in {duration(seconds)}.")
    else:
        console.print(f"Computed in {duration(seconds)}.")


def section(title: str) -> Text:
    """The heading of a part."""
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
        values = [None if key is None else training[key] for key in keys]
        table.add_row(title, *("" if value is None else f"{value:.3f}" for value in values))
    return table


def _facts(windowed: dict[str, dict[str, Any]], summary: dict[str, Any]) -> Table:
    """What techniques that change windows found, side by side."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("")
    for name in windowed:
        table.add_column(name, justify="right")

    def row(title: str, cells: list[str | None]) -> None:
        if any(cells):
            table.add_row(title, *(cell or "-" for cell in cells))

    results = list(windowed.values())
    best = [result["strongest_single_layer"] for result in results]
    row(
        "strongest single layer",
        [one and f"layer {one['layer']}, undoes {of_all(one['undoes'])}" for one in best],
    )
    row(
        "layers to undo 95%",
        [r["layers_to_undo"] and f"{r['layers_to_undo']} of {r['layers']}" for r in results],
    )
    row(
        "examples one layer undoes",
        [percent(r["examples_undone_by_one_layer"]) for r in results],
    )
    row("undone by all layers", [percent(undone_by_all(summary, r)) for r in results])
    lost = [percent(clean_lost(summary, r), 1) for r in results]
    row("clean labels lost (mean)", lost)
    if not any(lost):  # what θ_M knew of them is not known
        row("clean labels wrong (mean)", [percent(r["clean_error"], 1) for r in results])
    return table


def heat_map(matrix: list[list[float | None]]) -> RenderableType:
    """E as a grid: window size downwards, layer to the right, in per cent.

    Sizes that were not looked at are left out. In deep models adjacent layers and sizes are put
    together, so that a cell is a mean over a few of both.
    """
    n = len(matrix)
    step = -(-n // MOST_CELLS)
    groups = [range(start, min(start + step, n)) for start in range(0, n, step)]
    room = WIDTH - 10
    wide = 5 if len(groups) * 5 <= room else 4 if len(groups) * 4 <= room else 3
    notes = [f"from size {n} down; █ is 100 or more"] if wide == 3 else []
    if step > 1:
        notes.append(f"cells are means of {step} layers and sizes")
    lines = [Text("; ".join(notes), style="dim")] if notes else []
    header = Text().append("layer" if wide == 3 else "layer   ", style="dim")
    # Numbers of three digits would touch: then only every other.
    shown = [str(group[0] + 1) if n < 100 or not i % 2 else "" for i, group in enumerate(groups)]
    lines.append(header.append("".join(_padded(layer, wide) for layer in shown)))
    for sizes in reversed(groups):
        cells = [_mean([matrix[s][c] for s in sizes for c in columns]) for columns in groups]
        if any(value is not None for value in cells):
            size = sizes[0] + 1
            line = Text().append(f"{size:>4} " if wide == 3 else f"size {size:>2} ", style="dim")
            for value in cells:
                line.append(*_cell(value, wide))
            lines.append(line)
    return Group(*lines)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _cell(value: float | None, wide: int) -> tuple[str, str]:
    if value is None:
        return _padded("·", wide), "dim"
    step = round(min(1.0, max(0.0, value)) * (len(RAMP) - 1))
    ink = "#ffffff" if step < 4 else "#000000"
    number = f"{value * 100:.0f}"
    if wide == 3 and len(number) > 2:
        number = "█"  # three digits would touch their neighbours
    return _padded(number, wide), f"{ink} on {RAMP[step]}"


def _padded(number: str, wide: int) -> str:
    """Right-justified, with a gap behind where there is room for one."""
    return f"{number:>{wide - 1}} " if wide > 3 else f"{number:>{wide}}"


def profiles(techniques: dict[str, dict[str, Any]]) -> Group:
    """The layer weights of all techniques side by side, as many as fit beside each other."""
    names = list(techniques)
    parts: list[RenderableType] = []
    for start in range(0, len(names), MOST_SIDE_BY_SIDE):
        row = names[start : start + MOST_SIDE_BY_SIDE]
        parts += [*([Text()] if parts else []), _profiles({name: techniques[name] for name in row})]
    return Group(*parts)


def _profiles(techniques: dict[str, dict[str, Any]]) -> Table:
    """Bars relative to the largest weight of each."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("layer", justify="right", header_style="dim", style="dim")
    width = max(3, min(BAR, (WIDTH - 10) // len(techniques) - 8))
    for name in techniques:
        table.add_column(name)
    n_layers = max(result["layers"] for result in techniques.values())
    for layer in range(1, n_layers + 1):
        table.add_row(
            str(layer), *(_bar(r["layer_weights"], layer, width) for r in techniques.values())
        )
    table.add_row(
        "M-CoG", *(Text(_centre(result), style="bold") for result in techniques.values()), style=""
    )
    return table


def _bar(weights: list[float], layer: int, width: int) -> Text:
    weight = weights[layer - 1]
    if weight is None:
        return Text(f"{' ' * width}     -")
    top = max(weights) or 1.0
    length = round(weight / top * width)
    line = Text("█" * length, style="cyan")
    line.append(f"{' ' * (width - length)} {weight:.3f}", style="default")
    return line


def _centre(result: dict[str, Any]) -> str:
    if result["m_cog"] is None:
        return "-"
    spread = result["m_cog_spread"]
    return f"{result['m_cog']:.2f}" + (f" ± {spread:.2f}" if spread is not None else "")


def show_explanation(summary: dict[str, Any], console: Console) -> None:
    """Print what the explanations found, if there are any."""
    found = summary["explanation"]
    if "centroids" in found:
        console.print(
            Text("\nHow? Flipped examples between their two classes, by layer", style="bold cyan")
        )
        console.print(_indented(trajectory(found["centroids"])))
    if "events" in found:
        console.print(_indented(event_lines(found["events"]["memorised"]), top=1))
    if "examples" in found:
        console.print(_indented(crossing_lines(found["examples"]), top=1))


def show_generalisation(summary: dict[str, Any], console: Console) -> None:
    """Print what the half-splits found, if there were any."""
    found = summary.get("generalisation")
    if not found:
        return
    title = f"\nHeld-out training examples ({found['splits']} half-splits)"
    console.print(Text(title, style="bold cyan"))
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for column in ("probability of the label", "flipped labels", "clean labels"):
        table.add_column(column, justify="left" if not table.columns else "right")
    for name, title in (
        ("training_memorisation", "if the example was seen"),
        ("generalisation_score", "if it was held out"),
        ("counterfactual_memorisation", "difference (counterfactual memorisation)"),
    ):
        cells = [_decimal(found["means"][kind][name]) for kind in ("noisy", "clean")]
        table.add_row(title, *cells)
    console.print(_indented(table))
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for column in ("finding the flipped labels by", "ROC-AUC", "average precision"):
        table.add_column(column, justify="left" if not table.columns else "right")
    for name, title in (
        ("counterfactual_memorisation", "counterfactual memorisation"),
        ("self_confidence", "self-confidence (held out)"),
    ):
        found_by = found["detection"][name]
        table.add_row(title, *map(_decimal, (found_by["roc_auc"], found_by["average_precision"])))
    table.add_row("guessing", _decimal(0.5), _decimal(found["share_noisy"]))
    console.print(_indented(table, top=1))
    score, error = _decimal(found["score"]), _decimal(found["standard_error"])
    console.print(f"  generalisation score {score} ± {error}", highlight=False)


def trajectory(centroids: dict[str, Any]) -> Table:
    """Per layer: where both classes and the noisy mean are; beside it the numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("\nlayer", justify="right", style="dim")
    axis = list(" " * STRIP)
    for position, words in ((0.0, "new class"), (1.0, "old class")):
        start = _column(position) - len(words) // 2
        axis[start : start + len(words)] = words
    ticks = list(" " * STRIP)
    for position, mark in ((0.0, "0"), (0.5, "½"), (1.0, "1")):
        ticks[_column(position)] = mark
    table.add_column("".join(axis) + "\n" + "".join(ticks))
    table.add_column("\nmean", justify="right")
    swapped = {model: name for model, name in SWAPPED.items() if model in centroids}
    for index, name in enumerate(swapped.values()):
        table.add_column(("swapped:" if not index else "") + f"\n{name}", justify="right")
    own = centroids["memorised"]
    for layer, mean in enumerate(own["noisy"]["mean"]):
        others = [centroids[model]["noisy"]["mean"][layer] for model in swapped]
        table.add_row(
            str(layer + 1), _strip(own, layer), _decimal(mean, 2), *(_decimal(o, 2) for o in others)
        )
    table.add_row("", Text("● flipped examples  ░ ▒ middle 75% of the classes", style="dim"))
    return table


def _strip(groups: dict[str, Any], layer: int) -> Text:
    cells = [" "] * STRIP
    for group, mark in (("class_a", "░"), ("class_b", "▒")):
        low, high = (groups[group][end][layer] for end in ("low", "high"))
        if low is None or high is None:
            continue
        for column in range(_column(low), _column(high) + 1):
            cells[column] = "▓" if cells[column] != " " else mark
    mean = groups["noisy"]["mean"][layer]
    line = Text("".join(cells), style="dim")
    if mean is None:
        return line
    column = _column(mean)
    return Text.assemble(line[:column], ("●", "bold magenta"), line[column + 1 :])


def _column(position: float) -> int:
    """Where a position is in the strip; those outside are at its ends."""
    share = (min(max(position, LOWEST), HIGHEST) - LOWEST) / (HIGHEST - LOWEST)
    return round(share * (STRIP - 1))


def event_lines(events: dict[str, Any]) -> Table:
    """The layers of the events; missing ones say so."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    for event, title in EVENTS.items():
        if event not in events:
            continue
        found = events[event]
        layer = "missing" if found["layer"] is None else f"layer {found['layer']:.1f}"
        note = f" ({found['missing']} missing)" if found["missing"] and found["layer"] else ""
        table.add_row(title, layer.removesuffix(".0") + note)
    return table


def crossing_lines(examples: dict[str, Any]) -> Group:
    """How many single examples change sides for good in which layer."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("layer", style="dim", no_wrap=True)
    shown = list(enumerate(examples["crossing_shares"], start=1))
    if len(shown) > MOST_COLUMNS:  # as many columns as fit: in groups of layers
        width = -(-len(shown) // (MOST_COLUMNS - 4))
        groups = [shown[i : i + width] for i in range(0, len(shown), width)]
        columns = [(f"{g[0][0]}-{g[-1][0]}", sum(s for _, s in g)) for g in groups]
    else:
        columns = [(str(layer), share) for layer, share in shown]
    for title, _ in (*columns, ("never", 0.0)):
        table.add_column(title, justify="right", no_wrap=True)
    cells = [f"{share:.0%}" for _, share in columns]
    table.add_row("", *cells, f"{examples['never_cross']:.0%}")
    return Group(Text("single examples that cross for good, by layer"), table)


def show_over_time(summary: dict[str, Any], console: Console) -> None:
    """Print what was found at the checkpoints, if there are any."""
    found = summary.get("over_time")
    if not found:
        return
    console.print(Text("\nWhen? Memorisation over training time", style="bold cyan"))
    console.print(Padding(checkpoint_rows(found["epochs"]), (0, 0, 0, 2), expand=False))


def checkpoint_rows(epochs: list[dict[str, Any]]) -> Table:
    """One line per checkpoint; of many, evenly spread ones with the first and the last."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    heads = ("\nepoch", "flipped\nlabels", "in the\nlayers", "clean\nlabels", "valida-\ntion")
    centres = (*(f"M-CoG\n{name}" for name in at_checkpoints()), "crossing\n(layer)")
    for head in (*heads, *centres):
        table.add_column(head, justify="right", no_wrap=True)
    places = np.linspace(0, len(epochs) - 1, min(MOST_ROWS, len(epochs))).round().astype(int)
    for place in np.unique(places):
        one = epochs[int(place)]
        shares = ("memorised", "in_layers", "clean_accuracy", "validation_accuracy")
        missing = "-" if one["seeds_with_enough"] else "not yet"
        table.add_row(
            str(one["epoch"]),
            *("-" if one[name] is None else f"{one[name]:.0%}" for name in shares),
            *(missing if one[name] is None else f"{one[name]:.2f}" for name in at_checkpoints()),
            "-" if one["centroids"] is None else f"{one['centroids']:.1f}".removesuffix(".0"),
        )
    return table


def _indented(what: Any, top: int = 0) -> Padding:
    return Padding(what, (top, 0, 0, 2), expand=False)


def _decimal(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
