"""A real browser, if there is one: Debian's chromium, or another that is installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Skips where playwright or a browser is missing; installs nothing."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install 'memloc[dev]'"
    )
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no browser was found (chromium); install it, on Debian: apt install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page (if it exists already); there must be no error and no request beside files."""
    contexts, troubles = [], []

    def open_page(file: Path, width: int = 1440, theme: str = "light") -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on(
            "console", lambda m: troubles.append(m.text) if m.type in ("error", "warning") else None
        )
        own = ("data:", file.parent.as_uri())
        page.on("request", lambda r: None if r.url.startswith(own) else troubles.append(r.url))
        if file.exists():
            page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []
