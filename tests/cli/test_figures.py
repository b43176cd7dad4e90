"""`memloc figures` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memloc.report.figures.registry import figures
from tests.conftest import assert_one_sentence
from tests.report.figure_folders import write_control, write_full_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Where the command looks if it is not told."""
    folder = tmp_path / "runs"
    for task in ("questions", "reviews"):
        write_full_run(folder, task, seeds=(1,))
    return folder


def test_files_are_written_and_what_is_skipped_has_a_reason(
    memloc, runs: Path, tmp_path: Path
) -> None:
    code, out, err = memloc("figures", "--only", "fig3,fig7,fig6,table1", "--format", "svg,png")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    words = " ".join(out.split())
    assert "2 runs: 2 tasks, 1 model" in words
    assert "Written to figures/ (6 files and captions.md)" in words
    assert "fig3 fig3-minilm.svg, fig3-minilm.png" in words
    assert "Skipped fig6 there is only one model, and the figure compares models" in words
    written = {file.name for file in (tmp_path / "figures").iterdir()}
    assert written == {
        *("fig3-minilm.svg", "fig3-minilm.png", "fig7.svg", "fig7.png"),
        *("table1.tex", "table1.md", "captions.md"),
    }
    captions = (tmp_path / "figures" / "captions.md").read_text()
    assert "**fig3-minilm**: Memorisation error of swapping and retraining for minilm" in captions


@pytest.mark.parametrize(
    "only", [("--only", "fig2,fig6,fig15,table1"), pytest.param((), marks=pytest.mark.slow)]
)
def test_by_default_everything_is_drawn_as_pdf(
    only: tuple[str, ...], memloc, runs: Path, tmp_path: Path
) -> None:
    write_control(runs)
    code, out, err = memloc("figures", runs, "--out", "deep/figures", *only)
    assert (code, err) == (0, "")
    files = list((tmp_path / "deep" / "figures").iterdir())
    assert {file.suffix for file in files} == {".pdf", ".tex", ".md"}
    assert (tmp_path / "deep" / "figures" / "fig2.pdf").read_bytes().startswith(b"%PDF")
    skipped = out[out.index("Skipped") :].split()
    assert {name for name in skipped if name.startswith(("fig", "table"))} >= {"fig6", "fig15"}


def test_the_list_names_all_figures_and_what_they_need(memloc) -> None:
    code, out, _ = memloc("figures", "--list")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    for entry in figures():
        assert f"\n{entry.name}" in out
    code, out, _ = memloc("figures", "--list", "--json")
    assert [entry["name"] for entry in json.loads(out)] == [entry.name for entry in figures()]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--format", "pfd"), "--format 'pfd' is not possible: it has to be 'pdf', 'svg' or 'png'"),
        (("--format", ","), "--format: nothing is named"),
        (("--only", "fig33"), "there is no figure 'fig33'; did you mean 'fig3'?"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    memloc, runs: Path, arguments: tuple[str, ...], words: str
) -> None:
    assert_one_sentence(*memloc("figures", *arguments), words)
