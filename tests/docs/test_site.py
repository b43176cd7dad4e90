"""The documentation as a site: it builds without a warning and needs no network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.docs.pages import PAGES, ROOT


class Page(HTMLParser):
    """Loaded files of a page, and its text without code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.paragraphs: list[str] = []
        self._within = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if values.get("src") or (tag == "link" and values.get("rel") == "stylesheet"):
            self.loaded.append(values.get("src") or values["href"])
        if tag == "p":
            self.paragraphs.append("")
        self._within = tag

    def handle_data(self, data: str) -> None:
        if self._within == "p":
            self.paragraphs[-1] += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # Not with --quiet: warnings would not be errors then.
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    names = [f"{Path(page).stem}.html" for page in PAGES if page.startswith("docs/")]
    return {name: Page((site / name).read_text(encoding="utf-8")) for name in names}


def test_nothing_is_loaded_from_elsewhere(pages: dict[str, Page]) -> None:
    loaded = {link for page in pages.values() for link in page.loaded}
    assert loaded
    assert not {link for link in loaded if urlsplit(link).scheme or urlsplit(link).netloc}


def test_lists_and_tables_are_not_taken_for_text(pages: dict[str, Page]) -> None:
    # Markdown is read with other rules here than on GitHub: a list needs an empty line before it.
    looks_like = re.compile(r"^(- |\d+\. |\|)", flags=re.MULTILINE)
    wrong = [(n, t) for n, page in pages.items() for t in page.paragraphs if looks_like.search(t)]
    assert not wrong
