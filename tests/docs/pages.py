"""The pages that people read, taken apart: blocks of code, commands, links, headings.

Conventions, which the tests of this folder check:

- Every block names its language.
- `python` and `console` blocks are run, page by page, from top to bottom, in an empty folder that
  has a result in `runs` and a user's models in `my`. A comment above a block,
  `<!-- parsed only: why -->`, exempts it; its commands must still exist, with all their options.
- In a `console` block, commands begin with `$ ` and are followed by what they print, `…` standing
  for lines left out; or there is no `$ ` at all, and every line is a command.
- `yaml` blocks are experiments or a part of one; `toml` blocks can be read.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md"))
)
RUN_ELSEWHERE = {
    "docs/api.md": "tests/api/test_api_page.py",
    "docs/your-technique.md": "tests/test_plugins.py",
}
"""Pages whose Python is run by tests of their own."""
LANGUAGES = {"python", "console", "yaml", "toml", "text", "bibtex"}

_FENCE = re.compile(
    r"(?:^<!-- parsed only: (?P<why>[^\n]+?) -->\n)?^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$",
    flags=re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    """Of its first line of code, from 1."""
    language: str
    text: str
    parsed_only: str | None
    """Why it is not run."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A line of a `console` block."""

    words: tuple[str, ...]
    into: str | None
    """The file its output goes to."""
    prints: tuple[str, ...]
    """What the page says it prints."""


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str) -> list[Block]:
    text = text_of(page)
    return [
        Block(
            page,
            text[: found.start("text")].count("\n") + 1,
            found["language"],
            found["text"],
            found["why"],
        )
        for found in _FENCE.finditer(text)
    ]


def commands_of(block: Block) -> list[Command]:
    lines = block.text.splitlines()
    with_output = any(line.startswith("$ ") for line in lines)
    commands: list[Command] = []
    for line in lines:
        if with_output and not line.startswith("$ "):
            last = commands.pop()
            commands.append(Command(last.words, last.into, (*last.prints, line)))
            continue
        words = shlex.split(line.removeprefix("$ "), comments=True)
        into = None
        if len(words) > 2 and words[-2] == ">":
            *words, _, into = words
        if words:
            commands.append(Command(tuple(words), into, ()))
    return commands


def without_code(page: str) -> str:
    """The page without blocks and `code`, so that no link or heading is seen in them."""
    return re.sub(r"`[^`\n]+`", "", _FENCE.sub("", text_of(page)))


def headings_of(page: str) -> list[str]:
    text = _FENCE.sub("", text_of(page))
    return re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)


def links_of(page: str) -> list[str]:
    """Targets of links and images."""
    text = without_code(page)
    inline = re.findall(r"\]\(([^()\s]+)\)", text)
    return [*inline, *re.findall(r"<(?:img|a)[^>]*? (?:src|href)=\"([^\"]+)\"", text)]
