"""Suspicious labels in a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from memloc.report.audit_page import audit_sentences
from memloc.report.terminal import columns, decimal, indented, section
from memloc.text import counted, one_line

WIDEST_LABEL = 14


def show_audit(
    labels: pd.DataFrame, about: Mapping[str, Any], console: Console, most: int = 12
) -> None:
    """Print how many labels look wrong, and the most suspicious ones.

    Args:
        labels: As of `write_audit_page`.
        about: As of `write_audit_page`.
        console: Where to print.
        most: How many rows are printed.
    """
    facts = f"{about['model']} on {about['name']}: {counted(about['examples'], 'label')}"
    console.print()
    console.print(Text.assemble(("memloc audit", "bold"), f"  {facts}"))
    console.print()
    found = labels[labels["suspect"]] if labels["suspect"].any() else labels
    rows: list[dict[Any, Any]] = found.nsmallest(most, "rank").to_dict("records")
    first, *others = audit_sentences(labels, about)
    console.print(Text(f"{first}.", style="bold"))
    if others:
        console.print(Text(" ".join(f"{sentence}." for sentence in others)))
    which = f"the first {len(rows)} of {len(found):,}" if len(rows) < len(found) else ""
    console.print(section("Most suspicious labels", which))
    front = [
        (
            str(row["rank"]),
            str(row["row"]),
            _cut(row["label"], WIDEST_LABEL),
            _cut(row["suggested_label"], WIDEST_LABEL),
            decimal(row["score"], 2),
        )
        for row in rows
    ]
    heads = ("rank", "row", "given", "→ suggested", "score", "text")
    left = (2, 3, 5)
    room = console.width - console.measure(columns(heads[:-1], front, 2, left)).maximum - 4
    texts = [_cut(_text(row), max(room, len(heads[-1]))) for row in rows]
    table = [(*cells, text) for cells, text in zip(front, texts, strict=True)]
    console.print(indented(columns(heads, table, 2, left)))


def _text(row: Mapping[Any, Any]) -> str:
    """The text with its pair, if there is one."""
    return " | ".join(row[name] for name in ("text", "text_pair") if isinstance(row.get(name), str))


def _cut(words: str, width: int) -> Text:
    """In one line of at most this width."""
    text = Text(one_line(words))
    text.truncate(width, overflow="ellipsis")
    return text
