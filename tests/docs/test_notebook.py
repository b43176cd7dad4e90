"""The notebook runs from top to bottom, and shows what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from tests.docs.pages import ROOT
from tests.docs.test_links import problem

NOTEBOOK = "docs/notebook.ipynb"


def read() -> Any:
    return nbformat.read(ROOT / NOTEBOOK, as_version=4)


def test_it_is_stored_without_outputs() -> None:
    notebook = read()
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) >= 5
    assert not any(cell.outputs or cell.execution_count for cell in code)


def test_its_links_lead_somewhere() -> None:
    text = "\n".join(cell.source for cell in read().cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\(([^()\s]+)\)", text)
    assert links
    assert not {link: problem(NOTEBOOK, link) for link in links if problem(NOTEBOOK, link)}


def test_it_uses_the_public_interface_only() -> None:
    code = "\n".join(cell.source for cell in read().cells if cell.cell_type == "code")
    assert set(re.findall(r"^(?:import|from) (\S+)", code, flags=re.MULTILINE)) == {
        "memloc",
        "pandas",
    }


@pytest.mark.slow
def test_it_runs_and_finds_what_was_flipped(tmp_path: Path) -> None:
    notebook = read()
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown = [
        output.data
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]
    assert any("<img" in data.get("text/html", "") for data in shown)  # the result, with a chart
    assert any("image/png" in data for data in shown)
    (result,) = (data["text/plain"] for data in shown if "memloc result" in data["text/plain"])
    assert "8 of 58 labels noisy" in result
    (accuracies,) = (data["text/plain"] for data in shown if data["text/plain"].startswith("state"))
    assert "Caution" not in result
    assert accuracies.splitlines()[-1].split() == ["14", "0.5", "1.0", "1.0"]
    assert (tmp_path / "report.html").is_file()
