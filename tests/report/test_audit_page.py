"""The page to review labels as a file, and the same labels in the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.cells import cell_len

from memloc.cli.output import make_console
from memloc.report.audit_page import audit_data, audit_sentences, write_audit_page
from memloc.report.audit_terminal import show_audit
from memloc.results.folders import ResultsError
from tests.report.audit_labels import CLASSES, about, made_labels
from tests.report.folders import HOSTILE
from tests.report.pages import Seen, assert_self_contained, assert_strict_policy


def page_of(labels: pd.DataFrame, folder: Path, **values: object) -> str:
    path = folder / "report.html"
    assert write_audit_page(labels, about(labels, **values), path) == path
    return path.read_text(encoding="utf-8")


def test_the_page_is_one_file_that_runs_only_its_own_script(tmp_path: Path) -> None:
    text = page_of(made_labels(), tmp_path)
    assert_self_contained(text)
    assert_strict_policy(text)
    assert "<title>memloc: labels of my data</title>" in text


def test_text_of_the_data_set_stays_text_and_stays_complete(tmp_path: Path) -> None:
    labels = made_labels(texts=HOSTILE).assign(text_pair=lambda table: table["text"][::-1].values)
    classes = ["<i>a</i>", "</script>", "\u202egnol"]
    for column in ("label", "suggested_label"):
        labels[column] = labels[column].replace(dict(zip(CLASSES, classes, strict=True)))
    names = {"name": "</title><script>x</script>", "model": '"><img src=x onerror=alert(1)>'}
    seen = Seen(page_of(labels, tmp_path, classes=classes, **names))
    harmless = Seen(page_of(made_labels(), tmp_path))
    assert [tag for tag, _ in seen.elements] == [tag for tag, _ in harmless.elements]
    ((_, found),) = [one for one in seen.of("script") if one[0].get("type")]
    rows = json.loads(found)["rows"]
    assert rows["text"] == labels["text"].tolist()
    assert rows["text_pair"] == labels["text_pair"].tolist()
    assert [json.loads(found)["classes"][label] for label in rows["label"]] == list(labels["label"])


def test_the_same_labels_give_the_same_page_in_whatever_order(tmp_path: Path) -> None:
    labels = made_labels()
    assert page_of(labels, tmp_path) == page_of(labels.iloc[::-1], tmp_path)


def test_decisions_belong_to_texts_and_labels_not_to_scores() -> None:
    labels = made_labels()

    def key(changed: pd.DataFrame) -> str:
        return audit_data(changed, about(changed))["key"]

    assert key(labels.assign(score=0.5, rank=1, suspect=False, other=2.0)) == key(labels)
    changes = (
        {"label": "stones"},
        {"text": "another"},
        {"text_pair": "more"},
        {"row": range(9, 69)},
    )
    assert len({key(labels), *(key(labels.assign(**change)) for change in changes)}) == 5


def test_columns_of_numbers_are_single_scores_and_missing_ones_are_null() -> None:
    labels = made_labels(4, 1).assign(self_confidence=[0.1, np.nan, np.inf, 1.0], note="no number")
    data = audit_data(labels, about(labels))
    assert list(data["scores"]) == ["learned", "confidence", "variability", "self_confidence"]
    assert data["scores"]["self_confidence"] == [0.1, None, None, 1]
    assert data["scores"]["learned"] == [None, 1, 2, 3]
    assert set(data["rows"]) == {"text", "row", "label", "suggested", "suspect", "rank", "score"}
    pairs = labels.assign(text_pair=["one", None, np.nan, "two"], word="bank")
    rows = audit_data(pairs, about(pairs))["rows"]
    assert rows["text_pair"] == ["one", None, None, "two"]
    assert rows["word"] == ["bank"] * 4


def test_the_first_sentences_count_what_looks_wrong() -> None:
    labels = made_labels(1500, 8)
    assert audit_sentences(labels, about(labels)) == (
        "About 7 of 1,500 labels look wrong",
        "The 95% interval is 4 to 12",
        "8 labels are marked as suspects",
    )
    for suspects, words in ((0, "No label is"), (1, "One label is"), (2, "2 labels are")):
        unknown = made_labels(9, suspects)
        (sentence,) = audit_sentences(unknown, about(unknown, wrong=None))
        assert sentence.startswith(f"{words} marked as ")


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="No such file or directory; give another file"):
        write_audit_page(made_labels(), about(made_labels()), tmp_path / "no" / "report.html")


def test_the_terminal_has_the_most_suspicious_labels_in_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    labels = made_labels(
        1500, 40, texts=["x" * 300, "日本語のテキスト" * 20, "line\nbreak \x1b[31m"]
    )
    labels["label"] = labels["label"].replace("animals", "[bold]a name of many letters[/]")
    show_audit(labels, about(labels), make_console())
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "About 7 of 1,500 labels look wrong." in out
    lines = out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["rank", "row"])
    rows = [line.split() for line in lines[head + 1 :] if line.strip()]
    assert [row[:2] for row in rows] == [[str(rank), str(40 - rank)] for rank in range(1, 13)]
    assert "[bold]a name" in out
    show_audit(labels[:3], about(labels), make_console())
    out = capsys.readouterr().out
    assert "line break" in out
    assert max(map(cell_len, out.splitlines())) <= 80
    assert "\x1b" not in out


def test_without_suspects_the_terminal_shows_the_first_by_rank(
    capsys: pytest.CaptureFixture[str],
) -> None:
    labels = made_labels(60, 0)
    show_audit(labels, about(labels), make_console(), most=2)
    out = capsys.readouterr().out
    assert "the first 2 of 60" in out
    assert "text number 1" in out
    assert "text number 2" not in out
