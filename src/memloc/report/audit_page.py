"""The page on which a person goes through suspicious labels: keep, relabel or drop.

Decisions stay in the browser, and leave it as a CSV file. That file has every text in full, so the
page has too: it is as large as the user's file.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

import memloc
from memloc.report.html import one_file, write_page
from memloc.report.page_data import json_ready
from memloc.text import counted

STYLES = ("page.css", "audit.css")
SCRIPTS = tuple(
    f"{name}.js"
    for name in (
        *("base", "charts", "tooltip", "pager", "theme"),
        *("audit_state", "audit_list", "audit_map", "audit"),
    )
)
"""In the order in which they are joined; what a file uses at once stands in an earlier one."""
TEXTS = ("text", "text_pair", "word")
COLUMNS = (*TEXTS, "row", "label", "suggested_label", "suspect", "rank", "score")
REVIEWED = "reviewed.csv"


def write_audit_page(labels: pd.DataFrame, about: Mapping[str, Any], path: Path) -> Path:
    """Write the page; returns where it is.

    Args:
        labels: One row per example, with `row`, `text`, `label`, `suggested_label`, `suspect`,
            `rank` and `score`; with `text_pair` and `word` where the data have them. Every further
            column of numbers is a single score.
        about: `name` of the data, `model`, `examples`, `classes`, `epochs`, and `wrong` (how many
            labels are likely wrong: `estimate`, `low` and `high`, or None).
        path: The file to write.

    Raises:
        ResultsError: If the file cannot be written.
    """
    data = audit_data(labels, about)
    return write_page(path, one_file(f"memloc: labels of {about['name']}", STYLES, SCRIPTS, data))


def audit_sentences(labels: pd.DataFrame, about: Mapping[str, Any]) -> tuple[str, ...]:
    """How many labels look wrong, and how many are suspects; as of `write_audit_page`."""
    suspects = int(labels["suspect"].sum())
    marked = f"{counted(suspects, 'label is', 'labels are')} marked as suspects"
    if suspects <= 1:
        marked = f"{'One' if suspects else 'No'} label is marked as a suspect"
    if about["wrong"] is None:
        return (marked,)
    number, low, high = (round(about["wrong"][key]) for key in ("estimate", "low", "high"))
    looks = "looks" if number == 1 else "look"
    return (
        f"About {number:,} of {counted(about['examples'], 'label')} {looks} wrong",
        f"The 95% interval is {low:,} to {high:,}",
        marked,
    )


def audit_data(labels: pd.DataFrame, about: Mapping[str, Any]) -> dict[str, Any]:
    """All data of the page, as JSON data; the arguments are those of `write_audit_page`."""
    labels = labels.sort_values("row", kind="stable")
    classes = list(dict.fromkeys([*about["classes"], *labels["label"], *labels["suggested_label"]]))
    number = {label: place for place, label in enumerate(classes)}
    texts = {
        name: [text if isinstance(text, str) else None for text in labels[name]]
        for name in TEXTS
        if name in labels
    }
    rows = labels["row"].tolist()
    examples = [rows, texts, labels["label"].tolist()]
    return {
        **{key: about[key] for key in ("name", "model", "examples", "epochs")},
        "memloc": memloc.__version__,
        "sentences": audit_sentences(labels, about),
        "classes": classes,
        # Of the examples alone: decisions are about these, whatever the scores of a later audit.
        "key": hashlib.sha256(json.dumps(examples).encode("utf-8")).hexdigest()[:16],
        "file": REVIEWED,
        "command": f"memloc run --task {REVIEWED} --model {shlex.quote(about['model'])} "
        "--label-column given_label --suspects suspect",
        "rows": {
            **texts,
            "row": rows,
            "label": [number[label] for label in labels["label"]],
            "suggested": [number[label] for label in labels["suggested_label"]],
            "suspect": labels["suspect"].astype(int).tolist(),
            "rank": labels["rank"].tolist(),
            "score": json_ready(labels["score"].tolist()),
        },
        "scores": {
            name: json_ready(labels[name].astype("float64").tolist())
            for name in labels.columns
            if name not in COLUMNS
            and is_numeric_dtype(labels[name])
            and not is_bool_dtype(labels[name])
        },
    }
