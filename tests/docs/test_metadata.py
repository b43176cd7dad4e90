"""Files about the project agree with each other."""

from __future__ import annotations

import re
import tomllib

import yaml

from tests.docs.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_citation_has_what_the_format_asks_for() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert citation["title"] == PROJECT["name"]
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    for work in (citation, *citation["references"]):
        assert work["title"]
        for author in work["authors"]:
            assert set(author) in ({"name"}, {"given-names", "family-names"})
    paper = citation["references"][0]
    assert paper["type"] == "conference-paper"
    assert re.fullmatch(r"10\.\d{4,}/\S+", paper["doi"])
    assert paper["doi"] in (ROOT / "docs" / "citing.md").read_text(encoding="utf-8")


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (first, *_) = re.findall(r"^## (\S+)", text, flags=re.MULTILINE)
    assert first == PROJECT["version"]
