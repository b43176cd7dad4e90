"""Results of `run`, `localise` and `control` in a terminal of 80 columns, also without colour."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memloc.models.names import SWAPPED_HALVES
from memloc.results.narrative import (
    facts,
    layers_named,
    noisy_labels,
    part_of,
    undone_by_all,
)
from memloc.techniques import at_checkpoints
from memloc.text import counted, duration, percent

WIDTH = 80
BAR = 24
MOST_SIDE_BY_SIDE = 5
"""Techniques in a row."""
MOST_CELLS = 14
"""Of a heat map, in each direction."""
MOST_COLUMNS = 12
MOST_ROWS = 12
EVENTS = {
    "crossing": "crossing: nearer to the new class",
    "initiation": "initiation: classes apart for good",
    "mem_gen": "mem≫gen: probes find the new label",
    "f1_90": "90% F1: probes nearly at their best",
}
# Dark to light, ordered in lightness, so that it also works for the colour-blind.
RAMP = ("#20204a", "#3b2f7d", "#6d3f92", "#a34f8e", "#d4667b", "#f28f6b", "#fbc87a")


def section(title: str, about: str = "") -> Text:
    """The heading of a part."""
    return Text.assemble("\n", (title, "bold cyan"), (f"  ({about})" if about else "", "dim"))


def indented(what: RenderableType, top: int = 0) -> Padding:
    """Two columns to the right."""
    return Padding(what, (top, 0, 0, 2), expand=False)


def columns(
    heads: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    gap: int = 3,
    left: Sequence[int] = (0,),
) -> Table:
    """A table without lines; all but some columns are aligned at the right."""
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, gap, 0, 0),
        header_style="dim",
        show_header=any(heads),
    )
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def decimal(value: float | None, digits: int = 3) -> str:
    """A number, or a dash; what is 0 when rounded has no sign."""
    if value is None or value != value:
        return "-"
    text = f"{value:.{digits}f}"
    return text if float(text) else text.lstrip("-")


def bar(share: float, width: int) -> Text:
    """A bar of this share of the width."""
    return Text(f"{'█' * round(min(max(share, 0.0), 1.0) * width):<{width}}", style="cyan")


ACCURACIES = (
    ("noisy_accuracy", "clean_accuracy", "validation_accuracy"),
    ("", "original_accuracy", "original_validation_accuracy"),
    ("frozen_noisy_accuracy", "", ""),
)
"""Of the trained models: on noisy labels, on clean ones, and in validation."""


def show_result(summary: dict[str, Any], console: Console) -> None:
    """Print everything `memloc run` or `memloc localise` has to say."""
    training = summary.get("training")
    title = f"{summary['model']} ({counted(summary['layers'], 'layer')})"
    noisy = noisy_labels(summary)
    found = f"{summary['noisy_examples']} with {noisy}"
    if training is None:
        found += f", {summary['memorised_examples']} of them memorised"
    else:
        title += f" on {summary['task']}"
    console.print()
    words = f"  {title}: {summary['examples']} examples, {found}"
    if summary.get("validation_examples"):
        words += f"; {summary['validation_examples']} more are held out for validation"
    console.print(Text.assemble(("memloc", "bold"), words))
    for part in {part_of(result) for result in summary["techniques"].values()} - {""}:
        console.print(f"        of the layers, only the {part} are changed", style="dim")
    if training is not None:
        known = {key: f"{one:.3f}" for key, one in training.items() if isinstance(one, float)}
        models = (f"fine-tuned on {noisy}", "on original labels", f"on {noisy}, head only")
        if summary.get("noise") == "suspected":
            models = ("fine-tuned on all labels", "without the suspects", "head only")
        rows = [
            (model, *(known.get(key, "") for key in keys))
            for model, keys in zip(models, ACCURACIES, strict=True)
            if any(key in known for key in keys)
        ]
        heads = ("accuracy", noisy, "clean labels", "validation")
        console.print(section("Did it memorise, did it generalise?"))
        console.print(indented(columns(heads, rows)))
    _show_techniques(summary, console)


def _show_techniques(summary: dict[str, Any], console: Console) -> None:
    techniques = summary["techniques"]
    if any(result["m_cog"] is not None for result in techniques.values()):
        console.print(section("Where? Layer weights by technique"))
        console.print(indented(profiles(techniques)))
        words = "range: where M-CoG can lie, as large windows contain every layer"
        console.print(f"  {words}", style="dim", highlight=False)
    windowed = [name for name, result in techniques.items() if undone_by_all(result)]
    for name in windowed:
        _show_windows(name, summary, console)
    if windowed:
        console.print(indented(_facts(windowed, summary), top=1))
    show_explanation(summary, console)
    show_over_time(summary, console)
    show_generalisation(summary, console)
    if summary["sample_examples"]:
        console.print(
            section("Which examples? Some, with the smallest window tried that undoes each")
        )
        for example in summary["sample_examples"]:
            console.print(_example_line(example, summary.get("noise") == "suspected"))
    console.print()
    over_time = (summary.get("over_time") or {}).get("words", [])
    found = (summary["agreement"]["words"], *summary["explanation"]["words"], *over_time)
    _show_conclusion(summary, (*summary["findings"], *found), console)


def _show_windows(name: str, summary: dict[str, Any], console: Console) -> None:
    """The heat map of a technique that changes windows."""
    result = summary["techniques"][name]
    what = ", ".join(filter(None, (name.capitalize(), part_of(result))))
    console.print(section(f"{what}: % of memorisation undone, by window size and layer"))
    console.print(indented(heat_map(result["undone_by_size_and_layer"], result["sizes_tried"])))
    whole = f"100% = {undone_by_all(result):.0%} of the {noisy_labels(summary)}"
    console.print(f"  {whole}, which all layers undo", style="dim", highlight=False)


def show_first(
    summary: dict[str, Any], pending: Sequence[str], left: str, page: str, console: Console
) -> None:
    """Print what the first technique found, while the others are computed.

    Args:
        summary: Of what is there.
        pending: What is not.
        left: How long that takes, in words.
        page: Where the page is; empty if there is none.
        console: Where to print.
    """
    name, result = next(iter(summary["techniques"].items()))
    if undone_by_all(result):
        _show_windows(name, summary, console)
    elif result["m_cog"] is not None:
        console.print(section("Where? Layer weights by technique"))
        console.print(indented(profiles({name: result})))
    else:
        console.print()
        console.print(f"{name.capitalize()} found no layer that matters.", highlight=False)
    console.print()
    words = f"This is the first answer. Still to come: {', '.join(pending)}; {left}."
    console.print(Text(words, style="bold"))
    if page:
        console.print(f"Report so far: {page}", soft_wrap=True, markup=False, highlight=False)
        console.print("  it updates itself in the browser when the run ends", style="dim")
    console.print()


def _show_conclusion(summary: dict[str, Any], sentences: Iterable[str], console: Console) -> None:
    if summary["interpretation"]:
        console.print(Text(summary["interpretation"], style="bold"))
    for sentence in filter(None, sentences):
        console.print(Text(sentence))
    for caveat in summary["caveats"]:
        console.print(Text(f"Caution: {caveat}", style="yellow"))


def _example_line(example: dict[str, Any], suspected: bool) -> Text:
    other, is_what = example["original_label"], "suggested" if suspected else "correct"
    labels = example["label"] if other is None else f"{example['label']} ({is_what}: {other})"
    line = Text.assemble(
        f"  {layers_named(example):<12} {labels}: ", (" ".join(example["text"].split()), "dim")
    )
    line.truncate(WIDTH - 1, overflow="ellipsis")
    return line


def show_files(folder: str, console: Console, jobs: dict[str, int] | None, seconds: float) -> None:
    """Where the results are, and how much of them is new."""
    show_jobs(jobs, seconds, console)
    console.print(f"Results: {folder}/", soft_wrap=True, highlight=False, markup=False)
    files = "  summary.json, layers, windows, examples, predictions (.parquet) and more"
    console.print(files, style="dim", highlight=False)


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


def _facts(windowed: Iterable[str], summary: dict[str, Any]) -> Table:
    """What techniques that change windows found, side by side."""
    of_each = [facts(summary, name) for name in windowed]
    titles = [title for title in list(of_each[0])[1:] if any(found[title] for found in of_each)]
    rows = [(title, *(found[title] or "-" for found in of_each)) for title in titles]
    return columns(("", *windowed), rows)


def heat_map(matrix: list[list[float | None]], tried: Collection[int]) -> Table:
    """E as a grid: window size downwards, layer to the right, in per cent.

    Sizes that were not tried, whose values are interpolated, have no colour. In deep models
    adjacent layers and sizes are put together, so that a cell is a mean over a few of both.
    """
    step = -(-len(matrix) // MOST_CELLS)
    cells = pd.DataFrame(matrix, dtype=float)
    for _ in "sizes", "layers":
        cells = cells.groupby(cells.index // step).mean().T
    table = Table.grid()
    table.title = f"cells are means of {step} layers and sizes" if step > 1 else None
    table.title_style, table.title_justify = "dim", "left"
    numbers = range(1, len(matrix) + 1, step)
    table.add_row(Text("layer   ", "dim"), *(f"{layer:>4} " for layer in numbers))
    cells.index = pd.Index(numbers)
    for size, row in cells.dropna(how="all")[::-1].iterrows():
        known = any(number in tried for number in range(int(str(size)), int(str(size)) + step))
        table.add_row(Text(f"size {size:>2} ", "dim"), *(_cell(value, known) for value in row))
    if len(tried) < len(matrix):
        table.caption = "without colour: between the sizes that were tried"
        table.caption_style, table.caption_justify = "dim", "left"
    return table


def _cell(value: float, known: bool) -> Text:
    if np.isnan(value):
        return Text("   · ", "dim")
    if not known:
        return Text(f"{value * 100:>4.0f} ", "dim")
    step = round(min(1.0, max(0.0, value)) * (len(RAMP) - 1))
    ink = "#ffffff" if step < 4 else "#000000"
    return Text(f"{value * 100:>4.0f} ", f"{ink} on {RAMP[step]}")


def profiles(techniques: dict[str, dict[str, Any]]) -> Group:
    """The layer weights of all techniques side by side, as many as fit beside each other."""
    names = list(techniques)
    parts: list[RenderableType] = []
    for start in range(0, len(names), MOST_SIDE_BY_SIDE):
        row = {name: techniques[name] for name in names[start : start + MOST_SIDE_BY_SIDE]}
        parts += [*([Text()] if parts else []), _profiles(row)]
    return Group(*parts)


def _profiles(techniques: dict[str, dict[str, Any]]) -> Table:
    """Bars relative to the largest weight of each."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("layer", justify="right", header_style="dim", style="dim")
    width = max(3, min(BAR, (WIDTH - 10) // len(techniques) - 8))
    for name in techniques:
        table.add_column(name)
    results = list(techniques.values())
    for layer in range(max(result["layers"] for result in results)):
        table.add_row(str(layer + 1), *(_weight(r["layer_weights"], layer, width) for r in results))
    centres = []
    for result in results:
        spread = result["m_cog_spread"]
        deviation = "" if spread is None else f" ± {spread:.2f}"
        centres.append(Text(decimal(result["m_cog"], 2) + deviation, style="bold"))
    table.add_row("M-CoG", *centres)
    for title, name in (("95%", "m_cog_interval"), ("range", "m_cog_range")):
        ends = (result.get(name) if result["m_cog"] is not None else None for result in results)
        table.add_row(title, *("-" if one is None else "–".join(_short(one)) for one in ends))
    return table


def _short(numbers: Iterable[float]) -> list[str]:
    return [decimal(number, 2).removesuffix(".00") for number in numbers]


def _weight(weights: list[float | None], layer: int, width: int) -> Text:
    weight = weights[layer]
    if weight is None:
        return Text(f"{' ' * width}     -")
    largest = max(one for one in weights if one is not None)
    return bar(weight / (largest or 1.0), width).append(f" {weight:.3f}", "default")


def show_explanation(summary: dict[str, Any], console: Console) -> None:
    """Print what the explanations found, if there are any."""
    found = summary["explanation"]
    if "centroids" in found:
        console.print(section("How? Noisy examples between their two classes, by layer"))
        console.print(indented(_positions(found["centroids"])))
    if "events" in found:
        events = {name: one for name, one in found["events"]["memorised"].items() if name in EVENTS}
        overlaps = {"crossing": found.get("overlapping_crossings", {}).get("memorised", 0)}
        rows = [
            (EVENTS[name], _event(events[name], overlaps.get(name, 0)))
            for name in EVENTS
            if name in events
        ]
        console.print(indented(columns(("", ""), rows), top=1))
    if "examples" in found:
        console.print(indented(_crossings(found["examples"]), top=1))


def _event(found: dict[str, Any], overlapping: int) -> str:
    """The layer of an event; missing ones say so, and those where classes still overlap."""
    if found["layer"] is None:
        return "missing"
    seeds = len(found["per_seed"])
    notes = [f"{found['missing']} missing"] if found["missing"] else []
    if overlapping:
        some = f"overlap in {overlapping} of {seeds}"
        notes.append("classes still overlap" if overlapping == seeds else some)
    note = f" ({', '.join(notes)})" if notes else ""
    return f"layer {found['layer']:.1f}".removesuffix(".0") + note


def _positions(centroids: dict[str, Any]) -> Table:
    """Per layer: where noisy examples are, between the new class (0) and the old one (1)."""
    own = centroids["memorised"]
    swapped = {
        model: model.removesuffix("_swapped") for model in SWAPPED_HALVES if model in centroids
    }
    rows: list[tuple[str | Text, ...]] = []
    for layer, mean in enumerate(own["noisy"]["mean"]):
        classes = [
            " to ".join(decimal(own[group][end][layer], 1) for end in ("low", "high"))
            for group in ("class_a", "class_b")
        ]
        others = (decimal(centroids[model]["noisy"]["mean"][layer], 2) for model in swapped)
        rows.append((str(layer + 1), bar(mean or 0, 14), decimal(mean, 2), *classes, *others))
    heads = ("\nlayer", "\nnoisy", "\nmean", "new class\nmid 75%", "old class\nmid 75%")
    return columns((*heads, *(f"swapped:\n{name}" for name in swapped.values())), rows, 2, (1,))


def _crossings(examples: dict[str, Any]) -> Group:
    """How many single examples change sides for good in which layer, or group of layers."""
    shares = examples["crossing_shares"]
    width = 1 if len(shares) <= MOST_COLUMNS else -(-len(shares) // (MOST_COLUMNS - 4))
    groups = [
        range(start, min(start + width, len(shares))) for start in range(0, len(shares), width)
    ]
    heads = [str(g[0] + 1) if width == 1 else f"{g[0] + 1}-{g[-1] + 1}" for g in groups]
    cells = [f"{sum(shares[layer] for layer in group):.0%}" for group in groups]
    row = ("", *cells, f"{examples['never_cross']:.0%}")
    words = Text("single examples that cross for good, by layer")
    return Group(words, columns(("layer", *heads, "never"), [row], 2))


def show_over_time(summary: dict[str, Any], console: Console) -> None:
    """Print what was found at the checkpoints, if there are any."""
    found = summary.get("over_time")
    if not found:
        return
    epochs = found["epochs"]
    heads = ("\nepoch", "noisy\nlabels", "in the\nlayers", "clean\nlabels", "valida-\ntion")
    centres = (*(f"M-CoG\n{name}" for name in at_checkpoints()), "crossing\n(layer)")
    rows = []
    # Of many, evenly spread ones with the first and the last.
    places = np.linspace(0, len(epochs) - 1, min(MOST_ROWS, len(epochs))).round().astype(int)
    for one in (epochs[place] for place in places):
        shares = ("memorised", "in_layers", "clean_accuracy", "validation_accuracy")
        missing = "-" if one["seeds_with_enough"] else "not yet"
        rows.append(
            (
                str(one["epoch"]),
                *(percent(one[name]) or "-" for name in shares),
                *(missing if one[n] is None else f"{one[n]:.2f}" for n in at_checkpoints()),
                decimal(one["centroids"], 1).removesuffix(".0"),
            )
        )
    console.print(section("When? Memorisation over training time"))
    console.print(indented(columns((*heads, *centres), rows, 2, left=())))


def show_generalisation(summary: dict[str, Any], console: Console) -> None:
    """Print what the half-splits found, if there were any."""
    found = summary.get("generalisation")
    if not found:
        return
    means, detection = found["means"], found["detection"]
    seen = {
        "training_memorisation": "if the example was seen",
        "generalisation_score": "if it was held out",
        "counterfactual_memorisation": "difference (counterfactual memorisation)",
    }
    finders = {
        "counterfactual_memorisation": "counterfactual memorisation",
        "self_confidence": "self-confidence (held out)",
    }
    console.print(section(f"Held-out training examples ({found['splits']} half-splits)"))
    rows = [
        (title, *(decimal(means[kind][name]) for kind in ("noisy", "clean")))
        for name, title in seen.items()
    ]
    heads = ("probability of the label", noisy_labels(summary), "clean labels")
    console.print(indented(columns(heads, rows)))
    rows = [
        (title, *(decimal(detection[name][key]) for key in ("roc_auc", "average_precision")))
        for name, title in finders.items()
    ]
    rows.append(("guessing", decimal(0.5), decimal(found["share_noisy"])))
    heads = (f"finding the {noisy_labels(summary)} by", "ROC-AUC", "average precision")
    console.print(indented(columns(heads, rows), top=1))
    score, error = decimal(found["score"]), decimal(found["standard_error"])
    console.print(f"  generalisation score {score} ± {error}", highlight=False)


CONTROL_BAR = 11


def show_control(summary: dict[str, Any], console: Console) -> None:
    """Print everything `memloc control` has to say."""
    models = ", ".join(f"{one['model']} ({one['n_layers']} layers)" for one in summary["models"])
    words = (
        f"  {models}: {summary['control_models']} control models, memorisation of "
        f"{', '.join(summary['tasks'])} hidden in layers {', '.join(summary['hidden'])}; "
        f"auxiliary task {summary['auxiliary']}"
    )
    console.print()
    console.print(Text.assemble(("memloc control", "bold"), words))
    trainings = summary["trainings"]
    repeated = trainings["repeated"]
    again = f", {repeated} of them repeated at a higher rate" if repeated else ""
    console.print(
        f"  {trainings['trained']} trainings of the main task{again}: accuracy at least "
        f"{trainings['lowest_accuracy']:.3f}; auxiliary task {trainings['auxiliary_accuracy']:.2f}",
        style="dim",
    )
    console.print(section("Do techniques find the hidden layers?"))
    console.print(indented(_scores(summary["by_technique"], "technique")))
    if summary["chance"] is not None:
        known = any(row["low"] is not None for row in summary["by_technique"])
        brackets = "; in brackets 95% intervals" if known else ""
        console.print(f"  by chance {summary['chance']:.2f}{brackets}", style="dim")
    for what in ("task", "model"):
        found = summary[f"by_{what}"]
        console.print(section(f"By {what} (mean of {', '.join(found['techniques'])})"))
        console.print(indented(_scores(found["scores"], what)))
    console.print()
    _show_conclusion(summary, (), console)


def _scores(rows: Sequence[dict[str, Any]], name: str) -> Table:
    lines: dict[str, list[str | Text]] = {}
    for row in sorted(rows, key=lambda row: row["k"]):
        interval = "" if row["low"] is None else f"[{row['low']:.2f}, {row['high']:.2f}]"
        line = lines.setdefault(row[name], [Text(str(row[name])[:20])])
        line += [Text(f"{row['accuracy']:.2f} {interval}"), bar(row["accuracy"], CONTROL_BAR)]
    heads = ("", "accuracy@1", "", "accuracy@2", "")
    return columns(heads, lines.values(), 2, left=range(5))
