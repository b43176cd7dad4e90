"""What the exams of a repair say: a table in the terminal, a figure, and the card of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.text import Text

from memloc.report.figures.looks import Look
from memloc.report.figures.panels import (
    DOUBLE,
    dot,
    handles,
    memloc_style,
    panel_grid,
    rendered,
)
from memloc.report.terminal import columns, indented, section, show_jobs
from memloc.tables import REPORT
from memloc.text import one_line

COLUMNS = {
    "given": "given",
    "relearned_kept": "after\nkept",
    "relearned_tenth": "after\ntenth",
    "probe": "probe",
    "true_accuracy": "true\nlabel",
    "kept_accuracy": "kept",
    "validation_accuracy": "valid-\nation",
}
"""Measures in the order of the table, and their heads."""
LEGEND = {
    "given": "suspects that get the label in the data",
    "after kept": "the same, once the model has seen kept examples for an epoch",
    "after tenth": "the same, once it has seen a tenth of the suspects for one step",
    "probe": "suspects whose label in the data a probe reads from the states",
    "true label": "suspects that get their correct label",
    "kept, validation": "accuracy on these examples",
}
"""What the columns mean."""
MADE_OF = {
    "swapped-window": "some layers of the twin, all others of the model",
    "retrained-window": "some layers were reset and trained without the suspects",
    "trained-on": "the whole model, trained on without the suspects",
    "twin": "trained in the same way, but it never saw the wrong labels",
    "control-window": "for comparison, other layers of the twin",
    "unchanged": "for comparison, the model as it was",
}
"""What the candidates are."""
LOOKS = {
    "given": Look("given label", "#D55E00", "o"),
    "relearned_kept": Look("after an epoch on kept examples", "#E69F00", "s"),
    "relearned_tenth": Look("after a step on a tenth of the suspects", "#CC79A7", "D"),
    "probe": Look("read by a probe", "#56B4E9", "^"),
    "validation_accuracy": Look("validation", "#0072B2", "o"),
    "kept_accuracy": Look("kept examples", "#009E73", "s"),
    "true_accuracy": Look("suspects, correct label", "#000000", "D"),
}
PANELS = {
    "What is left of the wrong labels (share of suspects)": (
        "given",
        "relearned_kept",
        "relearned_tenth",
        "probe",
    ),
    "What is right (accuracy)": ("validation_accuracy", "kept_accuracy", "true_accuracy"),
}
"""Titles of the figure's panels, and the measures in each."""


def known_measures(summary: dict[str, Any]) -> list[str]:
    """Those in the order of the table that are known of some candidate."""
    candidates = summary["candidates"]
    return [name for name in COLUMNS if any(one[name]["value"] is not None for one in candidates)]


def rows_of(summary: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of the table of exams; measures that nobody knows are left out."""
    known = known_measures(summary)
    rows = []
    for one in summary["candidates"]:
        first, last = one["layers"] or (None, None)
        layers = "all" if first is None else str(first) if first == last else f"{first}-{last}"
        layers = "" if one["candidate"] == "unchanged" else layers
        shares = [_percent(one[measure]["value"]) for measure in known]
        seconds = "-" if one["seconds"] is None else f"{one['seconds']:,.0f} s"
        rows.append([one["candidate"], layers, *shares, seconds])
    return ["candidate", "layers", *(COLUMNS[measure] for measure in known), "made in"], rows


def on_one_line(head: str) -> str:
    """The head of a column, which has two lines in the terminal."""
    return head.replace("-\n", "").replace("\n", " ")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def show_repair(summary: dict[str, Any], console: Console) -> None:
    """Print the exams, what they say, and where the model is."""
    heads, rows = rows_of(summary)
    of = f"{summary['suspects']} suspects, {summary['kept']} kept examples"
    console.print()
    title = f"  repair of {summary['model']} on {summary['task']}: {of}"
    console.print(Text.assemble(("memloc", "bold"), title))
    console.print(section("Is it gone, or only hidden?"))
    styles = {summary["candidate"]: "bold"}
    cells = [[Text(cell, styles.get(row[0], "")) for cell in row] for row in rows]
    console.print(indented(columns(heads, cells, gap=1)))
    words = "; ".join(f"{column}: {meaning}" for column, meaning in LEGEND.items())
    console.print(indented(Text(words, "dim"), top=1))
    console.print()
    for number, sentence in enumerate(summary["findings"]):
        console.print(Text(sentence, style="" if number else "bold"))
    show_jobs(summary["jobs"], summary["job_seconds"], console)
    console.print(f"Model: {summary['folder']}/", soft_wrap=True)
    files = f"  {summary['candidate']}, with its README.md, exam.parquet, exam.png and repair.json"
    console.print(files, style="dim")
    console.print(f"Report: {summary['folder']}/{REPORT}", soft_wrap=True, markup=False)


# --- the figure ---------------------------------------------------------------------------------


def exam_figure(summary: dict[str, Any]) -> bytes:
    """Every candidate's exam with 95% intervals, as PNG."""
    candidates = summary["candidates"]
    names = [one["candidate"] for one in candidates]

    def draw(panel: Axes, title: str) -> None:
        measures = PANELS[title]
        spread = np.linspace(-0.27, 0.27, len(measures))
        for measure, shift in zip(measures, spread, strict=True):
            for place, one in enumerate(candidates):
                found = one[measure]
                if found["value"] is None:
                    continue
                ends = found["low"], found["high"]
                low, high = (found["value"] if end is None else end for end in ends)
                bars = np.array([[found["value"] - low], [high - found["value"]]])
                dot(panel, [found["value"]], [place + shift], LOOKS[measure], across=bars, size=3.6)
        for place in range(1, len(names)):
            panel.axhline(place - 0.5, color="#CCCCCC", linewidth=0.5)
        panel.set_xlim(-0.03, 1.03)
        panel.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
        panel.set_ylim(len(names) - 0.5, -0.5)
        panel.set_yticks(range(len(names)), names)
        panel.grid(False, axis="y")

    with memloc_style():
        drawn: Figure
        drawn, _ = panel_grid(
            [list(PANELS)],
            draw,
            0.38 * len(names) + 0.45,
            title=str,
            legend=handles(LOOKS.values(), line=False),
            width=DOUBLE,
            sharey="all",
        )
        return rendered(drawn, "png")


# --- the model card -----------------------------------------------------------------------------


def model_card(summary: dict[str, Any], base: str | None, inputs: Sequence[str]) -> str:
    """README.md of the model: what was repaired, the exams, and how to load it.

    Args:
        summary: What the exams say.
        base: Name of the pre-trained model on the hub, if it has one.
        inputs: Lines of Python that encode `texts`.
    """
    front = {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["memloc", "label-noise", "memorisation"],
        **({} if base is None else {"base_model": base}),
    }
    heads, rows = rows_of(summary)
    lines = [[_cell(cell) for cell in row] for row in [heads, ["---"] * len(heads), *rows]]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    found = "\n".join(f"- {_escaped(sentence)}" for sentence in summary["findings"])
    code = "\n".join(
        [
            "import torch",
            "from transformers import AutoModelForSequenceClassification, AutoTokenizer",
            "",
            'folder = "path/to/this/folder"',
            "model = AutoModelForSequenceClassification.from_pretrained(folder).eval()",
            "tokenizer = AutoTokenizer.from_pretrained(folder)",
            *inputs,
            "with torch.no_grad():",
            "    classes = model(**batch).logits.argmax(dim=-1)",
            "print([model.config.id2label[number] for number in classes.tolist()])",
        ]
    )
    columns_meant = "\n".join(f"- {column}: {meaning}" for column, meaning in LEGEND.items())
    made_of = "\n".join(f"- *{name}*: {what}" for name, what in MADE_OF.items())
    what = {
        "flipped": "whose labels were flipped",
        "wrong": "whose labels are wrong",
        "suspected": "whose labels are suspected to be wrong",
    }[summary["noise"]]
    return f"""---
{yaml.safe_dump(front, sort_keys=False, allow_unicode=True).strip()}
---

# {_escaped(summary["model"])} on {_escaped(summary["task"])}, repaired

A text classifier had learned wrong labels by heart. memloc {summary["memloc"]} has made several
candidates to repair it, and this is **{summary["candidate"]}**. Of the
{summary["suspects"] + summary["kept"]} training examples, {summary["suspects"]} are *suspects*,
{what}; all others are *kept*.

## Is it gone, or only hidden?

{table}

{columns_meant}

The candidates:

{made_of}

`report.html` shows the exam with 95% intervals, and `exam.parquet` has all numbers.

![Exams of all candidates, with 95% intervals](exam.png)

{found}

## How to load it

```python
{code}
```

## How it was made

```console
{summary["made_by"]}
{summary["command"]}
```

`repair.json` has all settings, and the versions of all libraries.
"""


def _cell(text: str) -> str:
    return _escaped(on_one_line(text))


def _escaped(text: str) -> str:
    """Names of others as they are, not as Markdown."""
    plain = one_line(text)
    return "".join(f"\\{c}" if c in "\\`*_[]<>|" else c for c in plain)
