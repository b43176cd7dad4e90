"""What every page must be: one file that needs nothing else and runs nothing but its own script."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser


class Seen(HTMLParser):
    """The elements of a page, and the text of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open = f"{tag} {len(self.elements)}"

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        self.texts[self.open] = self.texts.get(self.open, "") + data

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [
            (attributes, self.texts.get(f"{name} {index}", ""))
            for index, (name, attributes) in enumerate(self.elements, start=1)
            if name == tag
        ]


def assert_self_contained(text: str) -> None:
    """Nothing is loaded from elsewhere."""
    for tag, attributes in Seen(text).elements:
        assert "src" not in attributes, tag
        assert not (attributes.get("href") or "#").startswith(("http", "//")), tag
    namespace = "http://www.w3.org/2000/svg"
    assert re.findall(r"https?://|url\(|@import", text.replace(namespace, "")) == []


def assert_strict_policy(text: str) -> None:
    """The one script and the one style sheet are allowed, by their hashes, and nothing else."""
    seen = Seen(text)
    policies = [a["content"] for a, _ in seen.of("meta") if a.get("http-equiv")]
    assert len(policies) == 1
    policy = policies[0] or ""
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none';")
    scripts = [text for attributes, text in seen.of("script") if "type" not in attributes]
    ((_, style),) = seen.of("style")
    assert len(scripts) == 1
    for directive, text in (("script-src", scripts[0]), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    handlers = [a for _, attributes in seen.elements for a in attributes if a.startswith("on")]
    assert handlers == []
    assert not any("style" in attributes for _, attributes in seen.elements)
