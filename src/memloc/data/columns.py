"""Which column of a user's file is the text, which the label."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from memloc.errors import DataError, suggest

TEXT_COLUMNS = (
    *("text", "sentence", "sentence1", "premise", "question1", "question", "text1", "text_a"),
    *("review", "content", "document", "tweet", "comment", "post", "message", "body"),
    *("utterance", "headline", "title", "query", "input"),
)
PAIR_COLUMNS = {
    "text": "text_pair",
    "sentence1": "sentence2",
    "premise": "hypothesis",
    "question1": "question2",
    "question": "passage",
    "text1": "text2",
    "text_a": "text_b",
}
LABEL_COLUMNS = (
    *("label", "labels", "class", "category", "target", "y", "sentiment", "emotion", "topic"),
    *("intent", "label_name"),
)
ORIGINAL_LABEL_COLUMN = "original_label"


@dataclass(frozen=True)
class Columns:
    """The columns of a file that matter."""

    text: str
    pair: str | None
    label: str
    original: str | None


def choose_columns(
    table: pd.DataFrame,
    path: Path | str,
    text: str | None,
    pair: str | None,
    label: str | None,
    original: str | None,
) -> Columns:
    """Find the columns that are named, and guess the others, whatever their case.

    Raises:
        DataError: If a column is absent, cannot be guessed, or would serve twice.
    """
    names = [str(name) for name in table.columns]
    roles = {"text": text, "pair": pair, "label": label, "original-label": original}
    for role, wanted in roles.items():
        if wanted is not None and not isinstance(wanted, str):
            raise DataError(
                f"--{role}-column is {wanted!r:.40}; give the name of a column of {path} as a text "
                f"(columns: {', '.join(names)})"
            )
    chosen_text = _named(text, names, path) or _guessed(TEXT_COLUMNS, names)
    if chosen_text is None:
        raise _unrecognised("text", names, path)
    chosen_pair = _named(pair, names, path)
    if pair is None and text is None:
        # Who names the text without its partner means the text alone.
        partner = PAIR_COLUMNS.get(chosen_text.lower())
        chosen_pair = _guessed([partner], names) if partner else None
    chosen_label = _named(label, names, path) or _guessed(LABEL_COLUMNS, names)
    if chosen_label is None:
        raise _unrecognised("label", names, path)
    chosen_original = _named(original, names, path)
    if original is None and chosen_label.lower() != ORIGINAL_LABEL_COLUMN:
        chosen_original = _guessed([ORIGINAL_LABEL_COLUMN], names)
    columns = Columns(chosen_text, chosen_pair, chosen_label, chosen_original)
    _check_distinct(columns, path)
    return columns


def _named(wanted: str | None, names: list[str], path: Path | str) -> str | None:
    if wanted is None or wanted in names:
        return wanted
    same = [name for name in names if name.lower() == wanted.lower()]
    if len(same) == 1:
        return same[0]
    hint = suggest(wanted, names)
    columns = f" (columns: {', '.join(names)})" if "did you mean" in hint else ""
    raise DataError(f"{path} has no column {wanted!r}{hint}{columns}")


def _guessed(guesses: Iterable[str], names: list[str]) -> str | None:
    lowered = {name.lower(): name for name in reversed(names)}
    return next((lowered[guess] for guess in guesses if guess in lowered), None)


def _unrecognised(role: str, names: list[str], path: Path | str) -> DataError:
    return DataError(
        f"{path} has no column that looks like the {role}; name it with --{role}-column "
        f"(columns: {', '.join(names)})"
    )


def _check_distinct(columns: Columns, path: Path | str) -> None:
    roles = {
        "text": columns.text,
        "pair": columns.pair,
        "label": columns.label,
        "original-label": columns.original,
    }
    seen: dict[str, str] = {}
    for role, name in roles.items():
        if name is not None and name in seen:
            raise DataError(
                f"the column {name!r} of {path} cannot be both the {seen[name]} and the {role}; "
                f"name another one with --{role}-column"
            )
        if name is not None:
            seen[name] = role
