"""The blocks of every page run, from top to bottom, as a reader would run them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, RUN_ELSEWHERE, Block, Command, blocks_of, commands_of

Memloc = Callable[..., tuple[int, str, str]]


def is_run(block: Block) -> bool:
    elsewhere = block.language == "python" and block.page in RUN_ELSEWHERE
    return block.language in ("python", "console") and not block.parsed_only and not elsewhere


TO_RUN = [page for page in PAGES if any(map(is_run, blocks_of(page)))]


def assert_shown(shown: tuple[str, ...], printed: str, where: str) -> None:
    """Lines of the page come one after the other in what was printed, `…` is any of them."""
    rest = [line.rstrip() for line in printed.splitlines()]
    free = False
    for line in map(str.rstrip, shown):
        if line == "…":
            free = True
            continue
        assert line in rest, f"{where} says {line!r}, but it is not printed (or earlier): {printed}"
        place = rest.index(line)
        assert free or place == 0, f"{where} leaves out what is printed before {line!r}: {printed}"
        rest, free = rest[place + 1 :], False


def run_command(command: Command, memloc: Memloc, where: str) -> None:
    program, *words = command.words
    assert program == "memloc", f"{where}: {program} can only be parsed; say why above the block"
    code, out, err = memloc(*words)
    assert code == 0, (where, command.words, out, err)
    if command.into:
        Path(command.into).write_text(out, encoding="utf-8")
    assert_shown(command.prints, out, where)


@pytest.mark.parametrize("page", TO_RUN)
def test_the_blocks_of_a_page_run(page: str, page_folder: Path, memloc: Memloc) -> None:
    names: dict[str, object] = {}
    for block in filter(is_run, blocks_of(page)):
        if block.language == "console":
            for command in commands_of(block):
                run_command(command, memloc, str(block))
        else:
            # As many empty lines before it as on the page, so that a traceback points there.
            code = "\n" * (block.line - 1) + block.text
            exec(compile(code, str(ROOT / page), "exec"), names)


def test_the_pages_that_are_run_elsewhere_are() -> None:
    for page, test in RUN_ELSEWHERE.items():
        if (ROOT / page).exists():
            assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("shown", "fits"),
    [
        (("b", "…", "d"), False),
        (("…", "b", "…", "d"), True),
        (("a", "b"), True),
        (("a", "c"), False),
        (("…", "x"), False),
    ],
)
def test_what_a_page_shows_is_compared_with_what_is_printed(shown, fits: bool) -> None:
    if fits:
        assert_shown(shown, "a\nb\nc\nd\n", "page")
    else:
        with pytest.raises(AssertionError):
            assert_shown(shown, "a\nb\nc\nd\n", "page")
