"""Links between pages lead somewhere: files, headings, images. Addresses are not fetched."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from markdown.extensions.toc import slugify

from tests.docs.pages import PAGES, ROOT, headings_of, links_of


def on_the_site(heading: str) -> str:
    return slugify(re.sub(r"[`*]", "", heading), "-")


def on_github(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def problem(page: str, link: str) -> str | None:
    """What is wrong with a link of a page."""
    address = urlsplit(link)
    if address.scheme or address.netloc:
        return None if address.scheme == "https" and address.netloc else "is no https address"
    target = (ROOT / page).parent / address.path if address.path else ROOT / page
    if not target.exists():
        return "does not exist"
    if not target.resolve().is_relative_to(ROOT):
        return "leads out of the repository"
    if page.startswith("docs/") and not target.resolve().is_relative_to(ROOT / "docs"):
        return "leads out of docs, so it would be broken on the site"
    if address.fragment:
        headings = headings_of(target.resolve().relative_to(ROOT).as_posix())
        for slug in (on_the_site, on_github):
            if address.fragment not in map(slug, headings):
                return f"names no heading {slug.__name__.replace('_', ' ')}"
    return None


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    wrong = {link: found for link in links_of(page) if (found := problem(page, link))}
    assert not wrong


@pytest.mark.parametrize(
    "link",
    ["docs/nothing.md", "docs/start.md#nothing", "docs/nothing.png", "../x.md", "http://a.org"],
)
def test_a_broken_link_is_noticed(link: str) -> None:
    assert problem("README.md", link)


def test_every_page_is_linked_from_the_first() -> None:
    linked = {link.split("#")[0] for link in links_of("docs/index.md")}
    pages = {Path(page).name for page in PAGES if page.startswith("docs/")} - {"index.md"}
    further = {"larger-models.md"}  # linked from the pages on data and techniques
    assert pages - further <= linked
