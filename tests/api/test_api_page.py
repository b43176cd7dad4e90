"""Every block of docs/api.md runs, one after the other, as a reader would run them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.api.conftest import Setup

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


@pytest.mark.slow
def test_every_block_of_the_page_runs(
    trained: Setup,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, role in (
        ("model", "memorised"),
        ("model-clean", "original"),
        ("base", "pretrained"),
    ):
        getattr(trained, role).save_pretrained(f"my/{folder}")
        trained.tokenizer.save_pretrained(f"my/{folder}")
    trained.data[["text", "label", "gold"]].to_csv("my/data.csv", index=False)
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == text.count("```") // 2 >= 6
    names: dict[str, object] = {}
    printed = []
    for block in blocks:
        capsys.readouterr()
        # Lines of the page, so that a traceback points to them.
        before = text[: text.index(block)].count("\n")
        exec(compile("\n" * before + block, str(PAGE), "exec"), names)
        printed.append(capsys.readouterr().out.strip())
        # What the page says is printed is printed.
        for said in re.findall(r"^ *print\(.*?\)(?:  |\n *)# (.*)$", block, flags=re.MULTILINE):
            assert said == printed[-1]
    assert printed[0].startswith("memloc result: minilm (6 layers) on questions, ")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "layers.pdf",
        "my",
        "out.html",
        "runs",
    ]
