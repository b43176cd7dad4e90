"""The page as a file: self-contained, safe, readable; and the command that writes it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from memloc.api.result import load
from memloc.cli.output import write_beside
from memloc.report import audit_page, repair_page
from memloc.report.html import PARTS
from memloc.report.page import SCRIPTS, page_data, render, write_report
from memloc.results.folders import write_results
from tests.conftest import assert_one_sentence
from tests.report.folders import HOSTILE, change_summary, write_full_localised, write_full_run
from tests.report.pages import Seen, assert_self_contained, assert_strict_policy
from tests.result_folders import write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read only but for its report."""
    return write_full_run(tmp_path_factory.mktemp("runs"))


def hostile_run(runs: Path) -> Path:
    return write_full_run(
        runs,
        task="</title><script>window.broken = true</script>",
        model='"><img src=x onerror=alert(1)>',
        texts=HOSTILE,
        classes=("<i>a</i>", "</script>", "\u202egnol"),
        name="hostile",
    )


def test_the_page_needs_nothing_from_elsewhere(folder: Path) -> None:
    text = write_report(folder).read_text(encoding="utf-8")
    assert len(text.encode()) < 300_000
    assert_self_contained(text)


def test_the_policy_allows_this_script_and_this_style_alone(folder: Path) -> None:
    assert_strict_policy(render(page_data(folder)))


def test_text_of_the_data_set_stays_text(tmp_path: Path) -> None:
    data = page_data(hostile_run(tmp_path))
    text = render(data)
    seen, harmless = Seen(text), Seen(render(page_data(write_full_run(tmp_path))))
    assert [tag for tag, _ in seen.elements] == [tag for tag, _ in harmless.elements]
    ((_, found),) = [one for one in seen.of("script") if one[0].get("type")]
    assert json.loads(found) == data
    assert json.loads(found)["runs"][0]["examples"]["text"][0] == HOSTILE[0]


def test_scripts_never_read_data_as_markup() -> None:
    files = {path.name for path in PARTS.glob("*.js")}
    assert files == {*SCRIPTS, *audit_page.SCRIPTS, *repair_page.SCRIPTS}
    for name in files:
        text = (PARTS / name).read_text(encoding="utf-8")
        forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function"
        assert re.findall(forbidden, text) == [], name
        assert "setAttribute('style'" not in text  # the policy would not apply it


# --- the command ---------------------------------------------------------------------------------


def test_the_report_stands_in_its_folder_or_where_it_is_told(memloc, folder: Path) -> None:
    code, out, err = memloc("report", folder)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"Report: {folder / 'report.html'}"
    assert "--open" in out
    assert (folder / "report.html").is_file()
    assert memloc("report", folder, "--out", "mine.html")[0] == 0
    assert Path("mine.html").read_bytes() == (folder / "report.html").read_bytes()
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_folder_of_results_has_one_report_of_all(memloc, tmp_path: Path) -> None:
    write_full_run(tmp_path / "runs", "one")
    write_full_localised(tmp_path / "runs")
    assert memloc("report")[0] == 0
    text = Path("runs/report.html").read_text(encoding="utf-8")
    assert "<title>memloc: 2 results in runs</title>" in text


def test_bad_input_is_one_sentence_and_exit_code_2(memloc, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    damaged = write_full_run(tmp_path / "damaged")
    (damaged / "windows.parquet").write_bytes(b"PAR1 and nothing else")
    newer = write_full_run(tmp_path / "newer")
    change_summary(newer, memloc="7.0")
    unfinished = write_run(tmp_path / "unfinished")
    (unfinished / "summary.json").unlink()
    for arguments, words in (
        ([tmp_path / "nowhere"], "there is no folder"),
        ([tmp_path / "empty"], "no finished run in"),
        ([unfinished], "(only 1 unfinished)"),
        ([damaged / "windows.parquet"], "is a file"),
        ([damaged], f"{damaged / 'windows.parquet'}"),
        ([newer], "was written by memloc 7.0, which is newer than this one"),
        (
            [folder, "--out", "no/such/report.html"],
            "cannot write 'no/such/report.html': No such file or directory; give",
        ),
        ([folder, "--out", tmp_path], "Is a directory; give another file"),
    ):
        assert_one_sentence(*memloc("report", *arguments), words)


def test_open_shows_the_report_in_the_browser_of_the_user(folder: Path, tmp_path: Path) -> None:
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o755)
    command = [sys.executable, "-m", "memloc", "report", str(folder), "--open"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "BROWSER": str(browser)}
    )
    assert done.returncode == 0, done.stderr
    assert seen.read_text().strip() == (folder / "report.html").as_uri()


def test_a_report_that_fails_does_not_fail_the_run(tmp_path: Path, capsys) -> None:
    folder = write_full_run(tmp_path)
    result = load(folder)
    assert write_beside(result) == folder / "report.html"
    damaged = {**result.tables, "layers": result.layers.drop(columns="weight")}
    assert write_beside(replace(result, tables=damaged)) is None
    words = capsys.readouterr().err
    assert words.startswith("memloc: no report was written (")
    assert f"`memloc report {folder}` tries again" in words
    assert words.count("\n") == 1


def test_results_that_are_replaced_take_their_report_with_them(tmp_path: Path) -> None:
    folder = write_full_run(tmp_path)
    write_report(folder)
    write_results(folder, {}, {}, {})
    assert not (folder / "report.html").exists()
