"""What the terminal says of a result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memloc.cli.output import make_console
from memloc.models.load import show_check
from memloc.report.terminal import show_result
from memloc.tables import EXAMPLE
from tests.report.folders import change_summary, write_full_run

Capture = pytest.CaptureFixture[str]


def shown(folder: Path, capsys: Capture) -> str:
    """As one line."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    show_result(summary, make_console())
    return " ".join(capsys.readouterr().out.split())


def test_held_out_examples_are_counted_and_numbers_explained(
    tmp_path: Path, capsys: Capture
) -> None:
    folder = write_full_run(tmp_path, scores=False)
    change_summary(folder, examples=320, validation_examples=80)
    words = shown(folder, capsys)
    assert "320 examples" in words
    assert "80 more are held out for validation" in words
    assert "row in the data, from 0" in EXAMPLE.meaning


def test_names_of_others_are_text_and_never_markup(tmp_path: Path, capsys: Capture) -> None:
    folder = write_full_run(tmp_path, scores=False)
    change_summary(folder, model="x[bold]y", task="[red]a[/red] [/] :smile:")
    words = shown(folder, capsys)
    assert "x[bold]y" in words
    assert "[red]a[/red] [/] :smile:" in words
    found = {
        **{"model": "x[bold]y[/]", "architecture": "a", "stack": "b", "layers": 1},
        **{"head_reads": "first", "padding_token": "[/pad]", "separator": "[SEP]"},
        **{"max_tokens": 1, "resume_problem": None},
        "parameters": {"layers": [1], "all": 1},
        "swapping_memory_bytes": {"two_models": 1, "low_memory": 1},
    }
    show_check(found, make_console())
    out = capsys.readouterr().out
    assert "x[bold]y[/] (a)" in out
    assert "[/pad]  [SEP]" in out
